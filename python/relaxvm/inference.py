# SPDX-License-Identifier: Apache-2.0
"""InferenceSession: runs an ONNX model, in place of `onnxruntime.InferenceSession`.

The model is compiled once, when the session is made (or loaded from the compile cache); `run` does
not compile, whatever the shapes, but for the first value of an overridable initializer.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ._session.arguments import Checker, DimensionsDiffer
from ._session.arrays import is_lendable, is_plain, to_dictionaries, to_numpy
from ._session.binding import IOBinding
from ._session.build import Compiled, compile_apart, compile_model, compile_overriding
from ._session.options import SessionOptions, folder_of_weights, warn_of_ignored
from ._session.ort_values import OrtValue, array_of
from ._session.signature import ModelMetadata, NodeArg
from ._session.texts import Writing
from .inference_errors import (
    Fail,
    InferenceError,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    NotImplemented,
)
from .runtime.tensor import borrow

__all__ = [
    "Fail",
    "IOBinding",
    "InferenceError",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelMetadata",
    "NoSuchFile",
    "NodeArg",
    "NotImplemented",
    "OrtValue",
    "SessionOptions",
]

logger = logging.getLogger("relaxvm.inference")

_PROVIDER = "CPUExecutionProvider"


class InferenceSession:
    """A compiled model that is ready to run; any number of threads may run it at once.

    `sess_options` is a `SessionOptions`, onnxruntime's or anything with its attributes: the number of
    threads is taken from it, and the folder of external weights for a model that is given as bytes.
    `num_threads` says the former directly.  `providers` are accepted and the model runs on the CPU.
    `cache_dir` is where compiled models are kept (default: the environment variable
    RELAXVM_CACHE_DIR, else ~/.cache/relaxvm; "" for nowhere).
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        *,
        num_threads: int | None = None,
        target: Any = "llvm",
        cache_dir: str | os.PathLike | None = None,
        disabled_optimizers: Any = None,
        enable_fallback: int = 1,
        read_config_from_model: int = 0,
    ) -> None:
        _check_providers(providers, provider_options)
        self._options = SessionOptions() if sess_options is None else sess_options
        warn_of_ignored(self._options)
        threads, folder = _threads(num_threads, sess_options), folder_of_weights(sess_options)
        self._use(compile_model(path_or_bytes, target, cache_dir, threads, folder))

    def _use(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._overridable = {a.name for a in compiled.signature.overridable}
        # Sessions of the same model in other forms, made when a run needs them.
        self._overriding: dict[frozenset[str], InferenceSession] = {}
        self._apart: InferenceSession | None = None
        self._tried_apart: InferenceSession | None = None
        self._lock = threading.Lock()
        self._checker = Checker(self._compiled.signature)
        self._call = self._compiled.function
        self._names = [spec.name for spec in self._compiled.signature.inputs]
        outputs = self._compiled.signature.outputs
        self._plain = [is_plain(output.dtype) for output in outputs]
        self._writing = Writing(self._compiled.signature)
        self._keys = {i: output.keys for i, output in enumerate(outputs) if output.keys}

    # ---- about the model

    def get_inputs(self) -> list[NodeArg]:
        return list(self._compiled.signature.inputs)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._compiled.signature.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The initializers that are inputs, too: a run may give another value in place of the model's.

        None before IR version 4, which has all initializers among the inputs.  The first run that
        gives values compiles a program that takes them; the session without them stays as it is.
        """
        return list(self._compiled.signature.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        return self._compiled.signature.metadata

    def get_providers(self) -> list[str]:
        return [_PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {_PROVIDER: {}}

    def get_session_options(self) -> Any:
        return self._options

    @property
    def num_threads(self) -> int:
        """How many threads a run uses."""
        return self._compiled.num_threads

    @num_threads.setter
    def num_threads(self, count: int) -> None:
        self._compiled.set_num_threads(_threads(count, None))
        with self._lock:
            for session in (*self._overriding.values(), self._tried_apart):
                if session is not None:
                    session.num_threads = self.num_threads

    # ---- running

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """The outputs called `output_names` (None: all), as NumPy arrays that belong to the caller.

        A classifier's list of dictionaries (ZipMap) is one, from class to float, for each row.
        Inputs whose dimensions have one name in the model and different sizes here make the session
        compile it once more, with all of them apart; InvalidArgument when it cannot run then either.
        """
        if self._apart is not None:
            return self._apart.run(output_names, input_feed, run_options)
        if self._overridable and isinstance(input_feed, Mapping):
            given = self._overridable.intersection(input_feed)
            unset = {name for name in given if input_feed[name] is None}
            if unset:
                input_feed = {n: v for n, v in input_feed.items() if n not in unset}
            if given := given - unset:
                return self._taking(frozenset(given)).run(output_names, input_feed)
        wanted = self._checker.outputs(output_names)
        writing, feed = self._writing, input_feed
        if writing.has_inputs:
            feed, writing = writing.numbered(feed)
        # Arrays are lent as they are, and the model itself refuses what it does not take.
        try:
            result = self._call(*self._checker.arrays(feed))
        except MemoryError:
            raise
        except Exception as e:
            try:
                result = self._run_checked(feed, e)
            except DimensionsDiffer as differ:
                return self._run_apart(differ, output_names, input_feed, run_options)
        results = (result,) if self._checker.single else result.values
        plain = self._plain
        arrays = [to_numpy(results[i], plain[i]) for i in wanted]
        if writing.has_outputs:
            arrays = [writing.written(array, i) for i, array in zip(wanted, arrays)]
        if not self._keys:
            return arrays
        return [
            to_dictionaries(array, self._keys[i]) if i in self._keys else array
            for i, array in zip(wanted, arrays)
        ]

    def _taking(self, names: frozenset[str]) -> InferenceSession:
        """A session of the same model, whose inputs are also the initializers `names`."""
        found = self._overriding.get(names)
        if found is not None:
            return found
        with self._lock:
            if names not in self._overriding:
                session = copy.copy(self)
                session._use(compile_overriding(self._compiled, names))
                session._overridable = set()
                self._overriding[names] = session
            return self._overriding[names]

    def _run_apart(self, differ: DimensionsDiffer, *args: Any) -> list[Any]:
        """A run with dimensions of any size; when it succeeds, all runs are such from now on."""
        with self._lock:
            if self._tried_apart is None and (made := compile_apart(self._compiled)) is not None:
                self._tried_apart = copy.copy(self)
                self._tried_apart._use(made)
        if self._tried_apart is None:
            raise differ
        try:
            results = self._tried_apart.run(*args)
        except InferenceError as e:
            raise differ from e
        if self._apart is None:
            logger.warning("%s; the model is compiled with dimensions apart", differ)
            self._apart = self._tried_apart
        return results

    def _run_checked(self, feed: Mapping[str, Any], error: Exception) -> Any:
        """The results of a run that ended in `error`, when that came from arrays that are no dense tensors."""
        arrays = self._checker.inputs(feed)
        if all(array is feed[n] and is_lendable(array) for n, array in zip(self._names, arrays)):
            raise self._failure(error, arrays) from error
        self._checker.makes_dense |= not all(array.flags.c_contiguous for array in arrays)
        try:
            return self._call(*[borrow(array) for array in arrays])
        except MemoryError:
            raise
        except Exception as e:
            raise self._failure(e, arrays) from e

    def _failure(self, error: Exception, arrays: Sequence[Any]) -> Fail:
        given = [
            f"'{name}' {list(array.shape)}"
            for name, array in zip(self._names, arrays)
            if hasattr(array, "shape")
        ]
        return Fail(f"{error} (shapes given: {', '.join(given)})" if given else str(error))

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[OrtValue]:
        """As `run`, from OrtValues (this library's or onnxruntime's) to OrtValues."""
        if not isinstance(input_dict_ort_values, Mapping):
            raise InvalidArgument("the inputs must be a dict from names to OrtValues")
        feed = {name: array_of(value) for name, value in input_dict_ort_values.items()}
        return [OrtValue(value) for value in self.run(output_names, feed, run_options)]

    def io_binding(self) -> IOBinding:
        """Where inputs come from and outputs go to, for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Runs on what is bound: outputs are written to their memory, or get new memory."""
        if not isinstance(iobinding, IOBinding):
            raise InvalidArgument(
                f"an IOBinding of io_binding() is expected, not {type(iobinding).__name__}"
            )
        iobinding.run(self, run_options)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """Runs in a thread of its own, which then calls `callback(outputs, user_data, error)`.

        `error` is a text, "" when the run succeeded; `outputs` is empty when it did not.
        """
        self._checker.outputs(output_names)

        def work() -> None:
            results, error = [], ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except (InferenceError, MemoryError) as e:
                error = str(e) or type(e).__name__
            callback(results, user_data, error)

        threading.Thread(target=work, name="relaxvm-run-async").start()

    def enable_fallback(self) -> None:
        """Nothing to do: there is one provider."""

    def disable_fallback(self) -> None:
        """Nothing to do: there is one provider."""

    # ---- not supported

    def end_profiling(self) -> Any:
        raise _unsupported("end_profiling")

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Any = None
    ) -> None:
        _check_providers(providers, provider_options)


def _unsupported(name: str) -> NotImplemented:
    return NotImplemented(
        f"InferenceSession.{name} is not supported; run(output_names, input_feed) takes and gives NumPy arrays"
    )


def _threads(num_threads: int | None, options: Any) -> int:
    """The number of threads asked for; 0 is as many as the machine allows."""
    if num_threads is None:
        num_threads = getattr(options, "intra_op_num_threads", 0) or 0
    if isinstance(num_threads, bool) or not isinstance(num_threads, (int, np.integer)):
        raise InvalidArgument(f"num_threads must be an int, not {type(num_threads).__name__}")
    if num_threads < 0:
        raise InvalidArgument(f"num_threads must be 0 (all) or more, not {num_threads}")
    return int(num_threads)


def _check_providers(providers: Any, options: Any) -> None:
    if providers is None:
        if options is not None:
            raise InvalidArgument("provider_options needs providers")
        return
    if isinstance(providers, str):
        providers = [providers]
    if isinstance(providers, bytes) or not isinstance(providers, Sequence):
        raise InvalidArgument("providers must be a list of names, or of (name, options)")
    names = []
    for entry in providers:
        name = entry[0] if isinstance(entry, tuple) and len(entry) == 2 else entry
        if not isinstance(name, str):
            raise InvalidArgument(f"a provider is a name or (name, options), not {entry!r}")
        names.append(name)
    if options is not None and len(options) != len(names):
        raise InvalidArgument("provider_options must have one entry for each provider")
    if names and _PROVIDER not in names:
        logger.warning("none of the providers %s is supported; the model runs on the CPU", names)
