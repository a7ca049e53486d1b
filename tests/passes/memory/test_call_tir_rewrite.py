# SPDX-License-Identifier: Apache-2.0
"""CallTIRRewrite: results are allocated by the program and written to by calls without a result."""

from __future__ import annotations

import relaxvm
from relaxvm.relax import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


def rewritten(mod: relaxvm.IRModule) -> str:
    return transform.CallTIRRewrite()(mod).script()


def test_call_tir_becomes_an_allocation_and_a_call() -> None:
    @I.ir_module
    class Mod:
        @T.prim_func(private=True)
        def copy(a: T.handle, b: T.handle):
            n = T.int64()
            A = T.match_buffer(a, (n,), "float32")
            B = T.match_buffer(b, (n,), "float32")
            for i in range(n):
                with T.sblock("copy"):
                    vi = T.axis.spatial(n, i)
                    B[vi] = A[vi]

        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            cls = Mod
            y = R.call_tir(cls.copy, (x,), out_ty=R.Tensor((n,), "float32"))
            return y

    text = rewritten(Mod)
    assert (
        'R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0), R.str("global"))'
        in text
    )
    assert "cls.copy(x, alloc)" in text
    assert "call_tir" not in text


def test_several_results_become_several_allocations_in_order() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.call_dps_packed(
                "f", (x,), out_ty=[R.Tensor((2,), "float32"), R.Tensor((3,), "int64")]
            )
            return y

    text = rewritten(Mod)
    assert text.index("R.shape([2])") < text.index("R.shape([3])")
    assert 'R.call_packed("f", x, alloc, alloc_1' in text


def test_result_whose_shape_is_a_variable_is_matched_first() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32"), s: R.Shape(ndim=2)):
            y = R.call_dps_packed("f", (x,), out_ty=R.Tensor(s, "float32", ndim=2))
            return y

    text = rewritten(Mod)
    assert "R.match_cast(s, R.Shape([d0, d1]))" in text
    assert "alloc_tensor(R.shape([d0, d1])" in text


def test_call_in_place_passes_the_argument_once() -> None:
    @I.ir_module
    class Mod:
        @T.prim_func(private=True)
        def double(a: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("double"):
                    vi = T.axis.spatial(4, i)
                    a[vi] = a[vi] * T.float32(2)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Mod
            y = R.call_tir_inplace(cls.double, (x,), [0], R.Tensor((4,), "float32"))
            return y

    text = rewritten(Mod)
    assert "cls.double(x)" in text
    assert "alloc_tensor" not in text
