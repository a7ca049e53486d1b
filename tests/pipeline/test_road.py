# SPDX-License-Identifier: Apache-2.0
"""Programs take the whole road and give what NumPy gives; the module at every stop can be compiled further."""

from __future__ import annotations

import pytest
from road_programs import PROGRAMS, Program, check, register_packed, to_vm

import relaxvm
from relaxvm.relax.pipeline import BuiltinPipeline
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T

pytestmark = pytest.mark.usefixtures("exec_mode")

STOPS = [f"{name}" for _, name in BuiltinPipeline("default").passes]


@pytest.fixture(autouse=True)
def _verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXVM_VERIFY", "1")
    register_packed()


def run(executable: relaxvm.relax.VMExecutable, program: Program, sizes: tuple[int, ...]) -> None:
    vm = relaxvm.VirtualMachine(executable, relaxvm.cpu())
    for size in sizes:
        inputs = program.inputs(size)
        check(vm["main"](*map(to_vm, inputs)), program.expected(*inputs), program.tolerance)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_computes_what_numpy_computes_at_every_size(name: str) -> None:
    program = PROGRAMS[name]
    run(relaxvm.compile(program.mod), program, program.sizes)


def numbered(names: list[str]) -> list[str]:
    """FoldConstant, FoldConstant#2: a pass is named by how often it has run."""
    return [
        n if names[:i].count(n) == 0 else f"{n}#{names[:i].count(n) + 1}"
        for i, n in enumerate(names)
    ]


@pytest.mark.parametrize("stop", numbered(STOPS))
def test_module_stopped_after_any_pass_compiles_to_the_same(stop: str) -> None:
    for name in ("branch_true", "calls", "user_program", "match_cast"):
        program = PROGRAMS[name]
        stopped = relaxvm.compile(program.mod, stop_after=stop)
        assert isinstance(stopped, relaxvm.IRModule)
        run(relaxvm.compile(stopped), program, (5,))


def test_stage_names_stop_as_well() -> None:
    lowered = relaxvm.compile(PROGRAMS["chain"].mod, stop_after="lowered")
    assert "R.call_tir" in lowered.script()
    assert "alloc_storage" not in lowered.script()


def test_programs_of_reshapes_that_copy_nothing_are_gone() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 4, 6), "float32")) -> R.Tensor(("n", 24), "float32"):
            n = T.int64()
            a = R.nn.softmax(x, axis=2)
            b = R.reshape(a, R.shape([n, 24]))
            return R.nn.softmax(b, axis=1)

    lowered = relaxvm.compile(Mod, stop_after="lowered")
    assert "R.reshape" in lowered.script()
    assert "reshape" not in {var.name_hint for var in lowered.get_global_vars()}


def test_unknown_stop_lists_what_there_is() -> None:
    with pytest.raises(
        ValueError, match=r'stop_after="fused" is neither .* graph, lowered, .* FuseOps'
    ):
        relaxvm.compile(PROGRAMS["chain"].mod, stop_after="fused")
