# SPDX-License-Identifier: Apache-2.0
"""Instruments and profiles see compiled kernels."""

import numpy as np

import relaxvm
from relaxvm import relax


def compiled():
    n = relaxvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n], "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(relax.op.add(x, x)))
    return relaxvm.VirtualMachine(relaxvm.compile(bb.get()), relaxvm.cpu())


def test_a_profile_has_a_row_for_each_kernel():
    vm = compiled()
    profile = vm.profile("main", relaxvm.runtime.tensor(np.ones(8, "f4")))
    np.testing.assert_array_equal(profile.result.numpy(), np.full(8, 2, "f4"))
    assert "add" in {row.name for row in profile.rows()}


def test_an_instrument_sees_a_kernel_before_and_after():
    vm, seen = compiled(), []
    vm.set_instrument(lambda func, name, before, result, *args: seen.append((name, before)) or 0)
    vm["main"](relaxvm.runtime.tensor(np.ones(8, "f4")))
    assert ("add", True) in seen and ("add", False) in seen
