# SPDX-License-Identifier: Apache-2.0
"""Native code of users and of TVM: object files and libraries that an executable imports."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T

HERE = pathlib.Path(__file__).parent


@I.ir_module
class Scaled:
    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        with R.dataflow():
            y = R.add(x, x)
            z = R.call_dps_packed("user_scale", (y,), out_ty=R.Tensor((n,), "float32"))
            R.output(z)
        return z


X = np.arange(5, dtype="float32")


def compiled(path: pathlib.Path, source: str, *options: str) -> pathlib.Path:
    command = ["cc", "-O1", "-fPIC", "-o", str(path), str(HERE / source), *options]
    subprocess.run(command, check=True, timeout=60)
    return path


@pytest.fixture(scope="module")
def object_file(tmp_path_factory) -> pathlib.Path:
    return compiled(
        tmp_path_factory.mktemp("object") / "user.o", "user_kernel.c", "-c", "-DFACTOR=3"
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("library") / "libuser.so"
    return compiled(path, "user_kernel.c", "-shared", "-DFACTOR=5")


@pytest.fixture
def global_function():
    """A function of the same name that nobody should reach."""

    def fails(*args):
        raise AssertionError("the global function was called")

    relaxvm.register_global_func("user_scale", fails)
    yield
    relaxvm.remove_global_func("user_scale")


def run(ex) -> np.ndarray:
    return relax.VirtualMachine(ex, relaxvm.cpu())["main"](relaxvm.runtime.tensor(X)).numpy()


def test_without_the_import_the_function_is_named_when_a_machine_is_made():
    with pytest.raises(RuntimeError, match="Cannot find user_scale"):
        run(relaxvm.compile(Scaled))


def test_object_file_is_called_before_global_functions(object_file, global_function):
    ex = relaxvm.compile(Scaled)
    ex.import_module(relaxvm.runtime.load_static_library(object_file, ["user_scale"]))
    np.testing.assert_array_equal(run(ex), 6 * X)


def test_object_file_is_linked_into_the_exported_library(object_file, tmp_path):
    ex = relaxvm.compile(Scaled)
    ex.import_module(relaxvm.runtime.load_static_library(object_file))
    path = tmp_path / "model.so"
    ex.export_library(path)
    program = (
        "import sys, numpy as np, relaxvm\n"
        "def fails(*args): raise AssertionError('the global function was called')\n"
        "relaxvm.register_global_func('user_scale', fails)\n"
        "vm = relaxvm.VirtualMachine(relaxvm.load(sys.argv[1]), relaxvm.cpu())\n"
        "print(vm['main'](relaxvm.runtime.tensor(np.arange(5, dtype='float32'))).numpy().tolist())\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == str((6 * X).tolist()), done.stderr


GOES = """
import sys, relaxvm
module = relaxvm.runtime.{load}(sys.argv[1])
del module
print("gone", flush=True)
"""


@pytest.mark.parametrize("exported", [False, True])
def test_code_that_runs_when_the_process_ends_is_still_there(exported, tmp_path):
    path = compiled(tmp_path / "user.o", "user_kernel.c", "-c", "-DFACTOR=3", "-DFAREWELL")
    if exported:
        ex = relaxvm.compile(Scaled)
        ex.import_module(relaxvm.runtime.load_static_library(path, ["user_scale"]))
        path = tmp_path / "model.so"
        ex.export_library(path)
    child = GOES.format(load="load" if exported else "load_static_library")
    done = subprocess.run(
        [sys.executable, "-c", child, str(path)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "gone\nfarewell\n"), done.stderr


def test_weights_do_not_lie_between_code_and_its_constants(object_file, tmp_path):
    # Code reaches its constants with 32 bits, and weights may take more than 2 GB.
    ex = relaxvm.compile(Scaled)
    ex.import_module(relaxvm.runtime.load_static_library(object_file))
    ex.export_library(tmp_path / "model.so")
    command = ["readelf", "-SW", str(tmp_path / "model.so")]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    sections = re.findall(r"^ +\[ *\d+\] (\.\w+) +\w+ +([0-9a-f]{16})", printed, re.MULTILINE)
    at = {name: int(address, 16) for name, address in sections}
    blob = at.get(".lrodata", at[".rodata"])
    assert not min(at[".rodata"], at[".text"]) < blob < max(at[".rodata"], at[".text"])


def test_object_file_travels_with_a_program_that_has_no_kernels(object_file, tmp_path):
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_call("user_scale", args=[ib.r(0), ib.r(1)])
        ib.emit_ret(ib.r(1))
    ex = ib.get()
    ex.import_module(relaxvm.runtime.load_static_library(object_file))
    ex.export_library(tmp_path / "model.so")
    vm = relax.VirtualMachine(relaxvm.load(tmp_path / "model.so"), relaxvm.cpu())
    out = relaxvm.runtime.tensor(np.zeros(5, "float32"))
    np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(X), out).numpy(), 3 * X)


def test_function_of_a_user_takes_the_machine_like_a_builtin():
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("test.rt.twice", args=[ib.vm_state(), ib.f("inner"), ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    with ib.function("inner", num_inputs=1):
        ib.emit_call("vm.builtin.make_tuple", args=[ib.r(0), ib.imm(1)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))

    def twice(machine, function, value):
        assert list(machine["inner"](0)) == [0, 1]
        return function(function(value))

    relaxvm.register_global_func("test.rt.twice", twice)
    try:
        inner, one = relax.VirtualMachine(ib.get(), relaxvm.cpu())["main"](7)
        assert (list(inner), one) == ([7, 1], 1)
    finally:
        relaxvm.remove_global_func("test.rt.twice")


def test_shared_library_is_called_before_global_functions(library, global_function, tmp_path):
    ex = relaxvm.compile(Scaled)
    ex.export_library(tmp_path / "model.so")
    loaded = relaxvm.load(tmp_path / "model.so")
    for executable in (ex, loaded):
        executable.import_module(relaxvm.runtime.load_module(library))
        np.testing.assert_array_equal(run(executable), 10 * X)


def test_an_import_that_cannot_be_linked_is_not_left_out(library, tmp_path):
    ex = relaxvm.compile(Scaled)
    ex.import_module(relaxvm.runtime.load_module(library))
    with pytest.raises(
        ValueError, match=r"libuser\.so is a shared library, which cannot be linked"
    ):
        ex.export_library(tmp_path / "model.so")
    again = relaxvm.compile(Scaled)
    again.import_module(relax.VirtualMachine(ex).module)
    with pytest.raises(ValueError, match="an imported module of kind .* cannot be saved"):
        again.export_library(tmp_path / "model.so")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_object_file_says_so(object_file, tmp_path):
    (tmp_path / "text.o").write_text("text")
    with pytest.raises(ValueError, match=r"text\.o is no object file"):
        relaxvm.runtime.load_static_library(tmp_path / "text.o")
    with pytest.raises(RuntimeError, match=r"cannot read .*nothing\.o"):
        relaxvm.runtime.load_static_library(tmp_path / "nothing.o")
    with pytest.raises(ValueError, match="exports no function other; define __tvm_ffi_<name>"):
        relaxvm.runtime.load_static_library(object_file, ["user_scale", "other"])


@pytest.fixture(scope="module", params=["", "-DBARRIER"])
def tvm_library(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("slots") / "libtvm.so"
    options = [request.param] if request.param else []
    return relaxvm.runtime.load_module(compiled(path, "tvm_slots.c", "-shared", *options)), bool(
        options
    )


def test_parallel_loops_of_tvm_run_all_tasks(tvm_library):
    module, has_barrier = tvm_library
    tasks, total = divmod(module["launch"](0, -1), 1000)
    # A loop with barriers needs its tasks at once: it gets one.
    assert total == tasks * (tasks + 1) // 2 and (tasks == 1 if has_barrier else tasks >= 1)
    if has_barrier:
        with pytest.raises(NotImplementedError, match="with barriers asks for a number of threads"):
            module["launch"](7, -1)
    else:
        assert module["launch"](7, -1) == 7028


def test_error_in_a_task_of_tvm_reaches_the_caller(tvm_library):
    module, has_barrier = tvm_library
    for failing in range(1 if has_barrier else 7):
        with pytest.raises(ValueError, match="the task fails"):
            module["launch"](0 if has_barrier else 7, failing)
    assert module["launch"](1, -1) == 1001


def test_scratch_memory_of_tvm_is_aligned_and_ends(tvm_library):
    module, _ = tvm_library
    assert module["workspace"](1, 100_000) == 1
    for device_type, size in ((1, 1 << 60), (2, 64)):
        with pytest.raises(RuntimeError, match=f"asks for {size} bytes of scratch memory"):
            module["workspace"](device_type, size)
