# SPDX-License-Identifier: Apache-2.0
"""Code for AArch64: what it computes under an emulator is what this machine computes; and how it is written to files.

`./dev build --preset aarch64` makes what the emulator runs: our runtime for AArch64, with a program that calls models.
"""

from __future__ import annotations

import importlib.util
import pathlib
import platform
import re
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
from machine_programs import (
    GROUPS,
    check_same,
    mnemonics,
    module_of,
    programs,
    results_here,
)
from typer.testing import CliRunner

import relaxvm
from relaxvm import relax
from relaxvm.cli.app import app
from relaxvm.relax import op

ROOT = pathlib.Path(__file__).parents[2]
BUILD = ROOT / "build-aarch64"
RUNNER = BUILD / "bin/run_files"
SYSROOT = "/usr/aarch64-linux-gnu"
TARGET = "llvm -mtriple=aarch64-linux-gnu -mcpu="


def _missing() -> str:
    """Why code for AArch64 cannot be run; empty when it can."""
    if shutil.which("qemu-aarch64") is None:
        return "qemu-aarch64 is not installed (package qemu-user)"
    if not RUNNER.exists():
        return "there is no runtime for AArch64 (./dev build --preset aarch64)"
    return ""


def _no_backend() -> str:
    try:
        relaxvm.compile(relaxvm.IRModule({}), target=TARGET + "generic")
    except ValueError as error:
        return str(error)
    return ""


pytestmark = [
    pytest.mark.skipif(platform.machine() == "aarch64", reason="this machine is one"),
    pytest.mark.skipif(bool(_no_backend()), reason=_no_backend()),
]
emulated = pytest.mark.skipif(bool(_missing()), reason=_missing())


def emulate(cpu: str, *words: object, timeout: float = 100) -> subprocess.CompletedProcess:
    cache = (BUILD / "CMakeCache.txt").read_text()
    ffi = re.search(r"RELAXVM_TVM_FFI_LIBRARY:FILEPATH=(.*)/", cache).group(1)
    command = ["qemu-aarch64", "-cpu", cpu, "-L", SYSROOT]
    command += ["-E", f"LD_LIBRARY_PATH={BUILD / 'lib'}:{ffi}", RUNNER, *words]
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=timeout
    )


def describe(array: np.ndarray, path: pathlib.Path) -> str:
    array.tofile(path)
    return f"{array.dtype}:{','.join(map(str, array.shape))}:{path}"


def read_results(text: str) -> list[np.ndarray]:
    results = []
    for line in text.splitlines():
        dtype, sizes, path = line.split(":")
        kind = getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype
        shape = [int(size) for size in sizes.split(",") if size]
        results.append(np.fromfile(path, kind).reshape(shape))
    return results


