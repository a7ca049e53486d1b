# SPDX-License-Identifier: Apache-2.0
"""What the virtual machine costs by itself: nanoseconds of each kind of instruction and call, beside a peer's.

    python bench/vm_dispatch.py [--peer PYTHON] [--json FILE] [--rows WORD]

PYTHON is an interpreter that has apache-tvm; each side runs in a process of its own, in turns.  Medians and minima over
rounds; the ratio is what counts.  `at most` is what the project promises.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

LENGTH = 500  # instructions in a row
ROUNDS = 15
CODE_LENGTH = 5000  # instructions of the executable that is loaded
SIDES = 2  # processes of each side, in turns

# Row -> nanoseconds that ours may take; a string says another rule, which `promised` computes.
PROMISED: dict[str, float | str] = {
    "vm.builtin.null_value": 4,
    "vm.builtin.copy of a tensor": 5,
    "user's C++ function of two ints": "half of the peer's",
    "VM function, 8 registers": 8,
    "VM function, 64 registers": 8,
    "call from Python, bound once": "tvm-ffi's identity + 20",
    "FFI kernel, 3 tensors, above the bare call": 6,
    "loop as tail recursion, per iteration": 12,
    "load, for each of 5000 instructions": 100,
    "calls per second, 4 threads over 1": "at least 1.8",
}


def seconds_per_call(function, args, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        function(*args)
    return (time.perf_counter() - start) / count


class Side:
    """One package: builds programs with its ExecBuilder and times them."""

    def __init__(self, name: str, folder: str) -> None:
        self.name = name
        self.code = pathlib.Path(folder, "code.bin")
        self.package = importlib.import_module(name)
        self.relax = importlib.import_module(f"{name}.relax")
        import numpy
        import tvm_ffi

        self.numpy = numpy
        self.tensor = self.package.runtime.tensor(numpy.zeros((2, 3), "float32"))
        self.functions = tvm_ffi.load_module(str(pathlib.Path(folder, "functions.so")))
        # After the package was loaded, as a user's functions are.
        tvm_ffi.register_global_func("bench.add_ints", self.functions["add_ints"], override=True)
        for function in ("minus_one", "kernel3"):
            tvm_ffi.register_global_func(
                f"bench.{function}", self.functions[function](), override=True
            )

    def machine(self, write):
        ib = self.relax.ExecBuilder()
        write(ib)
        return self.relax.VirtualMachine(ib.get(), self.package.cpu())

    def per_instruction(
        self, emit, result: int = 0, before=None, value=None, callee_registers: int = 1
    ) -> list[float]:
        """Nanoseconds of what `emit(ib, i)` writes, less those of a function without it."""

        def write(ib):
            ib.declare_function("callee", self.relax.exec_builder.VMFuncKind.VM_FUNC)
            for name, length in (("full", LENGTH), ("empty", 0)):
                with ib.function(name, num_inputs=1):
                    if before is not None:
                        before(ib)
                    for i in range(length):
                        emit(ib, i)
                    ib.emit_ret(ib.r(result if length else 0))
            with ib.function("callee", num_inputs=1):
                ib.emit_ret(ib.r(0))
                # Never reached: they give the function its registers.
                for i in range(1, callee_registers):
                    ib.emit_call("vm.builtin.null_value", args=[], dst=ib.r(i))
                ib.emit_ret(ib.r(0))

        vm = self.machine(write)
        full, empty = vm["full"], vm["empty"]
        value = self.tensor if value is None else value
        return self._beyond(full, empty, value, LENGTH)

    def _beyond(self, full, empty, value, length: int) -> list[float]:
        """Nanoseconds of each of `length` things that `full` does beyond `empty`."""
        spent, least = [], float("inf")
        for _ in range(ROUNDS):
            spent.append(self._seconds(full, value, 20))
            # Not its time of the same round: one that was disturbed would make a thing too cheap.
            least = min(least, self._seconds(empty, value, 20))
        return [(seconds - least) / 20 / length * 1e9 for seconds in spent]

    def _seconds(self, function, value, count: int) -> float:
        return self.functions["seconds_of_calls"](function, value, count)

    def rows(self) -> Iterator[tuple[str, object]]:
        """Pairs of a name and a function that gives times."""

        def call(name, args, dst):
            return lambda ib, i: ib.emit_call(name, args=args(ib, i), dst=ib.r(dst(i)))

        per = self.per_instruction
        yield (
            "vm.builtin.null_value",
            lambda: per(call("vm.builtin.null_value", lambda ib, i: [], lambda i: 1)),
        )
        yield (
            "vm.builtin.copy of a tensor",
            lambda: per(
                call("vm.builtin.copy", lambda ib, i: [ib.r(i)], lambda i: i + 1), result=LENGTH
            ),
        )
        yield (
            "user's C++ function of two ints",
            lambda: per(
                call("bench.add_ints", lambda ib, i: [ib.r(i), ib.imm(3)], lambda i: i + 1),
                result=LENGTH,
                value=5,
            ),
        )
        for registers in (8, 64):
            yield f"VM function, {registers} registers", lambda n=registers: self._vm_call(n)
        yield "FFI kernel, 3 tensors, above the bare call", self._kernel
        yield "loop as tail recursion, per iteration", self._tail_loop
        yield (
            "vm.builtin.shape_of",
            lambda: per(call("vm.builtin.shape_of", lambda ib, i: [ib.r(0)], lambda i: 1)),
        )
        yield "vm.builtin.make_shape, 2 immediates", self._make_shape
        yield "alloc_storage", lambda: per(lambda ib, i: self._storage(ib))
        yield "alloc_tensor", self._alloc_tensor
        yield "tvm-ffi's identity from Python", self._identity
        yield "call from Python, bound once", self._from_python
        yield "load, for each of 5000 instructions", self._load
        if self.name == "relaxvm":
            yield "calls per second, 4 threads over 1", self._threads
            yield "the same of a C++ function alone", self._threads_alone
            yield from self._compiled_rows()

    def _kernel(self) -> list[float]:
        bare = self.functions["bare_kernel3"](self.tensor)
        times = self.per_instruction(
            lambda ib, i: ib.emit_call(
                "bench.kernel3", args=[ib.r(0), ib.r(0), ib.r(0)], dst=ib.r(1)
            )
        )
        return [spent - bare for spent in times]

    def _vm_call(self, registers: int) -> list[float]:
        def emit(ib, i):
            ib.emit_call("callee", args=[ib.r(0)], dst=ib.r(1))

        return self.per_instruction(emit, callee_registers=registers)

    def _tail_loop(self) -> list[float]:
        # TVM has no tail calls: few iterations there.
        iterations = 100_000 if self.name == "relaxvm" else 500

        def write(ib):
            ib.declare_function("loop", self.relax.exec_builder.VMFuncKind.VM_FUNC)
            with ib.function("loop", num_inputs=2):
                ib.emit_call("vm.builtin.read_if_cond", args=[ib.r(0)], dst=ib.r(2))
                ib.emit_if(ib.r(2), 4)
                ib.emit_call("bench.minus_one", args=[ib.r(0)], dst=ib.r(3))
                ib.emit_call("loop", args=[ib.r(3), ib.r(1)], dst=ib.r(4))
                ib.emit_goto(2)
                ib.emit_call("vm.builtin.copy", args=[ib.r(1)], dst=ib.r(4))
                ib.emit_ret(ib.r(4))
            with ib.function("main", num_inputs=1):
                ib.emit_call("loop", args=[ib.imm(iterations), ib.r(0)], dst=ib.r(1))
                ib.emit_ret(ib.r(1))

        main = self.machine(write)["main"]
        return [self._seconds(main, self.tensor, 1) / iterations * 1e9 for _ in range(ROUNDS)]

    def _make_shape(self) -> list[float]:
        def emit(ib, i):
            args = [ib.r(1), ib.imm(2), ib.imm(0), ib.imm(3), ib.imm(0), ib.imm(4)]
            ib.emit_call("vm.builtin.make_shape", args=args, dst=ib.r(2))

        def heap(ib):
            ib.emit_call(
                "vm.builtin.alloc_shape_heap", args=[ib.vm_state(), ib.imm(2)], dst=ib.r(1)
            )

        return self.per_instruction(emit, before=heap)

    def _storage(self, ib) -> None:
        scope = ib.convert_constant("global")
        args = [ib.vm_state(), (1024,), ib.imm(0), self._uint8(), scope]
        ib.emit_call("vm.builtin.alloc_storage", args=args, dst=ib.r(1))

    @staticmethod
    def _uint8():
        return importlib.import_module("tvm_ffi").dtype("uint8")

    def _alloc_tensor(self) -> list[float]:
        def emit(ib, i):
            args = [ib.r(1), ib.imm(0), (2, 3), self._uint8()]
            ib.emit_call("vm.builtin.alloc_tensor", args=args, dst=ib.r(2))

        return self.per_instruction(emit, before=self._storage)

    @staticmethod
    def _write_identity(ib) -> None:
        with ib.function("same", num_inputs=1):
            ib.emit_ret(ib.r(0))

    def _identity(self) -> list[float]:
        function = self.functions["identity"]
        return [seconds_per_call(function, [self.tensor], 5000) * 1e9 for _ in range(ROUNDS)]

    def _from_python(self) -> list[float]:
        same = self.machine(self._write_identity)["same"]
        return [seconds_per_call(same, [self.tensor], 5000) * 1e9 for _ in range(ROUNDS)]

    def _load(self) -> list[float]:
        data = self.code.read_bytes()
        if self.name == "relaxvm":
            from_bytes = self.relax.VMExecutable.from_bytes
        else:
            read = importlib.import_module("tvm_ffi").get_global_func(
                "ffi.Module.load_from_bytes.relax.VMExecutable"
            )
            from_bytes = lambda data: self.relax.VMExecutable(read(data))
        times = []
        # More rounds: the first ones also wait for memory from the system.
        for _ in range(10 * ROUNDS):
            start = time.perf_counter()
            self.relax.VirtualMachine(from_bytes(data), self.package.cpu())
            times.append((time.perf_counter() - start) / CODE_LENGTH * 1e9)
        return times

    def _threads(self) -> list[float]:
        """Calls per second of 4 threads, over those of one; a call is 500 instructions of which none locks."""

        def write(ib):
            with ib.function("f", num_inputs=1):
                for i in range(LENGTH):
                    ib.emit_call("bench.add_ints", args=[ib.r(i), ib.imm(3)], dst=ib.r(i + 1))
                ib.emit_ret(ib.r(LENGTH))

        f = self.machine(write)["f"]
        return self._speedup(f)

    def _threads_alone(self) -> list[float]:
        """What this machine gives 4 threads that share nothing at all."""
        return self._speedup(self.functions["add_one"])

    def _speedup(self, f) -> list[float]:
        """The best rate of 4 threads over the best of one: other work on the machine hits both."""
        rate = self.functions["calls_per_second"]
        rates = [(rate(f, 5, 1, 0.3), rate(f, 5, 4, 0.3)) for _ in range(6)]
        return [max(four for _, four in rates) / max(one for one, _ in rates)]

    # ---- exec_mode="compiled"

    def _compiled_rows(self) -> Iterator[tuple[str, object]]:
        for kind in ("VM function", "packed function", "packed function, 3 tensors", "loop"):
            for mode in ("bytecode", "compiled"):
                yield f"{kind}, {mode}", lambda m=mode, k=kind: self._modes(m, k)

    def _modes(self, mode: str, kind: str) -> list[float]:
        """Nanoseconds of a call in a function that the compiler made."""
        relax = self.relax
        builder = relax.BlockBuilder()
        obj = relax.ObjectType()
        x = relax.Var("x", obj)
        with builder.function("callee", [x], private=False):
            builder.emit_func_output(x)
        callee = builder.get().get_global_var("callee")
        length = LENGTH // 2
        for name, count in (("full", length), ("empty", 0)):
            y = relax.Var("y", obj)
            with builder.function(name, [y]):
                value = y
                for _ in range(count):
                    if kind == "VM function":
                        call = relax.Call(callee, [value])
                    elif kind == "packed function":
                        call = relax.op.call_packed("bench.minus_one", value, ty_args=obj)
                    else:
                        call = relax.op.call_packed("bench.kernel3", y, y, y, ty_args=obj)
                    result = builder.emit(call)
                    value = y if "3 tensors" in kind else result
                builder.emit_func_output(value)
        if kind == "loop":
            return self._mode_loop(mode)
        executable = self.package.compile(builder.get(), exec_mode=mode)
        vm = relax.VirtualMachine(executable, self.package.cpu())
        argument = 5 if kind == "packed function" else self.tensor
        return self._beyond(vm["full"], vm["empty"], argument, length)

    def _mode_loop(self, mode: str) -> list[float]:
        """An iteration of a loop in script: a shape that counts down to 0."""
        from relaxvm.script import ir as I
        from relaxvm.script import relax as R
        from relaxvm.script import tirx as T

        @I.ir_module
        class Loop:
            @R.function
            def main(n: R.Shape(["i"])) -> R.Object:
                cls = Loop
                i = T.int64()
                more = R.prim_value(i > 0)
                if more:
                    fewer = R.shape([i - 1])
                    r = cls.main(fewer)
                else:
                    r = n
                return r

        executable = self.package.compile(Loop, exec_mode=mode)
        vm = self.relax.VirtualMachine(executable, self.package.cpu())
        count = 20000
        shape = self.package.runtime.Shape([count])
        return [self._seconds(vm["main"], shape, 1) / count * 1e9 for _ in range(ROUNDS)]


def measure(name: str, folder: str, wanted: str) -> dict[str, list[float]]:
    return {row: times() for row, times in Side(name, folder).rows() if wanted in row}


def run_side(python: str, package: str, folder: str, wanted: str) -> dict[str, list[float]]:
    command = [python, os.path.abspath(__file__), "--side", package, "--folder", folder]
    result = subprocess.run(
        [*command, "--rows", wanted], capture_output=True, text=True, timeout=600, check=False
    )
    if result.returncode != 0:
        sys.exit(f"{package}: {result.stderr[-2000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def build_library(folder: str) -> None:
    """Compiles the C++ functions that both sides call."""
    import tvm_ffi.libinfo as info

    source = pathlib.Path(__file__).with_name("vm_dispatch_functions.cc")
    includes = [f"-I{path}" for path in info.include_paths()]
    subprocess.run(
        ["c++", "-std=c++20", "-O2", "-shared", "-fPIC", *includes, str(source), "-o"]
        + [os.path.join(folder, "functions.so")]
        + [f"-L{os.path.dirname(info.find_libtvm_ffi())}", "-ltvm_ffi"],
        check=True,
        timeout=300,
    )


def write_code(folder: str) -> None:
    """Writes the executable that both sides load: the format is the same."""
    relax = importlib.import_module("relaxvm.relax")
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=1):
        for i in range(CODE_LENGTH - 1):
            ib.emit_call("vm.builtin.make_tuple", args=[ib.r(i)], dst=ib.r(i + 1))
        ib.emit_ret(ib.r(CODE_LENGTH - 1))
    pathlib.Path(folder, "code.bin").write_bytes(ib.get().to_bytes())


def promised(row: str, ours: dict[str, list[float]], peer: dict[str, list[float]]) -> str:
    """The promise of a row, and whether it holds; empty when there is none."""
    rule = PROMISED.get(row)
    if row.endswith(", compiled"):
        rule = "bytecode's"
    if rule is None:
        return ""
    value = min(ours[row])
    if rule == "at least 1.8":
        return f"{1.8:8.1f} {'holds' if max(ours[row]) >= 1.8 else 'MISSED'}"
    if rule == "half of the peer's":
        limit = min(peer[row]) / 2 if row in peer else float("inf")
    elif rule == "tvm-ffi's identity + 20":
        limit = min(ours.get("tvm-ffi's identity from Python", [float("inf")])) + 20
    elif rule == "bytecode's":
        limit = min(ours[row.replace(", compiled", ", bytecode")])
    else:
        limit = float(rule)
    return f"{limit:8.1f} {'holds' if value <= limit else 'MISSED'}"


def merge(runs: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    return {row: [t for run in runs for t in run[row]] for row in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="an interpreter that has apache-tvm")
    parser.add_argument("--json", help="where to write all times")
    parser.add_argument("--rows", default="", help="only rows whose name has this in it")
    parser.add_argument("--work", help="an existing folder for what both sides load; kept")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(measure(options.side, options.folder, options.rows)))
        return
    with contextlib.ExitStack() as stack:
        folder = options.work or stack.enter_context(tempfile.TemporaryDirectory())
        if not pathlib.Path(folder, "functions.so").exists():
            build_library(folder)
        write_code(folder)
        ours_runs, peer_runs = [], []
        for _ in range(SIDES):
            ours_runs.append(run_side(sys.executable, "relaxvm", folder, options.rows))
            if options.peer:
                peer_runs.append(run_side(options.peer, "tvm", folder, options.rows))
    ours, peer = merge(ours_runs), merge(peer_runs) if peer_runs else {}
    print(
        f"{'nanoseconds':44}{'median':>9}{'min':>9}{'peer med.':>11}{'min':>9}{'ratio':>8}  at most"
    )
    for name, times in ours.items():
        line = f"{name:44}{statistics.median(times):9.2f}{min(times):9.2f}"
        if name in peer:
            other = peer[name]
            ratio = min(other) / max(min(times), 0.01)
            line += f"{statistics.median(other):11.2f}{min(other):9.2f}{ratio:7.1f}x"
        else:
            line += " " * 28
        print(f"{line} {promised(name, ours, peer)}".rstrip())
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"ours": ours, "peer": peer}, file, indent=1)


if __name__ == "__main__":
    main()
