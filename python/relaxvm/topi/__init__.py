# SPDX-License-Identifier: Apache-2.0
"""Operators on tensor expressions: the compute rules of the table of operators, by name."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from .. import _compiler
from ..relax.op.build import ROWS, Row, _attribute
from ..te.tensor import Tensor
from .fast_math import fast_erf, fast_exp, fast_softmax, fast_tanh

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


def _install() -> None:
    for row in ROWS.values():
        *folders, name = row.name.split(".")
        module = sys.modules[__name__]
        for folder in folders:
            full = f"{module.__name__}.{folder}"
            if full not in sys.modules:
                sys.modules[full] = types.ModuleType(
                    full, f"Operators {folder}.* on tensor expressions."
                )
                setattr(module, folder, sys.modules[full])
            module = sys.modules[full]
        setattr(module, name, _make(row))


def _full(shape: Any, dtype: Any, fill_value: Any) -> Tensor:
    """A tensor of one value."""
    from ..ir.base import plain
    from ..te.tensor import compute
    from ..tirx import const

    value = plain(fill_value)
    value = const(value, dtype) if isinstance(value, (int, float)) else value.astype(dtype)
    return compute(shape, lambda *i: value, name="T_full")


_install()
full = _full
nn = sys.modules[__name__ + ".nn"]
matmul: Callable[..., Any]
nn.fast_softmax = fast_softmax  # type: ignore[attr-defined]
nn.matmul = matmul = _make(ROWS["matmul"])  # type: ignore[attr-defined]

__all__ = ["Tensor", "fast_erf", "fast_exp", "fast_tanh", "nn"]
