# SPDX-License-Identifier: Apache-2.0
"""The same programs under other configurations: what a pass or a thread adds is speed, never another result."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys

import numpy as np
import pytest
from road_programs import PROGRAMS, Program, check, register_packed, to_vm

import relaxvm

# Environment of the compilation, then arguments of the machine; each in both modes.
CONFIGS: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    "no_fusion": ({"RELAXVM_DISABLE": "FuseOps,FuseTIR"}, {}),
    "no_memory_plan": ({"RELAXVM_DISABLE": "PlanMemory"}, {}),
    "no_early_free": ({"RELAXVM_DISABLE": "KillAfterLastUse"}, {}),
    "no_simplification": (
        {
            "RELAXVM_DISABLE": "EliminateCommonSubexpr,DeadCodeElimination,FoldConstant,CanonicalizeBindings"
        },
        {},
    ),
    "no_schedules": ({"RELAXVM_DISABLE": "ScheduleTensorPrograms"}, {}),
    "naive_memory": ({}, {"memory_cfg": "naive"}),
    "one_thread": ({}, {"num_threads": 1}),
    "four_threads": ({}, {"num_threads": 4}),
}


def run_all_sizes(vm: relaxvm.VirtualMachine, program: Program) -> None:
    for size in program.sizes:
        inputs = program.inputs(size)
        check(vm["main"](*map(to_vm, inputs)), program.expected(*inputs), program.tolerance)


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_result_does_not_depend_on_the_configuration(
    name: str, config: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_packed()
    environment, arguments = CONFIGS[config]
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    program = PROGRAMS[name]
    executable = relaxvm.compile(program.mod, exec_mode=mode)
    run_all_sizes(relaxvm.VirtualMachine(executable, relaxvm.cpu(), **arguments), program)


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("name", ["chain", "several_outputs", "recursion"])
def test_one_machine_serves_four_threads_at_once(name: str, mode: str) -> None:
    program = PROGRAMS[name]
    vm = relaxvm.VirtualMachine(relaxvm.compile(program.mod, exec_mode=mode), relaxvm.cpu())
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run_all_sizes, vm, program) for _ in range(16)]:
            done.result(timeout=60)


def test_an_unknown_variable_of_ours_is_reported() -> None:
    code = "import logging; logging.basicConfig(); import relaxvm; relaxvm.compile"
    env = dict(os.environ, RELAXVM_NO_SUCH_FLAG="1")
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "RELAXVM_NO_SUCH_FLAG" in done.stderr


def test_seeds_of_the_programs_are_fixed() -> None:
    for program in PROGRAMS.values():
        for a, b in zip(program.inputs(5), program.inputs(5), strict=True):
            if isinstance(a, np.ndarray):
                np.testing.assert_array_equal(a, b)
