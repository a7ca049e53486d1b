# SPDX-License-Identifier: Apache-2.0
"""The paged attention cache inside of a model: what its layers call, and the method that makes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from relaxvm.ir.expr import Expr, IntImm
from relaxvm.relax import op
from relaxvm.relax.expr import ShapeExpr, StringImm, Tuple, prim_value
from relaxvm.relax.type import AnyType, TensorType, TupleType
from relaxvm.target import Target
from relaxvm.tirx import PrimFunc, const

from ...op import reshape
from ...subroutine import module_builder
from ...tensor import Object, Tensor, bind
from .create import ATTENTIONS, AttnKind, Programs, RopeMode, select_programs

Kind = Literal["mha", "mla", "mha_sliding"]
_KINDS = {"mha": AttnKind.MHA, "mla": AttnKind.MLA, "mha_sliding": AttnKind.MHA_SLIDING}
_BUILTIN = "vm.builtin.attention_kv_cache_"


def _rows(x: Tensor) -> Tensor:
    """Without the dimension of the batch: tokens of all sequences stand one after another."""
    batch, tokens, *rest = x.shape
    return reshape(x, [batch * tokens, *rest])


class PagedKVCache(Object):
    """Keys and values of many sequences, in pages.

    Tensors are (batch, tokens, heads, size), with a batch of 1 or one token a sequence; `layer_id` counts from 0, and
    `sm_scale` multiplies scores.  Logarithms of sums are to base 2.
    """

    extern_mods: list[Any] = []

    def _attend(
        self, name: str, layer_id: int, sm_scale: float, given: Sequence[Tensor], out_ty: Any
    ) -> Any:
        values = [self._expr, prim_value(layer_id), const(float(sm_scale), "float64")]
        values += [_rows(t)._expr for t in given]
        return bind(op.call_dps_packed(_BUILTIN + name, values, out_ty=out_ty))

    def attention_with_fused_qkv(
        self, layer_id: int, qkv: Tensor, num_qo_heads: int, sm_scale: float
    ) -> Tensor:
        """Stores keys and values of new tokens, and attends to all tokens.

        `qkv` has queries, keys and values one after another along the heads; they are rotated as the cache says.
        """
        batch, tokens, _, size = qkv.shape
        ty = TensorType([batch * tokens, num_qo_heads, size], qkv.dtype)
        result = self._attend("attention_with_fused_qkv", layer_id, sm_scale, [qkv], ty)
        return reshape(Tensor(_expr=result), [batch, tokens, num_qo_heads, size])

    def self_attention(
        self, layer_id: int, q: Tensor, k: Tensor, v: Tensor, sm_scale: float
    ) -> tuple[Tensor, Tensor]:
        """Attention among the new tokens, and the logarithms of its sums."""
        return self._with_sums("self_attention", layer_id, [q, k, v], v.shape[-1], sm_scale)

    def cross_attention(
        self, layer_id: int, q: Tensor, v_head_dim: int, sm_scale: float
    ) -> tuple[Tensor, Tensor]:
        """Attention to the tokens of earlier forwards, and the logarithms of its sums."""
        return self._with_sums("cross_attention", layer_id, [q], v_head_dim, sm_scale)

    def _with_sums(
        self, name: str, layer_id: int, given: list[Tensor], size: Any, sm_scale: float
    ) -> tuple[Tensor, Tensor]:
        q = given[0]
        batch, tokens, heads, _ = q.shape
        total = batch * tokens
        out_ty = [TensorType([total, heads, size], q.dtype), TensorType([total, heads], "float32")]
        result = self._attend(name, layer_id, sm_scale, given, out_ty)
        return self._pair(result, batch, tokens)

    @staticmethod
    def _pair(result: Any, batch: Any, tokens: Any) -> tuple[Tensor, Tensor]:
        out = Tensor(_expr=bind(result[0]))
        out = reshape(out, [batch, tokens, *out.shape[1:]])
        sums = Tensor(_expr=bind(result[1]))
        return out, reshape(sums, [batch, tokens, *sums.shape[1:]])

    def attention_with_shared_kv(
        self,
        source_layer_id: int,
        q: Tensor,
        current_k: Tensor,
        current_v: Tensor,
        sm_scale: float,
    ) -> Tensor:
        """Attention to what another layer stored in this forward and before."""
        batch, tokens, heads, size = q.shape
        ty = TensorType([batch * tokens, heads, size], q.dtype)
        given = [q, current_k, current_v]
        result = self._attend("attention_with_shared_kv", source_layer_id, sm_scale, given, ty)
        return reshape(Tensor(_expr=result), [batch, tokens, heads, size])

    def append_mla_kv(self, layer_id: int, kv: Tensor) -> PagedKVCache:
        """Stores latent rows (batch, tokens, 1, size); gives the cache to use from here on."""
        batch, tokens, _, size = kv.shape
        rows = reshape(kv, [batch * tokens, size])
        call = op.call_pure_packed(
            _BUILTIN + "append_mla_kv",
            self._expr,
            prim_value(layer_id),
            rows._expr,
            ty_args=AnyType(),
        )
        return PagedKVCache(_expr=call, _name="paged_kv_cache")

    def merge_attn_output_inplace(
        self,
        o_self_attn: Tensor,
        lse_self_attn: Tensor,
        o_cross_attn: Tensor,
        lse_cross_attn: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Makes of attentions to different tokens the one to all of them, in the memory of the first."""
        given = [_rows(t) for t in (o_self_attn, lse_self_attn, o_cross_attn, lse_cross_attn)]
        call = op.call_pure_packed(
            _BUILTIN + "merge_attn_output_inplace",
            self._expr,
            *(t._expr for t in given),
            ty_args=TupleType([given[0]._expr.ty, given[1]._expr.ty]),
        )
        batch, tokens = o_self_attn.shape[:2]
        return self._pair(bind(call), batch, tokens)

    def get_query_positions(self, total_length: Expr) -> Tensor:
        """The position in its sequence of each new token: (total_length,) of int32."""
        ty = TensorType([total_length], "int32")
        call = op.call_pure_packed(_BUILTIN + "get_query_positions", self._expr, ty_args=ty)
        return Tensor(_expr=bind(call))


