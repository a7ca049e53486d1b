# SPDX-License-Identifier: Apache-2.0
"""Operators that Python defines by their attributes: types, normal form, effects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relaxvm
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
    for key in ("FInferType", "FLegalize", "FNormalize", "FPurity"):
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


def run(mod: Any, x: np.ndarray) -> np.ndarray:
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    return vm["main"](relaxvm.runtime.tensor(x)).numpy()


def caller(op: Any, dataflow: bool) -> Any:
    """main(x) = op(x, x) * 2"""
    x = relax.Var("x", relax.TensorType([4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        if dataflow:
            with builder.dataflow():
                y = builder.emit(relax.Call(op, [x, x]))
                out = builder.emit_output(relax.op.multiply(y, relax.const(2.0, "float32")))
        else:
            out = builder.emit(
                relax.op.multiply(builder.emit(relax.Call(op, [x, x])), relax.const(2.0, "float32"))
            )
        builder.emit_func_output(out)
    return builder.get()


def by_operators(builder: Any, call: relax.Call) -> Any:
    half = builder.emit(relax.op.multiply(call.args[0], relax.const(0.5, "float32")))
    return relax.op.add(half, call.args[1])


def by_program(builder: Any, call: relax.Call) -> Any:
    def formula(a: Any, b: Any) -> Any:
        return relaxvm.te.compute(a.shape, lambda i: a[i] * a[i] + b[i], name="twin")

    return builder.call_te(formula, call.args[0], call.args[1], primfunc_name_hint="twin")


@pytest.mark.parametrize("dataflow", [True, False])
@pytest.mark.parametrize(
    ("rule", "expected"),
    [(by_operators, lambda x: (x * 0.5 + x) * 2), (by_program, lambda x: (x * x + x) * 2)],
)
def test_calls_are_lowered_by_their_rule(
    twin: Any, rule: Any, expected: Any, dataflow: bool
) -> None:
    twin.set_attr("FLegalize", rule)
    mod = caller(twin, dataflow)
    lowered = relax.transform.LegalizeOps()(mod)
    well_formed(lowered)
    text = lowered.script()
    assert NAME not in text and "R.add" not in text and "R.multiply" not in text
    x = np.arange(4, dtype="float32")
    np.testing.assert_allclose(run(mod, x), expected(x), rtol=1e-6)


def test_a_rule_comes_before_the_table_and_may_leave_a_call() -> None:
    add = ir.Op.get("relax.add")
    seen = []

    def swapped(builder: Any, call: relax.Call) -> Any:
        seen.append(call)
        if call.args[0].same_as(call.args[1]):
            return call
        return relax.op.subtract(call.args[0], call.args[1])

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.add(x, y)
                b = R.add(a, a)
                R.output(b)
            return b

    add.set_attr("FLegalize", swapped)
    try:
        text = relax.transform.LegalizeOps()(Module).script()
    finally:
        add.reset_attr("FLegalize")
    assert len(seen) == 2
    assert text.count("R.call_tir(cls.subtract") == 1 and text.count("R.call_tir(cls.add") == 1
    assert "subtract" not in relax.transform.LegalizeOps()(Module).script()


def test_a_rule_that_gives_the_operator_again_is_refused(twin: Any) -> None:
    twin.set_attr(
        "FLegalize", lambda builder, call: relax.Call(call.op, [call.args[1], call.args[0]])
    )
    with pytest.raises(ValueError, match="FLegalize must give something else"):
        relax.transform.LegalizeOps()(caller(twin, True))
