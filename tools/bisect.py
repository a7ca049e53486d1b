# SPDX-License-Identifier: Apache-2.0
"""Finds the pass that spoils a result: runs a command that fails, again with each pass of the default pipeline left
out, and prints the passes without which it succeeds."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))


def succeeds(command: list[str], disabled: str, timeout_s: float) -> bool:
    """Whether the command ends with status 0 when these passes are left out."""
    env = dict(os.environ, RELAXVM_DISABLE=disabled, RELAXVM_CACHE_DIR="")
    try:
        return not subprocess.run(
            command, env=env, timeout=timeout_s, capture_output=True
        ).returncode
    except subprocess.TimeoutExpired:
        return False


def default_passes() -> list[str]:
    """Each pass of the default pipeline once, in order."""
    from relaxvm.relax.pipeline import get_pipeline

    return list(dict.fromkeys(name for _, name in get_pipeline("default").passes))


def main(command: list[str], timeout_s: float = 600) -> int:
    if not command:
        sys.exit(
            "usage: bisect COMMAND... (a program that fails, such as: pytest tests/x.py::test_y)"
        )
    if succeeds(command, "", timeout_s):
        sys.exit("bisect: the command succeeds with all passes; there is nothing to find")
    guilty = []
    for name in default_passes():
        mended = succeeds(command, name, timeout_s)
        guilty += [name] if mended else []
        print(f"without {name:26} {'succeeds' if mended else 'fails'}", flush=True)
    print(f"first pass to look at: {guilty[0]}" if guilty else "no pass alone is the cause")
    return int(not guilty)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
