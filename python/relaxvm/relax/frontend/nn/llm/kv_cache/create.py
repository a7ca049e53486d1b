# SPDX-License-Identifier: Apache-2.0
"""A paged attention cache for a CPU, with its programs compiled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

from relaxvm import get_global_func, tirx
from relaxvm.ir.module import IRModule
from relaxvm.runtime import Shape, empty
from relaxvm.tirx import PrimFunc

from . import attention, copies
from .rope import Scaling


class AttnKind(IntEnum):
    """How a layer attends: with heads, with latent rows that all heads share, or with heads to a window of keys."""

    MHA = 0
    MLA = 1
    LINEAR_ATTN = 2
    MHA_SLIDING = 3


class RopeMode(IntEnum):
    """When queries and keys are rotated: never, before keys are stored, or whenever they are read."""

    NONE = 0
    NORMAL = 1
    INLINE = 2


# The attentions of a cache in the order of the parameters of vm.builtin.paged_attention_kv_cache_create.
ATTENTIONS = (
    "ragged",
    "prefill",
    "decode",
    "prefill_window",
    "decode_window",
    "tree_pages",
    "tree_ragged",
    "latent",
)


@dataclass(frozen=True)
class Programs:
    """What the programs depend on; compiled once for each."""

    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    dtype: str
    page_size: int
    rope_scale: float
    rope_theta: float
    rope_scaling: str  # JSON
    rotary_dim: int | None
    whole: bool  # for sequences without a window
    has_windows: bool
    layer_window: int | None
    self_dims: tuple[int, int]
    target: str | None


def select_programs(want: Programs, is_latent: bool) -> dict[str, PrimFunc]:
    """The programs of a cache by their part in it."""
    scaling: Scaling = json.loads(want.rope_scaling)
    d, dtype, page = want.head_dim, want.dtype, want.page_size
    if is_latent:
        key_dim, value_dim = want.self_dims
        heads = want.num_qo_heads
        wanted = {
            "append_latent": copies.append_latent(d, dtype, page),
            "latent": attention.prefill_latent(heads, d, want.v_head_dim, dtype, page),
            "ragged": attention.prefill_ragged(heads, heads, key_dim, value_dim, dtype, scaling),
        }
    else:
        shape = (want.num_kv_heads, want.num_qo_heads, d)
        wanted = {
            "append": copies.append_heads(want.num_kv_heads, d, dtype, page),
            "ragged": attention.prefill_ragged(*shape, d, dtype, scaling),
            "tree_ragged": attention.tree_ragged(*shape, dtype, scaling),
            "split_rotary": copies.split_rotary(
                want.rope_theta,
                want.rope_scale,
                d,
                want.num_qo_heads,
                want.num_kv_heads,
                dtype,
                scaling,
                want.rotary_dim,
            ),
        }
        if want.whole:
            wanted["prefill"] = attention.prefill_paged(*shape, dtype, False, scaling, page)
            wanted["decode"] = attention.decode_paged(*shape, dtype, False, scaling, page)
            wanted["tree_pages"] = attention.tree_paged(*shape, dtype, scaling, page)
        if want.has_windows or want.layer_window:
            wanted["prefill_window"] = attention.prefill_paged(
                *shape, dtype, True, scaling, page, want.layer_window
            )
            wanted["decode_window"] = attention.decode_paged(*shape, dtype, True, scaling, page)
    wanted["merge"] = copies.merge_state(dtype)
    return wanted


@lru_cache(maxsize=16)
def _compiled(want: Programs, is_latent: bool) -> dict[str, Any]:
    return compile_programs(select_programs(want, is_latent), want.target)


def compile_programs(programs: dict[str, PrimFunc], target: Any = None) -> dict[str, Any]:
    """Functions of the same names."""
    symbols = {name: str(f.attrs["global_symbol"]) for name, f in programs.items()}
    built = tirx.build(IRModule({symbols[name]: f for name, f in programs.items()}), target)
    return {name: built[symbol] for name, symbol in symbols.items()}


def create_paged_kv_cache(
    *,
    num_layers: int,
    num_qo_heads: int,
    num_kv_heads: int,
    head_dim: int,
    max_batch_size: int,
    max_total_seq_len: int,
    prefill_chunk_size: int,
    dtype: str = "float32",
    page_size: int = 16,
    rope_mode: RopeMode | int = RopeMode.NONE,
    rope_scale: float = 1.0,
    rope_theta: float = 1e4,
    rope_scaling: Scaling | None = None,
    rotary_dim: int | None = None,
    support_sliding_window: bool = False,
    layer_sliding_window_size: int | None = None,
    attn_kinds: Sequence[AttnKind | int] | None = None,
    v_head_dim: int | None = None,
    self_attention_dims: tuple[int, int] | None = None,
    target: Any = None,
) -> Any:
    """Compiles the programs of a cache, once for each kind, and makes one: what `vm.builtin.kv_state_*` and
    `vm.builtin.attention_kv_cache_*` take.

    `rotary_dim` leaves the other elements of a head as they are, with rope_mode NORMAL.  `layer_sliding_window_size`
    is for layers of kind MHA_SLIDING.  With latent attention (all layers of kind MLA) `head_dim` is the size of a
    stored row, `v_head_dim` that of its values, and `self_attention_dims` those of keys and values of a prompt.
    """
    kinds = [int(k) for k in (attn_kinds or [AttnKind.MHA] * num_layers)]
    is_latent = AttnKind.MLA in kinds
    if len(kinds) != num_layers or (is_latent and set(kinds) != {AttnKind.MLA}):
        raise ValueError(
            f"{num_layers} layers need as many kinds of attention, all latent or none; given {kinds}"
        )
    if rotary_dim not in (None, head_dim) and (
        rope_mode == RopeMode.INLINE or support_sliding_window
    ):
        raise ValueError("a part of a head is rotated with rope_mode NORMAL, without windows")
    uses_layer_window = AttnKind.MHA_SLIDING in kinds
    if uses_layer_window and not layer_sliding_window_size:
        raise ValueError("layers of kind MHA_SLIDING need layer_sliding_window_size")
    if is_latent and self_attention_dims is None:
        raise ValueError("latent attention needs self_attention_dims=(keys, values) of a prompt")
    values = head_dim if v_head_dim is None else v_head_dim
    want = Programs(
        num_qo_heads,
        num_kv_heads,
        head_dim,
        values,
        dtype,
        page_size,
        float(rope_scale),
        float(rope_theta),
        json.dumps(dict(rope_scaling or {}), sort_keys=True),
        rotary_dim,
        not support_sliding_window,
        support_sliding_window,
        layer_sliding_window_size if uses_layer_window else None,
        self_attention_dims or (head_dim, values),
        None if target is None else str(target),
    )
    f = _compiled(want, is_latent)

    def kind(name: str) -> list[Any]:
        return ["tirx", f[name]] if name in f else []

    sizes = [max_batch_size, max_total_seq_len, prefill_chunk_size, page_size]
    sizes += [int(support_sliding_window), layer_sliding_window_size or 0]
    return get_global_func("vm.builtin.paged_attention_kv_cache_create")(
        Shape(sizes),
        Shape([0, num_layers]),
        num_qo_heads,
        num_kv_heads,
        head_dim,
        values,
        Shape(kinds),
        False,
        int(rope_mode),
        float(rope_scale),
        float(rope_theta),
        None,
        empty((), dtype),
        f.get("append"),
        f.get("append_latent"),
        *(kind(n) for n in ATTENTIONS),
        [f["merge"]],
        f.get("split_rotary"),
        None,
        None,
        None,
    )
