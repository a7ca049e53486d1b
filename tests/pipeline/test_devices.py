# SPDX-License-Identifier: Apache-2.0
"""Programs on other devices than the host, and on two at once: the compiler puts in the copies."""

from __future__ import annotations

import numpy as np
import pytest
from road_programs import PROGRAMS, check, register_packed

import relaxvm
from relaxvm.runtime.device import null_stats
from relaxvm.script import ir as I
from relaxvm.script import relax as R

DEVICES = {"cpu1": relaxvm.cpu(1), "null": relaxvm.null()}
# Python functions that compute on the host what they are given.
HOST_FUNCTIONS = {"packed_result", "destination"}


@pytest.fixture(autouse=True)
def _verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXVM_VERIFY", "1")
    register_packed()


def there(value, device):
    if isinstance(value, np.ndarray):
        return relaxvm.runtime.tensor(value, device)
    return tuple(there(v, device) for v in value) if type(value) is tuple else value


@pytest.mark.parametrize("memory", ["naive", "pooled"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - HOST_FUNCTIONS))
def test_program_runs_on_a_device_of_its_own(name: str, device: str, memory: str) -> None:
    program, target = PROGRAMS[name], DEVICES[device]
    vm = relaxvm.VirtualMachine(relaxvm.compile(program.mod), target, memory)
    for size in program.sizes:
        inputs = program.inputs(size)
        result = vm["main"](*(there(value, target) for value in inputs))
        check(result, program.expected(*inputs), program.tolerance)


def halves(hint) -> relaxvm.IRModule:
    """The first half on the CPU, the second on the null device, the result on the CPU."""

    @I.ir_module
    class Halves:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("null", 0)]})

        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                x0 = R.hint_on_device(x, relaxvm.cpu())
                a = R.add(R.matmul(x0, w), R.const(np.arange(4, dtype="float32")))
                b = hint(a)
                c = R.multiply(R.exp(b), R.const(np.arange(4, dtype="float32")))
                d = R.matmul(c, R.permute_dims(R.const(np.ones((3, 4), "float32"))))
                e = R.to_vdevice(d, "llvm:0")
                g = R.add(e, R.const(1.0, "float32"))
                R.output(g)
            return g

    return Halves


def expected_of_halves(x, w):
    column = np.arange(4, dtype="f4")
    return (np.exp(x @ w + column) * column) @ np.ones((4, 3)) + 1


HINTS = {
    "hint_on_device": lambda a: R.hint_on_device(a, relaxvm.null()),
    "to_vdevice": lambda a: R.to_vdevice(a, "null:0"),
}


@pytest.mark.parametrize("hint", HINTS)
def test_function_runs_half_on_each_device(hint: str) -> None:
    executable = relaxvm.compile(halves(HINTS[hint]))
    vm = relaxvm.VirtualMachine(executable, [relaxvm.cpu(), relaxvm.null()])
    rng = np.random.default_rng(0)
    before = null_stats()
    for n in (1, 7, 30):
        x, w = rng.standard_normal((n, 4), "f4"), rng.standard_normal((4, 4), "f4")
        result = vm.call("main", x, w)
        assert result.device == relaxvm.cpu()
        np.testing.assert_allclose(result.numpy(), expected_of_halves(x, w), rtol=1e-4)
    after = null_stats()
    assert after["num_launches"] - before["num_launches"] == 2 * 3  # fused exp, and matmul
    # One tensor there and one back in each call; the two constants once.
    assert after["num_copies"] - before["num_copies"] == 2 * 3 + 2


def test_constant_that_only_the_second_device_needs_takes_no_memory_on_the_first() -> None:
    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("null", 0), I.vdevice("llvm", 0)]})

        @R.function
        def main(x: R.Tensor((1000,), "float32", "llvm:0")):
            y = R.add(x, R.const(np.ones(1000, "float32")))
            return y

    before = null_stats()["num_copies"]
    devices = [relaxvm.null(), relaxvm.cpu()]
    vm = relaxvm.VirtualMachine(relaxvm.compile(Module), devices)
    assert vm.memory_stats(0)["used_bytes"] == 0
    x = relaxvm.runtime.tensor(np.ones(1000, "f4"))
    assert vm["main"](x).numpy().tolist() == [2] * 1000
    assert null_stats()["num_copies"] == before


