# SPDX-License-Identifier: Apache-2.0
"""relaxvm compiles machine-learning models to one small native program and runs it on a register virtual machine.

Importing it loads the runtime library alone, neither the compiler nor its languages: their names are found when they
are first used."""

from __future__ import annotations

import importlib
from typing import Any

from relaxvm import _ffi
from relaxvm._registry import (
    get_global_func,
    register_func,
    register_global_func,
    remove_global_func,
)
from relaxvm.runtime import (
    DataType,
    Device,
    Object,
    Tensor,
    VirtualMachine,
    cpu,
    cuda,
    device,
    ext_dev,
    hexagon,
    load,
    metal,
    null,
    opencl,
    rocm,
    vpi,
    vulkan,
)

for _name in _ffi.runtime_function("runtime.unknown_flags")():
    _logging = importlib.import_module("logging")
    _logging.getLogger("relaxvm").warning("%s is set, but no flag has this name", _name)

__version__: str = _ffi.runtime_function("runtime.version")()

# name -> module that has it
_NAMES = {
    "IRModule": "relaxvm.ir.module",
    "TVMError": "relaxvm.error",
    "build": "relaxvm.tirx",
    "compile": "relaxvm._compile",
}
_MODULES = (
    "arith",
    "cli",
    "contrib",
    "error",
    "inference",
    "instrument",
    "ir",
    "relax",
    "runtime",
    "s_tir",
    "script",
    "support",
    "sym",
    "target",
    "te",
    "testing",
    "tirx",
    "topi",
    "transform",
)
_ELSEWHERE = {"arith": "sym", "instrument": "ir.instrument"}


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, name)}")
    else:
        raise AttributeError(f"module relaxvm has no attribute {name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_MODULES})


register_object = _ffi.tvm_ffi.register_object

__all__ = [
    "DataType",
    "Device",
    "Object",
    "Tensor",
    "VirtualMachine",
    "__version__",
    "cpu",
    "cuda",
    "device",
    "ext_dev",
    "get_global_func",
    "hexagon",
    "load",
    "metal",
    "null",
    "opencl",
    "register_func",
    "register_global_func",
    "register_object",
    "remove_global_func",
    "rocm",
    "vpi",
    "vulkan",
]
