# SPDX-License-Identifier: Apache-2.0
"""The whole road in small: y = x + 1 with a dynamic dimension, compiled, run, saved, run again without the compiler."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

ALONE = """
import sys
import numpy as np
import relaxvm
vm = relaxvm.VirtualMachine(relaxvm.runtime.load_module(sys.argv[1]), relaxvm.cpu())
x = np.arange(20, dtype="float32").reshape(5, 4)
np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), x + 1)
maps = open("/proc/self/maps").read()
assert "librelaxvm_runtime.so" in maps
assert "librelaxvm.so" not in maps
"""


def add_one() -> relaxvm.IRModule:
    builder = relax.BlockBuilder()
    n = relaxvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n, 4], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.add(x, relax.const(1.0, "float32")))
        builder.emit_func_output(y)
    return builder.get()


@pytest.fixture(scope="module", params=["bytecode", "compiled"])
def executable(request: pytest.FixtureRequest) -> relax.VMExecutable:
    return relaxvm.compile(add_one(), target="llvm", exec_mode=request.param)


@pytest.mark.parametrize("rows", [0, 1, 3, 17, 1000])
def test_one_executable_serves_every_size(executable: relax.VMExecutable, rows: int) -> None:
    vm = relax.VirtualMachine(executable, relaxvm.cpu())
    x = np.random.default_rng(rows).random((rows, 4), dtype="float32")
    np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), x + 1)


def test_saved_file_runs_without_the_compiler(executable: relax.VMExecutable, tmp_path) -> None:
    path = tmp_path / "add.so"
    executable.export_library(path)
    subprocess.run([sys.executable, "-c", ALONE, str(path)], check=True, timeout=60)


def test_wrong_argument_names_function_parameter_and_both_types(
    executable: relax.VMExecutable,
) -> None:
    vm = relax.VirtualMachine(executable, relaxvm.cpu())
    with pytest.raises(
        ValueError, match=r"main: parameter 'x' \(Tensor\(\(n, 4\), float32\)\).*float64"
    ):
        vm["main"](relaxvm.runtime.tensor(np.zeros((2, 4))))
    with pytest.raises(
        RuntimeError, match=r"main: parameter 'x'.*dimension 1 expected to be 4, but it is 5"
    ):
        vm["main"](relaxvm.runtime.tensor(np.zeros((2, 5), "float32")))
