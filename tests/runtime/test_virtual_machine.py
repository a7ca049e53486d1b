# SPDX-License-Identifier: Apache-2.0
"""The virtual machine from Python: calls, state, instruments, profiles, resources."""

import gc
import json
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest
import tvm_ffi

import relaxvm
from relaxvm import relax


def machine(write, **options) -> relax.VirtualMachine:
    ib = relax.ExecBuilder()
    write(ib)
    return relax.VirtualMachine(ib.get(), options.pop("device", relaxvm.cpu()), **options)


def pair(ib) -> None:
    """pair(data, weight) -> (data, (weight, data))"""
    with ib.function("pair", num_inputs=2, param_names=["data", "weight"]):
        ib.emit_call("vm.builtin.make_tuple", args=[ib.r(1), ib.r(0)], dst=ib.r(2))
        ib.emit_call("vm.builtin.make_tuple", args=[ib.r(0), ib.r(2)], dst=ib.r(3))
        ib.emit_ret(ib.r(3))


def values(*numbers):
    return relaxvm.runtime.tensor(np.array(numbers, "float32"))


def test_unknown_function_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no function 'nope'"):
        machine(pair)["nope"]


def test_stateful_calls_keep_inputs_and_outputs():
    vm = machine(pair)
    vm.set_input("pair", np.array([1.0], "float32"), 2.5)
    vm.invoke_stateful("pair")
    first, (second, third) = vm.get_outputs("pair")
    assert (first.numpy(), second.numpy(), third.numpy()) == ([1.0], 2.5, [1.0])


def test_keyword_arguments_go_to_their_parameters():
    vm = machine(pair)
    vm.set_input("pair", weight=np.float32(7), data=np.float32(5))
    vm.invoke_stateful("pair")
    assert vm.get_outputs("pair")[0].numpy() == 5


def test_parameters_of_a_module_are_the_last_input():
    vm = machine(pair)
    relaxvm.get_global_func("vm.builtin.tensor_cache.update")("vm_param_0", values(4), True)
    module = relaxvm.get_global_func("vm.builtin.param_module_from_cache")("vm_param", 1)
    set_input = vm.module["set_input_with_param_module"]
    set_input("pair", values(1), module)
    vm.invoke_stateful("pair")
    assert vm.get_outputs("pair")[1][0][0].numpy() == [4]
    for wrong in ((values(1), values(2)), (module, values(1)), ()):
        with pytest.raises(TypeError, match="must be a module with a function get_params"):
            set_input("pair", *wrong)


@pytest.mark.parametrize(
    "args, kwargs, message",
    [
        ((1,), {}, "takes 2, 1 are given"),
        ((1,), {"bias": 2}, "no parameter 'bias'"),
        ((1,), {"data": 2}, "'data' is given twice"),
        ((), {"data": 2}, "no value for weight"),
    ],
)
def test_wrong_inputs_are_errors(args, kwargs, message):
    with pytest.raises(ValueError, match=message):
        machine(pair).set_input("pair", *args, **kwargs)


class Results:
    def __init__(self, *values):
        self.values = values


def test_results_that_are_owned_share_no_memory_with_arguments():
    call = machine(pair).module["own_results"]("pair", 2, Results)
    data, weight = np.float32([1, 2]), np.float32([3])
    first, (second, third) = call(data, weight).values
    for result in (first, second, third):
        np.from_dlpack(result)[:] = 7
    assert data.tolist() == [1, 2] and weight.tolist() == [3]


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        (1.5, "argument 1 is no tensor"),
        (np.zeros((4, 4), "f4")[:, ::2], "argument 1 is no dense, aligned tensor"),
        (np.frombuffer(bytearray(9), "f4", offset=1), "argument 1 is no dense, aligned tensor"),
    ],
)
def test_arguments_are_dense_where_results_are_owned(arg, message):
    call = machine(pair).module["own_results"]("pair", 2, Results)
    with pytest.raises(TypeError, match=message):
        call(np.float32([1]), arg)


def test_invoke_needs_inputs_and_outputs_need_a_call():
    vm = machine(pair)
    with pytest.raises(ValueError, match="call set_input first"):
        vm.invoke_stateful("pair")
    with pytest.raises(ValueError, match="invoke_stateful"):
        vm.get_outputs("pair")


def test_saved_function_calls_with_its_arguments():
    vm = machine(pair)
    vm.save_function("pair", "saved", np.float32(1), weight=np.float32(2))
    assert vm["saved"]()[1][0].numpy() == 2
    vm.save_function("pair", "silent", 1, 2, include_return=False)
    assert vm["silent"]() is None


