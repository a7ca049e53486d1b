# SPDX-License-Identifier: Apache-2.0
"""Modules with define_subroutine are functions of their own, once for each distinct use."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import te
from relaxvm.relax.frontend import nn

X = nn.spec.Tensor(["n", 4], "float32")


class Activation(nn.Module):
    define_subroutine = True

    def __init__(self, slope: float = 0.0) -> None:
        self.slope = slope

    def forward(self, x):
        return nn.maximum(x, x * self.slope)


class DenseBlock(nn.Module):
    define_subroutine = True

    def __init__(self, rows: int, columns: int) -> None:
        self.w, self.act = nn.Parameter((rows, columns)), Activation()

    def forward(self, x, shift=None):
        product = nn.matmul(x, self.w)
        return self.act(product if shift is None else product + shift)


class Model(nn.Module):
    def __init__(self) -> None:
        self.a, self.b, self.c = DenseBlock(4, 4), DenseBlock(4, 4), DenseBlock(4, 3)

    def forward(self, x):
        return self.c(self.b(self.a(x)))


def names(mod) -> list[str]:
    return sorted(v.name_hint for v in mod.get_global_vars())


def test_equal_uses_share_a_function(run_module):
    mod, _ = Model().export_tvm({"forward": {"x": X}})
    assert names(mod) == ["activation", "activation1", "dense_block", "dense_block1", "forward"]
    bindings = mod["forward"].body.blocks[0].bindings
    assert [b.var.name for b in bindings][:2] == ["dense_block_output", "dense_block_output1"]
    assert "global_symbol" not in (mod["dense_block"].attrs or {})
    x = np.random.default_rng(0).standard_normal((5, 4)).astype("float32")
    got, w = run_module(Model(), {"x": X}, x)
    want = x
    for name in "abc":
        want = np.maximum(want @ w[f"{name}.w"], 0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_modules_that_differ_in_an_attribute_are_two_functions(run_module):
    class Two(nn.Module):
        def __init__(self):
            self.a, self.b = Activation(0.5), Activation(0.25)

        def forward(self, x):
            return self.a(x), self.b(x)

    got, _ = run_module(Two(), {"x": X}, np.full((1, 4), -8, "float32"))
    assert [g[0, 0] for g in got] == [-4, -2]


def test_sizes_that_are_expressions_are_handed_over(run_module):
    class Doubled(nn.Module):
        def __init__(self):
            self.block = DenseBlock(4, 2)

        def forward(self, x):
            return self.block(nn.concat([x, x], 0), shift=nn.zeros([x.shape[0] * 2, 1]))

    x = np.ones((3, 4), "float32")
    got, w = run_module(Doubled(), {"x": X}, x)
    np.testing.assert_allclose(got, np.maximum(np.ones((6, 4)) @ w["block.w"], 0), rtol=1e-4)


def test_tensor_programs_and_tuples_in_subroutines(run_module):
    class Pair(nn.Module):
        define_subroutine = True

        def forward(self, xs):
            double = lambda a: te.compute(a.shape, lambda *i: a(*i) * 2.0)
            return nn.tensor_expr_op(double, "double", [xs[0]]), xs

    class Outer(nn.Module):
        def __init__(self):
            self.pair = Pair()

        def forward(self, x):
            twice, (x, y) = self.pair((x, x + 1.0))
            return twice - y

    got, _ = run_module(Outer(), {"x": X}, np.full((2, 4), 3, "float32"))
    assert got.tolist() == [[2.0] * 4] * 2


def test_what_a_subroutine_cannot_take_is_an_error():
    class Numbered(nn.Module):
        define_subroutine = True

        def forward(self, x, number):
            return x * number

    class Outer(nn.Module):
        def __init__(self, part):
            self.part = part

        def forward(self, x):
            return self.part(x, 3)

    with pytest.raises(TypeError, match="its argument number must be a tensor"):
        Outer(Numbered()).export_tvm({"forward": {"x": X}})

    class Stateful(Numbered):
        def __init__(self):
            self.cache = nn.KVCache(2, [4])

        def forward(self, x, number=None):
            return x

    with pytest.raises(RuntimeError, match="Stateful holds state"):
        Stateful().export_tvm({"forward": {"x": X}})

    class Printing(Numbered):
        def forward(self, x, number=None):
            nn.print_(x)
            return x

    with pytest.raises(RuntimeError, match="define_subroutine cannot call debug functions"):
        Printing().export_tvm({"forward": {"x": X}}, debug=True)
