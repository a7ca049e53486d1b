# SPDX-License-Identifier: Apache-2.0
"""Functions `test.vm.*` and `test.op.*` that hand-written programs call, registered when this module is imported, and
helpers around the VM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import relaxvm
from relaxvm.runtime import Tensor, VirtualMachine, tensor


def _add(a, b):
    return tensor(a.numpy() + b.numpy())


def _mul(a, b):
    return tensor(a.numpy() * b.numpy())


def _equal_zero(a):
    return tensor((a.numpy() == 0).reshape(a.shape))


def _subtract_one(a):
    return tensor(np.subtract(a.numpy(), 1))


def _identity_packed(a):
    return tensor(a.numpy())


def _tile_packed(a, b):
    b.copyfrom(tensor(np.tile(a.numpy(), (1, 2))))


def _assert_notnull(x):
    if x is None:
        raise AssertionError("the value is None")


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "test.vm.add": _add,
    "test.vm.add_scalar": lambda a, b: a + b,
    "test.vm.mul": _mul,
    "test.vm.equal_zero": _equal_zero,
    "test.vm.subtract_one": _subtract_one,
    "test.vm.get_device_id": lambda device: device.index,
    "test.vm.identity": lambda a, b: b.copyfrom(a) and None,
    "test.vm.move": _identity_packed,
    "test.vm.tile": _tile_packed,
    "test.vm.assert_notnull": _assert_notnull,
    "test.op.identity": _identity_packed,
}

for _name, _function in _FUNCTIONS.items():
    if relaxvm.get_global_func(_name, allow_missing=True) is None:
        relaxvm.register_global_func(_name, _function)


def check_saved_func(vm: VirtualMachine, func_name: str, *inputs: Any) -> Tensor:
    """The result of a function that was saved with its inputs; checks that it equals the direct call's."""
    expected = vm[func_name](*inputs)
    vm.save_function(func_name, "_test_vm_saved_func", *inputs)
    result = vm["_test_vm_saved_func"]()
    np.testing.assert_array_equal(result.numpy(), expected.numpy())
    return result
