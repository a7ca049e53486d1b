# SPDX-License-Identifier: Apache-2.0
"""compile takes files: a script; what is no model says so."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import relaxvm

SCRIPT = """
from relaxvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        y = R.add(x, x)
        return y
"""


def test_script_in_a_file_compiles(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(SCRIPT)
    vm = relaxvm.VirtualMachine(relaxvm.compile(path), relaxvm.cpu())
    x = np.ones(3, "float32")
    np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), x + x)


def test_missing_file_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing.onnx: there is no such file"):
        relaxvm.compile(tmp_path / "nothing.onnx")


def test_what_is_no_model_is_named() -> None:
    with pytest.raises(TypeError, match="compile takes an IRModule.*not int"):
        relaxvm.compile(3)
