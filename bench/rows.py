# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions, rows and data movement: against torch, and as share of the memory bandwidth.

./dev bench rows [--peer PYTHON] [--only NAME,..] [--threads 1] [--json FILE]

PYTHON is an interpreter that has torch; torch runs in a process of its own, in the same run.  Bandwidth is that of
programs which do nothing but move memory, measured in the same run: reading, writing past the caches, copying past the
caches.  A kernel that reads R bytes and writes W has two limits, R over what can be read and R + W over what can be
copied; the share is that of the one which takes longer.  All sides are measured in turns, several for each figure, the
limits in turns with each kernel; figures are least times.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from _clock import TURNS, in_turns, least_seconds

Shape = tuple[int, ...]
SQUARE = (1024, 1024)
LARGE = (8192, 4096)  # 128 MiB of float32: four times a last cache of 32 MiB
SCORES = (32, 8400, 80)  # what a detector says of each box, for each class


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: str
    shapes: tuple[Shape, ...]  # of its float32 arguments
    ours: str  # a formula of op, x, y, z
    torch: str = ""  # a formula of torch, f, x, y, z; none: no peer
    asked: float = 0  # times torch
    # Of a memory kernel: elements read and written.
    moved: tuple[int, int] = (0, 0)


def norm_shapes(shape: Shape, channels: int) -> tuple[Shape, ...]:
    return (shape, (channels,), (channels,))


