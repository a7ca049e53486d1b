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
        "StaticPlanBlockMemory",
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
