# SPDX-License-Identifier: Apache-2.0
"""Each rule of each stage has a module that breaks it, and is refused, naming the rule; the page names every rule."""

from __future__ import annotations

import pathlib

import pytest

import relaxvm
from relaxvm import relax
from relaxvm._compiler import func
from relaxvm.relax import op
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T

RULES = {name: stage for stage, name, _ in func("pipeline.Rules")()}
PAGE = pathlib.Path(__file__).parents[2] / "docs/design/stages.md"


def module(body: relax.Expr, params: list[relax.Var]) -> relaxvm.IRModule:
    seq = body if isinstance(body, relax.SeqExpr) else relax.SeqExpr([], body)
    return relaxvm.IRModule({"main": relax.Function(params, seq, body.ty)})


def tensor(name: str = "x") -> relax.Var:
    return relax.Var(name, relax.TensorType([4], "float32"))


def well_formed() -> relaxvm.IRModule:
    x = tensor()
    inner = op.add(x, x)
    inner._update_type(x.ty)
    outer = op.multiply(inner, x)
    outer._update_type(x.ty)
    y = tensor("y")
    return module(relax.SeqExpr([relax.BindingBlock([relax.VarBinding(y, outer)])], y), [x])


@I.ir_module
class NoOperators:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.add(x, x)
        return y


@I.ir_module
class NoLocalFunctions:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        @R.function
        def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return y

        z = inner(x)
        return z


def programs_exist() -> relaxvm.IRModule:
    x, y = tensor(), tensor("y")
    call = op.call_tir(relax.GlobalVar("gone"), relax.Tuple([x]), x.ty)
    call._update_type(x.ty)
    return module(relax.SeqExpr([relax.BindingBlock([relax.VarBinding(y, call)])], y), [x])


def programs_are_closed() -> relaxvm.IRModule:
    @I.ir_module
    class Mod:
        @T.prim_func
        def f(a: T.handle):
            n = T.int64()
            A = T.match_buffer(a, (n,), "float32")
            A[0] = T.float32(0)

    program = Mod["f"]
    stray = relaxvm.tirx.Var("stray", "int64")
    body = relaxvm.tirx.BufferStore(
        program.params[0], relaxvm.tirx.FloatImm("float32", 0.0), [stray]
    )
    return relaxvm.IRModule({"f": relaxvm.tirx.PrimFunc(program.params, body)})


@I.ir_module
class MemoryIsExplicit:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.call_dps_packed("f", (x,), out_ty=R.Tensor((4,), "float32"))
        return y


@I.ir_module
class TensorsHaveStorage:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.builtin.alloc_tensor(
            R.shape([4]), R.dtype("float32"), R.prim_value(0), R.str("global")
        )
        return x


@I.ir_module
class NoDataflow:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = x
            R.output(y)
        return y


@I.ir_module
class NoUseAfterKill:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        y = R.vm.alloc_storage(R.shape([16]), R.prim_value(0), R.dtype("uint8"))
        _ = R.vm.kill_object(y)
        z = R.vm.alloc_tensor(y, R.prim_value(0), R.shape([4]), R.dtype("float32"))
        return z


@I.ir_module
class NoSymbolicSizes:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        return R.shape([n])


@I.ir_module
class OnlyVmCalls:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.shape_of(x)
        return y


BROKEN = {
    "well_formed": well_formed,
    "no_operators": lambda: NoOperators,
    "no_local_functions": lambda: NoLocalFunctions,
    "programs_exist": programs_exist,
    "programs_are_closed": programs_are_closed,
    "memory_is_explicit": lambda: MemoryIsExplicit,
    "tensors_have_storage": lambda: TensorsHaveStorage,
    "no_dataflow": lambda: NoDataflow,
    "no_use_after_kill": lambda: NoUseAfterKill,
    "no_symbolic_sizes": lambda: NoSymbolicSizes,
    "only_vm_calls": lambda: OnlyVmCalls,
}


@pytest.mark.parametrize("rule", RULES)
def test_module_that_breaks_the_rule_is_refused(rule: str) -> None:
    found = func("pipeline.FindViolation")(BROKEN[rule](), RULES[rule])
    assert found is not None and found[0] == rule, found


@pytest.mark.parametrize("rule", RULES)
def test_page_names_the_rule(rule: str) -> None:
    assert f"- `{rule}`: " in PAGE.read_text()


def test_error_names_pass_stage_and_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXVM_VERIFY", "1")
    monkeypatch.setenv("RELAXVM_DISABLE", "KillAfterLastUse,LowerAllocTensor")
    with pytest.raises(
        ValueError,
        match="after pass PlanMemory: .*rule 'tensors_have_storage' of stage 'planned'",
    ):
        relaxvm.compile(NoOperators)


def test_dump_writes_a_numbered_file_for_each_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("RELAXVM_DUMP", "after:LegalizeOps,stage:planned")
    monkeypatch.setenv("RELAXVM_DUMP_DIR", str(tmp_path))
    relaxvm.compile(NoOperators)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert [n[4:] for n in names] == ["LegalizeOps.py", "stage_planned.py"]
    assert "R.call_tir" in (tmp_path / names[0]).read_text()


def test_progress_counts_to_the_end() -> None:
    steps: list[tuple[str, int, int]] = []
    relaxvm.compile(NoOperators, progress=lambda *step: steps.append(step))
    assert [s[0] for s in steps][:2] == ["Normalize", "InlineScalarPrograms"]
    assert all(0 <= done <= total for _, done, total in steps)
    assert any(name == "native code" and done == total for name, done, total in steps)
