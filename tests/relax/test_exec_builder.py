# SPDX-License-Identifier: Apache-2.0
"""Programs written by hand with ExecBuilder, built, listed and run."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


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
    assert rebuilt(ex).to_bytes() == ex.to_bytes()


def rebuilt(ex: relax.VMExecutable) -> relax.VMExecutable:
    scope: dict = {}
    exec(ex.as_python(), scope)
    return scope["ex"]


def np_tensor():
    return relaxvm.runtime.tensor(np.arange(6, dtype="float32").reshape(2, 3))


def random_constant(rng):
    """One of every kind that a constant can be, edge cases among them."""
    kind = rng.integers(9)
    shape = tuple(int(n) for n in rng.integers(0, 4, rng.integers(0, 4)))
    if kind == 0:
        dtype = rng.choice(["int8", "uint16", "int64", "float16", "float32", "float64", "bool"])
        return relaxvm.runtime.tensor(rng.integers(0, 100, shape).astype(dtype))
    if kind == 1:
        import ml_dtypes

        return relaxvm.runtime.tensor(rng.random(shape).astype(ml_dtypes.bfloat16))
    if kind == 2:
        return relaxvm.runtime.ShapeTuple(shape)
    if kind == 3:
        return "".join(
            chr(c) for c in rng.choice([0, 10, 34, 39, 92, 0x7F, 0xE4, 0x20AC, 0x1F600], 5)
        )
    if kind == 4:
        return int(rng.choice([0, -1, 2**55, -(2**63), 2**63 - 1]))
    if kind == 5:
        return float(rng.choice([0.0, -0.0, 0.1, -1e308, 5e-324, np.inf, -np.inf, np.nan]))
    if kind == 6:
        return relaxvm.DataType(
            str(rng.choice(["float32", "bfloat16", "int4", "bool", "float8_e4m3fn"]))
        )
    if kind == 7:
        return relaxvm.runtime.tensor(rng.random((int(rng.integers(50, 200)),)))
    return "short" if rng.integers(2) else "a string that is not stored inside its object"


def random_executable(seed: int) -> relax.VMExecutable:
    """Well-formed functions of both kinds, in an order of their own, with every kind of operand."""
    rng = np.random.default_rng(seed)
    ib = relax.ExecBuilder()
    names = [f"f{i}" for i in range(rng.integers(1, 5))]
    arity = {name: int(rng.integers(0, 4)) for name in names}
    compiled = {name for name in names if rng.random() < 0.2}
    for name in rng.permutation(names):
        kind = relax.VMFuncKind.VM_TIR_FUNC if name in compiled else relax.VMFuncKind.VM_FUNC
        ib.declare_function(str(name), kind)
    constants = []
    for _ in range(rng.integers(0, 12)):
        value = random_constant(rng)
        constants.append(ib.add_constant(value))
        if isinstance(value, relaxvm.runtime.Tensor) and rng.random() < 0.3:
            ib.set_memory_scope(constants[-1], str(rng.choice(["global.texture", "local"])))
    for name in names:
        write_random_function(ib, rng, name, arity, compiled, constants)
    return ib.get()


def write_random_function(ib, rng, name, arity, compiled, constants) -> None:
    inputs = arity[name]
    params = [f"p{i}\u00e4" for i in range(inputs)] if rng.integers(2) else None
    if name in compiled:
        kind, size = relax.VMFuncKind.VM_TIR_FUNC, inputs + 1 + int(rng.integers(3))
        with ib.function(name, inputs, params, kind=kind, register_file_size=size):
            return
    # More registers than are used, or as many as are counted.
    size = int(rng.integers(inputs + 4, 20)) if rng.integers(2) else 0
    registers = list(range(inputs))

    def operand():
        choice = rng.integers(6)
        if choice == 0 and registers:
            return ib.r(int(rng.choice(registers)))
        if choice == 1:
            return ib.imm(int(rng.choice([0, 1, -1, 2**55 - 1, 1 - 2**55])))
        if choice == 2 and constants:
            return int(rng.choice(constants))
        if choice == 3:
            return ib.f(str(rng.choice([*arity, "packed.a", "packed.\u00fc"])))
        return ib.vm_state() if choice == 4 else ib.void_arg()

    count = int(rng.integers(1, 12))
    with ib.function(name, inputs, params, register_file_size=size):
        for at in range(count):
            left = count - at  # instructions up to the last one, which is a Ret
            if left >= 2 and rng.random() < 0.2:
                ib.emit_if(ib.r(int(rng.choice(registers))) if registers else ib.void_arg(), left)
            elif rng.random() < 0.2:
                ib.emit_goto(int(rng.choice([-at, left] if at else [left])))
            else:
                callee = str(rng.choice([*arity, "packed.a", "packed.b"]))
                args = [operand() for _ in range(arity.get(callee, int(rng.integers(0, 5))))]
                dst = int(rng.integers(inputs, inputs + 4)) if rng.integers(4) else None
                ib.emit_call(callee, args, None if dst is None else ib.r(dst))
                registers += [] if dst is None or dst in registers else [dst]
        ib.emit_ret(ib.r(int(rng.choice(registers))) if registers else ib.void_arg())


@pytest.mark.parametrize("group", range(4))
def test_random_executables_survive_bytes_and_python(group):
    for seed in range(group * 50, group * 50 + 50):
        ex = random_executable(seed)
        again = relax.VMExecutable.from_bytes(ex.to_bytes())
        assert again.to_bytes() == ex.to_bytes(), f"bytes, seed {seed}"
        assert again.as_text() == ex.as_text(), f"text, seed {seed}"
        assert rebuilt(again).to_bytes() == ex.to_bytes(), f"Python, seed {seed}"


def test_a_string_that_is_no_utf_8_survives_python():
    ib = relax.ExecBuilder()
    ib.add_constant(b"\xff\xc3(\xed\xa0\x80".decode("utf-8", "surrogateescape"))
    ex = ib.get()
    assert rebuilt(ex).to_bytes() == ex.to_bytes()


def test_registers_stay_as_they_are_written_when_their_number_is_given():
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=1, register_file_size=9):
        ib.emit_call("vm.builtin.copy", args=[ib.r(0)], dst=ib.r(7))
        ib.emit_ret(ib.r(7))
    ex = ib.get()
    assert "ret   %7" in ex.as_text()
    assert relax.VirtualMachine(ex, relaxvm.cpu())["f"](5) == 5


def test_memory_scopes_belong_to_constants():
    ib = relax.ExecBuilder()
    with pytest.raises(ValueError, match="needs a constant of the pool"):
        ib.set_memory_scope(ib.imm(1), "local")
    with pytest.raises(ValueError, match="needs a constant of the pool"):
        ib.set_memory_scope(ib.c(0), "local")


def test_executable_survives_its_bytes():
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=0):
        ib.emit_call("vm.builtin.shape_of", args=[np_tensor()], dst=ib.r(0))
        ib.emit_ret(ib.r(0))
    ex = ib.get()
    again = relax.VMExecutable.from_bytes(ex.to_bytes())
    assert again.as_text() == ex.as_text()
    assert tuple(relax.VirtualMachine(again, relaxvm.cpu())["f"]()) == (2, 3)


@I.ir_module
class Lowered:
    @T.prim_func
    def add_one(a: T.Buffer((T.int64(4),), "float32"), b: T.Buffer((T.int64(4),), "float32")):
        for i in range(T.int64(4)):
            with T.sblock("add"):
                v = T.axis.spatial(T.int64(4), i)
                b[v] = a[v] + T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        y = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
        _ = Lowered.add_one(x, y)
        return y


def run(executable, *args):
    vm = relax.VirtualMachine(executable, relaxvm.cpu())
    return vm["main"](*(relaxvm.runtime.tensor(a) for a in args)).numpy()


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_functions_of_a_lowered_module_and_its_programs_are_linked(exec_mode: str):
    builder = relax.ExecBuilder()
    left = relax.vm_build._vmcodegen(builder, Lowered, exec_mode=exec_mode)
    assert [v.name_hint for v in left.functions] == ["add_one"]
    executable = relax.vm_build._vmlink(builder, "llvm", left)
    assert run(executable, np.zeros(4, "float32")).tolist() == [1, 1, 1, 1]
    assert run(builder.get(), np.zeros(4, "float32")).tolist() == [1, 1, 1, 1]


def test_bytecode_by_hand_is_linked_with_programs():
    builder = relax.ExecBuilder()
    with builder.function("main", num_inputs=2):
        builder.emit_call("add_one", args=[builder.r(0), builder.r(1)])
        builder.emit_ret(builder.r(1))
    programs = relaxvm.IRModule({"add_one": Lowered["add_one"]})
    executable = relax.vm_build._vmlink(builder, "llvm", programs)
    zeros = np.zeros(4, "float32")
    assert run(executable, zeros, zeros.copy()).tolist() == [1, 1, 1, 1]


def test_a_builder_takes_the_functions_of_one_module():
    builder = relax.ExecBuilder()
    relax.vm_build._vmcodegen(builder, Lowered)
    with pytest.raises(RuntimeError, match="holds the functions of a module already"):
        relax.vm_build._vmcodegen(builder, Lowered)
    with pytest.raises(ValueError, match='exec_mode is "bytecode" or "compiled"'):
        relax.vm_build._vmcodegen(relax.ExecBuilder(), Lowered, exec_mode="jit")
