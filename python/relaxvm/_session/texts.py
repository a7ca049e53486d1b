# SPDX-License-Identifier: Apache-2.0
"""Texts of a session: a program takes and gives their places in a list (relax/frontend/onnx/texts.py)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..inference_errors import InvalidArgument
from .signature import Signature


class Writing:
    """The texts that a program knows, and those that a call gives it, by place."""

    def __init__(self, signature: Signature) -> None:
        self._inputs = [a.name for a in signature.inputs if a.is_text]
        self._outputs = {i for i, a in enumerate(signature.outputs) if a.is_text}
        self.has_inputs, self.has_outputs = bool(self._inputs), bool(self._outputs)
        self._items = np.asarray(signature.texts, object)
        self._places = {text: place for place, text in enumerate(signature.texts)}

    def numbered(self, feed: Mapping[str, Any]) -> tuple[Mapping[str, Any], Writing]:
        """The feed with places in place of texts, and what writes them for this call."""
        if not isinstance(feed, Mapping):
            return feed, self
        call = copy.copy(self)
        call._places = dict(self._places)
        given = {name: call._number(name, feed[name]) for name in self._inputs if name in feed}
        if len(call._places) > len(self._places):
            call._items = np.asarray(list(call._places), object)
        return {**feed, **given}, call

    def _number(self, name: str, value: Any) -> np.ndarray:
        array = np.asarray(value, object)
        places = np.empty(array.size, np.int64)
        for i, text in enumerate(array.reshape(-1)):
            if isinstance(text, bytes):
                text = text.decode("utf-8", "replace")
            if not isinstance(text, str):
                raise InvalidArgument(
                    f"input '{name}' must have texts as elements, got {type(text).__name__}"
                )
            places[i] = self._places.setdefault(str(text), len(self._places))
        return places.reshape(array.shape)

    def written(self, array: np.ndarray, output: int) -> np.ndarray:
        """The texts at these places, when this output is one of texts."""
        return self._items[array] if output in self._outputs else array
