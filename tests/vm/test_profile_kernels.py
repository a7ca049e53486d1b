# SPDX-License-Identifier: Apache-2.0
"""Instruments and profiles see compiled kernels, and how much each of them does."""

import collections
import json

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 32), "float32")):
        cls = Model
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            R.output(b)
        c = cls.half(b)
        d = R.negative(c)
        return d

    @R.function(private=True)
    def half(b: R.Tensor(("m", 32), "float32")) -> R.Tensor(("m",), "float32"):
        m = T.int64()
        c = R.sum(b, axis=[1])
        d = R.sort(c)
        return d


@pytest.fixture(scope="module")
def executable():
    return relaxvm.compile(Model)


def arguments(n=10):
    return np.ones((n, 64), "f4"), np.full((64, 32), 2, "f4")


def rows_of(profile):
    return {row.name: row for row in profile.rows()}


@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.parametrize("n", [1, 10])
def test_rows_count_operations_and_bytes_of_these_sizes(executable, from_file, n, tmp_path):
    if from_file:
        executable.export_library(tmp_path / "m.so")
        executable = relaxvm.load(tmp_path / "m.so")
    profile = relaxvm.VirtualMachine(executable, relaxvm.cpu()).profile("main", *arguments(n))
    np.testing.assert_array_equal(profile.result.numpy(), np.full(n, -64 * 2 * 32, "f4"))
    (name,) = (name for name in rows_of(profile) if "matmul" in name)
    row = rows_of(profile)[name]
    assert (row.kind, row.calls) == ("kernel", 1)
    assert row.flop == 2 * n * 64 * 32 + n * 32  # the maximum of relu counts
    assert row.num_bytes == 4 * (n * 64 + 64 * 32 + n * 32)
    assert row.gflop_per_s == pytest.approx(row.flop / row.self_us / 1e3)
    assert row.gb_per_s == pytest.approx(row.num_bytes / row.self_us / 1e3)


@I.ir_module
class OfBytes:
    @R.function
    def main(x: R.Tensor(("n", 64), "uint8"), w: R.Tensor((64, 32), "int8")):
        with R.dataflow():
            a = R.matmul(x, w, out_dtype="int32")
            b = R.astype(a, "float32")
            c = R.nn.softmax(b)
            R.output(c)
        return c


def test_rows_say_where_products_are_of_bytes():
    vm = relaxvm.VirtualMachine(relaxvm.compile(OfBytes), relaxvm.cpu())
    profile = vm.profile("main", np.ones((10, 64), "u1"), np.ones((64, 32), "i1"))
    rows = rows_of(profile)
    products = {"matmul" in name: row.products for name, row in rows.items() if row.flop}
    assert products == {True: "int8", False: ""}


def test_time_of_a_function_of_the_program_is_that_of_its_calls_and_its_own(executable):
    profile = relaxvm.VirtualMachine(executable, relaxvm.cpu()).profile("main", *arguments())
    rows = rows_of(profile)
    inner = [event for event in profile.events if event.depth == 1]
    assert rows["half"].kind == "function" and inner
    total = sum(event.duration_us for event in inner)
    assert rows["half"].self_us == pytest.approx(rows["half"].time_us - total, abs=1e-6)
    assert sum(row.self_us for row in rows.values()) <= profile.total_us
    assert sum(row.share for row in rows.values()) <= 1


def test_profile_is_data_too(executable):
    profile = relaxvm.VirtualMachine(executable, relaxvm.cpu()).profile("main", *arguments())
    data = json.loads(profile.json())
    assert data["calls"] == len(profile.events) and data["calls_lost"] == 0
    kernels = [row for row in data["functions"] if row["kind"] == "kernel"]
    assert kernels and all(row["gflop_per_s"] >= 0 for row in kernels if row["flop"] is not None)
    assert all(row["name"] in str(profile) for row in kernels)


