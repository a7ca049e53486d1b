# SPDX-License-Identifier: Apache-2.0
"""Functions by name: our builtins under the names that users know, then tvm-ffi's registry."""

from __future__ import annotations

from collections.abc import Callable

from relaxvm._ffi import runtime_function, tvm_ffi

_find_builtin = runtime_function("vm.find_builtin")


def get_global_func(name: str, allow_missing: bool = False) -> tvm_ffi.Function | None:
    """The function of that name: a builtin of the VM (`vm.builtin.*`), or a registered function."""
    builtin = _find_builtin(name)
    if builtin is not None:
        return builtin
    function = tvm_ffi.get_global_func(name, allow_missing=True)
    if function is None and not allow_missing:
        raise ValueError(
            f"there is no global function {name}; register it with relaxvm.register_global_func"
        )
    return function


def register_global_func(
    func_name: str | Callable, f: Callable | None = None, override: bool = False
):
    """Registers a Python function for programs to call by name; usable as a decorator, as in TVM."""
    if isinstance(func_name, str) and _find_builtin(func_name) is not None:
        raise ValueError(f"{func_name} is a builtin of the VM; choose another name")
    return tvm_ffi.register_global_func(func_name, f, override=override)


register_func = register_global_func


def remove_global_func(name: str) -> None:
    tvm_ffi.remove_global_func(name)
