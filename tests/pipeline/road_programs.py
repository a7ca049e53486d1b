# SPDX-License-Identifier: Apache-2.0
"""Small programs, one for each thing that a program may do, with what they compute in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


@dataclass
class Program:
    mod: relaxvm.IRModule
    inputs: Callable[[int], list[Any]]  # for a size
    expected: Callable[..., Any]
    sizes: tuple[int, ...] = (0, 1, 5, 33)
    tolerance: float = 1e-5
    packed: dict[str, Callable[..., Any]] = field(default_factory=dict)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape).astype("float32")


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, x)
            c = R.multiply(b, b)
            R.output(c)
        return c


@I.ir_module
class SeveralOutputs:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        a = R.add(x, x)
        b = R.multiply(a, x)
        return (a, (b, x))


@I.ir_module
class TupleArgument:
    @R.function
    def main(
        p: R.Tuple(
            R.Tensor(("n",), "float32"), R.Tuple(R.Tensor(("n",), "float32"), R.Shape(["n"]))
        ),
    ):
        x = p[0]
        q = p[1]
        y = q[0]
        z = R.add(x, y)
        return z


@I.ir_module
class Branch:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 4), "float32")) -> R.Tensor(
        ("n", 4), "float32"
    ):
        y = R.exp(x)
        if c:
            a = R.add(y, x)
            b = R.multiply(a, a)
            r = R.add(b, y)
        else:
            d = R.subtract(y, x)
            r = R.multiply(d, y)
        z = R.add(r, x)
        return z


@I.ir_module
class Calls:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
        cls = Calls
        a = cls.twice(x)
        b = cls.twice(y)
        c = R.concat((a, b), axis=0)
        return c

    @R.function(private=True)
    def twice(x: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
        y = R.add(x, x)
        return y


@I.ir_module
class Recursion:
    @R.function
    def main(i: R.Tensor((), "int64"), x: R.Tensor(("n",), "float32")) -> R.Tensor(
        ("n",), "float32"
    ):
        cls = Recursion
        more = R.greater(i, R.const(0, "int64"))
        if more:
            j = R.subtract(i, R.const(1, "int64"))
            y = R.add(x, x)
            r = cls.main(j, y)
        else:
            r = x
        return r


@I.ir_module
class Closure:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(
        ("n",), "float32"
    ):
        n = T.int64()

        @R.function
        def add_x(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            r = R.add(z, x)
            return r

        a = add_x(y)
        b = add_x(a)
        return b


@I.ir_module
class ShapeArithmetic:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n * m + 3",), "float32"):
        n = T.int64()
        m = T.int64()
        a = R.reshape(x, R.shape([n * m]))
        b = R.zeros(R.shape([3]), "float32")
        c = R.concat((a, b), axis=0)
        return c


@I.ir_module
class MatchCast:
    @R.function
    def main(x: R.Tensor(dtype="float32", ndim=2)):
        n = T.int64()
        y = R.match_cast(x, R.Tensor((n, 4), "float32"))
        z = R.add(y, y)
        return (z, R.shape([n, n + 1]))


@I.ir_module
class UserProgram:
    @T.prim_func(private=True)
    def split(x: T.handle, lo: T.handle, hi: T.handle):
        T.func_attr({"num_outputs": 2})
        n = T.int64()
        X = T.match_buffer(x, (n,), "float32")
        L = T.match_buffer(lo, (n,), "float32")
        H = T.match_buffer(hi, (n,), "float32")
        for i in range(n):
            with T.sblock("split"):
                vi = T.axis.spatial(n, i)
                L[vi] = T.min(X[vi], T.float32(0))
                H[vi] = T.max(X[vi], T.float32(0))

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        cls = UserProgram
        y = R.call_tir(
            cls.split, (x,), out_ty=[R.Tensor((n,), "float32"), R.Tensor((n,), "float32")]
        )
        lo = y[0]
        hi = y[1]
        z = R.subtract(hi, lo)
        return (z, lo)


@I.ir_module
class PackedResult:
    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")):
        k = T.int64()
        u = R.call_packed("test.pipeline.positive", x, ty_args=(R.Tensor(dtype="float32", ndim=1),))
        v = R.match_cast(u, R.Tensor((k,), "float32"))
        w = R.add(v, v)
        return w


@I.ir_module
class Destination:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.call_dps_packed("test.pipeline.tile", (x,), out_ty=R.Tensor((n * 2,), "float32"))
        z = R.add(y, y)
        return z


def positive(x):
    a = x.numpy()
    return relaxvm.runtime.tensor(a[a > 0])


def tile(x, out):
    out.copyfrom(np.tile(x.numpy(), 2))


PROGRAMS: dict[str, Program] = {
    "chain": Program(
        Chain, lambda n: [floats(n, 4)], lambda x: (np.exp(x) + x) ** 2, tolerance=1e-4
    ),
    "several_outputs": Program(
        SeveralOutputs, lambda n: [floats(n, 4)], lambda x: (x + x, ((x + x) * x, x))
    ),
    "tuple_argument": Program(
        TupleArgument,
        lambda n: [(floats(n), (floats(n), relaxvm.runtime.Shape([n])))],
        lambda p: p[0] + p[1][0],
    ),
    "branch_true": Program(
        Branch,
        lambda n: [np.array(True), floats(n, 4)],
        lambda c, x: (np.exp(x) + x) ** 2 + np.exp(x) + x,
        tolerance=1e-4,
    ),
    "branch_false": Program(
        Branch,
        lambda n: [np.array(False), floats(n, 4)],
        lambda c, x: (np.exp(x) - x) * np.exp(x) + x,
        tolerance=1e-4,
    ),
    "calls": Program(
        Calls, lambda n: [floats(n), floats(n + 2)], lambda x, y: np.concatenate([x + x, y + y])
    ),
    "recursion": Program(
        Recursion, lambda n: [np.array(3, "int64"), floats(n)], lambda i, x: x * 8
    ),
    "closure": Program(Closure, lambda n: [floats(n), floats(n) * 2], lambda x, y: y + x + x),
    "shape_arithmetic": Program(
        ShapeArithmetic,
        lambda n: [floats(n, 3)],
        lambda x: np.concatenate([x.reshape(-1), np.zeros(3, "float32")]),
    ),
    "match_cast": Program(
        MatchCast, lambda n: [floats(n, 4)], lambda x: (x + x, (len(x), len(x) + 1))
    ),
    "user_program": Program(
        UserProgram,
        lambda n: [floats(n)],
        lambda x: (np.maximum(x, 0) - np.minimum(x, 0), np.minimum(x, 0)),
    ),
    "packed_result": Program(
        PackedResult,
        lambda n: [floats(n)],
        lambda x: 2 * x[x > 0],
        packed={"test.pipeline.positive": positive},
    ),
    "destination": Program(
        Destination,
        lambda n: [floats(n)],
        lambda x: np.tile(x, 2) * 2,
        packed={"test.pipeline.tile": tile},
    ),
}


def register_packed() -> None:
    for program in PROGRAMS.values():
        for name, function in program.packed.items():
            relaxvm.register_global_func(name, function, override=True)


def to_vm(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return relaxvm.runtime.tensor(value)
    return tuple(map(to_vm, value)) if type(value) is tuple else value


def check(actual: Any, expected: Any, tolerance: float) -> None:
    if isinstance(expected, tuple) and not isinstance(expected[0], int):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            check(a, e, tolerance)
    elif isinstance(expected, tuple):
        assert tuple(actual) == expected
    else:
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual.numpy(), expected, rtol=tolerance, atol=tolerance)
