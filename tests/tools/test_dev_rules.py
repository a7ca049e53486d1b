# SPDX-License-Identifier: Apache-2.0
"""The rules that tests themselves run under, and the checkers behind `./dev lint`."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import re
import resource
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["onnxruntime", "torch", "tvm", "openvino"])
def test_other_engines_cannot_be_imported(name):
    with pytest.raises(ImportError):
        importlib.import_module(name)


@pytest.mark.peer
def test_a_peer_test_sees_onnxruntime():
    assert importlib.import_module("onnxruntime").__version__


def test_memory_is_limited():
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    assert soft != resource.RLIM_INFINITY


def test_layers_refuse_a_cycle(tmp_path):
    (tmp_path / "layers.txt").write_text("ir : passes\npasses : ir\n")
    with pytest.raises(SystemExit, match="before it is listed"):
        load("check_layers").read_rules(tmp_path / "layers.txt")


@pytest.mark.parametrize(
    ("file", "text", "finding"),
    [
        ("src/ir/a.cc", '#include "passes/b.h"\n', "ir/ may not include passes/"),
        ("src/ir/a.cc", "#include <llvm/IR/Module.h>\n", "LLVM headers belong to codegen/llvm"),
        ("src/ir/a.h", "#include <tvm/ffi/extra/module.h>\n", "heavy header"),
        ("src/ir/a.cc", "refl::GlobalDef().def(f);\n", "registry of global functions belong to"),
        ("src/other/a.cc", "\n", "folder is not in layers.txt"),
        ("python/relaxvm/ir/a.py", "from ..script import parser\n", "ir may not import script"),
        ("python/relaxvm/relax/a.py", "import relaxvm.relax.frontend.onnx\n", "import a front end"),
        ("python/relaxvm/ir/a.py", "import onnx\n", "only relax.frontend.onnx imports onnx"),
    ],
)
def test_a_broken_layer_is_found(tmp_path, file, text, finding):
    checker = load("check_layers")
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    rules = checker.read_rules(ROOT / "layers.txt")
    findings = [*checker.check_native(tmp_path, rules), *checker.check_python(tmp_path)]
    assert any(finding in line for line in findings), findings


@pytest.mark.parametrize(
    ("file", "text", "finding"),
    [
        ("a.cc", "int x;\n", "not the SPDX line"),
        ("a.h", "// SPDX-License-Identifier: Apache-2.0\nint x;\n", "no #pragma once"),
        ("a.py", "# SPDX-License-Identifier: Apache-2.0\n\tx = 1\n", ":2: tab"),
        ("a.py", "# SPDX-License-Identifier: Apache-2.0\n# \u00e9\n", ":2: not ASCII"),
        ("a.cc", "// SPDX-License-Identifier: Apache-2.0\n" + "\n" * 1000, "the limit is 1000"),
        ("a.py", "# SPDX-License-Identifier: Apache-2.0\nx = 1", "no newline at the end"),
    ],
)
def test_a_broken_file_is_found(tmp_path, monkeypatch, file, text, finding):
    checker = load("check_files")
    monkeypatch.setattr(checker, "ROOT", tmp_path)
    (tmp_path / file).write_text(text)
    findings = list(checker.check_file(tmp_path / file))
    assert any(finding in line for line in findings), findings


@pytest.mark.parametrize(
    ("files", "finding"),
    [
        ({"src/ops/op_list.def": "// keep-sorted\nOP(b)\nOP(a)\n"}, "a belongs before b"),
        ({"src/ops/op_list.def": "OP(a)\nOP(a)\n"}, "a stands twice"),
        ({"src/ops/op_list.def": "", "src/ops/x.cc": "OpDef nn_x() {\n"}, "nn_x has no row"),
        (
            {"src/passes/pass_list.def": 'PASS(FuseOps, "")\n'},
            "no tests/passes/<group>/test_fuse_ops.py",
        ),
        ({"src/passes/pass_list.def": 'PASS(VMShapeLower, "")\n'}, "/test_vm_shape_lower.py"),
    ],
)
def test_a_broken_list_is_found(tmp_path, monkeypatch, capsys, files, finding):
    checker = load("check_lists")
    monkeypatch.setattr(checker, "ROOT", tmp_path)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert checker.main() == 1
    assert finding in capsys.readouterr().out


def dev(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "dev", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def test_where_finds_a_class_and_says_when_it_finds_nothing():
    assert dev("where", "RelaxvmKernelTable").stdout.startswith("src/target/kernel_abi.h:")
    assert dev("where", "no" + "such" + "name").returncode == 1


def test_dev_refuses_a_word_it_does_not_know():
    result = dev("lint", "--wrong")
    assert result.returncode == 2 and "--wrong" in result.stderr


def test_architecture_names_every_folder_of_the_sources():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    missing = [
        d.name for d in (ROOT / "src").iterdir() if d.is_dir() and f"| `{d.name}/` |" not in text
    ]
    assert not missing


def test_pages_link_only_to_files_that_exist():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    names = {
        (page.name, name)
        for page in pages
        for name in re.findall(
            r"`((?:docs|tools|tests|examples|include)/[\w./-]*\w\.\w+)`", page.read_text()
        )
    }
    assert not [(page, name) for page, name in names if not (ROOT / name).exists()]


def test_code_in_pages_stands_in_the_sources():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    excerpts = [
        (page.name, file, code)
        for page in pages
        for file, code in re.findall(
            r"<!-- from (\S+) -->\n```\w*\n(.*?)```", page.read_text(), re.DOTALL
        )
    ]
    assert excerpts
    assert not [
        (page, file) for page, file, code in excerpts if code not in (ROOT / file).read_text()
    ]


def test_dev_names_the_benchmarks_there_are():
    result = dev("bench", "no" + "such")
    assert result.returncode == 1 and "kernels" in result.stderr and "models" in result.stderr