def test_time_evaluator_counts_seconds():
    result = machine(pair).time_evaluator("pair", relaxvm.cpu(), number=3, repeat=4)(1, 2)
    assert len(result.results) == 4 and 0 < result.min <= result.mean <= result.max


def test_instrument_sees_calls_and_skips_them():
    seen = []

    def instrument(func, name, before_run, ret_value, *args):
        seen.append((name, before_run, len(args), None if before_run else len(ret_value)))
        return relaxvm.runtime.VMInstrumentReturnKind.NO_OP

    vm = machine(pair)
    vm.set_instrument(instrument)
    vm["pair"](1, 2)
    assert (
        seen
        == [("vm.builtin.make_tuple", True, 2, None), ("vm.builtin.make_tuple", False, 2, 2)] * 2
    )
    vm.set_instrument(lambda *_: relaxvm.runtime.VMInstrumentReturnKind.SKIP_RUN)
    assert vm["pair"](1, 2) is None
    vm.set_instrument(None)
    assert vm["pair"](1, 2)[0] == 1


def test_instrument_that_raises_ends_the_call():
    def instrument(*_):
        raise KeyError("from the instrument")

    vm = machine(pair)
    vm.set_instrument(instrument)
    with pytest.raises(KeyError, match="from the instrument"):
        vm["pair"](values(1), values(2))


def test_profile_has_a_row_for_each_function_and_a_trace(tmp_path):
    profile = machine(pair).profile("pair", np.zeros((4, 4), "float32"), np.zeros(3, "float32"))
    (row,) = profile.rows()
    assert (row.name, row.calls, row.num_bytes) == ("vm.builtin.make_tuple", 2, 2 * 64 + 12)
    assert "vm.builtin.make_tuple" in str(profile)
    profile.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    calls = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in calls] == ["vm.builtin.make_tuple"] * 2


def test_python_exception_passes_through_with_its_traceback():
    def fails(x):
        raise ValueError("inside the callback")

    def write(ib):
        with ib.function("main", num_inputs=1):
            ib.emit_call("test.rt.fails", args=[ib.r(0)], dst=ib.r(1))
            ib.emit_ret(ib.r(1))

    relaxvm.register_global_func("test.rt.fails", fails, override=True)
    try:
        with pytest.raises(ValueError, match="inside the callback") as error:
            machine(write)["main"](values(1))
    finally:
        relaxvm.remove_global_func("test.rt.fails")
    assert error.traceback[-1].name == "fails"
    assert any(entry.name == "main" for entry in error.traceback)


def test_threads_get_their_own_results():
    vm = machine(pair)
    function = vm["pair"]
    wrong = []

    def run(number: int) -> None:
        for _ in range(200):
            x = values(number)
            result = function(x, number)
            if result[1][0] != number or result[0].numpy() != number:
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_closure_outlives_its_machine():
    def write(ib):
        pair(ib)
        with ib.function("make", num_inputs=1):
            ib.emit_call("vm.builtin.make_closure", args=[ib.f("pair"), ib.r(0)], dst=ib.r(1))
            ib.emit_ret(ib.r(1))

    closure = machine(write)["make"](5)
    gc.collect()
    assert list(closure(6)[1]) == [5, 6]


def alloc(ib) -> None:
    with ib.function("alloc", num_inputs=1):
        args = [
            ib.vm_state(),
            ib.r(0),
            ib.imm(0),
            relaxvm.DataType("uint8"),
            ib.convert_constant("global"),
        ]
        ib.emit_call("vm.builtin.alloc_storage", args=args, dst=ib.r(1))
        args = [ib.r(1), ib.imm(0), ib.r(0), relaxvm.DataType("uint8")]
        ib.emit_call("vm.builtin.alloc_tensor", args=args, dst=ib.r(2))
        ib.emit_ret(ib.r(2))


def test_memory_is_counted_and_given_back():
    vm = machine(alloc)
    tensor = vm["alloc"](tvm_ffi.Shape([1000]))
    assert vm.memory_stats()["used_bytes"] == 1000
    del tensor
    gc.collect()
    stats = vm.memory_stats()
    assert (stats["used_bytes"], stats["peak_used_bytes"], stats["reserved_bytes"]) == (
        0,
        1000,
        1024,
    )
    assert vm.trim_memory() == 1024


def test_memory_limit_is_an_error():
    vm = machine(alloc, memory_limit=1 << 16)
    with pytest.raises(RuntimeError, match="the limit is 65536"):
        vm["alloc"](tvm_ffi.Shape([1 << 20]))


@pytest.mark.parametrize("config", ["naive", "pooled", {}])
def test_memory_config_names_an_allocator(config):
    assert machine(alloc, memory_cfg=config)["alloc"](tvm_ffi.Shape([3])).shape == (3,)


