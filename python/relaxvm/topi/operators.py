# SPDX-License-Identifier: Apache-2.0
"""The compute rules of the table of operators as functions on tensors, by the operator's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _compiler
from ..relax.op.build import ROWS, Row, _attribute

_apply = _compiler.func("te.ApplyOperator")


def _make(row: Row) -> Callable[..., Any]:
    num_args = len(row.args)

    def function(*args: Any, **kwargs: Any) -> Any:
        """The operator's compute rule on tensors."""
        values = list(args[:num_args]) if not row.variadic else list(args)
        attrs = dict(zip([f[0] for f in row.attrs], args[len(values) :]))
        for key, value in kwargs.items():
            if key in [a[0] for a in row.args]:
                values.append(value)
            else:
                attrs[key] = value
        results = _apply(row.name, values, {k: _attribute(v) for k, v in attrs.items()})
        return results[0] if len(results) == 1 else list(results)

    function.__name__ = row.name.rpartition(".")[2]
    function.__doc__ = row.doc
    return function


OPERATORS: dict[str, Callable[..., Any]] = {row.name: _make(row) for row in ROWS.values()}
