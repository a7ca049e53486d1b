# SPDX-License-Identifier: Apache-2.0
"""What the runtime library asks Python to do: it never prints itself."""

from __future__ import annotations

from relaxvm._ffi import tvm_ffi


def _show(value) -> str:
    return str(value.numpy()) if hasattr(value, "numpy") else str(value)


def _format(template, *values) -> str:
    """`template` formatted as by str.format; values that it has no place for follow it, as in TVM's R.print."""
    if isinstance(template, str) and "{" in template:
        return template.format(*(_show(value) for value in values))
    return " ".join(_show(value) for value in (template, *values))


def _print(text: str) -> None:
    print(text)  # R.print is a request to print


for _name, _hook in {"format": _format, "print": _print}.items():
    tvm_ffi.register_global_func(f"relaxvm.hook.{_name}", _hook, override=True)
