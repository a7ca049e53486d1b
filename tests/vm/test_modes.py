# SPDX-License-Identifier: Apache-2.0
"""Loops, recursion, closures, errors and instruments of Relax functions, as bytecode and as native code."""

from __future__ import annotations

import collections
import subprocess
import sys
import threading

import numpy as np
import pytest

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T

pytestmark = pytest.mark.parametrize("mode", ["bytecode", "compiled"])

X = np.arange(6, dtype="float32")


@pytest.fixture(autouse=True)
def _functions() -> None:
    relaxvm.register_global_func("test.modes.fail", fail, override=True)
    relaxvm.register_global_func("test.modes.same", lambda x: x, override=True)
    relaxvm.register_global_func("test.modes.call", lambda f, *args: f(*args), override=True)


def fail(*_args: object) -> None:
    raise KeyError("from the packed function")


def machine(mod: relaxvm.IRModule, mode: str) -> relaxvm.VirtualMachine:
    return relaxvm.VirtualMachine(relaxvm.compile(mod, exec_mode=mode), relaxvm.cpu())


def tensor(array: np.ndarray) -> relaxvm.runtime.Tensor:
    return relaxvm.runtime.tensor(array)


@I.ir_module
class Loop:
    """What script gives: the recursive call is in a branch, followed by a copy and a jump."""

    @R.function
    def main(n: R.Shape(["i"]), x: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
        cls = Loop
        i = T.int64()
        more = R.prim_value(i > 0)
        if more:
            fewer = R.shape([i - 1])
            r = cls.main(fewer, x)
        else:
            r = x
        return r


@I.ir_module
class Depth:
    """Recursion that is no tail call: something is done with the result."""

    @R.function
    def main(n: R.Shape(["i"]), x: R.Object) -> R.Object:
        cls = Depth
        i = T.int64()
        more = R.prim_value(i > 0)
        if more:
            fewer = R.shape([i - 1])
            inner = cls.main(fewer, x)
            r = R.call_pure_packed("vm.builtin.make_tuple", inner, x, ty_args=(R.Object,))
        else:
            r = x
        return r


@I.ir_module
class Functions:
    """Functions as arguments and results, captured values, a packed function that calls back."""

    @R.function
    def twice(f: R.Object, x: R.Tensor(("n",), "float32")) -> R.Object:
        y = R.invoke_pure_closure(f, (x,), ty_args=(R.Object,))
        z = R.invoke_pure_closure(f, (y,), ty_args=(R.Object,))
        return z

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Object:
        cls = Functions
        n = T.int64()

        @R.function
        def add_y(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            s = R.add(z, y)
            return s

        a = cls.twice(add_y, x)
        return a

    @R.function(pure=False)
    def back(x: R.Tensor(("n",), "float32")) -> R.Object:
        cls = Functions
        a = R.call_packed("test.modes.call", cls.main, x, x, ty_args=(R.Object,))
        return a


@I.ir_module
class Fails:
    @R.function(pure=False)
    def inner(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")) -> R.Object:
        y = R.add(x, x)
        t = (y, x)
        if c:
            r = R.call_packed("test.modes.fail", y, t, ty_args=(R.Object,))
        else:
            r = R.call_packed("test.modes.same", y, ty_args=(R.Object,))
        return (r, t)

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")) -> R.Object:
        cls = Fails
        y = R.multiply(x, x)
        a = cls.inner(y, c)
        return (a, y)


def test_loop_of_ten_million_iterations_needs_no_more_stack_than_one(mode: str) -> None:
    vm = machine(Loop, mode)
    vm.set_stack_limit(1 << 16)
    result = vm["main"](relaxvm.runtime.Shape([10_000_000]), tensor(X))
    np.testing.assert_array_equal(result.numpy(), X)


def test_recursion_goes_as_deep_as_the_limit_allows(mode: str) -> None:
    vm = machine(Depth, mode)

    def depth_of(value: object) -> int:
        depth = 0
        while not isinstance(value, relaxvm.runtime.Tensor):
            value, depth = value[0], depth + 1
        return depth

    def run(depth: int) -> int:
        return depth_of(vm["main"](relaxvm.runtime.Shape([depth]), tensor(X)))

    assert run(1000) == 1000
    vm.set_stack_limit(1 << 16)
    with pytest.raises(RecursionError, match="main exceeds the VM's stack.*set_stack_limit"):
        run(5000)
    assert run(100) == 100  # the machine is as it was
    vm.set_stack_limit(256 << 20)
    assert run(5000) == 5000


def test_recursion_without_end_is_an_error(mode: str) -> None:
    vm = machine(Depth, mode)
    with pytest.raises(RecursionError, match="main exceeds the VM's stack"):
        vm["main"](relaxvm.runtime.Shape([1 << 40]), tensor(X))


@pytest.mark.parametrize("limit", [0, 1 << 50, -1])
def test_stack_limit_has_bounds(limit: int, mode: str) -> None:
    with pytest.raises(ValueError, match="stack limit must be between"):
        machine(Loop, mode).set_stack_limit(limit)


def test_functions_are_values(mode: str) -> None:
    vm = machine(Functions, mode)
    np.testing.assert_array_equal(vm["main"](tensor(X), tensor(X)).numpy(), X * 3)
    np.testing.assert_array_equal(vm["back"](tensor(X)).numpy(), X * 3)
    # A Python function in place of a Relax function.
    result = vm["twice"](relaxvm.runtime.convert(lambda x: tensor(x.numpy() + 1)), tensor(X))
    np.testing.assert_array_equal(result.numpy(), X + 2)


def test_function_of_one_mode_calls_a_closure_of_the_other(mode: str) -> None:
    other = machine(Functions, "compiled" if mode == "bytecode" else "bytecode")
    vm = machine(Functions, mode)
    f = relaxvm.runtime.convert(lambda x: other["main"](x, x))
    np.testing.assert_array_equal(vm["twice"](f, tensor(X)).numpy(), X * 9)
    back = other["back"]
    np.testing.assert_array_equal(vm["twice"](back, tensor(X)).numpy(), X * 9)


def test_error_names_every_function_on_the_way_and_frees_what_they_held(mode: str) -> None:
    vm = machine(Fails, mode)
    x, yes, no = tensor(X), tensor(np.array(True)), tensor(np.array(False))
    (same, _), _ = vm["main"](x, no)
    np.testing.assert_array_equal(same.numpy(), X * X * 2)
    del same, _
    in_use = vm.memory_stats()["used_bytes"]
    for _i in range(10):
        with pytest.raises(KeyError, match="from the packed function") as caught:
            vm["main"](x, yes)
    places = [entry.name for entry in caught.traceback]
    assert [name for name in places if name in ("main", "inner")] == ["main", "inner"]
    del caught
    assert vm.memory_stats()["used_bytes"] == in_use


@I.ir_module
class Liar:
    """A packed function whose result is not what the program says."""

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        y = R.call_packed("test.modes.lie", x, ty_args=(R.Tensor((n,), "float32"),))
        z = R.add(y, x)
        return z


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (lambda: tensor(np.zeros(5, "float32")), ValueError, "add: parameter .* dimension 0"),
        (lambda: tensor(np.zeros(6, "float64")), TypeError, "add: parameter .* dtype float32"),
        (lambda: 7, TypeError, "add: argument 0 must be a tensor, it is an integer 7"),
    ],
)
def test_kernel_refuses_what_does_not_fit(result, error, message: str, mode: str) -> None:
    relaxvm.register_global_func("test.modes.lie", lambda _x: result(), override=True)
    vm = machine(Liar, mode)
    with pytest.raises(error, match=message):
        vm["main"](tensor(X))
    relaxvm.register_global_func("test.modes.lie", lambda x: x, override=True)
    np.testing.assert_array_equal(machine(Liar, mode)["main"](tensor(X)).numpy(), X * 2)


def test_wrong_argument_is_refused_before_anything_runs(mode: str) -> None:
    vm = machine(Fails, mode)
    with pytest.raises(TypeError, match=r"Invoking function main expects 2 arguments \(x, c\)"):
        vm["main"](tensor(X))
    with pytest.raises(ValueError, match="main: parameter 'x'.*float64"):
        vm["main"](tensor(X.astype("float64")), tensor(np.array(True)))


def test_instrument_sees_every_call_and_skips_some(mode: str) -> None:
    vm = machine(Functions, mode)
    seen: list[tuple[str, bool]] = []

    def instrument(_function, name, before_run, _result, *_args):
        seen.append((name, before_run))
        skips = name == "test.modes.call" and before_run
        kinds = relaxvm.runtime.vm.VMInstrumentReturnKind
        return kinds.SKIP_RUN if skips else kinds.NO_OP

    vm.set_instrument(instrument)
    assert vm["back"](tensor(X)) is None  # the only call that makes a value was skipped
    assert ("test.modes.call", True) in seen and ("test.modes.call", False) not in seen
    seen.clear()
    np.testing.assert_array_equal(vm["main"](tensor(X), tensor(X)).numpy(), X * 3)
    names = [name for name, before in seen if before]
    assert names.count("vm.builtin.invoke_closure") == 2
    assert "vm.builtin.copy" in names or "vm.builtin.null_value" in names  # internal otherwise
    # A call that replaces its frame has an "after" like any other.
    assert collections.Counter(names) == collections.Counter(
        name for name, before in seen if not before
    )
    vm.set_instrument(None)
    seen.clear()
    vm["main"](tensor(X), tensor(X))
    assert seen == []


def test_watched_tail_calls_take_constant_stack_and_are_told_once(mode: str) -> None:
    """A result that does not exist yet is None; the last ones of a chain have it."""
    vm = machine(Loop, mode)
    iterations = 20_000
    balance, results = 0, []

    def instrument(_function, name, before_run, result, *args):
        nonlocal balance
        if name == "main":
            balance += 1 if before_run else -1
            assert len(args) == 2
            if not before_run:
                results.append(result)
        return relaxvm.runtime.vm.VMInstrumentReturnKind.NO_OP

    vm.set_instrument(instrument)
    x = vm["main"](relaxvm.runtime.Shape([iterations]), tensor(X))
    assert balance == 0 and len(results) == iterations
    assert results[0] is None and results[-33] is None
    for result in results[-32:]:
        assert result.same_as(x)
    # A skipped one ends the chain, with None.
    calls = 0

    def skip_third(_function, name, before_run, _result, *_args):
        nonlocal calls
        calls += name == "main" and before_run
        return int(calls == 3)

    vm.set_instrument(skip_third)
    assert vm["main"](relaxvm.runtime.Shape([iterations]), tensor(X)) is None
    assert calls == 3
    vm.set_instrument(None)
    profile = vm.profile("main", relaxvm.runtime.Shape([100]), tensor(X))
    spans = [event for event in profile.events if event.name == "main"]
    assert len(spans) == 100 and all(event.duration_us > 0 for event in spans)


def test_profile_has_a_row_for_each_kernel(mode: str) -> None:
    vm = machine(Functions, mode)
    profile = vm.profile("main", tensor(X), tensor(X))
    assert [event.name for event in profile.events].count("add") == 2


def test_time_limit_ends_a_loop(mode: str) -> None:
    vm = machine(Loop, mode)
    vm.set_time_limit(30)
    with pytest.raises(TimeoutError, match="past its deadline"):
        vm["main"](relaxvm.runtime.Shape([1 << 50]), tensor(X))


def test_threads_get_their_own_results(mode: str) -> None:
    vm = machine(Functions, mode)
    errors: list[Exception] = []

    def work(i: int) -> None:
        try:
            for _ in range(50):
                x = np.full(7, i, "float32")
                np.testing.assert_array_equal(vm["main"](tensor(x), tensor(x)).numpy(), x * 3)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert errors == []


def test_statistics_and_text_say_what_is_native(mode: str) -> None:
    executable = relaxvm.compile(Fails, exec_mode=mode)
    if mode == "compiled":
        assert "inner (compiled), main (compiled)" in executable.stats()
        assert "Instructions (#0, 0 words)" in executable.stats()
        assert "@main num_inputs=2 vm_tir_func;" in executable.as_text()
    else:
        assert "(compiled)" not in executable.stats()
        assert "vm_tir_func" not in executable.as_text()


ALONE = """
import sys
import numpy as np
import relaxvm
relaxvm.register_global_func("test.modes.call", lambda f, *args: f(*args))
vm = relaxvm.VirtualMachine(relaxvm.runtime.load_module(sys.argv[1]), relaxvm.cpu())
x = relaxvm.runtime.tensor(np.arange(6, dtype="float32"))
np.testing.assert_array_equal(vm["back"](x).numpy(), np.arange(6) * 3)
vm.set_instrument(lambda *args: 0)
np.testing.assert_array_equal(vm["back"](x).numpy(), np.arange(6) * 3)
assert "librelaxvm.so" not in open("/proc/self/maps").read()
"""


def test_saved_file_runs_without_the_compiler(mode: str, tmp_path) -> None:
    path = tmp_path / "model.so"
    relaxvm.compile(Functions, exec_mode=mode).export_library(path)
    subprocess.run([sys.executable, "-c", ALONE, str(path)], check=True, timeout=60)
