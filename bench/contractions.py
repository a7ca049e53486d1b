# SPDX-License-Identifier: Apache-2.0
"""Matrix products and convolutions with constant weights beside oneDNN (torch) and OpenBLAS (NumPy).

./dev bench contractions [--threads 1] [--only rows] [--peer-python PYTHON]
torch runs in a process of its own, under PYTHON (default: this one).  Both sides are measured in turns,
several for each case; a figure is the least time of many calls.  A ratio above 1 says that we are faster.  The peak is
that of nothing but multiply-adds, in turns with each case, in calls as long as ours.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from _clock import TURNS, in_turns, least_seconds

SECONDS = 0.24 / TURNS  # of measuring, for each figure in each turn


# ---- cases: a dictionary each, understood by both sides


def cases() -> Iterator[dict[str, Any]]:
    for n, k in ((384, 384), (1536, 384), (384, 1536), (1536, 1536), (1000, 1280), (4096, 4096)):
        for m in (1, 2, 4, 8, 16, 32, 64):
            yield {"group": "rows", "name": f"m={m} n={n} k={k}", "m": m, "n": n, "k": k}
    for n in (256, 512, 1000, 1024, 2048):
        yield {"group": "square", "name": f"{n}", "m": n, "n": n, "k": n}
    for m, n, k in (
        (10000, 8, 64),
        (10000, 3, 256),
        (8, 10000, 64),
        (64, 64, 20000),
        (5000, 32, 32),
    ):
        yield {"group": "odd", "name": f"m={m} n={n} k={k}", "m": m, "n": n, "k": k}
    for b, m, n, k in ((12, 128, 128, 32), (12, 128, 32, 128), (96, 64, 64, 64), (8, 1, 512, 64)):
        name = f"batch={b} m={m} n={n} k={k}"
        yield {"group": "batch", "name": name, "b": b, "m": m, "n": n, "k": k}
    square = {"m": 1024, "n": 1024, "k": 1024}
    yield {"group": "bf16", "name": "1024", **square, "dtypes": ["bfloat16", "bfloat16"]}
    for left, right in (("uint8", "int8"), ("int8", "int8")):
        yield {"group": "int8", "name": f"{left} x {right} 1024", **square, "dtypes": [left, right]}
    # data (without batch and channels last), filters, window, strides, groups
    for size, c, o, window, stride, groups in (
        ((56, 56), 64, 64, (3, 3), 1, 1),
        ((56, 56), 256, 64, (1, 1), 1, 1),
        ((14, 14), 256, 256, (3, 3), 1, 1),
        ((7, 7), 512, 512, (3, 3), 1, 1),
        ((7, 7), 512, 2048, (1, 1), 1, 1),
        ((56, 56), 128, 256, (1, 1), 2, 1),
        ((224, 224), 3, 64, (7, 7), 2, 1),
        ((224, 224), 3, 16, (3, 3), 2, 1),
        ((56, 56), 24, 24, (3, 3), 1, 1),
        ((112, 112), 64, 64, (3, 3), 1, 64),
        ((112, 112), 96, 96, (3, 3), 2, 96),
        ((28, 28), 240, 240, (5, 5), 1, 240),
        ((14, 14), 672, 672, (5, 5), 2, 672),
        ((56, 56), 128, 128, (3, 3), 1, 32),
        ((56, 56), 128, 128, (3, 3), 1, 4),
        ((1000,), 80, 256, (3,), 1, 1),
        ((4000,), 1, 64, (10,), 5, 1),
        ((400,), 128, 128, (31,), 1, 128),
        ((16, 56, 56), 16, 32, (3, 3, 3), 1, 1),
    ):
        kind = "depthwise" if groups == c and groups > 1 else f"conv{len(size)}d"
        name = (
            f"{kind} {'x'.join(map(str, window))}/{stride} {c}->{o} {'x'.join(map(str, size))}"
            + (f" groups={groups}" if 1 < groups < c else "")
        )
        yield {
            "group": "conv",
            "name": name,
            "size": size,
            "c": c,
            "o": o,
            "window": window,
            "stride": stride,
            "groups": groups,
        }
    for size, c, o in (((80, 80), 24, 24), ((28, 28), 256, 128), ((14, 14), 512, 256)):
        name = f"transposed 2x2/2 {c}->{o} {'x'.join(map(str, size))}"
        yield {"group": "transposed", "name": name, "size": size, "c": c, "o": o}


def operand_shapes(case: dict[str, Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    return (case["m"], case["k"]), (case["k"], case["n"])


def flops(case: dict[str, Any]) -> float:
    if "m" in case:
        return 2.0 * case.get("b", 1) * case["m"] * case["n"] * case["k"]
    if case["group"] == "transposed":
        return 8.0 * math.prod(case["size"]) * case["c"] * case["o"]
    out = math.prod((s - 1) // case["stride"] + 1 for s in case["size"])
    return 2.0 * out * case["o"] * (case["c"] // case["groups"]) * math.prod(case["window"])


# ---- the peers


@functools.lru_cache(maxsize=1)  # the turns of a case follow each other
def peer_calls(text: str) -> dict[str, Callable[[], object]]:
    """What torch and NumPy can be asked to do for a case, written as JSON."""
    import torch

    case = json.loads(text)

    def array(*shape: int) -> Any:
        return torch.from_numpy(np.random.default_rng(0).random(shape, dtype="float32"))

    found: dict[str, Callable[[], object]] = {}
    if "b" in case:
        a, b = array(case["b"], case["m"], case["k"]), array(case["b"], case["n"], case["k"])
        found["torch"] = lambda: torch.matmul(a, b.transpose(1, 2))
    elif case["group"] == "bf16":
        a, b = (array(*s).bfloat16() for s in operand_shapes(case))
        found["torch.mm"] = lambda: torch.mm(a, b)
    elif case["name"].startswith("uint8"):
        # Torch's product of these types comes with scales: its quantized linear.
        a, b = (array(*s) for s in operand_shapes(case))
        x = torch.quantize_per_tensor(a, 0.01, 0, torch.quint8)
        w = torch.quantize_per_tensor(b.T.contiguous(), 0.01, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(w, None)
        linear = torch.ops.quantized.linear
        found["quantized linear"] = lambda: linear(x, packed, 0.1, 0)
    elif case["group"] == "int8":
        a, b = ((array(*s) * 100).to(torch.int8) for s in operand_shapes(case))
        found["torch._int_mm"] = lambda: torch._int_mm(a, b)
    elif "m" in case:
        a, b = (array(*s) for s in operand_shapes(case))
        w = b.T.contiguous()
        found["torch.mm"] = lambda: torch.mm(a, b)
        found["linear"] = lambda: torch.nn.functional.linear(a, w)
        x, y = a.numpy(), b.numpy()
        out = np.empty((case["m"], case["n"]), "float32")
        found["numpy"] = lambda: np.matmul(x, y, out=out)
    elif case["group"] == "transposed":
        x, w = array(1, case["c"], *case["size"]), array(case["c"], case["o"], 2, 2)
        for name, form in layouts(x, w, torch):
            found[name] = lambda f=form: torch.nn.functional.conv_transpose2d(*f, stride=2)
    else:
        rank = len(case["size"])
        conv = getattr(torch.nn.functional, f"conv{rank}d")
        x = array(1, case["c"], *case["size"])
        w = array(case["o"], case["c"] // case["groups"], *case["window"])
        pad = [k // 2 for k in case["window"]]
        for name, form in layouts(x, w, torch):
            found[name] = lambda f=form: conv(
                *f, stride=case["stride"], padding=pad, groups=case["groups"]
            )
    return found


def layouts(x: Any, w: Any, torch: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    yield "torch", (x, w)
    kind = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim)
    if kind is not None:
        yield "torch channels last", (x.to(memory_format=kind), w.to(memory_format=kind))


def serve(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    with torch.inference_mode():
        for line in sys.stdin:
            calls = peer_calls(line)
            found = {name: least_seconds(call, SECONDS) for name, call in calls.items()}
            print(json.dumps(found), flush=True)


# ---- ours

LETTERS = {1: "W", 2: "HW", 3: "DHW"}


def program(case: dict[str, Any]) -> tuple[Any, np.ndarray]:
    """A module with the weight inside, and the input."""
    import ml_dtypes

    import relaxvm
    from relaxvm import relax

    rng = np.random.default_rng(0)

    def array(*shape: int) -> np.ndarray:
        return rng.random(shape, dtype="float32")

    op = relax.op
    builder = relax.BlockBuilder()
    if "b" in case:
        x = array(case["b"], case["m"], case["k"])
        second = array(case["b"], case["n"], case["k"])
        shapes = [list(x.shape), list(second.shape)]
        make = lambda a, b: op.matmul(a, op.permute_dims(b, [0, 2, 1]))
    elif "dtypes" in case:
        types = [np.dtype(getattr(ml_dtypes, t, t)) for t in case["dtypes"]]
        scale = 1 if case["group"] == "bf16" else 100
        x, second = ((array(*s) * scale).astype(t) for s, t in zip(operand_shapes(case), types))
        weight = relax.const(second)
        shapes = [list(x.shape)]
        out_dtype = None if case["group"] == "bf16" else "int32"
        make = lambda a: op.matmul(a, weight, out_dtype=out_dtype)
    elif "m" in case:
        x = array(case["m"], case["k"])
        weight = relax.const(array(case["k"], case["n"]))
        # As in a model: the number of rows is known at run time only.
        rows = relaxvm.tirx.Var("m", "int64") if case["group"] == "rows" else case["m"]
        shapes = [[rows, case["k"]]]
        make = lambda a: op.matmul(a, weight)
    else:
        spatial = LETTERS[len(case["size"])]
        x = array(1, *case["size"], case["c"])
        shapes = [list(x.shape)]
        data, kernel = f"N{spatial}C", f"{spatial}IO"
        if case["group"] == "transposed":
            weight = relax.const(array(2, 2, case["c"], case["o"]))
            make = lambda a: op.nn.conv2d_transpose(
                a, weight, strides=2, data_layout=data, kernel_layout=kernel
            )
        else:
            weight = relax.const(array(*case["window"], case["c"] // case["groups"], case["o"]))
            conv = getattr(op.nn, f"conv{len(spatial)}d")
            make = lambda a: conv(
                a,
                weight,
                strides=[case["stride"]] * len(spatial),
                padding=[k // 2 for k in case["window"]],
                groups=case["groups"],
                data_layout=data,
                kernel_layout=kernel,
            )
    params = [
        relax.Var(f"x{i}", relax.TensorType(shape, x.dtype.name)) for i, shape in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)
    inputs = [x] if len(params) == 1 else [x, second]
    return builder.get(), inputs


def ours(case: dict[str, Any], threads: int) -> Callable[[], dict[str, float]]:
    import relaxvm

    mod, inputs = program(case)
    vm = relaxvm.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    vm.set_num_threads(threads)
    main = vm["main"]
    tensors = [relaxvm.runtime.tensor(x) for x in inputs]
    return lambda: {"ours": least_seconds(lambda: main(*tensors), SECONDS)}


# ---- the limit of the machine


def of_operation(shape: tuple[int, int], threads: int, rounds: int) -> Callable[[], float]:
    """What measures the seconds of one operation of nothing but multiply-adds."""
    from relaxvm.cli.limits import multiply_adds

    run, operations = multiply_adds(shape, threads, "llvm", rounds)
    return lambda: least_seconds(run, SECONDS) / operations


def peaks(threads: int) -> Callable[[float], Callable[[], dict[str, float]]]:
    """For a number of seconds, what measures the peak in calls of about so many: a busy machine is fastest for a
    moment, and what takes many milliseconds never has such a moment alone."""
    from relaxvm.cli.limits import SHAPES, multiply_adds

    seconds = {shape: of_operation(shape, threads, 1)() for shape in SHAPES}
    shape = min(seconds, key=seconds.__getitem__)
    of_round = seconds[shape] * multiply_adds(shape, threads, "llvm")[1]

    def peak(window: float) -> Callable[[], dict[str, float]]:
        whole = of_operation(shape, threads, max(1, round(window / of_round)))
        return lambda: {"of_operation": whole()}

    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", help="a group, or a part of a case's name")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.threads)
        return
    figures: list[dict[str, Any]] = []
    command = [args.peer_python, __file__, "--serve", "--threads", str(args.threads)]
    ratios: dict[str, list[float]] = {}
    threads = {name: str(args.threads) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
    peak = peaks(args.threads)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ, **threads),
    ) as peer:
        assert peer.stdin is not None and peer.stdout is not None
        for case in cases():
            if args.only and args.only != case["group"] and args.only not in case["name"]:
                continue

            def of_peer(case: dict[str, Any] = case) -> dict[str, float]:
                print(json.dumps(case), file=peer.stdin, flush=True)
                return json.loads(peer.stdout.readline())

            our_side = ours(case, args.threads)
            of_peak = peak(our_side()["ours"])
            found, theirs, limit = in_turns(our_side, of_peer, of_peak)
            mine, most = found["ours"], 1 / limit["of_operation"]
            best = min(theirs, key=theirs.get)
            ratio = theirs[best] / mine
            ratios.setdefault(case["group"], []).append(ratio)
            rate = flops(case) / mine
            speed = {
                "us": mine * 1e6,
                "gflops": rate * 1e-9,
                "of_peak": rate / most,
                "ratio": ratio,
            }
            figures.append({"group": case["group"], "name": case["name"], **speed})
            print(
                f"{case['group'] + ' ' + case['name']:52} {mine * 1e6:10.1f} us "
                f"{rate * 1e-9:7.1f} GFLOP/s {rate / most:6.1%} of peak  "
                f"{best} {theirs[best] * 1e6:10.1f} us  ratio {ratio:.2f}",
                flush=True,
            )
    for group, values in ratios.items():
        mean = math.exp(sum(map(math.log, values)) / len(values))
        print(f"{group}: geometric mean {mean:.2f}, least {min(values):.2f}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
