# SPDX-License-Identifier: Apache-2.0
"""Prints file:line of what carries a name: operator, pass, builtin, instruction, flag, ONNX operator, class, function,
or a piece of an error text.  Status 1 when nothing is found."""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "include", "python", "tools", "examples")
SUFFIXES = (".cc", ".h", ".def", ".py")


def definitions(name: str) -> list[tuple[str, re.Pattern[str]]]:
    """What counts as the place of `name`, best first."""
    n = re.escape(name)
    snake = re.escape(name.replace(".", "_"))
    return [
        ("operator", re.compile(rf"^OpDef {snake}\(|\.name = \"{n}\"|^\s*\{{\"{n}\",")),
        ("row", re.compile(rf"^\s*[A-Z_]+\(\s*\"?(vm\.builtin\.)?({n}|{snake})\b")),
        ("ONNX operator", re.compile(rf"@onnx_op\(\s*\"{n}\"")),
        ("type", re.compile(rf"^\s*(class|struct|enum class|using)\s+{n}\b[^;]*$")),
        ("function", re.compile(rf"^(?!\s*(return|throw|//|#)).*\b(def\s+)?{n}\([^;]*(\{{|:)\s*$")),
        ("alias", re.compile(rf"\"(relax\.|vm\.builtin\.|relaxvm\.)?{n}\"")),
        ("text", re.compile(n)),
    ]


def files() -> Iterator[tuple[pathlib.Path, list[str]]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path.relative_to(ROOT), path.read_text(errors="replace").splitlines()


def find(name: str, limit: int = 20) -> list[str]:
    texts = list(files())
    for kind, pattern in definitions(name):
        hits = [
            f"{path}:{number}: {kind}: {line.strip()}"
            for path, lines in texts
            for number, line in enumerate(lines, 1)
            if pattern.search(line)
        ]
        if hits:
            return hits[:limit]
    return []


def main() -> int:
    if len(sys.argv) != 2 or not sys.argv[1]:
        sys.exit("usage: where.py NAME")
    hits = find(sys.argv[1])
    print("\n".join(hits) or f"{sys.argv[1]}: nothing carries this name")
    return int(not hits)


if __name__ == "__main__":
    sys.exit(main())
