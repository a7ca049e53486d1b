# SPDX-License-Identifier: Apache-2.0
"""Functions of other languages in a model: from C++ source, from an object file, or linked later.

A function `name` is exported as tvm-ffi does it (TVM_FFI_DLL_EXPORT_TYPED_FUNC, which makes `__tvm_ffi_<name>`), takes
DLPack tensors, and fills the results that come after its arguments."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tvm_ffi

from . import op


class ExternModule:
    """Names of functions, each with a Python function that gives the type of its result from its arguments.

    `module["name"](*args)` records a call of it.  This class has no code of its own: the functions are found when the
    model runs, among what is registered or imported then.
    """

    def __init__(self, symbols: dict[str, Callable[..., Any]]) -> None:
        self._symbols = dict(symbols)

    def __getitem__(self, func_name: str) -> Callable[..., Any]:
        from .exporter import add_extern

        if func_name not in self._symbols:
            raise KeyError(f"{func_name} is none of the functions {', '.join(self._symbols)}")
        result_type = self._symbols[func_name]

        def call(*args: Any) -> Any:
            add_extern(self)
            return op.extern(func_name, list(args), out=result_type(*args))

        call.__name__ = func_name
        return call

    def load(self) -> tvm_ffi.Module | None:
        """The code, to be imported by an executable; None when there is none."""
        return None

    def _load_object(self, path: str | os.PathLike) -> tvm_ffi.Module:
        from relaxvm.runtime.module import load_static_library

        return load_static_library(path, list(self._symbols))


class ObjectModule(ExternModule):
    """Functions in an object file."""

    def __init__(self, symbols: dict[str, Callable[..., Any]], filepath: str | Path) -> None:
        super().__init__(symbols)
        self.filepath = Path(filepath)
        if not self.filepath.is_file():
            raise FileNotFoundError(f"{self.filepath}: there is no such object file")

    def load(self) -> tvm_ffi.Module:
        return self._load_object(self.filepath)


class SourceModule(ExternModule):
    """Functions in C++, compiled when the model is.

    `source_code` is a text or the path of a file, `compile_options` replaces those of get_compile_options, `compiler`
    is a command (None: $CXX, else c++, g++ or clang++).
    """

    def __init__(
        self,
        symbols: dict[str, Callable[..., Any]],
        source_code: str | Path,
        source_format: str,
        compile_options: list[str] | None = None,
        compiler: str | None = None,
        output_format: str = "obj",
    ) -> None:
        super().__init__(symbols)
        if source_format == "cu":
            raise NotImplementedError("CUDA source is not compiled here; give C++ source")
        if source_format != "cpp":
            raise ValueError(f'source_format is "cpp", not {source_format!r}')
        if output_format != "obj":
            raise NotImplementedError(
                f'output_format is "obj", not {output_format!r}: executables import object files'
            )
        self.source_code = _read_source(source_code)
        self.source_format, self.output_format = source_format, output_format
        self.compile_options = (
            self.get_compile_options(source_format) if compile_options is None else compile_options
        )
        self.compiler = compiler

    @staticmethod
    def get_includes(tvm_pkg: list[str] | None = None) -> list[Path]:
        """The folders of tvm-ffi's and DLPack's headers."""
        if tvm_pkg:
            raise NotImplementedError(f"there are no packages {', '.join(tvm_pkg)} to include here")
        folders = tvm_ffi.libinfo.include_paths()
        return [Path(folder) for folder in folders]

    @staticmethod
    def get_compile_options(source_format: str, tvm_pkg: list[str] | None = None) -> list[str]:
        """What a compiler of C++ needs to find the headers and to make code that can be loaded."""
        if source_format != "cpp":
            raise ValueError(f'source_format is "cpp", not {source_format!r}')
        includes = [
            word for path in SourceModule.get_includes(tvm_pkg) for word in ("-I", str(path))
        ]
        return ["-c", "-O3", "-std=c++17", "-fPIC", "-DNDEBUG", *includes]

    def compile(self, output_path: str | Path) -> None:
        """Compiles into an object file; RuntimeError with the compiler's words when that fails."""
        command = _compiler(self.compiler)
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "source.cc")
            source.write_text(self.source_code)
            words = [*command, *self.compile_options, str(source), "-o", str(output_path)]
            done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(words)} failed:\n{done.stderr}")

    def load(self) -> tvm_ffi.Module:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "source.o")
            self.compile(path)
            return self._load_object(path)


def _read_source(source: str | Path) -> str:
    if isinstance(source, Path):
        return source.read_text()
    if "\n" not in source and Path(source).is_file():
        return Path(source).read_text()
    return source


def _compiler(chosen: str | None) -> Sequence[str]:
    if chosen is not None:
        return shlex.split(chosen)
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise RuntimeError("no C++ compiler is installed; give one as SourceModule(compiler=...)")
