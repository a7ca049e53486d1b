# SPDX-License-Identifier: Apache-2.0
"""Products of permuted tensors: right in every order of both operands, with sizes that are known and that are not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)
SIZES = [(1, 3, 70, 33), (2, 1, 16, 64), (3, 7, 1, 5), (2, 20, 40, 1), (2, 0, 5, 4), (0, 2, 5, 4)]


def product(left: tuple[int, ...], right: tuple[int, ...], dims: list, dtype: str):
    """matmul of permuted x and y, which come in the orders that the permutations undo."""
    batch, m, n, k = dims
    shapes = ([batch, 4, m, k], [batch, 4, k, n])
    builder = relax.BlockBuilder()
    params = [
        relax.Var(name, relax.TensorType([shape[int(i)] for i in np.argsort(order)], dtype))
        for name, shape, order in zip("xy", shapes, (left, right))
    ]
    with builder.function("main", params):
        with builder.dataflow():
            a, b = (op.permute_dims(p, list(o)) for p, o in zip(params, (left, right)))
            out = builder.emit_output(op.nn.relu(op.matmul(a, b)))
        builder.emit_func_output(out)
    return relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())


def whole(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(dtype)


def check(vm, left: tuple[int, ...], right: tuple[int, ...], dims: list, dtype: str) -> None:
    batch, m, n, k = dims
    a, b = whole(batch, 4, m, k, dtype=dtype), whole(batch, 4, k, n, dtype=dtype)
    args = [np.ascontiguousarray(x.transpose(np.argsort(o))) for x, o in zip((a, b), (left, right))]
    for threads in (1, 3):
        vm.set_num_threads(threads)
        got = vm["main"](*(relaxvm.runtime.tensor(x) for x in args)).numpy()
        np.testing.assert_array_equal(got, np.maximum(a @ b, 0), err_msg=str(dims))


ORDERS = [(0, 1, 3, 2), (0, 2, 1, 3), (0, 2, 3, 1), (3, 2, 1, 0)]


@pytest.mark.parametrize("left,right", list(itertools.product(ORDERS[:2], ORDERS)))
def test_sizes_known_at_run_time(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    symbolic = [relaxvm.tirx.Var(name, "int64") for name in "bmnk"]
    vm = product(left, right, symbolic, "float32")
    for dims in SIZES:
        check(vm, left, right, list(dims), "float32")


@pytest.mark.parametrize("right", ORDERS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_known_sizes(right: tuple[int, ...], dtype: str) -> None:
    for dims in SIZES:
        check(product(ORDERS[1], right, list(dims), dtype), ORDERS[1], right, list(dims), dtype)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Of [batch, heads, length, depth]."""
    shared = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, shared, 1), np.repeat(v, shared, 1)
    s = np.einsum("bhsd,bhtd->bhst", q.astype("float64"), k) / np.sqrt(q.shape[3]) + bias
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhst,bhtd->bhsd", e / e.sum(-1, keepdims=True), v)


LENGTHS = [(1, 1, 1), (2, 1, 65), (1, 2, 130), (1, 3, 64), (2, 13, 40), (1, 50, 50), (0, 1, 4)]


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("heads,groups,depth", [(4, 4, 32), (6, 2, 16), (8, 2, 20), (5, 5, 7)])
def test_attention_reads_a_cache_as_it_lies(
    heads: int, groups: int, depth: int, target: str
) -> None:
    b, s, t = (relaxvm.tirx.Var(name, "int64") for name in "bst")
    builder = relax.BlockBuilder()
    shapes = [[b, heads, s, depth], [b, groups, t, depth], [b, groups, t, depth], [b, 1, s, t]]
    params = [relax.Var(n, relax.TensorType(shape, "float32")) for n, shape in zip("qkvm", shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            turned = [op.permute_dims(p, [0, 2, 1, 3]) for p in params[:3]]
            out = builder.emit_output(op.nn.attention_bias(*turned, params[3]))
        builder.emit_func_output(out)
    module = builder.get()
    lowered = relaxvm.compile(module, target=target, stop_after="lowered")
    assert len([f for f in lowered.functions.values() if not isinstance(f, relax.Function)]) == 1
    vm = relax.VirtualMachine(relaxvm.compile(module, target=target), relaxvm.cpu())
    for batch, queries, keys in LENGTHS:
        q = RNG.standard_normal((batch, heads, queries, depth), dtype="float32")
        k, v = (RNG.standard_normal((batch, groups, keys, depth), dtype="float32") for _ in "kv")
        bias = np.where(RNG.random((batch, 1, queries, keys)) < 0.3, -1e9, 0).astype("float32")
        bias[..., 0] = 0
        want = attention(q, k, v, bias).transpose(0, 2, 1, 3)
        for threads in (1, 3):
            vm.set_num_threads(threads)
            got = vm["main"](*(relaxvm.runtime.tensor(x) for x in (q, k, v, bias))).numpy()
            np.testing.assert_allclose(got, want, atol=3e-6, err_msg=str((batch, queries, keys)))
