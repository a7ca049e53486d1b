# SPDX-License-Identifier: Apache-2.0
"""Executables move between relaxvm and TVM 0.27, which runs in a process of its own.

TVM is found in the interpreter of the tests, or in the one that RELAXVM_TVM_PYTHON names.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm._ffi import tvm_ffi

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
NAMES = ["static", "dynamic", "control", "closures", "constants"]
VERSION = "0.27."


def _module(path: pathlib.Path):
    spec = importlib.util.spec_from_file_location(f"relaxvm_test_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


interchange = _module(HERE / "interchange_programs.py")


@pytest.fixture(scope="module")
def tvm():
    """Runs a program of this folder under TVM; gives what it prints."""
    named = os.environ.get("RELAXVM_TVM_PYTHON")
    python = named or sys.executable
    probe = [python, "-c", "from importlib.metadata import version; print(version('apache-tvm'))"]
    found = subprocess.run(probe, capture_output=True, text=True, timeout=60)
    if found.returncode and not named:
        pytest.skip("apache-tvm is not installed: pip install 'apache-tvm==0.27.*'")
    assert found.stdout.startswith(VERSION), (
        f"{python}: TVM 0.27 expected: {found.stdout or found.stderr}"
    )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def run(script: str, *words) -> str:
        command = [python, str(HERE / script), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def from_tvm(tvm, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("from_tvm")
    tvm("interchange_programs.py", "compile", "tvm", folder)
    return folder


@pytest.fixture(scope="module")
def for_tvm(tvm, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("for_tvm")
    for name in NAMES:
        ex = relaxvm.compile(interchange.PROGRAMS[name], "llvm")
        ex.export_library(folder / f"{name}.so", interchange="tvm")
    tvm("interchange_programs.py", "run", "tvm", folder)
    return folder


def results_here(path: pathlib.Path, name: str) -> list[np.ndarray]:
    vm = relax.VirtualMachine(relaxvm.load(path), relaxvm.cpu())
    return interchange.flat(vm["main"](*map(relaxvm.runtime.tensor, interchange.inputs(name))))


def assert_equal_results(here: list[np.ndarray], there: pathlib.Path, rtol: float = 0) -> None:
    """The same number of arrays, of the same types and shapes, with the same values."""
    with np.load(there) as saved:
        expected = [saved[key] for key in saved.files]
    assert len(here) == len(expected)
    for mine, theirs in zip(here, expected):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_what_tvm_exported_runs_here_with_equal_results(from_tvm, name):
    assert_equal_results(results_here(from_tvm / f"{name}.so", name), from_tvm / f"{name}.tvm.npz")


@pytest.mark.parametrize("name", NAMES)
def test_what_we_exported_for_tvm_runs_there_with_equal_results(for_tvm, name):
    # Ours runs a loop in parallel where TVM's process runs it serially: sums may be cut elsewhere.
    here = results_here(for_tvm / f"{name}.so", name)
    assert_equal_results(here, for_tvm / f"{name}.tvm.npz", rtol=1e-6)


def test_parallel_kernels_of_tvm_use_our_threads_and_scratch_memory(tvm, tmp_path):
    path = tmp_path / "parallel.so"
    tvm("tvm_side.py", "parallel", path)
    slots = subprocess.run(["nm", "-D", path], capture_output=True, text=True, timeout=60).stdout
    assert "__TVMBackendParallelLaunch" in slots and "__TVMBackendAllocWorkspace" in slots
    before = set(tvm_ffi.registry.list_global_func_names())
    vm = relax.VirtualMachine(relaxvm.load(path), relaxvm.cpu())
    x = np.random.default_rng(0).random((37, 64), "float32")
    y = (2 * x + 1) @ (2 * x + 1).T
    e = np.exp(y - y.max(-1, keepdims=True))
    result = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(result, e / e.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)
    assert set(tvm_ffi.registry.list_global_func_names()) == before
    with pytest.raises((ValueError, RuntimeError), match="x"):
        vm["main"](relaxvm.runtime.tensor(x[:, :5].copy()))


def test_listing_is_tvm_s_exact_text(tvm, tmp_path):
    random_executable = _module(ROOT / "tests/relax/test_exec_builder.py").random_executable
    executables = {}
    for seed in range(60):
        ex = random_executable(seed)
        if not re.search(r"Tensor\([1-9]\d*, (\d+, )*0[,)]", ex.stats()):  # which TVM cannot load
            executables[f"random{seed}"] = ex
    for name in NAMES:
        executables[name] = relaxvm.compile(interchange.PROGRAMS[name], "llvm")
    for name, ex in executables.items():
        (tmp_path / f"{name}.bin").write_bytes(ex.to_bytes())
    tvm("tvm_side.py", "text", tmp_path)
    for name, ex in executables.items():
        assert (tmp_path / f"{name}.txt").read_text() == ex.as_text(), name


def test_the_list_of_builtins_that_tvm_has_is_right(tvm):
    rows = (ROOT / "src/bytecode/tvm_builtins.def").read_text()
    listed = set(re.findall(r'^TVM_BUILTIN\("([^"]+)"\)', rows, re.MULTILINE))
    names = set(tvm("tvm_side.py", "names").split())
    known = {name for name in names if name.startswith(("vm.builtin.", "relax.run."))}
    assert listed == known | (names & {"runtime.TVMTensorCreateView"})


def test_export_for_tvm_names_what_tvm_lacks(tmp_path):
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("vm.builtin.alloc_adt", args=[ib.imm(0), ib.r(0)], dst=ib.r(1))
        ib.emit_call("vm.builtin.get_tag", args=[ib.r(1)], dst=ib.r(2))
        ib.emit_call("vm.builtin.copy", args=[ib.r(2)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    ex = ib.get()
    with pytest.raises(
        NotImplementedError,
        match=r"TVM has no builtin vm\.builtin\.alloc_adt, vm\.builtin\.get_tag;",
    ):
        ex.export_library(tmp_path / "model.so", interchange="tvm")
    assert not list(tmp_path.iterdir())
    ex.export_library(tmp_path / "model.so")
    assert relax.VirtualMachine(relaxvm.load(tmp_path / "model.so"))["main"](5) == 0


def test_export_for_tvm_refuses_data_types(tmp_path):
    programs = _module(ROOT / "tests/vm/data_type_programs.py")
    ex = relaxvm.compile(programs.Lists)
    with pytest.raises(NotImplementedError, match="TVM has no builtin .*alloc_adt") as caught:
        ex.export_library(tmp_path / "model.so", interchange="tvm")
    # Every builtin that TVM lacks is named, and no other.
    named = re.findall(r"vm\.builtin\.\w+", str(caught.value))
    listed = (ROOT / "src/bytecode/tvm_builtins.def").read_text()
    used = set(re.findall(r"vm\.builtin\.\w+", ex.as_text()))
    assert set(named) == {name for name in used if f'"{name}"' not in listed}
    assert {"vm.builtin.check_adt_info", "vm.builtin.get_field"} <= set(named)
    assert not list(tmp_path.iterdir())


def test_native_code_of_tvm_s_machine_is_refused(tvm, tmp_path):
    path = tmp_path / "compiled.so"
    tvm("tvm_side.py", "compiled", path)
    with pytest.raises(NotImplementedError, match='export it from TVM with exec_mode="bytecode"'):
        relaxvm.load(path)


def test_export_for_tvm_refuses_compiled_functions(tmp_path):
    ib = relax.ExecBuilder()
    with ib.function("main", kind=relax.VMFuncKind.VM_TIR_FUNC, register_file_size=1):
        pass
    with pytest.raises(
        NotImplementedError, match="cannot run the native code of main; compile with"
    ):
        ib.get().export_library(tmp_path / "model.so", interchange="tvm")


def test_export_for_tvm_refuses_constants_that_tvm_cannot_load(tvm, tmp_path):
    for shape in [(2, 0), (0, 2)]:
        ib = relax.ExecBuilder()
        with ib.function("main"):
            ib.emit_call("vm.builtin.copy", [relaxvm.runtime.empty(shape)], ib.r(0))
            ib.emit_ret(ib.r(0))
        ex = ib.get()
        if shape[0]:
            with pytest.raises(NotImplementedError, match=r"the constant Tensor\(2, 0\) float32;"):
                ex.export_library(tmp_path / "model.so", interchange="tvm")
        (tmp_path / f"{shape[0]}.bin").write_bytes(ex.to_bytes())
    with pytest.raises(AssertionError, match="Invalid DLTensor file format"):
        tvm("tvm_side.py", "text", tmp_path)
    (tmp_path / "2.bin").unlink()
    tvm("tvm_side.py", "text", tmp_path)


def test_export_for_tvm_refuses_compiled_mode(tmp_path):
    ex = relaxvm.compile(interchange.PROGRAMS["control"], "llvm", exec_mode="compiled")
    with pytest.raises(NotImplementedError, match="cannot run the native code of main; compile"):
        ex.export_library(tmp_path / "model.so", interchange="tvm")
    assert not list(tmp_path.iterdir())


def test_unknown_interchange_is_an_error(tmp_path):
    ex = relaxvm.compile(interchange.PROGRAMS["static"], "llvm")
    with pytest.raises(ValueError, match="interchange='onnx' is unknown"):
        ex.export_library(tmp_path / "model.so", interchange="onnx")