IMAGE = (8, 64, 56, 56)
ELEMENTS = math.prod(LARGE)
KERNELS = [
    Kernel("exp", (SQUARE,), "op.exp(x)", "torch.exp(x)", 2),
    Kernel("tanh", (SQUARE,), "op.tanh(x)", "torch.tanh(x)", 2),
    Kernel("erf", (SQUARE,), "op.erf(x)", "torch.erf(x)", 2),
    Kernel("gelu", (SQUARE,), "op.nn.gelu(x)", "f.gelu(x)", 2),
    Kernel("softmax", (SQUARE,), "op.nn.softmax(x)", "f.softmax(x, -1)", 2),
    Kernel(
        "layer_norm",
        norm_shapes(SQUARE, 1024),
        "op.nn.layer_norm(x, y, z, axes=[-1])",
        "f.layer_norm(x, (1024,), y, z)",
        2,
    ),
    Kernel("log", (SQUARE,), "op.log(op.abs(x))", "torch.log(x.abs())"),
    Kernel("sigmoid", (SQUARE,), "op.sigmoid(x)", "torch.sigmoid(x)"),
    Kernel("silu", (SQUARE,), "op.nn.silu(x)", "f.silu(x)"),
    Kernel("sin", (SQUARE,), "op.sin(x)", "torch.sin(x)"),
    Kernel("log_softmax", (SQUARE,), "op.nn.log_softmax(x)", "f.log_softmax(x, -1)"),
    Kernel("softmax 1x1000", ((1, 1000),), "op.nn.softmax(x)", "f.softmax(x, -1)"),
    Kernel("softmax axis 1", ((64, 256, 64),), "op.nn.softmax(x, axis=1)", "f.softmax(x, 1)"),
    Kernel("argmax", (SQUARE,), "op.argmax(x, axis=-1)", "x.argmax(-1)"),
    Kernel("topk 8", (SQUARE,), "op.topk(x, k=8)", "x.topk(8)"),
    Kernel("topk 100 of 8400", ((1, 8400),), "op.topk(x, k=100)", "x.topk(100)"),
    Kernel("sort", (SQUARE,), "op.sort(x, axis=-1)", "x.sort(-1)"),
    Kernel("argsort 1x8400", ((1, 8400),), "op.argsort(x, axis=-1)", "x.argsort(-1)"),
    Kernel("cumsum", (SQUARE,), "op.cumsum(x, axis=-1)", "x.cumsum(-1)"),
    Kernel("cumsum axis 0", (SQUARE,), "op.cumsum(x, axis=0)", "x.cumsum(0)"),
    Kernel("sum", (SQUARE,), "op.sum(x, axis=-1)", "x.sum(-1)"),
    Kernel("sum axis 0", (SQUARE,), "op.sum(x, axis=0)", "x.sum(0)"),
    Kernel("sum axis 1", ((64, 256, 64),), "op.sum(x, axis=1)", "x.sum(1)"),
    Kernel("sum axes 0, 2", ((64, 256, 64),), "op.sum(x, axis=[0, 2])", "x.sum((0, 2))"),
    Kernel("mean axes 2, 3", (IMAGE,), "op.mean(x, axis=[2, 3])", "x.mean((2, 3))"),
    Kernel("max of classes", (SCORES,), "op.max(x, axis=-1)", "x.amax(-1)"),
    Kernel("argmax of classes", (SCORES,), "op.argmax(x, axis=-1)", "x.argmax(-1)"),
    Kernel(
        "group_norm",
        norm_shapes(IMAGE, 64),
        "op.nn.group_norm(x, y, z, num_groups=8, channel_axis=1, axes=[2, 3])",
        "f.group_norm(x, 8, y, z)",
    ),
    Kernel(
        "instance_norm",
        norm_shapes(IMAGE, 64),
        "op.nn.instance_norm(x, y, z, channel_axis=1, axes=[2, 3])",
        "f.instance_norm(x, None, None, y, z)",
    ),
    Kernel(
        "resize 2x bilinear",
        ((1, 64, 56, 56),),
        "op.image.resize2d(x, (112, 112), layout='NCHW', method='linear')",
        "f.interpolate(x, scale_factor=2, mode='bilinear')",
    ),
    Kernel("transpose", (SQUARE,), "op.permute_dims(x, [1, 0])", "x.t().contiguous()"),
    Kernel(
        "NCHW to NHWC",
        (IMAGE,),
        "op.permute_dims(x, [0, 2, 3, 1])",
        "x.permute(0, 2, 3, 1).contiguous()",
    ),
    Kernel(
        "NHWC to NCHW",
        ((8, 56, 56, 64),),
        "op.permute_dims(x, [0, 3, 1, 2])",
        "x.permute(0, 3, 1, 2).contiguous()",
    ),
    Kernel(
        "heads to rows",
        ((8, 128, 12, 64),),
        "op.permute_dims(x, [0, 2, 1, 3])",
        "x.permute(0, 2, 1, 3).contiguous()",
    ),
    Kernel("concat", (SQUARE, SQUARE), "op.concat([x, y], axis=0)", "torch.cat([x, y], 0)"),
    Kernel("concat axis 1", (SQUARE, SQUARE), "op.concat([x, y], axis=1)", "torch.cat([x, y], 1)"),
    Kernel("pad", (IMAGE,), "op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1])", "f.pad(x, (1, 1, 1, 1))"),
    Kernel(
        "slice",
        (SQUARE,),
        "op.strided_slice(x, [0, 1], [1, 3], [1023, 1021])",
        "x[1:1023, 3:1021].contiguous()",
    ),
    Kernel(
        "every second",
        (SQUARE,),
        "op.strided_slice(x, [1], [0], [1024], [2])",
        "x[:, ::2].contiguous()",
    ),
    Kernel(
        "gather rows",
        (SQUARE, (4096,)),
        "op.take(x, op.astype(op.abs(y) * relax.const(200.0), 'int64'), axis=0)",
        "x.index_select(0, (y.abs() * 200).long())",
    ),
    Kernel("tile", ((256, 256),), "op.tile(x, (4, 4))", "x.repeat(4, 4)"),
    Kernel("broadcast add", (SQUARE, (1024, 1)), "op.add(x, y)", "x + y"),
    Kernel("var axis 0", (SQUARE,), "op.variance(x, axis=0)", "x.var(0, False)"),
    Kernel("argmax axis 0", (SQUARE,), "op.argmax(x, axis=0)", "x.argmax(0)"),
    Kernel("max axes 1, 3", (IMAGE,), "op.max(x, axis=[1, 3])", "x.amax((1, 3))"),
    Kernel("sum of all", (SQUARE,), "op.sum(x)", "x.sum()"),
    Kernel(
        "rms_norm",
        (SQUARE, (1024,)),
        "op.nn.rms_norm(x, y, axes=[-1])",
        "f.rms_norm(x, (1024,), y)",
    ),
    Kernel("cumsum of a vector", ((1048576,),), "op.cumsum(x, axis=0)", "x.cumsum(0)"),
]
MEMORY = [
    Kernel("add", (LARGE, LARGE), "op.add(x, y)", moved=(2, 1)),
    Kernel("relu", (LARGE,), "op.nn.relu(x)", moved=(1, 1)),
    Kernel(
        "layer_norm",
        norm_shapes(LARGE, 4096),
        "op.nn.layer_norm(x, y, z, axes=[-1])",
        moved=(1, 1),
    ),
    Kernel("softmax", (LARGE,), "op.nn.softmax(x)", moved=(1, 1)),
    Kernel("transpose", (LARGE,), "op.permute_dims(x, [1, 0])", moved=(1, 1)),
    Kernel("concat", (LARGE, LARGE), "op.concat([x, y], axis=0)", moved=(2, 2)),
]
ASKED_OF_BANDWIDTH = 0.9
ROUNDS = 5  # at least


