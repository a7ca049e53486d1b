# SPDX-License-Identifier: Apache-2.0
"""Steps for random models in other element types: a value is cast, goes through operators of its type, and is cast back.

Each table has the types that ONNX Runtime's CPU kernels of the operator take.
"""

from __future__ import annotations

from onnx import TensorProto
from random_graphs import Value, _axes, _times, _with
from random_steps import exists

TYPED: list = []
OPSETS = [18, 19, 20, 21]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
WHOLE = [*SIGNED, *UNSIGNED]
CODES = {name: getattr(TensorProto, name.upper()) for name in [*WHOLE, "bool"]}
CODES["float64"] = TensorProto.DOUBLE


def step(function):
    TYPED.append(function)
    return function


def cast_to(b, x, kind: str) -> str:
    """`x` in a type, within -100 .. 100, or 0 .. 100: what a cast makes of more depends on the machine."""
    y = b.node("Mul", x.name, b.constant(9.7, "float32"))
    y = b.node("Clip", y, b.constant(-100, "float32"), b.constant(100, "float32"))
    y = b.node("Abs", y) if kind in UNSIGNED else y
    return b.node("Cast", y, to=CODES[kind])


def as_float(b, y: str) -> str:
    return b.node("Cast", y, to=TensorProto.FLOAT)


@step
def moves(b, x):
    """Operators that compute nothing, of any type."""
    if not x.rank:
        return None
    kind = b.pick(list(CODES))
    y, dims = cast_to(b, x, kind), x.dims
    for _ in range(int(b.rng.integers(1, 5))):
        rank, i = len(dims), int(b.rng.integers(len(dims)))
        op = b.pick(["Transpose", "Flip", "Double", "Twice", "Unsqueeze", "Gather"])
        if op == "Transpose":
            perm = b.rng.permutation(rank).tolist()
            y, dims = b.node("Transpose", y, perm=perm), tuple(dims[p] for p in perm)
        elif op == "Flip":
            ends = (b.constant([v], "int64") for v in (-1, -(2**62), i, -1))
            y = b.node("Slice", y, *ends)
        elif op == "Double":
            y, dims = b.node("Concat", y, y, axis=i), _with(Value("", dims), i, _times(dims[i], 2))
        elif op == "Twice":
            y = b.node("Tile", y, b.constant([2 if j == i else 1 for j in range(rank)], "int64"))
            dims = _with(Value("", dims), i, _times(dims[i], 2))
        elif op == "Unsqueeze" and rank < 5:
            y, dims = b.node("Unsqueeze", y, b.constant([i], "int64")), (*dims[:i], 1, *dims[i:])
        elif op == "Gather" and exists([dims[i]]):
            y = b.node("Gather", y, b.constant([0, -1, 0], "int64"), axis=i)
            dims = _with(Value("", dims), i, 3)
    return Value(as_float(b, y), dims)


@step
def arithmetic(b, x):
    kind = b.pick(["int32", "int64", "float64"])
    y = cast_to(b, x, kind)
    for _ in range(int(b.rng.integers(1, 5))):
        op = b.pick(
            ["Add", "Sub", "Mul", "Div", "Max", "Min", "Neg", "Abs", "Sign", "Square", "Clip"]
        )
        number = b.constant(int(b.pick([-7, -2, -1, 1, 3, 5])), kind)
        if op in ("Neg", "Abs", "Sign"):
            y = b.node(op, y)
        elif op == "Square":
            y = b.node("Mul", y, y)
        elif op == "Clip":
            y = b.node("Clip", y, b.constant(-90, kind), b.constant(80, kind))
        else:
            y = b.node(op, y, number)
        y = b.node("Clip", y, b.constant(-1000, kind), b.constant(1000, kind))
    return Value(as_float(b, y), x.dims)


