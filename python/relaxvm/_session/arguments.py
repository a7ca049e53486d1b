# SPDX-License-Identifier: Apache-2.0
"""Checks what a caller feeds to a session, and says clearly what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..inference_errors import InvalidArgument
from .signature import NodeArg, Signature, numpy_dtype

_ndarray = np.ndarray
_ANONYMOUS = (None, "", "?")


class DimensionsDiffer(InvalidArgument):
    """Dimensions that the model calls by one name have different sizes."""


class Checker:
    """Knows a model's inputs and outputs."""

    def __init__(self, signature: Signature) -> None:
        # Texts come here as their places.
        self._inputs = [
            (a, numpy_dtype("int64" if a.is_text else a.dtype)) for a in signature.inputs
        ]
        self._names = [a.name for a in signature.inputs]
        self._initializers = set(signature.initializers)
        self._outputs = [a.name for a in signature.outputs]
        self._all_outputs = list(range(len(self._outputs)))
        self.single = len(self._outputs) == 1
        # Set by the first call with an array that is not dense: a caller that turns its images
        # does so in every call, and a refusal costs more than looking.
        self.makes_dense = False

    def outputs(self, names: Sequence[str] | None) -> list[int]:
        """Positions of the outputs asked for."""
        if not names:
            return self._all_outputs
        if isinstance(names, str):
            raise InvalidArgument(f"output_names must be a list of names, not the text '{names}'")
        unknown = [n for n in names if n not in self._outputs]
        if unknown:
            raise InvalidArgument(
                f"there is no output called {unknown[0]!r}; the outputs are {self._outputs}"
            )
        return [self._outputs.index(n) for n in names]

    def arrays(self, feed: Mapping[str, Any]) -> list[np.ndarray]:
        """The arrays in the order of the model's inputs; their types are not looked at.

        An error does not say what is wrong: `inputs` does.
        """
        arrays = list(map(feed.__getitem__, self._names))
        if len(feed) != len(arrays):
            raise KeyError
        for array in arrays:
            if type(array) is not _ndarray:
                raise TypeError
        if self.makes_dense:
            return [a if a.flags.c_contiguous else a.copy("C") for a in arrays]
        return arrays

    def inputs(self, feed: Mapping[str, Any]) -> list[np.ndarray]:
        """The arrays in the order of the model's inputs, of its element types and shapes."""
        if not isinstance(feed, Mapping):
            raise InvalidArgument(
                f"input_feed must be a dict from names to arrays, not {type(feed).__name__}"
            )
        missing = [n for n in self._names if feed.get(n) is None]
        if missing:
            raise InvalidArgument(
                f"no value for the inputs {missing}; the inputs are {self._names}"
            )
        if len(feed) != len(self._names):
            self._report_unknown(feed)
        dims: dict[str, tuple[int, str]] = {}
        return [_check(spec, dtype, feed[spec.name], dims) for spec, dtype in self._inputs]

    def _report_unknown(self, feed: Mapping[str, Any]) -> None:
        name = next(n for n in feed if n not in self._names)
        if name in self._initializers:
            raise InvalidArgument(
                f"the input '{name}' is an initializer; its value is compiled into the model"
            )
        raise InvalidArgument(f"there is no input called '{name}'; the inputs are {self._names}")


def _check(
    spec: NodeArg, dtype: np.dtype, value: Any, dims: dict[str, tuple[int, str]]
) -> np.ndarray:
    array = _as_array(spec, dtype, value)
    if not spec.shape and array.size == 1:
        array = array.reshape(())  # a scalar is often given as an array of one element
    if array.dtype != dtype:
        raise InvalidArgument(
            f"input '{spec.name}' must have element type {dtype.name}, got {array.dtype.name}"
        )
    if array.ndim != len(spec.shape):
        raise InvalidArgument(
            f"input '{spec.name}' must have {len(spec.shape)} dimensions {_text(spec.shape)},"
            f" got {array.ndim}: {list(array.shape)}"
        )
    for i, (have, want) in enumerate(zip(array.shape, spec.shape)):
        if isinstance(want, int):
            if have != want:
                raise InvalidArgument(
                    f"input '{spec.name}' must have shape {_text(spec.shape)}, got {list(array.shape)}:"
                    f" dimension {i} is {have}, not {want}"
                )
        elif want not in _ANONYMOUS:
            known, where = dims.setdefault(want, (have, f"dimension {i} of '{spec.name}'"))
            if known != have:
                raise DimensionsDiffer(
                    f"dimension {i} of input '{spec.name}' is {have}, but '{want}' is {known} already:"
                    f" {where}"
                )
    return array


def _as_array(spec: NodeArg, dtype: np.dtype, value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        if not value.dtype.isnative:
            return value.astype(value.dtype.newbyteorder("="))
        return np.asarray(value)  # no subclass: a memory map, a matrix
    if hasattr(value, "numpy"):  # an OrtValue or a tensor of ours
        return np.asarray(value.numpy())
    if isinstance(value, np.generic):
        return np.asarray(value)
    try:
        return np.asarray(value, dtype)
    except (TypeError, ValueError) as e:
        raise InvalidArgument(
            f"input '{spec.name}' must be a NumPy array, got {type(value).__name__}"
        ) from e


def _text(shape: list) -> str:
    return "[" + ", ".join("?" if d in _ANONYMOUS else str(d) for d in shape) + "]"
