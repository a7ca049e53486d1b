# SPDX-License-Identifier: Apache-2.0
"""Checks what every file must have: its length, the licence line, ASCII text, no tabs; and how many files a folder
holds.  Prints file:line for each finding; exit status 1 when there is one."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_LINES = {".cc": 1000, ".h": 400, ".def": 1000, ".py": 1000, ".cmake": 400}
MAX_FILES = 40  # sources in one folder; tests are free, one file is one subject there
MAX_BYTES = 400_000
CODE = (".cc", ".h", ".def", ".inc", ".c", ".py", ".cmake", ".sh")
TEXT = (*CODE, ".md", ".txt", ".toml", ".json", ".yml")
COMMENT = {".cc": "//", ".h": "//", ".def": "//", ".inc": "//", ".c": "//"}
# Programs without a suffix.
SCRIPTS = ("dev", ".ci/run")
# Words of other writing systems are data here.
NOT_ASCII = ("LICENSE",)


def tracked() -> list[pathlib.Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted({ROOT / name for name in text.split("\0") if name and (ROOT / name).is_file()})


def has_licence_line(path: pathlib.Path, lines: list[str]) -> bool:
    mark = f"{COMMENT.get(path.suffix, '#')} SPDX-License-Identifier: Apache-2.0"
    start = 1 if lines and lines[0].startswith("#!") else 0
    return len(lines) > start and lines[start] == mark


def check_file(path: pathlib.Path) -> Iterator[str]:
    name = path.relative_to(ROOT).as_posix()
    if path.stat().st_size > MAX_BYTES:
        yield f"{name}: {path.stat().st_size} bytes, the limit is {MAX_BYTES}; make it when it is needed"
        return
    is_code = path.suffix in CODE or name in SCRIPTS
    if not (is_code or path.suffix in TEXT):
        return
    raw = path.read_bytes()
    text = raw.decode("utf-8", errors="replace")
    lines = text.splitlines()
    if is_code and raw and not has_licence_line(path, lines):
        yield f"{name}:1: the first line is not the SPDX line"
    if path.suffix == ".h" and "#pragma once" not in lines:
        yield f"{name}:1: no #pragma once"
    if raw and not raw.endswith(b"\n"):
        yield f"{name}:{len(lines)}: no newline at the end"
    limit = MAX_LINES.get(path.suffix)
    if limit and len(lines) > limit:
        yield f"{name}: {len(lines)} lines, the limit is {limit}"
    for number, line in enumerate(lines, 1):
        if "\t" in line:
            yield f"{name}:{number}: tab"
        if line != line.rstrip() and path.suffix != ".md":
            yield f"{name}:{number}: blanks at the end"
        if not line.isascii() and name not in NOT_ASCII:
            yield f"{name}:{number}: not ASCII: {next(c for c in line if not c.isascii())!r}"


def check_folders(paths: list[pathlib.Path]) -> Iterator[str]:
    counts = Counter(p.parent for p in paths if p.suffix in CODE)
    for folder, count in sorted(counts.items()):
        name = folder.relative_to(ROOT).as_posix()
        if count > MAX_FILES and not name.startswith("tests"):
            yield f"{name}: {count} files, the limit is {MAX_FILES}"


def main() -> int:
    paths = tracked()
    findings = [finding for path in paths for finding in check_file(path)]
    findings += check_folders(paths)
    print("\n".join(findings) or f"files: ok, {len(paths)} files")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
