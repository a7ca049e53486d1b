# SPDX-License-Identifier: Apache-2.0
"""From the bytes of a model to a function that runs, through the compile cache."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import logging
import os
import platform
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from .. import _ffi
from ..compile_cache import CompileCache, default_folder, key_of, state_of
from ..inference_errors import (
    Fail,
    InferenceError,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    NotImplemented,
)
from .arrays import Values
from .signature import Signature

logger = logging.getLogger("relaxvm.inference")
_MOST_BYTES_KEPT = 4 << 20


@dataclasses.dataclass
class Compiled:
    """A model that is loaded into a VM."""

    signature: Signature
    vm: Any
    function: Callable[..., Any]
    num_threads: int
    origin: Origin | None = None  # of a model that may have to be compiled in another form

    def set_num_threads(self, count: int) -> None:
        self.num_threads = apply_threads(self.vm, count)


@dataclasses.dataclass
class Source:
    """A model that is not read yet: a large file is read in full only to be compiled."""

    path: str
    data: bytes | None  # in place of a file
    folder: str | None
    place: str  # what to call it in a message
    stamp: tuple[int, ...] = ()  # of a file: tells whether somebody wrote to it since
    as_inputs: tuple[str, ...] = ()  # initializers whose values come with each run
    is_apart: bool = False  # dimensions of inputs are of any size, also those of one name

    def digest(self, cache: CompileCache) -> str:
        if self.data is None:
            return cache.digest_of(self.path, _KIND_OF_DIGEST, _digest)
        return hashlib.sha256(self.data).hexdigest()


@dataclasses.dataclass
class Origin:
    """What a model was compiled from, and how."""

    model: Source
    target: Any
    cache: CompileCache | None
    external: dict[str, str]  # digests of the files with its weights


def compile_model(
    source: Any, target: Any, cache_dir: Any, num_threads: int, folder: str | None = None
) -> Compiled:
    """Loads `source` (a path or the bytes of an ONNX file) from the cache, or compiles it.

    `folder` has the external weights of bytes; those of a file lie beside it.
    """
    model = _source(source, folder)
    cache = _open_cache(cache_dir)
    return _compiled(Origin(model, target, cache, {}), num_threads)


def compile_overriding(compiled: Compiled, names: Iterable[str]) -> Compiled:
    """The same model as a program that takes the initializers `names` as inputs."""
    origin = compiled.origin
    assert origin is not None
    as_inputs = tuple(sorted(names))
    made = _in_other_form(origin, compiled.num_threads, as_inputs=as_inputs)
    if made is None:
        raise Fail(
            f"{origin.model.place} or its weights were written to since the session was made; to"
            f" override the initializers {list(as_inputs)}, make a new session"
        )
    return made


def compile_apart(compiled: Compiled) -> Compiled | None:
    """The same model as a program in which dimensions of one name may be of different sizes.

    None where the model is not at hand any more.
    """
    origin = compiled.origin
    return None if origin is None else _in_other_form(origin, compiled.num_threads, is_apart=True)


def _in_other_form(origin: Origin, num_threads: int, **form: Any) -> Compiled | None:
    """The model of `origin`, unless its files are others by now."""
    model = dataclasses.replace(origin.model, **form)
    with _translated():
        if model.data is None and _stamp(model.path) != model.stamp:
            return None
    made = _compiled(dataclasses.replace(origin, model=model), num_threads)
    is_same = made.origin is not None and made.origin.external == origin.external
    return made if is_same else None


def _compiled(origin: Origin, num_threads: int) -> Compiled:
    model, target, cache = origin.model, origin.target, origin.cache
    with _translated():
        if cache is None:
            executable, signature, external = _compile(model, target)
        else:
            executable, signature, external = _through_cache(cache, model, target)
        loaded = _load(executable, signature, num_threads)
    # The bytes of a large model are kept only where it has something to override.
    is_small = model.data is None or len(model.data) <= _MOST_BYTES_KEPT
    if is_small or signature.overridable or model.as_inputs:
        loaded.origin = dataclasses.replace(origin, external=external)
    _release_compiler()
    return loaded


def _stamp(path: str) -> tuple[int, ...]:
    return tuple(state_of(path)[:-1])


def _release_compiler() -> None:
    """Gives back the memory that a compilation in this process left behind; nothing without one."""
    if _ffi.compiler_is_loaded():
        from .. import _compiler

        gc.collect()
        _compiler.func("pipeline.ReleaseAfterWork")()


def _source(source: Any, folder: str | None) -> Source:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Source("", bytes(source), folder, "the model")
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"a model is a path or bytes, not {type(source).__name__}")
    path = os.fspath(source)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise NoSuchFile(f"'{path}' is not a file; give the path of an ONNX file")
        with open(path, "rb") as file:
            file.read(1)
        stamp = _stamp(path)
    except FileNotFoundError as e:
        if isinstance(e, NoSuchFile):
            raise
        raise NoSuchFile(f"there is no file '{path}'") from e
    except (OSError, ValueError) as e:
        raise Fail(f"'{path}' cannot be read: {e}") from e
    return Source(path, None, os.path.dirname(os.path.abspath(path)), f"'{path}'", stamp)


def _open_cache(cache_dir: Any) -> CompileCache | None:
    folder = default_folder() if cache_dir is None else (Path(cache_dir) if cache_dir else None)
    if folder is None or os.environ.get("RELAXVM_DUMP"):  # a dump needs a compile
        return None
    cache = CompileCache(folder)
    return cache if cache.usable() else None


# The executable, its signature, and the digests of the files beside the model with its weights.
_Made = tuple[Any, Signature, dict[str, str]]


def _through_cache(cache: CompileCache, model: Source, target: Any) -> _Made:
    digest = model.digest(cache)
    form = "dimensions apart" if model.is_apart else "as it is"
    parts = ("inference", build_id(), str(target), machine(), _settings(), digest, form)
    key = key_of(*parts, *model.as_inputs)
    cached = _cached(cache, key, model.folder)
    if cached is not None:
        return cached
    with cache.locked(key):
        cached = _cached(cache, key, model.folder)  # another process may have made it meanwhile
        if cached is not None:
            return cached
        executable, signature, external = _compile(model, target)
        info = {"signature": signature.to_json(), "external": external}
        # A file that somebody wrote to meanwhile is not what the key says.
        if model.digest(cache) != digest or not cache.put(key, executable.export_library, info):
            return executable, signature, external
        # What the compiler used can be given back: the file has all that the model needs.
        del executable
        cached = _cached(cache, key, model.folder)
        return cached if cached is not None else _compile(model, target)


def _cached(cache: CompileCache, key: str, folder: str | None) -> _Made | None:
    from .. import runtime

    found = cache.find(key)
    if found is None:
        return None
    library, info = found
    try:
        for name, digest in info["external"].items():
            if folder is None:
                return None
            path = os.path.join(folder, name)
            if cache.digest_of(path, _KIND_OF_DIGEST, _digest) != digest:
                return None
        signature = Signature.from_json(info["signature"])
        return runtime.load_module(str(library)), signature, info["external"]
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as e:
        logger.warning("cache entry %s is not used: %s", key, e)
        cache.drop(key)
        return None


def _compile(source: Source, target: Any) -> _Made:
    from .._compile import compile_last
    from ..relax.frontend.onnx import from_onnx
    from ..relax.frontend.onnx.large_tensors import ModelFile
    from ..relax.frontend.onnx.load import (
        drop_values,
        external_locations,
        parse,
        set_dimensions_apart,
    )

    model = parse(ModelFile(source.path, source.data), source.folder, source.place)
    names = sorted(external_locations(model.proto))
    if source.as_inputs:
        drop_values(model.proto.graph, set(source.as_inputs))
    if source.is_apart:
        set_dimensions_apart(model.proto.graph)
    signature = Signature.of_proto(model.proto)
    module = from_onnx(model)
    signature = signature.with_types(module)
    del model  # the weights are in the module now
    executable = compile_last(module, target)
    external = {name: _digest(os.path.join(source.folder or "", name)) for name in names}
    return executable, signature, external


# A large file is hashed in pieces by several threads; its digest is that of theirs.
_PIECE_BYTES = 16 << 20
_KIND_OF_DIGEST = f"sha256 of pieces of {_PIECE_BYTES} bytes"


def _digest(path: str) -> str:
    starts = range(0, max(os.path.getsize(path), 1), _PIECE_BYTES)
    if len(starts) == 1:
        return key_of(_digest_of_piece(path, 0))
    from concurrent.futures import ThreadPoolExecutor

    cores = int(_ffi.runtime_function("runtime.num_usable_cpus")())
    with ThreadPoolExecutor(min(cores, len(starts))) as pool:
        return key_of(*pool.map(lambda start: _digest_of_piece(path, start), starts))


def _digest_of_piece(path: str, start: int) -> bytes:
    digest = hashlib.sha256()
    block = memoryview(bytearray(1 << 18))
    left = _PIECE_BYTES
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        while left > 0 and (count := file.readinto(block[:left])):
            digest.update(block[:count])
            left -= count
    return digest.digest()


def build_id() -> str:
    """Changes whenever a file of this package does."""
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    paths = [str(library) for library in _libraries()]
    for folder, _, names in os.walk(root):
        paths += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    entries = []
    for path in sorted(paths):
        info = os.stat(path)
        entries.append(f"{os.path.basename(path)} {info.st_size} {info.st_mtime_ns}")
    return key_of(*entries)


def _libraries() -> list[Path]:
    from .._ffi import library_path

    return [library_path("relaxvm"), library_path("relaxvm_runtime")]


def machine() -> str:
    """The processor, what it can do and has granted: code for "llvm" is made for all of it."""
    granted = _ffi.runtime_function("runtime.describe_machine")()
    cores = _ffi.runtime_function("runtime.num_usable_cpus")()
    lines = {platform.machine(), f"{granted} cores {cores}"}
    try:
        with open("/proc/cpuinfo") as file:
            lines |= {line for line in file if line.startswith(("flags", "Features", "model name"))}
    except OSError:
        lines.add(platform.processor())
    return "\n".join(sorted(lines))


# Of the environment, all that may change what is compiled.
_NOT_COMPILATION = (
    "RELAXVM_CACHE_DIR",
    "RELAXVM_NUM_THREADS",
    "RELAXVM_TOKEN",
    "RELAXVM_TVM_PYTHON",
    "RELAXVM_ZOO",
)


def _settings() -> str:
    names = sorted(n for n in os.environ if n.startswith("RELAXVM_") and n not in _NOT_COMPILATION)
    return "\n".join(f"{n}={os.environ[n]}" for n in names)


def _load(executable: Any, signature: Signature, num_threads: int) -> Compiled:
    from ..runtime import VirtualMachine, cpu

    vm = VirtualMachine(executable, cpu())
    threads = apply_threads(vm, num_threads)
    function = vm.module["own_results"]("main", len(signature.outputs), Values)
    return Compiled(signature, vm, function, threads)


def apply_threads(vm: Any, count: int) -> int:
    """Sets how many threads a call uses; 0 is all that the machine allows.  Gives the number."""
    from .._ffi import runtime_function

    count = count or int(runtime_function("runtime.default_num_threads")())
    vm.set_num_threads(count)
    return count


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Errors of the front end and the compiler, as those of a session."""
    try:
        yield
    except InferenceError:
        raise
    except Exception as e:
        raise _session_error(e) from e


def _session_error(e: Exception) -> InferenceError:
    from ..relax.frontend.onnx import DamagedModel, InvalidModel, UnsupportedModel

    if isinstance(e, DamagedModel):
        return InvalidProtobuf(str(e))
    if isinstance(e, UnsupportedModel):
        return NotImplemented(str(e))
    return InvalidGraph(str(e)) if isinstance(e, InvalidModel) else Fail(str(e))
