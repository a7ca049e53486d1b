# SPDX-License-Identifier: Apache-2.0
"""Texts in ONNX models: a program computes with their places in a list, as int64.

Moving and comparing texts needs no more.  Whoever runs the program writes places as texts again
(`InferenceSession` does), and gives texts of its own that are not in the list places behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from .errors import InvalidModel, UnsupportedModel

_STRING = onnx.TensorProto.STRING
# Attributes that hold texts which are data.
_ATTRIBUTES = frozenset(
    "cats_strings classlabels_strings default_string keys_strings value_string value_strings"
    " values_strings".split()
)
_UNUSED = "_Unused"  # what LabelEncoder gives for an unknown key when the node does not say


class Texts:
    """The texts of a model, each at its place."""

    def __init__(self, items: list[str]) -> None:
        self.items = items
        self._places = {text: place for place, text in enumerate(items)}

    def place(self, text: str) -> int:
        try:
            return self._places[text]
        except KeyError:
            raise UnsupportedModel(f"the text '{text}' comes from an unknown attribute") from None

    def places(self, texts: Any) -> np.ndarray:
        texts = np.asarray(texts, object)
        flat = [self.place(t) for t in texts.reshape(-1)]
        return np.asarray(flat, np.int64).reshape(texts.shape)


def texts_of(proto: onnx.ModelProto) -> list[str]:
    """All texts of a model that are data, in order."""
    found: set[str] = set()
    for nodes in (proto.graph.node, *(f.node for f in proto.functions)):
        _collect(nodes, found)
    _collect_tensors(proto.graph.initializer, found)
    return sorted(found)


def _collect(nodes: Any, found: set[str]) -> None:
    for node in nodes:
        if node.op_type == "LabelEncoder":
            found.add(_UNUSED)
        for a in node.attribute:
            if a.name in _ATTRIBUTES:
                found.update(_text(s) for s in (*a.strings, a.s))
            _collect_tensors([a.t, *a.tensors], found)
            for graph in (a.g, *a.graphs):
                _collect_tensors(graph.initializer, found)
                _collect(graph.node, found)


def _collect_tensors(tensors: Any, found: set[str]) -> None:
    for tensor in tensors:
        if tensor.data_type == _STRING:
            found.update(map(_text, tensor.string_data))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def read_texts(tensor: onnx.TensorProto) -> np.ndarray:
    """The elements of a tensor of texts; ValueError when there are too few or too many."""
    return np.asarray(list(map(_text, tensor.string_data)), object).reshape(tuple(tensor.dims))


# Which inputs must be texts, of operators whose outputs are their elements; None: all.
_MOVES: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(
        "ArrayFeatureExtractor Compress Expand Flatten Gather GatherElements GatherND Identity"
        " Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split(),
        (0,),
    ),
    "Concat": None,
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
    "Where": (1, 2),
}
# The same, of operators that give something else.
_READS: dict[str, tuple[int, ...] | None] = {
    "Equal": (0, 1),
    "LabelEncoder": (0,),
    "OneHotEncoder": (0,),
    "Shape": (0,),
    "Size": (0,),
}


def check_node(textual: set[str], node: Any) -> None:
    """Before a node is imported: can it take texts?  Says which of its outputs are some."""
    if any(_graphs_texts(textual, node)):
        raise UnsupportedModel("texts that leave a subgraph are not supported")
    given = [name in textual for name in node.input]
    if not any(given):
        return
    moves = node.op_type in _MOVES
    if not moves and node.op_type not in _READS:
        raise UnsupportedModel("texts as its input are not supported")
    which = (_MOVES if moves else _READS)[node.op_type]
    for i, (is_text, name) in enumerate(zip(given, node.input, strict=True)):
        if name and is_text != (which is None or i in which):
            raise InvalidModel(f"input {i} is {'a text' if is_text else 'no text'}")
    if moves:
        textual.update(filter(None, node.output))


def _graphs_texts(textual: set[str], node: Any) -> Iterator[bool]:
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield any(o.name in textual or _is_text(o) for o in graph.output)


def _is_text(info: Any) -> bool:
    return info.type.tensor_type.elem_type == _STRING
