# SPDX-License-Identifier: Apache-2.0
"""Constants from arrays: values and dtypes are kept, and memory begins at a cache line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxvm import relax

ARRAYS: dict[str, Any] = {
    "number": 3,
    "list": [[1.5, 2.5], [3.5, 4.5]],
    "bools": [True, False],
    "nothing": np.ones((3, 0), np.float32),
    "strided": np.arange(35, dtype=np.int64).reshape(5, 7)[::2, ::-1],
    "transposed": np.arange(12, dtype=np.float32).reshape(3, 4).T,
    "read-only": np.broadcast_to(np.float64(2), (4, 5)),
    "shifted": np.arange(65, dtype=np.float32)[1:],
}


@pytest.mark.parametrize("name", ARRAYS)
def test_values(name: str):
    found = np.from_dlpack(relax.const(ARRAYS[name]).data)
    np.testing.assert_array_equal(found, ARRAYS[name])
    assert found.shape == np.shape(ARRAYS[name])


def test_other_dtypes():
    for dtype in ("float16", "bfloat16", "float8_e4m3fn"):
        constant = relax.const([0.5, -2.0], dtype)
        assert str(constant.data.dtype) == dtype
    np.testing.assert_array_equal(np.from_dlpack(relax.const([300, -1], "uint8").data), [44, 255])


@pytest.mark.parametrize("num_elems", [1, 5, 1000, 70000])
def test_memory_begins_at_a_cache_line(num_elems: int):
    for _ in range(8):
        constant = relax.const(np.ones(num_elems, np.float32))
        assert np.from_dlpack(constant.data).ctypes.data % 64 == 0


def test_a_constant_is_a_copy():
    array = np.zeros(4, np.float32)
    constant = relax.const(array)
    array[:] = 1
    assert not np.from_dlpack(constant.data).any()
