# SPDX-License-Identifier: Apache-2.0
"""FuseTransposeMatmul: a product whose right side was transposed for it is one tensor program."""

import numpy as np
import pytest
from pass_check import check_pass, module

import relaxvm
from relaxvm import relax
from relaxvm.relax.transform import DeadCodeElimination, FuseTIR, FuseTransposeMatmul


def fused(mod):
    """Without the groups that nobody calls any more."""
    return DeadCodeElimination()(FuseTransposeMatmul()(mod))


MAIN = """
@R.function
def main(x: R.Tensor(%(x)s, "%(dtype)s"), w: R.Tensor(%(w)s, "%(dtype)s")):
    with R.dataflow():
        t = R.permute_dims(w, axes=%(axes)s)
        y = R.matmul(x, t, out_dtype=%(out)s)
        R.output(y)
    return y
"""


def main(x, w, axes=None, dtype="float32", out=None):
    return module(MAIN % {"x": x, "w": w, "axes": axes, "dtype": dtype, "out": repr(out)})


def test_rows_of_the_right_side_are_read():
    check_pass(
        fused,
        before="""
        @R.function
        def main(x: R.Tensor(("n", 8), "float16"), w: R.Tensor((16, 8), "float16")):
            n = T.int64()
            with R.dataflow():
                t = R.permute_dims(w)
                y = R.matmul(x, t, out_dtype="float32")
                R.output(y)
            return y
        """,
        after="""
        @T.prim_func(private=True, s_tir=True)
        def NT_matmul(x_handle: T.handle, w: T.Buffer((T.int64(16), T.int64(8)), "float16"), y_handle: T.handle):
            T.func_attr({"tirx.noalias": True})
            n = T.int64()
            x = T.match_buffer(x_handle, (n, T.int64(8)), "float16")
            y = T.match_buffer(y_handle, (n, T.int64(16)), "float32")
            for i, j, k in T.grid(n, T.int64(16), T.int64(8)):
                with T.sblock("y"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        y[vi, vj] = T.float32(0)
                    y[vi, vj] = y[vi, vj] + T.Cast("float32", x[vi, vk]) * T.Cast("float32", w[vj, vk])

        @R.function
        def main(x: R.Tensor(("n", 8), "float16"), w: R.Tensor((16, 8), "float16")):
            n = T.int64()
            cls = Module
            with R.dataflow():
                y = R.call_tir(cls.NT_matmul, (x, w), out_ty=R.Tensor((n, 16), "float32"))
                R.output(y)
            return y
        """,
    )


def test_groups_stay_behind_until_they_are_cleared_away():
    given = main("(4, 8)", "(16, 8)")
    result = FuseTransposeMatmul()(given)
    names = {str(v.name_hint) for v in result.functions}
    assert names == {"main", "NT_matmul", "fused_relax_permute_dims_relax_matmul"}
    assert {str(v.name_hint) for v in FuseTIR()(result).functions} == {"main", "NT_matmul"}


@pytest.mark.parametrize(
    "x, w, axes",
    [
        ((4, 8), (16, 8), None),
        ((8,), (16, 8), [-1, -2]),
        ((3, 5, 8), (2, 1, 4, 8), [0, 1, 3, 2]),
        ((3, 1, 5, 8), (7, 4, 8), [0, 2, 1]),
        ((5, 8), (1, 4, 8), [0, 2, 1]),
    ],
)
def test_product_is_the_same(x, w, axes):
    result = fused(main(x, w, axes))
    assert "permute_dims" not in result.script()
    vm = relax.VirtualMachine(relaxvm.compile(result), relaxvm.cpu())
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(x, "f4"), rng.standard_normal(w, "f4")
    got = vm["main"](relaxvm.runtime.tensor(a), relaxvm.runtime.tensor(b)).numpy()
    np.testing.assert_allclose(got, np.matmul(a, np.swapaxes(b, -1, -2)), rtol=1e-4, atol=1e-5)


def test_sizes_that_stand_alone_nowhere_are_passed():
    given = module("""
        @R.function
        def main(x: R.Tensor((4, "n * 2"), "float32"), w: R.Tensor((16, "n * 2"), "float32"), s: R.Shape(["n"])):
            n = T.int64()
            with R.dataflow():
                t = R.permute_dims(w)
                y = R.matmul(x, t)
                R.output(y)
            return y
        """)
    result = fused(given)
    assert "NT_matmul" in result.script()
    vm = relax.VirtualMachine(relaxvm.compile(result), relaxvm.cpu())
    a, b = np.ones((4, 6), "f4"), np.full((16, 6), 2, "f4")
    got = vm["main"](
        relaxvm.runtime.tensor(a), relaxvm.runtime.tensor(b), relaxvm.runtime.ShapeTuple([3])
    )
    np.testing.assert_array_equal(got.numpy(), a @ b.T)


@pytest.mark.parametrize(
    "x, w, axes",
    [
        ((5, 8), (2, 8, 3), [0, 1, 2]),
        ((4, 2, 8), (8, 5, 4), [2, 0, 1]),
        ((4, 5, 8), (3, 8, 4), None),
        ((5, 8), (8,), None),
    ],
    ids=["unchanged", "rotated", "reversed", "vector"],
)
def test_other_permutations_stay(x, w, axes):
    given = main(x, w, axes)
    assert FuseTransposeMatmul()(given).same_as(given)


def test_a_transpose_that_others_read_stays():
    given = module("""
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((16, 8), "float32")):
            with R.dataflow():
                t = R.permute_dims(w)
                y = R.matmul(x, t)
                z = R.exp(t)
                R.output(y, z)
            return (y, z)
        """)
    assert FuseTransposeMatmul()(given).same_as(given)


def test_factors_of_unknown_shape_stay():
    given = module("""
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor(ndim=2, dtype="float32")):
            with R.dataflow():
                t = R.permute_dims(w)
                y = R.matmul(x, t)
                R.output(y)
            return y
        """)
    assert FuseTransposeMatmul()(given).same_as(given)


def test_outside_of_dataflow_blocks_nothing_changes():
    given = module("""
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((16, 8), "float32")):
            t = R.permute_dims(w)
            y = R.matmul(x, t)
            return y
        """)
    assert FuseTransposeMatmul()(given).same_as(given)
