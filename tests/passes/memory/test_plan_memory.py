# SPDX-License-Identifier: Apache-2.0
"""The memory plan: who shares memory with whom, and how much is reserved, for static and symbolic sizes."""

from __future__ import annotations

import re

import pytest

import relaxvm
from relaxvm.relax import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


def planned(mod: relaxvm.IRModule) -> str:
    for make in (
        "LegalizeOps",
        "ToNonDataflow",
        "RemovePurityChecking",
        "CallTIRRewrite",
        "PlanMemory",
    ):
        mod = getattr(transform, make)()(mod)
    return mod.script()


def storages(text: str) -> list[str]:
    return re.findall(r"memory\.alloc_storage\(R\.shape\(\[(.*?)\]\)", text)


def offsets(text: str) -> list[str]:
    return re.findall(r"memory\.alloc_tensor\(storage\w*, (?:R\.prim_value\()?([^,)]*)", text)


def test_chain_of_static_tensors_needs_two() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((1024,), "float32")):
            a = R.exp(x)
            b = R.exp(a)
            c = R.exp(b)
            d = R.exp(c)
            e = R.exp(d)
            return e

    text = planned(Mod)
    assert storages(text) == ["8192"]
    assert offsets(text) == ["0", "4096", "0", "4096"]
    assert text.count("builtin.alloc_tensor") == 1  # the result


def test_symbolic_sizes_share_memory_when_one_is_at_least_the_other() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 64), "float32"), y: R.Tensor(("n", 16), "float32")):
            a = R.exp(x)
            b = R.exp(a)
            c = R.exp(y)
            d = R.exp(c)
            e = R.exp(d)
            return e

    # `a` and `b` live together; `c` and `d` are a quarter of what they leave
    assert storages(planned(Mod)) == ["n * 512"]


def test_unrelated_sizes_share_memory_of_the_greater_one() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 16), "float32"), y: R.Tensor(("m", 16), "float32")):
            a = R.exp(x)
            s = R.sum(a, axis=0)
            b = R.exp(y)
            t = R.sum(b, axis=0)
            r = R.add(s, t)
            return r

    text = planned(Mod)
    assert len(storages(text)) == 1
    assert "T.max(" in text


def test_result_has_memory_of_its_own() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = R.memory.view(a, R.shape([2, 2]))
            return (x, (b,))

    assert "memory.alloc_storage" not in planned(Mod)


def test_view_keeps_what_it_looks_at_alive() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((1024,), "float32")):
            a = R.exp(x)
            v = R.memory.view(a, R.shape([32, 32]))
            b = R.exp(x)
            c = R.exp(b)
            d = R.exp(v)
            e = R.reshape(d, R.shape([1024]))
            f = R.add(c, e)
            return f

    text = planned(Mod)
    at = dict(re.findall(r"(alloc\w*): .*?alloc_tensor\(storage\w*, R\.prim_value\((\d+)\)", text))
    first = at.pop("alloc")
    assert list(at.values())[:2].count(first) == 0  # b and c live beside a, which v shows


def test_memory_of_sizes_known_later_is_reserved_later() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")):
            k = T.int64()
            a = R.exp(x)
            b = R.exp(a)
            u = R.call_packed("test.plan.some", b, ty_args=(R.Tensor(dtype="float32", ndim=1),))
            v = R.match_cast(u, R.Tensor((k,), "float32"))
            c = R.exp(v)
            d = R.exp(c)
            e = R.exp(d)
            return e

    text = planned(Mod)
    assert text.index("match_cast") < text.index("alloc_storage", text.index("match_cast"))
    assert len(storages(text)) == 2


@pytest.mark.parametrize("count", [2000])
def test_long_chain_is_planned_in_linear_time(count: int) -> None:
    builder = relaxvm.relax.BlockBuilder()
    x = relaxvm.relax.Var(
        "x", relaxvm.relax.TensorType([relaxvm.tirx.Var("n", "int64")], "float32")
    )
    with builder.function("main", [x]):
        y = x
        for _ in range(count):
            y = builder.emit(relaxvm.relax.op.exp(y))
        builder.emit_func_output(y)
    assert len(storages(planned(builder.get()))) == 1


@pytest.mark.parametrize(("h", "w"), [(32, 32), (640, 480), (97, 1031)])
def test_reserved_memory_is_close_to_what_is_alive_at_every_size(h: int, w: int) -> None:
    from relaxvm._compiler import func

    planned_module = relaxvm.compile(plan_sample(), stop_after="planned")
    report = func("pipeline.ReportMemory")(planned_module, "main", {"h": h, "w": w})
    assert report["tensors"] >= 8
    assert report["planned_peak"] <= 1.2 * report["most_alive"]


def plan_sample() -> relaxvm.IRModule:
    @I.ir_module
    class Mod:
        @R.function
        def main(
            x: R.Tensor((1, 8, "h", "w"), "float32"),
            k: R.Tensor((8, 8, 3, 3), "float32"),
            m: R.Tensor((8, 64), "float32"),
        ):
            h = T.int64()
            w = T.int64()
            a = R.nn.conv2d(x, k, padding=1)
            b = R.nn.conv2d(a, k, padding=1, strides=2)
            c = R.nn.conv2d(b, k, padding=1, strides=2)
            d = R.nn.conv2d(c, k, padding=1)
            e = R.add(c, d)
            f = R.nn.conv2d(e, k, padding=1)
            g = R.permute_dims(f, axes=[0, 2, 3, 1])
            i = R.matmul(g, m)
            j = R.nn.softmax(i, axis=-1)
            p = R.sum(j, axis=[1, 2])
            return (j, p)

    return Mod


def test_result_of_elementwise_work_is_written_over_an_argument_that_dies() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", "n"), "float32"), y: R.Tensor(("n", "n"), "float32")):
            a = R.matmul(x, y)
            b = R.multiply(a, y)
            c = R.matmul(b, x)
            return c

    for name in (
        "LegalizeOps",
        "ScheduleTensorPrograms",
        "ToNonDataflow",
        "CallTIRRewrite",
        "PlanMemory",
    ):
        Mod = getattr(transform, name)()(Mod)
    text = Mod.script()
    assert "multiply_in_place" in text
    assert storages(text) == ["(n * n + 15) // 16 * 64"]
    # What no call names any more is not compiled.
    assert [var.name_hint for var in Mod.get_global_vars() if "multiply" in var.name_hint] == [
        "multiply_in_place"
    ]


def test_argument_that_is_still_needed_is_not_written_over() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", "n"), "float32"), y: R.Tensor(("n", "n"), "float32")):
            a = R.matmul(x, y)
            b = R.multiply(a, y)
            c = R.matmul(b, a)
            return c

    for name in (
        "LegalizeOps",
        "ScheduleTensorPrograms",
        "ToNonDataflow",
        "CallTIRRewrite",
        "PlanMemory",
    ):
        Mod = getattr(transform, name)()(Mod)
    assert "in_place" not in Mod.script()
