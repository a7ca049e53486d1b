# SPDX-License-Identifier: Apache-2.0
"""Parts of diffusion models: attention across two sequences, and steps of time."""

from __future__ import annotations

from typing import Any

from .. import op
from ..containers import ModuleList
from ..module import Module
from ..tensor import Tensor
from .activation import GELU, ReLU, SiLU
from .linear import Linear
from .normalization import GroupNorm


class Attention(Module):
    """Attention of tokens (n, tokens, query_dim) to themselves or to other tokens, with its projections.

    `cross_attention_dim` is the size of the other tokens.  The scale is 1 / sqrt(dim_head).
    """

    def __init__(
        self,
        query_dim: int,
        cross_attention_dim: int | None = None,
        heads: int = 8,
        dim_head: int = 64,
        bias: bool = False,
        norm_num_groups: int | None = None,
        out_bias: bool = True,
        scale_qk: bool = True,
    ) -> None:
        self.query_dim, self.heads, self.dim_head = query_dim, heads, dim_head
        self.cross_attention_dim = cross_attention_dim or query_dim
        self.bias, self.norm_num_groups, self.out_bias = bias, norm_num_groups, out_bias
        self.scale_qk = scale_qk
        self.scale = dim_head**-0.5 if scale_qk else 1.0
        self.inner_dim = heads * dim_head
        self.to_q = Linear(query_dim, self.inner_dim, bias=bias)
        self.to_k = Linear(self.cross_attention_dim, self.inner_dim, bias=bias)
        self.to_v = Linear(self.cross_attention_dim, self.inner_dim, bias=bias)
        self.group_norm = None if norm_num_groups is None else GroupNorm(norm_num_groups, query_dim)
        self.to_out = ModuleList([Linear(self.inner_dim, query_dim, bias=out_bias)])

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        **cross_attention_kwargs: Any,
    ) -> Tensor:
        """`attention_mask` (n, heads, tokens, other tokens) is added to the scores."""
        if cross_attention_kwargs:
            raise TypeError(f"Attention knows no arguments {', '.join(cross_attention_kwargs)}")
        if self.group_norm is not None:
            hidden_states = self.group_norm(hidden_states, channel_axis=2, axes=[1])
        others = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        query, key, value = self.to_q(hidden_states), self.to_k(others), self.to_v(others)
        heads = [self._heads(t) for t in (query, key, value)]
        scale = None if self.scale_qk else 1.0
        mixed = op.scaled_dot_product_attention(*heads, attn_mask=attention_mask, scale=scale)
        return self.to_out[0](op.reshape(mixed, [*hidden_states.shape[:2], self.inner_dim]))

    def _heads(self, x: Tensor) -> Tensor:
        return op.reshape(x, [*x.shape[:2], self.heads, self.dim_head])


_ACTIVATIONS = {"silu": SiLU, "swish": SiLU, "gelu": GELU, "relu": ReLU}


def _activation(name: str) -> Module:
    if name not in _ACTIVATIONS:
        raise ValueError(f"an activation is one of {', '.join(_ACTIVATIONS)}, not {name!r}")
    return _ACTIVATIONS[name]()


class TimestepEmbedding(Module):
    """Two linear layers with an activation between them, and one after them with `post_act_fn`.

    With `cond_proj_dim` a condition of that size is projected and added to the sample first.
    """

    def __init__(
        self,
        in_channels: int,
        time_embed_dim: int,
        act_fn: str = "silu",
        out_dim: int | None = None,
        post_act_fn: str | None = None,
        cond_proj_dim: int | None = None,
    ) -> None:
        self.linear_1 = Linear(in_channels, time_embed_dim)
        self.cond_proj = (
            None if cond_proj_dim is None else Linear(cond_proj_dim, in_channels, bias=False)
        )
        self.act = _activation(act_fn)
        self.linear_2 = Linear(time_embed_dim, out_dim or time_embed_dim)
        self.post_act = None if post_act_fn is None else _activation(post_act_fn)

    def forward(self, sample: Tensor, condition: Tensor | None = None) -> Tensor:
        if condition is not None:
            if self.cond_proj is None:
                raise ValueError("TimestepEmbedding takes a condition only with cond_proj_dim")
            sample = op.add(sample, self.cond_proj(condition))
        sample = self.linear_2(self.act(self.linear_1(sample)))
        return sample if self.post_act is None else self.post_act(sample)


class Timesteps(Module):
    """Sines and cosines of steps; see op.get_timestep_embedding."""

    def __init__(
        self, num_channels: int, flip_sin_to_cos: bool = False, downscale_freq_shift: float = 1
    ) -> None:
        self.num_channels, self.flip_sin_to_cos = num_channels, flip_sin_to_cos
        self.downscale_freq_shift = downscale_freq_shift

    def forward(self, x: Tensor) -> Tensor:
        return op.get_timestep_embedding(
            x, self.num_channels, self.flip_sin_to_cos, self.downscale_freq_shift
        )
