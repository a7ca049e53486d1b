# SPDX-License-Identifier: Apache-2.0
"""What this machine can do at most, measured by programs of our own: multiply-adds, products that have units of their
own, and memory traffic."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

# Chains of dependent multiply-adds hide each other's latency; lanes x chains must fit the registers, and which
# pair does is found by trying.
SHAPES = ((16, 24), (8, 12), (4, 24))
_STEPS = 20_000
# A matrix product whose operands stay in the second cache: rows of each thread, columns, terms of a sum.
_PRODUCT = (192, 256, 2048)
_PRODUCT_DTYPES: dict[str, tuple[Any, Any, str]] = {  # of both sides and of the sums
    "int8": (np.uint8, np.int8, "int32"),
    "bfloat16": (ml_dtypes.bfloat16, ml_dtypes.bfloat16, "float32"),
}
# Far above any last-level cache of one machine's share, and small enough for a small machine.
_TRAFFIC_BYTES = 256 << 20
_SECONDS = 0.4

_PEAK = """
@I.ir_module
class Module:
    @T.prim_func
    def kernel(x: T.Buffer(({tasks}, {width}), "float32"), y: T.Buffer(({tasks}, {width}), "float32")):
        for t in T.parallel({tasks}):
            acc = T.alloc_buffer(({width},), "float32", scope="local")
            for i in T.unroll({chains}):
                for v in T.vectorized({lanes}):
                    acc[i * {lanes} + v] = x[t, i * {lanes} + v]
            for k in range({steps}):
                for i in T.unroll({chains}):
                    for v in T.vectorized({lanes}):
                        acc[i * {lanes} + v] = T.fma(
                            acc[i * {lanes} + v], acc[i * {lanes} + v], acc[i * {lanes} + v]
                        )
            for i in T.unroll({chains}):
                for v in T.vectorized({lanes}):
                    y[t, i * {lanes} + v] = acc[i * {lanes} + v]

    @R.function
    def main(x: R.Tensor(({tasks}, {width}), "float32")):
        return R.call_tir(Module.kernel, (x,), R.Tensor(({tasks}, {width}), "float32"))
"""

_TRAFFIC = """
@I.ir_module
class Module:
    @T.prim_func
    def kernel(x: T.Buffer(({threads}, {width}), "float32"), y: T.Buffer(({threads}, 16), "float32")):
        for t in T.parallel({threads}):
            acc = T.alloc_buffer((64,), "float32", scope="local")
            for v in T.vectorized(64):
                acc[v] = T.float32(0)
            for k in range({width} // 64):
                for v in T.vectorized(64):
                    acc[v] = acc[v] + x[t, k * 64 + v]
            for v in T.vectorized(16):
                y[t, v] = acc[v] + acc[v + 16] + acc[v + 32] + acc[v + 48]

    @R.function
    def main(x: R.Tensor(({threads}, {width}), "float32")):
        return R.call_tir(Module.kernel, (x,), R.Tensor(({threads}, 16), "float32"))
"""


@dataclasses.dataclass(frozen=True)
class Limits:
    """float32 multiply-adds and reads from memory, with all threads of a run; what products of other dtypes reach,
    where they were measured."""

    threads: int
    gflop_per_s: float
    gb_per_s: float
    products: Mapping[str, float] = dataclasses.field(default_factory=dict)  # dtype: GFLOP/s

    def share(self, seconds: float, flops: float, num_bytes: float, products: str = "") -> float:
        """How much of the nearer limit some work reached (the roofline: Williams, Waterman, Patterson 2009)."""
        if seconds <= 0:
            return 0.0
        gflop_per_s = self.products.get(products, self.gflop_per_s)
        least = max(flops / gflop_per_s, num_bytes / self.gb_per_s) / 1e9
        return least / seconds

    def text(self) -> str:
        """For people."""
        rates = {"float32": self.gflop_per_s, **self.products}
        return ", ".join(
            [
                *(f"{rate:.0f} GFLOP/s of {dtype}" for dtype, rate in rates.items()),
                f"{self.gb_per_s:.1f} GB/s",
            ]
        )


def measure(threads: int, target: str, products: Iterable[str] = ()) -> Limits:
    """Runs for about two seconds; compiles four small programs, and one for each dtype of `products`."""
    from ..script import from_source

    programs = [multiply_adds(shape, threads, target) for shape in SHAPES]
    flops = max(count / least_seconds(run, _SECONDS) for run, count in programs)
    width = _TRAFFIC_BYTES // 4 // threads // 64 * 64
    data = np.ones((threads, width), "float32")
    run = _program(
        from_source(_TRAFFIC.format(threads=threads, width=width)), data, threads, target
    )
    return Limits(
        threads,
        flops / 1e9,
        data.nbytes / least_seconds(run, _SECONDS) / 1e9,
        {dtype: _product_gflop_per_s(dtype, threads, target) for dtype in products},
    )


def multiply_adds(
    shape: tuple[int, int], threads: int, target: str, rounds: int = 1
) -> tuple[Callable[[], Any], float]:
    """A program that does nothing but float32 multiply-adds, each thread about 0.1 ms in each of `rounds`, and the
    operations of a call; with the fastest of SHAPES it runs at the machine's peak."""
    from ..script import from_source

    lanes, chains = shape
    width, tasks = lanes * chains, threads * rounds
    text = _PEAK.format(tasks=tasks, width=width, lanes=lanes, chains=chains, steps=_STEPS)
    data = np.full((tasks, width), 0.5, "float32")
    return _program(from_source(text), data, threads, target), 2.0 * width * _STEPS * tasks


def _product_gflop_per_s(dtype: str, threads: int, target: str) -> float:
    from ..relax import BlockBuilder, TensorType, Var, const, op

    rows, columns, terms = _PRODUCT
    left, right, sums = _PRODUCT_DTYPES[dtype]
    data = np.ones((rows * threads, terms), left)
    x = Var("x", TensorType(data.shape, str(data.dtype)))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        product = op.matmul(x, const(np.ones((terms, columns), right)), out_dtype=sums)
        builder.emit_func_output(builder.emit(product))
    run = _program(builder.finalize(), data, threads, target)
    return 2 * data.size * columns / least_seconds(run, _SECONDS) / 1e9


def _program(module: Any, data: np.ndarray, threads: int, target: str) -> Callable[[], Any]:
    from .. import compile as compile_module
    from .._session.build import apply_threads
    from ..runtime import VirtualMachine, cpu, tensor

    vm = VirtualMachine(compile_module(module, target=target), cpu())
    apply_threads(vm, threads)
    function, argument = vm["main"], tensor(data)
    return lambda: function(argument)


def least_seconds(run: Callable[[], Any], budget_s: float, rounds: int = 3) -> float:
    """The least time of one call, after a first one that does not count."""
    run()
    least, end = float("inf"), time.perf_counter() + budget_s
    while rounds > 0 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - start)
        rounds -= 1
    return least
