# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models, written as text in ONNX's own notation, and ways to run them."""

from __future__ import annotations

import itertools
import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser


def model_of(text: str, opset: int = 21, initializers: dict | None = None) -> onnx.ModelProto:
    """`g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }`"""
    graph = parser.parse_graph(text)
    for name, array in (initializers or {}).items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


@pytest.fixture
def make_model():
    return model_of


@pytest.fixture(params=["as written", "unknown"])
def sizes(request):
    """Of a model's text: as it is, or with a name of its own in the place of each number among the inputs' sizes."""
    if request.param == "as written":
        return lambda text: text

    def unknown(text: str) -> str:
        inputs, arrow, rest = text.partition("=>")
        names = itertools.count()
        name_numbers = lambda dims: re.sub(r"\d+", lambda _: f"size{next(names)}", dims[0])
        return re.sub(r"\[[^\]]*\]", name_numbers, inputs) + arrow + rest

    return unknown


@pytest.fixture
def import_text():
    """The script of `main` of an imported model."""
    from relaxvm.relax.frontend.onnx import from_onnx

    return lambda text, opset=21, initializers=None: from_onnx(model_of(text, opset, initializers))[
        "main"
    ].script()


@pytest.fixture
def run_model_once():
    """Compiles a model once; gives a function from inputs by name to outputs."""
    from relaxvm.inference import InferenceSession

    def build(model):
        session = InferenceSession(model.SerializeToString(), cache_dir="")
        return lambda feed: session.run(None, feed)

    return build
