# SPDX-License-Identifier: Apache-2.0
"""The layers of nn.modules give what PyTorch's formulas say."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm.relax.frontend import nn
from relaxvm.relax.frontend.nn import modules

G = np.random.default_rng(2)


def spec_of(array):
    return nn.spec.Tensor(list(array.shape), array.dtype.name)


def numbers(*shape):
    return G.standard_normal(shape).astype("float32")


@pytest.fixture
def check(run_module):
    """Runs `forward` beside a formula of the inputs and the parameters by path."""

    def run(module, formula, **inputs):
        specs = {name: spec_of(value) for name, value in inputs.items()}
        got, weights = run_module(module, specs, *inputs.values())
        want = formula(weights, *inputs.values())
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)

    return run


def linear(w, x, name=""):
    bias = w.get(f"{name}bias", 0)
    return x @ w[f"{name}weight"].T + bias


def convolution(x, weight, stride=1):
    """Without padding, channels before one dimension."""
    size = weight.shape[-1]
    steps = range(0, x.shape[-1] - size + 1, stride)
    return np.stack([np.einsum("ncx,ocx->no", x[..., s : s + size], weight) for s in steps], -1)


def test_linear(check):
    check(nn.Linear(4, 3), lambda w, x: linear(w, x), x=numbers(2, 5, 4))
    check(nn.Linear(4, 3, bias=False), lambda w, x: linear(w, x), x=numbers(2, 4))


def test_linear_with_another_result_type(run_module):
    layer = nn.Linear(4, 3, dtype="float16", out_dtype="float32")
    assert (layer.weight.dtype, layer.bias.dtype) == ("float16", "float32")
    x = numbers(2, 4).astype("float16")
    got, w = run_module(layer, {"x": spec_of(x)}, x)
    assert got.dtype == "float32"
    np.testing.assert_allclose(got, linear(w, x.astype("float32")), rtol=1e-2, atol=1e-2)


def test_embedding_of_any_rank(check):
    for shape in ((3,), (2, 3), ()):
        index = G.integers(0, 10, shape).astype("int32") if shape else np.array(7, "int32")
        check(nn.Embedding(10, 4), lambda w, i: w["weight"][i], x=index)


def test_convolutions(check):
    x = numbers(2, 4, 9)
    bias = lambda w: w["bias"][:, None]
    check(nn.Conv1D(4, 6, 3, 2), lambda w, x: convolution(x, w["weight"], 2) + bias(w), x=x)
    one = lambda w, x: np.einsum("nchw,oc->nohw", x, w["weight"][..., 0, 0])
    check(nn.Conv2D(4, 6, 1, bias=False), one, x=numbers(2, 4, 3, 5))
    last = lambda w, x: np.einsum("nhwc,oc->nhwo", x, w["weight"][..., 0, 0]) + w["bias"]
    check(nn.Conv2D(4, 6, [1, 1], data_layout="NHWC"), last, x=numbers(2, 3, 5, 4))
    volume = lambda w, x: np.einsum("ncdhw,oc->nodhw", x, w["weight"][..., 0, 0, 0])
    check(nn.Conv3D(4, 6, 1, bias=False), volume, x=numbers(1, 4, 2, 3, 5))


def test_groups_have_channels_of_their_own():
    for layer in (nn.Conv1D, nn.Conv2D, nn.Conv3D):
        assert layer(4, 6, 3, groups=2).weight.shape[:2] == [6, 2]
    assert nn.ConvTranspose1D(4, 6, 3, groups=2).weight.shape == [4, 3, 3]


def test_same_padding_keeps_sizes(check):
    layer = nn.Conv1D(4, 6, 4, padding="same", bias=False)
    want = lambda w, x: convolution(np.pad(x, ((0, 0), (0, 0), (1, 2))), w["weight"])
    check(layer, want, x=numbers(1, 4, 7))


def test_transposed_convolution(check):
    def want(w, x):
        result = np.zeros((2, 6, 2 * 8 + 1), "float32")
        for position in range(8):
            moved = np.einsum("nc,cok->nok", x[..., position], w["weight"])
            result[..., 2 * position : 2 * position + 3] += moved
        return result[..., :17] + w["bias"][:, None]

    check(nn.ConvTranspose1D(4, 6, 3, 2), want, x=numbers(2, 4, 8))


def test_normalisations(check):
    x = numbers(2, 4, 6)
    normal = lambda x, axes: (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)  # fmt: skip
    check(nn.LayerNorm(6), lambda w, x: normal(x, -1) * w["weight"] + w["bias"], x=x)
    check(nn.LayerNorm(6, elementwise_affine=False), lambda w, x: normal(x, -1), x=x)
    rms = lambda w, x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w["weight"]
    check(nn.RMSNorm(6, -1), lambda w, x: rms(w, x) + w["bias"], x=x)
    check(nn.RMSNorm(6, [-1], bias=False), rms, x=x)
    groups = lambda x: normal(x.reshape(2, 2, 12), -1).reshape(x.shape)
    scaled = lambda w, x: groups(x) * w["weight"][:, None] + w["bias"][:, None]
    check(nn.GroupNorm(2, 4), scaled, x=x)
    check(nn.GroupNorm(2, 4, affine=False), lambda w, x: groups(x), x=x)


def test_activations(check):
    x = numbers(2, 3)
    check(nn.ReLU(), lambda w, x: np.maximum(x, 0), x=x)
    check(nn.SiLU(), lambda w, x: x / (1 + np.exp(-x)), x=x)
    check(modules.Identity(), lambda w, x: x, x=x)


def attend(w, x, other, heads, scale):
    split = lambda name, t: linear(w, t, name).reshape(len(t), -1, heads, 8).transpose(0, 2, 1, 3)
    q, k, v = split("to_q.", x), split("to_k.", other), split("to_v.", other)
    scores = np.exp(q @ k.transpose(0, 1, 3, 2) * scale)
    mixed = (scores / scores.sum(-1, keepdims=True)) @ v
    return linear(w, mixed.transpose(0, 2, 1, 3).reshape(len(x), -1, heads * 8), "to_out.0.")


def test_attention_module(check):
    x, other = numbers(2, 5, 16) / 8, numbers(2, 7, 12) / 8
    own = modules.Attention(16, None, 4, 8)
    check(own, lambda w, x: attend(w, x, x, 4, 8**-0.5), hidden_states=x)
    across = modules.Attention(16, 12, 4, 8, bias=True, out_bias=False, scale_qk=False)
    want = lambda w, x, other: attend(w, x, other, 4, 1.0)
    check(across, want, hidden_states=x / 4, encoder_hidden_states=other / 4)
    grouped = modules.Attention(16, None, 4, 8, norm_num_groups=2)
    assert [n for n, _ in grouped.named_parameters()][3:5] == ["group_norm.weight", "group_norm.bias"]  # fmt: skip


def test_timestep_embedding_module(check):
    silu = lambda x: x / (1 + np.exp(-x))
    layers = lambda w, x: linear(w, silu(linear(w, x, "linear_1.")), "linear_2.")
    check(modules.TimestepEmbedding(4, 8), layers, sample=numbers(2, 4))
    conditioned = modules.TimestepEmbedding(4, 8, out_dim=5, post_act_fn="silu", cond_proj_dim=3)
    want = lambda w, x, c: silu(layers(w, x + c @ w["cond_proj.weight"].T))
    check(conditioned, want, sample=numbers(2, 4), condition=numbers(2, 3))
    cosines = lambda w, x: np.concatenate([np.cos(x[:, None] * [1, 1e-4]), np.sin(x[:, None] * [1, 1e-4])], 1)  # fmt: skip
    check(modules.Timesteps(4, True), cosines, x=numbers(3))


def test_unknown_activation_and_surplus_condition_are_errors():
    with pytest.raises(ValueError, match="an activation is one of"):
        modules.TimestepEmbedding(4, 8, act_fn="cubic")
    with pytest.raises(ValueError, match="cond_proj_dim"):
        modules.TimestepEmbedding(4, 8).export_tvm(
            {"forward": {"sample": nn.spec.Tensor([1, 4], "float32"), "condition": nn.spec.Tensor([1, 4], "float32")}}
        )  # fmt: skip
