# SPDX-License-Identifier: Apache-2.0
"""A pass is tested by two texts: the module before and the module after it, compared by structure."""

from __future__ import annotations

import textwrap
from typing import Any

import relaxvm
from relaxvm.relax.analysis import well_formed
from relaxvm.script import from_source

HEADER = """\
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T

@I.ir_module
class Module:
"""


def module(functions: str, check_well_formed: bool = True) -> relaxvm.IRModule:
    """The module with these functions, written as inside the class `Module`."""
    text = HEADER + textwrap.indent(textwrap.dedent(functions).strip("\n"), "    ")
    return from_source(text, check_well_formed=check_well_formed)


def check_pass(pass_: Any, before: str, after: str | None = None) -> None:
    """`after` left out: the pass changes nothing."""
    given = module(before)
    text = given.script()
    result = pass_(given)
    assert given.script() == text, "the pass changed its argument"
    well_formed(result)
    expected = module(before if after is None else after)
    if not relaxvm.ir.structural_equal(result, expected):
        assert result.script() == expected.script()
        relaxvm.ir.assert_structural_equal(result, expected)