def test_trace_has_what_perfetto_reads(executable, tmp_path):
    profile = relaxvm.VirtualMachine(executable, relaxvm.cpu()).profile("main", *arguments())
    profile.save_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    calls = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(calls) == len(profile.events)
    assert all(
        event["dur"] >= 0 and {"name", "ts", "pid", "tid", "cat"} <= set(event) for event in calls
    )
    (outer,) = (event for event in calls if event["name"] == "half")
    inside = [
        event
        for event in calls
        if outer["ts"] <= event["ts"] and event["ts"] + event["dur"] <= outer["ts"] + outer["dur"]
    ]
    assert len(inside) > 1
    (matmul,) = (event for event in calls if "matmul" in event["name"])
    assert matmul["args"]["arguments"].startswith("float32[10, 64], float32[64, 32]")
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"]
    assert names[0] == "relaxvm"


def test_kernel_behind_call_tir_dyn_has_its_own_row():
    @I.ir_module
    class Dynamic:
        @R.function
        def main(x: R.Tensor((6,), "float32")):
            cls = Dynamic
            y = R.call_tir(cls.scale, (x,), out_ty=R.Tensor((6,), "float32"), tir_vars=R.shape([3]))
            return y

        @T.prim_func(private=True)
        def scale(a: T.Buffer((6,), "float32"), b: T.Buffer((6,), "float32"), s: T.int64):
            for i in range(6):
                b[i] = a[i] * T.cast(s, "float32")

    vm = relaxvm.VirtualMachine(relaxvm.compile(Dynamic), relaxvm.cpu())
    profile = vm.profile("main", np.ones(6, "f4"))
    np.testing.assert_array_equal(profile.result.numpy(), np.full(6, 3, "f4"))
    assert rows_of(profile)["scale"].flop == 6


@pytest.mark.parametrize("skip", [False, True])
def test_instrument_sees_kernels_and_what_the_loader_made_its_own(executable, skip):
    kind = relaxvm.runtime.VMInstrumentReturnKind
    vm, seen = relaxvm.VirtualMachine(executable, relaxvm.cpu()), []

    def instrument(func, name, before, result, *args):
        seen.append((name, before))
        return kind.SKIP_RUN if skip and name == "vm.builtin.null_value" else kind.NO_OP

    x, w = map(relaxvm.runtime.tensor, arguments())
    expected = vm["main"](x, w).numpy()
    vm.set_instrument(instrument)
    np.testing.assert_array_equal(vm["main"](x, w).numpy(), expected)
    kernels = {name for name, _ in seen if "matmul" in name}
    assert len(kernels) == 1 and {(*kernels, True), (*kernels, False)} <= set(seen)
    assert ("vm.builtin.null_value", True) in seen
    assert (("vm.builtin.null_value", False) in seen) is not skip


@pytest.mark.parametrize("watch", ["profile", "instrument", "skip"])
def test_loops_run_in_constant_stack_while_they_are_watched(watch):
    @I.ir_module
    class Loop:
        @R.function
        def main(i: R.Tensor((), "int64"), x: R.Tensor((1,), "float32")) -> R.Tensor(
            (1,), "float32"
        ):
            cls = Loop
            more = R.greater(i, R.const(0, "int64"))
            if more:
                j = R.subtract(i, R.const(1, "int64"))
                y = R.add(x, R.const([1.0], "float32"))
                r = cls.main(j, y)
            else:
                r = x
            return r

    vm, seen = relaxvm.VirtualMachine(relaxvm.compile(Loop), relaxvm.cpu()), collections.Counter()

    def instrument(func, name, before, result, *args):
        seen[name, before] += 1
        return int(watch == "skip" and name == "main")

    arguments = [np.array(20000), np.zeros(1, "f4")]
    if watch == "profile":
        profile = vm.profile("main", *arguments)
        assert rows_of(profile)["main"].calls == 20000
        assert profile.result.numpy() == 20000
        return
    vm.set_instrument(instrument)
    result = vm.call("main", *arguments)
    assert result is None if watch == "skip" else result.numpy() == 20000
    assert seen["main", True] == (1 if watch == "skip" else 20000)
    # A call in place of its caller ends with it; one that is skipped never began.
    assert seen["main", False] == (0 if watch == "skip" else 20000)


