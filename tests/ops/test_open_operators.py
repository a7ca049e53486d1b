# SPDX-License-Identifier: Apache-2.0
"""Operators that Python defines by their attributes: types, normal form, effects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from relaxvm import ir, relax
from relaxvm.error import DiagnosticError
from relaxvm.relax.analysis import check_well_formed, well_formed
from relaxvm.relax.transform import DeadCodeElimination, Normalize
from relaxvm.script import ir as I
from relaxvm.script import relax as R

NAME = "test_open_operators.twin"


@pytest.fixture
def twin() -> Iterator[Any]:
    """Takes two arguments; with one it takes that twice."""

    def normal(_builder: Any, call: relax.Call) -> relax.Call:
        if len(call.args) == 2:
            return call
        return relax.Call(call.op, [call.args[0], call.args[0]])

    ir.register_op_attr(NAME, "FInferType", lambda call, _builder: call.args[0].ty)
    ir.register_op_attr(NAME, "FNormalize")(normal)
    op = ir.Op.get(NAME)
    yield op
    for key in ("FInferType", "FNormalize", "FPurity"):
        op.reset_attr(key)


def program(op: Any) -> Any:
    @I.ir_module(check_well_formed=False)
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = relax.Call(op, [x])
            return x

    return Module


def call_of(mod: Any) -> relax.Call:
    return mod["main"].body.blocks[0].bindings[0].value


def test_scripts_state_calls_as_they_are_and_normalize_completes_them(twin: Any) -> None:
    mod = program(twin)
    assert len(call_of(mod).args) == 1
    assert call_of(mod).ty == mod["main"].params[0].ty
    assert not check_well_formed(mod)
    with pytest.raises(
        ValueError, match=f"the call of {NAME} is not in the operator's normal form"
    ):
        well_formed(mod)
    after = Normalize()(mod)
    assert len(call_of(after).args) == 2
    well_formed(after)


def test_without_its_rule_every_call_is_normal(twin: Any) -> None:
    twin.reset_attr("FNormalize")
    assert not twin.has_attr("FNormalize")
    mod = program(twin)
    well_formed(mod)
    assert len(call_of(Normalize()(mod)).args) == 1


def test_calls_with_effects_stay(twin: Any) -> None:
    assert len(DeadCodeElimination()(program(twin))["main"].body.blocks) == 0
    twin.set_attr("FPurity", False)
    mod = program(twin)
    assert not check_well_formed(mod)
    assert len(DeadCodeElimination()(mod)["main"].body.blocks) == 1


def test_a_type_needs_a_rule() -> None:
    ir.register_op_attr("test_open_operators.bare", "FPurity", True)
    with pytest.raises(DiagnosticError, match="test_open_operators.bare has no type rule"):
        program(ir.Op.get("test_open_operators.bare"))


def test_operators_of_the_table_keep_their_rules() -> None:
    with pytest.raises(ValueError, match="relax.add has its rules in the table of operators"):
        ir.register_op_attr("relax.add", "FInferType", lambda call, builder: call.args[0].ty)
