# SPDX-License-Identifier: Apache-2.0
"""Operators with symbolic sizes, compiled once and run at several shapes, beside ONNX Runtime."""

import re

import numpy as np
import onnx
import pytest

pytestmark = pytest.mark.peer

IMAGES = [{"x": (1, 4, 8, 9)}, {"x": (2, 4, 7, 16)}, {"x": (3, 4, 5, 5)}]
EVEN_IMAGES = [{"x": (1, 4, 8, 10)}, {"x": (2, 4, 6, 2)}]
ROWS = [{"x": (1, 6)}, {"x": (5, 6)}, {"x": (17, 6)}]
VECTORS = [{"x": (4,)}, {"x": (1,)}, {"x": (33,)}]
IMAGE = "g (float[n, 4, h, w] x) => (float[a, b, c, d] y) "
TWO = "g (float[n, 4, h, w] x) => (float[a, b, c, d] y, int64[a, b, c, d] i) "
ROW = "g (float[n, 6] x) => (float[a, b] y) "
VECTOR = "g (float[n] x) => (float[a] y) "
# Statistics of floats of 16 bits, whose squares are infinite as such.
HALVES = {
    "layer norm": ("y = LayerNormalization<epsilon=0.001>(x, row, row)", 17),
    "layer norm without bias": ("y = LayerNormalization(x, row)", 17),
    "skip layer norm": ("y = com.microsoft.SkipLayerNormalization<epsilon=0.00001>(x, x, row, row)", 17),
    "reduce L2": ("y = ReduceL2<axes=[-1]>(x)", 13),
    "norm": ("y = LpNormalization(x)", 17),
    "power pool": ("i = Constant<value_ints=[0]>() u = Unsqueeze(x, i) y = LpPool<kernel_shape=[3]>(u)", 18),
}  # fmt: skip
KERNELS = {
    "weight": np.random.default_rng(1).standard_normal((6, 4, 3, 3), dtype="f4"),
    "deep": np.random.default_rng(2).standard_normal((4, 1, 3, 3), dtype="f4"),
    "wide": np.random.default_rng(3).standard_normal((4, 3, 2, 2), dtype="f4"),
    "bias": np.random.default_rng(4).standard_normal(6, dtype="f4"),
    "moves": np.random.default_rng(6).standard_normal((18, 4, 3, 3), dtype="f4") / 4,
    "more_moves": np.random.default_rng(7).standard_normal((16, 4, 2, 2), dtype="f4") / 4,
    "fan": np.random.default_rng(10).standard_normal((3, 8, 3, 3), dtype="f4"),
    "masks": np.random.default_rng(8).standard_normal((8, 4, 2, 2), dtype="f4") / 4,
    "paired": np.random.default_rng(9).standard_normal((6, 2, 2, 2), dtype="f4"),
    "matrix": np.random.default_rng(5).standard_normal((6, 5), dtype="f4"),
}

