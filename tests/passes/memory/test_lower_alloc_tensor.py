# SPDX-License-Identifier: Apache-2.0
"""LowerAllocTensor: what the planner left gets a storage of its own."""

from __future__ import annotations

from relaxvm.relax import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


def test_tensor_gets_a_storage_of_its_size() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n",), "float16")):
            n = T.int64()
            y = R.builtin.alloc_tensor(
                R.shape([n, 3]), R.dtype("float16"), R.prim_value(0), R.str("global")
            )
            return y

    text = transform.LowerAllocTensor()(Mod).script()
    storage = 'R.shape([n * 3 * 2]), R.prim_value(0), R.str("global"), R.dtype("uint8")'
    assert f"R.memory.alloc_storage({storage})" in text
    assert (
        'R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([n, 3]), R.dtype("float16")'
        in text
    )
    assert "builtin.alloc_tensor" not in text


def test_elements_smaller_than_a_byte_share_bytes() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((1,), "float32")):
            y = R.builtin.alloc_tensor(
                R.shape([5]), R.dtype("int4"), R.prim_value(0), R.str("global")
            )
            return y

    assert "R.memory.alloc_storage(R.shape([3])" in transform.LowerAllocTensor()(Mod).script()
