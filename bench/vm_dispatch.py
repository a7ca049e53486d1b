# SPDX-License-Identifier: Apache-2.0
"""What the virtual machine costs by itself: nanoseconds of each kind of instruction and call, beside a peer's.

    python bench/vm_dispatch.py [--peer PYTHON] [--json FILE]

PYTHON is an interpreter that has apache-tvm; each side runs in a process of its own, in turns.  Medians and minima over
rounds; the ratio is what counts.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time

LENGTH = 500  # instructions in a row
ROUNDS = 25


def seconds_per_call(function, args, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        function(*args)
    return (time.perf_counter() - start) / count


class Side:
    """One package: builds programs with its ExecBuilder and times them."""

    def __init__(self, name: str) -> None:
        self.package = importlib.import_module(name)
        self.relax = importlib.import_module(f"{name}.relax")
        import numpy
        import tvm_ffi

        self.tensor = self.package.runtime.tensor(numpy.zeros((2, 3), "float32"))
        tvm_ffi.register_global_func("bench.identity", lambda x: x, override=True)

    def machine(self, write):
        ib = self.relax.ExecBuilder()
        write(ib)
        return self.relax.VirtualMachine(ib.get(), self.package.cpu())

    def per_instruction(self, emit, result: int = 0, args: int = 1, before=None) -> list[float]:
        """Nanoseconds of what `emit(ib, i)` writes, less those of a function without it."""

        def write(ib):
            for name, length in (("full", LENGTH), ("empty", 0)):
                with ib.function(name, num_inputs=args):
                    if before is not None:
                        before(ib)
                    for i in range(length):
                        emit(ib, i)
                    ib.emit_ret(ib.r(result if length else 0))
            with ib.function("callee", num_inputs=1):
                ib.emit_ret(ib.r(0))

        def declared(ib):
            ib.declare_function("callee", self.relax.exec_builder.VMFuncKind.VM_FUNC)
            write(ib)

        vm = self.machine(declared)
        full, empty = vm["full"], vm["empty"]
        values = [self.tensor] * args
        times = []
        for _ in range(ROUNDS):
            spent = seconds_per_call(full, values, 20) - seconds_per_call(empty, values, 20)
            times.append(spent / LENGTH * 1e9)
        return times

    def rows(self):
        def call(name, args, dst):
            return lambda ib, i: ib.emit_call(name, args=args(ib, i), dst=ib.r(dst(i)))

        yield (
            "vm.builtin.null_value",
            self.per_instruction(call("vm.builtin.null_value", lambda ib, i: [], lambda i: 1)),
        )
        yield (
            "vm.builtin.copy of a tensor",
            self.per_instruction(
                call("vm.builtin.copy", lambda ib, i: [ib.r(i)], lambda i: i + 1), result=LENGTH
            ),
        )
        yield (
            "vm.builtin.shape_of",
            self.per_instruction(call("vm.builtin.shape_of", lambda ib, i: [ib.r(0)], lambda i: 1)),
        )
        yield (
            "vm.builtin.make_shape, 2 immediates",
            self.per_instruction(
                call(
                    "vm.builtin.make_shape",
                    lambda ib, i: [
                        ib.r(1),
                        ib.imm(2),
                        ib.imm(0),
                        ib.imm(3),
                        ib.imm(0),
                        ib.imm(4),
                    ],
                    lambda i: 2,
                ),
                before=lambda ib: ib.emit_call(
                    "vm.builtin.alloc_shape_heap", args=[ib.vm_state(), ib.imm(2)], dst=ib.r(1)
                ),
            ),
        )
        yield (
            "VM function, argument kept",
            self.per_instruction(call("callee", lambda ib, i: [ib.r(0)], lambda i: 1)),
        )
        yield (
            "VM function, argument moved",
            self.per_instruction(
                call("callee", lambda ib, i: [ib.r(i)], lambda i: i + 1), result=LENGTH
            ),
        )
        dtype = importlib.import_module("tvm_ffi").dtype("uint8")

        def storage(ib):
            scope = ib.convert_constant("global")
            ib.emit_call(
                "vm.builtin.alloc_storage",
                args=[ib.vm_state(), (1024,), ib.imm(0), dtype, scope],
                dst=ib.r(1),
            )

        yield (
            "alloc_storage",
            self.per_instruction(lambda ib, i: storage(ib)),
        )
        yield (
            "alloc_tensor",
            self.per_instruction(
                call(
                    "vm.builtin.alloc_tensor",
                    lambda ib, i: [ib.r(1), ib.imm(0), (2, 3), dtype],
                    lambda i: 2,
                ),
                before=storage,
            ),
        )
        empty = self.machine(self._identity)["same"]
        times = [seconds_per_call(empty, [self.tensor], 5000) * 1e9 for _ in range(ROUNDS)]
        yield "call from Python, bound once", times
        yield "load, for each of 5000 instructions", self._load_times()

    @staticmethod
    def _identity(ib) -> None:
        with ib.function("same", num_inputs=1):
            ib.emit_ret(ib.r(0))

    def _load_times(self) -> list[float]:
        count = 5000
        ib = self.relax.ExecBuilder()
        with ib.function("f", num_inputs=1):
            for i in range(count - 1):
                ib.emit_call("vm.builtin.make_tuple", args=[ib.r(i)], dst=ib.r(i + 1))
            ib.emit_ret(ib.r(count - 1))
        ex = ib.get()
        times = []
        for _ in range(5):
            start = time.perf_counter()
            self.relax.VirtualMachine(ex, self.package.cpu())
            times.append((time.perf_counter() - start) / count * 1e9)
        return times


def measure(name: str) -> dict[str, list[float]]:
    return dict(Side(name).rows())


def run_side(python: str, package: str) -> dict[str, list[float]]:
    command = [python, os.path.abspath(__file__), "--side", package]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if result.returncode != 0:
        sys.exit(f"{package}: {result.stderr[-2000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="an interpreter that has apache-tvm")
    parser.add_argument("--json", help="where to write all times")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(measure(options.side)))
        return
    ours = run_side(sys.executable, "relaxvm")
    peer = run_side(options.peer, "tvm") if options.peer else {}
    print(
        f"{'nanoseconds':40} {'ours median':>12} {'min':>8} {'peer median':>12} {'min':>8} {'ratio':>7}"
    )
    for name, times in ours.items():
        line = f"{name:40} {statistics.median(times):12.2f} {min(times):8.2f}"
        if name in peer:
            other = peer[name]
            ratio = min(other) / max(min(times), 0.01)
            line += f" {statistics.median(other):12.2f} {min(other):8.2f} {ratio:6.1f}x"
        print(line)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"ours": ours, "peer": peer}, file, indent=1)


if __name__ == "__main__":
    main()
