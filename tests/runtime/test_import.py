# SPDX-License-Identifier: Apache-2.0
"""Importing relaxvm: neither torch nor the compiler comes with it."""

import os
import subprocess
import sys


def run(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_torch_is_not_imported_and_can_be_later(tmp_path):
    (tmp_path / "torch.py").write_text("print('torch is imported')\n__version__ = '0'\n")
    path = os.pathsep.join([str(tmp_path), *(p for p in sys.path if p)])
    code = (
        "import sys, relaxvm\n"
        "assert 'torch' not in sys.modules\n"
        "print('relaxvm')\n"
        "import torch\n"
        "assert sys.modules['torch'] is torch\n"
    )
    assert run(code, PYTHONPATH=path).split("\n")[:2] == ["relaxvm", "torch is imported"]


def test_the_compiler_is_not_loaded():
    code = (
        "import relaxvm, relaxvm.relax\n"
        "relaxvm.relax.VirtualMachine, relaxvm.relax.ExecBuilder, relaxvm.runtime.load_module\n"
        "maps = open('/proc/self/maps').read()\n"
        "assert 'librelaxvm_runtime.so' in maps and 'librelaxvm.so' not in maps\n"
    )
    run(code)


def test_second_copy_is_an_import_error():
    code = (
        "import sys, relaxvm\n"
        "for name in [n for n in sys.modules if n.startswith('relaxvm')]: del sys.modules[name]\n"
        "try:\n"
        "    import relaxvm\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    assert "only one can be" in run(code)
