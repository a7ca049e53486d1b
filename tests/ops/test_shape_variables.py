# SPDX-License-Identifier: Apache-2.0
"""Result types that a variable of shape type, a device or unknown sizes decide."""

from __future__ import annotations

from typing import Any

import pytest
from ops_programs import infer_type

from relaxvm import relax, tirx
from relaxvm.ir import VDevice, assert_structural_equal
from relaxvm.relax import op

N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")


def tensor(shape: Any, dtype: str | None = "float32", vdevice: Any = None) -> Any:
    if isinstance(shape, int):
        return relax.Var("x", relax.TensorType(dtype=dtype, ndim=shape, vdevice=vdevice))
    return relax.Var("x", relax.TensorType(shape, dtype, vdevice))


def of_type(call: Any, shape: Any, dtype: str = "float32") -> None:
    want = tensor(shape, dtype).ty
    assert_structural_equal(infer_type(call), want)


@pytest.mark.parametrize("make", [op.broadcast_to, op.reshape, op.collapse_sum_to, op.memory.view])
def test_shape_given_by_a_variable_stays_that_variable(make: Any) -> None:
    for kind in (relax.Var, relax.DataflowVar):
        shape = kind("s", relax.ShapeType(ndim=2))
        assert infer_type(make(tensor((N, M)), shape)).shape.same_as(shape)


def test_known_values_of_a_local_variable_are_the_shape() -> None:
    shape = relax.DataflowVar("s", relax.ShapeType([N, M]))
    for make in (op.broadcast_to, op.reshape, op.collapse_sum_to, op.memory.view):
        of_type(make(tensor((N, M)), shape), (N, M))


def test_parts_of_a_tuple_name_the_device() -> None:
    device = VDevice("llvm")
    x = tensor((2, 3), vdevice=device)
    assert infer_type(op.concat([x, x], 0)).vdevice is not None
    assert infer_type(op.stack([x, x])).vdevice is not None


def test_two_devices_are_a_wrong_value() -> None:
    x, y = tensor((2, 3), vdevice=VDevice("llvm", 0)), tensor((2, 3), vdevice=VDevice("llvm", 1))
    with pytest.raises(ValueError, match="different devices"):
        infer_type(op.add(x, y))


def test_twice_a_size_is_written_as_a_product() -> None:
    assert_structural_equal(
        infer_type(op.concat([tensor((N,)), tensor((N,))], 0)), tensor((N * 2,)).ty
    )


def test_comparison_takes_two_dtypes() -> None:
    of_type(op.less(tensor((2, 3)), tensor((2, 3), "int64")), (2, 3), "bool")
    of_type(op.equal(tensor((2, 3), "float16"), relax.prim_value(1)), (2, 3), "bool")


def test_logic_of_numbers_keeps_their_dtype() -> None:
    of_type(op.logical_and(tensor((2, 3)), tensor((2, 3))), (2, 3))
    of_type(op.logical_not(tensor((2, 3), "int8")), (2, 3), "int8")


def test_squeeze_leaves_extents_that_are_not_one() -> None:
    of_type(op.squeeze(tensor((1, 3, 1)), [0, 1]), (3, 1))


def test_gather_nd_along_an_unknown_number_of_axes_has_unknown_rank() -> None:
    assert infer_type(op.gather_nd(tensor((2, 3)), tensor((4, N), "int64"))).ndim == -1


def test_slice_inside_of_its_axis_is_not_clamped() -> None:
    call = op.strided_slice(tensor((8, 3)), [0], [N], [M], assume_inbound=True)
    of_type(call, (M - N, 3))


@pytest.mark.parametrize(
    "call",
    [
        lambda: op.scatter_nd(tensor((2, 3)), tensor((4, 1), "int64"), tensor((4, 4))),
        lambda: op.collapse_sum_like(tensor((N, 3)), tensor((M, 3))),
        lambda: op.multinomial_from_uniform(
            tensor((2, 3)), tensor((2, 3)), tensor((2, 1), "int64")
        ),
        lambda: op.reverse_sequence(tensor((2, 3)), tensor((2,))),
    ],
)
def test_extents_that_do_not_fit_are_a_wrong_value(call: Any) -> None:
    with pytest.raises(ValueError):
        infer_type(call())


@pytest.mark.parametrize(
    "call",
    [
        lambda: op.reshape(tensor((2, 3)), (-1, -1)),
        lambda: op.split(tensor((2, 3)), 0),
        lambda: op.strided_slice(tensor((2, 3)), [0], [0, 1], [1]),
        lambda: op.one_hot(tensor((2,), "int64"), relax.prim_value(1), relax.prim_value(0), -1),
    ],
)
def test_wrong_attributes_are_caught_under_both_names(call: Any) -> None:
    for kind in (ValueError, RuntimeError):
        with pytest.raises(kind):
            infer_type(call())


def test_broadcast_to_takes_no_tensor_for_a_shape() -> None:
    with pytest.raises(TypeError, match="must be a shape"):
        infer_type(op.broadcast_to(tensor((2, 3)), tensor((2,), "int64")))
