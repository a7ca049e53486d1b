# SPDX-License-Identifier: Apache-2.0
"""The paged attention cache of a language model on a CPU: `create_paged_kv_cache` makes one, TIRPagedKVCache a model's
method that makes one, and PagedKVCache is one in the model.

The names with an underscore are those under which programs written for TVM know the tensor programs of a cache; a
program may compile them itself and hand them to `vm.builtin.paged_attention_kv_cache_create`."""

from __future__ import annotations

from .attention import decode_paged as _attention_decode_cpu
from .attention import prefill_latent as _attention_prefill_mla_cpu
from .attention import prefill_paged as _attention_prefill_cpu
from .attention import prefill_ragged as _attention_prefill_ragged_cpu
from .attention import tree_paged as tree_attn_with_paged_kv_cache_cpu
from .attention import tree_ragged as tree_attn_cpu
from .copies import append_heads as _kv_cache_transpose_append
from .copies import append_latent as _kv_cache_transpose_append_mla
from .copies import compact_copy as _compact_kv_copy_cpu
from .copies import copy_single_page as _copy_single_page_cpu
from .copies import debug_get_kv as _kv_cache_debug_get_kv
from .copies import merge_state as _merge_state_inplace_cpu
from .copies import split_rotary as llama_rope_with_position_map
from .create import AttnKind, RopeMode, compile_programs, create_paged_kv_cache
from .paged import FlashInferPagedKVCache, PagedKVCache, TIRPagedKVCache

__all__ = [
    "AttnKind",
    "FlashInferPagedKVCache",
    "PagedKVCache",
    "RopeMode",
    "TIRPagedKVCache",
    "_attention_decode_cpu",
    "_attention_prefill_cpu",
    "_attention_prefill_mla_cpu",
    "_attention_prefill_ragged_cpu",
    "_compact_kv_copy_cpu",
    "_copy_single_page_cpu",
    "_kv_cache_debug_get_kv",
    "_kv_cache_transpose_append",
    "_kv_cache_transpose_append_mla",
    "_merge_state_inplace_cpu",
    "compile_programs",
    "create_paged_kv_cache",
    "llama_rope_with_position_map",
    "tree_attn_cpu",
    "tree_attn_with_paged_kv_cache_cpu",
]
