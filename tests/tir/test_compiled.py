# SPDX-License-Identifier: Apache-2.0
"""Tensor programs compiled as functions, without a machine."""

import numpy as np
import pytest

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


@T.prim_func
def twice(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
    for i in range(4):
        b[i] = a[i] * T.float32(2)


@I.ir_module
class Two:
    @T.prim_func
    def main(a: T.Buffer((4,), "float32"), n: T.int32, b: T.Buffer((4,), "float32")):
        for i in range(4):
            b[i] = a[i] * T.Cast("float32", n)

    @T.prim_func
    def negate(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            b[i] = T.float32(0) - a[i]


def tensors():
    return relaxvm.runtime.tensor(np.arange(4, dtype="f4")), relaxvm.runtime.empty((4,))


@pytest.mark.parametrize("build", [relaxvm.compile, relaxvm.build, relaxvm.tirx.build])
def test_a_program_is_a_function(build):
    a, b = tensors()
    build(twice, "llvm")["twice"](a, b)
    assert b.numpy().tolist() == [0, 2, 4, 6]


def test_a_module_of_programs_is_called_by_their_names_and_as_main():
    a, b = tensors()
    programs = relaxvm.compile(Two)
    programs(a, 3, b)
    assert b.numpy().tolist() == [0, 3, 6, 9]
    programs.mod["negate"](a, b)
    assert b.numpy().tolist() == [0, -1, -2, -3]
    with pytest.raises(KeyError, match="no program 'other', only main, negate"):
        programs["other"]


def test_what_is_exported_is_a_library_of_the_programs(tmp_path):
    a, b = tensors()
    relaxvm.compile(Two).export_library(tmp_path / "two.so")
    library = relaxvm.runtime.load_module(tmp_path / "two.so")
    library["negate"](a, b)
    assert b.numpy().tolist() == [0, -1, -2, -3]


def test_functions_of_modules_are_timed():
    calls = []
    relaxvm.register_global_func("test.before_timing", lambda *args: calls.append(len(args)))
    library = relaxvm.compile(twice).mod
    timer = library.time_evaluator(
        "twice", relaxvm.cpu(), number=2, repeat=3, f_preproc="test.before_timing"
    )
    times = timer(*tensors())
    assert len(times.results) == 3 and times.max >= times.median >= times.min > 0
    assert calls == [2, 2, 2]
    assert str(times).startswith("Execution time summary:")
    with pytest.raises(AttributeError, match="other"):
        library.time_evaluator("other", relaxvm.cpu())


def test_a_module_with_other_functions_is_no_set_of_programs():
    @I.ir_module
    class Mixed:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            return x

    with pytest.raises(TypeError, match="main is no tensor program"):
        relaxvm.tirx.build(Mixed)
    with pytest.raises(ValueError, match="no tensor program to compile"):
        relaxvm.tirx.build(relaxvm.IRModule({}))
    with pytest.raises(NotImplementedError, match="tir_pipeline"):
        relaxvm.tirx.build(twice, "llvm", pipeline="other")


def test_functions_are_called_by_name_in_formulas():
    x = relaxvm.tirx.Var("x", "float32")
    assert str(relaxvm.tirx.call_extern("float32", "scale", x)) == str(
        T.call_extern(T.float32, "scale", x)
    )
    assert 'call_packed("scale", x)' in str(relaxvm.tirx.call_packed("scale", x))
    assert str(relaxvm.tirx.call_intrin("float32", "tirx.exp", x)) == "T.exp(x)"


def test_its_code_can_be_read():
    for target, word in (
        ("llvm -mcpu=haswell", "%xmm"),
        ("llvm -mtriple=aarch64-linux-gnu", "fadd"),
    ):
        code = relaxvm.tirx.inspect_source(twice, target)
        assert "__tvm_ffi_twice" in code and word in code
    assert "define" in relaxvm.tirx.inspect_source(Two["negate"], fmt="ll")
    with pytest.raises(ValueError, match="ptx is unknown; use asm or ll"):
        relaxvm.tirx.inspect_source(twice, fmt="ptx")
