# SPDX-License-Identifier: Apache-2.0
"""./dev new writes what lint accepts; ./dev bisect names the pass whose absence mends a command."""

from __future__ import annotations

import importlib.util
import pathlib
import shutil
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTS = ("src/ops/op_list.def", "src/passes/pass_list.def", "src/bytecode/builtin_list.def")


def load(name: str, root: pathlib.Path = ROOT):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ROOT = root
    return module


@pytest.fixture
def tree(tmp_path):
    """What the lists and their checks need of the sources."""
    for name in LISTS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for folder in ("src/ops/nn", "src/passes/fuse", "src/vm/builtins"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "row", "files"),
    [
        (["op", "nn/nn.zz_mish"], "OP(zz_mish)", ["src/ops/nn/zz_mish.cc"]),
        (
            ["pass", "fuse/aa_first"],
            'PASS(AaFirst, "", ',
            ["src/passes/fuse/aa_first.cc", "tests/passes/fuse/test_aa_first.py"],
        ),
        (
            ["builtin", "twice"],
            'BUILTIN(Twice, "vm.builtin.twice", ',
            ["src/vm/builtins/twice.cc", "tests/vm/test_twice.py"],
        ),
    ],
)
def test_new_writes_a_row_a_file_and_a_test(tree, words, row, files):
    new, lists = load("new", tree), load("check_lists", tree)
    assert new.main(words) == 0
    assert all((tree / file).read_text() for file in files)
    for name in LISTS:
        before, after = (path.read_text().split("\n") for path in (ROOT / name, tree / name))
        added = [line for line in after if line not in before]
        assert len(after) - len(before) == len(added) <= 1
        assert all(line.startswith(row) for line in added)
        macro = {"op_list.def": "OPS?", "pass_list.def": "PASS"}.get(pathlib.Path(name).name)
        if macro:
            assert not list(lists.check_sorted(tree / name, lists.rows(tree / name, macro)))
    with pytest.raises(SystemExit, match="exists"):
        new.main(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["op", "absent/mish"], "there is no folder src/ops/absent; choose one of nn"),
        (["op", "mish"], "usage"),
        (["pass", "fuse/BigName"], "no name in lower_case"),
    ],
)
def test_new_says_what_is_wrong(tree, words, message):
    with pytest.raises(SystemExit, match=message):
        load("new", tree).main(words)


def test_bisect_names_the_pass(capsys):
    bisect = load("bisect")
    code = "import os, sys; sys.exit('FuseOps' not in os.environ['RELAXVM_DISABLE'].split(','))"
    assert bisect.main([sys.executable, "-S", "-c", code]) == 0
    assert "first pass to look at: FuseOps\n" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="succeeds with all passes"):
        bisect.main([sys.executable, "-S", "-c", ""])
    assert bisect.main([sys.executable, "-S", "-c", "raise SystemExit(3)"]) == 1