def inputs(kernel: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s, dtype=np.float32) for s in kernel.shapes]


# ---- the peer


def serve(threads: int) -> int:
    """Seconds of torch for kernels by their place in the lists; runs in the interpreter that has it."""
    import torch

    torch.set_num_threads(threads)

    @functools.lru_cache(maxsize=1)  # the turns of a kernel follow each other
    def run_of(place: int) -> Callable[[], object]:
        kernel = KERNELS[place]
        values = dict(zip("xyz", map(torch.from_numpy, inputs(kernel)), strict=False))
        names = {"torch": torch, "f": torch.nn.functional, **values}
        return eval(f"lambda: {kernel.torch}", names)

    with torch.inference_mode():
        for line in sys.stdin:
            place, budget = json.loads(line)
            print(least_seconds(run_of(place), budget, ROUNDS), flush=True)
    return 0


class Peer:
    def __init__(self, python: str | None, threads: int) -> None:
        self._process: subprocess.Popen[str] | None = None
        if python:
            command = [python, __file__, "--serve", "--threads", str(threads)]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def seconds(self, kernel: Kernel, budget: float) -> dict[str, float]:
        """Of the kernel, as the only figure; none where there is no peer."""
        if self._process is None or not kernel.torch:
            return {}
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([KERNELS.index(kernel), budget]), file=self._process.stdin)
        self._process.stdin.flush()
        return {"torch": float(self._process.stdout.readline())}

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(timeout=60)


# ---- ours


def ours(kernel: Kernel, threads: int, budget: float) -> Callable[[], dict[str, float]]:
    import relaxvm
    from relaxvm import relax

    params = [
        relax.Var(name, relax.TensorType(list(shape), "float32"))
        for name, shape in zip("xyz", kernel.shapes, strict=False)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            values = {p.name_hint: p for p in params}
            result = builder.emit_output(
                eval(kernel.ours, {"op": relax.op, "relax": relax, **values})
            )
        builder.emit_func_output(result)
    vm = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu(), num_threads=threads)
    main, args = vm["main"], [relaxvm.runtime.tensor(a) for a in inputs(kernel)]
    return lambda: {kernel.name: least_seconds(lambda: main(*args), budget, ROUNDS)}


# ---- the limits of the machine

