# SPDX-License-Identifier: Apache-2.0
"""FuseOpsByPattern: what a pattern fits becomes a function for a code generator."""

import pytest
from pass_check import check_pass, module

from relaxvm.relax.dpl import is_op, is_tuple_get_item, wildcard
from relaxvm.relax.transform import FuseOpsByPattern, FusionPattern, PatternCheckContext

EXP_RELU = is_op("relax.nn.relu")(is_op("relax.exp")(wildcard()))

CHAIN = """
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        with R.dataflow():
            a: R.Tensor((2,), "float32") = R.exp(x)
            b: R.Tensor((2,), "float32") = R.nn.relu(a)
            R.output(b)
        return b
    """


def test_group_becomes_a_private_function():
    check_pass(
        FuseOpsByPattern([("lib.exp_relu", EXP_RELU)]),
        before=CHAIN,
        after="""
        @R.function(private=True)
        def fused_relax_exp_relax_nn_relu(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            R.func_attr({"Composite": "lib.exp_relu", "Primitive": True})
            with R.dataflow():
                a: R.Tensor((2,), "float32") = R.exp(x)
                b: R.Tensor((2,), "float32") = R.nn.relu(a)
                R.output(b)
            return b

        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                b: R.Tensor((2,), "float32") = Module.fused_relax_exp_relax_nn_relu(x)
                R.output(b)
            return b
        """,
    )


def test_annotated_group_is_exported_around_a_local_function():
    made = FuseOpsByPattern([("lib.exp_relu", EXP_RELU)], annotate_codegen=True)(module(CHAIN))
    names = sorted(v.name_hint for v in made.get_global_vars())
    assert names == ["fused_relax_exp_relax_nn_relu_lib", "main"]
    assert made["fused_relax_exp_relax_nn_relu_lib"].attrs["Codegen"] == "lib"
    again = FuseOpsByPattern([("lib.exp_relu", EXP_RELU)], annotate_codegen=True)(made)
    assert again.script() == made.script()


def test_check_sees_the_parts_and_may_refuse():
    seen: list[PatternCheckContext] = []

    def refuse(context):
        seen.append(context)
        return False

    x = wildcard()
    root = is_op("relax.exp")(x)
    check_pass(
        FuseOpsByPattern([FusionPattern("lib.exp", root, {"x": x, "root": root}, refuse)]),
        before=CHAIN,
    )
    assert seen[0].annotated_expr["x"].name == "x"
    assert seen[0].annotated_expr["root"].op.name == "relax.exp"
    assert len(seen[0].matched_bindings) == 1


def test_value_read_outside_is_a_second_result():
    made = FuseOpsByPattern([("lib.exp_relu", EXP_RELU)])(
        module(
            """
            @R.function
            def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                with R.dataflow():
                    a: R.Tensor((2,), "float32") = R.exp(x)
                    b: R.Tensor((2,), "float32") = R.nn.relu(a)
                    c: R.Tensor((2,), "float32") = R.add(a, b)
                    R.output(c)
                return c
            """
        )
    )
    assert len(made["fused_relax_exp_relax_nn_relu"].ret_ty.fields) == 2


def test_items_of_tuples_belong_to_the_group():
    parts = is_op("relax.split")(wildcard())
    pattern = is_op("relax.add")(is_tuple_get_item(parts, 0), is_tuple_get_item(parts, 1))
    made = FuseOpsByPattern([("lib.halves", pattern)])(
        module(
            """
            @R.function
            def main(x: R.Tensor((4,), "float32")) -> R.Tensor((2,), "float32"):
                with R.dataflow():
                    t: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")) = R.split(x, 2)
                    a: R.Tensor((2,), "float32") = t[0]
                    b: R.Tensor((2,), "float32") = t[1]
                    c: R.Tensor((2,), "float32") = R.add(a, b)
                    R.output(c)
                return c
            """
        )
    )
    assert len(made["main"].body.blocks[0].bindings) == 1


def test_group_that_needs_its_own_result_is_an_error():
    x = wildcard()
    pattern = is_op("relax.add")(is_op("relax.nn.relu")(is_op("relax.exp")(x)), wildcard())
    with pytest.raises(RuntimeError, match="cyclic"):
        FuseOpsByPattern([("lib.loop", pattern)])(
            module(
                """
                @R.function
                def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                    with R.dataflow():
                        a: R.Tensor((2,), "float32") = R.exp(x)
                        b: R.Tensor((2,), "float32") = R.nn.relu(a)
                        c: R.Tensor((2,), "float32") = R.tanh(a)
                        d: R.Tensor((2,), "float32") = R.add(b, c)
                        R.output(d)
                    return d
                """
            )
        )


def test_sizes_that_no_tensor_gives_come_as_a_shape():
    made = FuseOpsByPattern([("lib.reshape", is_op("relax.reshape")(wildcard(), wildcard()))])(
        module(
            """
            @R.function
            def main(x: R.Tensor(("n * 2",), "float32"), s: R.Shape(["n"])) -> R.Tensor(("n", 2), "float32"):
                n = T.int64()
                with R.dataflow():
                    y: R.Tensor((n, 2), "float32") = R.reshape(x, R.shape([n, 2]))
                    R.output(y)
                return y
            """
        )
    )
    assert [str(p.ty).split("(")[0] for p in made["fused_relax_reshape"].params] == [
        "R.Tensor",
        "R.Shape",
    ]
