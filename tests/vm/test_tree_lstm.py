# SPDX-License-Identifier: Apache-2.0
"""A child-sum TreeLSTM over trees of run-time shape, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from data_type_programs import adt_list, vm_of

import relaxvm
from relaxvm.runtime import ADT
from relaxvm.script import ir as I
from relaxvm.script import relax as R

SIZE = 8


@I.ir_module
class TreeLSTM:
    @R.data("A")
    class List:
        def Nil(): ...
        def Cons(head: A, tail: List[A]): ...

    @R.data
    class Tree:
        def Node(value: R.Tensor((1, 8), "float32"), children: List[Tree]): ...

    @R.function
    def node(
        tree: Tree,
        w: R.Tensor((8, 32), "float32"),
        u: R.Tensor((8, 24), "float32"),
        uf: R.Tensor((8, 8), "float32"),
    ) -> R.Tuple(R.Tensor((1, 8), "float32"), R.Tensor((1, 8), "float32")):
        cls = TreeLSTM
        match tree:
            case Tree.Node(x, below):
                gates = R.split(R.matmul(x, w), 4, axis=1)
                sums = cls.children(below, gates[3], w, u, uf)
                from_below = R.split(R.matmul(sums[0], u), 3, axis=1)
                i = R.sigmoid(R.add(gates[0], from_below[0]))
                o = R.sigmoid(R.add(gates[1], from_below[1]))
                g = R.tanh(R.add(gates[2], from_below[2]))
                c = R.add(R.multiply(i, g), sums[1])
                h = R.multiply(o, R.tanh(c))
                result = (h, c)
        return result

    @R.function
    def children(
        trees: List[Tree],
        forget: R.Tensor((1, 8), "float32"),
        w: R.Tensor((8, 32), "float32"),
        u: R.Tensor((8, 24), "float32"),
        uf: R.Tensor((8, 8), "float32"),
    ) -> R.Tuple(R.Tensor((1, 8), "float32"), R.Tensor((1, 8), "float32")):
        cls = TreeLSTM
        match trees:
            case List.Nil():
                zero = R.zeros((1, 8), "float32")
                sums = (zero, zero)
            case List.Cons(first, others):
                hc = cls.node(first, w, u, uf)
                more = cls.children(others, forget, w, u, uf)
                f = R.sigmoid(R.add(forget, R.matmul(hc[0], uf)))
                h_sum = R.add(hc[0], more[0])
                c_sum = R.add(R.multiply(f, hc[1]), more[1])
                sums = (h_sum, c_sum)
        return sums


def random_tree(rng: np.random.Generator, depth: int) -> tuple[np.ndarray, list[Any]]:
    count = int(rng.integers(0, 4)) if depth > 0 else 0
    value = rng.standard_normal((1, SIZE)).astype("float32")
    return value, [random_tree(rng, depth - 1) for _ in range(count)]


def as_value(tree: Any) -> ADT:
    value, children = tree
    return ADT(0, [value, adt_list([as_value(child) for child in children])])


def size(tree: Any) -> int:
    return 1 + sum(size(child) for child in tree[1])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def oracle(tree: Any, w: np.ndarray, u: np.ndarray, uf: np.ndarray) -> tuple[Any, Any]:
    value, children = tree
    i, o, g, forget = np.split(value @ w, 4, axis=1)
    states = [oracle(child, w, u, uf) for child in children]
    h_sum = sum((h for h, _ in states), np.zeros((1, SIZE)))
    c_sum = sum((sigmoid(forget + h @ uf) * c for h, c in states), np.zeros((1, SIZE)))
    di, do, dg = np.split(h_sum @ u, 3, axis=1)
    c = sigmoid(i + di) * np.tanh(g + dg) + c_sum
    return sigmoid(o + do) * np.tanh(c), c


@pytest.fixture(scope="module", params=["bytecode", "compiled"])
def vm(request) -> relaxvm.VirtualMachine:
    return vm_of(TreeLSTM, exec_mode=request.param)


@pytest.mark.parametrize("seed, depth", [(0, 0), (1, 2), (2, 3), (3, 4), (7, 6)])
def test_tree_lstm(vm, seed, depth):
    rng = np.random.default_rng(seed)
    shapes = ((SIZE, 4 * SIZE), (SIZE, 3 * SIZE), (SIZE, SIZE))
    weights = [rng.standard_normal(s).astype("float32") * 0.5 for s in shapes]
    tree = random_tree(rng, depth)
    found = vm["node"](as_value(tree), *map(relaxvm.runtime.tensor, weights))
    wanted = oracle(tree, *(w.astype("float64") for w in weights))
    for a, b in zip(found, wanted):
        np.testing.assert_allclose(a.numpy(), b, rtol=2e-5, atol=2e-6)
