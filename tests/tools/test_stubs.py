# SPDX-License-Identifier: Apache-2.0
"""The .pyi files say what the compiler's tables say."""

from __future__ import annotations

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_stubs_are_up_to_date(bless: bool) -> None:
    spec = importlib.util.spec_from_file_location("make_stubs", ROOT / "tools" / "make_stubs.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    stubs = maker.stubs()
    if bless:
        maker.main()
    stale = [
        str(path)
        for path, text in stubs.items()
        if not (ROOT / path).exists() or (ROOT / path).read_text() != text
    ]
    assert not stale, "run ./dev bless tests/tools/test_stubs.py"


def test_stubs_know_every_operator() -> None:
    from relaxvm.relax.op.build import ROWS

    text = "".join(p.read_text() for p in (ROOT / "python/relaxvm/relax/op").rglob("*.pyi"))
    missing = [name for name in ROWS if f"def {name.split('.')[-1]}(" not in text]
    assert not missing
