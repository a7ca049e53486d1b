# SPDX-License-Identifier: Apache-2.0
"""Random networks of the blocks that real ones have, always the same for a seed: pictures [b, channels, h, w] go
through convolutions, sequences [b, n, width] through attention.

The sizes of the inputs are numbers or names; each block keeps pictures large enough for the next one.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
from onnx import TensorProto, helper
from random_graphs import Builder

OPSET = 20
PICTURES: list = []
SEQUENCES: list = []
CHANNELS = [3, 4, 8, 12, 16, 20, 24, 32, 33, 40, 48, 64]


@dataclasses.dataclass(frozen=True)
class Picture:
    name: str
    channels: int
    size: int  # what its shorter side surely has


@dataclasses.dataclass(frozen=True)
class Sequence:
    name: str
    width: int


def picture(function):
    PICTURES.append(function)
    return function


def sequence(function):
    SEQUENCES.append(function)
    return function


# ---- parts


def activated(b: Builder, x: str, channels: int = 0) -> str:
    def swish():
        return b.node("Mul", x, b.node("Sigmoid", x))

    def gelu():
        inner = b.node("Erf", b.node("Div", x, b.constant(np.sqrt(2), "float32")))
        half = b.node("Mul", x, b.node("Add", inner, b.constant(1, "float32")))
        return b.node("Mul", half, b.constant(0.5, "float32"))

    def gelu_by_tanh():
        cube = b.node("Mul", b.node("Mul", x, x), x)
        inner = b.node("Add", x, b.node("Mul", cube, b.constant(0.044715, "float32")))
        wave = b.node("Tanh", b.node("Mul", inner, b.constant(np.sqrt(2 / np.pi), "float32")))
        half = b.node("Mul", x, b.constant(0.5, "float32"))
        return b.node("Mul", half, b.node("Add", wave, b.constant(1, "float32")))

    forms = [
        lambda: x,
        lambda: b.node("Relu", x),
        lambda: b.node("Clip", x, b.constant(0, "float32"), b.constant(6, "float32")),
        lambda: b.node("HardSwish", x),
        lambda: b.node("LeakyRelu", x, alpha=0.1),
        lambda: b.node("Mul", x, b.node("Tanh", b.node("Softplus", x))),
        lambda: b.node("Elu", x),
        swish,
        gelu,
        gelu_by_tanh,
        lambda: b.node("Gelu", x),
    ]
    if channels:
        forms.append(lambda: b.node("PRelu", x, b.weight(channels, 1, 1)))
    return b.pick(forms)()


def conv(b: Builder, x: Picture, out: int, kernel: int = 1, stride: int = 1, groups: int = 1, **more) -> Picture:  # fmt: skip
    """Of the same size but for its stride; normalised at times."""
    weights = [b.weight(out, x.channels // groups, kernel, kernel)]
    if b.chance(0.7):
        weights.append(b.weight(out))
    pad = (kernel - 1) // 2
    if b.chance(0.1) and kernel > 1:
        sides = b.constant([0, 0, pad, pad, 0, 0, pad, pad], "int64")
        name = b.node("Pad", x.name, sides, mode=b.pick(["constant", "reflect"]))
        form = {}
    else:
        name, form = x.name, {"pads": [pad] * 4}
    y = b.node(
        "Conv",
        name,
        *weights,
        strides=[stride] * 2,
        group=groups,
        kernel_shape=[kernel] * 2,
        **form,
    )
    if b.chance(0.4):
        scale, shift, mean = b.weight(out), b.weight(out), b.weight(out)
        variance = b.constant(b.rng.random(out) + 0.5, "float32")
        y = b.node("BatchNormalization", y, scale, shift, mean, variance)
    return Picture(y, out, -(-x.size // stride))


def act(b: Builder, x: Picture) -> Picture:
    return dataclasses.replace(x, name=activated(b, x.name, x.channels))


def strides_of(b: Builder, x: Picture) -> int:
    return 2 if x.size >= 14 and b.chance(0.3) else 1


# ---- pictures


@picture
def plain(b, x):
    return act(b, conv(b, x, b.pick(CHANNELS), b.pick([1, 1, 3, 3, 5, 7]), strides_of(b, x)))


@picture
def grouped(b, x):
    groups = b.pick([g for g in (1, 2, 4, 8, x.channels) if x.channels % g == 0])
    out = x.channels * b.pick([1, 1, 2])
    return act(b, conv(b, x, out, b.pick([3, 5, 7]), strides_of(b, x), groups))


@picture
def residual(b, x):
    inner = act(b, conv(b, x, b.pick(CHANNELS)))
    inner = act(b, conv(b, inner, b.pick(CHANNELS), 3))
    outer = conv(b, inner, x.channels)
    return act(b, dataclasses.replace(x, name=b.node("Add", outer.name, x.name)))


@picture
def inverted(b, x):
    wide = act(b, conv(b, x, x.channels * b.pick([2, 3, 4])))
    wide = act(b, conv(b, wide, wide.channels, b.pick([3, 5]), 1, wide.channels))
    if b.chance(0.5):
        wide = squeezed(b, wide)
    narrow = conv(b, wide, x.channels)
    return dataclasses.replace(x, name=b.node("Add", x.name, narrow.name))


@picture
def squeezed(b, x):
    pooled = b.pick(
        [
            lambda: b.node("GlobalAveragePool", x.name),
            lambda: b.node("ReduceMean", x.name, b.constant([2, 3], "int64"), keepdims=1),
        ]
    )()
    inner = max(x.channels // 4, 1)
    small = b.node("Conv", pooled, b.weight(inner, x.channels, 1, 1), b.weight(inner))
    small = b.node("Conv", b.node("Relu", small), b.weight(x.channels, inner, 1, 1))
    gate = b.node(b.pick(["Sigmoid", "HardSigmoid"]), small)
    return dataclasses.replace(x, name=b.node("Mul", *b.pick([(x.name, gate), (gate, x.name)])))


@picture
def branches(b, x):
    parts = [conv(b, x, b.pick(CHANNELS[:8]), k) for k in (1, b.pick([3, 5]))]
    kind = b.pick(["MaxPool", "AveragePool"])
    pooled = b.node(kind, x.name, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    parts.append(conv(b, Picture(pooled, x.channels, x.size), b.pick(CHANNELS[:8])))
    if b.chance(0.5):
        parts.append(x)
    names = [activated(b, p.name) for p in parts]
    joined = b.node("Concat", *names, axis=1)
    return Picture(joined, sum(p.channels for p in parts), x.size)


@picture
def shuffled(b, x):
    groups = b.pick([g for g in (2, 4) if x.channels % g == 0] or [1])
    if b.chance(0.5):
        shape = [0, groups, x.channels // groups, -1]
        y = b.node("Reshape", x.name, b.constant(shape, "int64"))
        y = b.node("Transpose", y, perm=[0, 2, 1, 3])
        size = b.node("Shape", x.name)
        y = b.node("Reshape", y, size)
        return dataclasses.replace(x, name=y)
    if x.channels % 2:
        return None
    half = x.channels // 2
    left = b.node("Split", x.name, b.constant([half, half], "int64"), outputs=2, axis=1)
    right = left[:-1] + "1"
    moved = act(b, conv(b, Picture(right, half, x.size), half, 3, 1, b.pick([1, half])))
    return dataclasses.replace(x, name=b.node("Concat", left, moved.name, axis=1))


@picture
def pooled(b, x):
    if x.size < 8:
        return None
    kernel, stride, ceil = b.pick([(2, 2, 0), (3, 2, 0), (3, 1, 0), (3, 2, 1), (5, 1, 0)])
    pad = [kernel // 2 if kernel > 2 else 0] * 4
    kind = b.pick(["MaxPool", "AveragePool"])
    y = b.node(kind, x.name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pad, ceil_mode=ceil)  # fmt: skip
    return Picture(y, x.channels, x.size // stride)


@picture
def enlarged(b, x):
    if x.size > 20:
        return None
    scales = b.constant([1, 1, 2, 2], "float32")

    def resized():
        mode = b.pick(
            [("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")]
        )
        extra = {"nearest_mode": "floor"} if mode[0] == "nearest" else {}
        return b.node("Resize", x.name, "", scales, mode=mode[0], coordinate_transformation_mode=mode[1], **extra)  # fmt: skip

    def transposed():
        kernel = b.pick([2, 4])
        return b.node(
            "ConvTranspose", x.name, b.weight(x.channels, x.channels, kernel, kernel), b.weight(x.channels),
            strides=[2, 2], pads=[(kernel - 2) // 2] * 4,
        )  # fmt: skip

    def pixels():
        wide = conv(b, x, 4 * x.channels)
        return b.node("DepthToSpace", wide.name, blocksize=2, mode=b.pick(["DCR", "CRD"]))

    y = Picture(b.pick([resized, transposed, pixels])(), x.channels, 2 * x.size)
    if b.chance(0.5):  # beside what is as large
        beside = act(b, conv(b, y, b.pick(CHANNELS[:6]), 3))
        joined = b.node("Concat", y.name, beside.name, axis=1)
        return Picture(joined, y.channels + beside.channels, y.size)
    return y


@picture
def focused(b, x):
    """Every other row and column."""
    if x.size < 16 or x.channels > 16:
        return None
    two, axes = b.constant([2, 2], "int64"), b.constant([2, 3], "int64")
    end = b.constant([1 << 40, 1 << 40], "int64")
    even = b.node("MaxPool", x.name, kernel_shape=[2, 2], strides=[2, 2])
    corner = b.node("Slice", x.name, b.constant([0, 0], "int64"), end, axes, two)
    cut = b.node("Shape", even, start=2)
    corner = b.node("Slice", corner, b.constant([0, 0], "int64"), cut, axes)
    return Picture(b.node("Concat", even, corner, axis=1), 2 * x.channels, x.size // 2)


@picture
def normalised_last(b, x):
    """As in ConvNeXt."""
    y = conv(b, x, x.channels, 7, 1, x.channels)
    rows = b.node("Transpose", y.name, perm=[0, 2, 3, 1])
    rows = b.node("LayerNormalization", rows, b.weight(x.channels), b.weight(x.channels))
    wide = b.node("Add", b.node("MatMul", rows, b.weight(x.channels, 2 * x.channels)), b.weight(2 * x.channels))  # fmt: skip
    narrow = b.node("MatMul", activated(b, wide), b.weight(2 * x.channels, x.channels))
    scaled = b.node("Mul", narrow, b.weight(x.channels))
    back = b.node("Transpose", scaled, perm=[0, 3, 1, 2])
    return dataclasses.replace(x, name=b.node("Add", x.name, back))


@picture
def normalised_in_groups(b, x):
    groups = b.pick([g for g in (1, 2, 4, x.channels) if x.channels % g == 0])
    shape = b.node("Shape", x.name)
    flat = b.node("Reshape", x.name, b.constant([0, groups, -1], "int64"))
    ones, zeros = b.constant(np.ones(groups), "float32"), b.constant(np.zeros(groups), "float32")
    flat = b.node("InstanceNormalization", flat, ones, zeros)
    y = b.node("Mul", b.node("Reshape", flat, shape), b.weight(x.channels, 1, 1))
    y = b.node("Add", y, b.weight(x.channels, 1, 1))
    return act(b, dataclasses.replace(x, name=y))


def _scale_of(b, low=0.01, high=0.06):
    return b.constant(b.rng.uniform(low, high), "float32")


def requantised(b: Builder, x: str) -> str:
    zero = b.constant(b.rng.integers(100, 156), "uint8")
    scale = _scale_of(b)
    return b.node("DequantizeLinear", b.node("QuantizeLinear", x, scale, zero), scale, zero)


@picture
def in_bytes(b, x):
    kernel, groups = b.pick([(1, 1), (3, 1), (3, x.channels)])
    out = x.channels if groups > 1 else b.pick(CHANNELS)
    shape = (out, x.channels // groups, kernel, kernel)
    codes = b.constant(b.rng.integers(-127, 128, shape), "int8")
    scales = b.constant(
        b.rng.uniform(0.5, 1.5, out) / (127 * np.sqrt(np.prod(shape[1:]))), "float32"
    )
    weights = b.node("DequantizeLinear", codes, scales, b.constant(np.zeros(out), "int8"), axis=0)
    y = b.node("Conv", requantised(b, x.name), weights, b.weight(out), pads=[kernel // 2] * 4, group=groups)  # fmt: skip
    if b.chance(0.5):
        y = b.node("Relu", y)
    y = requantised(b, y)
    if out == x.channels and b.chance(0.5):
        y = requantised(b, b.node("Add", y, x.name))
    return Picture(y, out, x.size)


@picture
def as_sequence(b, x):
    y = b.node("Reshape", x.name, b.constant([0, x.channels, -1], "int64"))
    return Sequence(b.node("Transpose", y, perm=[0, 2, 1]), x.channels)


# ---- sequences


def dense(b: Builder, x: str, width: int, out: int) -> str:
    if b.chance(0.2):
        y = b.node("MatMul", x, b.node("Transpose", b.weight(out, width), perm=[1, 0]))
    else:
        y = b.node("MatMul", x, b.constant(b.rng.standard_normal((width, out)) / np.sqrt(width), "float32"))  # fmt: skip
    return b.node("Add", *b.pick([(y, b.weight(out)), (b.weight(out), y)])) if b.chance(0.8) else y


def normalised(b: Builder, x: str, width: int) -> str:
    scale = b.constant(b.rng.uniform(0.5, 1.5, width), "float32")
    last = b.constant([-1], "int64")
    kind = b.pick(["operator", "written out", "root"])
    if kind == "operator":
        return b.node("LayerNormalization", x, scale, b.weight(width))
    if kind == "root":
        square = b.node("ReduceMean", b.node("Pow", x, b.constant(2, "float32")), last, keepdims=1)
        root = b.node("Sqrt", b.node("Add", square, b.constant(1e-5, "float32")))
        inverse = b.node("Reciprocal", root)
        return b.node("Mul", scale, b.node("Mul", x, inverse))
    centred = b.node("Sub", x, b.node("ReduceMean", x, last, keepdims=1))
    square = b.node(
        "ReduceMean", b.node("Pow", centred, b.constant(2, "float32")), last, keepdims=1
    )
    root = b.node("Sqrt", b.node("Add", square, b.constant(1e-5, "float32")))
    return b.node("Add", b.node("Mul", b.node("Div", centred, root), scale), b.weight(width))


def heads_of(b: Builder, x: str, heads: int, depth: int, perm: list[int]) -> str:
    y = b.node("Reshape", x, b.constant([0, 0, heads, depth], "int64"))
    return b.node("Transpose", y, perm=perm)


@sequence
def attended(b, x):
    heads = b.pick([h for h in (1, 2, 3, 4, 8) if x.width % h == 0])
    depth = x.width // heads
    inner = normalised(b, x.name, x.width) if b.chance(0.6) else x.name
    form = b.pick(["apart", "joined", "few keys"])
    keys = heads
    if form == "joined":
        packed = dense(b, inner, x.width, 3 * x.width)
        packed = b.node("Reshape", packed, b.constant([0, 0, 3, heads, depth], "int64"))
        packed = b.node("Transpose", packed, perm=[2, 0, 3, 1, 4])
        q, k, v = (b.node("Gather", packed, b.constant(i, "int64"), axis=0) for i in range(3))
        k = b.node("Transpose", k, perm=[0, 1, 3, 2])
    else:
        if form == "few keys":
            keys = b.pick([d for d in range(1, heads + 1) if heads % d == 0])
        q = heads_of(b, dense(b, inner, x.width, x.width), heads, depth, [0, 2, 1, 3])
        k = heads_of(b, dense(b, inner, x.width, keys * depth), keys, depth, [0, 2, 3, 1])
        v = heads_of(b, dense(b, inner, x.width, keys * depth), keys, depth, [0, 2, 1, 3])
        if keys != heads:  # repeated for the heads that share them
            length = b.node("Shape", inner, start=1, end=2)
            batch = b.node("Shape", inner, start=0, end=1)
            number = lambda i: b.constant([i], "int64")

            def repeated(y, shape):
                apart = b.node("Unsqueeze", y, number(2))
                wide = b.node("Concat", batch, number(keys), number(heads // keys), *shape, axis=0)
                flat = b.node("Concat", batch, number(heads), *shape, axis=0)
                return b.node("Reshape", b.node("Expand", apart, wide), flat)

            k = repeated(k, (number(depth), length))
            v = repeated(v, (length, number(depth)))
    scale = b.constant(1 / np.sqrt(depth), "float32")
    where = b.pick(["query", "scores", "divided"])
    if where == "query":
        q = b.node("Mul", q, scale)
    scores = b.node("MatMul", q, k)
    if where == "scores":
        scores = b.node("Mul", scores, scale)
    if where == "divided":
        scores = b.node("Div", scores, b.constant(np.sqrt(depth), "float32"))
    scores = masked(b, scores)
    weights = b.node("Softmax", scores, axis=-1)
    y = b.node("Transpose", b.node("MatMul", weights, v), perm=[0, 2, 1, 3])
    y = b.node("Reshape", y, b.constant([0, 0, x.width], "int64"))
    return Sequence(b.node("Add", x.name, dense(b, y, x.width, x.width)), x.width)


def masked(b: Builder, scores: str) -> str:
    kind = b.pick(["none", "none", "causal", "chosen", "added"])
    if kind == "none":
        return scores
    length = b.node("Shape", scores, start=2, end=3)
    square = b.node("Concat", length, length, axis=0)
    ones = b.node("ConstantOfShape", square, value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1]))  # fmt: skip
    low = b.node("Trilu", ones, upper=0)
    if kind == "chosen":
        truth = b.node("Cast", low, to=TensorProto.BOOL)
        return b.node("Where", truth, scores, b.constant(-1e9, "float32"))
    penalty = b.node("Mul", b.node("Sub", low, b.constant(1, "float32")), b.constant(10000, "float32"))  # fmt: skip
    if kind == "added":
        penalty = b.node("Unsqueeze", penalty, b.constant([0, 1], "int64"))
    return b.node("Add", scores, penalty)


@sequence
def widened(b, x):
    inner = normalised(b, x.name, x.width) if b.chance(0.6) else x.name
    wide = x.width * b.pick([1, 2, 4])
    y = activated(b, dense(b, inner, x.width, wide))
    if b.chance(0.3):
        y = b.node("Mul", y, dense(b, inner, x.width, wide))
    return Sequence(b.node("Add", x.name, dense(b, y, wide, x.width)), x.width)


@sequence
def changed(b, x):
    out = b.pick([8, 16, 24, 32, 33, 48, 64, 96])
    return Sequence(activated(b, dense(b, x.name, x.width, out)), out)


@sequence
def recurrent(b, x):
    hidden, both = b.pick([4, 8, 16, 20]), b.chance(0.5)
    kind = b.pick(["LSTM", "GRU", "RNN"])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * hidden
    sides = 2 if both else 1
    y = b.node("Transpose", x.name, perm=[1, 0, 2])
    more = {"linear_before_reset": int(b.chance(0.5))} if kind == "GRU" else {}
    y = b.node(
        kind, y, b.weight(sides, gates, x.width), b.weight(sides, gates, hidden), b.weight(sides, 2 * gates),
        hidden_size=hidden, direction="bidirectional" if both else b.pick(["forward", "reverse"]), **more,
    )  # fmt: skip
    y = b.node("Transpose", y, perm=[2, 0, 1, 3])
    return Sequence(b.node("Reshape", y, b.constant([0, 0, -1], "int64")), sides * hidden)


@sequence
def convolved(b, x):
    out, kernel, groups = b.pick([8, 16, 24]), b.pick([1, 3, 5, 9]), 1
    if b.chance(0.4):
        out, groups = x.width, x.width
    y = b.node("Transpose", x.name, perm=[0, 2, 1])
    y = b.node("Conv", y, b.weight(out, x.width // groups, kernel), b.weight(out), pads=[kernel // 2] * 2, group=groups)  # fmt: skip
    y = activated(b, y)
    return Sequence(b.node("Transpose", y, perm=[0, 2, 1]), out)


@sequence
def placed(b, x):
    """Rows of a table, one for each place."""
    table = b.constant(b.rng.standard_normal((1, 4096, x.width)) / 4, "float32")
    length = b.node("Shape", x.name, start=1, end=2)
    rows = b.node("Slice", table, b.constant([0], "int64"), length, b.constant([1], "int64"))
    return Sequence(b.node("Add", x.name, rows), x.width)


@sequence
def multiplied_in_bytes(b, x):
    out = b.pick([8, 16, 32, 40])
    codes = b.constant(b.rng.integers(-127, 128, (x.width, out)), "int8")
    quantised = b.node("DynamicQuantizeLinear", x.name, outputs=3)
    scale, zero = quantised[:-1] + "1", quantised[:-1] + "2"
    sums = b.node("MatMulInteger", quantised, codes, zero)
    factor = b.node("Mul", scale, b.constant(b.rng.uniform(0.5, 1.5) / (127 * np.sqrt(x.width)), "float32"))  # fmt: skip
    real = b.node("Mul", b.node("Cast", sums, to=TensorProto.FLOAT), factor)
    return Sequence(b.node("Add", real, b.weight(out)), out)


@sequence
def first_beside_mean(b, x):
    """The first place, and what all have in common, for each place."""
    first = b.node("Gather", x.name, b.constant([0], "int64"), axis=1)
    mean = b.node("ReduceMean", x.name, b.constant([1], "int64"), keepdims=1)
    both = b.node("Concat", first, mean, axis=2)
    y = activated(b, dense(b, both, 2 * x.width, x.width))
    return Sequence(b.node("Mul", x.name, b.node("Sigmoid", y)), x.width)


# ---- networks


def network_of(seed: int, blocks: int = 5) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """A model and what it is fed with.  Sizes are open in three of four."""
    b = Builder(seed)
    of_pictures = b.chance(0.6)
    is_known = b.chance(0.25)
    if of_pictures:
        x = Picture("x", b.pick([1, 3, 4, 16]), 16)
        shapes = [(1, x.channels, 32, 48), (2, x.channels, 17, 16), (1, x.channels, 40, 31)]
        names = ["b", x.channels, "h", "w"]
    else:
        x = Sequence("x", b.pick([8, 16, 24, 32, 48]))
        shapes = [(1, 16, x.width), (2, 7, x.width), (1, 1, x.width), (1, 50, x.width)]
        names = ["b", "n", x.width]
    if is_known:
        shapes = [b.pick(shapes)]
        names = list(shapes[0])
    for _ in range(blocks):
        of = PICTURES if isinstance(x, Picture) else SEQUENCES
        made = b.pick(of)(b, x)
        x = x if made is None else made
    if x.name == "x":
        x = dataclasses.replace(x, name=b.node("Relu", "x"))
    graph = helper.make_graph(
        b.nodes,
        f"network_{seed}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, names)],
        [helper.make_tensor_value_info(x.name, TensorProto.FLOAT, None)],
        b.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    rng = np.random.default_rng(seed)
    return model, [{"x": rng.standard_normal(shape, dtype=np.float32)} for shape in shapes]
