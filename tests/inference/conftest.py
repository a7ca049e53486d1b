# SPDX-License-Identifier: Apache-2.0
"""Small models for sessions, in ONNX's notation."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def model_bytes():
    def build(text, initializers=None, opset=17, **fields):
        graph = parser.parse_graph(text)
        for name, array in (initializers or {}).items():
            graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **fields
        )
        return model.SerializeToString()

    return build


@pytest.fixture
def session(model_bytes):
    from relaxvm.inference import InferenceSession

    return lambda text, **kwargs: InferenceSession(model_bytes(text, **kwargs))
