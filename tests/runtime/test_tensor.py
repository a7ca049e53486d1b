# SPDX-License-Identifier: Apache-2.0
"""Tensors: values in and out, every element type."""

import ml_dtypes
import numpy as np
import pytest

import relaxvm

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"


@pytest.mark.parametrize("dtype", DTYPES.split())
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_values_survive(dtype, shape):
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    tensor = relaxvm.runtime.tensor(array)
    assert (tuple(tensor.shape), str(tensor.dtype)) == (shape, dtype)
    result = tensor.numpy()
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_floats_survive(name):
    array = np.array([1.5, -2, 0.25], dtype=getattr(ml_dtypes, name))
    tensor = relaxvm.runtime.tensor(array)
    assert str(tensor.dtype) == name
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_tensor_is_a_copy_and_so_is_numpy():
    array = np.zeros(3, "float32")
    tensor = relaxvm.runtime.tensor(array)
    array[0] = 1
    tensor.numpy()[1] = 1
    assert tensor.numpy().tolist() == [0, 0, 0]


def test_takes_read_only_and_strided_arrays_and_lists():
    array = np.arange(12).reshape(3, 4)
    array.setflags(write=False)
    np.testing.assert_array_equal(relaxvm.runtime.tensor(array.T[::2]).numpy(), array.T[::2])
    assert relaxvm.runtime.tensor([[1, 2], [3, 4]]).numpy().tolist() == [[1, 2], [3, 4]]


def test_copies_between_tensors_and_devices():
    source = relaxvm.runtime.tensor(np.arange(4, dtype="int32"))
    there = source.copyto(relaxvm.null())
    assert there.device == relaxvm.null()
    target = relaxvm.runtime.empty((4,), "int32")
    there.copyto(target)
    assert target.numpy().tolist() == [0, 1, 2, 3]
    target.copyfrom([9, 8, 7, 6])
    assert target.numpy().tolist() == [9, 8, 7, 6]


def test_copy_of_another_shape_is_an_error():
    with pytest.raises(ValueError, match="equal shape and dtype"):
        relaxvm.runtime.empty((2,)).copyto(relaxvm.runtime.empty((3,)))


def test_negative_dimension_is_an_error():
    with pytest.raises(ValueError, match="dimension of a tensor is -1"):
        relaxvm.runtime.empty((2, -1))


def test_printing_shows_the_values():
    tensor = relaxvm.runtime.tensor(np.arange(4, dtype="int32").reshape(2, 2))
    assert str(tensor) == "[[0 1]\n [2 3]]"
    assert repr(tensor) == "<relaxvm.Tensor shape=(2, 2), int32, cpu:0>\n[[0 1]\n [2 3]]"
