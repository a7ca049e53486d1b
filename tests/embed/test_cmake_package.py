# SPDX-License-Identifier: Apache-2.0
"""find_package(relaxvm) from the build tree and from an installed tree: small outside projects are built and run."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.script import ir as I
from relaxvm.script import relax as R

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "cpp"
LIBRARIES = pathlib.Path(os.environ.get("RELAXVM_LIBRARY_PATH") or ROOT / "build" / "lib")
SANITIZED = "LD_PRELOAD" in os.environ
SECONDS = 500

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(SANITIZED, reason="an outside program would need the sanitizer as well"),
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed"),
]

USER_LIBRARY = """
#include <tvm/ffi/function.h>
#include <tvm/ffi/container/tensor.h>

// out[i] = 7 * x[i]
static void UserScale(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  for (int64_t i = 0; i < x.numel(); ++i)
    static_cast<float*>(out.data_ptr())[i] = 7 * static_cast<float*>(x.data_ptr())[i];
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(user_scale, UserScale);
"""

PROJECT = """
cmake_minimum_required(VERSION 3.26)
project(outside CXX)
find_package(relaxvm 0.1 CONFIG REQUIRED)
add_executable(four_threads four_threads.cc)
find_package(Threads REQUIRED)
target_link_libraries(four_threads PRIVATE relaxvm::runtime Threads::Threads)
add_library(user MODULE user.cc)
target_link_libraries(user PRIVATE relaxvm::runtime)
"""


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            y = R.nn.softmax(R.multiply(x, x))
            R.output(y)
        return y


def run(*words: object, **kwargs) -> str:
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source: pathlib.Path, package: pathlib.Path) -> pathlib.Path:
    """Configures and builds an outside project against a CMake package; gives its build folder."""
    folder = source / "build"
    run(
        *("cmake", "-G", "Ninja", "-S", source, "-B", folder, f"-Drelaxvm_ROOT={package}"),
        *(f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Debug"),
        *("-DCMAKE_CXX_FLAGS_DEBUG=-O0", *compiler_cache()),
    )
    run("cmake", "--build", folder, "-j", "2")
    return folder


def compiler_cache() -> list[str]:
    return ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []


def needed(program: pathlib.Path) -> list[str]:
    """The libraries that a program names."""
    lines = run("readelf", "-d", program).splitlines()
    return [line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("model") / "model.so"
    relaxvm.compile(Model).export_library(path)
    return path


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> pathlib.Path:
    source = tmp_path_factory.mktemp("examples") / "cpp"
    shutil.copytree(EXAMPLES, source)
    package = run(sys.executable, "-m", "relaxvm.config", "--cmakedir").strip()
    assert pathlib.Path(package) == LIBRARIES / "cmake" / "relaxvm"
    return build(source, pathlib.Path(package))


def test_a_model_runs_from_four_threads_with_the_runtime_alone(examples, model):
    program = examples / "four_threads"
    assert run(program, model, 200) == "4 threads, 800 calls, 0 differences\n"
    assert {"librelaxvm_runtime.so", "libtvm_ffi.so"} <= set(needed(program))
    loaded = run("ldd", program)
    assert not [name for name in ("librelaxvm.so", "libpython", "LLVM") if name in loaded]


def test_a_program_calls_functions_of_its_host(examples):
    printed = run(examples / "own_functions")
    assert "  call  example.scale    in: %0, c[0], %1 dst: %void\n" in printed
    assert printed.endswith("sum 15, machine 1\n")


def test_a_model_is_compiled_from_cpp(examples, tmp_path):
    printed = run(examples / "compile_model", tmp_path / "model.so")
    assert 'x: R.Tensor(("n", 4), dtype="float32")' in printed
    assert run(examples / "run_model", tmp_path / "model.so", 2).startswith(
        "0 2 6 12\n20 30 42 56\n"
    )
    x = np.full((5, 4), 3, "float32")
    vm = relax.VirtualMachine(relaxvm.load(tmp_path / "model.so"), relaxvm.cpu())
    np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), x * 4)


@pytest.fixture(scope="module")
def outside(tmp_path_factory) -> pathlib.Path:
    """Built against an installed tree: what a wheel unpacks to."""
    if not (LIBRARIES.parent / "cmake_install.cmake").is_file():
        pytest.skip(f"{LIBRARIES.parent} is no build tree")
    prefix = tmp_path_factory.mktemp("site-packages") / "relaxvm"
    run(
        "cmake",
        "--install",
        LIBRARIES.parent,
        "--prefix",
        prefix,
        "--component",
        "wheel",
        "--strip",
    )
    assert (prefix / "include/relaxvm/runtime.h").is_file()
    source = tmp_path_factory.mktemp("outside")
    (source / "CMakeLists.txt").write_text(PROJECT)
    (source / "user.cc").write_text(USER_LIBRARY)
    shutil.copy(EXAMPLES / "four_threads.cc", source)
    build(source, prefix / "lib/cmake/relaxvm")
    (source / "prefix").symlink_to(prefix)
    return source


def test_an_installed_tree_serves_an_outside_project(outside, model):
    program = outside / "build" / "four_threads"
    assert run(program, model, 50) == "4 threads, 200 calls, 0 differences\n"
    assert str((outside / "prefix").resolve()) in run("ldd", program)


def test_the_runtime_library_is_small(outside):
    runtime = outside / "prefix/lib/librelaxvm_runtime.so"
    assert runtime.stat().st_size < 2_000_000
    assert not [name for name in needed(runtime) if "LLVM" in name or "librelaxvm" in name]


def test_a_library_of_cpp_functions_is_imported_by_an_executable(outside):
    (library,) = (outside / "build").glob("*user.so")
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_call("user_scale", args=[ib.r(0), ib.r(1)])
        ib.emit_ret(ib.r(1))
    ex = ib.get()
    ex.import_module(relaxvm.runtime.load_module(library))
    x, out = (relaxvm.runtime.tensor(np.array(v, "float32")) for v in ([1, 2], [0, 0]))
    assert relax.VirtualMachine(ex, relaxvm.cpu())["main"](x, out).numpy().tolist() == [7, 14]


def test_config_names_folders_that_exist():
    for option in ("--includedir", "--libdir", "--cmakedir"):
        assert pathlib.Path(run(sys.executable, "-m", "relaxvm.config", option).strip()).is_dir()
