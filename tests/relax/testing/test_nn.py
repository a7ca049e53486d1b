# SPDX-License-Identifier: Apache-2.0
"""Small models for tests."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax.testing import nn


class Perceptron(nn.Module):
    def __init__(self):
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3, bias=False))
        self.last = nn.LogSoftmax()

    def forward(self, input):
        return self.last(self.layers(input))


def build(model):
    builder = relax.BlockBuilder()
    with builder.function("main"):
        x = nn.Placeholder((4, 6), name="x")
        y = model(x)
        builder.emit_func_output(y, [x, *model.parameters()])
    return builder.get()


def test_model_computes_what_it_says():
    mod = build(Perceptron())
    assert [p.name for p in mod["main"].params] == [
        "x",
        "linear_weight",
        "linear_bias",
        "linear_weight",
    ]
    values = nn.init_params(mod)
    x, w1, b1, w2 = (v.numpy() for v in values)
    assert abs(w1).max() > 0 and not b1.any()
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    y = np.maximum(x @ w1 + b1, 0) @ w2
    expected = y - np.log(np.exp(y).sum(-1, keepdims=True))
    np.testing.assert_allclose(vm["main"](*values).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_weights_that_are_used_twice_are_listed_once():
    layer = nn.Linear(6, 6)
    assert len(nn.Sequential(layer, layer).parameters()) == 2


def emitted(function):
    builder = relax.BlockBuilder()
    x = nn.Placeholder((4,), name="x")
    with builder.function("main", [x]):
        builder.emit_func_output(function(x))
    return [
        (str(b.var.name), str(b.value.op.name))
        for b in builder.get()["main"].body.blocks[0].bindings
    ]


def test_checkpoints_are_marked():
    assert emitted(lambda x: nn.emit_checkpoint(lambda v: nn.emit(relax.op.exp(v), "y"), x)) == [
        ("x_scp", "relax.grad.start_checkpoint"),
        ("y", "relax.exp"),
        ("y_ecp", "relax.grad.end_checkpoint"),
    ]
    assert [op for _, op in emitted(lambda x: nn.checkpoint(relax.op.exp, x))] == [
        "relax.grad.start_checkpoint",
        "relax.exp",
        "relax.grad.end_checkpoint",
    ]


STEPS = [lambda v: nn.emit(relax.op.exp(v))] * 4


@pytest.mark.parametrize(
    "segments, last, marks",
    [
        (2, False, "sxxexx"),
        (2, True, "sxxesxxe"),
        ([0, 3], False, "sxxxex"),
        ([1], False, "sxexxx"),
    ],
)
def test_chains_are_marked_in_segments(segments, last, marks):
    found = emitted(lambda x: nn.emit_checkpoint_sequential(STEPS, segments, x, last))
    letter = {
        "relax.grad.start_checkpoint": "s",
        "relax.grad.end_checkpoint": "e",
        "relax.exp": "x",
    }
    assert "".join(letter[op] for _, op in found) == marks


@pytest.mark.parametrize("segments", [0, 5, [0, 4], [0, 2, 1]])
def test_segments_that_do_not_fit_are_an_error(segments):
    with pytest.raises(ValueError, match="4 functions"):
        emitted(lambda x: nn.emit_checkpoint_sequential(STEPS, segments, x))


def test_parameters_of_open_shape_get_no_values():
    builder = relax.BlockBuilder()
    x = nn.Placeholder((relaxvm.tirx.Var("n", "int64"), 4), name="x")
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    with pytest.raises(ValueError, match="parameter x of type .* has no constant shape"):
        nn.init_params(builder.get())
