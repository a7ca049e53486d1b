# SPDX-License-Identifier: Apache-2.0
"""DataflowUseInplaceCalls: elementwise operators write over what nobody reads any more; and its analyses."""

import numpy as np
import pytest
from pass_check import check_pass, module

import relaxvm
from relaxvm import relax
from relaxvm.relax.testing.transform import (
    dataflow_alias_analysis,
    dataflow_inplace_analysis,
    dataflow_liveness_analysis,
    dataflow_single_inplace_call,
)
from relaxvm.relax.transform import DataflowUseInplaceCalls

CHAIN = """
@R.function
def main(x: R.Tensor((2, 3), "int32"), y: R.Tensor((2, 3), "int32")) -> R.Tensor((2, 3), "int32"):
    with R.dataflow():
        z = R.add(x, y)
        z2 = R.multiply(x, x)
        w = (z, z2)
        q = w[0]
        p = R.add(q, y)
        q2 = w[1]
        a = R.nn.relu(p)
        n = R.subtract(q2, a)
        R.output(n)
    return n
"""


def block_of(mod):
    return mod["main"].body.blocks[0]


def live(mod):
    return {v.name: r for v, r in dataflow_liveness_analysis(block_of(mod)).items()}


def memory(mod):
    variables, tuples = dataflow_alias_analysis(block_of(mod), mod["main"].params)
    return {v.name: m for v, m in variables.items()}, tuples


def inplace(mod):
    return dataflow_inplace_analysis(block_of(mod), mod["main"].params, mod)


def test_live_ranges():
    assert live(module(CHAIN)) == {
        "x": (-1, 8),
        "y": (-1, 8),
        "z": (0, 2),
        "z2": (1, 2),
        "w": (2, 2),
        "q": (3, 4),
        "p": (4, 6),
        "q2": (5, 7),
        "a": (6, 7),
        "n": (7, 8),
    }


def test_memory_of_tuples_and_their_items():
    variables, tuples = memory(module(CHAIN))
    assert variables == {
        "x": {0},
        "y": {1},
        "z": {2},
        "z2": {3},
        "w": {4},
        "q": {2},
        "p": {5},
        "q2": {3},
        "a": {6},
        "n": {7},
    }
    assert tuples == {4: [{2}, {3}]}


def test_memory_of_views_and_of_what_functions_give():
    variables, tuples = memory(
        module("""
        @R.function
        def main(x: R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((2, 3), "float32"))):
            with R.dataflow():
                a = x[0]
                b = R.exp(a)
                c = b
                d = R.match_cast(c, R.Tensor((2, 3), "float32"))
                e = R.reshape(d, (6,))
                f = R.call_pure_packed("f", e, a, ty_args=R.Tensor((6,), "float32"))
                g = R.split(f, 2)
                h = g[1]
                R.output(h)
            return h
        """)
    )
    assert variables == {
        "x": {0},
        "a": {1},
        "b": {3},
        "c": {3},
        "d": {3},
        "e": {3},
        "f": {1, 3, 4},
        "g": {5},
        "h": {7},
    }
    assert tuples == {0: [{1}, {2}], 5: [{6}, {7}]}


def test_results_that_are_written_over_arguments():
    variables, tuples = memory(
        module("""
        @T.prim_func(private=True, s_tir=True)
        def f(a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32")):
            for i in range(2):
                with T.sblock("a"):
                    v = T.axis.spatial(2, i)
                    a[v] = a[v] + b[v]

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            cls = Module
            with R.dataflow():
                a = R.exp(x)
                b = R.call_tir_inplace(cls.f, (a, x), inplace_indices=[0], out_ty=R.Tensor((2,), "float32"))
                c = R.call_inplace_packed(
                    "f", b, x, inplace_indices=[-1, 0], ty_args=[R.Tensor((2,), "float32"), R.Tensor((2,), "float32")]
                )
                d = c[1]
                R.output(d)
            return d
        """)
    )
    assert variables == {"x": {0}, "a": {1}, "b": {1}, "c": {3}, "d": {1}}
    assert tuples == {3: [{4}, {1}]}


def test_arguments_that_nobody_reads_any_more():
    found = [(4, {0}), (6, {0}), (7, {0, 1})]
    assert inplace(module(CHAIN)) == (found, found)


def test_other_shapes_of_as_many_elements():
    mod = module("""
        @R.function
        def main(x: R.Tensor((6,), "float32"), y: R.Tensor((1, 6), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(y)
                c = R.add(a, b)
                R.output(c)
            return c
        """)
    assert inplace(mod) == ([(2, {0, 1})], [(2, {1})])


@pytest.mark.parametrize(
    "body",
    [
        "b = R.nn.relu(x)",
        "a = R.exp(x)\nb = R.nn.relu(a)\nc = R.exp(a)",
        "a = R.exp(x)\nc = R.reshape(a, (6,))\nb = R.nn.relu(a)",
        "a = R.exp(x)\nc = (a, x)\nb = R.nn.relu(a)",
        "a = R.const([[1, 2, 3], [4, 5, 6]], 'float32')\nb = R.nn.relu(a)",
        "a = R.call_pure_packed('f', ty_args=R.Tensor((2, 3), 'float32'))\nb = R.nn.relu(a)",
        "a = R.exp(x)\nb = R.sin(a)",
        "a = R.exp(x)\nd = a\nb = R.add(a, d)",
    ],
    ids=[
        "parameter",
        "read later",
        "view lives",
        "tuple lives",
        "constant",
        "of a function",
        "other operator",
        "two names of one",
    ],
)
def test_what_must_not_be_overwritten(body):
    lines = "\n".join("        " + line for line in body.split("\n"))
    outputs = "b, c" if "c =" in body else "b"
    mod = module(f"""
@R.function
def main(x: R.Tensor((2, 3), "float32")):
    with R.dataflow():
{lines}
        R.output({outputs})
    return ({outputs}, x)
""")
    assert inplace(mod) == ([], [])


