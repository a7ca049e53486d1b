# SPDX-License-Identifier: Apache-2.0
"""topi's own names and parameters, each against NumPy."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, te, topi
from relaxvm.script import relax as R

from .conftest import run

RNG = np.random.default_rng(3)
X, Y = RNG.random((4, 6), "f4"), RNG.random((4, 6), "f4")
V = RNG.random((6,), "f4")
STACK = RNG.random((2, 4, 6), "f4")
IMAGE = RNG.random((1, 4, 6, 6), "f4")
COLUMNS = np.array([0, 3, 1], "i4")
PLACES = np.array([[0, 3, 1], [2, 5, 0]], "i4")
LENGTHS = np.array([1, 0, 6, 3], "i4")


def scattered():
    result = X.copy()
    result[tuple(PLACES)] += V[:3]
    return result


def blocks(x):
    return x.reshape(1, 2, 2, 6, 6).transpose(0, 1, 3, 4, 2)


def masked():
    return np.where(np.arange(6) < LENGTHS[:, None], X, np.float32(9))


@pytest.mark.parametrize(
    ("function", "arrays", "expected"),
    [
        (topi.identity, [X], X),
        (lambda x: topi.cast(x * 5.0, "int32"), [X], (X * 5).astype("i4")),
        (topi.log2, [X], np.log2(X)),
        (topi.log10, [X], np.log10(X)),
        (topi.power, [X, Y], X**Y),
        (lambda x: topi.clip(x, a_min=0.2, a_max=0.7), [X], X.clip(0.2, 0.7)),
        (lambda x: topi.full_like(x, 2.0), [X], np.full_like(X, 2)),
        (lambda x: topi.add(x, topi.arange(6)), [X], X + np.arange(6, dtype="f4")),
        (lambda x: topi.argmax(x, axis=1), [X], X.argmax(1).astype("i4")),
        (lambda x: topi.argmin(x, 0, True), [X], X.argmin(0)[None].astype("i4")),
        (lambda x: topi.all(x, axis=1), [X > 0.1], (X > 0.1).all(1)),
        (lambda x: topi.any(x, 0, True), [X > 0.8], (X > 0.8).any(0, keepdims=True)),
        (lambda x, y: topi.elemwise_sum([x, y, x]), [X, Y], X + Y + X),
        (topi.transpose, [STACK], STACK.T),
        (lambda x: topi.transpose(x, axes=(1, 0, 2)), [STACK], STACK.transpose(1, 0, 2)),
        (lambda x: topi.reshape(x, newshape=(3, 8)), [X], X.reshape(3, 8)),
        (lambda x: topi.expand_dims(x, -1, 2), [X], X[..., None, None]),
        (lambda x, y: topi.concatenate((x, y), axis=1), [X, Y], np.concatenate([X, Y], 1)),
        (lambda x, y: topi.stack([x, y], axis=1), [X, Y], np.stack([X, Y], 1)),
        (
            lambda x: topi.strided_slice(x, [-3, 1], [4, 6], [1, 2]),
            [X],
            X[-3:4, 1:6:2],
        ),
        (
            lambda x: topi.strided_slice(x, [2], [-1], axes=[1], slice_mode="size"),
            [X],
            X[:, 2:],
        ),
        (lambda x, i: topi.take(x, i), [X, COLUMNS], X.reshape(-1)[COLUMNS]),
        (lambda x, i: topi.take(x, i, axis=1), [X, COLUMNS], X[:, COLUMNS]),
        (
            lambda x, i: topi.gather(x, 1, i),
            [X, np.argsort(X, 1).astype("i4")],
            np.sort(X, 1),
        ),
        (topi.gather_nd, [X, PLACES], X[tuple(PLACES)]),
        (lambda x, i, u: topi.scatter_nd(x, i, u, "add"), [X, PLACES, V[:3]], scattered()),
        (lambda x: topi.trilu(x, 1, True), [X], np.triu(X, 1)),
        (lambda x: topi.trilu(x, 0, False), [X], np.tril(X)),
        (lambda x: topi.shape(x, "int64"), [STACK], np.array([2, 4, 6])),
        (lambda x, n: topi.sequence_mask(x, n, 9, 1), [X, LENGTHS], masked()),
        (lambda x: topi.layout_transform(x, "NCHW", "NHWC"), [IMAGE], IMAGE.transpose(0, 2, 3, 1)),
        (lambda x: topi.layout_transform(x, "NCHW", "NCHW2c"), [IMAGE], blocks(IMAGE)),
        (lambda x: topi.layout_transform(x, "NCHW2c", "NCHW"), [blocks(IMAGE)], IMAGE),
        (lambda x: topi.sort(x, is_ascend=False), [X], -np.sort(-X)),
        (topi.argsort, [X], np.argsort(X).astype("f4")),
        (lambda x: topi.topk(x, 2, ret_type="values", is_ascend=True), [X], np.sort(X)[:, :2]),
        (lambda x, y: topi.matmul(x, y, False, True), [X, Y], X @ Y.T),
        (lambda x, y: topi.matmul(x, y, transp_a=True), [X, Y], X.T @ Y),
        (lambda x, y: topi.tensordot(x, y, ((0, 1), (0, 1))), [X, Y], np.tensordot(X, Y)),
        (lambda x, y: topi.tensordot(x, y, 1), [STACK, V], np.tensordot(STACK, V, 1)),
        (lambda x, y: topi.einsum("ij,kj->ik", x, y), [X, Y], X @ Y.T),
        (topi.nn.dense, [X, Y, V[:4]], X @ Y.T + V[:4]),
        (
            lambda x, y, b: topi.nn.matmul(x, y, b, None, False, True),
            [X, Y, V[:4]],
            X @ Y.T + V[:4],
        ),
        (
            lambda x, y: topi.nn.matmul(tensor_a=x, tensor_b=y, transpose_a=True),
            [X, Y],
            X.T @ Y,
        ),
        (lambda x: topi.reinterpret(x, "int32"), [X], X.view("i4")),
        (lambda x: topi.collapse_sum(x, (4, 1)), [X], X.sum(1, keepdims=True)),
        (lambda x: topi.collapse_sum(x, (6,)), [X], X.sum(0)),
        (
            lambda x, y: topi.expand_like(x, y, [-1]),
            [X, np.zeros((4, 6, 2), "f4")],
            X[..., None].repeat(2, 2),
        ),
        (
            lambda x, y: topi.expand_like(x, y, [0, 1]),
            [X[0, :1].copy(), Y],
            np.full_like(X, X[0, 0]),
        ),
        (lambda x: topi.dyn_tile(x, (2, 8, 6), 3), [X], np.tile(X, (2, 2, 1))),
        (topi.tensor_size, [STACK], np.array(48, "i4")),
        (lambda x: topi.add(x, topi.const_vector(V)), [X], X + V),
        (
            lambda i: topi.one_hot(i, 2, 0, 5, 0, "float32"),
            [COLUMNS],
            2 * np.eye(5, dtype="f4")[:, COLUMNS],
        ),
        # Names of parameters that are not the operator's.
        (lambda x, y: topi.subtract(lhs=x, rhs=y), [X, Y], X - Y),
        (lambda x: topi.sum(data=x, axis=1, keepdims=True), [X], X.sum(1, keepdims=True)),
        (lambda x: topi.flip(a=x, axis=1), [X], X[:, ::-1]),
        (lambda x: topi.tile(a=x, reps=(2, 1)), [X], np.tile(X, (2, 1))),
        (lambda x: topi.repeat(a=x, repeats=2, axis=1), [X], X.repeat(2, 1)),
        (lambda x: topi.squeeze(a=x, axis=[0]), [X[None]], X),
        (
            lambda c, x, y: topi.where(condition=c, x=x, y=y),
            [X > 0.5, X, Y],
            np.where(X > 0.5, X, Y),
        ),
        (lambda x: topi.add(x, topi.eye(4, 6, 1)), [X], X + np.eye(4, 6, 1, dtype="f4")),
        (
            lambda x: topi.cumsum(data=x, axis=1, exclusive=True),
            [X],
            np.cumsum(X, 1) - X,
        ),
        (
            lambda x: topi.nn.softmax(x=x, axis=0),
            [X],
            np.exp(X) / np.exp(X).sum(0),
        ),
        # Numbers take the tensor's type.
        (lambda x: topi.add(x, 2), [X], X + 2),
        (lambda x: topi.subtract(2, x), [X], 2 - X),
        (lambda x: topi.floor_mod(x, 4), [COLUMNS - 2], (COLUMNS - 2) % 4),
        (lambda x: topi.mod(x, 4), [COLUMNS - 2], np.fmod(COLUMNS - 2, 4)),
        (lambda x: topi.maximum(x, 0), [X - 0.5], np.maximum(X - 0.5, 0)),
        (lambda x: topi.greater(x, 0.5), [X], X > 0.5),
        (lambda x: topi.power(x, 2), [X], X**2),
        (topi.nn.batch_matmul, [STACK, STACK], STACK @ STACK.transpose(0, 2, 1)),
        (topi.nn.flatten, [IMAGE], IMAGE.reshape(1, -1)),
        (lambda x: topi.nn.leaky_relu(x - 0.5, 0.1), [X], np.where(X < 0.5, 0.1, 1) * (X - 0.5)),
        (
            lambda x: topi.nn.pad(x, [1, 0], [0, 2], 0.5),
            [X],
            np.pad(X, [(1, 0), (0, 2)], constant_values=0.5),
        ),
        (
            lambda x: topi.nn.mirror_pad(x, [1, 2], mode="REFLECT"),
            [X],
            np.pad(X, [(1, 1), (2, 2)], "reflect"),
        ),
        (lambda x: topi.nn.global_pool(x, "max"), [IMAGE], IMAGE.max((2, 3), keepdims=True)),
        (
            lambda x: topi.nn.adaptive_pool(x, (2, 2), "avg"),
            [IMAGE],
            IMAGE.reshape(1, 4, 2, 3, 2, 3).mean((3, 5)),
        ),
        (
            lambda x: topi.nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], "max"),
            [IMAGE],
            IMAGE.reshape(1, 4, 3, 2, 3, 2).max((3, 5)),
        ),
        (lambda x: -x, [X], -X),
    ],
)
def test_agrees_with_numpy(function, arrays, expected):
    result = run(function, *arrays)
    assert result.dtype == expected.dtype or expected.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_two_numbers_give_a_number():
    assert [int(v) for v in (topi.add(1, 2), topi.maximum(4, 3), topi.mod(-5, 3))] == [3, 4, -2]
    assert int(topi.floordiv(-5, 3)) == -2 and int(topi.floormod(-5, 3)) == 1


def test_regions_take_the_mode_before_the_samples():
    boxes = np.array([[0, 1, 1, 4, 4]], "f4")

    def largest(x, b):
        return topi.vision.roi_align(x, b, (1, 1), 1.0, "max", 1, True, "NCHW")

    np.testing.assert_allclose(run(largest, IMAGE, boxes)[..., 0, 0], IMAGE[:, :, 2, 2], rtol=1e-5)


def test_splits_are_lists():
    first, second = run(lambda x: topi.split(x, [2], axis=1), X)
    np.testing.assert_array_equal(np.concatenate([first, second], 1), X)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: topi.all(x), "takes a tensor of bool"),
        (lambda x: topi.layout_transform(x, "NC", "NCH"), "have other axes"),
        (lambda x: topi.layout_transform(x, "N4", "N"), "is not written as"),
        (lambda x: topi.strided_slice(x, [0], [1], slice_mode="all"), "slice_mode must be"),
        (lambda x: topi.sequence_mask(x, x, axis=2), "axis must be 0 or 1"),
        (lambda x: topi.nn.adaptive_pool(x, 1, "sum"), "pool_type must be"),
        (lambda x: topi.nn.conv1d_ncw(x, x, 1, "FULL"), '"VALID" or "SAME"'),
        (lambda x: topi.expand_like(x, x, [0]), "3 dimensions and 1 new ones"),
        (lambda x: topi.dyn_tile(x, (4, 6), 2), "new_shape has 2 dimensions"),
        (lambda x: topi.strided_set(x, te.placeholder((4,)), [0], [1]), "v has 1 dimensions"),
        (lambda x: topi.take(x, x, 1, 1, "nan"), "mode must be"),
        (lambda x: topi.matrix_set_diag(x, x, align="UP"), "align must be"),
        (lambda x: topi.sliding_window(x, 1, [2], [1]), "a window of 2 dimensions"),
        (lambda x: topi.stft(x, 4, 1, 4, x, False, True, (1,)), r"must be \[batch, time\]"),
        (lambda x: topi.nn.lrn(x, 4), "size must be odd"),
        (lambda x: topi.nn.dilate(x, [1]), "1 strides for 3 dimensions"),
        (lambda x: topi.nn.mirror_pad(x, [1] * 3, mode="EDGE"), "mode must be"),
        (
            lambda x: topi.nn.depthwise_conv2d_nhwc(x, x, 1, 1, 1, "OIHW"),
            "kernel_layout must be",
        ),
        (lambda x: topi.image.crop_and_resize(x, x, x, (2, 2), "CHW"), "layout must be"),
        (
            lambda x: topi.image.crop_and_resize(x, x, x, (2, 2), method="cubic"),
            "method must be",
        ),
    ],
)
def test_wrong_parameters_are_refused(function, message):
    with pytest.raises((TypeError, ValueError), match=message):
        function(te.placeholder((4, 6, 3)))


def test_they_are_emitted_into_functions():
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4, 6), "float32"))
    with builder.function("main", [x]):
        joined = builder.emit_te(topi.concatenate, [x, x], axis=0)
        builder.emit_func_output(builder.emit_te(topi.transpose, joined))
    vm = relaxvm.VirtualMachine(relaxvm.compile(builder.finalize()))
    np.testing.assert_array_equal(vm["main"](X).numpy(), np.concatenate([X, X]).T)
