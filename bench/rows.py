# SPDX-License-Identifier: Apache-2.0
"""Elementwise, row and data movement kernels: against torch on 1M elements, and as share of the memory bandwidth.

./dev bench rows [--peer PYTHON] [--only NAME,..] [--threads 1]

PYTHON is an interpreter that has torch; torch runs in a process of its own, in the same run.  The bandwidth is that of
the C library's copy of the same size (read plus written bytes), so a kernel that writes past the caches is held to one
that does so too.  Figures are least times.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

SQUARE = (1024, 1024)
LARGE = (8192, 4096)  # 128 MiB of float32: four times a last cache of 32 MiB
# name -> shapes of the float32 arguments
KERNELS: dict[str, list[tuple[int, ...]]] = {
    "exp": [SQUARE],
    "log": [SQUARE],
    "tanh": [SQUARE],
    "erf": [SQUARE],
    "sigmoid": [SQUARE],
    "gelu": [SQUARE],
    "softmax": [SQUARE],
    "layer_norm": [SQUARE, SQUARE[1:], SQUARE[1:]],
    "argmax": [SQUARE],
    "topk": [SQUARE],
    "sort": [SQUARE],
    "cumsum": [SQUARE],
    "cumsum_rows": [SQUARE],
    "sum": [SQUARE],
    "sum_rows": [SQUARE],
    "transpose": [SQUARE],
    "concat": [SQUARE, SQUARE],
}
# name -> shapes, bytes that must be moved for each element of the first argument
MEMORY: dict[str, tuple[list[tuple[int, ...]], int]] = {
    "add": ([LARGE, LARGE], 12),
    "relu": ([LARGE], 8),
    "layer_norm": ([LARGE, LARGE[1:], LARGE[1:]], 8),
    "softmax": ([LARGE], 8),
    "transpose": ([LARGE], 8),
    "concat": ([LARGE, LARGE], 16),
}


def least_seconds(run: Callable[[], object], budget: float) -> float:
    run()
    least, start, count = float("inf"), time.perf_counter(), 0
    while count < 5 or time.perf_counter() - start < budget:
        begin = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - begin)
        count += 1
    return least


def inputs(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s, dtype=np.float32) for s in shapes]


def peer(names: list[str], threads: int, budget: float) -> dict[str, float]:
    """Seconds of torch; runs in the interpreter that has it."""
    import torch

    torch.set_num_threads(threads)
    f = torch.nn.functional
    programs: dict[str, Callable[..., object]] = {
        "exp": torch.exp,
        "log": torch.log,
        "tanh": torch.tanh,
        "erf": torch.erf,
        "sigmoid": torch.sigmoid,
        "gelu": f.gelu,
        "softmax": lambda x: f.softmax(x, -1),
        "layer_norm": lambda x, g, b: f.layer_norm(x, x.shape[1:], g, b),
        "argmax": lambda x: x.argmax(-1),
        "topk": lambda x: x.topk(8),
        "sort": lambda x: x.sort(-1),
        "cumsum": lambda x: x.cumsum(-1),
        "cumsum_rows": lambda x: x.cumsum(0),
        "sum": lambda x: x.sum(-1),
        "sum_rows": lambda x: x.sum(0),
        "transpose": lambda x: x.t().contiguous(),
        "concat": lambda x, y: torch.cat([x, y], 0),
    }
    seconds = {}
    with torch.inference_mode():
        for name in names:
            args = [torch.from_numpy(a) for a in inputs(KERNELS[name])]
            seconds[name] = least_seconds(lambda n=name, a=args: programs[n](*a), budget)
    return seconds


def program(name: str, shapes: list[tuple[int, ...]], threads: int) -> Callable[[], object]:
    import relaxvm
    from relaxvm import relax
    from relaxvm.relax import op

    bodies: dict[str, Callable[..., relax.Expr]] = {
        "add": op.add,
        "relu": op.nn.relu,
        "exp": op.exp,
        "log": op.log,
        "tanh": op.tanh,
        "erf": op.erf,
        "sigmoid": op.sigmoid,
        "gelu": op.nn.gelu,
        "softmax": op.nn.softmax,
        "layer_norm": lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
        "argmax": lambda x: op.argmax(x, axis=-1),
        "topk": lambda x: op.topk(x, k=8),
        "sort": lambda x: op.sort(x, axis=-1),
        "cumsum": lambda x: op.cumsum(x, axis=-1),
        "cumsum_rows": lambda x: op.cumsum(x, axis=0),
        "sum": lambda x: op.sum(x, axis=-1),
        "sum_rows": lambda x: op.sum(x, axis=0),
        "transpose": lambda x: op.permute_dims(x, [1, 0]),
        "concat": lambda x, y: op.concat([x, y], axis=0),
    }
    params = [
        relax.Var(f"x{i}", relax.TensorType(list(s), "float32")) for i, s in enumerate(shapes)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(bodies[name](*params))
        builder.emit_func_output(result)
    executable = relaxvm.compile(builder.get(), target="llvm")
    vm = relax.VirtualMachine(executable, relaxvm.cpu(), num_threads=threads)
    main, args = vm["main"], [relaxvm.runtime.tensor(a) for a in inputs(shapes)]
    return lambda: main(*args)


def copy_bandwidth(budget: float) -> float:
    source = np.ones(LARGE, np.float32)
    target = np.zeros_like(source)
    return 2 * source.nbytes / least_seconds(lambda: np.copyto(target, source), budget)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="a Python interpreter that has torch")
    parser.add_argument("--only", help="names, with commas between")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=0.4, help="seconds for each figure")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    only = args.only.split(",") if args.only else None
    names = [n for n in KERNELS if only is None or n in only]
    if args.as_peer:
        print(json.dumps(peer(names, args.threads, args.budget)))
        return 0
    theirs: dict[str, float] = {}
    if args.peer:
        command = [args.peer, __file__, "--as-peer", "--only", ",".join(names)]
        command += ["--threads", str(args.threads), "--budget", str(args.budget)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
        theirs = json.loads(answer.stdout.splitlines()[-1])
    print(f"1M float32, {args.threads} thread(s)      us    torch us   ratio")
    for name in names:
        ours = least_seconds(program(name, KERNELS[name], args.threads), args.budget)
        beside = f"{theirs[name] * 1e6:11.1f} {theirs[name] / ours:7.2f}" if name in theirs else ""
        print(f"{name:20s} {ours * 1e6:11.1f} {beside}", flush=True)
    memory = [n for n in MEMORY if only is None or n in only]
    if not memory:
        return 0
    limit = copy_bandwidth(args.budget)
    print(f"\n{LARGE[0]} x {LARGE[1]} float32; the C library copies at {limit * 1e-9:.1f} GB/s")
    for name in memory:
        shapes, bytes_each = MEMORY[name]
        seconds = least_seconds(program(name, shapes, args.threads), args.budget)
        rate = bytes_each * float(np.prod(shapes[0])) / seconds
        print(f"{name:20s} {rate * 1e-9:8.1f} GB/s {rate / limit * 100:6.1f} %", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
