# SPDX-License-Identifier: Apache-2.0
"""Random ONNX models with dynamic sizes, always the same for a seed.

Values grow from the inputs by steps, one function each below.  A dimension is a number or the text of an
expression over `b`, `n` and `c`, so that a step knows what it may do without running anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = [{"b": 1, "n": 1, "c": 1}, {"b": 2, "n": 5, "c": 3}, {"b": 3, "n": 16, "c": 7}]
OPSET = 18
Dim = int | str


@dataclasses.dataclass(frozen=True)
class Value:
    name: str
    dims: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.dims)


class Builder:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[Value] = []
        self.values: list[Value] = []

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def name(self) -> str:
        return f"v{len(self.nodes)}"

    def constant(self, array, dtype=None) -> str:
        self.weights.append(
            numpy_helper.from_array(np.asarray(array, dtype), f"w{len(self.weights)}")
        )
        return self.weights[-1].name

    def weight(self, *shape: int) -> str:
        fan = max(int(np.prod(shape[1:])), 1)
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(fan), "float32")

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes) -> str:
        names = [f"{self.name()}_{i}" for i in range(outputs)] if outputs > 1 else [self.name()]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0]

    def size_of(self, x: Value, axis: int) -> str:
        """The size of an axis, as a tensor of one element."""
        if self.chance(0.5):
            return self.node("Shape", x.name, start=axis, end=axis + 1)
        shape = self.node("Shape", x.name)
        return self.node("Gather", shape, self.constant([axis], "int64"))

    def sizes(self, x: Value, dims: list) -> str:
        """A shape from numbers and axes of `x`, written ("axis", i)."""
        parts = [self.size_of(x, d[1]) if isinstance(d, tuple) else self.constant([d], "int64") for d in dims]  # fmt: skip
        return self.node("Concat", *parts, axis=0)


STEPS: list[Callable[[Builder, Value], Value | None]] = []


def step(function):
    STEPS.append(function)
    return function


def _same(b: Builder, x: Value, op: str, *rest: str, **attributes) -> Value:
    return Value(b.node(op, x.name, *rest, **attributes), x.dims)


def _with(x: Value, axis: int, dim: Dim) -> tuple[Dim, ...]:
    return (*x.dims[:axis], dim, *x.dims[axis + 1 :])


def sizes_of(x: Value, sizes: dict[str, int]) -> list[int]:
    return [eval(str(d), {}, sizes) for d in x.dims]


def _axes(x: Value, kind) -> list[int]:
    return [i for i, d in enumerate(x.dims) if isinstance(d, kind)]


def _times(a: Dim, b: Dim) -> Dim:
    return a * b if isinstance(a, int) and isinstance(b, int) else f"({a})*({b})"


def _plus(a: Dim, b: int) -> Dim:
    return a + b if isinstance(a, int) else f"({a})+({b})"


@step
def unary(b, x):
    op, attributes = b.pick([
        ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("Abs", {}), ("Neg", {}), ("Erf", {}), ("HardSwish", {}),
        ("LeakyRelu", {"alpha": 0.3}), ("Elu", {}), ("Softplus", {}), ("Softsign", {}), ("HardSigmoid", {}),
        ("Mish", {}), ("Sin", {}), ("Atan", {}), ("Identity", {}), ("Dropout", {}), ("Selu", {}),
    ])  # fmt: skip
    return _same(b, x, op, **attributes)


@step
def clip(b, x):
    return _same(b, x, "Clip", b.constant(-0.7, "float32"), b.constant(0.9, "float32"))


@step
def with_constant(b, x):
    op = b.pick(["Add", "Sub", "Mul", "Max", "Min", "Div"])
    last = x.dims[-1] if x.rank else 1
    shape = (last,) if isinstance(last, int) and b.chance(0.6) else ()
    c = b.constant(b.rng.uniform(0.5, 2.0, shape), "float32")
    swapped = b.chance(0.4) and op != "Div"
    return Value(b.node(op, *([c, x.name] if swapped else [x.name, c])), x.dims)


@step
def with_other(b, x):
    same = [v for v in b.values if v.dims == x.dims]
    return _same(b, x, b.pick(["Add", "Mul", "Sub", "Max"]), b.pick(same).name)


@step
def with_reduced(b, x):
    if not x.rank:
        return None
    axis = b.constant([int(b.rng.integers(x.rank))], "int64")
    r = b.node(b.pick(["ReduceMean", "ReduceMax", "ReduceMin"]), x.name, axis, keepdims=1)
    return _same(b, x, b.pick(["Sub", "Add", "Mul"]), r)


@step
def reduce(b, x):
    if x.rank < 2:
        return None
    count = int(b.rng.integers(1, x.rank))
    axes = sorted(b.rng.choice(x.rank, count, replace=False).tolist())
    keep = int(b.chance(0.5))
    op = b.pick(["Mean", "Sum", "Max", "Min", "L2", "LogSumExp"])
    given = [a - x.rank for a in axes] if b.chance(0.5) else axes
    if op == "Mean" and any(0 in sizes_of(x, sizes) for sizes in SIZES):
        op = "Sum"  # the mean of nothing is anything
    y = b.node("Reduce" + op, x.name, b.constant(given, "int64"), keepdims=keep)
    dims = [1 if i in axes else d for i, d in enumerate(x.dims) if keep or i not in axes]
    return Value(y, tuple(dims))


@step
def softmax(b, x):
    if not x.rank:
        return None
    return _same(b, x, b.pick(["Softmax", "LogSoftmax"]), axis=int(b.rng.integers(-x.rank, x.rank)))


@step
def norm(b, x):
    if not x.rank or not isinstance(x.dims[-1], int):
        return None
    return _same(b, x, "LayerNormalization", b.weight(x.dims[-1]), b.weight(x.dims[-1]), axis=-1)


@step
def instance_norm(b, x):
    if x.rank < 3 or not isinstance(x.dims[1], int):
        return None
    return _same(b, x, "InstanceNormalization", b.weight(x.dims[1]), b.weight(x.dims[1]))


@step
def batch_norm(b, x):
    if x.rank < 2 or not isinstance(x.dims[1], int):
        return None
    ones = lambda: b.constant(b.rng.uniform(0.5, 1.5, x.dims[1]), "float32")
    return _same(b, x, "BatchNormalization", ones(), ones(), ones(), ones())


@step
def transpose(b, x):
    perm = b.rng.permutation(x.rank).tolist()
    if not perm:
        return None
    return Value(b.node("Transpose", x.name, perm=perm), tuple(x.dims[p] for p in perm))


@step
def merge_axes(b, x):
    if x.rank < 2:
        return None
    i = int(b.rng.integers(x.rank - 1))
    dims = (*x.dims[:i], _times(x.dims[i], x.dims[i + 1]), *x.dims[i + 2 :])
    if b.chance(0.5):
        wanted = (
            [("axis", a) for a in range(i)] + [-1] + [("axis", a) for a in range(i + 2, x.rank)]
        )
        return Value(b.node("Reshape", x.name, b.sizes(x, wanted)), dims)
    if sum(isinstance(d, str) for d in x.dims[i + 2 :]) or 0 in x.dims:
        return None
    shape = [0] * i + [-1] + [int(d) for d in x.dims[i + 2 :]]
    return Value(b.node("Reshape", x.name, b.constant(shape, "int64")), dims)


@step
def split_axis(b, x):
    axes = [i for i in _axes(x, int) if x.dims[i] % 2 == 0 and x.dims[i] > 0]
    if not axes or x.rank > 4:
        return None
    i = b.pick(axes)
    wanted = [("axis", a) for a in range(i)] + [2, x.dims[i] // 2]
    wanted += [("axis", a) for a in range(i + 1, x.rank)]
    dims = (*x.dims[:i], 2, x.dims[i] // 2, *x.dims[i + 1 :])
    return Value(b.node("Reshape", x.name, b.sizes(x, wanted)), dims)


@step
def unsqueeze(b, x):
    if x.rank > 4:
        return None
    i = int(b.rng.integers(x.rank + 1))
    y = b.node("Unsqueeze", x.name, b.constant([i], "int64"))
    return Value(y, (*x.dims[:i], 1, *x.dims[i:]))


@step
def squeeze(b, x):
    axes = [i for i, d in enumerate(x.dims) if d == 1]
    if not axes:
        return None
    i = b.pick(axes)
    y = b.node("Squeeze", x.name, b.constant([i], "int64"))
    return Value(y, (*x.dims[:i], *x.dims[i + 1 :]))


@step
def slices(b, x):
    axes = [i for i in _axes(x, int) if x.dims[i] > 2]
    if not axes:
        return None
    i = b.pick(axes)
    n = x.dims[i]
    start, stop, by = b.pick([(1, n, 1), (0, -1, 1), (-2, 2**62, 1), (0, n, 2), (-1, -(2**62), -1), (1, 99, 2)])  # fmt: skip
    y = b.node("Slice", x.name, *(b.constant([v], "int64") for v in (start, stop, i, by)))
    return Value(y, _with(x, i, len(range(n)[slice(start, stop if stop > -99 else None, by)])))


@step
def slice_all(b, x):
    """Up to the size of an axis that is known while running, backwards at times."""
    axes = _axes(x, str)
    if not axes:
        return None
    i = b.pick(axes)
    if b.chance(0.4):
        y = b.node("Slice", x.name, *(b.constant([v], "int64") for v in (-1, -(2**62), i, -1)))
        return Value(y, x.dims)
    low = b.constant([0], "int64")
    y = b.node("Slice", x.name, low, b.size_of(x, i), b.constant([i], "int64"))
    return Value(y, x.dims)


@step
def half_slice(b, x):
    axes = _axes(x, str)
    if not axes:
        return None
    i = b.pick(axes)
    half = b.node("Div", b.size_of(x, i), b.constant([2], "int64"))
    back = b.chance(0.5)
    end = b.constant([2**62], "int64") if back else half
    start = half if back else b.constant([0], "int64")
    y = b.node("Slice", x.name, start, end, b.constant([i], "int64"))
    d = x.dims[i]
    return Value(y, _with(x, i, f"({d})-({d})//2" if back else f"({d})//2"))


@step
def concat(b, x):
    if not x.rank:
        return None
    i = int(b.rng.integers(x.rank))
    fits = [v for v in b.values if v.rank == x.rank and _with(v, i, 0) == _with(x, i, 0)]
    others = [b.pick(fits) for _ in range(int(b.rng.integers(1, 3)))]
    total = x.dims[i]
    for v in others:
        d = v.dims[i]
        total = total + d if isinstance(total, int) and isinstance(d, int) else f"({total})+({d})"
    y = b.node("Concat", x.name, *(v.name for v in others), axis=i)
    return Value(y, _with(x, i, total))


@step
def split(b, x):
    axes = [i for i in _axes(x, int) if x.dims[i] > 1]
    if not axes:
        return None
    i = b.pick(axes)
    first = int(b.rng.integers(1, x.dims[i]))
    parts = b.constant([first, x.dims[i] - first], "int64")
    y = b.node("Split", x.name, parts, outputs=2, axis=i)
    other = Value(y[:-1] + "1", _with(x, i, x.dims[i] - first))
    b.values.append(other)
    return Value(y, _with(x, i, first))


@step
def pad(b, x):
    if not x.rank:
        return None
    i = int(b.rng.integers(x.rank))
    before, after = (int(v) for v in b.rng.integers(0, 3, 2))
    mode = b.pick(["constant", "edge"])
    pads = [0] * (2 * x.rank)
    pads[i], pads[i + x.rank] = before, after
    rest = [b.constant(0.5, "float32")] if mode == "constant" else []
    y = b.node("Pad", x.name, b.constant(pads, "int64"), *rest, mode=mode)
    return Value(y, _with(x, i, _plus(x.dims[i], before + after)))


@step
def expand(b, x):
    ones = [i for i, d in enumerate(x.dims) if d == 1]
    if not ones:
        return None
    i, source = b.pick(ones), b.pick(b.values)
    if not source.rank:
        return None
    a = int(b.rng.integers(source.rank))
    parts = [b.size_of(source, a) if j == i else b.constant([1], "int64") for j in range(x.rank)]
    y = b.node("Expand", x.name, b.node("Concat", *parts, axis=0))
    return Value(y, _with(x, i, source.dims[a]))


@step
def tile(b, x):
    if not x.rank:
        return None
    i = int(b.rng.integers(x.rank))
    y = b.node("Tile", x.name, b.constant([2 if j == i else 1 for j in range(x.rank)], "int64"))
    return Value(y, _with(x, i, _times(x.dims[i], 2)))


@step
def gather(b, x):
    axes = [i for i in _axes(x, int) if x.dims[i]]
    if not axes:
        return None
    i = b.pick(axes)
    n = x.dims[i]
    if b.chance(0.3):
        y = b.node("Gather", x.name, b.constant(int(b.rng.integers(-n, n)), "int64"), axis=i)
        return Value(y, (*x.dims[:i], *x.dims[i + 1 :]))
    picked = b.rng.integers(-n, n, int(b.rng.integers(1, 5)))
    return Value(b.node("Gather", x.name, b.constant(picked, "int64"), axis=i), _with(x, i, len(picked)))  # fmt: skip


@step
def positions(b, x):
    """Adds 0, 1, 2, ... along an axis."""
    if not x.rank:
        return None
    i = int(b.rng.integers(x.rank))
    size = b.node("Squeeze", b.size_of(x, i))
    r = b.node("Range", b.constant(0, "int64"), size, b.constant(1, "int64"))
    r = b.node("Cast", r, to=TensorProto.FLOAT)
    r = b.node("Mul", r, b.constant(0.1, "float32"))
    r = b.node("Unsqueeze", r, b.constant(list(range(1, x.rank - i)), "int64")) if i < x.rank - 1 else r  # fmt: skip
    return _same(b, x, "Add", r)


@step
def matmul(b, x):
    if x.rank < 2 or not isinstance(x.dims[-1], int) or not x.dims[-1]:
        return None
    n = int(b.rng.integers(1, 20))
    return Value(b.node("MatMul", x.name, b.weight(x.dims[-1], n)), _with(x, x.rank - 1, n))


@step
def square(b, x):
    if x.rank < 2:
        return None
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    y = b.node("MatMul", x.name, b.node("Transpose", x.name, perm=perm))
    y = b.node("Softmax", y, axis=-1) if b.chance(0.5) else b.node("Tanh", y)
    if b.chance(0.5):
        return Value(b.node("MatMul", y, x.name), x.dims)
    return Value(y, (*x.dims[:-1], x.dims[-2]))


@step
def conv(b, x):
    if x.rank not in (3, 4) or not isinstance(x.dims[1], int) or not x.dims[1]:
        return None
    c, k = x.dims[1], b.pick([1, 3])
    deep = b.chance(0.3)
    out = c if deep else int(b.rng.integers(1, 20))
    w = b.weight(out, 1 if deep else c, *([k] * (x.rank - 2)))
    pads = [k // 2] * (2 * (x.rank - 2))
    rest = [b.weight(out)] if b.chance(0.5) else []
    y = b.node("Conv", x.name, w, *rest, pads=pads, group=c if deep else 1)
    return Value(y, _with(x, 1, out))


@step
def conv_transpose(b, x):
    if x.rank not in (3, 4) or not isinstance(x.dims[1], int) or not x.dims[1]:
        return None
    out = int(b.rng.integers(1, 6))
    w = b.weight(x.dims[1], out, *([2] * (x.rank - 2)))
    y = b.node("ConvTranspose", x.name, w, strides=[2] * (x.rank - 2))
    return Value(y, (x.dims[0], out, *(_times(d, 2) for d in x.dims[2:])))


@step
def pool(b, x):
    if x.rank not in (3, 4):
        return None
    s = x.rank - 2
    op = b.pick(["MaxPool", "AveragePool", "Global"])
    if op == "Global":
        y = b.node(b.pick(["GlobalAveragePool", "GlobalMaxPool"]), x.name)
        return Value(y, (*x.dims[:2], *([1] * s)))
    return _same(b, x, op, kernel_shape=[3] * s, pads=[1] * (2 * s))


@step
def resize(b, x):
    if x.rank != 4:
        return None
    mode = b.pick(["nearest", "linear"])
    scales = b.constant([1, 1, 2, 2], "float32")
    attributes = {
        "coordinate_transformation_mode": b.pick(["asymmetric", "half_pixel"]),
        "mode": mode,
    }
    if mode == "nearest":
        attributes["nearest_mode"] = "floor"
    y = b.node("Resize", x.name, "", scales, **attributes)
    return Value(y, (*x.dims[:2], *(_times(d, 2) for d in x.dims[2:])))


@step
def where(b, x):
    condition = b.node(b.pick(["Greater", "LessOrEqual"]), x.name, b.constant(0.1, "float32"))
    other = b.pick([v for v in b.values if v.dims == x.dims]).name
    return Value(b.node("Where", condition, x.name, other), x.dims)


@step
def argmax(b, x):
    if not x.rank or x.dims[-1] == 0:
        return None
    i = int(b.rng.integers(x.rank))
    # What lies there, because rounding decides between places that are equal without it.
    y = b.node("GatherElements", x.name, b.node("ArgMax", x.name, axis=i, keepdims=1), axis=i)
    return Value(y, _with(x, i, 1))


@step
def top_k(b, x):
    axes = [i for i in _axes(x, int) if x.dims[i] > 1]
    if not axes:
        return None
    i = b.pick(axes)
    k = int(b.rng.integers(1, x.dims[i]))
    y = b.node("TopK", x.name, b.constant([k], "int64"), outputs=2, axis=i)
    return Value(y, _with(x, i, k))


@step
def cumsum(b, x):
    if not x.rank:
        return None
    axis = b.constant(int(b.rng.integers(x.rank)), "int64")
    y = b.node("CumSum", x.name, axis, exclusive=int(b.chance(0.3)), reverse=int(b.chance(0.3)))
    return Value(b.node("Tanh", y), x.dims)


@step
def by_size(b, x):
    """Divides by a size, as means written by hand do."""
    if not x.rank:
        return None
    size = b.size_of(x, int(b.rng.integers(x.rank)))
    return _same(b, x, "Div", b.node("Cast", size, to=TensorProto.FLOAT))


@step
def through_integers(b, x):
    y = b.node("Cast", b.node("Mul", x.name, b.constant(6.3, "float32")), to=TensorProto.INT64)
    y = b.node(b.pick(["Add", "Mul", "Sub"]), y, b.constant(3, "int64"))
    y = b.node(b.pick(["Mod", "Div"]), y, b.constant(4, "int64"))
    return Value(b.node("Cast", y, to=TensorProto.FLOAT), x.dims)


@step
def recurrent(b, x):
    if x.rank != 3 or not isinstance(x.dims[-1], int) or not x.dims[-1]:
        return None
    op, gates = b.pick([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    h, n = int(b.rng.integers(1, 20)), x.dims[-1]
    w, r, bias = b.weight(1, gates * h, n), b.weight(1, gates * h, h), b.weight(1, 2 * gates * h)
    y = b.node(op, x.name, w, r, bias, hidden_size=h)
    y = b.node("Squeeze", y, b.constant([1], "int64"))
    return Value(y, (x.dims[0], x.dims[1], h))


@step
def branch(b, x):
    """An If on a sum; both sides read `x` from outside."""
    total = b.node("ReduceSum", x.name, keepdims=0)
    # Not 0, which differences from a mean add up to, but for rounding.
    condition = b.node("Greater", total, b.constant(0.0137, "float32"))
    graphs = {}
    for side in ("then", "else"):
        name = f"{b.name()}_{side}"
        node = helper.make_node(b.pick(["Neg", "Tanh", "Relu", "Abs"]), [x.name], [name])
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        graphs[f"{side}_branch"] = helper.make_graph([node], side, [], [out])
    return Value(b.node("If", condition, **graphs), x.dims)


def model_of(seed: int, steps: int = 12, of: list | None = None, opset: int = OPSET) -> tuple[onnx.ModelProto, list[Value]]:  # fmt: skip
    """The model and its inputs, by steps out of `of`; every value that no node reads is an output."""
    b = Builder(seed)
    shapes: list[tuple[Dim, ...]] = [
        ("b", "n", 8), ("b", 6, "n"), ("b", 4, "n", "c"), ("b", 3, "n", "n"), ("n", 5), ("b", "n", "c"), ("b", "n"),
    ]  # fmt: skip
    for i in range(int(b.rng.integers(1, 3))):
        b.inputs.append(Value(f"x{i}", b.pick(shapes)))
    b.values = list(b.inputs)
    for _ in range(steps):
        # Mostly what is newest, so that chains grow.
        recent = b.values[-4:] if b.chance(0.7) else b.values
        value = b.pick(of or STEPS)(b, b.pick(recent))
        if value is not None and value.rank <= 5:
            b.values.append(value)
    read = {name for node in b.nodes for name in node.input}
    outputs = [v for v in b.values if v.name not in read and v not in b.inputs] or [b.values[-1]]
    if outputs[0] in b.inputs:
        outputs = [Value(b.node("Identity", outputs[0].name), outputs[0].dims)]
    graph = helper.make_graph(
        b.nodes,
        f"seed_{seed}",
        [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.dims) for v in b.inputs],
        [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, None) for v in outputs],
        b.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model, b.inputs


def feeds_of(seed: int, inputs: list[Value], rows: list | None = None) -> list[dict[str, np.ndarray]]:  # fmt: skip
    """One for each of `rows`, else of SIZES."""
    rng = np.random.default_rng(seed)
    feeds = []
    for sizes in rows or SIZES:
        shape = lambda v, sizes=sizes: [d if isinstance(d, int) else sizes[d] for d in v.dims]
        feeds.append({v.name: rng.standard_normal(shape(v), dtype=np.float32) for v in inputs})
    return feeds
