# SPDX-License-Identifier: Apache-2.0
"""ScheduleTensorPrograms: programs get final loops; what a result may be written over is written down before."""

from __future__ import annotations

import relaxvm
from relaxvm.relax import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Mod:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), y: R.Tensor((64,), "float32")):
        a = R.add(x, y)
        b = R.permute_dims(a)
        return b


def scheduled() -> relaxvm.IRModule:
    return transform.ScheduleTensorPrograms()(transform.LegalizeOps()(Mod))


def test_programs_are_marked_and_have_vectors() -> None:
    program = scheduled()["add"]
    assert program.attrs["tirx.is_scheduled"]
    assert "T.vectorized" in program.script() or "T.Ramp" in program.script()


def test_elementwise_argument_may_be_overwritten_and_a_broadcast_one_not() -> None:
    assert [int(i) for i in scheduled()["add"].attrs["relaxvm.overwritable"]] == [0]
    assert "relaxvm.overwritable" not in scheduled()["permute_dims"].attrs


def test_scheduled_programs_stay_as_they_are() -> None:
    once = scheduled()
    assert relaxvm.ir.structural_equal(transform.ScheduleTensorPrograms()(once), once)
