# SPDX-License-Identifier: Apache-2.0
"""ApplyPassToFunction: a pass over some functions of a module."""

from __future__ import annotations

import pytest

import relaxvm
from relaxvm import relax
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.transform import ApplyPassToFunction


@I.ir_module
class Mod:
    @R.function
    def first(x: R.Tensor((4,), "float32")):
        unused = R.exp(x)
        y = Mod.inner(x)
        return y

    @R.function
    def second(x: R.Tensor((4,), "float32")):
        unused = R.exp(x)
        y = Mod.inner(x)
        return y

    @R.function(private=True)
    def inner(x: R.Tensor((4,), "float32")):
        unused = R.sin(x)
        z = R.negative(x)
        return z


def changed(after: relaxvm.IRModule) -> list[str]:
    relax.analysis.well_formed(after)
    return [
        v.name_hint
        for v, f in Mod.functions.items()
        if not relaxvm.ir.structural_equal(f, after[v.name_hint])
    ]


@pytest.mark.parametrize(
    "pattern, names",
    [("first", ["first"]), ("fi", ["first"]), (".*", ["first", "inner", "second"]), ("x", [])],
)
def test_functions_that_match_are_transformed(pattern: str, names: list[str]):
    after = ApplyPassToFunction(relax.transform.DeadCodeElimination(), pattern)(Mod)
    assert sorted(changed(after)) == names
    assert len(after.functions) == 3


def test_private_functions_stay_private():
    after = ApplyPassToFunction(relax.transform.DeadCodeElimination(), "inner")(Mod)
    assert changed(after) == ["inner"] and "global_symbol" not in after["inner"].attrs


def test_functions_that_the_pass_makes_for_the_matched_ones_are_added():
    after = ApplyPassToFunction(relax.transform.LegalizeOps(), "second")(Mod)
    assert changed(after) == ["second"]
    added = {v.name_hint for v in after.functions} - {v.name_hint for v in Mod.functions}
    assert added == {"exp"}


def test_no_match_is_an_error_on_demand():
    some = ApplyPassToFunction(relax.transform.LegalizeOps(), "x", True)
    with pytest.raises(ValueError, match="no function of the module matches 'x'; there are first"):
        some(Mod)
