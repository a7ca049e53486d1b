# SPDX-License-Identifier: Apache-2.0
"""Targets as objects."""

import json

import pytest

import relaxvm
from relaxvm.target import Target


@pytest.mark.parametrize(
    "written",
    ["llvm -mcpu=znver3", {"kind": "llvm", "mcpu": "znver3"}, Target("llvm -mcpu=znver3")],
)
def test_reads_each_way_of_writing(written):
    target = Target(written, host="llvm")
    assert str(target) == "llvm -mcpu=znver3" and target.mcpu == "znver3"
    assert target.keys == ["cpu"] and target.host == Target("llvm")
    assert target == Target(written, host="llvm") and target != Target(written)


@pytest.mark.parametrize("text", ["", "llvm mcpu", "llvm -mcpu"])
def test_refuses_what_it_cannot_read(text):
    with pytest.raises(ValueError, match="target"):
        Target(text)


def test_a_with_block_sets_the_target_of_compilations():
    assert Target.current() is None
    with pytest.raises(ValueError, match="no target is set"):
        Target.current(allow_none=False)
    with Target("llvm -mcpu=znver3") as outer:
        with Target("vax"):
            with pytest.raises(ValueError, match="unknown target 'vax'"):
                relaxvm.compile(relaxvm.IRModule({}))
        assert Target.current() is outer
    assert Target.current() is None


def test_its_kind_has_a_name_and_its_options_are_attributes():
    target = Target({"kind": "llvm", "mcpu": "znver3", "num-cores": 4})
    assert target.kind == "llvm" and target.kind.name == "llvm"
    assert (target.num_cores, target.mcpu) == (4, "znver3")
    with pytest.raises(AttributeError, match="no option 'mtriple'"):
        _ = target.mtriple


def test_what_it_exports_makes_the_same_target():
    target = Target({"kind": "llvm", "num-cores": 4}).with_host("llvm")
    assert target.export()["keys"] == ["cpu"]
    assert Target(target.export()) == target == Target(json.dumps(target.export()))
    assert Target(target).host == Target("llvm")
