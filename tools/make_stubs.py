# SPDX-License-Identifier: Apache-2.0
"""Writes the .pyi files of modules whose functions are made from the compiler's tables when they are imported, so that
editors and mypy know names and signatures.  `./dev bless tests/tools/test_stubs.py` rewrites them; the same test finds
one that is out of date.  Run it with an argument to write them directly."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import re
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ("relaxvm.relax.op", "relaxvm.relax.transform")
HEAD = """# SPDX-License-Identifier: Apache-2.0
# Written by tools/make_stubs.py from the compiler's tables.
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxvm.ir.expr import Call, Expr

# An expression, or what becomes one: a number, an array, a tuple.
Argument = Any
"""


def default(value: object) -> str:
    if isinstance(value, str):
        return repr(str(value))
    plain = value is None or isinstance(value, int | float | tuple)
    return repr(value) if plain else "..."


def annotation(value: object) -> str:
    """What a signature says, as far as the head of a stub knows its names."""
    if value is inspect.Parameter.empty:
        return "Any"
    text = value if isinstance(value, str) else getattr(value, "__name__", str(value))
    known = {
        "int",
        "float",
        "bool",
        "str",
        "None",
        "Any",
        "Expr",
        "Call",
        "Sequence",
        "Callable",
        "Mapping",
    }
    return text if set(re.findall(r"[A-Za-z_]\w*", text)) <= known | {"tuple", "list"} else "Any"


def declaration(name: str, function: object) -> str:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    parts, keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            if not any(p.startswith("*") for p in parts):
                parts.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        keyword_only = keyword_only or stars == "*"
        kind = annotation(parameter.annotation)
        text = f"{stars}{parameter.name}: {'Argument' if kind == 'Expr' else kind}"
        if parameter.default is not parameter.empty:
            text += f" = {default(parameter.default)}"
        parts.append(text)
    return f"def {name}({', '.join(parts)}) -> {annotation(signature.return_annotation)}: ..."


def is_made(module: types.ModuleType) -> bool:
    """Has no file: it was made when its package was imported."""
    return getattr(module, "__file__", None) is None


def stub(module: types.ModuleType) -> str:
    lines, modules = [], []
    for name in sorted(n for n in vars(module) if not n.startswith("_")):
        value = getattr(module, name)
        if isinstance(value, types.ModuleType):
            if is_made(value):
                modules.append(f"from {module.__name__} import {name} as {name}")
        elif inspect.isclass(value):
            modules.append(f"from {value.__module__} import {name} as {name}")
        elif callable(value):
            lines.append(declaration(name, value))
    return HEAD + "\n".join([*sorted(modules), "", *lines]) + "\n"


def stubs() -> dict[pathlib.Path, str]:
    """Path below the root -> text, for every package and the modules that it made."""
    found: dict[pathlib.Path, str] = {}

    def add(module: types.ModuleType) -> None:
        made = [v for v in vars(module).values() if isinstance(v, types.ModuleType) and is_made(v)]
        base = pathlib.Path("python", *module.__name__.split("."))
        is_package = bool(made) or not is_made(module)
        found[base / "__init__.pyi" if is_package else base.with_suffix(".pyi")] = stub(module)
        for inner in made:
            add(inner)

    for name in PACKAGES:
        add(importlib.import_module(name))
    return found


def main() -> int:
    for path, text in stubs().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
