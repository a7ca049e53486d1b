# SPDX-License-Identifier: Apache-2.0
"""Parts of language models."""

from . import kv_cache, position_embedding
from .kv_cache import PagedKVCache
from .position_embedding import llama_rope

__all__ = ["PagedKVCache", "kv_cache", "llama_rope", "position_embedding"]
