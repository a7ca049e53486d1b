# SPDX-License-Identifier: Apache-2.0
"""topi's own names and parameters, each against NumPy."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, te, topi
from relaxvm.script import relax as R

RNG = np.random.default_rng(3)
X, Y = RNG.random((4, 6), "f4"), RNG.random((4, 6), "f4")
V = RNG.random((6,), "f4")
STACK = RNG.random((2, 4, 6), "f4")
IMAGE = RNG.random((1, 4, 6, 6), "f4")
COLUMNS = np.array([0, 3, 1], "i4")
PLACES = np.array([[0, 3, 1], [2, 5, 0]], "i4")
LENGTHS = np.array([1, 0, 6, 3], "i4")


def run(function, *arrays):
    """What the function of tensors computes on the arrays: an array, or a list of them."""
    inputs = [te.placeholder(a.shape, a.dtype.name, f"p{i}") for i, a in enumerate(arrays)]
    given = function(*inputs)
    outputs = given if isinstance(given, list) else [given]
    program = relaxvm.compile(te.create_prim_func([*inputs, *outputs]))
    results = [relaxvm.runtime.empty([int(n) for n in t.shape], str(t.dtype)) for t in outputs]
    program(*map(relaxvm.runtime.tensor, arrays), *results)
    values = [r.numpy() for r in results]
    return values if isinstance(given, list) else values[0]


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
        (lambda x, y: topi.nn.matmul(x, y, transp_b=True), [X, Y], X @ Y.T),
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


def test_convolutions_in_each_layout_agree():
    weight = RNG.random((3, 4, 3, 3), "f4")
    plain = run(lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 1, 1), IMAGE, weight)
    same = run(lambda x, w: topi.nn.conv2d(x, w, (1, 1), "SAME", (1, 1)), IMAGE, weight)
    last = run(
        lambda x, w: topi.nn.conv2d_nhwc(x, w, 1, 1, 1),
        IMAGE.transpose(0, 2, 3, 1).copy(),
        weight.transpose(2, 3, 1, 0).copy(),
    )
    np.testing.assert_allclose(same, plain, rtol=1e-5)
    np.testing.assert_allclose(last.transpose(0, 3, 1, 2), plain, rtol=1e-5)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(IMAGE, [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3)
    )
    np.testing.assert_allclose(plain, np.einsum("nchwij,ocij->nohw", windows, weight), rtol=1e-4)


def test_depthwise_filters_work_on_their_channel_alone():
    weight = RNG.random((4, 2, 3, 3), "f4")
    both = run(lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1), IMAGE, weight)
    one = run(
        lambda x, w: topi.nn.conv2d(x, w, 1, 1, 1), IMAGE[:, 2:3].copy(), weight[2, 1:, None].copy()
    )
    np.testing.assert_allclose(both[:, 5:6], one, rtol=1e-5)


def test_space_goes_to_depth_and_back():
    def there_and_back(x):
        return topi.nn.depth_to_space(topi.nn.space_to_depth(x, 2), 2)

    np.testing.assert_array_equal(run(there_and_back, IMAGE), IMAGE)


def test_images_are_scaled():
    twice = run(lambda x: topi.nn.upsampling(x, 2, 3), IMAGE)
    np.testing.assert_array_equal(twice, IMAGE.repeat(2, 2).repeat(3, 3))
    half = run(lambda x: topi.image.resize2d(x, (0.0,) * 4, (3, 3)), IMAGE)
    np.testing.assert_allclose(half, IMAGE.reshape(1, 4, 3, 2, 3, 2).mean((3, 5)), rtol=1e-5)


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
