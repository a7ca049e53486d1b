# SPDX-License-Identifier: Apache-2.0
"""NaN, infinities, signed zeros, and the ends of integer ranges, as NumPy has them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

FLOATS = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 1.5, 1e30, -1e-30], "float32"
)
PAIRS = np.array(list(itertools.product(FLOATS, FLOATS)), "float32")
ROWS = np.array([[1, np.nan, 3], [np.nan, np.nan, 0], [-np.inf, -np.inf, -np.inf], [2, 2, 1], [3, -0.0, 0.0]], "float32")  # fmt: skip

UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs, "ceil": np.ceil, "floor": np.floor, "round": np.round, "trunc": np.trunc, "sign": np.sign,
    "negative": np.negative, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "tanh": np.tanh,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "square": np.square,
    "nn.relu": lambda x: np.maximum(x, 0),
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "maximum": np.maximum, "minimum": np.minimum, "floor_mod": np.mod, "mod": np.fmod,
    "floor_divide": np.floor_divide, "less": np.less, "less_equal": np.less_equal, "equal": np.equal,
    "not_equal": np.not_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "log_add_exp": np.logaddexp,
}  # fmt: skip
REDUCING: dict[str, Callable[[Any], Any]] = {
    "max": lambda x: np.max(x, 1), "min": lambda x: np.min(x, 1), "sum": lambda x: np.sum(x, 1),
    "argmax": lambda x: np.argmax(x, 1), "argmin": lambda x: np.argmin(x, 1),
}  # fmt: skip


def _function(name: str) -> Any:
    found = op
    for part in name.split("."):
        found = getattr(found, part)
    return found


@functools.cache
def machine() -> Any:
    builder = relax.BlockBuilder()

    def add(name: str, shapes: list[tuple[int, ...]], make: Callable[..., Any]) -> None:
        params = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
        with builder.function(name.replace(".", "_"), params):
            builder.emit_func_output(builder.emit(make(*params)))

    for name in UNARY:
        add(name, [FLOATS.shape], _function(name))
    for name in BINARY:
        add(name, [(len(PAIRS),)] * 2, _function(name))
    for name in REDUCING:
        reduce = _function(name)
        axis: Any = 1 if name.startswith("arg") else [1]
        add(name, [ROWS.shape], functools.partial(lambda x, reduce, axis: reduce(x, axis=axis), reduce=reduce, axis=axis))  # fmt: skip
    add("sort", [ROWS.shape], op.sort)
    add("argsort", [ROWS.shape], op.argsort)
    add("max_pool", [(1, 1, *ROWS.shape)], lambda x: op.nn.max_pool2d(x, pool_size=[1, 3]))
    add("clip", [FLOATS.shape], lambda x: op.clip(x, -1.5, 2.0))
    return relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())


def run(name: str, *arrays: np.ndarray) -> np.ndarray:
    return machine()[name.replace(".", "_")](*[relaxvm.runtime.tensor(a) for a in arrays]).numpy()


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    with np.errstate(all="ignore"):
        want = UNARY[name](FLOATS)
    np.testing.assert_allclose(run(name, FLOATS), want, rtol=2e-6)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    a, b = np.ascontiguousarray(PAIRS[:, 0]), np.ascontiguousarray(PAIRS[:, 1])
    with np.errstate(all="ignore"):
        want = BINARY[name](a, b)
    np.testing.assert_allclose(run(name, a, b), want, rtol=2e-6)


@pytest.mark.parametrize("name", REDUCING)
def test_reducing(name: str) -> None:
    np.testing.assert_allclose(run(name, ROWS), REDUCING[name](ROWS), rtol=1e-6)


def test_sorting_puts_nan_last() -> None:
    np.testing.assert_array_equal(run("sort", ROWS), np.sort(ROWS, 1))
    np.testing.assert_array_equal(run("argsort", ROWS), np.argsort(ROWS, 1, kind="stable"))


def test_max_pool_keeps_nan() -> None:
    np.testing.assert_array_equal(run("max_pool", ROWS[None, None])[0, 0, :, 0], np.max(ROWS, 1))


def test_clip_keeps_nan() -> None:
    np.testing.assert_array_equal(run("clip", FLOATS), np.clip(FLOATS, -1.5, 2.0))


@pytest.mark.parametrize("count", [1, 5, 40])
def test_floats_outside_the_range_of_integers(count):
    """The nearest end of the range, 0 for NaN; narrow integers keep the low bits of an int32."""
    edge = [
        np.nan,
        np.inf,
        -np.inf,
        3e9,
        -3e9,
        2147483520,
        2147483648,
        -2147483904,
        -128.9,
        0.5,
        1e20,
    ]
    values = np.tile(np.array(edge, "float32"), 4)
    limits = np.iinfo("int32")
    want = np.clip(np.trunc(np.nan_to_num(values.astype("f8"), nan=0)), limits.min, limits.max)
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((count,), "float32"))
    with bb.function("main", [x]):
        both = [bb.emit(relax.op.astype(x, t)) for t in ("int32", "int8")]
        bb.emit_func_output(relax.Tuple(both))
    main = relax.VirtualMachine(relaxvm.compile(bb.get()), relaxvm.cpu())["main"]
    for at in range(0, len(values) - count + 1, count):
        wide, narrow = (t.numpy() for t in main(relaxvm.runtime.tensor(values[at : at + count])))
        part = want[at : at + count].astype("int32")
        np.testing.assert_array_equal(wide, part)
        np.testing.assert_array_equal(narrow, part.astype("int8"))


@pytest.mark.parametrize("dtype,low,high", [("int8", -128, 127), ("uint8", 0, 255), ("int16", -9, 300), ("int32", -7, 1e9)])  # fmt: skip
@pytest.mark.parametrize("count", [16, 5])
def test_clipped_floats_to_integers(dtype: str, low: float, high: float, count: int) -> None:
    """Inside of the range there is nothing to saturate; NaN is 0 all the same."""
    values = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, -0.75, 0.5, 254.99, 255, 256, -128.5, -129, 126.5, 1, -1, 0], "float32")  # fmt: skip
    values = np.roll(values, 5)[:count]
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([count], "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(op.astype(bb.emit(op.clip(x, low, high)), dtype)))
    vm = relaxvm.VirtualMachine(relaxvm.compile(bb.get()), relaxvm.cpu())
    want = np.trunc(np.clip(values.astype("f8"), low, high))
    np.testing.assert_array_equal(
        vm["main"](values).numpy(), np.nan_to_num(want, nan=0).astype(dtype)
    )