CASES = {
    # name: (graph, shapes, opset)
    "conv": (IMAGE + "{ y = Conv<pads=[1,1,1,1]>(x, weight, bias) }", IMAGES, 17),
    "conv strides dilations": (
        IMAGE + "{ y = Conv<strides=[2,1], dilations=[1,2], pads=[0,2,1,2]>(x, weight) }", IMAGES, 17),
    "conv same upper": (
        IMAGE + "{ y = Conv<auto_pad=\"SAME_UPPER\", strides=[2,2]>(x, weight) }", IMAGES, 17),
    "conv same lower": (
        IMAGE + "{ y = Conv<auto_pad=\"SAME_LOWER\", strides=[2,3]>(x, weight) }", IMAGES, 17),
    "conv valid": (IMAGE + "{ y = Conv<auto_pad=\"VALID\">(x, weight) }", IMAGES, 17),
    "depthwise": (IMAGE + "{ y = Conv<group=4, pads=[1,1,1,1], strides=[2,2]>(x, deep) }", IMAGES, 17),
    "conv transpose": (IMAGE + "{ y = ConvTranspose<strides=[2,2]>(x, wide) }", IMAGES, 17),
    "conv transpose groups side by side": (
        "g (float[n, 3, h, w] x) => (float[a, b, c, d] y) { y = ConvTranspose<auto_pad=\"SAME_LOWER\", strides=[3,3], group=3>(x, fan) }",
        [{"x": (1, 3, 8, 9)}, {"x": (2, 3, 1, 17)}], 17),
    "conv transpose same": (
        IMAGE + "{ y = ConvTranspose<strides=[2,2], auto_pad=\"SAME_UPPER\">(x, wide) }", IMAGES, 17),
    "compress by a mask": (ROW.replace("[a, b]", "[a]") + "{ r = Relu(x) b = Cast<to=9>(r) y = Compress(x, b) }", ROWS, 17),
    "max pool": (IMAGE + "{ y = MaxPool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,1]>(x) }", IMAGES, 17),
    "max pool ceil": (
        IMAGE + "{ y = MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x) }", IMAGES, 17),
    "max pool and place": (
        TWO + "{ y, i = MaxPool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,1]>(x) }", IMAGES, 17),
    "max pool and place ceil": (
        TWO + "{ y, i = MaxPool<kernel_shape=[2,3], strides=[2,3], ceil_mode=1>(x) }", IMAGES, 17),
    "max pool and place same": (
        TWO + "{ y, i = MaxPool<kernel_shape=[2,3], strides=[2,2], auto_pad=\"SAME_UPPER\">(x) }", IMAGES, 17),
    "average pool same": (
        IMAGE + "{ y = AveragePool<kernel_shape=[2,3], strides=[2,2], auto_pad=\"SAME_UPPER\">(x) }", IMAGES, 17),
    "max pool and place dilated columns": (
        TWO + "{ y, i = MaxPool<kernel_shape=[2,2], dilations=[2,1], pads=[1,0,1,0], storage_order=1>(x) }",
        IMAGES, 17),
    "max unpool": (
        IMAGE + "{ m, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) "
        "y = MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(m, i) }", EVEN_IMAGES, 17),
    "max of regions": (
        IMAGE + "{ r = Constant<value = float[3,5] {0.0,0.0,0.0,3.0,2.0, 0.0,1.0,1.0,9.0,9.0, "
        "0.0,2.0,0.0,2.0,0.0}>() y = MaxRoiPool<pooled_shape=[2,3], spatial_scale=0.75>(x, r) }",
        IMAGES, 17),
    "deformed": (
        IMAGE + "{ o = Conv<pads=[1,1,1,1], strides=[2,1]>(x, moves) "
        "y = DeformConv<pads=[1,1,1,1], strides=[2,1]>(x, weight, o, bias) }", IMAGES, 19),
    "deformed groups mask": (
        IMAGE + "{ o = Conv(x, more_moves) m = Conv(x, masks) "
        "y = DeformConv<group=2, offset_group=2>(x, paired, o, , m) }", IMAGES, 19),
    "columns to image": (
        "g (float[2, 8, 12] x) => (float[a, b, c, d] y) { i = Constant<value = int64[2] {5, 6}>() "
        "k = Constant<value = int64[2] {2, 2}>() y = Col2Im<strides=[2,1], dilations=[1,2], "
        "pads=[0,0,1,0]>(x, i, k) }", [{"x": (2, 8, 12)}], 18),
    "blocks side by side to image": (
        "g (float[2, 18, 68] x) => (float[a, b, c, d] y) { i = Constant<value = int64[2] {8, 51}>() "
        "k = Constant<value = int64[2] {2, 3}>() y = Col2Im<strides=[2,3]>(x, i, k) }",
        [{"x": (2, 18, 68)}], 18),
    "blocks side by side, and a rest": (
        "g (float[2, 8, 12] x) => (float[a, b, c, d] y) { i = Constant<value = int64[2] {7, 9}>() "
        "k = Constant<value = int64[2] {2, 2}>() y = Col2Im<strides=[2,2]>(x, i, k) }",
        [{"x": (2, 8, 12)}], 18),
    "average pool": (
        IMAGE + "{ y = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x) }", IMAGES, 17),
    "average pool counted": (
        IMAGE + "{ y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(x) }",
        IMAGES, 17),
    "average pool ceil": (
        IMAGE + "{ y = AveragePool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x) }", IMAGES, 17),
    "global average": (IMAGE + "{ y = GlobalAveragePool(x) }", IMAGES, 17),
    "resize nearest": (
        IMAGE + "{ s = Constant<value = float[4] {1.0, 1.0, 2.0, 3.0}>() y = Resize<mode=\"nearest\", "
        "coordinate_transformation_mode=\"asymmetric\", nearest_mode=\"floor\">(x, , s) }", IMAGES, 17),
    "resize linear half": (
        IMAGE + "{ s = Constant<value = float[4] {1.0, 1.0, 0.5, 1.5}>() "
        "y = Resize<mode=\"linear\">(x, , s) }", IMAGES, 17),
    "resize linear sizes": (
        IMAGE + "{ s = Constant<value = int64[4] {1, 4, 11, 6}>() i = Constant<value_int = 0>() "
        "h = Shape<start=0, end=1>(x) r = Constant<value = int64[3] {4, 11, 6}>() "
        "z = Concat<axis=0>(h, r) y = Resize<mode=\"linear\">(x, , , z) }", IMAGES, 17),
    "pad": (
        IMAGE + "{ p = Constant<value = int64[8] {0, 0, 1, 2, 0, 1, 0, 3}>() y = Pad(x, p) }", IMAGES, 17),
    "pad truth": (
        "g (bool[n] x) => (bool[m] y) { p = Constant<value_ints = [1, 2]>() v = Constant<value = bool {1}>() "
        "y = Pad(x, p, v) }", [{"x": 0}], 17),
    "pad wide integer": (
        "g (int64[n] x) => (int64[m] y) { p = Constant<value_ints = [1, 2]>() "
        "v = Constant<value_int = 4611686018427387905>() f = Pad(x, p, v) y = Sub(f, v) }", [{"x": 3}], 17),
    "pad reflect": (
        IMAGE + "{ p = Constant<value = int64[8] {0, 0, 1, 2, 0, 0, 2, 1}>() "
        "y = Pad<mode=\"reflect\">(x, p) }", IMAGES, 17),
    "pad reflect computed": (
        IMAGE + "{ z = Size(x) t = Constant<value = int64[1] {3}>() r = Mod(z, t) "
        "p = Constant<value = int64[8] {0, 0, 1, 2, 0, 0, 2, 1}>() w = Mul(p, r) "
        "y = Pad<mode=\"reflect\">(x, w) }", [{"x": (1, 4, 8, 9)}, {"x": (1, 4, 7, 8)}], 17),
    "pad edge computed": (
        IMAGE + "{ s = Shape<start=0, end=1>(x) z = Constant<value = int64[3] {0, 0, 0}>() "
        "p = Concat<axis=0>(z, s, z, s) y = Pad<mode=\"edge\">(x, p) }", IMAGES, 17),
    "pad wrap computed": (
        IMAGE + "{ s = Shape<start=0, end=1>(x) z = Constant<value = int64[2] {0, 0}>() "
        "p = Concat<axis=0>(z, s, s, z, s, s) y = Pad<mode=\"wrap\">(x, p) }", IMAGES, 19),
    "slice": (
        IMAGE + "{ s = Constant<value = int64[2] {-3, 1}>() e = Constant<value = int64[2] {9999999, -1}>() "
        "a = Constant<value = int64[2] {2, 3}>() y = Slice(x, s, e, a) }", IMAGES, 17),
    "slice backwards": (
        IMAGE + "{ s = Constant<value = int64[1] {-1}>() e = Constant<value = int64[1] {-9999999}>() "
        "a = Constant<value = int64[1] {3}>() t = Constant<value = int64[1] {-2}>() "
        "y = Slice(x, s, e, a, t) }", IMAGES, 17),
    "flatten": ("g (float[n, 4, h, w] x) => (float[a, b] y) { y = Flatten<axis=2>(x) }", IMAGES, 17),
    "reshape rest": (
        "g (float[n, 4, h, w] x) => (float[a, b, c] y) { s = Constant<value = int64[3] {0, 2, -1}>() "
        "y = Reshape(x, s) }", IMAGES, 17),
    "transpose": (IMAGE + "{ y = Transpose<perm=[0, 2, 3, 1]>(x) }", IMAGES, 17),
    "concat": (IMAGE + "{ a = Neg(x) y = Concat<axis=2>(x, a, x) }", IMAGES, 17),
    "depth to space": (IMAGE + "{ y = DepthToSpace<blocksize=2>(x) }", IMAGES, 17),
    "batch norm": (
        IMAGE + "{ s = Constant<value_floats=[1.0,2.0,3.0,4.0]>() y = BatchNormalization(x, s, s, s, s) }",
        IMAGES, 17),
    "instance norm": (
        IMAGE + "{ s = Constant<value_floats=[1.0,2.0,3.0,4.0]>() y = InstanceNormalization(x, s, s) }",
        IMAGES, 17),
    "layer norm": (ROW + "{ y = LayerNormalization(x, bias, bias) }", ROWS, 17),
    "layer norm of doubles, its statistics of floats": (
        "g (float[n, 6] x) => (double[a, b] y, float[c, d] mean, float[e, f] inverse) "
        "{ w = Cast<to=11>(x) s = Cast<to=11>(bias) y, mean, inverse = LayerNormalization(w, s) }", ROWS, 17),
    "matmul": (ROW + "{ y = MatMul(x, matrix) }", ROWS, 17),
    "gemm": (ROW + "{ y = Gemm<alpha=0.5>(x, matrix) }", ROWS, 17),
    "gemm transposed": (ROW + "{ y = Gemm<transA=1, transB=1>(x, x) }", [{"x": (6, 6)}], 17),
    "softmax": (ROW + "{ y = Softmax(x) }", ROWS, 17),
    "softmax old": (
        "g (float[n, 4, h, w] x) => (float[a, b, c, d] y) { y = Softmax<axis=1>(x) }", IMAGES, 11),
    "log softmax": (ROW + "{ y = LogSoftmax<axis=0>(x) }", ROWS, 17),
    "reduce": (ROW + "{ y = ReduceMean<axes=[0]>(x) }", ROWS, 17),
    "reduce log sum exp": (ROW + "{ y = ReduceLogSumExp<axes=[1], keepdims=1>(x) }", ROWS, 17),
    "hard swish": (ROW + "{ y = HardSwish(x) }", ROWS, 17),
    "clip": (ROW + "{ l = Constant<value_float=-0.5>() y = Clip(x, l) }", ROWS, 17),
    "clip from a computed bound": (
        ROW + "{ m = ReduceMax<keepdims=0>(x) h = Constant<value_float=0.25>() l = Mul(m, h) "
        "y = Clip(x, l, h) }", ROWS, 17),
    "batch that a recurrent state says": (
        "g (float[t, n, 2] x) => (float[u, v] y) { h = Constant<value = float[1, 1, 1] {0.5}>() "
        "w = Constant<value = float[1, 3, 2] {1, -1, 0.5, 2, 1, -0.5}>() "
        "r = Constant<value = float[1, 3, 1] {0.5, 1, -1}>() "
        "p = GRU<hidden_size=1>(x, w, r, , , h) o = Constant<value_ints=[1, 2]>() y = Squeeze(p, o) }",
        [{"x": (5, 1, 2)}, {"x": (2, 1, 2)}], 17),
    "where": (ROW + "{ z = Constant<value_float=0.0>() c = Less(x, z) y = Where(c, z, x) }", ROWS, 17),
    "gather": (ROW + "{ i = Constant<value_ints=[0, -1, 2]>() y = Gather<axis=1>(x, i) }", ROWS, 17),
    "gather from the end": (ROW + "{ i = Constant<value_ints=[-1, 0]>() y = Gather(x, i) }", ROWS, 17),
    "split": (ROW + "{ p, q = Split<axis=1>(x) y = Sub(p, q) }", ROWS, 17),
    "top k": (ROW + "{ k = Constant<value_ints=[3]>() y, i = TopK(x, k) }", ROWS, 17),
    "cumsum": (VECTOR + "{ a = Constant<value_int=0>() y = CumSum<reverse=1>(x, a) }", VECTORS, 17),
    "arg max": (ROW + "{ i = ArgMax<axis=1>(x) y = Cast<to=1>(i) }", ROWS, 17),
    "expand by its own shape": (
        "g (float[n] x) => (float[a, b] y) { s = Shape(x) k = Constant<value_ints=[3]>() "
        "t = Concat<axis=0>(k, s) y = Expand(x, t) }", VECTORS, 17),
    "range": (
        VECTOR + "{ s = Size(x) z = Constant<value_int=0>() d = Constant<value_int=2>() "
        "r = Range(z, s, d) y = Cast<to=1>(r) }", VECTORS, 17),
    "range down by a computed step": (
        "g (int32[1] x) => (int32[a] y) { f = Constant<value = int32 {9}>() l = Constant<value = int32 {-4}>() "
        "e = Constant<value = int64[1] {0}>() d = Squeeze(x, e) y = Range(f, l, d) }",
        [{"x": -3}, {"x": -1}, {"x": 2}], 17),
    "range up by a computed step": (
        "g (int64[1] x) => (int64[a] y) { f = Constant<value = int64 {-2}>() l = Constant<value = int64 {7}>() "
        "e = Constant<value = int64[1] {0}>() d = Squeeze(x, e) y = Range(f, l, d) }",
        [{"x": 4}, {"x": 3}, {"x": -1}], 17),
    "nonzero": (
        "g (float[n] x) => (int64[a, b] y) { r = Relu(x) y = NonZero(r) }", VECTORS, 17),
    "elements under a mask": (
        "g (float[a, b] x) => (float[m] y) { z = Constant<value_float=0.0>() g = Greater(x, z) n = NonZero(g) "
        "i = Transpose<perm=[1, 0]>(n) y = GatherND(x, i) }", ROWS, 17),
    "tile": (VECTOR + "{ s = Shape(x) y = Tile(x, s) }", VECTORS, 17),
    "einsum": (ROW + "{ y = Einsum<equation=\"ij,jk->ik\">(x, matrix) }", ROWS, 17),
    "pow of three": (ROW + "{ e = Constant<value_float=3.0>() y = Pow(x, e) }", ROWS, 17),
    "pow": (ROW + "{ a = Abs(x) e = Constant<value_float=1.7>() y = Pow(a, e) }", ROWS, 17),
    "conv transpose to a given shape": (
        IMAGE + "{ y = ConvTranspose<strides=[2,2], output_shape=[20, 19]>(x, wide) }", [{"x": (1, 4, 10, 9)}, {"x": (2, 4, 10, 9)}], 17),
    "conv transpose beyond its reach": (
        IMAGE + "{ y = ConvTranspose<strides=[2,2], output_shape=[21, 19], auto_pad=\"SAME_UPPER\">(x, wide) }",
        [{"x": (1, 4, 10, 9)}], 17),
    "power pool ceil": (
        IMAGE + "{ y = LpPool<kernel_shape=[3,2], strides=[2,3], ceil_mode=1, pads=[1,0,1,0]>(x) }", IMAGES, 18),
    "smaller by scales of opset 10": (
        IMAGE + "{ s = Constant<value = float[4] {1.0, 1.0, 0.6, 1.5}>() y = Resize<mode=\"nearest\">(x, s) }", IMAGES, 10),
    "mask of an old dropout": (IMAGE + "{ z, y = Dropout(x) }", IMAGES, 7),
    "top none": (
        "g (float[n, 6] x) => (float[a, b] y, int64[a, b] i) { k = Constant<value_ints=[0]>() y, i = TopK(x, k) }", ROWS, 17),
    "group norm by groups": (
        IMAGE + "{ s = Constant<value_floats=[1.0,2.0]>() y = GroupNormalization<num_groups=2>(x, s, s) }", IMAGES, 18),
    "reduce integers": (
        "g (int64[n] x) => (int64[a] y) { w = Constant<value_ints=[3, 4, 12]>() f = Concat<axis=0>(x, w) y = ReduceL2(f) }", [{"x": 2}], 18),
    "reshape by a chosen zero": (
        "g (float[n, m] x) => (float[a, b] y) { s = Shape(x) five = Constant<value_ints=[5]>() "
        "zero = Constant<value_ints=[0]>() e = Equal(s, five) t = Where(e, zero, s) y = Reshape(x, t) }",
        [{"x": (3, 5)}, {"x": (5, 5)}, {"x": (5, 4)}, {"x": (3, 4)}], 17),
    "skip layer norm": (
        "g (float[n, s, 6] x, float[n, s, 6] skip) => (float[a, b, c] y) "
        "{ y = com.microsoft.SkipLayerNormalization(x, skip, bias, bias, bias) }",
        [{"x": (2, 3, 6), "skip": (2, 3, 6)}], 17),
    "mod": (
        ROW + "{ k = Constant<value_float=0.3>() y = Mod<fmod=1>(x, k) }", ROWS, 17),
}  # fmt: skip


