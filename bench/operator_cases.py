# SPDX-License-Identifier: Apache-2.0
"""Cases of bench/operators.py: how they are written, and elementwise operators.

    case("Conv 3x3 of 64x56x56", "1x64x56x56", "*64x64x3x3", pads=[1, 1, 1, 1])

The first word of the name is the operator ("ms." for com.microsoft), the rest tells cases apart.  An input is

    "*i64:4x8 below 9"  a tensor: "*" for a constant, the element type (f32 if none), the shape, a kind (see `_KINDS`);
                        "4x8!": the 8 is known where no size is, as what says how many dimensions something has
    2.0                 a constant without dimensions, of the type that floats have; 2 and [1, 2] are int64
    an array of NumPy   a constant as it is, whatever type floats have
    None                nothing
    "@0", "@0.1"        the first result of node 0 and its second, in `chain`
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

Input = str | float | int | list[int] | np.ndarray | np.generic | None
Rng = np.random.Generator
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Node:
    op: str
    inputs: tuple[Any, ...]
    attrs: dict[str, Any]
    outputs: int = 1


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    nodes: tuple[Node, ...]
    version: int = 21  # of ONNX
    # What is allowed where that is more than usual: of integers when it is 1 or more, else of floats.
    slack: float | None = None


def node(op: str, /, *inputs: Input, outputs: int = 1, **attrs: Any) -> Node:
    return Node(op, inputs, attrs, outputs)


def case(
    name: str,
    /,
    *inputs: Input,
    version: int = 21,
    outputs: int = 1,
    slack: float | None = None,
    **attrs: Any,
) -> Case:
    return chain(name, Node(name.split()[0], inputs, attrs, outputs), version=version, slack=slack)


def chain(name: str, /, *nodes: Node, version: int = 21, slack: float | None = None) -> Case:
    return Case(name, nodes, version, slack)


# ---- values


_DTYPES = {
    f"{k}{n}": f"{long}{n}" for k, long in zip("iu", ("int", "uint")) for n in (8, 16, 32, 64)
}
_DTYPES |= {f"f{n}": f"float{n}" for n in (16, 32, 64)} | {"bool": "bool"}


def _distinct(rng: Rng, shape: Shape, limit: float) -> np.ndarray:
    """Integers below `limit`, no two alike along the last axis; along the first where the last has one element."""
    if shape[-1] == 1:
        return rng.permutation(int(limit))[: shape[0]].reshape(shape)
    return np.argsort(rng.random((*shape[:-1], int(limit))), axis=-1)[..., : shape[-1]]


def _boxes(rng: Rng, shape: Shape, size: float) -> np.ndarray:
    """Corners of boxes in a picture of `size`."""
    corner, extent = rng.random((*shape[:-1], 2)), rng.random((*shape[:-1], 2))
    return np.concatenate([corner * 0.7, corner * 0.7 + 0.05 + extent * 0.25], -1) * size


# The argument follows the word: "below 10".
_KINDS: dict[str, Callable[[Rng, Shape, float], np.ndarray]] = {
    "all": lambda rng, shape, value: np.full(shape, value),
    "below": lambda rng, shape, n: rng.integers(0, int(n), shape),
    "boxes": _boxes,
    "distinct": _distinct,
    "from1to": lambda rng, shape, n: rng.integers(1, int(n) + 1, shape),
    "near1": lambda rng, shape, _: 1 + 0.01 * rng.standard_normal(shape),
    "over1": lambda rng, shape, _: 1 + np.abs(rng.standard_normal(shape)),
    "positive": lambda rng, shape, _: 0.1 + np.abs(rng.standard_normal(shape)),
    "rare": lambda rng, shape, _: (rng.random(shape) < 0.1) * rng.integers(1, 9, shape),
    "range": lambda rng, shape, n: np.linspace(0, n, int(np.prod(shape))).reshape(shape),
    "scale": lambda rng, shape, n: n * (0.5 + rng.random(shape)),
    "sorted": lambda rng, shape, _: np.sort(rng.standard_normal(shape), -1),
    "times": lambda rng, shape, n: n * rng.standard_normal(shape),
    "unit": lambda rng, shape, n: (n or 1.0) * rng.uniform(-1, 1, shape),
}
_PATTERN = re.compile(
    r"(\*?)(?:([a-z]+\d*):)?((?:\d+!?(?:x\d+!?)*)?)(?: ([a-z]+\d?[a-z]*)(?: (\S+))?)?"
)


def _usual(rng: Rng, shape: Shape, dtype: np.dtype, is_weight: bool) -> np.ndarray:
    if dtype.kind == "f":
        return rng.standard_normal(shape) * (0.1 if is_weight else 1)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape)
    if dtype.itemsize == 1:
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max + 1, shape)
    return rng.integers(0 if dtype.kind == "u" else -1000, 1000, shape)


@dataclasses.dataclass(frozen=True)
class Made:
    """The value of an input."""

    array: np.ndarray
    is_weight: bool
    is_converted: bool  # to the type that floats have
    known: tuple[int, ...] = ()  # axes whose sizes are always known

    @staticmethod
    def of(given: Input, rng: Rng) -> Made:
        if isinstance(given, np.ndarray | np.generic):
            return Made(np.asarray(given), True, False)
        if isinstance(given, float):
            return Made(np.array(given, np.float32), True, True)
        if not isinstance(given, str):
            return Made(np.array(given, np.int64), True, False)
        found = _PATTERN.fullmatch(given)
        assert found, f"no input: {given!r}"
        star, word, sizes, kind, argument = found.groups()
        dtype = np.dtype(_DTYPES[word or "f32"])
        words = sizes.split("x") if sizes else []
        shape = tuple(int(size.rstrip("!")) for size in words)
        known = tuple(axis for axis, size in enumerate(words) if size.endswith("!"))
        if kind:
            array = np.asarray(_KINDS[kind](rng, shape, float(argument or 0)))
        else:
            array = np.asarray(_usual(rng, shape, dtype, bool(star)))
        return Made(array.astype(dtype), bool(star), dtype == np.float32, known)


# ---- elementwise


_ROWS, _IMAGE = "128x768", "1x64x56x56"
_PLAIN = (
    "Abs Neg Exp Sign Floor Ceil Round Sin Cos Sinh Cosh Tanh Atan Asinh Erf Sigmoid HardSigmoid HardSwish Relu"
    " LeakyRelu Elu Selu Celu Softplus Softsign Mish ThresholdedRelu Shrink IsNaN IsInf Identity Gelu Reciprocal"
)
_LIMITED = {
    "Log": "positive",
    "Sqrt": "positive",
    "Tan": "unit",
    "Asin": "unit",
    "Acos": "unit",
    "Acosh": "over1",
    "Atanh": "unit 0.99",
}


def _unary() -> list[Case]:
    kinds = {op: "times 2" for op in _PLAIN.split()} | {"Reciprocal": "positive"} | _LIMITED
    found = [case(f"{op} {_ROWS}", f"{_ROWS} {kind}") for op, kind in kinds.items()]
    for op in ("Relu", "Sigmoid", "HardSwish", "LeakyRelu", "Exp", "Sqrt", "Tanh"):
        found += [case(f"{op} {shape}", f"{shape} positive") for shape in (_IMAGE, "1x1000", "3x7")]
    return found + [
        case("Gelu tanh 197x3072", "197x3072", approximate="tanh"),
        case("ms.Gelu 197x3072", "197x3072"),
        case("ms.FastGelu 128x3072", "128x3072", "*3072"),
        case("ms.FastGelu without bias 128x3072", "128x3072"),
        case("ms.BiasGelu 128x3072", "128x3072", "*3072"),
        case("ms.QuickGelu 50x3072", "50x3072", alpha=1.702),
        case("Abs i32 64x56x56", "i32:64x56x56"),
        case("Abs i64 64x56x56", "i64:64x56x56"),
        case("Neg i64 64x56x56", "i64:64x56x56"),
        case("Sign i32 64x56x56", "i32:64x56x56"),
        case("Not 128x768", "bool:128x768"),
        case("BitwiseNot u8 64x56x56", "u8:64x56x56"),
        case("BitwiseNot i32 64x56x56", "i32:64x56x56"),
        case("Relu i32 64x56x56", "i32:64x56x56"),
        case("Exp f64 128x768", "f64:128x768"),
        case("Sqrt f64 128x768", "f64:128x768 positive"),
        case("Tanh f64 128x768", "f64:128x768"),
    ]


# What is added to what.
_BROADCASTS = {
    "same": (_IMAGE, _IMAGE),
    "channels": (_IMAGE, "*64x1x1"),
    "gate": (_IMAGE, "1x64x1x1"),
    "plane": (_IMAGE, "1x1x56x56"),
    "scalar": (_IMAGE, "* all 1.5"),
    "row": ("128x768", "*768"),
    "column": ("1024x256", "1024x1"),
    "outer": ("512x1", "1x512"),
    "middle": ("16x128x64", "16x1x64"),
    "last": ("32x128x7", "32x128x1"),
    "mask": ("1x12x128x128", "1x1x1x128"),
    "odd": ("37x53x3", "*3"),
    "short": ("1x16", "*16"),
}


def _binary() -> list[Case]:
    found = []
    for op in ("Add", "Mul", "Div"):
        for name, (x, y) in _BROADCASTS.items():
            found.append(case(f"{op} {name} {x}", x, y if " " in y else f"{y} positive"))
    for op in ("Sub", "Min", "Max", "Pow", "PRelu"):
        for name in ("same", "channels", "scalar", "row", "outer"):
            x, y = _BROADCASTS[name]
            if op == "PRelu" and name == "outer":
                continue
            y = y if " " in y else f"{y} positive"
            found.append(case(f"{op} {name} {x}", f"{x} positive", y))
    for dtype in ("i32", "i64", "f64"):
        for op in ("Add", "Sub", "Mul", "Div", "Max"):
            x, y = f"{dtype}:64x56x56", f"{dtype}:64x56x56 from1to 100"
            found.append(case(f"{op} {dtype} same", x, y))
        found.append(case(f"Add {dtype} row", f"{dtype}:128x768", f"*{dtype}:768"))
        found.append(case(f"Mul {dtype} scalar", f"{dtype}:128x768", f"*{dtype}: all 3"))
        found.append(case(f"Mod {dtype}", f"{dtype}:128x768", f"{dtype}:128x768 from1to 9", fmod=1))
    return found + [
        case("Mod i64 scalar", "i64:128x768", 7),
        case("Mod i32 signs", "i32:128x768", "*i32: all 7"),
        case("Mod f32 fmod", "128x768", "128x768 positive", fmod=1),
        *[case(f"Pow const {p}", "128x768 positive", p) for p in (2.0, 0.5, 3.0, -0.5, 1.7)],
        case("Pow i64 exponent", "128x768 positive", 2),
        case("Pow scalar base", 2.0, "128x768"),
        case("Div by scalar i64", "i64:64x56x56", 8),
        case("BitShift u32", "u32:64x56x56", "u32:64x56x56 below 8", direction="RIGHT"),
        case("BitShift u8", "u8:64x56x56", "*u8: all 4", direction="RIGHT"),
        *[case(f"{op} i32", "i32:64x56x56", "i32:64x56x56") for op in ("BitwiseAnd", "BitwiseOr")],
        case("BitwiseAnd u8 scalar", "u8:64x56x56", "*u8: all 15"),
        *[case(f"{op} 128x768", "bool:128x768", "bool:128x768") for op in ("And", "Or", "Xor")],
        case("And mask", "bool:1x1x256x256", "bool:1x1x1x256"),
        case("Min u8 scalar", "u8:480x640x3", "*u8: all 200"),
        case("Max i8", "i8:64x56x56", "i8:64x56x56"),
        case("Sum of three", _IMAGE, _IMAGE, _IMAGE),
        case("Sum of three broadcast", _IMAGE, "1x64x1x1", "*56"),
        case("Max of three", _IMAGE, _IMAGE, _IMAGE),
        case("Min of four rows", *["128x768"] * 4),
        case("Mean of three", _IMAGE, _IMAGE, _IMAGE),
    ]


def _compared() -> list[Case]:
    found = []
    for op in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
        found.append(case(f"{op} f32", "128x768", "128x768"))
        found.append(case(f"{op} i64 scalar", "i64:128x768 below 9", 3))
        found.append(case(f"{op} i32 causal", "*i32:1x512 range 511", "i32:512x1 range 511"))
    return found + [
        case("Equal bool", "bool:128x768", "bool:128x768"),
        case("Equal u8 scalar", "u8:480x640 below 3", "*u8: all 1"),
        case("Greater f64", "f64:128x768", "f64:128x768"),
        case("Greater f32 scalar", "1x1x640x640 unit", 0.3),
        case("Where f32", "bool:128x768", "128x768", "128x768"),
        case("Where mask", "bool:1x1x128x128", "1x12x128x128", -1e4),
        case("Where row mask", "bool:8x1x1x64", -1e4, "8x12x64x64"),
        case("Where columns", "bool:1024x1", "1024x256", "1024x256"),
        case("Where scalars", "bool:128x768", 1.0, 0.0),
        case("Where i64", "bool:128x768", "i64:128x768", 0),
        case("Where u8", "bool:240x320x1", "u8:240x320x3", "*u8: all 114"),
        case("Where i32", "bool:64x56x56", "i32:64x56x56", "i32:64x56x56"),
        case("Clip 0 to 6", _IMAGE, 0.0, 6.0),
        case("Clip from below", "128x768", 0.001),
        case("Clip to above", "128x768", None, 1.0),
        case("Clip rows of 7", "300x7", 0.0, 1.0),
        case("Clip i64", "i64:64x56x56", 0, 79),
        case("Clip i32", "i32:64x56x56", "*i32: all 0", "*i32: all 79"),
        case("Clip u8", "u8:480x640x3", "*u8: all 16", "*u8: all 235"),
        case("Clip i8", "i8:64x56x56", "*i8: all -100", "*i8: all 100"),
        case("Clip f64", "f64:64x56x56", np.float64(0), np.float64(1)),
    ]


def _cast() -> list[Case]:
    types = {
        "f32": TensorProto.FLOAT,
        "f16": TensorProto.FLOAT16,
        "f64": TensorProto.DOUBLE,
        "i8": TensorProto.INT8,
        "u8": TensorProto.UINT8,
        "i32": TensorProto.INT32,
        "i64": TensorProto.INT64,
        "bool": TensorProto.BOOL,
    }
    pairs = [("f32", to) for to in types if to != "f32"] + [(t, "f32") for t in types if t != "f32"]
    pairs += [("i64", "i32"), ("i32", "i64"), ("bool", "i64"), ("u8", "i32"), ("i64", "bool")]
    pairs += [("bool", "i32"), ("f64", "i64"), ("u8", "f16"), ("f16", "i32"), ("i64", "f64")]
    found = []
    for source, to in pairs:
        kind = " below 100" if source != "bool" else ""
        found.append(case(f"Cast {source} to {to}", f"{source}:64x56x56{kind}", to=int(types[to])))
    return found + [
        case("Cast bytes of a picture", "u8:1x480x640x3", to=int(TensorProto.FLOAT)),
        case("Cast f32 to i32 of 7", "7 times 9", to=int(TensorProto.INT32)),
        case("CastLike i64 to f32", "i64:128x768 below 9", "1"),
    ]


CASES = [*_unary(), *_binary(), *_compared(), *_cast()]
