# SPDX-License-Identifier: Apache-2.0
"""UpdateVDevice: one virtual device of the module's list becomes another."""

import pytest
from pass_check import check_pass, module

from relaxvm import relax
from relaxvm.relax.transform import UpdateVDevice

PROGRAM = """
I.module_global_infos({"vdevice": [%(devices)s]})
@R.function
def main(
    x: R.Tensor((2, 3), "float32", "%(first)s"), y: R.Tensor((2, 3), "float32", "%(second)s"), z: R.Tensor((2, 3))
) -> R.Tuple(R.Tensor((2, 3), "float32", "%(first)s"), R.Tensor((2, 3), "float32", "%(second)s")):
    with R.dataflow():
        a: R.Tensor((2, 3), "float32", "%(first)s") = R.add(x, x)
        b: R.Tensor((2, 3), "float32", "%(first)s") = R.to_vdevice(y, "%(first)s")
        c = R.call_dps_packed("f", (a, b), out_ty=R.Tensor((2, 3), "float32", "%(first)s"))
        d: R.Tensor((2, 3), "float32", "%(second)s") = R.to_vdevice(c, "%(second)s")
        R.output(c, d)
    return (c, d)
"""


def program(devices: str, first: str, second: str = "null:0") -> str:
    return PROGRAM % {"devices": devices, "first": first, "second": second}


def test_types_calls_and_the_list_name_the_new_device():
    check_pass(
        UpdateVDevice(relax.VDevice("llvm", 1, "global"), 0),
        before=program('I.vdevice("llvm"), I.vdevice("null")', "llvm:0"),
        after=program('I.vdevice("llvm", 1), I.vdevice("null")', "llvm:0"),
    )


def test_only_the_entry_that_is_named_changes():
    given = module(program('I.vdevice("null"), I.vdevice("null")', "null:0", "null:1"))
    result = UpdateVDevice(relax.VDevice("llvm"), 0)(given)
    a, b = result.global_infos["vdevice"]
    assert (str(a.target), str(b.target)) == ("llvm", "null")
    x, y, _ = result["main"].params
    assert x.ty.vdevice.same_as(a) and y.ty.vdevice.same_as(b)


def test_the_same_device_changes_nothing():
    given = module(program('I.vdevice("llvm"), I.vdevice("null")', "llvm:0"))
    assert UpdateVDevice(relax.VDevice("null", 0, "global"), 1)(given).same_as(given)


@pytest.mark.parametrize("index", [2, -1])
def test_an_index_outside_of_the_list_is_an_error(index):
    given = module(program('I.vdevice("llvm"), I.vdevice("null")', "llvm:0"))
    with pytest.raises(IndexError, match="out of range for a module with 2 virtual devices"):
        UpdateVDevice(relax.VDevice("llvm"), index)(given)
