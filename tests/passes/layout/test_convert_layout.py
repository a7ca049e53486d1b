# SPDX-License-Identifier: Apache-2.0
"""ConvertLayout: convolutions in the wanted layout, neighbours that follow, conversions only where somebody asks."""

import numpy as np
import pytest
from pass_check import module

import relaxvm
from relaxvm import relax, tirx

LAST = {
    "relax.nn.conv2d": ["NHWC", "HWIO"],
    "relax.nn.conv2d_transpose": ["NHWC", "HWIO"],
}


def conv_chain(tail):
    """x -> conv -> tail -> conv, channels first, with symbolic batch and image size."""
    n, h, w = (tirx.Var(name, "int64") for name in "nhw")
    x = relax.Var("x", relax.TensorType([n, 3, h, w], "float32"))
    rng = np.random.default_rng(3)
    first, second = (
        relax.const(rng.random(s, dtype="float32")) for s in ((8, 3, 3, 3), (5, 8, 1, 1))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, first, padding=1))
            y = tail(y)
            out = builder.emit_output(relax.op.nn.conv2d(y, second))
        builder.emit_func_output(out)
    return builder.get()


def conv_branches():
    """x -> conv -> if flag: relu(conv(conv(.))) else conv(.) -> conv: values in the wanted layout cross every border."""
    n, h, w = (tirx.Var(name, "int64") for name in "nhw")
    x = relax.Var("x", relax.TensorType([n, 3, h, w], "float32"))
    flag = relax.Var("flag", relax.TensorType([], "bool"))
    rng = np.random.default_rng(4)
    first, inner = (
        relax.const(rng.random(s, dtype="float32")) for s in ((8, 3, 3, 3), (8, 8, 1, 1))
    )
    conv = relax.op.nn.conv2d
    builder = relax.BlockBuilder()
    with builder.function("main", [x, flag]):
        y = builder.emit(conv(x, first, padding=1))
        deep = relax.op.nn.relu(conv(conv(y, inner), inner))
        y = builder.emit(relax.If(flag, deep, conv(y, inner)))
        builder.emit_func_output(builder.emit(conv(y, inner)))
    return relax.transform.ConvertToDataflow(min_size=1)(builder.get())


def conversions(mod):
    """The lines that permute a value with the symbolic batch: no weights, no broadcast operands."""
    return [s for s in mod.script().splitlines() if "R.permute_dims(" in s and "R.Tensor((n, " in s]


def sizes(y):
    return list(y.ty.shape)


