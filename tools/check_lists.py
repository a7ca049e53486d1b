# SPDX-License-Identifier: Apache-2.0
"""Checks the index lists: rows sorted, each row with its implementation, each implementation with its row, each pass
with its test.  Prints file:line for each finding; exit status 1 when there is one."""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent


def rows(path: pathlib.Path, macro: str) -> list[tuple[int, str]]:
    """(line, name) of every `MACRO(name, ...)` row."""
    pattern = re.compile(rf"^\s*{macro}\(\s*\"?([\w.]+)")
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := pattern.match(line):
            found.append((number, match[1]))
    return found


def check_sorted(path: pathlib.Path, names: list[tuple[int, str]]) -> Iterator[str]:
    """No list has a row twice; one that says keep-sorted in a comment is sorted."""
    where = path.relative_to(ROOT)
    keep_sorted = "// keep-sorted" in path.read_text()
    seen: set[str] = set()
    for number, name in names:
        if name in seen:
            yield f"{where}:{number}: {name} stands twice"
        seen.add(name)
    for (_, before), (number, name) in zip(names, names[1:]):
        if keep_sorted and name < before:
            yield f"{where}:{number}: {name} belongs before {before}"


def sources(folder: str) -> Iterator[tuple[pathlib.Path, str]]:
    for path in sorted((ROOT / folder).rglob("*.cc")):
        yield path, path.read_text()


def check_ops() -> Iterator[str]:
    index = ROOT / "src/ops/op_list.def"
    if not index.exists():
        return
    names = rows(index, "OPS?")
    yield from check_sorted(index, names)
    listed = {name for _, name in names}
    defined: dict[str, pathlib.Path] = {}
    for path, text in sources("src/ops"):
        for match in re.finditer(
            r"^(?:OpDef|std::vector<OpDef>) ([a-z]\w*)\(\) \{", text, re.MULTILINE
        ):
            defined[match[1]] = path
            if match[1] not in listed:
                yield f"{path.relative_to(ROOT)}: {match[1]} has no row in {index.relative_to(ROOT)}"


def check_passes() -> Iterator[str]:
    index = ROOT / "src/passes/pass_list.def"
    if not index.exists():
        return
    names = rows(index, "PASS")
    yield from check_sorted(index, names)
    tests = {p.stem for p in (ROOT / "tests").rglob("test_*.py")}
    for number, name in names:
        # CallTIRRewrite -> call_tir_rewrite
        test = (
            "test_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
        )
        if test not in tests:
            yield f"{index.relative_to(ROOT)}:{number}: {name} has no tests/passes/<group>/{test}.py"
    listed = {name for _, name in names}
    for path, text in sources("src/passes"):
        for match in re.finditer(
            r"^(?:ir::)?IRModule (\w+)\((?:ir::)?IRModule \w+, const PassContext&",
            text,
            re.MULTILINE,
        ):
            if match[1] not in listed:
                yield f"{path.relative_to(ROOT)}: {match[1]} has no row in {index.relative_to(ROOT)}"


def check_builtins() -> Iterator[str]:
    index = ROOT / "src/bytecode/builtin_list.def"
    if index.exists():
        yield from check_sorted(index, rows(index, "BUILTIN"))
    shared = ROOT / "src/bytecode/tvm_builtins.def"
    if shared.exists():
        yield from check_sorted(shared, rows(shared, "TVM_BUILTIN"))


def check_flags() -> Iterator[str]:
    index = ROOT / "src/support/flags.def"
    if index.exists():
        yield from check_sorted(index, rows(index, "FLAG"))
        # A variable without a row would be called a typing error when the library is loaded.
        known = set(re.findall(r'"(RELAXVM_\w+)"', index.read_text()))
        for folder in ("bench", "python", "tests"):
            for path in sorted((ROOT / folder).rglob("*.py")):
                for name in re.findall(r'environ\W+(?:\w+\W+)?"(RELAXVM_\w+)"', path.read_text()):
                    if name not in known:
                        yield f"{path.relative_to(ROOT)}: {name} has no row in {index.name}"


def main() -> int:
    findings = [*check_ops(), *check_passes(), *check_builtins(), *check_flags()]
    print("\n".join(findings) or "lists: ok")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