def test_branches_and_calls_get_their_copies() -> None:
    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("null", 0)]})

        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32", "llvm:0")) -> R.Tensor(
            ("n",), "float32", "llvm:0"
        ):
            cls = Module
            y = cls.twice(x)
            if c:
                r = R.to_vdevice(R.add(y, y), "llvm:0")
            else:
                z = cls.twice(y)
                r = R.exp(z)
            return r

        @R.function(private=True)
        def twice(v: R.Tensor(("m",), "float32", "null:0")) -> R.Tensor(
            ("m",), "float32", "null:0"
        ):
            u = R.add(v, v)
            return u

    vm = relaxvm.VirtualMachine(relaxvm.compile(Module), [relaxvm.cpu(), relaxvm.null()])
    x = np.linspace(0, 1, 5, dtype="f4")
    for condition, expected in ((True, 4 * x), (False, np.exp(4 * x))):
        result = vm.call("main", np.array(condition), x)
        assert result.device == relaxvm.cpu()
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5)


def test_profile_of_a_queued_kernel_waits_for_it() -> None:
    vm = relaxvm.VirtualMachine(
        relaxvm.compile(halves(HINTS["to_vdevice"])), [relaxvm.cpu(), relaxvm.null()]
    )
    x, w = np.ones((3, 4), "f4"), np.ones((4, 4), "f4")
    profile = vm.profile("main", x, w)
    np.testing.assert_allclose(profile.result.numpy(), expected_of_halves(x, w), rtol=1e-4)
    kernels = {row.name: row for row in profile.rows() if row.kind == "kernel"}
    assert kernels["matmul1"].flop == 2 * 3 * 4 * 3


def test_kernel_called_by_name_queues_too() -> None:
    executable = relaxvm.compile(PROGRAMS["chain"].mod)
    (kernel,) = (
        name
        for name in (
            line.split()[1] for line in executable.as_text().splitlines() if "call" in line
        )
        if name.startswith("fused")
    )
    x = relaxvm.runtime.tensor(np.ones((2, 4), "f4"), relaxvm.null())
    out = relaxvm.runtime.empty((2, 4), "float32", relaxvm.null())
    before = null_stats()["num_launches"]
    relaxvm.VirtualMachine(executable, relaxvm.null())  # binds the kernels
    find_import = next(m for m in executable.mod.imports if m.kind == "relaxvm.KernelLibrary")
    find_import[kernel](x, out)
    assert null_stats()["num_launches"] == before + 1
    np.testing.assert_allclose(out.numpy(), np.full((2, 4), (np.e + 1) ** 2), rtol=1e-5)


def test_wrong_order_of_devices_is_a_clear_error() -> None:
    vm = relaxvm.VirtualMachine(
        relaxvm.compile(halves(HINTS["to_vdevice"])), [relaxvm.null(), relaxvm.cpu()]
    )
    with pytest.raises(ValueError, match=r"is on (cpu|null)\(0\).*copy it with to_vdevice"):
        vm["main"](*(relaxvm.runtime.tensor(np.ones(s, "f4")) for s in ((2, 4), (4, 4))))


def test_device_that_this_build_lacks_is_an_error_at_compile_time() -> None:
    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("cuda", 0)]})

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            y = R.to_vdevice(x, "cuda:0")
            return y

    with pytest.raises(
        NotImplementedError, match="target 'cuda' of a virtual device has no device"
    ):
        relaxvm.compile(Module)


def test_results_whose_size_depends_on_data_stay_on_their_device() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "int32")):
            a = R.nonzero(x)
            c = R.unique(x, sorted=True)
            return (a, c)

    device = relaxvm.null()
    vm = relaxvm.VirtualMachine(relaxvm.compile(Module), device)
    x = np.array([3, 0, 3, 5], "int32")
    positions, values = vm["main"](relaxvm.runtime.tensor(x, device))
    assert positions.device == values.device == device
    assert positions.numpy().tolist() == [[0, 2, 3]] and values.numpy().tolist() == [0, 3, 5]


def test_limits_and_allocators_are_per_device() -> None:
    executable = relaxvm.compile(halves(HINTS["to_vdevice"]))
    devices = [relaxvm.cpu(), relaxvm.null()]
    x, w = np.ones((1000, 4), "f4"), np.ones((4, 4), "f4")
    vm = relaxvm.VirtualMachine(
        executable,
        devices,
        {relaxvm.cpu(): "naive", relaxvm.null(): "pooled"},
        memory_limit={relaxvm.null(): 1 << 20},
    )
    vm.call("main", x, w)
    assert vm.memory_stats(0)["reserved_bytes"] == 0
    assert vm.memory_stats(1)["reserved_bytes"] > vm.memory_stats(1)["used_bytes"]
    assert vm.trim_memory() > 0
    vm.set_memory_limit(1 << 12, 1)
    with pytest.raises(RuntimeError, match=r"out of memory on null\(0\).*the limit is 4096"):
        vm.call("main", x, w)
