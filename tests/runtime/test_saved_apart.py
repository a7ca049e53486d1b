# SPDX-License-Identifier: Apache-2.0
"""Bytecode, kernels and weights in files of their own: mapped, shared, checked."""

from __future__ import annotations

import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.script import ir as I
from relaxvm.script import relax as R

WEIGHTS = np.arange(64 * 32, dtype="float32").reshape(64, 32)


def model(weights: np.ndarray = WEIGHTS, exec_mode: str = "bytecode") -> relax.VMExecutable:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 32), "float32")) -> R.Tensor(
            ("n", 32), "float32"
        ):
            with R.dataflow():
                y = R.add(R.matmul(x, w), R.const(1.0, "float32"))
                R.output(y)
            return y

    return relaxvm.compile(Model, params={"w": weights}, exec_mode=exec_mode)


def constants_of(*values) -> relax.VMExecutable:
    """main() -> the values, which are constants."""
    ib = relax.ExecBuilder()
    words = [ib.add_constant(value) for value in values]
    with ib.function("main"):
        ib.emit_call("vm.builtin.make_tuple", args=words, dst=ib.r(0))
        ib.emit_ret(ib.r(0))
    return ib.get()


def run(ex: relax.VMExecutable) -> np.ndarray:
    x = np.ones((3, 64), "float32")
    return relax.VirtualMachine(ex, relaxvm.cpu())["main"](relaxvm.runtime.tensor(x)).numpy()


