# SPDX-License-Identifier: Apache-2.0
"""Types and expressions on their own as text: a line for each free variable, then the script."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from typing import Any

import tvm_ffi

from .base import _print
from .expr import Var

_TAKEN = "I R T ir relax tirx metadata".split()  # what a script names without import


def with_variables(node: Any) -> str:
    """The script of `node` under declarations of the variables that it names; ValueError for names that are no words or
    stand for two variables."""
    lines, names = [], {"relaxvm", *_TAKEN}
    for var in _variables(node):
        name = str(var.name)
        if not name.isidentifier() or keyword.iskeyword(name) or name in names:
            raise ValueError(f"save_json: rename variable {name!r}; a name is one word, and unique")
        names.add(name)
        lines.append(f"{name} = {_declaration(var, name)}")
    return "\n".join([*(["import relaxvm"] if lines else []), *lines, _text(node)])


def _text(node: Any) -> str:
    prim = getattr(getattr(node, "ty", None), "dtype", None)
    if hasattr(node, "value") and not hasattr(node, "op") and isinstance(node.value, (int, float)):
        return f"T.{prim}({node.value!r})"
    return _print(node, "Module", True)


def _declaration(var: Var, name: str) -> str:
    kind = "relaxvm.relax." + type(var).__name__ if _is_graph(var) else "relaxvm.tirx.Var"
    if var.ty is None:
        return f'{kind}("{name}")'
    if not _is_graph(var):
        return f'{kind}("{name}", "{var.ty.dtype}")'
    return f'{kind}("{name}", {_print(var.ty, "Module", True)})'


def _is_graph(var: Var) -> bool:
    from .type import PrimType

    return not isinstance(var.ty, PrimType)


def _variables(node: Any) -> Iterator[Var]:
    """Each variable in `node` once, after those that its type names."""
    seen: set[int] = set()
    stack: list[tuple[Any, bool]] = [(node, False)]
    while stack:
        part, done = stack.pop()
        if done:
            yield part
        elif isinstance(part, (tvm_ffi.Array, list, tuple)):
            stack.extend((item, False) for item in reversed(part))
        elif isinstance(part, (tvm_ffi.Map, dict)):
            stack.extend((item, False) for item in part.values())
        elif isinstance(part, tvm_ffi.Object) and part.__chandle__() not in seen:
            seen.add(part.__chandle__())
            if isinstance(part, Var):
                stack.append((part, True))
            stack.extend((field, False) for field in reversed(_fields(part)))


def _fields(node: Any) -> list[Any]:
    kinds = type(node).__mro__
    infos = [k.__tvm_ffi_type_info__ for k in kinds if "__tvm_ffi_type_info__" in vars(k)]
    names = [f.name for info in infos for f in info.fields if f.name != "span"]
    return [getattr(node, name, None) for name in names]
