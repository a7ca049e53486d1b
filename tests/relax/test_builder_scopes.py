# SPDX-License-Identifier: Apache-2.0
"""BlockBuilder: what may be called where."""

from __future__ import annotations

import pytest

from relaxvm import relax


def test_an_output_needs_a_dataflow_block() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    with pytest.raises(RuntimeError, match=r"emit_output outside of a dataflow block"):
        with builder.function("main", [x]):
            builder.emit_output(relax.op.exp(x))


def test_a_binding_needs_an_open_block() -> None:
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    with pytest.raises(RuntimeError, match=r"no block is open.*bb\.function"):
        relax.BlockBuilder().emit(relax.op.exp(x))
