# SPDX-License-Identifier: Apache-2.0
"""Tensor programs, packed functions and external modules in models."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, te
from relaxvm.relax.frontend import nn
from relaxvm.relax.frontend.nn.extern import SourceModule as Source
from relaxvm.script import tirx as T

from .conftest import Recorded, machine_of, to_machine

X = np.arange(6, dtype="float32").reshape(2, 3)
OUT = nn.Tensor.placeholder((2, 3), "float32")


@T.prim_func
def shift(A: T.Buffer((2, 3), "float32"), s: T.int64, B: T.Buffer((2, 3), "float32")):
    for i, j in T.grid(2, 3):
        B[i, j] = A[i, j] + T.Cast("float32", s)


@T.prim_func(private=True)
def accumulate(A: T.Buffer((2, 3), "float32"), B: T.Buffer((2, 3), "float32")):
    for i, j in T.grid(2, 3):
        B[i, j] = A[i, j] + B[i, j]


def test_tensor_expression_with_attributes(run_function):
    def both(a, factor):
        twice = te.compute(a.shape, lambda *i: a(*i) * float(factor), name="twice")
        return twice, te.compute(a.shape, lambda *i: a(*i) - 1.0, name="less")

    def function(x):
        return nn.tensor_expr_op(both, "both", [x, 3], attrs={"op_pattern": 2})

    got = run_function(function, X)
    assert [g.tolist() for g in got] == [(X * 3).tolist(), (X - 1).tolist()]
    mod, _ = Recorded(function).export_tvm({"forward": {"inputs": [nn.spec.Tensor([2, 3], "float32")]}})  # fmt: skip
    assert mod["both"].attrs["op_pattern"] == 2


def test_tensor_program_is_added_once_under_its_own_name(run_function):
    def function(x):
        once = nn.tensor_ir_op(shift, "other_name", [x, 2], OUT)
        return nn.tensor_ir_op(shift, "shift", [once, 3], [OUT])

    assert run_function(function, X).tolist() == (X + 5).tolist()
    mod, _ = Recorded(function).export_tvm({"forward": {"inputs": [nn.spec.Tensor([2, 3], "float32")]}})  # fmt: skip
    assert sorted(v.name_hint for v in mod.get_global_vars()) == ["forward", "shift"]


def test_program_writes_into_its_argument(run_function):
    def function(x):
        total = nn.zeros([2, 3])
        return nn.tensor_ir_inplace_op(accumulate, "accumulate", [x, total], 1, OUT)

    assert run_function(function, X).tolist() == X.tolist()


def test_packed_function_takes_all_kinds_of_arguments(run_function):
    seen = []

    def packed(x, number, fraction, word, shape, result):
        seen.append((number, fraction, word, tuple(shape)))
        result.copyfrom(x.numpy() * number)

    relaxvm.register_global_func("test.nn.packed", packed, override=True)
    arguments = [3, 2.5, "word", [2, 5]]
    got = run_function(lambda x: nn.extern("test.nn.packed", [x, *arguments], OUT), X)
    assert got.tolist() == (X * 3).tolist() and seen == [(3, 2.5, "word", (2, 5))]


SOURCE = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

void Add(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView out) {
  for (int64_t i = 0; i < out.numel(); ++i) {
    static_cast<float*>(out.data_ptr())[i] =
        static_cast<float*>(a.data_ptr())[i] + static_cast<float*>(b.data_ptr())[i];
  }
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(test_nn_add, Add);
"""
SYMBOLS = {"test_nn_add": lambda a, b: nn.Tensor.placeholder(a.shape, a.dtype)}
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


class External(nn.Module):
    def __init__(self, code: nn.ExternModule) -> None:
        self.code = code

    def forward(self, x):
        return self.code["test_nn_add"](x, x + 1.0)


SPEC = {"forward": {"x": nn.spec.Tensor([2, 3], "float32")}}


def attached(code):
    mod, _, codes = External(code).export_tvm(SPEC, allow_extern=True)
    assert codes == [code]
    return relax.transform.AttachExternModules(codes)(mod)


@needs_compiler
def test_function_of_cpp_source_is_compiled_into_the_model(tmp_path):
    executable = relaxvm.compile(attached(nn.SourceModule(SYMBOLS, SOURCE, "cpp")))
    executable.export_library(tmp_path / "model.so")
    for loaded in (executable, relaxvm.load(tmp_path / "model.so")):
        machine = relax.VirtualMachine(loaded, relaxvm.cpu())
        assert machine["forward"](to_machine(X)).numpy().tolist() == (2 * X + 1).tolist()


@needs_compiler
def test_function_of_an_object_file(tmp_path):
    file = tmp_path / "source.cc"
    file.write_text(SOURCE)
    Source(SYMBOLS, file, "cpp").compile(tmp_path / "add.o")
    machine = machine_of(attached(nn.ObjectModule(SYMBOLS, tmp_path / "add.o")))
    assert machine["forward"](to_machine(X)).numpy().tolist() == (2 * X + 1).tolist()


@needs_compiler
def test_what_the_compiler_says_is_told():
    with pytest.raises(RuntimeError, match="failed:(.|\n)*error"):
        nn.SourceModule({}, "no C++ at all;", "cpp").load()


def test_external_modules_must_be_asked_for():
    module = External(nn.ExternModule(SYMBOLS))
    with pytest.raises(ValueError, match="allow_extern=True"):
        module.export_tvm(SPEC)
    with pytest.raises(KeyError, match="none of the functions test_nn_add"):
        module.code["other"]
    with pytest.raises(RuntimeError, match="no model is being exported"):
        nn.add_extern(module.code)


def test_sources_that_cannot_be_compiled_here_are_refused(tmp_path):
    with pytest.raises(NotImplementedError, match="CUDA"):
        nn.SourceModule({}, "", "cu")
    with pytest.raises(ValueError, match='"cpp"'):
        nn.SourceModule({}, "", "rust")
    with pytest.raises(NotImplementedError, match="object files"):
        nn.SourceModule({}, "", "cpp", output_format="wasm")
    with pytest.raises(NotImplementedError, match="packages cutlass"):
        Source.get_includes(["cutlass"])
    with pytest.raises(FileNotFoundError, match="no such object file"):
        nn.ObjectModule({}, tmp_path / "none.o")
