# SPDX-License-Identifier: Apache-2.0
"""Sizes that are long to say get a name, once; what follows says the name."""

import numpy as np
import pytest

from relaxvm.relax import DataflowVar, TensorType, Var
from relaxvm.relax.frontend.onnx import from_onnx

PARTS = 30
HEADS = ", ".join(f"float[n{i}] x{i}" for i in range(PARTS))
CLIPS = " ".join(f"c{i} = Slice(x{i}, zero, five)" for i in range(PARTS))
CLIPPED = ", ".join(f"c{i}" for i in range(PARTS))
CONSTANTS = "zero = Constant<value = int64[1] {0}>() five = Constant<value = int64[1] {5}>()"


@pytest.fixture
def feed():
    """Inputs of 0 to 9 elements."""
    rng = np.random.default_rng(0)
    return {f"x{i}": rng.standard_normal(i % 10).astype("float32") for i in range(PARTS)}


def joined(feed):
    return np.concatenate([x[:5] for x in feed.values()])


def names_of_sizes(mod):
    """The variables among the sizes of all tensors of `main`, by name."""
    found = {}
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.var, (Var, DataflowVar)) and isinstance(
                binding.var.ty, TensorType
            ):
                dims = binding.var.ty.shape.values if binding.var.ty.shape else []
                found.update({str(d): d for d in dims if not hasattr(d, "value")})
    return found


def test_equal_long_sizes_are_one_variable(make_model, run_model_once, feed):
    model = make_model(
        f"g ({HEADS}) => (float[a] y, float[b] z) {{ {CONSTANTS} {CLIPS}"
        f" j = Concat<axis=0>({CLIPPED}) k = Concat<axis=0>({CLIPPED}) y = Exp(j) z = Add(k, y) }}"
    )
    sizes = names_of_sizes(from_onnx(model))
    assert [n for n in sizes if n.startswith("size")] == ["size"]
    y, z = run_model_once(model)(feed)
    np.testing.assert_allclose(y, np.exp(joined(feed)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(z, joined(feed) + np.exp(joined(feed)), rtol=1e-5, atol=1e-6)


def test_shape_arithmetic_does_not_grow(make_model, run_model_once, feed):
    """Slices at running sums, as detectors cut their levels apart; a start may look negative."""
    steps = ["s0 = Constant<value = int64[1] {-1}>()"]
    for i in range(PARTS):
        steps.append(f"h{i} = Shape(c{i}) t{i} = Mul(h{i}, h{i}) s{i + 1} = Add(s{i}, t{i})")
    model = make_model(
        f"g ({HEADS}, float[k] w) => (float[a] y) {{ {CONSTANTS} {CLIPS} {' '.join(steps)}"
        f" big = Constant<value = int64[1] {{1000000}}>() v = Slice(w, s{PARTS}, big) y = Exp(v) }}"
    )
    assert max(map(len, names_of_sizes(from_onnx(model)))) < 1000
    w = np.linspace(0, 1, 500, dtype="float32")
    run = run_model_once(model)
    for clip in (10, 0):
        some = {name: x[:clip] for name, x in feed.items()}
        start = sum(min(len(x), 5) ** 2 for x in some.values()) - 1
        (y,) = run({**some, "w": w})
        np.testing.assert_allclose(y, np.exp(w[start:]), rtol=1e-5, atol=1e-6)


def test_a_name_that_a_branch_gives_is_unknown_outside(make_model, run_model_once, feed):
    join = f"Concat<axis=0>({CLIPPED})"
    model = make_model(
        f"g ({HEADS}, bool c) => (float[a] y, float[b] z) {{ {CONSTANTS} {CLIPS}"
        f" y = If(c) <then_branch = t () => (float[p] u) {{ i = {join} u = Exp(i) }},"
        f" else_branch = e () => (float[q] v) {{ j = {join} v = Neg(j) }}>"
        f" k = {join} z = Abs(k) }}"
    )
    run = run_model_once(model)
    for c, function in ((True, np.exp), (False, np.negative)):
        y, z = run({**feed, "c": np.array(c)})
        np.testing.assert_allclose(y, function(joined(feed)), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(z, np.abs(joined(feed)), rtol=1e-5, atol=1e-6)
