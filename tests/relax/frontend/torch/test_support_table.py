# SPDX-License-Identifier: Apache-2.0
"""The page that lists the operators is generated from their decorators."""

from pathlib import Path

import pytest

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "pytorch_operators.md"


@pytest.mark.peer
def test_page_is_what_the_decorators_say(bless):
    from relaxvm.relax.frontend.torch import from_exported_program, registry

    assert from_exported_program is not None  # the operators are registered
    text = registry.support_table()
    if bless:
        PAGE.write_text(text)
    assert PAGE.read_text() == text, (
        f"stale; ./dev bless {Path(__file__).relative_to(PAGE.parents[2])}"
    )


@pytest.mark.peer
def test_every_name_is_one_of_pytorchs():
    import torch

    from relaxvm.relax.frontend.torch import registry

    missing = []
    for name in registry.all_names():
        operator, _, overload = name.rpartition(".")
        packet = getattr(torch.ops.aten, operator, None)
        if "::" not in name and (packet is None or overload not in packet.overloads()):
            missing.append(name)
    assert missing == []