def data(rng, shape, model):
    """Of a shape; a number is the input itself, in its element type."""
    if isinstance(shape, tuple):
        return rng.standard_normal(shape, dtype="f4")
    elem_type = model.graph.input[0].type.tensor_type.elem_type
    return np.array([shape], onnx.helper.tensor_dtype_to_np_dtype(elem_type))


@pytest.mark.parametrize("name", CASES)
def test_agrees(name, sizes, make_model, run_model_once):
    import onnxruntime

    text, shapes, opset = CASES[name]
    used = {k: v for k, v in KERNELS.items() if re.search(rf"\b{k}\b", text)}
    model = make_model(sizes(text), opset, used)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    ours = run_model_once(model)
    rng = np.random.default_rng(7)
    for shape in shapes:
        feed = {k: data(rng, s, model) for k, s in shape.items()}
        for have, want in zip(ours(feed), peer.run(None, feed), strict=True):
            assert have.shape == want.shape and have.dtype == want.dtype, shape
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", HALVES)
def test_statistics_of_halves_are_floats(name, make_model, run_model_once):
    import onnxruntime

    body, opset = HALVES[name]
    rng = np.random.default_rng(0)
    model = make_model(
        f"g (float16[n, 64] x) => (float16[a, b] y) {{ {body} }}",
        opset,
        {"row": rng.standard_normal(64).astype("f2")} if "row" in body else None,
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    x = (300 * rng.standard_normal((3, 64))).astype("f2")
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    (have,) = run_model_once(model)({"x": x})
    assert np.isfinite(want).all() and have.dtype == want.dtype and have.shape == want.shape
    np.testing.assert_allclose(have.astype("f4"), want.astype("f4"), rtol=4e-3, atol=2e-3)


def test_a_slice_that_is_an_axis_by_cases(make_model, run_model_once):
    # max(2 s - 1, 0) - max(s - 1, 0) is s, as relative positions come to be in XLNet.
    text = """g (float[s, s] x) => (float[a, b] y) {
        n = Shape<end=1>(x) one = Constant<value_ints=[1]>() two = Constant<value_ints=[2]>()
        t = Mul(n, two) o = Sub(t, one) rows = Concat<axis=0>(n, o) f = Constant<value_float=2.0>() e = Expand(f, rows)
        before = Sub(n, one) end = Constant<value_ints=[9223372036854775807]>()
        part = Slice(e, before, end, one) y = Add(x, part)
    }"""
    run = run_model_once(make_model(text, 17))
    for size in (1, 2, 7):
        x = np.ones((size, size), "f4")
        np.testing.assert_array_equal(run({"x": x})[0], x + 2)


def test_axes_say_how_many_bounds_a_slice_has(make_model, run_model_once):
    # What TensorFlow's exporter writes in loops: a row of bounds out of a table, cut along both of its axes.
    text = """g (float[n, m] x, int64[k, 1] table, int64[2] first) => (float[a, b] y) {
        two = Constant<value_ints=[0, 1]>() width = Constant<value_ints=[1, 1]>() zero = Constant<value_ints=[0]>()
        last = Add(first, width) row = Slice(table, first, last, two) start = Squeeze(row, zero)
        end = Constant<value_ints=[9223372036854775807]>() y = Slice(x, start, end, zero)
    }"""
    run = run_model_once(make_model(text, 17))
    x, table = np.arange(12, dtype="f4").reshape(6, 2), np.array([[4], [2], [5]])
    for k, start in enumerate((4, 2, 5)):
        np.testing.assert_array_equal(
            run({"x": x, "table": table, "first": np.array([k, 0])})[0], x[start:]
        )


def test_an_empty_target_needs_an_empty_input(make_model, run_model_once):
    text = "g (float[n, m] x) => (float[a, b] y) { s = Constant<value_ints=[3, 0]>() y = Reshape<allowzero=1>(x, s) }"
    run = run_model_once(make_model(text, 17))
    assert run({"x": np.zeros((0, 5), "f4")})[0].shape == (3, 0)
    with pytest.raises(Exception, match="0"):
        run({"x": np.zeros((3, 5), "f4")})