def small() -> relaxvm.IRModule:
    x = relax.Var("x", relax.TensorType([3, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        weight = relax.const(np.arange(20, dtype=np.float32).reshape(4, 5))
        builder.emit_func_output(builder.emit(op.exp(op.matmul(x, weight))))
    return builder.get()


SCRIPT = """
from relaxvm.script import ir as I
from relaxvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        return R.exp(x)
"""

# LLVM's name of a processor, and what the emulator is to be: no more than that, where it knows it.
PROCESSORS = {
    "cortex-a72": "cortex-a72",
    "neoverse-n1": "neoverse-n1",  # products of bytes (dotprod), half floats
    "neoverse-n2": "max",  # SVE2, signed by unsigned bytes (i8mm), bfloat16
}


def check_group(
    group: tuple[str, ...], cpu: str, folder: pathlib.Path, exec_mode: str = "bytecode"
) -> None:
    library = folder / "programs.so"
    executable = relaxvm.compile(module_of(group), target=TARGET + cpu, exec_mode=exec_mode)
    executable.export_library(library)
    words: list[object] = [library]
    for at, name in enumerate(group):
        words += ["--"] * (at > 0) + [f"f{at}", folder / f"out{at}."]
        for i, array in enumerate(programs()[name].inputs):
            words.append(describe(array, folder / f"in{at}.{i}"))
    run = emulate(PROCESSORS[cpu], *words)
    assert run.returncode == 0, run.stderr
    for name, have, want in zip(group, read_results(run.stdout), results_here(group), strict=True):
        check_same(name, have, want)


@emulated
@pytest.mark.parametrize("group", GROUPS, ids=lambda names: names[0])
@pytest.mark.parametrize("cpu", PROCESSORS)
def test_gives_what_this_machine_gives(
    cpu: str, group: tuple[str, ...], tmp_path: pathlib.Path
) -> None:
    check_group(group, cpu, tmp_path)


@emulated
def test_compiled_functions_give_the_same(tmp_path: pathlib.Path) -> None:
    check_group(GROUPS[0], "cortex-a72", tmp_path, "compiled")


@emulated
def test_a_model_from_onnx_gives_the_same(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXVM_VERIFY", "0")  # takes a minute, and is not what this is about
    package = importlib.util.find_spec("rapidocr_onnxruntime")
    if package is None:
        pytest.skip("rapidocr-onnxruntime, which has the model, is not installed")
    folder = pathlib.Path(package.submodule_search_locations[0]) / "models"
    model = str(folder / "ch_ppocr_mobile_v2.0_cls_infer.onnx")
    x = np.random.default_rng(0).standard_normal((2, 3, 48, 192), dtype=np.float32)
    here = relaxvm.VirtualMachine(relaxvm.compile(model), relaxvm.cpu())
    want = here["main"](relaxvm.runtime.tensor(x)).numpy()
    library = tmp_path / "cls.so"
    relaxvm.compile(model, target=TARGET + "cortex-a72").export_library(library)
    words = [library, "main", tmp_path / "out", describe(x, tmp_path / "x")]
    run = emulate("cortex-a72", *words)
    assert run.returncode == 0, run.stderr
    np.testing.assert_allclose(read_results(run.stdout)[0], want, rtol=0, atol=1e-4)


@emulated
def test_a_library_for_more_than_the_processor_has_is_refused(tmp_path: pathlib.Path) -> None:
    library = tmp_path / "small.so"
    relaxvm.compile(small(), target=TARGET + "neoverse-n2").export_library(library)
    x = describe(np.zeros((3, 4), np.float32), tmp_path / "x")
    run = emulate("cortex-a72", library, "main", tmp_path / "out", x)
    assert run.returncode == 1
    assert "compiled for the CPU neoverse-n2; this machine lacks" in run.stderr
    assert "dotprod" in run.stderr and "i8mm" in run.stderr and "neon," not in run.stderr


@pytest.mark.parametrize(
    ("cpu", "program", "wanted"),
    [
        ("cortex-a72", "matmul", {"fmla"}),
        ("cortex-a72", "product of bytes", set()),
        ("neoverse-n1", "product of bytes", {"sdot"}),
        ("neoverse-n2", "product of bytes", {"usdot"}),
        ("neoverse-n2", "product of signed bytes", {"sdot"}),
        ("neoverse-n1", "product of bfloat16", {"fmla"}),
        ("neoverse-n2", "product of bfloat16", {"bfdot"}),
    ],
)
def test_uses_the_instructions_of_the_processor(
    cpu: str, program: str, wanted: set[str], tmp_path: pathlib.Path
) -> None:
    found = mnemonics(program, TARGET + cpu, tmp_path, "aarch64-linux-gnu-objdump")
    assert {"fmla", "sdot", "usdot", "bfdot"} & found == wanted


def test_the_command_line_takes_the_target(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))
    script, output = tmp_path / "small.py", tmp_path / "small.so"
    script.write_text(SCRIPT)
    words = ["compile", script, "-o", output, "--target", TARGET + "cortex-a72"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    assert output.read_bytes()[18:20] == b"\xb7\x00"  # the kind of processor in an ELF header
    done = CliRunner().invoke(app, ["run", str(output)])
    assert done.exit_code != 0
    assert "is a library for AArch64" in done.output


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_running_it_here_says_what_it_is_for(exec_mode: str) -> None:
    executable = relaxvm.compile(small(), target=TARGET + "cortex-a72", exec_mode=exec_mode)
    vm = relaxvm.VirtualMachine(executable, relaxvm.cpu())
    with pytest.raises(RuntimeError, match=r"compiled for aarch64.*export_library"):
        vm["main"](relaxvm.runtime.tensor(np.zeros((3, 4), np.float32)))


def test_loading_it_here_says_what_it_is_for(tmp_path: pathlib.Path) -> None:
    library = tmp_path / "small.so"
    relaxvm.compile(small(), target=TARGET + "cortex-a72").export_library(library)
    with pytest.raises(ValueError, match="library for AArch64, this process runs on x86-64"):
        relaxvm.load(library)


def test_a_missing_linker_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = relaxvm.compile(small(), target=TARGET + "cortex-a72")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="ld.lld.*binutils-aarch64-linux-gnu.*ends with .a"):
        executable.export_library(tmp_path / "small.so")
    executable.export_library(tmp_path / "small.a")
    assert (tmp_path / "small.a").read_bytes().startswith(b"!<arch>\n")


@emulated
def test_a_static_library_is_linked_by_others(tmp_path: pathlib.Path) -> None:
    executable = relaxvm.compile(small(), target=TARGET + "cortex-a72")
    executable.export_library(tmp_path / "small.a")
    command = ["aarch64-linux-gnu-gcc", "-shared", "-nostdlib", "-o", tmp_path / "small.so"]
    command += ["-Wl,--whole-archive", tmp_path / "small.a"]
    subprocess.run(command, check=True, timeout=60)
    x = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)
    words = [tmp_path / "small.so", "main", tmp_path / "out", describe(x, tmp_path / "x")]
    run = emulate("cortex-a72", *words)
    assert run.returncode == 0, run.stderr
    want = np.exp(x @ np.arange(20, dtype=np.float32).reshape(4, 5))
    np.testing.assert_allclose(read_results(run.stdout)[0], want, rtol=1e-5)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("llvm -mcpu=cortex-a72", "add -mtriple=aarch64-linux-gnu"),
        (TARGET + "haswell", "add -mtriple=x86_64-linux-gnu"),
        (TARGET + "z80", "unknown CPU z80.*cortex-a72"),
        ("llvm -mtriple=riscv64-linux-gnu", "use x86_64-linux-gnu or aarch64-linux-gnu"),
        ("llvm -mtriple=aarch64-apple-darwin", "use x86_64-linux-gnu or aarch64-linux-gnu"),
    ],
)
def test_a_wrong_target_says_which_is_right(target: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        relaxvm.compile(small(), target=target)