class TIRPagedKVCache(PagedKVCache):
    """Makes a cache where a method of a model returns it; its programs for a CPU become part of the model.

    `max_batch_size` and the other sizes are known when the method runs.  `attn_kind` is of all layers or of each.
    Pages have 16 tokens: give that as `page_size`.  With latent attention ("mla") `qk_head_dim` is the size of a stored
    row, and the `mla_original_*` sizes those of a prompt's keys and values.  ValueError for settings of a GPU.
    """

    def __init__(
        self,
        attn_kind: Kind | list[Kind],
        max_batch_size: Expr,
        max_total_seq_len: Expr,
        prefill_chunk_size: Expr,
        page_size: Expr,
        support_sliding_window: Expr,
        layer_partition: ShapeExpr,
        num_hidden_layers: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        qk_head_dim: int,
        v_head_dim: int,
        mla_original_qk_head_dim: int,
        mla_original_v_head_dim: int,
        rope_mode: RopeMode,
        rope_scale: float,
        rope_theta: float,
        rope_scaling: Mapping[str, Any],
        rope_ext_factors: Expr | None,
        rotary_dim: int,
        enable_disaggregation: bool,
        dtype: str,
        target: Any,
        name: str = "paged_kv_cache",
        *,
        layer_sliding_window_size: int = 1024,
    ) -> None:
        kinds = [attn_kind] * num_hidden_layers if isinstance(attn_kind, str) else list(attn_kind)
        _check(kinds, num_hidden_layers, rope_ext_factors, enable_disaggregation, target)
        is_latent = "mla" in kinds
        want = Programs(
            num_attention_heads,
            num_key_value_heads,
            qk_head_dim,
            v_head_dim,
            dtype,
            16,
            float(rope_scale),
            float(rope_theta),
            json.dumps(dict(rope_scaling or {}), sort_keys=True),
            None if rotary_dim in (0, qk_head_dim) else rotary_dim,
            True,
            True,
            layer_sliding_window_size if "mha_sliding" in kinds else None,
            (mla_original_qk_head_dim, mla_original_v_head_dim),
            None,
        )
        f = {n: _add(p) for n, p in select_programs(want, is_latent).items()}
        none = bind(op.null_value())
        sizes = [max_batch_size, max_total_seq_len, prefill_chunk_size, page_size]
        call = op.call_pure_packed(
            "vm.builtin.paged_attention_kv_cache_create",
            ShapeExpr([*sizes, support_sliding_window, layer_sliding_window_size]),
            layer_partition,
            *map(prim_value, (num_attention_heads, num_key_value_heads, qk_head_dim, v_head_dim)),
            ShapeExpr([int(_KINDS[kind]) for kind in kinds]),
            prim_value(0),
            prim_value(int(rope_mode)),
            const(float(rope_scale), "float64"),
            const(float(rope_theta), "float64"),
            none,
            bind(op.zeros(ShapeExpr([]), dtype)),
            f.get("append", none),
            f.get("append_latent", none),
            *(Tuple([StringImm("tirx"), f[n]] if n in f else []) for n in ATTENTIONS),
            Tuple([f["merge"]]),
            f.get("split_rotary", none),
            none,
            none,
            none,
            ty_args=AnyType(),
        )
        super().__init__(_expr=call, _name=name)


def _add(program: PrimFunc) -> Any:
    """Private, so that programs of several caches may have one name."""
    name = str(program.attrs["global_symbol"])
    return module_builder().add_func(program.without_attr("global_symbol"), name)


def _check(
    kinds: list[str], num_layers: int, ext_factors: Any, disaggregation: bool, target: Any
) -> None:
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown or len(kinds) != num_layers or ("mla" in kinds and set(kinds) != {"mla"}):
        raise ValueError(
            f"{num_layers} layers need as many kinds of attention out of {', '.join(_KINDS)}, all latent or none;"
            f" given {kinds}"
        )
    if disaggregation:
        raise ValueError("enable_disaggregation sends pages between GPUs; leave it off")
    is_number = isinstance(ext_factors, (int, IntImm))
    if ext_factors is not None and not is_number and not isinstance(ext_factors.ty, AnyType):
        raise ValueError("rope_ext_factors are not supported; give rope_scaling instead")
    name = "llvm" if target is None else str(Target(target).kind)
    if name not in ("llvm", "cpu", "c"):
        raise ValueError(
            f'the programs of TIRPagedKVCache are for a CPU, not for {name}; use "llvm"'
        )


class FlashInferPagedKVCache(PagedKVCache):
    """Refused: its attention is a library for NVIDIA GPUs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "FlashInfer's attention runs on NVIDIA GPUs only; use TIRPagedKVCache"
        )
