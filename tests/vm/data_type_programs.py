# SPDX-License-Identifier: Apache-2.0
"""Programs over algebraic data types, and their values built from Python and taken apart again."""

from __future__ import annotations

from typing import Any

import numpy as np

import relaxvm
from relaxvm.runtime import ADT
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


@I.ir_module
class Lists:
    @R.data("A")
    class List:
        def Nil(): ...
        def Cons(head: A, tail: List[A]): ...

    @R.function
    def map(
        f: R.Callable((R.Tensor((2,), "float32"),), R.Tensor((2,), "float32"), True),
        xs: List[R.Tensor((2,), "float32")],
    ) -> List[R.Tensor((2,), "float32")]:
        cls = Lists
        match xs:
            case List.Nil():
                result = List.Nil()
            case List.Cons(head, tail):
                y = f(head)
                ys = cls.map(f, tail)
                result = List.Cons(y, ys)
        return result

    @R.function
    def filter(
        p: R.Callable((R.Tensor((2,), "float32"),), R.Tensor((), "bool"), True),
        xs: List[R.Tensor((2,), "float32")],
    ) -> List[R.Tensor((2,), "float32")]:
        cls = Lists
        match xs:
            case List.Cons(head, tail):
                rest = cls.filter(p, tail)
                keep = p(head)
                if keep:
                    result = List.Cons(head, rest)
                else:
                    result = rest
            case _:
                result = xs
        return result

    @R.function
    def fold(
        f: R.Callable(
            (R.Tensor((2,), "float32"), R.Tensor((2,), "float32")),
            R.Tensor((2,), "float32"),
            True,
        ),
        start: R.Tensor((2,), "float32"),
        xs: List[R.Tensor((2,), "float32")],
    ) -> R.Tensor((2,), "float32"):
        cls = Lists
        match xs:
            case List.Nil():
                result = start
            case List.Cons(head, tail):
                next = f(start, head)
                result = cls.fold(f, next, tail)
        return result

    @R.function
    def twice(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = R.add(x, x)
        return y

    @R.function
    def positive(x: R.Tensor((2,), "float32")) -> R.Tensor((), "bool"):
        total = R.sum(x)
        y = R.greater(total, R.const(0, "float32"))
        return y

    @R.function
    def plus(a: R.Tensor((2,), "float32"), b: R.Tensor((2,), "float32")) -> R.Tensor(
        (2,), "float32"
    ):
        c = R.subtract(R.multiply(a, R.const(0.5, "float32")), b)
        return c

    @R.function
    def doubled(xs: List[R.Tensor((2,), "float32")]) -> List[R.Tensor((2,), "float32")]:
        cls = Lists
        ys = cls.map(cls.twice, xs)
        return ys

    @R.function
    def scaled(
        factor: R.Tensor((2,), "float32"), xs: List[R.Tensor((2,), "float32")]
    ) -> List[R.Tensor((2,), "float32")]:
        cls = Lists

        @R.function
        def scale(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            y = R.multiply(x, factor)
            return y

        ys = cls.map(scale, xs)
        return ys

    @R.function
    def positives(xs: List[R.Tensor((2,), "float32")]) -> List[R.Tensor((2,), "float32")]:
        cls = Lists
        ys = cls.filter(cls.positive, xs)
        return ys

    @R.function
    def folded(start: R.Tensor((2,), "float32"), xs: List[R.Tensor((2,), "float32")]) -> R.Tensor(
        (2,), "float32"
    ):
        cls = Lists
        y = cls.fold(cls.plus, start, xs)
        return y

    @R.function
    def head(xs: List[R.Tensor((2,), "float32")]) -> R.Tensor((2,), "float32"):
        match xs:
            case List.Cons(first, _):
                result = R.add(first, R.const(1, "float32"))
            case List.Nil():
                result = R.fatal(R.str("head of an empty list"))
        return result

    @R.function
    def rows(xs: List[R.Tensor(("n", 3), "float32")]) -> List[R.Shape(ndim=1)]:
        """Tensors of different shapes: each element is matched on its own."""
        cls = Lists
        match xs:
            case List.Nil():
                result = List.Nil()
            case List.Cons(head, tail):
                n = T.int64()
                x = R.match_cast(head, R.Tensor((n, 3), "float32"))
                rest = cls.rows(tail)
                result = List.Cons(R.shape([n * 3]), rest)
        return result


@I.ir_module
class Parity:
    """Numbers by successors, and two functions that call each other."""

    @R.data
    class Nat:
        def Zero(): ...
        def Next(of: Nat): ...

    @R.function
    def even(n: Nat) -> R.Tensor((), "bool"):
        cls = Parity
        match n:
            case Nat.Zero():
                r = R.const(True, "bool")
            case Nat.Next(m):
                r = cls.odd(m)
        return r

    @R.function
    def odd(n: Nat) -> R.Tensor((), "bool"):
        cls = Parity
        match n:
            case Nat.Zero():
                r = R.const(False, "bool")
            case Nat.Next(m):
                r = cls.even(m)
        return r


@I.ir_module
class Shapes:
    """Four constructors; a record; a data type that names another one."""

    @R.data
    class Shape:
        def Point(): ...
        def Circle(radius: R.Tensor((), "float32")): ...
        def Box(width: R.Tensor((), "float32"), height: R.Tensor((), "float32")): ...
        def Named(label: R.Prim("int64"), inner: Shape): ...

    @R.data("A", "B")
    class Pair:
        def Of(first: A, second: B): ...

    @R.function
    def area(s: Shape) -> R.Tensor((), "float32"):
        cls = Shapes
        match s:
            case Shape.Point():
                r = R.const(0, "float32")
            case Shape.Circle(radius):
                r = R.multiply(R.multiply(radius, radius), R.const(3, "float32"))
            case Shape.Box(width=w, height=h):
                r = R.multiply(w, h)
            case Shape.Named(inner=inner):
                r = cls.area(inner)
        return r

    @R.function
    def is_box(s: Shape) -> R.Tensor((), "bool"):
        match s:
            case Shape.Box(_, _):
                r = R.const(True, "bool")
            case _:
                r = R.const(False, "bool")
        return r

    @R.function
    def both(p: Pair[Shape, Shape]) -> Pair[R.Tensor((), "float32"), R.Tensor((), "float32")]:
        cls = Shapes
        match p:
            case Pair.Of(a, b):
                with R.dataflow():
                    x = cls.area(a)
                    y = cls.area(b)
                    R.output(x, y)
                r = Pair.Of(second=x, first=y)
        return r


def adt_list(values: list[Any]) -> ADT:
    """Lists.List of the values."""
    result = ADT(0)
    for value in reversed(values):
        result = ADT(1, [value, result])
    return result


def python_list(value: ADT) -> list[Any]:
    result = []
    while value.tag == 1:
        head, value = value.fields
        result.append(head)
    return result


def vm_of(mod: relaxvm.IRModule, **options: Any) -> relaxvm.VirtualMachine:
    return relaxvm.VirtualMachine(relaxvm.compile(mod, **options), relaxvm.cpu())


def arrays(values: list[Any]) -> list[np.ndarray]:
    return [np.asarray(v.numpy()) for v in values]
