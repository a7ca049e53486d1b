# SPDX-License-Identifier: Apache-2.0
"""The page that lists the operators is generated from their decorators."""

from pathlib import Path

from relaxvm.relax.frontend.onnx import from_onnx, registry

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "onnx_operators.md"


def test_page_is_what_the_decorators_say(bless):
    assert from_onnx is not None  # the operators are registered
    text = registry.support_table()
    if bless:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text)
    assert PAGE.read_text() == text, (
        f"stale; ./dev bless {Path(__file__).relative_to(PAGE.parents[2])}"
    )
