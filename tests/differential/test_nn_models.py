# SPDX-License-Identifier: Apache-2.0
"""nn.Module.export_tvm gives what TVM's gives, for the models of nn_models.py."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).with_name("nn_models.py")
pytestmark = pytest.mark.peer


@pytest.fixture
def tvm_python() -> str:
    """An interpreter that has TVM: the one that RELAXVM_TVM_PYTHON names, or this one."""
    named = os.environ.get("RELAXVM_TVM_PYTHON")
    if named is None and importlib.util.find_spec("tvm") is None:
        pytest.skip("apache-tvm is not installed: pip install 'apache-tvm==0.27.*'")
    return named or sys.executable


def described(python: str, library: str) -> list[str]:
    env = {k: v for k, v in os.environ.items() if library == "relaxvm" or k != "PYTHONPATH"}
    command = [python, str(SCRIPT), library]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    # Subroutines are traced apart, so results are counted for each function.
    return [re.sub(r"\bgv\d+", "gv", line) for line in done.stdout.splitlines()]


def test_models_are_exported_as_tvm_exports_them(tvm_python):
    ours, theirs = described(sys.executable, "relaxvm"), described(tvm_python, "tvm")
    assert len(ours) > 150 and ours == theirs
