# SPDX-License-Identifier: Apache-2.0
"""What runs without a compiler: tensors, devices, modules, executables, the virtual machine."""

from __future__ import annotations

from relaxvm._ffi import tvm_ffi
from relaxvm.runtime import hooks
from relaxvm.runtime.adt import ADT
from relaxvm.runtime.device import (
    Device,
    cpu,
    cuda,
    device,
    ext_dev,
    gpu,
    hexagon,
    metal,
    null,
    opencl,
    rocm,
    vpi,
    vulkan,
)
from relaxvm.runtime.executable import Executable, VMExecutable
from relaxvm.runtime.module import Module, load, load_module, load_static_library
from relaxvm.runtime.params import (
    load_param_dict,
    load_param_dict_from_file,
    save_param_dict,
    save_param_dict_to_file,
)
from relaxvm.runtime.tensor import Tensor, empty, from_dlpack, tensor
from relaxvm.runtime.vm import VirtualMachine, VMInstrumentReturnKind

DataType = tvm_ffi.dtype
Object = tvm_ffi.Object
PackedFunc = tvm_ffi.Function
Shape = tvm_ffi.Shape
ShapeTuple = tvm_ffi.Shape
convert = tvm_ffi.convert

__all__ = [
    "ADT",
    "DataType",
    "Device",
    "Executable",
    "Module",
    "Object",
    "PackedFunc",
    "Shape",
    "ShapeTuple",
    "Tensor",
    "VMExecutable",
    "VMInstrumentReturnKind",
    "VirtualMachine",
    "convert",
    "cpu",
    "cuda",
    "device",
    "empty",
    "ext_dev",
    "from_dlpack",
    "gpu",
    "hexagon",
    "hooks",
    "load",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "load_static_library",
    "metal",
    "null",
    "opencl",
    "rocm",
    "save_param_dict",
    "save_param_dict_to_file",
    "tensor",
    "vpi",
    "vulkan",
]