def test_measurements_are_repeated_and_prepared(executable):
    vm = relaxvm.VirtualMachine(executable, relaxvm.cpu())
    prepared = []
    relaxvm.register_global_func(
        "test.prepare", lambda *args: prepared.append(len(args)), override=True
    )
    try:
        timer = vm.time_evaluator(
            "main", relaxvm.cpu(), number=2, repeat=3, f_preproc="test.prepare"
        )
        result = timer(*arguments())
    finally:
        relaxvm.remove_global_func("test.prepare")
    assert prepared == [2] * 3
    assert len(result.results) == 3 and 0 < result.min <= result.median <= result.max
    (single,) = vm.time_evaluator("main", number=1, min_repeat_ms=20)(*arguments()).results
    assert single < 0.02  # the mean of many calls, not their sum
    with pytest.raises(ValueError, match="no device of this machine"):
        vm.time_evaluator("main", relaxvm.cuda())


class Foreign:
    """An array of another library: DLPack is all it has."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def identity() -> relaxvm.VirtualMachine:
    ib = relax.ExecBuilder()
    with ib.function("same", num_inputs=1, param_names=["value"]):
        ib.emit_ret(ib.r(0))
    return relaxvm.VirtualMachine(ib.get(), relaxvm.cpu())


def address(value) -> int:
    return np.from_dlpack(value).__array_interface__["data"][0]


def test_arrays_are_taken_without_copies():
    array = np.arange(5, dtype="f4")
    frozen = array.copy()
    frozen.flags.writeable = False
    vm = identity()
    for value in (array, Foreign(array), {"value": array}):
        result = vm.call("same", **value) if isinstance(value, dict) else vm.call("same", value)
        assert address(result) == array.__array_interface__["data"][0]
    assert address(vm["same"](array)) == array.__array_interface__["data"][0]
    assert address(vm.call("same", frozen)) == frozen.__array_interface__["data"][0]
    nested = vm.call("same", [array, (Foreign(array), 2)])
    assert address(nested[1][0]) == address(nested[0]) == array.__array_interface__["data"][0]
    assert nested[1][1].numpy() == 2


def test_array_that_is_not_dense_is_copied():
    array = np.arange(12, dtype="f4").reshape(3, 4).T
    np.testing.assert_array_equal(identity().call("same", array).numpy(), array)


def test_kept_inputs_do_not_follow_the_array():
    vm, array = identity(), np.arange(3, dtype="f4")
    vm.set_input("same", array)
    vm.save_function("same", "saved", array)
    array[:] = 7
    vm.invoke_stateful("same")
    assert vm.get_outputs("same").numpy().tolist() == vm["saved"]().numpy().tolist() == [0, 1, 2]


@pytest.mark.peer
def test_torch_tensors_are_taken_without_copies():
    import torch

    tensor = torch.arange(5, dtype=torch.float32)
    for result in (identity()["same"](tensor), identity().call("same", [tensor])[0]):
        assert address(result) == tensor.data_ptr()
        assert torch.from_dlpack(result).data_ptr() == tensor.data_ptr()
    for dtype in (
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.uint8,
        torch.bool,
    ):
        typed = torch.zeros(2, 3).to(dtype)
        result = identity()["same"](typed)  # what is given a tensor of torch gives one
        assert isinstance(result, torch.Tensor) and result.dtype == dtype
        assert result.shape == (2, 3) and result.data_ptr() == typed.data_ptr()


@pytest.mark.peer
def test_a_kernel_reads_and_returns_tensors_of_torch():
    torch = pytest.importorskip("torch")
    vm = relax.VirtualMachine(relaxvm.compile(Model), relaxvm.cpu())
    x, w = torch.rand(5, 64), torch.rand(64, 32)
    expected = vm["main"](*map(relaxvm.runtime.tensor, (x.numpy(), w.numpy()))).numpy()
    np.testing.assert_array_equal(vm["main"](x, w).numpy(), expected)
    # What is not dense is copied by `call`; the function itself takes what it is given.
    columns = w.T.contiguous().T
    np.testing.assert_array_equal(vm.call("main", x, columns).numpy(), expected)
    with pytest.raises(ValueError, match="expected a compact tensor"):
        vm["main"](x, columns)
