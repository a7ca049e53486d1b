# SPDX-License-Identifier: Apache-2.0
"""What a command is given: an ONNX file, a compiled library, or a script."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

_LIBRARIES = (".so", ".dylib")


def is_library(path: Path) -> bool:
    check_exists(path)
    if path.suffix in _LIBRARIES:
        return True
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def check_exists(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; give the file of a model", str(path))
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "there is no such file", str(path))
    if not path.is_file():
        raise OSError(errno.EINVAL, "is no regular file", str(path))


def import_model(path: Path, shapes: dict[str, list]) -> tuple[Any, Any]:
    """The module of an ONNX file or a script, and its signature."""
    from .._session.signature import signature_of_module

    check_exists(path)
    if path.suffix == ".py":
        if shapes:
            raise ValueError(f"'{path}': --shape works with ONNX models only")
        from ..script import from_source

        module = from_source(path.read_text())
        return module, signature_of_module(module)
    from .._session.signature import Signature
    from ..relax.frontend.onnx import from_onnx
    from ..relax.frontend.onnx.load import read_model

    model = read_model(str(path))
    names = Signature.of_proto(model.proto)
    if names.has_texts:
        raise ValueError(
            f"'{path}': has texts among its inputs or outputs; relaxvm.inference.InferenceSession runs it"
        )
    module = from_onnx(model, shape_dict=shapes or None)
    return module, signature_of_module(
        module, [a.name for a in names.inputs], [a.name for a in names.outputs]
    )


def compile_model(report: Any, module: Any, signature: Any, target: str) -> Any:
    """The executable of a module, with a progress bar while it is made."""
    from .. import compile as compile_module
    from .._session.signature import with_signature
    from .report import progress

    with progress(report, "compiling") as advance:
        return compile_module(with_signature(module, signature), target=target, progress=advance)


class Source:
    """A model that is ready to run, or to be compiled."""

    def __init__(self, module: Any, signature: Any, library: Any = None) -> None:
        self.module, self.signature, self.library = module, signature, library

    def executable(self, report: Any, target: str) -> Any:
        if self.library is not None:
            return self.library
        return compile_model(report, self.module, self.signature, target)


def open_model(path: Path) -> Source:
    """What is in a file, its inputs and outputs known."""
    if not is_library(path):
        return Source(*import_model(path, {}))
    from .._session.signature import read_signature
    from ..runtime import VirtualMachine, cpu, load

    library = load(path.absolute())
    signature = read_signature(VirtualMachine(library, cpu()))
    if signature is None:
        raise ValueError(
            f"'{path}': does not say what its inputs are; it was not made by `relaxvm compile`"
        )
    return Source(None, signature, library)
