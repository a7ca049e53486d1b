# SPDX-License-Identifier: Apache-2.0
"""What threads cost: starting a parallel kernel, an idle pool, two programs in one process.

./dev bench threads [--threads 2]

`start` is the time of a kernel cut over the threads less its share of the time in one thread: announcing the loop, the
workers' way to it, meeting at its end.  `asleep` is the same when the workers have gone to sleep before.  `small` is
what a kernel of nearly no work loses by being cut: its caller does all of it when no worker is there at once.
`woken by the system` is the floor of what is asleep: one thread wakes another through an eventfd, nothing else.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time

import numpy as np

import relaxvm
from relaxvm.runtime import VirtualMachine, cpu, tensor
from relaxvm.script import from_source

_KERNEL = """
@I.ir_module
class Module:
    @T.prim_func
    def kernel(x: T.Buffer(({parts}, 16), "float32"), y: T.Buffer(({parts}, 16), "float32")):
        for t in T.parallel({parts}):
            acc = T.alloc_buffer((16,), "float32", scope="local")
            for v in T.vectorized(16):
                acc[v] = x[t, v]
            for k in range({steps}):
                for v in T.vectorized(16):
                    acc[v] = T.fma(acc[v], T.float32(0.5), T.float32(1))
            for v in T.vectorized(16):
                y[t, v] = acc[v]

    @R.function
    def main(x: R.Tensor(({parts}, 16), "float32")):
        return R.call_tir(Module.kernel, (x,), R.Tensor(({parts}, 16), "float32"))
"""
_ROUNDS = 4000
_STEPS = 20_000  # some 20 us
_IDLE_S = 0.5
_PROGRAM_S = 0.5


def machine(parts: int, steps: int, threads: int) -> VirtualMachine:
    text = _KERNEL.format(parts=parts, steps=steps)
    vm = VirtualMachine(relaxvm.compile(from_source(text), target="llvm"), cpu())
    vm.set_num_threads(threads)
    return vm


def times_us(
    vm: VirtualMachine, x: relaxvm.runtime.Tensor, rounds: int, pause_s: float
) -> list[float]:
    function, times = vm["main"], []
    for _ in range(rounds):
        if pause_s:
            time.sleep(pause_s)
        start = time.perf_counter()
        function(x)
        times.append((time.perf_counter() - start) * 1e6)
    return times


def start_of_a_kernel(threads: int) -> None:
    x = tensor(np.zeros((threads, 16), "float32"))
    cases = (
        ("start", _STEPS, _ROUNDS, 0.0),
        ("start, asleep", _STEPS, _ROUNDS // 20, 2e-3),
        ("small", 1, _ROUNDS, 0.0),
        ("small, asleep", 1, _ROUNDS // 20, 2e-3),
    )
    for name, steps, rounds, pause_s in cases:
        one, many = (times_us(machine(threads, steps, n), x, rounds, pause_s) for n in (1, threads))
        share = threads if steps > 1 else 1
        least, median = (f(many) - f(one) / share for f in (min, statistics.median))
        print(f"{name:36} least {least:6.2f} us, median {median:6.2f} us", flush=True)


def floor_of_waking(rounds: int = 200) -> None:
    request, answer = os.eventfd(0), os.eventfd(0)
    awake = [0.0]

    def sleeper() -> None:
        for _ in range(rounds):
            os.eventfd_read(request)
            awake[0] = time.perf_counter()
            os.eventfd_write(answer, 1)

    thread = threading.Thread(target=sleeper)
    thread.start()
    costs, delays = [], []
    for _ in range(rounds):
        time.sleep(2e-3)
        start = time.perf_counter()
        os.eventfd_write(request, 1)
        costs.append((time.perf_counter() - start) * 1e6)
        os.eventfd_read(answer)
        delays.append((awake[0] - start) * 1e6)
    thread.join()
    for name, times in (("its caller", costs), ("until it runs", delays)):
        least, median = min(times), statistics.median(times)
        name = f"woken by the system, {name}"
        print(f"{name:36} least {least:6.2f} us, median {median:6.2f} us", flush=True)


def idle(threads: int) -> None:
    x = tensor(np.zeros((threads, 16), "float32"))
    times_us(machine(threads, 1, threads), x, 100, 0.0)
    before = time.process_time()
    time.sleep(_IDLE_S)
    spent_ms = (time.process_time() - before) * 1e3
    print(f"{'idle for 500 ms after a kernel':36} {spent_ms:6.2f} ms of the processor", flush=True)


def two_programs(threads: int) -> None:
    """Both programs together do as much as one alone when neither waits for the other's threads."""
    parts, steps = 8 * threads, _STEPS
    x = tensor(np.zeros((parts, 16), "float32"))
    rates = []
    for count in (1, 2):
        machines = [machine(parts, steps, threads) for _ in range(count)]
        calls = [0] * count
        end = time.perf_counter() + _PROGRAM_S

        def work(i: int) -> None:
            while time.perf_counter() < end:  # noqa: B023
                machines[i]["main"](x)  # noqa: B023
                calls[i] += 1  # noqa: B023

        callers = [threading.Thread(target=work, args=(i,)) for i in range(count)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        rates.append(sum(calls) / _PROGRAM_S)
    print(
        f"{'two programs, each all threads':36} {rates[1] / rates[0]:6.2f} of one's calls",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads
    start_of_a_kernel(threads)
    floor_of_waking()
    idle(threads)
    two_programs(threads)


if __name__ == "__main__":
    main()