def test_operators_write_over_arguments():
    check_pass(
        DataflowUseInplaceCalls(),
        before=CHAIN,
        after="""
        @T.prim_func(private=True, s_tir=True)
        def add_inplace(q: T.Buffer((T.int64(2), T.int64(3)), "int32"), y: T.Buffer((T.int64(2), T.int64(3)), "int32")):
            T.func_attr({"tirx.noalias": True})
            for i, j in T.grid(T.int64(2), T.int64(3)):
                with T.sblock("add"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    q[vi, vj] = q[vi, vj] + y[vi, vj]

        @T.prim_func(private=True, s_tir=True)
        def relu_inplace(p: T.Buffer((T.int64(2), T.int64(3)), "int32")):
            T.func_attr({"tirx.noalias": True})
            for i, j in T.grid(T.int64(2), T.int64(3)):
                with T.sblock("relu"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    p[vi, vj] = T.max(p[vi, vj], 0)

        @T.prim_func(private=True, s_tir=True)
        def subtract_inplace(q: T.Buffer((T.int64(2), T.int64(3)), "int32"), a: T.Buffer((T.int64(2), T.int64(3)), "int32")):
            T.func_attr({"tirx.noalias": True})
            for i, j in T.grid(T.int64(2), T.int64(3)):
                with T.sblock("subtract"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    a[vi, vj] = q[vi, vj] - a[vi, vj]

        @R.function
        def main(x: R.Tensor((2, 3), "int32"), y: R.Tensor((2, 3), "int32")) -> R.Tensor((2, 3), "int32"):
            cls = Module
            with R.dataflow():
                z = R.add(x, y)
                z2 = R.multiply(x, x)
                w = (z, z2)
                q = w[0]
                p = R.call_tir_inplace(cls.add_inplace, (q, y), inplace_indices=[0], out_ty=R.Tensor((2, 3), "int32"))
                q2 = w[1]
                a = R.call_tir_inplace(cls.relu_inplace, (p,), inplace_indices=[0], out_ty=R.Tensor((2, 3), "int32"))
                n = R.call_tir_inplace(cls.subtract_inplace, (q2, a), inplace_indices=[1], out_ty=R.Tensor((2, 3), "int32"))
                R.output(n)
            return n
        """,
    )


SYMBOLIC = """
@R.function
def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor((1, 3), "float32")):
    n = T.int64()
    with R.dataflow():
        a: R.Tensor((n, 3), "float32") = R.exp(x)
        b: R.Tensor((n, 3), "float32") = R.add(a, y)
        c: R.Tensor((n, 3), "float32") = R.multiply(b, b)
        d: R.Tensor((n, 3), "float32") = R.nn.silu(c)
        e: R.Tensor((n, 3), "float32") = R.divide(R.const(1, "float32"), d)
        R.output(e)
    return e
"""


@pytest.mark.parametrize("text, shapes", [(CHAIN, [(2, 3), (2, 3)]), (SYMBOLIC, [(5, 3), (1, 3)])])
def test_result_is_the_same(text, shapes):
    given = module(text)
    result = DataflowUseInplaceCalls()(given)
    assert result.script().count("call_tir_inplace") == (3 if text is CHAIN else 4)
    dtype = "int32" if text is CHAIN else "float32"
    args = [np.random.default_rng(0).integers(1, 5, s).astype(dtype) for s in shapes]

    def run(mod):
        vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
        return vm["main"](*[relaxvm.runtime.tensor(a) for a in args]).numpy()

    np.testing.assert_allclose(run(result), run(given), rtol=1e-6)


def test_a_module_without_such_calls_stays():
    given = module("""
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y
        """)
    assert DataflowUseInplaceCalls()(given).same_as(given)


def test_one_call_by_hand():
    given = module(CHAIN)
    call, result = dataflow_single_inplace_call(given, block_of(given).bindings[0].value, [1])
    assert str(call.op.name) == "relax.call_tir_inplace"
    assert [int(i) for i in call.attrs.inplace_indices] == [1]
    assert "add_inplace" in {str(v.name_hint) for v in result.functions}


def test_an_argument_of_another_shape_is_an_error():
    given = module("""
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((1, 3), "float32")):
            with R.dataflow():
                z = R.add(x, y)
                R.output(z)
            return z
        """)
    call = block_of(given).bindings[0].value
    with pytest.raises(ValueError, match="argument 1 of this call cannot be written over"):
        dataflow_single_inplace_call(given, call, [1])
    with pytest.raises(ValueError, match="argument 2 of this call cannot be written over"):
        dataflow_single_inplace_call(given, call, [2])
    with pytest.raises(ValueError, match="give one index"):
        dataflow_single_inplace_call(given, call, [0, 1])