def flip(path: pathlib.Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("saved")
    model().save(folder / "model.vm", weights="model.weights", kernels="kernels.so")
    return folder


@pytest.fixture
def copy(saved, tmp_path) -> pathlib.Path:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_three_files_run_like_the_executable_they_came_from(saved):
    assert sorted(os.listdir(saved)) == ["kernels.so", "model.vm", "model.weights"]
    assert (saved / "model.vm").stat().st_size < 4096 < WEIGHTS.nbytes
    loaded = relaxvm.load(saved / "model.vm")
    expected = model()
    np.testing.assert_array_equal(run(loaded), run(expected))
    assert loaded.as_text() == expected.as_text()
    assert loaded.to_bytes() == expected.to_bytes()


def test_compiled_functions_lie_with_the_kernels(tmp_path):
    ex = model(exec_mode="compiled")
    ex.save(tmp_path / "model.vm", weights="model.weights", kernels="kernels.so")
    loaded = relaxvm.load(tmp_path / "model.vm")
    assert "main (compiled)" in loaded.stats()
    np.testing.assert_array_equal(run(loaded), run(model()))


def mapped_file(tensor) -> str:
    """The file that the tensor's memory is a mapping of."""
    address = np.from_dlpack(tensor).ctypes.data
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        if begin <= address < end:
            return line.split(maxsplit=5)[5] if line.count("/") else ""
    return ""


def large_constants(ex: relax.VMExecutable) -> list:
    count = int(re.search(r"Constants \(#(\d+)", ex.stats())[1])
    values = [ex.constant(i) for i in range(count)]
    return [v for v in values if isinstance(v, relaxvm.runtime.Tensor) and v.numpy().nbytes > 64]


def test_weights_are_mapped_and_aligned(saved):
    (weights,) = large_constants(relaxvm.load(saved / "model.vm"))
    assert mapped_file(weights) == str(saved / "model.weights")
    assert np.from_dlpack(weights).ctypes.data % 64 == 0


def test_pages_of_weights_that_are_read_stay_shared(saved):
    loaded = relaxvm.load(saved / "model.vm")
    np.testing.assert_array_equal(run(loaded), run(model()))
    text = pathlib.Path("/proc/self/smaps").read_text()
    mapping = text[text.index(str(saved / "model.weights")) :]
    assert int(re.search(r"^Rss: +(\d+) kB", mapping, re.MULTILINE)[1]) > 0
    # A page of which this process has a copy of its own is anonymous (a dirty one may wait for the disk).
    assert int(re.search(r"^Anonymous: +(\d+) kB", mapping, re.MULTILINE)[1]) == 0


def test_writing_to_a_mapped_weight_stays_in_the_process(copy):
    before = (copy / "model.weights").read_bytes()
    first = relaxvm.load(copy / "model.vm")
    (weights,) = large_constants(first)
    weights.copyfrom(np.zeros(weights.shape, "float32"))
    np.testing.assert_array_equal(run(first), np.ones((3, 32), "float32"))
    assert (copy / "model.weights").read_bytes() == before
    np.testing.assert_array_equal(run(relaxvm.load(copy / "model.vm")), run(model()))


def test_every_kind_of_constant_survives_apart(tmp_path):
    import ml_dtypes

    rng = np.random.default_rng(0)
    values = [
        relaxvm.runtime.tensor(rng.random(shape).astype(dtype))
        for dtype in ("float32", "int8", ml_dtypes.bfloat16, "float64")
        for shape in ((), (3, 0), (5,), (17, 9))
    ]
    values += ["text", 2**60, 0.5, relaxvm.DataType("int4"), relaxvm.runtime.ShapeTuple((1, 2))]
    ex = constants_of(*values)
    ex.save(tmp_path / "c.vm", weights="c.weights")
    loaded = relaxvm.load(tmp_path / "c.vm")
    assert loaded.to_bytes() == ex.to_bytes()
    assert loaded.as_python() == ex.as_python()


def test_packed_elements_need_a_weights_file(tmp_path):
    ib = relax.ExecBuilder()
    ib.add_tensor("int4", (10,), "AQIDBAU=")
    ex = ib.get()
    with pytest.raises(NotImplementedError, match="a constant of dtype int4 cannot be saved"):
        ex.to_bytes()
    ex.save(tmp_path / "c.vm", weights="c.weights")
    assert relaxvm.load(tmp_path / "c.vm").as_python() == ex.as_python()
    assert b"\1\2\3\4\5" in (tmp_path / "c.weights").read_bytes()


def test_files_elsewhere_are_named(copy, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    for name in ("model.weights", "kernels.so"):
        (copy / name).rename(other / f"moved_{name}")
    with pytest.raises(RuntimeError, match=r"cannot open the weights file .*model\.weights"):
        relaxvm.load(copy / "model.vm")
    loaded = relaxvm.load(
        copy / "model.vm", weights=other / "moved_model.weights", kernels=other / "moved_kernels.so"
    )
    np.testing.assert_array_equal(run(loaded), run(model()))


@pytest.mark.parametrize("at", [70, 64 + WEIGHTS.nbytes // 2, -1])
def test_damaged_weights_are_found_before_they_are_used(copy, at):
    flip(copy / "model.weights", at)
    with pytest.raises(ValueError, match="model.weights: is damaged"):
        relaxvm.load(copy / "model.vm")
    assert relaxvm.load(copy / "model.vm", verify_weights=False).function_names() == ["main"]


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_damaged_header_of_weights_is_found_without_reading_them(copy, at):
    flip(copy / "model.weights", at)
    with pytest.raises(ValueError, match="model.weights: (is no weights file|belongs to another)"):
        relaxvm.load(copy / "model.vm", verify_weights=False)


def test_truncated_weights_are_found_without_reading_them(copy):
    path = copy / "model.weights"
    size = path.stat().st_size
    for length in (0, 10, 64, size - 1, size + 1):
        os.truncate(path, length)
        with pytest.raises(ValueError, match="is no weights file|is truncated, or is longer"):
            relaxvm.load(copy / "model.vm", verify_weights=False)


def test_parts_of_another_model_are_refused(copy, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    model(WEIGHTS + 1).save(other / "model.vm", weights="model.weights", kernels="kernels.so")
    shutil.copy(other / "model.weights", copy)
    with pytest.raises(ValueError, match="model.weights: belongs to another model"):
        relaxvm.load(copy / "model.vm")


def test_kernels_of_another_model_are_refused(tmp_path):
    model().save(tmp_path / "model.vm", kernels="kernels.so")
    assert run(relaxvm.load(tmp_path / "model.vm")).shape == (3, 32)
    constants_of(1).export_library(tmp_path / "kernels.so")
    with pytest.raises(ValueError, match=r"kernels\.so belongs to another model"):
        relaxvm.load(tmp_path / "model.vm")


def test_damaged_bytecode_is_found(copy):
    path = copy / "model.vm"
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        flip(path, at)
        with pytest.raises((ValueError, RuntimeError)):
            relaxvm.load(path)
        path.write_bytes(whole[:at])
        with pytest.raises((ValueError, RuntimeError)):
            relaxvm.load(path)
        path.write_bytes(whole)


def test_a_library_has_everything_inside(tmp_path):
    path = tmp_path / "model.so"
    model().export_library(path)
    with pytest.raises(ValueError, match="give no other files"):
        relaxvm.load(path, weights=path)


def test_mistakes_leave_no_file(tmp_path):
    ex = constants_of(relaxvm.runtime.tensor(WEIGHTS))
    with pytest.raises(ValueError, match="must lie beside .*: give a file name"):
        ex.save(tmp_path / "c.vm", weights="sub/c.weights")
    with pytest.raises(RuntimeError, match="cannot write"):
        ex.save(tmp_path / "no" / "c.vm", weights="c.weights")
    with pytest.raises(RuntimeError, match="cannot open .*no.so"):
        from relaxvm._ffi import runtime_function

        runtime_function("vm.save_executable")(ex.mod, str(tmp_path / "c.vm"), "c.weights", "no.so")
    assert not list(tmp_path.iterdir())


LOAD_HUGE = """
import resource, sys
import numpy as np, relaxvm

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024

before = resident()
ex = relaxvm.load(sys.argv[1], verify_weights=False)
(weights,) = relaxvm.VirtualMachine(ex, relaxvm.cpu())["main"]()
values = np.from_dlpack(weights)
assert values.nbytes == int(sys.argv[2])
assert (values[0], values[-1], values[values.size // 2]) == (7, 9, 0)
print(resident() - before)
"""


@pytest.mark.slow
def test_weights_of_more_than_4_gb_are_mapped_not_copied(tmp_path):
    num_bytes = 4_500_000_000
    if shutil.disk_usage(tmp_path).free < 2 * num_bytes:
        pytest.skip("needs 9 GB of disk where files have no holes")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < 3 * num_bytes - 2_000_000_000:
        pytest.skip("needs 11.5 GB of address space")
    # Fresh pages of the system are zero, and take no memory until they are written.
    weights = relaxvm.runtime.empty((num_bytes // 4,), "float32")
    view = np.from_dlpack(weights)
    view[0], view[-1] = 7, 9
    ex = constants_of(weights)
    ex.save(tmp_path / "huge.vm", weights="huge.weights")
    del ex, view, weights
    assert (tmp_path / "huge.weights").stat().st_size > num_bytes
    command = [sys.executable, "-c", LOAD_HUGE, str(tmp_path / "huge.vm"), str(num_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100_000_000
