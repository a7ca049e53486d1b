# SPDX-License-Identifier: Apache-2.0
"""Exponentials below a maximum: taken as those of negative numbers only where they must be."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"])
def test_values_that_grew_since_their_maximum_was_taken(target: str) -> None:
    @I.ir_module(s_tir=True)
    class Grown:
        @T.prim_func(s_tir=True)
        def grown(
            x: T.Buffer((T.int64(4), T.int64(40)), "float32"),
            y: T.Buffer((T.int64(4), T.int64(40)), "float32"),
        ):
            t = T.sblock_alloc_buffer((T.int64(4), T.int64(40)), "float32")
            top = T.sblock_alloc_buffer((T.int64(4),), "float32")
            for i, j in T.grid(T.int64(4), T.int64(40)):
                with T.sblock("twice"):
                    a, b = T.axis.remap("SS", [i, j])
                    t[a, b] = x[a, b] * T.float32(2)
            for i, j in T.grid(T.int64(4), T.int64(40)):
                with T.sblock("top"):
                    a, b = T.axis.remap("SR", [i, j])
                    with T.init():
                        top[a] = T.float32(-1e30)
                    top[a] = T.max(top[a], t[a, b])
            for i, j in T.grid(T.int64(4), T.int64(40)):
                with T.sblock("grow"):
                    a, b = T.axis.remap("SS", [i, j])
                    t[a, b] = x[a, b] + T.float32(60)
            for i, j in T.grid(T.int64(4), T.int64(40)):
                with T.sblock("exp"):
                    a, b = T.axis.remap("SS", [i, j])
                    y[a, b] = T.exp(t[a, b] - top[a])

        @R.function
        def main(x: R.Tensor((4, 40), "float32")):
            cls = Grown
            y = R.call_tir(cls.grown, (x,), out_ty=R.Tensor((4, 40), "float32"))
            return y

    x = np.random.default_rng(0).standard_normal((4, 40), dtype="float32")
    vm = relaxvm.VirtualMachine(relaxvm.compile(Grown, target=target), relaxvm.cpu())
    got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    want = np.exp(x.astype("float64") + 60 - (2 * x).max(1, keepdims=True))
    np.testing.assert_allclose(got, want, rtol=1e-5)
