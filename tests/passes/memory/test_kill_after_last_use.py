# SPDX-License-Identifier: Apache-2.0
"""KillAfterLastUse: memory goes back right after its last use, branches included."""

from __future__ import annotations

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R


def killed(mod: relaxvm.IRModule) -> list[str]:
    text = relaxvm.relax.pipeline.get_pipeline("default", stop_after="KillAfterLastUse")(
        mod
    ).script()
    return [line.strip() for line in text.splitlines()]


def position(lines: list[str], part: str) -> int:
    return next(i for i, line in enumerate(lines) if part in line)


def test_tensor_dies_after_the_call_that_reads_it_last() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4, 4), "float32")):
            a = R.matmul(x, x)
            b = R.matmul(a, x)
            c = R.matmul(b, x)
            return c

    lines = killed(Mod)
    assert (
        position(lines, "kill_tensor(alloc)")
        == position(lines, "cls.matmul(alloc, x, alloc_1)") + 1
    )


def test_result_is_not_killed() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            return (a, x)

    lines = killed(Mod)
    returned = next(line for line in lines if line.startswith("return"))
    dead = [line.split("(")[-1].rstrip(")") for line in lines if "kill_" in line]
    assert all(name not in returned.replace("(", " ").replace(",", " ").split() for name in dead)


def test_value_used_in_a_branch_dies_after_the_branch() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4, 4), "float32")):
            a = R.matmul(x, x)
            if c:
                r = R.matmul(a, a)
            else:
                r = R.matmul(a, x)
            s = R.matmul(r, x)
            return s

    lines = killed(Mod)
    kills = [line for line in lines if "kill_tensor(alloc)" in line]
    assert len(kills) == 1
    assert position(lines, "kill_tensor(alloc)") > position(lines, "else:")


def test_dataflow_blocks_become_plain_ones() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                a = R.matmul(x, x)
                b = R.matmul(a, x)
                R.output(b)
            return b

    after = relaxvm.relax.transform.KillAfterLastUse()(Mod)
    assert "dataflow" not in after.script() and "kill_object(a)" in after.script()