def shuffle(y, groups=2):
    """ShuffleNet's channel shuffle."""
    n, c, h, w = sizes(y)
    y = relax.op.reshape(y, [n, groups, 8 // groups, h, w])
    y = relax.op.permute_dims(y, [0, 2, 1, 3, 4])
    return relax.op.reshape(y, [n, c, h, w])


def pixels(y, split=True):
    """Channels to pixels (`split`) or pixels to channels, as ONNX's DepthToSpace and SpaceToDepth are written."""
    n, _, h, w = sizes(y)
    if split:
        y = relax.op.concat([y, y, y, y], axis=1)
        y = relax.op.permute_dims(relax.op.reshape(y, [n, 8, 2, 2, h, w]), [0, 1, 4, 2, 5, 3])
        return relax.op.reshape(y, [n, 8, h * 2, w * 2])
    y = relax.op.image.resize2d(y, relax.ShapeExpr([h * 2, w * 2]), method="nearest_neighbor")
    y = relax.op.permute_dims(relax.op.reshape(y, [n, 8, h, 2, w, 2]), [0, 3, 5, 1, 2, 4])
    return relax.op.strided_slice(relax.op.reshape(y, [n, 32, h, w]), [1], [0], [8])


def focus(y):
    """Every other pixel of rows and columns, as channels."""
    y = relax.op.nn.pad(y, [0, 0, 0, 0, 1, 1, 1, 1])
    corners = [
        relax.op.strided_slice(y, [2, 3], [a, b], [6, 6], [2, 2]) for a, b in ((0, 0), (1, 0))
    ]
    return relax.op.strided_slice(relax.op.concat(corners, axis=1), [1], [4], [12])


def padded(y):
    """As many pixels as make height and width even, and some more."""
    h, w = sizes(y)[2:]
    return relax.op.rvm.pad(y, [0, 0, h % 2, 1], [0, 0, 2, w % 2], relax.const(2.0, "float32"))


def excite(y):
    """Squeeze and excitation, with the squeezed tensor in two axes on its way."""
    n = sizes(y)[0]
    s = relax.op.squeeze(relax.op.nn.avg_pool2d(relax.op.mean(y, [2, 3], keepdims=True)), [2, 3])
    s = relax.op.reshape(relax.op.sigmoid(s), [n, 8, 1, 1])
    return relax.op.multiply(y, s)


def tokens(y):
    """Pixels in a row, a layer norm over channels, and back."""
    n, c, h, w = sizes(y)
    t = relax.op.permute_dims(relax.op.reshape(y, [n, c, h * w]), [0, 2, 1])
    ones = relax.const(np.ones(8, "float32"))
    t = relax.op.nn.layer_norm(t, ones, ones, axes=[-1])
    return relax.op.add(y, relax.op.reshape(relax.op.permute_dims(t, [0, 2, 1]), [n, c, h, w]))


def joined(y):
    a, b = relax.op.split(y, 2, axis=1)[0], relax.op.split(y, 2, axis=1)[1]
    return relax.op.concat([relax.op.nn.leakyrelu(b), a], axis=1)


def batch_norm(y):
    ones = relax.const(np.ones(8, "float32"))
    return relax.op.nn.batch_norm(y, ones, ones, ones, ones, axis=1)[0]


def heads(y):
    """Attention over channels in groups, as an einsum."""
    n, c, h, w = sizes(y)
    q = relax.op.reshape(y, [n, 2, 4, h * w])
    scores = relax.op.nn.softmax(relax.op.einsum((q, q), "nhcx,nhdx->nhcd"))
    return relax.op.reshape(relax.op.einsum((scores, q), "nhcd,nhdx->nhcx"), [n, c, h, w])


def norm(kind, **attrs):
    ones = relax.const(np.ones(8, "float32"))
    function = getattr(relax.op.nn, kind)
    return lambda y: function(y, ones, ones, channel_axis=1, axes=[2, 3], **attrs)


def residual(y):
    plain = relax.op.image.resize2d(y, relax.ShapeExpr(sizes(y)[2:]), method="nearest_neighbor")
    up = relax.op.nn.conv2d_transpose(
        relax.op.nn.max_pool2d(y, pool_size=1),
        relax.const(np.full((8, 8, 1, 1), 0.5, "float32")),
    )
    return relax.op.add(plain, up)


# What stands between two convolutions, and how many conversions it takes.
TAILS = {
    "nothing": (lambda y: y, 0),
    "relu": (relax.op.nn.relu, 0),
    "bias": (lambda y: relax.op.add(y, relax.const(np.ones((8, 1, 1), "float32"))), 0),
    "scalar": (lambda y: relax.op.multiply(y, relax.const(2.0, "float32")), 0),
    "pool": (lambda y: relax.op.nn.max_pool2d(y, pool_size=3, padding=1), 0),
    "concat": (
        lambda y: relax.op.strided_slice(relax.op.concat([y, y], axis=1), [1], [0], [8]),
        0,
    ),
    "softmax": (lambda y: relax.op.nn.softmax(y, axis=1), 0),
    "mean": (lambda y: relax.op.multiply(y, relax.op.mean(y, axis=[2, 3], keepdims=True)), 0),
    "shuffle": (shuffle, 1),  # which moves channels
    "depth_to_space": (pixels, 1),
    "space_to_depth": (lambda y: pixels(y, split=False), 1),
    "focus": (focus, 0),
    "excite": (excite, 0),
    "tokens": (tokens, 0),
    "joined": (joined, 0),
    "batch_norm": (batch_norm, 0),
    "instance_norm": (norm("instance_norm"), 0),
    "group_norm": (norm("group_norm", num_groups=2), 0),
    "reflect": (lambda y: relax.op.nn.pad(y, [0, 0, 0, 0, 1, 2, 2, 1], pad_mode="reflect"), 0),
    "padded by dimensions": (padded, 0),
    "repeated": (
        lambda y: relax.op.broadcast_to(relax.op.mean(y, [2, 3], keepdims=True), sizes(y)),
        0,
    ),
    "argmax": (
        lambda y: relax.op.add(y, relax.op.astype(relax.op.argmax(y, 1, True), "float32")),
        0,
    ),
    "cumsum": (lambda y: relax.op.cumsum(y, axis=1), 0),
    "heads": (heads, 1),  # einsum reads any order and gives the plain one
    "residual": (residual, 0),
}


@pytest.mark.parametrize("tail", TAILS)
def test_result_is_the_same(tail):
    mod = conv_chain(TAILS[tail][0])
    x = np.random.default_rng(1).random((2, 3, 6, 7), dtype="float32")
    results = []
    for passes in ([], [relax.transform.ConvertLayout(LAST)]):
        converted = mod
        for p in passes:
            converted = p(converted)
        vm = relax.VirtualMachine(relaxvm.compile(converted, relax_pipeline="zero"), relaxvm.cpu())
        results.append(vm["main"](relaxvm.runtime.tensor(x)).numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("flag", [True, False])
def test_branches_are_converted(flag):
    converted = relax.transform.ConvertLayout(LAST)(conv_branches())
    assert converted.script().count('data_layout="NHWC"') == 5
    assert relax.analysis.well_formed(converted)
    x = relaxvm.runtime.tensor(np.random.default_rng(1).random((2, 3, 6, 7), dtype="float32"))
    results = []
    for mod in (conv_branches(), converted):
        vm = relax.VirtualMachine(relaxvm.compile(mod, relax_pipeline="zero"), relaxvm.cpu())
        results.append(vm["main"](x, relaxvm.runtime.tensor(np.array(flag))).numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("tail", TAILS)
def test_only_the_ends_are_converted(tail):
    mod = relax.transform.ConvertLayout(LAST)(conv_chain(TAILS[tail][0]))
    for cleanup in (relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()):
        mod = cleanup(mod)
    assert relax.analysis.well_formed(mod)
    assert len(conversions(mod)) == 2 + TAILS[tail][1]


@pytest.mark.parametrize("result", ["flat", "tokens", "pixels"])
def test_results_that_are_reshaped_are_converted_once(result):
    """Behind the last convolution: flattened, in a row with channels last, and as finer pixels."""
    n, h, w = (tirx.Var(name, "int64") for name in "nhw")
    x = relax.Var("x", relax.TensorType([n, 3, h, w], "float32"))
    weight = relax.const(np.random.default_rng(2).random((12, 3, 3, 3), dtype="float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, weight, padding=1))
            if result == "flat":
                y = relax.op.reshape(y, [n, h * w * 12])
            elif result == "tokens":
                y = relax.op.permute_dims(relax.op.reshape(y, [n, 12, h * w]), [0, 2, 1])
            else:
                y = relax.op.reshape(y, [n, 3, 2, 2, h, w])
                y = relax.op.permute_dims(y, [0, 1, 4, 2, 5, 3])
                y = relax.op.reshape(y, [n, 3, h * 2, w * 2])
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    mod = builder.get()
    converted = relax.transform.ConvertLayout(LAST)(mod)
    for cleanup in (relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()):
        converted = cleanup(converted)
    assert len(conversions(converted)) == {"flat": 2, "tokens": 1, "pixels": 2}[result]
    values = relaxvm.runtime.tensor(np.random.default_rng(1).random((2, 3, 4, 5), dtype="float32"))
    results = [
        relax.VirtualMachine(relaxvm.compile(m, relax_pipeline="zero"), relaxvm.cpu())["main"](
            values
        )
        for m in (mod, converted)
    ]
    np.testing.assert_allclose(results[1].numpy(), results[0].numpy(), rtol=1e-5, atol=1e-5)


def test_operators_without_a_wanted_layout_stay():
    mod = conv_chain(TAILS["relu"][0])
    converted = relax.transform.ConvertLayout({"relax.nn.conv1d": ["NWC", "WIO"]})(mod)
    relaxvm.ir.assert_structural_equal(converted, mod)


def test_sizes_that_are_matched_between_convolutions_convert_nothing_there():
    n, h, w = (tirx.Var(name, "int64") for name in "nhw")
    x = relax.Var("x", relax.TensorType([n, 8, h, w], "float32"))
    weight = relax.const(np.ones((8, 8, 3, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, weight, strides=2, padding=1))
            y = builder.match_cast(y, relax.TensorType([n, 8, h // 2, w // 2], "float32"))
            out = builder.emit_output(relax.op.nn.conv2d(y, weight))
        builder.emit_func_output(out)
    converted = relax.transform.ConvertLayout(LAST)(builder.get())
    assert len(conversions(converted)) == 2  # of the parameter and of the result
    assert relaxvm.relax.analysis.well_formed(converted)


def test_permuted_results_that_no_later_block_reads_stay_inside() -> None:
    after = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(
        module("""
@R.function
def main(x: R.Tensor((2, 3, 28, 28), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
    with R.dataflow():
        gv = R.nn.conv2d(x, w)
        R.output(gv)
    return gv
""")
    )
    bindings = after["main"].body.blocks[0].bindings
    seen = [b.var for b in bindings if not isinstance(b.var, relax.DataflowVar)]
    assert len(seen) == 1 and seen[0].same_as(after["main"].body.body)
    assert bindings[-1].value.op.name == "relax.permute_dims"


@pytest.mark.parametrize(("axes", "follows"), [([0, 2, 3, 1], True), ([0, 1, 3, 2], False)])
def test_regions_follow_the_layouts_that_they_know(axes, follows):
    """Behind a permutation: channels last are read as they are, exchanged height and width are not."""
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n, 3, 9, 8], "float32"))
    rows = relax.Var("rows", relax.TensorType([4, 5], "float32"))
    weight = relax.const(np.random.default_rng(5).random((8, 3, 3, 3), dtype="float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, rows]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, weight, padding=1))
            if not follows:
                y = builder.emit(relax.op.permute_dims(y, axes))
            y = relax.op.vision.roi_align(y, rows, pooled_size=2, spatial_scale=1.0)
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    before = builder.get()
    after = relax.transform.ConvertLayout(LAST)(before)
    assert ('layout="NHWC"' in after.script().split("roi_align")[1]) == follows
    data = np.random.default_rng(6).random((2, 3, 9, 8), dtype="float32")
    boxes = np.float32([[0, 1, 1, 6, 5], [1, 0, 0, 3, 3], [1, 2, 2, 8, 8], [0, 3, 1, 4, 7]])
    results = []
    for mod in (before, after):
        vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
        results.append(vm["main"](*map(relaxvm.runtime.tensor, (data, boxes))).numpy())
    np.testing.assert_allclose(*results, rtol=1e-5)