def test_wrong_memory_config_is_an_error():
    with pytest.raises(ValueError, match="use 'naive' or 'pooled'"):
        machine(alloc, memory_cfg="fast")


def test_time_limit_ends_a_loop():
    def write(ib):
        with ib.function("forever", num_inputs=0):
            ib.emit_call("vm.builtin.null_value", args=[], dst=ib.r(0))
            ib.emit_goto(-1)
            ib.emit_ret(ib.r(0))

    vm = machine(write)
    vm.set_time_limit(5)
    with pytest.raises(TimeoutError, match="past its deadline"):
        vm["forever"]()


def test_device_that_does_not_exist_is_an_error():
    with pytest.raises(RuntimeError, match="no device"):
        machine(pair, device=relaxvm.cuda())


def test_to_device_copies_and_back():
    def write(ib):
        with ib.function("there", num_inputs=1):
            ib.emit_call("vm.builtin.to_device", args=[ib.r(0), ib.imm(12), ib.imm(0)], dst=ib.r(1))
            ib.emit_ret(ib.r(1))

    vm = machine(write, device=[relaxvm.null(), relaxvm.cpu()])
    result = vm["there"](values(1, 2, 3))
    assert result.device == relaxvm.null()
    np.testing.assert_array_equal(result.numpy(), np.array([1, 2, 3], "float32"))


def test_not_an_executable_is_an_error():
    with pytest.raises(TypeError, match="needs an executable"):
        relax.VirtualMachine(machine(pair).module, relaxvm.cpu())


def test_builtins_are_global_functions():
    assert tuple(relaxvm.get_global_func("vm.builtin.shape_of")(values(1, 2))) == (2,)
    assert relaxvm.get_global_func("no.such.function", allow_missing=True) is None
    with pytest.raises(ValueError, match="no.such.function"):
        relaxvm.get_global_func("no.such.function")
    with pytest.raises(ValueError, match="is a builtin"):
        relaxvm.register_global_func("vm.builtin.copy", print)


def test_interrupt_from_the_keyboard_ends_a_loop():
    code = (
        "import signal, relaxvm\n"
        "from relaxvm import relax\n"
        "ib = relax.ExecBuilder()\n"
        "with ib.function('forever', num_inputs=0):\n"
        "    ib.emit_call('vm.builtin.null_value', args=[], dst=ib.r(0))\n"
        "    ib.emit_goto(-1)\n"
        "    ib.emit_ret(ib.r(0))\n"
        "vm = relax.VirtualMachine(ib.get(), relaxvm.cpu())\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "try:\n"
        "    vm['forever']()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert result.stdout == "interrupted\n", result.stderr


def test_program_that_tvm_wrote_loads_and_keeps_its_bytes():
    """tvm_0_27_executable.bin was written by apache-tvm 0.27: constants of every kind, special registers, jumps."""
    path = pathlib.Path(__file__).with_name("tvm_0_27_executable.bin")
    executable = relaxvm.load(path)
    assert "call  g                in: %vm, %void, i-5, c[0], f[f] dst: %1" in executable.as_text()
    own_section_bytes = 32
    assert executable.to_bytes()[:-own_section_bytes] == path.read_bytes()


def test_storage_counts_bytes_or_elements_of_its_dtype():
    """TVM's planner counts bytes, its users elements: the bytes are reserved until a tensor needs the elements."""

    def write(ib):
        with ib.function("tensor", num_inputs=1):
            float32, scope = (
                ib.convert_constant(relaxvm.DataType("float32")),
                ib.convert_constant("global"),
            )
            args = [ib.vm_state(), (24,), ib.imm(0), float32, scope]
            ib.emit_call("vm.builtin.alloc_storage", args=args, dst=ib.r(1))
            ib.emit_call(
                "vm.builtin.alloc_tensor", args=[ib.r(1), ib.imm(0), ib.r(0), float32], dst=ib.r(2)
            )
            ib.emit_call("vm.builtin.make_tuple", args=[ib.r(1), ib.r(2)], dst=ib.r(3))
            ib.emit_ret(ib.r(3))

    vm = machine(write)
    kept = vm["tensor"](tvm_ffi.Shape([6]))
    assert vm.memory_stats()["used_bytes"] == 24
    del kept
    gc.collect()
    kept = vm["tensor"](tvm_ffi.Shape([4, 6]))
    assert (kept[1].shape, vm.memory_stats()["used_bytes"]) == ((4, 6), 96)
    with pytest.raises(ValueError, match="100 bytes at offset 0 does not fit"):
        vm["tensor"](tvm_ffi.Shape([25]))
