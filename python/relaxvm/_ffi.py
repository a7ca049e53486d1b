# SPDX-License-Identifier: Apache-2.0
"""The one place that imports tvm-ffi and loads our libraries.

`librelaxvm_runtime` is loaded here, when relaxvm is imported; `librelaxvm`, the compiler, when `load_compiler` is first
called.  Importing tvm-ffi imports torch where that is installed (1.4 s); the shim below keeps it out, and torch tensors
are converted all the same when torch is imported later.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import sys
import threading
from typing import Any

from .error import AttributeValueError


def _import_tvm_ffi():
    """Imports tvm_ffi without the `import torch` at its top."""
    if "tvm_ffi" in sys.modules or "torch" in sys.modules:
        import tvm_ffi

        return tvm_ffi
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes `import torch` raise ImportError
    try:
        import tvm_ffi
    finally:
        del sys.modules["torch"]
    return tvm_ffi


tvm_ffi = _import_tvm_ffi()
# Ctrl-C inside a Python function that C++ calls (progress of a compile, an instrument) stays what it is.
tvm_ffi.error.register_error("KeyboardInterrupt", KeyboardInterrupt)

# A key of each library: tvm-ffi aborts the process when a key is registered twice, so it is looked up first.
_RUNTIME_KEY = "relaxvm.Storage"
_COMPILER_KEY = "relaxvm.ir.Var"
_compiler: ctypes.CDLL | None = None
_lock = threading.Lock()


def _folders() -> list[pathlib.Path]:
    """Where libraries are: a named folder, the installed package, the build folder of a source checkout."""
    package = pathlib.Path(__file__).resolve().parent
    named = os.environ.get("RELAXVM_LIBRARY_PATH")
    folders = [pathlib.Path(named)] if named else []
    folders.append(package / "lib")
    checkout = package.parents[1]
    if (checkout / "CMakeLists.txt").is_file():
        folders.append(checkout / "build" / "lib")
    return folders


def library_path(name: str) -> pathlib.Path:
    """The file of one of our libraries."""
    for folder in _folders():
        path = folder / f"lib{name}.so"
        if path.is_file():
            return path
    looked = ", ".join(str(folder) for folder in _folders())
    raise ImportError(
        f"lib{name}.so is not in {looked}; build it with `./dev build`, or reinstall relaxvm"
    )


def _load(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(library_path(name)), ctypes.RTLD_LOCAL)


def _check_free(key: str) -> None:
    if key in tvm_ffi.registry.get_registered_type_keys():
        raise ImportError("another relaxvm is loaded in this process; only one can be")


def _load_runtime() -> ctypes.CDLL:
    _check_free(_RUNTIME_KEY)
    return _load("relaxvm_runtime")


def load_compiler() -> ctypes.CDLL:
    """Loads the compiler library and registers its types and functions; the second call does nothing."""
    global _compiler
    with _lock:
        if _compiler is None:
            _check_free(_COMPILER_KEY)
            library = _load("relaxvm")
            if library.relaxvm_init() != 0:
                raise ImportError(
                    f"{library._name}: the compiler library could not register itself"
                )
            _compiler = library
    return _compiler


def compiler_is_loaded() -> bool:
    return _compiler is not None


_runtime = _load_runtime()


def runtime_function(name: str) -> Any:
    """A global function `relaxvm.<name>` of the runtime library."""
    return tvm_ffi.get_global_func(f"relaxvm.{name}")


def _register_errors() -> None:
    """Kinds of errors that become the Python class of the same name, besides those that tvm-ffi knows."""
    known = tvm_ffi.core.ERROR_NAME_TO_TYPE
    for kind in (
        AssertionError,
        AttributeValueError,
        IndexError,
        KeyError,
        NotImplementedError,
        RecursionError,
        TimeoutError,
    ):
        if kind.__name__ not in known:
            tvm_ffi.register_error(kind.__name__, kind)


_register_errors()
