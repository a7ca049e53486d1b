# SPDX-License-Identifier: Apache-2.0
"""Libraries of native kernels: loaded with an executable inside, called directly, refused when they do not fit."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tvm_ffi

import relaxvm
from relaxvm import relax
from relaxvm._ffi import runtime_function

SOURCE = pathlib.Path(__file__).with_name("kernels.c")


def compile_library(path: pathlib.Path, *defines: str) -> str:
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(path), str(SOURCE), *defines]
    subprocess.run(command, check=True, timeout=60)
    return str(path)


def builder() -> relax.ExecBuilder:
    """add(x, out); fill() -> (3, 4); dyn(shape, out); same(x), compiled"""
    ib = relax.ExecBuilder()
    with ib.function("add", num_inputs=2):
        args = [ib.r(0), ib.r(1), ib.imm(2), ib.convert_constant(0.5)]
        ib.emit_call("add_scalar", args=args)
        ib.emit_ret(ib.r(1))
    with ib.function("fill", num_inputs=0):
        scope = ib.convert_constant("global")
        args = [ib.vm_state(), (48,), ib.imm(0), relaxvm.DataType("float32"), scope]
        ib.emit_call("vm.builtin.alloc_storage", args=args, dst=ib.r(0))
        args = [ib.r(0), ib.imm(0), (3, 4), relaxvm.DataType("float32")]
        ib.emit_call("vm.builtin.alloc_tensor", args=args, dst=ib.r(1))
        ib.emit_call("fill_index", args=[ib.r(1), ib.imm(3), ib.imm(4)], dst=ib.r(2))
        ib.emit_ret(ib.r(1))
    with ib.function("dyn", num_inputs=2):
        ib.emit_call("vm.builtin.call_tir_dyn", args=[ib.f("fill_index"), ib.r(1), ib.r(0)])
        ib.emit_ret(ib.r(1))
    with ib.function("same", num_inputs=1, kind=relax.VMFuncKind.VM_TIR_FUNC, register_file_size=3):
        pass
    with ib.function("calls_same", num_inputs=1):
        ib.emit_call("same", args=[ib.r(0)], dst=ib.r(1))
        ib.emit_call("vm.builtin.make_tuple", args=[ib.r(1), ib.r(0)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    return ib


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("kernels")
    blob = folder / "blob.bin"
    text = SOURCE.read_text().replace("__vmtir__identity", "__vmtir__same")
    source = folder / "model.c"
    source.write_text(text)
    ex = builder().get()
    blob.write_bytes(bytes(runtime_function("vm.pack_executable")(ex.mod)))
    path = folder / "model.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(path), str(source), f"-DBLOB={blob}"]
    subprocess.run(command, check=True, timeout=60)
    return str(path)


@pytest.fixture
def vm(library) -> relax.VirtualMachine:
    return relax.VirtualMachine(relaxvm.load(library), relaxvm.cpu())


def floats(*shape: int):
    return relaxvm.runtime.empty(shape, "float32")


def test_direct_kernel_gets_tensors_and_both_kinds_of_scalars(vm):
    x = relaxvm.runtime.tensor(np.arange(1000, dtype="float32"))
    result = vm["add"](x, floats(1000))
    np.testing.assert_array_equal(result.numpy(), np.arange(1000, dtype="float32") + 2.5)


def test_kernel_fills_an_allocated_tensor(vm):
    expected = np.arange(12, dtype="float32").reshape(3, 4)
    np.testing.assert_array_equal(vm["fill"]().numpy(), expected)


def test_shape_supplies_the_scalars_of_a_dynamic_call(vm):
    result = vm["dyn"](tvm_ffi.Shape([2, 5]), floats(2, 5))
    np.testing.assert_array_equal(result.numpy(), np.arange(10, dtype="float32").reshape(2, 5))


def test_kernel_error_names_kernel_and_arguments(vm):
    with pytest.raises(ValueError, match=r"add_scalar: x and out differ in dimension 0 .*\(3,\)"):
        vm["add"](floats(3), floats(4))


def test_argument_of_another_type_is_an_error(vm):
    with pytest.raises(
        TypeError, match="add_scalar: argument 0 must be a tensor, it is an integer 5"
    ):
        vm["add"](5, floats(4))


def test_compiled_function_takes_and_returns_registers(vm):
    x = floats(2)
    assert vm["same"](x).data_ptr() == x.data_ptr()
    pair = vm["calls_same"](x)
    assert pair[0].data_ptr() == pair[1].data_ptr() == x.data_ptr()


def test_kernel_is_a_function_of_the_library(library):
    kernels = relaxvm.load(library).mod.imports[0]
    out = floats(2, 3)
    kernels["fill_index"](out, 2, 3)
    np.testing.assert_array_equal(out.numpy().ravel(), np.arange(6))


def test_runs_in_a_process_that_never_loads_the_compiler(library):
    code = (
        "import sys, relaxvm\n"
        "vm = relaxvm.VirtualMachine(relaxvm.load(sys.argv[1]), relaxvm.cpu())\n"
        "print(vm['fill']().numpy().sum())\n"
        "maps = open('/proc/self/maps').read()\n"
        "assert 'librelaxvm_runtime.so' in maps and 'librelaxvm.so' not in maps\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, library],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout.strip() == "66.0"


def test_refuses_a_library_for_another_kernel_abi(tmp_path):
    path = compile_library(tmp_path / "other.so", "-DABI_VERSION=99")
    with pytest.raises(RuntimeError, match="was compiled for kernel ABI 99"):
        relaxvm.runtime.load_module(path)


def test_refuses_a_file_that_is_no_library(tmp_path):
    path = tmp_path / "model.so"
    path.write_bytes(b"not a library")
    with pytest.raises(ValueError, match="neither a shared library nor a VM executable"):
        relaxvm.load(path)


def test_refuses_every_truncation_before_it_is_opened(tmp_path, library):
    data = pathlib.Path(library).read_bytes()
    path = tmp_path / "cut.so"
    for size in (10, 63, 64, 200, len(data) // 4, len(data) // 2):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match="cut.so"):
            relaxvm.load(path)


def test_seal_finds_a_flipped_bit(tmp_path, library):
    path = tmp_path / "sealed.so"
    data = pathlib.Path(library).read_bytes()
    path.write_bytes(data)
    runtime_function("runtime.seal_library")(str(path))
    relaxvm.load(path)
    sealed = bytearray(path.read_bytes())
    assert len(sealed) == len(data) + 24
    sealed[len(data) // 2] ^= 4
    path.write_bytes(sealed)
    with pytest.raises(ValueError, match="checksum does not agree"):
        relaxvm.load(path)


def test_kernel_runs_late_on_the_null_device(library):
    vm = relax.VirtualMachine(relaxvm.load(library), [relaxvm.null(), relaxvm.cpu()])
    x = relaxvm.runtime.tensor(np.ones(5, "float32"), relaxvm.null())
    out = relaxvm.runtime.tensor(np.zeros(5, "float32"), relaxvm.null())
    launches = runtime_function("runtime.null_device_stats")()["num_launches"]
    result = vm["add"](x, out)
    stats = runtime_function("runtime.null_device_stats")()
    assert (stats["num_launches"], stats["num_queued"] > 0) == (launches + 1, True)
    np.testing.assert_array_equal(result.numpy(), np.full(5, 3.5, "float32"))


def test_tensors_on_two_devices_are_an_error(library):
    vm = relax.VirtualMachine(relaxvm.load(library), [relaxvm.null(), relaxvm.cpu()])
    there = relaxvm.runtime.tensor(np.ones(5, "float32"), relaxvm.null())
    with pytest.raises(ValueError, match=r"tensor 1 is on cpu\(0\), tensor 0 on null\(0\)"):
        vm["add"](there, floats(5))


def test_profile_and_instrument_see_kernels(library):
    vm = relax.VirtualMachine(relaxvm.load(library), relaxvm.cpu())
    x = np.ones(6, "float32")
    profile = vm.profile("add", x, np.zeros(6, "float32"))
    (row,) = profile.rows()
    assert (row.name, row.calls, row.num_bytes) == ("add_scalar", 1, 48)
    assert profile.result.numpy().tolist() == [3.5] * 6
    names = []
    vm.set_instrument(lambda func, name, *_: names.append(name))
    vm["dyn"](tvm_ffi.Shape([2, 5]), floats(2, 5))
    assert names == ["vm.builtin.call_tir_dyn"] * 2


def test_missing_functions_are_named_together():
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=0):
        ib.emit_call("no.such.a", args=[], dst=ib.r(0))
        ib.emit_call("no.such.b", args=[], dst=ib.r(0))
        ib.emit_ret(ib.r(0))
    with pytest.raises(RuntimeError, match="Cannot find no.such.a, no.such.b"):
        relax.VirtualMachine(ib.get(), relaxvm.cpu())
