# SPDX-License-Identifier: Apache-2.0
"""Programs written by hand with ExecBuilder, built, listed and run."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax


@pytest.fixture(scope="module", autouse=True)
def functions():
    names = {
        "test.rt.add": lambda a, b: relaxvm.runtime.tensor(a.numpy() + b.numpy()),
        "test.rt.mul": lambda a, b: relaxvm.runtime.tensor(a.numpy() * b.numpy()),
        "test.rt.add_int": lambda a, b: a + b,
    }
    for name, function in names.items():
        relaxvm.register_global_func(name, function, override=True)
    yield
    for name in names:
        relaxvm.remove_global_func(name)


def build(write) -> relax.VirtualMachine:
    ib = relax.ExecBuilder()
    write(ib)
    return relax.VirtualMachine(ib.get(), relaxvm.cpu())


def tensors(count: int):
    rng = np.random.default_rng(0)
    return [relaxvm.runtime.tensor(rng.random((2, 3))) for _ in range(count)]


def test_calls_a_global_function():
    def write(ib):
        with ib.function("f", num_inputs=2):
            ib.emit_call("test.rt.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
            ib.emit_ret(ib.r(2))

    a, b = tensors(2)
    np.testing.assert_array_equal(build(write)["f"](a, b).numpy(), a.numpy() + b.numpy())


def test_refuses_to_read_a_register_that_nothing_writes():
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=2):
        ib.emit_call("test.rt.add", args=[ib.r(0), ib.r(2)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    with pytest.raises(RuntimeError, match="reads register 2, which nothing writes before"):
        ib.get()


def test_passes_negative_immediates():
    def write(ib):
        with ib.function("f", num_inputs=1):
            ib.emit_call("test.rt.add_int", args=[ib.imm(-3), ib.r(0)], dst=ib.r(1))
            ib.emit_ret(ib.r(1))

    assert build(write)["f"](1) == -2


def test_stores_equal_constants_once():
    ib = relax.ExecBuilder()
    array = np.array([1, 2, 3], "int32")
    assert ib.convert_constant("s") == ib.convert_constant("s")
    assert ib.convert_constant((1, 2)) == ib.convert_constant((1, 2))
    assert ib.convert_constant((1, 2)) != ib.convert_constant((1, 3))
    one = ib.convert_constant(relaxvm.runtime.tensor(array))
    assert one == ib.convert_constant(relaxvm.runtime.tensor(array.copy()))
    assert one != ib.convert_constant(relaxvm.runtime.tensor(array.astype("int64")))


def test_numbers_registers_in_order_of_their_first_write():
    texts = []
    for first, second in ((100, 50), (2, 3)):
        ib = relax.ExecBuilder()
        with ib.function("f", num_inputs=2):
            ib.emit_call("test.rt.add", args=[ib.r(0), ib.r(1)], dst=ib.r(first))
            ib.emit_call("test.rt.mul", args=[ib.r(1), ib.r(first)], dst=ib.r(second))
            ib.emit_ret(ib.r(second))
        texts.append(ib.get().as_text())
    assert texts[0] == texts[1]


def test_prints_every_kind_of_instruction_and_operand():
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=1):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call(
            "g",
            args=[ib.vm_state(), ib.void_arg(), ib.imm(-5), ib.convert_constant("s"), ib.f("f")],
            dst=ib.r(1),
        )
        ib.emit_goto(2)
        ib.emit_call("vm.builtin.copy", args=[ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    assert ib.get().as_text() == (
        "@f:\n"
        "  If    %0, 3\n"
        "  call  g                in: %vm, %void, i-5, c[0], f[f] dst: %1\n"
        "  goto  2\n"
        "  call  vm.builtin.copy  in: %0           dst: %1\n"
        "  ret   %1\n"
        "\n"
        "@g packed_func;\n"
        "\n"
        "@vm.builtin.copy packed_func;\n"
        "\n"
    )


@pytest.mark.parametrize("condition, expected", [(0, 12), (1, 7), (5, 7), (True, 7), (False, 12)])
def test_takes_the_branch_that_the_condition_says(condition, expected):
    def write(ib):
        with ib.function("f", num_inputs=3):
            ib.emit_if(ib.r(0), 3)
            ib.emit_call("test.rt.add_int", args=[ib.r(1), ib.r(2)], dst=ib.r(3))
            ib.emit_goto(2)
            ib.emit_call("test.rt.add_int", args=[ib.r(1), ib.imm(9)], dst=ib.r(3))
            ib.emit_ret(ib.r(3))

    assert build(write)["f"](condition, 3, 4) == expected


def test_closure_binds_its_last_arguments():
    def write(ib):
        with ib.function("sub", num_inputs=3):
            ib.emit_call("test.rt.add_int", args=[ib.r(0), ib.imm(100)], dst=ib.r(3))
            ib.emit_call("vm.builtin.make_tuple", args=[ib.r(3), ib.r(1), ib.r(2)], dst=ib.r(4))
            ib.emit_ret(ib.r(4))
        with ib.function("main", num_inputs=2):
            ib.emit_call(
                "vm.builtin.make_closure", args=[ib.f("sub"), ib.r(0), ib.r(1)], dst=ib.r(2)
            )
            ib.emit_ret(ib.r(2))

    vm = build(write)
    closure = vm["main"](7, 8)
    assert list(vm.invoke_closure(closure, 1)) == [101, 7, 8]


def test_tail_calls_run_in_constant_stack():
    def write(ib):
        with ib.function("loop", num_inputs=2):
            ib.emit_if(ib.r(0), 5)
            ib.emit_call(
                "vm.builtin.make_prim_value", args=[ib.r(1), ib.imm(1), ib.imm(0)], dst=ib.r(2)
            )
            ib.emit_call("test.rt.step", args=[ib.r(1)], dst=ib.r(3))
            ib.emit_call("loop", args=[ib.r(3), ib.r(1)], dst=ib.r(4))
            ib.emit_goto(2)
            ib.emit_call("vm.builtin.copy", args=[ib.r(0)], dst=ib.r(4))
            ib.emit_call("vm.builtin.copy", args=[ib.r(4)], dst=ib.r(5))
            ib.emit_ret(ib.r(5))

    left = [200_000]

    def step(heap):
        left[0] -= 1
        return left[0]

    relaxvm.register_global_func("test.rt.step", step, override=True)
    heap = relaxvm.runtime.tensor(np.zeros(1, "int64"))
    try:
        assert build(write)["loop"](1, heap) == 0
    finally:
        relaxvm.remove_global_func("test.rt.step")


def test_endless_recursion_is_an_error():
    def write(ib):
        with ib.function("f", num_inputs=1):
            ib.emit_call("f", args=[ib.r(0)], dst=ib.r(1))
            ib.emit_call("vm.builtin.make_tuple", args=[ib.r(1)], dst=ib.r(2))
            ib.emit_ret(ib.r(2))

    vm = build(write)
    with pytest.raises(RecursionError, match="the call of f exceeds the VM's stack"):
        vm["f"](relaxvm.runtime.tensor(1.0))


def test_program_from_as_python_equals_its_source():
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=1, param_names=["x"]):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call(
            "g",
            args=[
                ib.imm(1),
                ib.convert_constant(0.1),
                "text \"'\\ \n",
                (2, 3),
                relaxvm.DataType("float16"),
                np_tensor(),
            ],
            dst=ib.r(1),
        )
        ib.emit_goto(2)
        ib.emit_call("vm.builtin.copy", args=[ib.f("f")], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    ex = ib.get()
    scope = {"relaxvm": relaxvm, "make_constant": ex.constant}
    exec(ex.as_python(), scope)
    assert scope["ib"].get().to_bytes() == ex.to_bytes()


def np_tensor():
    return relaxvm.runtime.tensor(np.arange(6, dtype="float32").reshape(2, 3))


def test_executable_survives_its_bytes():
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=0):
        ib.emit_call("vm.builtin.shape_of", args=[np_tensor()], dst=ib.r(0))
        ib.emit_ret(ib.r(0))
    ex = ib.get()
    again = relax.VMExecutable.from_bytes(ex.to_bytes())
    assert again.as_text() == ex.as_text()
    assert tuple(relax.VirtualMachine(again, relaxvm.cpu())["f"]()) == (2, 3)
