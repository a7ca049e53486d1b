# SPDX-License-Identifier: Apache-2.0
"""Calls that are wrong: the error names the operator, the argument and what was expected."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ops_programs import infer_type

from relaxvm import relax, tirx
from relaxvm.relax.op.build import ROWS, call_operator

N = tirx.Var("n", "int64")


def tensor(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return relax.Var(name, relax.TensorType(list(shape), dtype))


X = tensor("x", 4, 8)
I = tensor("i", 4, 8, dtype="int32")
IMAGE = tensor("image", 1, 3, 9, 9)
WEIGHT = tensor("weight", 4, 3, 3, 3)
CHANNELS = tensor("channels", 3)

# operator, arguments, attributes, what the message says after "operator: "
WRONG: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("exp", [I], {}, r"x must be a floating-point tensor, got Tensor\(\(4, 8\), int32\)"),
    ("exp", [X, X], {}, r"takes \(x\), got 2 arguments"),
    ("negative", [tensor("x", 3, dtype="bool")], {}, r"x must be a tensor of numbers"),
    ("bitwise_not", [X], {}, r"x must be a tensor of integers or bool"),
    ("add", [X, I], {}, r"x1 and x2 must have one dtype, got float32 and int32; convert one"),
    ("add", [X, tensor("y", 7)], {}, r"shapes \(4, 8\) and \(7,\) do not broadcast: 8 against 7"),
    ("add", [relax.ShapeExpr([1]), X], {}, r"x1 must be a tensor, got Shape"),
    ("left_shift", [X, X], {}, r"x1 must hold integers"),
    ("where", [X, X, X], {}, r"condition must be a bool tensor"),
    ("clip", [X, X, X], {}, r"min must be a scalar"),
    ("astype", [X], {}, r"attribute dtype must be given"),
    ("astype", [X], {"dtype": "flout"}, r"flout"),
    ("sum", [X], {"axis": [2]}, r"axis 2 is out of range for a tensor with 2 dimensions; use -2 to 1"),
    ("sum", [X], {"axis": [0, -2]}, r"axis -2 is given twice"),
    ("sum", [X], {"axis": "all"}, r"attribute axis must be an integer or a list of integers or None, got 'all'"),
    ("sum", [X], {"keepdim": True}, r"no attribute keepdim; there are: axis, keepdims"),
    ("variance", [I], {}, r"x must be a floating-point tensor"),
    ("argmax", [tensor("x", 3, dtype="bool")], {}, r"x must be a tensor of numbers"),
    ("cumsum", [tensor("x", 3, dtype="bool")], {}, r"cannot accumulate in bool; give dtype"),
    ("matmul", [X, X], {}, r"the last dimension of x1 \(8\) must be the second to last one of x2 \(4\)"),
    ("matmul", [X, tensor("y")], {}, r"x2 must have at least one dimension"),
    ("outer", [X, X], {}, r"x1 must have 1 dimension, got"),
    ("einsum", [[X, X]], {"subscripts": "ij,jk->ik"}, r"'ij,jk->ik': 'j' has extents 8 and 4"),
    ("einsum", [[X]], {"subscripts": "ijk"}, r"'ijk' stands for an operand with 2 dimensions"),
    ("einsum", [[X]], {"subscripts": "ij->z"}, r"no operand has 'z', which the result names"),
    ("nn.conv2d", [IMAGE, tensor("w", 4, 2, 3, 3)], {}, r"data has 3 channels, but weight takes 2 in each of 1 group"),
    ("nn.conv2d", [IMAGE, WEIGHT], {"data_layout": "NCWD"}, r"data_layout must be an order of the letters NCHW, got 'NCWD'"),
    ("nn.conv2d", [IMAGE, WEIGHT], {"strides": [1, 2, 3]}, r"strides needs 2 values, got 3"),
    ("nn.conv2d", [IMAGE, WEIGHT], {"strides": 0}, r"strides must be at least 1, got 0"),
    ("nn.conv2d", [tensor("x", 1, 3, 2, 2), WEIGHT], {}, r"the kernel reaches over 3 elements of axis H, but padded data has 2"),
    ("nn.conv2d", [X, WEIGHT], {}, r"data must have 4 dimensions, got Tensor"),
    ("nn.conv2d_transpose", [IMAGE, tensor("w", 2, 4, 3, 3)], {}, r"data has 3 channels, but weight takes 2"),
    ("nn.conv2d_transpose", [IMAGE, tensor("w", 3, 4, 3, 3)], {"output_padding": 1}, r"output_padding must be less than"),
    ("nn.max_pool2d", [tensor("x", 1, 1, 2, 2)], {"pool_size": 5}, r"the window of 5 is larger than axis H"),
    ("nn.adaptive_avg_pool2d", [IMAGE], {"output_size": 0}, r"output_size must be at least 1"),
    ("nn.softmax", [I], {}, r"data must be a floating-point tensor"),
    ("nn.softmax", [X], {"axis": 2}, r"axis 2 is out of range"),
    ("nn.batch_norm", [IMAGE, CHANNELS, CHANNELS, CHANNELS, tensor("v", 4)], {}, r"moving_var needs one value for each of the 3 elements of axis 1 of data, got 4"),
    ("nn.layer_norm", [X, tensor("g", 7), tensor("b", 8)], {"axes": [-1]}, r"gamma: Tensor\(\(7,\), float32\) must have the extents"),
    ("nn.group_norm", [IMAGE, CHANNELS, CHANNELS], {"num_groups": 2, "channel_axis": 1, "axes": [2, 3]}, r"3 channels cannot be cut into 2 groups"),
    ("nn.prelu", [IMAGE, tensor("a", 4)], {}, r"alpha needs one slope for each of the 3 elements of axis 1"),
    ("nn.pad", [X], {"pad_width": [1, 1]}, r"pad_width needs 4 values"),
    ("nn.pad", [X], {"pad_width": [0, 0, 9, 0], "pad_mode": "reflect"}, r"pad_mode 'reflect' needs at least 10 elements"),
    ("nn.pad", [X], {"pad_width": [0, 0, 0, 0], "pad_mode": "mirror"}, r"pad_mode must be .* got 'mirror'"),
    ("nn.pixel_shuffle", [IMAGE], {"upscale_factor": 2}, r"3 channels are no multiple of 2 \* 2"),
    ("nn.nll_loss", [X, tensor("t", 5, dtype="int64")], {}, r"targets must have the shape of predictions without its classes"),
    ("nn.attention", [tensor("q", 1, 2, 3, 4), tensor("k", 1, 2, 3, 5), tensor("v", 1, 2, 3, 4)], {}, r"the last dimensions of query and key must agree"),
    ("image.resize2d", [IMAGE, [2, 2]], {"method": "area"}, r"method must be one of 'nearest_neighbor', 'linear', 'cubic', got 'area'"),
    ("image.resize2d", [IMAGE, [2, 2, 2]], {}, r"size must have 2 dimensions"),
    ("image.resize2d", [IMAGE, [2, 2]], {"scales": [0.5]}, r"scales needs 2 values, none below 0"),
    ("image.resize2d", [IMAGE, [2, 2]], {"scales": [0.5, 0.5], "coordinate_transformation_mode": "tf_half_pixel_for_nn"}, r"scales have no meaning for 'tf_half_pixel_for_nn'"),
    ("image.resize2d", [IMAGE, [2, 2]], {"antialias": True}, r"antialias needs scales, none of them 0"),
    ("image.resize2d", [IMAGE, [2, 2]], {"antialias": True, "method": "cubic", "scales": [0.5, 0.5]}, r"antialias works with method 'linear' only"),
    ("reshape", [X, [5, 7]], {}, r"Tensor\(\(4, 8\), float32\) has 32 elements, the shape \(5, 7\) has 35"),
    ("reshape", [X, [-1, -1]], {}, r"only one dimension of the shape may be -1"),
    ("reshape", [X, [-1, 5]], {}, r"has 32 elements, which \(-1, 5\) does not divide"),
    ("permute_dims", [X], {"axes": [0]}, r"axes has 1 entries for Tensor"),
    ("permute_dims", [X], {"axes": [0, 0]}, r"axis 0 is given twice"),
    ("squeeze", [X], {"axis": [2]}, r"axis 2 is out of range"),
    ("expand_dims", [X], {"axis": [5]}, r"axis 5 is out of range for a tensor with 3 dimensions"),
    ("concat", [[X, I]], {}, r"all tensors must have one dtype, but tensors\[1\] is"),
    ("concat", [[X, tensor("y", 4)]], {}, r"all tensors must have one rank"),
    ("concat", [[X, tensor("y", 4, 9)]], {}, r"dimension 1 must be the same"),
    ("stack", [[X, tensor("y", 5, 8)]], {}, r"dimension 0 must be the same"),
    ("split", [X], {"indices_or_sections": 0}, r"cannot split into 0 parts"),
    ("split", [X], {"indices_or_sections": "a"}, r"indices_or_sections must be a number of parts or a list"),
    ("broadcast_to", [X, [4, 9]], {}, r"does not broadcast to \(4, 9\): 8 against 9"),
    ("repeat", [X], {"repeats": -1}, r"repeats must be at least 0, got -1"),
    ("flip", [X], {"axis": 2}, r"axis 2 is out of range"),
    ("strided_slice", [X, [0], [0, 1], [4]], {}, r"axes, begin, end and strides must have one length, got 1, 2, 1 and 1"),
    ("strided_slice", [X, [0], [0], [4], [0]], {}, r"a stride must not be 0"),
    ("take", [X, X], {"axis": 0}, r"indices must be a tensor of integers"),
    ("take", [X, I], {}, r"axis must be given: x has 2 dimensions"),
    ("take", [X, I], {"axis": 0, "mode": "raise"}, r"mode must be 'fast', 'clip', 'wrap' or 'nan', got 'raise'"),
    ("gather_nd", [X, tensor("i", 2, 3, dtype="int64")], {}, r"indices picks along 3 dimensions"),
    ("scatter_elements", [X, I, X], {"reduction": "sum"}, r"reduction must be .* got 'sum'"),
    ("scatter_nd", [X, tensor("i", 2, 3, dtype="int64"), X], {}, r"indices names 3 dimensions"),
    ("one_hot", [I, relax.prim_value(1), relax.prim_value(1.0)], {"depth": 3}, r"on_value and off_value must have one dtype"),
    ("argsort", [X], {"dtype": "bool"}, r"dtype must be a type of numbers, got bool"),
    ("rvm.byte_table", [tensor("x", 4, dtype="uint8"), tensor("t", 8, dtype="uint8")], {}, r"table needs 256 values, got 8"),
    ("quantize", [X, CHANNELS, CHANNELS], {}, r"scale needs one value for each of the 8 elements of axis 1, or a single one; got 3"),
    ("arange", [relax.prim_value(0), relax.prim_value(5), relax.prim_value(0)], {}, r"step must not be 0"),
    ("tril", [tensor("x", 3)], {}, r"x must have at least two dimensions"),
    ("full", [X, relax.prim_value(1)], {}, r"shape must be a shape, got Tensor"),
    ("bucketize", [X, I], {}, r"input_tensor and boundaries must have one dtype"),
    ("tensor_to_shape", [X], {}, r"expr must be a tensor of signed integers"),
    ("shape_to_tensor", [X], {}, r"expr must be a shape, got Tensor"),
    ("call_tir", [relax.ExternFunc("f"), relax.Tuple([X])], {}, r"func must name a tensor program of the module"),
    ("assert_op", [X], {}, r"condition must be a bool: a scalar or a tensor without dimensions"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "args", "attrs", "message"), WRONG, ids=[f"{w[0]}-{i}" for i, w in enumerate(WRONG)]
)
def test_mistake_is_named(op: str, args: list[Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError, NotImplementedError)) as caught:
        infer_type(call_operator(op, args, attrs))
    text = str(caught.value)
    assert re.search(message, text), text
    assert op in text or "flout" in text


def test_unknown_operator_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no operator nn.sofmax; nearest: nn.softmax"):
        call_operator("nn.sofmax", [X])


def test_every_family_has_a_mistake() -> None:
    """Each operator whose type rule says more than its table row is in the list above."""
    tested = {w[0] for w in WRONG}
    assert len(tested) >= 55
    assert tested <= set(ROWS)
