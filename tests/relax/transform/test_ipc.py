# SPDX-License-Identifier: Apache-2.0
"""IPCAllReduceRewrite and LowerGPUIPCAllocStorage: memory that the devices of a group share."""

import pytest

import relaxvm
from relaxvm.relax.transform import IPCAllReduceRewrite, LowerGPUIPCAllocStorage
from relaxvm.script import from_source

CUSTOM = "runtime.disco.cuda_ipc.custom_allreduce"


def module(body: str) -> relaxvm.IRModule:
    lines = "\n".join("        " + line.strip() for line in body.strip().split("\n"))
    return from_source(
        f"""
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T

@I.ir_module
class Module:
    @R.function(pure=False)
    def main(s: R.Shape(["m", "n"]), p: R.Tensor(("m", "n"), "float16")):
        m, n = T.int64(), T.int64()
{lines}
"""
    )


@pytest.fixture
def custom_allreduce():
    relaxvm.register_global_func(CUSTOM, lambda *args: None, override=True)
    yield
    relaxvm.remove_global_func(CUSTOM)


SUMS = """
    a: R.Tensor((m, n), "float16") = R.builtin.alloc_tensor(R.shape([m, n]), R.dtype("float16"), R.prim_value(0), R.str("%(scope)s"))
    b = a
    c: R.Tensor((m * n,), "float16") = R.reshape(b, R.shape([m * n]))
    out: R.Tensor((m * n,), "float16") = R.builtin.alloc_tensor(R.shape([m * n]), R.dtype("float16"), R.prim_value(0), R.str("global"))
    _: R.Any = R.call_packed(%(sum)s, ty_args=(R.Any,))
    _1: R.Any = R.call_packed("runtime.disco.allreduce", p, R.shape([0]), R.prim_value(True), out, ty_args=(R.Any,))
    return out
"""
PLAIN = '"runtime.disco.allreduce", c, R.shape([%d]), R.prim_value(True), out'


def test_sums_read_shared_memory(custom_allreduce):
    before = module(SUMS % {"scope": "global", "sum": PLAIN % 0})
    after = module(SUMS % {"scope": "ipc_memory", "sum": f'"{CUSTOM}", c, R.prim_value(2), out'})
    relaxvm.ir.assert_structural_equal(IPCAllReduceRewrite(2)(before), after)


def test_other_reductions_stay(custom_allreduce):
    before = module(SUMS % {"scope": "global", "sum": PLAIN % 1})
    assert IPCAllReduceRewrite(1)(before).same_as(before)


def test_nothing_changes_where_the_function_is_missing():
    before = module(SUMS % {"scope": "global", "sum": PLAIN % 0})
    assert IPCAllReduceRewrite(1)(before).same_as(before)


def test_shared_memory_is_reserved_by_its_function():
    before = module("""
    s1: R.Any = R.memory.alloc_storage(R.shape([m * n * 2]), R.prim_value(0), R.str("ipc_memory"), R.dtype("uint8"))
    a: R.Tensor((m, n), "float16") = R.memory.alloc_tensor(s1, R.prim_value(0), R.shape([m, n]), R.dtype("float16"), R.prim_value(0))
    b: R.Tensor((m, n), "float16") = R.builtin.alloc_tensor(R.shape([m, n]), R.dtype("float16"), R.prim_value(0), R.str("ipc_memory"))
    c: R.Tensor((m, n), "float16") = R.builtin.alloc_tensor(R.shape([m, n]), R.dtype("float16"), R.prim_value(0), R.str("global"))
    return (a, b, c)
    """)
    after = module("""
    s1: R.Any = R.call_packed("runtime.disco.cuda_ipc.alloc_storage", R.shape([m * n * 2]), R.dtype("uint8"), ty_args=(R.Any,))
    a: R.Tensor((m, n), "float16") = R.memory.alloc_tensor(s1, R.prim_value(0), R.shape([m, n]), R.dtype("float16"), R.prim_value(0))
    s2: R.Any = R.call_packed("runtime.disco.cuda_ipc.alloc_storage", R.shape([m, n]), R.dtype("float16"), ty_args=(R.Any,))
    b: R.Tensor((m, n), "float16") = R.memory.alloc_tensor(s2, R.prim_value(0), R.shape([m, n]), R.dtype("float16"), R.prim_value(0))
    c: R.Tensor((m, n), "float16") = R.builtin.alloc_tensor(R.shape([m, n]), R.dtype("float16"), R.prim_value(0), R.str("global"))
    return (a, b, c)
    """)
    relaxvm.ir.assert_structural_equal(LowerGPUIPCAllocStorage()(before), after)


def test_other_memory_stays():
    before = module("""
    c: R.Tensor((m, n), "float16") = R.builtin.alloc_tensor(R.shape([m, n]), R.dtype("float16"), R.prim_value(0), R.str("global"))
    return c
    """)
    assert LowerGPUIPCAllocStorage()(before).same_as(before)
