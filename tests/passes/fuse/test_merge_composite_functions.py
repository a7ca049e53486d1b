# SPDX-License-Identifier: Apache-2.0
"""MergeCompositeFunctions: neighbours for one code generator become one function."""

from pass_check import module

from relaxvm.relax.analysis import well_formed
from relaxvm.relax.dpl import is_op, wildcard
from relaxvm.relax.transform import FuseOpsByPattern, MergeCompositeFunctions


def regions(program: str, patterns: dict[str, str]) -> dict[str, str]:
    """Names of the functions that are handed over, with their code generator."""
    rows = [(name, is_op(op)(wildcard())) for name, op in patterns.items()]
    made = MergeCompositeFunctions()(FuseOpsByPattern(rows)(module(program)))
    well_formed(made)
    return {
        v.name_hint: f.attrs["Codegen"]
        for v, f in made.functions_items()
        if "Codegen" in getattr(f, "attrs", {})
    }


def test_chain_is_one_function():
    assert regions(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                a: R.Tensor((2,), "float32") = R.exp(x)
                b: R.Tensor((2,), "float32") = R.tanh(a)
                R.output(b)
            return b
        """,
        {"a.exp": "relax.exp", "a.tanh": "relax.tanh"},
    ) == {"fused_relax_exp_relax_tanh_a": "a"}


def test_what_waits_for_another_generator_stays_apart():
    assert regions(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                a: R.Tensor((2,), "float32") = R.exp(x)
                b: R.Tensor((2,), "float32") = R.tanh(a)
                c: R.Tensor((2,), "float32") = R.sin(b)
                R.output(c)
            return c
        """,
        {"a.exp": "relax.exp", "b.tanh": "relax.tanh", "a.sin": "relax.sin"},
    ) == {
        "fused_relax_exp1_a": "a",
        "fused_relax_tanh1_b": "b",
        "fused_relax_sin1_a": "a",
    }


def test_two_readers_of_one_value_join_it():
    assert regions(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")):
            with R.dataflow():
                a: R.Tensor((2,), "float32") = R.exp(x)
                b: R.Tensor((2,), "float32") = R.tanh(a)
                c: R.Tensor((2,), "float32") = R.sin(a)
                R.output(b, c)
            return (b, c)
        """,
        {"a.exp": "relax.exp", "a.tanh": "relax.tanh", "a.sin": "relax.sin"},
    ) == {"fused_relax_exp_relax_tanh_relax_sin_a": "a"}


def test_constants_outside_of_composite_functions_become_arguments():
    pattern = is_op("relax.nn.relu")(is_op("relax.add")(wildcard(), wildcard()))
    mod = module(
        """
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                y = R.nn.relu(R.add(x, R.const([1.0, 2.0, 3.0], "float32")))
                R.output(y)
            return y
        """
    )
    fused = FuseOpsByPattern([("other.clipped_sum", pattern)], bind_constants=False)(mod)
    merged = MergeCompositeFunctions()(fused)
    (outer,) = (f for f in merged.functions.values() if "Codegen" in f.attrs)
    assert [p.ty.shape.values[0] for p in outer.params] == [3, 3]
    assert "metadata" not in outer.script() and "R.const" not in outer.script()
