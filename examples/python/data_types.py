# SPDX-License-Identifier: Apache-2.0
"""Expressions as trees of run-time shape, evaluated by one compiled function.

A data type is declared by its constructors, `match` takes a value apart, and functions call themselves.
    python examples/python/data_types.py
"""

from __future__ import annotations

import numpy as np

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Expressions:
    @R.data
    class Tree:
        def Leaf(value: R.Tensor((3,), "float32")): ...
        def Sum(left: Tree, right: Tree): ...
        def Product(left: Tree, right: Tree): ...

    @R.function
    def evaluate(tree: Tree) -> R.Tensor((3,), "float32"):
        cls = Expressions
        match tree:
            case Tree.Leaf(value):
                result = value
            case Tree.Sum(left, right):
                a = cls.evaluate(left)
                b = cls.evaluate(right)
                result = R.add(a, b)
            case Tree.Product(left, right):
                a = cls.evaluate(left)
                b = cls.evaluate(right)
                result = R.multiply(a, b)
        return result


def main() -> None:
    vm = relaxvm.VirtualMachine(relaxvm.compile(Expressions), relaxvm.cpu())
    tree = Expressions.data_types["Tree"]
    x = tree.Leaf.value(np.array([1, 2, 3], "float32"))
    y = tree.Leaf.value(np.array([4, 5, 6], "float32"))
    print("x * y + x       =", vm["evaluate"](tree.Sum.value(tree.Product.value(x, y), x)).numpy())
    power = x
    for _ in range(4):
        power = tree.Product.value(power, x)
    print("x ** 5          =", vm["evaluate"](power).numpy())
    print("made by         :", tree.constructor_of(power).name, "of", len(power), "fields")


if __name__ == "__main__":
    main()