@step
def bits(b, x):
    kind = b.pick(WHOLE)
    y = cast_to(b, x, kind)
    for _ in range(int(b.rng.integers(1, 4))):
        op = b.pick(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Shift"])
        if op == "BitwiseNot":
            y = b.node(op, y)
        elif op == "Shift":
            if kind in ("uint8", "uint32", "uint64"):
                by = b.constant(int(b.rng.integers(0, 4)), kind)
                y = b.node("BitShift", y, by, direction=b.pick(["LEFT", "RIGHT"]))
        else:
            y = b.node(op, y, b.constant(int(b.rng.integers(0, 100)), kind))
    y = b.node("BitwiseAnd", y, b.constant(63, kind))  # what a float holds
    return Value(as_float(b, y), x.dims)


@step
def remainders(b, x):
    kind = b.pick(WHOLE)
    numbers = [1, 2, 3, 7, 50] + ([-1, -3, -8] if kind in SIGNED else [])
    y = b.node("Mod", cast_to(b, x, kind), b.constant(int(b.pick(numbers)), kind), fmod=int(b.chance(0.5)))  # fmt: skip
    return Value(as_float(b, y), x.dims)


@step
def bounds(b, x):
    kind = b.pick(["int8", "uint8", "int32", "uint32", "int64", "uint64", "float64"])
    low, high = sorted(int(v) for v in b.rng.integers(0 if kind in UNSIGNED else -60, 60, 2))
    y = cast_to(b, x, kind)
    y = b.node(
        "Clip", y, b.constant(low, kind), *([b.constant(high, kind)] if b.chance(0.7) else [])
    )
    return Value(as_float(b, y), x.dims)


@step
def reductions(b, x):
    if not x.rank or not exists(x.dims):
        return None
    op, kinds = b.pick([
        ("ReduceSum", ["int32", "int64", "float64"]), ("ReduceMax", ["int8", "uint8", "int32", "int64", "float64"]),
        ("ReduceMin", ["int8", "uint8", "int32", "int64", "float64"]), ("ReduceMean", ["int32", "float64"]),
    ])  # fmt: skip
    i, keep = int(b.rng.integers(x.rank)), int(b.chance(0.5))
    y = b.node(op, cast_to(b, x, b.pick(kinds)), b.constant([i], "int64"), keepdims=keep)
    y = b.node("Tanh", b.node("Mul", as_float(b, y), b.constant(0.01, "float32")))
    return Value(y, _with(x, i, 1) if keep else (*x.dims[:i], *x.dims[i + 1 :]))


@step
def running_sums(b, x):
    if not x.rank:
        return None
    kind = b.pick(["int32", "int64", "float64"])
    axis = b.constant(int(b.rng.integers(-x.rank, x.rank)), b.pick(["int32", "int64"]))
    y = b.node("CumSum", cast_to(b, x, kind), axis, exclusive=int(b.chance(0.5)), reverse=int(b.chance(0.5)))  # fmt: skip
    return Value(b.node("Tanh", as_float(b, y)), x.dims)


@step
def order(b, x):
    """Equal numbers are in order of their places."""
    axes = [i for i in _axes(x, int) if x.dims[i] > 1]
    if not axes:
        return None
    i, kind = b.pick(axes), b.pick(["int32", "int64", "float64"])
    k, out = int(b.rng.integers(1, x.dims[i])), int(b.chance(0.5))
    y = b.node("TopK", cast_to(b, x, kind), b.constant([k], "int64"), outputs=2, axis=i, largest=int(b.chance(0.5)))  # fmt: skip
    return Value(as_float(b, f"{y[:-1]}{out}"), _with(x, i, k))


@step
def places(b, x):
    if not x.rank or not exists(x.dims):
        return None
    i, kind = int(b.rng.integers(x.rank)), b.pick(["int8", "uint8", "int32", "float64"])
    op = b.pick(["ArgMax", "ArgMin"])
    y = b.node(op, cast_to(b, x, kind), axis=i, keepdims=1, select_last_index=int(b.chance(0.5)))
    return Value(as_float(b, y), _with(x, i, 1))


@step
def comparisons(b, x):
    kind = b.pick(["int32", "int64", "float64"])
    y = cast_to(b, x, kind)
    op = b.pick(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"])
    c = b.node(op, y, b.constant(int(b.rng.integers(-5, 6)), kind))
    c = b.node("Not", c) if b.chance(0.3) else c
    if b.chance(0.5):
        return Value(as_float(b, c), x.dims)
    return Value(as_float(b, b.node("Where", c, y, b.constant(4, kind))), x.dims)


@step
def casts(b, x):
    """From type to type, all of which hold the numbers; to bool, what is not 0."""
    y = cast_to(b, x, b.pick(WHOLE if b.chance(0.8) else ["float64"]))
    y = b.node("Cast", b.node("Abs", y), to=CODES[b.pick(list(CODES))])
    return Value(as_float(b, b.node("Cast", y, to=CODES[b.pick(list(CODES))])), x.dims)


@step
def triangles(b, x):
    if x.rank < 2:
        return None
    y = cast_to(b, x, b.pick(["int64", "float64", "bool"]))
    y = b.node("Trilu", y, b.constant(int(b.rng.integers(-2, 3)), "int64"), upper=int(b.chance(0.5)))  # fmt: skip
    return Value(as_float(b, y), x.dims)


@step
def borders(b, x):
    if not x.rank:
        return None
    i, kind = int(b.rng.integers(x.rank)), b.pick(["int8", "uint8", "int32", "int64", "float64"])
    pads = [0] * (2 * x.rank)
    pads[i], pads[i + x.rank] = (int(v) for v in b.rng.integers(0, 3, 2))
    y = b.node("Pad", cast_to(b, x, kind), b.constant(pads, "int64"), b.constant(7, kind))
    total = pads[i] + pads[i + x.rank]
    d = x.dims[i]
    return Value(as_float(b, y), _with(x, i, d + total if isinstance(d, int) else f"({d})+{total}"))
