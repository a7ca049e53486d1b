# SPDX-License-Identifier: Apache-2.0
"""Weights by name as bytes."""

import struct

import ml_dtypes
import numpy as np
import pytest

from relaxvm import runtime

ARRAYS = {
    "weight": np.arange(6, dtype="f4").reshape(2, 3),
    "scalar": np.array(7, "int64"),
    "mask": np.array([True, False]),
    "empty": np.zeros((0, 4), "f2"),
    "gr\u00f6\u00dfe": np.array([1.5, -2], ml_dtypes.bfloat16),
    "bytes": np.array([250, 3], "u1"),
}


def test_tensors_come_back():
    loaded = runtime.load_param_dict(runtime.save_param_dict(ARRAYS))
    assert list(loaded) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert str(loaded[name].dtype) == str(array.dtype)
        np.testing.assert_array_equal(loaded[name].numpy(), array)


def test_bytes_of_one_tensor():
    saved = runtime.save_param_dict({"a": runtime.tensor(np.array([[1, 2]], "i4"))})
    assert bytes(saved) == b"".join(
        [
            struct.pack("<QQ", 0xF7E58D4F05049CB7, 0),
            struct.pack("<QQ", 1, 1) + b"a",
            struct.pack("<Q", 1),
            struct.pack("<QQiii", 0xDD5E40F096B4A13F, 0, 1, 0, 2),
            struct.pack("<BBH", 0, 32, 1),
            struct.pack("<qq", 1, 2),
            struct.pack("<qii", 8, 1, 2),
        ]
    )


def test_through_a_file(tmp_path):
    path = tmp_path / "weights.params"
    runtime.save_param_dict_to_file(ARRAYS, path)
    loaded = runtime.load_param_dict_from_file(path)
    np.testing.assert_array_equal(loaded["weight"].numpy(), ARRAYS["weight"])
    assert [p.name for p in tmp_path.iterdir()] == ["weights.params"]


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda b: b[: len(b) // 2], "damaged at byte"),
        (lambda b: b"\0" * 8 + b[8:], "no saved parameters"),
        (lambda b: b[:16] + struct.pack("<Q", 2**60) + b[24:], "the number of names"),
        (lambda b: b[:33] + struct.pack("<Q", 3) + b[41:], "the number of tensors is 3"),
        (lambda b: b[:41] + b"\0" * 8 + b[49:], "no tensor begins here"),
        (lambda b: b[:65] + struct.pack("<i", -1) + b[69:], "the rank of a tensor is -1"),
        (lambda b: b[:69] + b"\x63" + b[70:], "no element type of kind 99"),
        (lambda b: b[:73] + struct.pack("<q", -5) + b[81:], "an extent is -5"),
        (lambda b: b[:73] + struct.pack("<q", 2**50) + b[81:], "the size of a tensor in bytes"),
    ],
)
def test_damaged_bytes_are_an_error(damage, message):
    saved = bytes(runtime.save_param_dict({"a": np.arange(4, dtype="f4")}))
    with pytest.raises(ValueError, match=message):
        runtime.load_param_dict(damage(saved))
