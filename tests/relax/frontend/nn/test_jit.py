# SPDX-License-Identifier: Apache-2.0
"""Module.jit: methods on PyTorch tensors."""

from __future__ import annotations

import pytest

from relaxvm.relax.frontend import nn

pytestmark = pytest.mark.peer

X = nn.spec.Tensor(["n", 4], "float32")


class Layer(nn.Module):
    def __init__(self) -> None:
        self.fc, self.cache = nn.Linear(4, 3), nn.KVCache(2, [3])

    def forward(self, x):
        return self.fc(x)

    def keep(self, pair, n):
        self.cache.append(pair[0] + pair[1])
        return self.cache.view(n), (pair[0],)


PAIR = [nn.spec.Tensor([1, 3], "float32")] * 2
SPEC = {"forward": {"x": X}, "keep": {"pair": PAIR, "n": int}}


@pytest.mark.parametrize("mode", ["plain", "packed"])
@pytest.mark.parametrize("debug", [False, True])
def test_methods_take_and_give_torch_tensors(mode, debug):
    import torch

    reference, layer = torch.nn.Linear(4, 3), Layer()
    layer.fc.weight.data, layer.fc.bias.data = reference.weight, reference.bias
    modes = {"$": {"param_mode": mode, "effect_mode": mode}}
    compiled = layer.jit({name: {**s, **modes} for name, s in SPEC.items()}, debug=debug)
    x = torch.randn(5, 4)
    for got in (compiled(x), compiled["forward"](x), compiled.forward(x)):
        torch.testing.assert_close(got, reference(x))
    for count in (1, 2, 3):
        rows, (first,) = compiled["keep"](
            [torch.ones(1, 3), torch.full((1, 3), float(count))], count
        )
    assert rows[:, 0].tolist() == [2, 3, 4] and first.tolist() == [[1, 1, 1]]


def test_wrong_calls_are_named():
    import torch

    layer = Layer()
    with pytest.raises(ValueError, match="parameters without values: fc.weight, fc.bias"):
        layer.jit(SPEC)
    with pytest.raises(ValueError, match='use "torch"'):
        layer.jit(SPEC, out_format="numpy")
    layer.fc.weight.data, layer.fc.bias.data = torch.zeros(3, 4), torch.zeros(3)
    compiled = layer.jit(SPEC)
    with pytest.raises(KeyError, match="methods are forward, keep"):
        compiled["other"]
    with pytest.raises(TypeError, match=r"keep takes 2 arguments \(pair, n\), 1 are given"):
        compiled["keep"](3)
    with pytest.raises(TypeError, match="argument x is a torch.Tensor, not int"):
        compiled(3)
    with pytest.raises(TypeError, match="argument n is an integer, not str"):
        compiled["keep"]([torch.zeros(1, 3)] * 2, "3")
