# SPDX-License-Identifier: Apache-2.0
"""Walks over statements and scalar expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .. import _compiler
from ..ir.base import plain
from ..ir.expr import Expr, Var
from .function import PrimFunc
from .stmt import Stmt

_post_order = _compiler.func("tirx.PostOrderVisit")
_substitute = _compiler.func("tirx.Substitute")
_to_scalar = _compiler.func("prim.ToScalar")

Node = TypeVar("Node", Stmt, Expr)


def post_order_visit(stmt: Stmt | Expr | PrimFunc, fvisit: Callable[[Any], Any]) -> None:
    """Calls `fvisit` with every statement and expression in `stmt`, parts before the whole; what stands in several
    places is shown once."""
    _post_order(stmt.body if isinstance(stmt, PrimFunc) else plain(stmt), fvisit)


def substitute(node: Node, vmap: Mapping[Var, Any]) -> Node:
    """`node` with variables replaced by expressions or numbers of their dtype."""
    values = {var: _to_scalar(plain(value), var.ty.dtype) for var, value in vmap.items()}
    return _substitute(plain(node), values)
