# SPDX-License-Identifier: Apache-2.0
"""BlockBuilder: what may be called where."""

from __future__ import annotations

import contextlib

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


def body_of(dataflow: bool) -> relax.SeqExpr:
    """A sequence whose blocks are a dataflow block, or none."""
    builder = relax.BlockBuilder()
    with builder.function("part", []):
        with builder.dataflow() if dataflow else contextlib.nullcontext():
            a = builder.emit(relax.const(2.0), "a")
            b = (builder.emit_output if dataflow else builder.emit)(relax.op.exp(a), "b")
        builder.emit_func_output(b)
    return builder.get()["part"].body


@pytest.mark.parametrize("bind", ["emit", "emit_output"])
def test_a_block_that_is_no_dataflow_stands_between_two_that_are(bind: str) -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            builder.emit(relax.const(3.0), "d")
            value = getattr(builder, bind)(body_of(dataflow=False), "e")
            out = builder.emit_output(value, "f")
        builder.emit_func_output(out)
    mod = builder.get()
    assert relax.analysis.well_formed(mod)
    names = [
        (isinstance(block, relax.DataflowBlock), [b.var.name_hint for b in block.bindings])
        for block in mod["main"].body.blocks
    ]
    assert names == [(True, ["d"]), (False, ["a", "b"]), (True, ["e", "f"])]


def test_a_dataflow_block_goes_into_the_open_one() -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            builder.emit(relax.const(3.0), "d")
            value = builder.emit(body_of(dataflow=True), "e")
            out = builder.emit_output(value, "f")
        builder.emit_func_output(out)
    (block,) = builder.get()["main"].body.blocks
    assert [b.var.name_hint for b in block.bindings] == ["d", "a", "b", "e", "f"]


def test_an_error_inside_of_such_a_block_leaves_the_builder_usable() -> None:
    builder = relax.BlockBuilder()
    wrong = relax.VarBinding(
        relax.Var("w"), relax.op.add(relax.const([1.0, 2.0]), relax.const([1.0] * 3))
    )
    with builder.function("main", []):
        with pytest.raises((TypeError, ValueError)), builder.dataflow():
            builder.emit(relax.SeqExpr([relax.BindingBlock([wrong])], wrong.var))
        builder.emit_func_output(builder.emit(relax.const(1.0)))
    assert relax.analysis.well_formed(builder.get())


def test_an_ordinary_block_inside_may_not_use_what_the_dataflow_block_hides() -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            hidden = builder.emit(relax.const(3.0), "hidden")
            binding = relax.VarBinding(relax.Var("w"), relax.op.exp(hidden))
            value = builder.emit(relax.SeqExpr([relax.BindingBlock([binding])], binding.var))
            out = builder.emit_output(value)
        with pytest.raises(RuntimeError, match="hidden of a dataflow block is used"):
            builder.emit_func_output(out)
