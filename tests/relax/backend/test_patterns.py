# SPDX-License-Identifier: Apache-2.0
"""Patterns of convolutions, attention and layer_norm."""

import pytest

from relaxvm import relax
from relaxvm.relax.backend import patterns
from relaxvm.script import relax as R


def var(name, *shape):
    return relax.Var(name, R.Tensor(shape, "float32"))


X, W, B = var("x", 1, 3, 8, 8), var("w", 4, 3, 3, 3), var("b", 1, 4, 1, 1)
Q, G = var("q", 1, 8, 2, 4), var("g", 4)
BIAS = var("bias", 1, 2, 8, 8)
CONV = relax.op.nn.conv2d(X, W)


@pytest.mark.parametrize(
    "pattern, value, parts",
    [
        (patterns.make_conv2d_pattern(), CONV, {"input": X, "weight": W, "root": CONV}),
        (
            patterns.make_conv2d_pattern(True, "relax.nn.relu"),
            relax.op.nn.relu(relax.op.add(CONV, B)),
            {"input": X, "weight": W, "bias": B, "root": CONV},
        ),
        (
            patterns.make_attention_pattern(),
            relax.op.nn.attention(Q, Q, Q),
            {"query": Q, "key": Q, "value": Q},
        ),
        (
            patterns.make_attention_pattern(True),
            relax.op.nn.attention(Q, Q, Q, BIAS),
            {"query": Q, "key": Q, "value": Q, "bias": BIAS},
        ),
        (patterns.make_layer_norm_pattern(), relax.op.nn.layer_norm(Q, G, G, axes=[-1]), {}),
    ],
    ids=["conv2d", "conv2d with bias and relu", "attention", "attention with bias", "layer_norm"],
)
def test_pattern_finds_its_parts(pattern, value, parts):
    root, annotations = pattern
    found = root.extract_matched_expr(value)
    assert found is not None
    assert set(annotations) == set(parts)
    for name, part in parts.items():
        assert found[annotations[name]].same_as(part), name


def test_patterns_do_not_fit_other_values():
    assert not patterns.make_conv2d_pattern(True)[0].match(CONV)
    assert not patterns.make_attention_pattern()[0].match(relax.op.nn.attention(Q, Q, Q, BIAS))
