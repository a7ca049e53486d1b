# SPDX-License-Identifier: Apache-2.0
"""More steps for random models: windows of any form, integers, quantised products, loops, scatters.

Each step is a function of the builder and a float value, as those of random_graphs.py.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper
from random_graphs import SIZES, STEPS, Value, _axes, _plus, _same, _times, _with, sizes_of

WIDE: list = []
FEEDS = [*SIZES, {"b": 1, "n": 37, "c": 2}]
NOW = TensorProto


def step(function):
    WIDE.append(function)
    return function


def exists(dims) -> bool:
    """Has each dimension elements, for the sizes where what it is made of has some?"""
    return all(min(sizes_of(Value("", (d,)), s)) > 0 for s in FEEDS for d in dims)


def windows(b, x, kernel, strides, dilations, pads):
    """Dimensions of a picture after a window went over it; None where one is empty."""
    s = x.rank - 2
    dims = []
    for i in range(s):
        reach = (kernel[i] - 1) * dilations[i] + 1
        padded = _plus(x.dims[2 + i], pads[i] + pads[i + s] - reach)
        d = padded // strides[i] + 1 if isinstance(padded, int) else f"(({padded})//{strides[i]})+1"
        dims.append(d)
    return dims if exists(dims) else None


def form(b, s):
    kernel = [int(b.rng.integers(1, 5)) for _ in range(s)]
    strides = [int(b.rng.integers(1, 4)) for _ in range(s)]
    dilations = [int(b.pick([1, 1, 2])) for _ in range(s)]
    pads = [int(b.rng.integers(0, kernel[i % s])) for i in range(2 * s)]
    return kernel, strides, dilations, pads


def has_channels(x) -> bool:
    return x.rank in (3, 4) and isinstance(x.dims[1], int) and x.dims[1] > 0


@step
def conv_of_any_form(b, x):
    if not has_channels(x):
        return None
    c = x.dims[1]
    kernel, strides, dilations, pads = form(b, x.rank - 2)
    dims = windows(b, x, kernel, strides, dilations, pads)
    if dims is None:
        return None
    groups = b.pick([g for g in (1, 1, 2, 3, c) if c % g == 0])
    out = groups * int(b.rng.integers(1, 6))
    w = b.weight(out, c // groups, *kernel)
    y = b.node("Conv", x.name, w, *([b.weight(out)] if b.chance(0.5) else []), pads=pads, strides=strides,
               dilations=dilations, group=groups, kernel_shape=kernel)  # fmt: skip
    return Value(y, (x.dims[0], out, *dims))


@step
def conv_of_same_size(b, x):
    if not has_channels(x):
        return None
    k, stride = int(b.rng.integers(1, 6)), int(b.rng.integers(1, 3))
    s = x.rank - 2
    mode = b.pick(["SAME_UPPER", "SAME_LOWER"])
    y = b.node(
        "Conv", x.name, b.weight(5, x.dims[1], *[k] * s), auto_pad=mode, strides=[stride] * s
    )
    dims = [-(-d // stride) if isinstance(d, int) else f"-(-({d})//{stride})" for d in x.dims[2:]]
    return Value(y, (x.dims[0], 5, *dims))


@step
def conv_transpose_of_any_form(b, x):
    if not has_channels(x):
        return None
    s, c = x.rank - 2, x.dims[1]
    kernel, strides, dilations, pads = form(b, s)
    groups = b.pick([g for g in (1, c) if c % g == 0])
    out = int(b.rng.integers(1, 4))
    extra = [int(b.rng.integers(0, v)) for v in strides]
    dims = []
    for i in range(s):
        more = (kernel[i] - 1) * dilations[i] + 1 + extra[i] - pads[i] - pads[i + s] - strides[i]
        dims.append(_plus(_times(x.dims[2 + i], strides[i]), more))
    if not exists(dims):
        return None
    w = b.weight(c, out, *kernel)
    y = b.node("ConvTranspose", x.name, w, strides=strides, dilations=dilations, pads=pads, group=groups,
               output_padding=extra, kernel_shape=kernel)  # fmt: skip
    return Value(y, (x.dims[0], out * groups, *dims))


@step
def pool_of_any_form(b, x):
    if x.rank not in (3, 4):
        return None
    kernel, strides, dilations, pads = form(b, x.rank - 2)
    pads = [min(p, kernel[i % len(kernel)] // 2) for i, p in enumerate(pads)]
    op = b.pick(["MaxPool", "AveragePool", "LpPool"])
    more = {"count_include_pad": int(b.chance(0.5))} if op == "AveragePool" else {}
    if op != "MaxPool":
        dilations = [1] * len(kernel)
    else:
        more = {"dilations": dilations}
        pads = pads if max(dilations) == 1 else [0] * len(pads)  # each window has an element
    dims = windows(b, x, kernel, strides, dilations, pads)
    if dims is None:
        return None
    y = b.node(op, x.name, kernel_shape=kernel, strides=strides, pads=pads, **more)
    return Value(y, (*x.dims[:2], *dims))


@step
def resize_of_any_form(b, x):
    if x.rank != 4:
        return None
    mode = b.pick(["nearest", "linear", "cubic"])
    scale = [b.pick([0.5, 2.0, 3.0, 1.5]) for _ in range(2)]
    dims = [
        int(d * s) if isinstance(d, int) else f"int(({d})*{s})" for d, s in zip(x.dims[2:], scale)
    ]
    if not exists(dims):
        return None
    more = {"nearest_mode": b.pick(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])} if mode == "nearest" else {}  # fmt: skip
    # Of sizes that are not whole ONNX Runtime aligns the corners of the whole part, ONNX does not.
    whole = all(s == int(s) for s in scale)
    other = ["align_corners", "pytorch_half_pixel"] if whole else []
    where = b.pick(["asymmetric", "half_pixel", *other])
    scales = b.constant([1, 1, *scale], "float32")
    y = b.node(
        "Resize", x.name, "", scales, mode=mode, coordinate_transformation_mode=where, **more
    )
    return Value(y, (*x.dims[:2], *dims))


@step
def resize_to_sizes(b, x):
    if x.rank != 4:
        return None
    h, w = (int(v) for v in b.rng.integers(1, 20, 2))
    sizes = b.sizes(x, [("axis", 0), ("axis", 1), h, w])
    mode = b.pick(["linear", "cubic"])
    y = b.node(
        "Resize", x.name, "", "", sizes, mode=mode, coordinate_transformation_mode="half_pixel"
    )
    return Value(y, (*x.dims[:2], h, w))


@step
def einsum(b, x):
    names = "abcdefg"[: x.rank]
    if x.rank == 2:
        kind = b.pick(["ab->ba", "ab,ab->a", "ab,cb->ac", "ab,ab->ba", "ab->"])
    elif x.rank == 3:
        kind = b.pick(
            ["abc,abc->ab", "abc,adc->abd", "abc->cab", "abc,abd->acd", "abc,adc->bad", "abc->b"]
        )
    elif x.rank == 4:
        kind = b.pick(["abcd,abed->abce", "abcd->adbc", "abcd,abcd->ad", "abcd,aecd->abe"])
    else:
        return None
    given, result = kind.split("->")
    sides = given.split(",")
    size = dict(zip(names, x.dims))
    size |= {c: size[names[sides[1].index(c)]] for c in "".join(sides) if c not in size}
    y = b.node("Einsum", *[x.name] * len(sides), equation=kind)
    return Value(b.node("Tanh", y), tuple(size[c] for c in result))


def indices(b, like: str, n: int) -> str:
    """Integers of -n .. n - 1 from floats."""
    whole = b.node("Cast", b.node("Mul", like, b.constant(7.3, "float32")), to=NOW.INT64)
    return b.node("Mod", whole, b.constant(n, "int64"))


@step
def gather_elements(b, x):
    axes = [i for i in _axes(x, int) if x.dims[i]]
    if not axes:
        return None
    i = b.pick(axes)
    return _same(b, x, "GatherElements", indices(b, x.name, x.dims[i]), axis=i)


@step
def gather_by_values(b, x):
    axes = [i for i in _axes(x, int) if x.dims[i]]
    others = [v for v in b.values if v.rank + x.rank <= 5]
    if not axes or not others:
        return None
    i, other = b.pick(axes), b.pick(others)
    y = b.node("Gather", x.name, indices(b, other.name, x.dims[i]), axis=i)
    return Value(y, (*x.dims[:i], *other.dims, *x.dims[i + 1 :]))


@step
def scatter_elements(b, x):
    axes = [i for i in _axes(x, int) if x.dims[i]]
    if not axes:
        return None
    i = b.pick(axes)
    how = b.pick(["add", "max", "min"])  # "none" writes the last one, by no order
    return _same(
        b, x, "ScatterElements", indices(b, x.name, x.dims[i]), x.name, axis=i, reduction=how
    )


@step
def scatter_slices(b, x):
    if not x.rank or not isinstance(x.dims[0], int) or not x.dims[0]:
        return None
    row = b.rng.permutation(x.dims[0])[: max(1, x.dims[0] // 2)]
    where = b.constant(row.reshape(-1, 1), "int64")
    part = b.node("Neg", b.node("Gather", x.name, b.constant(row, "int64"), axis=0))
    return _same(b, x, "ScatterND", where, part)


@step
def integers(b, x):
    """Arithmetic with negative numbers and back."""
    kind = b.pick([NOW.INT64, NOW.INT64, NOW.INT32])
    dtype = {NOW.INT64: "int64", NOW.INT32: "int32"}[kind]
    y = b.node("Cast", b.node("Mul", x.name, b.constant(9.7, "float32")), to=kind)
    for _ in range(int(b.rng.integers(1, 5))):
        number = b.constant(int(b.pick([-7, -3, -1, 1, 2, 3, 5, 8])), dtype)
        op = b.pick(
            [
                "Add",
                "Sub",
                "Mul",
                "Div",
                "Mod",
                "Neg",
                "Abs",
                "Max",
                "Sign",
                "Clip",
                "Fmod",
                "CumSum",
            ]
        )
        if op in ("Neg", "Abs", "Sign"):
            y = b.node(op, y)
        elif op == "Fmod":
            y = b.node("Mod", y, number, fmod=1)
        elif op == "Clip":
            y = b.node("Clip", y, b.constant(-9, dtype), b.constant(11, dtype))
        elif op == "CumSum":
            y = (
                b.node("CumSum", y, b.constant(int(b.rng.integers(x.rank)), "int64"))
                if x.rank
                else y
            )
        elif op in ("Div", "Mod") or b.chance(0.7):
            y = b.node(op, y, number)
        else:
            y = b.node(op, number, y)
    y = b.node("Mod", y, b.constant(13, dtype))
    return Value(b.node("Cast", y, to=NOW.FLOAT), x.dims)


@step
def truths(b, x):
    less = b.node("Less", x.name, b.constant(0.3, "float32"))
    more = b.node("Greater", x.name, b.constant(-0.4, "float32"))
    y = b.node(
        b.pick(["And", "Or", "Xor", "Equal"]), less, b.node("Not", more) if b.chance(0.5) else more
    )
    if x.rank and b.chance(0.4):
        i = int(b.rng.integers(x.rank))
        y = b.node("Cast", y, to=b.pick([NOW.INT32, NOW.INT64, NOW.FLOAT]))
        y = b.node(
            b.pick(["ReduceMax", "ReduceMin", "ReduceSum"]), y, b.constant([i], "int64"), keepdims=1
        )
        return (
            Value(b.node("Cast", y, to=NOW.FLOAT), _with(x, i, 1)) if exists([x.dims[i]]) else None
        )
    return Value(b.node("Cast", y, to=NOW.FLOAT), x.dims)


@step
def quantised(b, x):
    kind = b.pick(["uint8", "int8"])
    scale, zero = b.constant(0.021, "float32"), b.constant(3, kind)
    y = b.node("QuantizeLinear", x.name, scale, zero)
    return Value(b.node("DequantizeLinear", y, scale, zero), x.dims)


@step
def quantised_product(b, x):
    if x.rank < 2 or not isinstance(x.dims[-1], int) or not x.dims[-1]:
        return None
    k, n = x.dims[-1], int(b.rng.integers(1, 20))
    q, s, z = (f"{b.name()}_{i}" for i in range(3))
    b.nodes.append(helper.make_node("DynamicQuantizeLinear", [x.name], [q, s, z]))
    kind = b.pick(["int8", "uint8"])
    low = -100 if kind == "int8" else 0
    w = b.constant(b.rng.integers(low, 100, (k, n)), kind)
    rest = [z, b.constant(2, kind)] if b.chance(0.5) else [z]
    y = b.node("Cast", b.node("MatMulInteger", q, w, *rest), to=NOW.FLOAT)
    y = b.node("Mul", b.node("Mul", y, s), b.constant(0.01, "float32"))
    return Value(b.node("Tanh", y), _with(x, x.rank - 1, n)) if exists(x.dims) else None


@step
def quantised_conv(b, x):
    if not has_channels(x) or x.rank != 4:
        return None
    kernel, strides, dilations, pads = form(b, 2)
    dims = windows(b, x, kernel, strides, dilations, pads)
    if dims is None:
        return None
    kind = b.pick(["uint8", "int8"])
    one, zero = b.constant(0.03, "float32"), b.constant(5, kind)
    to, middle = b.constant(0.05, "float32"), b.constant(7, kind)
    q = b.node("QuantizeLinear", x.name, one, zero)
    out = int(b.rng.integers(1, 9))
    w = b.constant(b.rng.integers(-60, 60, (out, x.dims[1], *kernel)), "int8")
    ws, wz = (
        b.constant(b.rng.uniform(0.001, 0.01, out), "float32"),
        b.constant(np.zeros(out), "int8"),
    )
    bias = [b.constant(b.rng.integers(-99, 99, out), "int32")] if b.chance(0.5) else []
    y = b.node("QLinearConv", q, one, zero, w, ws, wz, to, middle, *bias, strides=strides,
               dilations=dilations, pads=pads, kernel_shape=kernel)  # fmt: skip
    return Value(b.node("DequantizeLinear", y, to, middle), (x.dims[0], out, *dims))


@step
def loop(b, x):
    """Some rounds of a formula of the carried value and one from outside, which is also stacked."""
    rounds = int(b.rng.integers(1, 4))
    n = b.name()
    body = [
        helper.make_node(b.pick(["Tanh", "Neg", "Sigmoid"]), [f"{n}_state"], [f"{n}_a"]),
        helper.make_node(b.pick(["Add", "Sub", "Mul"]), [f"{n}_a", x.name], [f"{n}_next"]),
        helper.make_node("Identity", [f"{n}_going"], [f"{n}_still"]),
        helper.make_node("Identity", [f"{n}_next"], [f"{n}_each"]),
    ]
    value = lambda name, kind, shape=None: helper.make_tensor_value_info(f"{n}_{name}", kind, shape)
    graph = helper.make_graph(
        body, f"{n}_body", [value("round", NOW.INT64, []), value("going", NOW.BOOL, []), value("state", NOW.FLOAT)],
        [value("still", NOW.BOOL, []), value("next", NOW.FLOAT), value("each", NOW.FLOAT)],
    )  # fmt: skip
    going = b.constant(True, "bool")
    y = b.node("Loop", b.constant(rounds, "int64"), going, x.name, outputs=2, body=graph)
    if x.rank < 5:
        b.values.append(Value(y[:-1] + "1", (rounds, *x.dims)))
    return Value(y, x.dims)


@step
def scan(b, x):
    """A running formula along the first axis."""
    if x.rank < 2 or not isinstance(x.dims[0], int) or not x.dims[0]:
        return None
    n = b.name()
    first = b.node("ReduceMax", x.name, b.constant([0], "int64"), keepdims=0)
    n = b.name()
    value = lambda name: helper.make_tensor_value_info(f"{n}_{name}", NOW.FLOAT, None)
    body = [
        helper.make_node(b.pick(["Add", "Max", "Sub"]), [f"{n}_state", f"{n}_row"], [f"{n}_sum"]),
        helper.make_node("Tanh", [f"{n}_sum"], [f"{n}_next"]),
        helper.make_node("Neg", [f"{n}_next"], [f"{n}_out"]),
    ]
    graph = helper.make_graph(
        body, f"{n}_body", [value("state"), value("row")], [value("next"), value("out")]
    )
    y = b.node("Scan", first, x.name, outputs=2, body=graph, num_scan_inputs=1)
    return Value(y[:-1] + "1", x.dims)


@step
def depth_and_space(b, x):
    if x.rank != 4 or not isinstance(x.dims[1], int):
        return None
    if x.dims[1] % 4 == 0 and x.dims[1]:
        y = b.node("DepthToSpace", x.name, blocksize=2, mode=b.pick(["DCR", "CRD"]))
        return Value(y, (x.dims[0], x.dims[1] // 4, _times(x.dims[2], 2), _times(x.dims[3], 2)))
    return None


@step
def triangle(b, x):
    if x.rank < 2:
        return None
    return _same(
        b, x, "Trilu", b.constant(int(b.rng.integers(-2, 3)), "int64"), upper=int(b.chance(0.5))
    )


@step
def reduce_more(b, x):
    if x.rank < 2 or not exists(x.dims):
        return None
    axes = sorted(b.rng.choice(x.rank, int(b.rng.integers(1, x.rank + 1)), replace=False).tolist())
    op = b.pick(["ReduceL1", "ReduceSumSquare", "ReduceProd", "ReduceSum"])
    keep = int(b.chance(0.5))
    y = b.node("Tanh", b.node(op, x.name, b.constant(axes, "int64"), keepdims=keep))
    return Value(
        y, tuple(1 if i in axes else d for i, d in enumerate(x.dims) if keep or i not in axes)
    )


@step
def normalised(b, x):
    if x.rank < 3 or not isinstance(x.dims[1], int) or x.dims[1] % 2:
        return None
    if b.chance(0.5):
        return _same(
            b, x, "LpNormalization", axis=int(b.rng.integers(x.rank)), p=int(b.rng.integers(1, 3))
        )
    return _same(b, x, "GroupNormalization", b.weight(2), b.weight(2), num_groups=2)


@step
def pad_more(b, x):
    if not x.rank:
        return None
    i = int(b.rng.integers(x.rank))
    mode = b.pick(["reflect", "wrap", "constant"])
    before, after = (
        int(v)
        for v in (b.rng.integers(0, 2, 2) if mode != "constant" else b.rng.integers(-1, 3, 2))
    )
    if mode == "reflect" and not (isinstance(x.dims[i], int) and x.dims[i] > 1):
        return None
    dim = _plus(x.dims[i], before + after)
    if not exists([dim, _plus(x.dims[i], min(before, after, 0))]):
        return None
    name = b.constant([before, after], "int64")
    y = b.node("Pad", x.name, name, "", b.constant([i], "int64"), mode=mode)
    return Value(y, _with(x, i, dim))


@step
def one_hot(b, x):
    if x.rank not in (1, 2, 3):
        return None
    depth, axis = int(b.rng.integers(2, 12)), int(b.rng.integers(0, x.rank + 1))
    y = b.node("OneHot", indices(b, x.name, depth), b.constant(depth, "int64"), b.constant([-0.5, 1.5], "float32"), axis=axis)  # fmt: skip
    return Value(y, (*x.dims[:axis], depth, *x.dims[axis:]))


@step
def slices_of_axes(b, x):
    """Several axes at once, some backwards."""
    if x.rank < 2:
        return None
    axes = sorted(b.rng.choice(x.rank, 2, replace=False).tolist())
    steps = [int(v) for v in b.rng.choice([1, 2, 3, 4, -1, -2, -3], 2)]
    starts = [0 if s > 0 else -1 for s in steps]
    ends = [2**62 if s > 0 else -(2**62) for s in steps]
    dims = list(x.dims)
    for i, s in zip(axes, steps):
        d, by = dims[i], abs(s)
        dims[i] = -(-d // by) if isinstance(d, int) else f"-(-({d})//{by})"
    y = b.node("Slice", x.name, *(b.constant(v, "int64") for v in (starts, ends, axes, steps)))
    return Value(y, tuple(dims))


@step
def unary_more(b, x):
    op, attributes = b.pick([
        ("Celu", {"alpha": 0.7}), ("ThresholdedRelu", {"alpha": 0.2}), ("Shrink", {"lambd": 0.3, "bias": 0.1}), ("Cos", {}),
        ("Sinh", {}), ("Asinh", {}), ("Exp", {}), ("Ceil", {}), ("Floor", {}), ("Round", {}), ("Sign", {}), ("Hardmax", {"axis": -1}),
    ])  # fmt: skip
    if op == "Hardmax" and not (x.rank and exists(x.dims)):
        return None
    y = b.node("Clip", x.name, b.constant(-3.3, "float32"), b.constant(3.3, "float32"))
    return Value(b.node(op, y, **attributes), x.dims)


WIDE.extend(STEPS)
