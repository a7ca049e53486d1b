# SPDX-License-Identifier: Apache-2.0
"""Every example runs, and so does the code of README.md; each as its reader would run it, in a process of its own."""

from __future__ import annotations

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = pathlib.Path(os.environ.get("RELAXVM_LIBRARY_PATH") or ROOT / "build" / "lib")
WORDS_IN_TICKET = [
    "MUSEUM",
    "Register hall",
    "Admit one",
    "21 Nov 2026",
    "0048-2217",
    "12.50",
    "keep this ticket",
]


@pytest.fixture
def run(tmp_path):
    """Runs words in an empty folder; `relaxvm` is the command of this checkout."""
    launcher = tmp_path / "bin" / "relaxvm"
    launcher.parent.mkdir()
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m relaxvm "$@"\n')
    launcher.chmod(0o755)
    env = dict(
        os.environ,
        PATH=f"{launcher.parent}{os.pathsep}{os.environ['PATH']}",
        PYTHONPATH=f"{ROOT / 'python'}",
        RELAXVM_CACHE_DIR=str(tmp_path / "cache"),
    )

    def run(*words: object, timeout: float = 110) -> str:
        command = [str(word) for word in words]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def small_model(run, path: pathlib.Path) -> pathlib.Path:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'examples/python')!r}); import onnx_session\n"
    )
    run(sys.executable, "-c", code + f"open({str(path)!r}, 'wb').write(onnx_session.model())")
    return path


def test_dynamic_shapes(run):
    printed = run(sys.executable, ROOT / "examples/python/dynamic_shapes.py")
    assert "n = 1000: sum 7990003, wrong 0" in printed
    assert "loaded again: [3. 0. 0. 0.]" in printed


def test_onnx_session(run):
    printed = run(sys.executable, ROOT / "examples/python/onnx_session.py")
    assert "batch 64: (64, 3), rows add up to 1: True" in printed


def test_profile_model(run, tmp_path):
    printed = run(
        sys.executable, ROOT / "examples/python/profile_model.py", tmp_path / "trace.json"
    )
    flop = 2 * 32 * 256 * 512 + 32 * 512
    assert f": {flop} operations, {4 * (32 * 256 + 256 * 512 + 32 * 512)} bytes" in printed
    assert "of them reserve memory" in printed
    assert "traceEvents" in (tmp_path / "trace.json").read_text()


def test_run_remotely(run):
    pytest.importorskip("grpc")
    printed = run(sys.executable, ROOT / "examples/python/run_remotely.py")
    assert "{'double': ['main']}\n[0. 2. 4.]\n[2. 2.]\n" in printed


def test_data_types(run):
    printed = run(sys.executable, ROOT / "examples/python/data_types.py")
    assert "x * y + x       = [ 5. 12. 21.]" in printed
    assert "x ** 5          = [  1.  32. 243.]" in printed
    assert "made by         : Product of 2 fields" in printed


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_language_model(run, exec_mode):
    """However the cache came to hold the same tokens, the model goes on alike."""
    folder = str(ROOT / "examples/python")
    code = f"import sys; sys.path.insert(0, {folder!r}); import language_model as m; m.main({exec_mode!r})"
    both, forked, back, prompt = run(sys.executable, "-c", code).splitlines()
    texts = ast.literal_eval(both.removeprefix("two at once: "))
    assert [len(texts[0]), len(texts[1])] == [9, 11] and len(set(texts[1][5:])) > 2
    assert forked == f"forked     : {texts[1]}"
    assert back == f"taken back : {texts[0]}"
    assert prompt == "as a prompt: True"


def test_code_of_pages_is_that_of_the_examples():
    found = 0
    for page in (ROOT / "docs/howto").glob("*.md"):
        pattern = r"<!-- from (\S+) -->\n```\w+\n(.*?)```"
        for source, block in re.findall(pattern, page.read_text(), re.DOTALL):
            found += 1
            assert block in (ROOT / source).read_text(), f"{page.name}: a part of {source}"
    assert found >= 5


@pytest.mark.parametrize("name", ["add_operator", "build_models", "train"])
def test_code_of_a_page_that_is_one_program(name, run, tmp_path):
    """It has its own assertion."""
    page = (ROOT / f"docs/howto/{name}.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert any("assert " in block for block in blocks)
    program = tmp_path / "program.py"
    program.write_text("".join(blocks))
    run(sys.executable, program)


def test_code_of_the_page_on_data_types(run, tmp_path):
    """The module of the page, with the closure in it, then the values."""
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/howto/data_types.md").read_text(), re.DOTALL
    )
    module, values, closure = blocks
    mapping = """
    @R.function
    def map(
        f: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32"), True),
        xs: List[R.Tensor((4,), "float32")],
    ) -> List[R.Tensor((4,), "float32")]:
        cls = Lists
        match xs:
            case List.Nil():
                ys = xs
            case List.Cons(head, tail):
                y = f(head)
                rest = cls.map(f, tail)
                ys = List.Cons(y, rest)
        return ys

"""
    tail = """
factor = relaxvm.runtime.tensor(np.full(4, 3, "float32"))
print(vm["total"](xs).numpy(), vm["total"](vm["scaled"](factor, xs)).numpy())
"""
    program = tmp_path / "page.py"
    head = "import numpy as np\nimport relaxvm\n"
    program.write_text(head + module + mapping + closure + values + tail)
    assert "[1. 1. 1. 1.] [3. 3. 3. 3.]" in run(sys.executable, program)


def test_code_of_the_page_on_pytorch(run, tmp_path):
    page = (ROOT / "docs/howto/run_pytorch.md").read_text()
    program = tmp_path / "page.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    printed = run(sys.executable, program)
    assert "R.nn.gelu(" in printed and "R.add(x, x)" in printed


def test_cpp_program_runs_a_saved_model(run, tmp_path):
    program = LIBRARIES.parent / "bin" / "run_model"
    run(sys.executable, ROOT / "examples/python/dynamic_shapes.py", tmp_path / "model.so")
    printed = run(program, tmp_path / "model.so", 2)
    assert printed.startswith("0 0 0 1\n2 3 4 5\n")


def test_command_line(run, tmp_path):
    model = small_model(run, tmp_path / "model.onnx")
    printed = run(ROOT / "examples/command_line/compile_and_run.sh", model, "x", "2,8", "7,8")
    assert "relaxvm 0.1.0" in printed
    assert re.search(r'"shape": \[\s*7,\s*3\s*\]', printed)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_demo_reads_the_words_of_its_picture(run, tmp_path):
    printed = run(
        sys.executable, ROOT / "examples/ocr_demo.py", "--out", tmp_path / "words.png", timeout=580
    )
    assert [word for word in WORDS_IN_TICKET if word not in printed] == []
    assert (tmp_path / "words.png").stat().st_size > 10_000


def test_code_of_the_readme(run, tmp_path):
    small_model(run, tmp_path / "model.onnx")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        run(sys.executable, "-c", block)


def test_commands_of_the_readme(run, tmp_path):
    small_model(run, tmp_path / "model.onnx")
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        run("bash", "-euc", block)