_LIMIT = """
@I.ir_module
class Module:
    @T.prim_func
    def kernel(x: T.Buffer(({n},), "float32"), y: T.Buffer(({m},), "float32")):
        for b in T.parallel({blocks}, annotations={annotations}):
            {body}

    @R.function
    def main(x: R.Tensor(({n},), "float32")):
        return R.call_tir(Module.kernel, (x,), R.Tensor(({m},), "float32"))
"""
_READ = """
            acc = T.alloc_buffer((64,), "float32", scope="local")
            for v in T.vectorized(64):
                acc[v] = T.float32(0)
            for k in range(64):
                for v in T.vectorized(64):
                    acc[v] = acc[v] + x[b * 4096 + k * 64 + v]
            for v in T.vectorized(16):
                y[b * 16 + v] = acc[v] + acc[v + 16] + acc[v + 32] + acc[v + 48]
"""
_MOVE = """
            for k in range(256):
                for v in T.vectorized(16):
                    y[b * 4096 + k * 16 + v] = {value}
"""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bytes a second."""

    read: float
    write: float
    copy: float  # read and written

    def least_seconds(self, read: float, written: float) -> float:
        return max(read / self.read, (read + written) / self.copy)


def limits(threads: int, budget: float) -> Callable[[], dict[str, float]]:
    """Seconds of the programs, by the names of Limits."""
    import relaxvm
    from relaxvm import relax
    from relaxvm.script import from_source

    def program(body: str, size: int) -> Callable[[], float]:
        text = _LIMIT.format(
            n=ELEMENTS,
            m=size,
            blocks=ELEMENTS // 4096,
            annotations="{'stream_if': T.bool(True)}",
            body=body.strip(),
        )
        executable = relaxvm.compile(from_source(text))
        vm = relax.VirtualMachine(executable, relaxvm.cpu(), num_threads=threads)
        main, x = vm["main"], relaxvm.runtime.tensor(np.ones(ELEMENTS, np.float32))
        return lambda: least_seconds(lambda: main(x), budget, ROUNDS)

    programs = {
        "read": program(_READ, ELEMENTS // 256),
        "write": program(_MOVE.format(value="T.float32(1)"), ELEMENTS),
        "copy": program(_MOVE.format(value="x[b * 4096 + k * 16 + v]"), ELEMENTS),
    }
    return lambda: {name: seconds() for name, seconds in programs.items()}


def memory_figures(kernels: list[Kernel], threads: int, budget: float) -> list[dict[str, Any]]:
    print(
        f"\n{threads} thread(s), {LARGE[0]} x {LARGE[1]} float32; the machine's GB/s in the same minute"
    )
    num_bytes = 4.0 * ELEMENTS
    moving = limits(threads, budget)
    figures = []
    for kernel in kernels:
        of_kernel, least = in_turns(ours(kernel, threads, budget), moving)
        seconds = of_kernel[kernel.name]
        limit = Limits(
            num_bytes / least["read"], num_bytes / least["write"], 2 * num_bytes / least["copy"]
        )
        read, written = (num_bytes * part for part in kernel.moved)
        share = limit.least_seconds(read, written) / seconds
        rate = (read + written) / seconds * 1e-9
        verdict = "met" if share >= ASKED_OF_BANDWIDTH else "MISSED"
        print(
            f"{kernel.name:12s} {rate:6.1f} GB/s {share:7.1%}  asked {ASKED_OF_BANDWIDTH:.0%}  {verdict:6}"
            f"  reads {limit.read * 1e-9:.1f}, writes {limit.write * 1e-9:.1f}, copies {limit.copy * 1e-9:.1f}",
            flush=True,
        )
        name = f"{kernel.name} of 128 MiB, {threads} thread(s)"
        figure = {"name": name, "gb_per_s": rate, "share": share, "asked": ASKED_OF_BANDWIDTH}
        figures.append(figure | {"limits": dataclasses.asdict(limit)})
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", help="a Python interpreter that has torch")
    parser.add_argument("--only", help="names, with commas between")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=0.4, help="seconds for each figure")
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.threads)
    only = args.only.split(",") if args.only else None
    chosen = [[k for k in group if only is None or k.name in only] for group in (KERNELS, MEMORY)]
    peer = Peer(args.peer, args.threads)
    figures: list[dict[str, Any]] = []
    if chosen[0]:
        print(f"{args.threads} thread(s)                  us    torch us   ratio  asked")
    for kernel in chosen[0]:
        found, of_peer = in_turns(
            ours(kernel, args.threads, args.budget / TURNS),
            lambda k=kernel: peer.seconds(k, args.budget / TURNS),
        )
        mine, theirs = found[kernel.name], of_peer.get("torch")
        figure = {"name": kernel.name, "shapes": kernel.shapes, "us": mine * 1e6}
        line = f"{kernel.name:20s} {mine * 1e6:11.1f}"
        if theirs is not None:
            figure |= {"torch_us": theirs * 1e6, "ratio": theirs / mine, "asked": kernel.asked}
            line += f" {theirs * 1e6:11.1f} {theirs / mine:7.2f}"
            if kernel.asked:
                line += (
                    f" {kernel.asked:6.1f}  {'met' if theirs / mine >= kernel.asked else 'MISSED'}"
                )
        figures.append(figure)
        print(line, flush=True)
    for threads in sorted({args.threads, os.cpu_count() or 1}) if chosen[1] else ():
        figures += memory_figures(chosen[1], threads, args.budget / TURNS)
    peer.close()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
