# SPDX-License-Identifier: Apache-2.0
"""Tensor programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi

from .. import _compiler
from ..ir.base import plain
from ..ir.expr import BaseFunc, Var
from .stmt import Stmt

_prim_func = _compiler.func("tirx.PrimFunc")


@tvm_ffi.register_object("relaxvm.tirx.PrimFunc")
class PrimFunc(BaseFunc):
    """A tensor program: buffers (inputs, then outputs) and scalars, and what it does with them."""

    def __init__(
        self,
        params: Sequence[Var],
        body: Stmt,
        ret_type: Any = None,
        attrs: Mapping[str, Any] | None = None,
        span: Any = None,
    ) -> None:
        values = attrs.as_object() if hasattr(attrs, "as_object") else (attrs or {})
        self.__init_handle_by_constructor__(
            _prim_func, list(params), body, plain(ret_type), dict(values), span
        )

    @property
    def buffer_params(self) -> list[Var]:
        from .buffer import is_buffer

        return [p for p in self.params if is_buffer(p)]
