# SPDX-License-Identifier: Apache-2.0
"""Parameters that programs written for TVM name."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

import relaxvm
from relaxvm import ir, relax
from relaxvm.relax import op
from relaxvm.script import parser

NAMES: list[tuple[Callable, str]] = [
    (relaxvm.cpu, "dev_id"),
    (relaxvm.cuda, "dev_id"),
    (relaxvm.vulkan, "dev_id"),
    (relaxvm.device, "device_type index"),
    (relaxvm.register_global_func, "func_name f override"),
    (relaxvm.runtime.tensor, "arr device mem_scope"),
    (relaxvm.runtime.from_dlpack, "ext_tensor"),
    (ir.load_json, "json_str"),
    (ir.Span, "source_name line end_line column end_column"),
    (parser.parse, "program extra_vars check_well_formed"),
    (relax.analysis.udchain, "dfb"),
    (relax.analysis.used_vars, "expr"),
    (relax.prim_value, "value dtype"),
    (op.memory.alloc_storage, "size virtual_device_index storage_scope dtype"),
    (op.memory.alloc_tensor, "storage offset shape dtype runtime_device_ind"),
    (op.memory.ensure_zero_offset, "data"),
    (op.vm.alloc_storage, "shape runtime_device_index dtype storage_scope"),
    (op.nn.gelu, "data"),
    (op.nn.relu, "data"),
    (op.nn.silu, "data"),
    (op.median, "x axis keepdims"),
    (op.shape_of, "expr"),
    (op.shape_to_tensor, "expr"),
    (op.size, "expr"),
    (op.slice_scatter, "input_tensor src start end step axis"),
    (op.sort, "x axis descending"),
    (op.tensor_to_shape, "expr"),
]


@pytest.mark.parametrize("function, names", NAMES, ids=lambda v: getattr(v, "__qualname__", ""))
def test_names(function: Callable, names: str) -> None:
    assert list(inspect.signature(function).parameters)[: len(names.split())] == names.split()


def test_a_scalar_of_a_dtype() -> None:
    assert relax.prim_value(3).ty.dtype == "int64"
    assert relax.prim_value(3, "int32").ty.dtype == "int32"
    assert relax.prim_value(3, "float16").ty.dtype == "float16"
    n = relaxvm.tirx.Var("n", "int64")
    assert relax.prim_value(n, "int32").same_as(n)


def test_an_operator_by_its_parameter() -> None:
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    assert ir.structural_equal(op.nn.relu(data=x), op.nn.relu(x))
    assert ir.structural_equal(op.sort(x=x, axis=0), op.sort(x, 0))
