# SPDX-License-Identifier: Apache-2.0
"""DataflowBlockRewrite: edits of one dataflow block."""

from __future__ import annotations

from typing import Any

import pytest

from relaxvm import relax
from relaxvm.ir import IRModule
from relaxvm.relax import DataflowBlockRewrite
from relaxvm.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")) -> R.Tensor:
    with R.dataflow():
        a = R.add(x, y)
        b = R.multiply(a, y)
        c = R.subtract(a, x)
        d = R.exp(b)
        R.output(d)
    return d


BLOCK = main.body.blocks[0]
VAR = {b.var.name: b.var for b in BLOCK.bindings}


def rewrite() -> DataflowBlockRewrite:
    return DataflowBlockRewrite(BLOCK, main)


def names(func: Any) -> list[str]:
    return [b.var.name for b in func.body.blocks[0].bindings]


def value(func: Any, name: str) -> Any:
    return next(b.value for b in func.body.blocks[0].bindings if b.var.name == name)


def test_other_variable_is_read_everywhere() -> None:
    edit = rewrite()
    edit.replace_all_uses(VAR["b"], VAR["c"])
    func = edit.mutated_root_fn()
    assert value(func, "d").args[0].same_as(VAR["c"])
    assert func.body.blocks[0].same_as(edit.mutated_dfb())
    assert value(main, "d").args[0].same_as(VAR["b"])


def test_output_is_replaced_where_it_is_returned() -> None:
    edit = rewrite()
    edit.replace_all_uses(VAR["d"], VAR["c"])
    assert edit.mutated_root_fn().body.body.same_as(VAR["c"])


def test_unused_binding_goes() -> None:
    edit = rewrite()
    edit.remove_unused(VAR["c"])
    assert names(edit.mutated_root_fn()) == ["a", "b", "d"]


@pytest.mark.parametrize("name", ["a", "d"])
def test_binding_that_is_read_stays(name: str) -> None:
    with pytest.raises(RuntimeError, match="is read"):
        rewrite().remove_unused(VAR[name])


def test_variable_of_another_block_is_no_binding_to_remove() -> None:
    other = relax.Var("q", R.Tensor((2, 3), "float32"))
    with pytest.raises(RuntimeError, match="does not bind"):
        rewrite().remove_unused(other)
    rewrite().remove_unused(other, allow_undef=True)


def test_all_unused_bindings_go() -> None:
    edit = rewrite()
    edit.replace_all_uses(VAR["d"], VAR["c"])
    edit.remove_all_unused()
    assert names(edit.mutated_root_fn()) == ["a", "c"]


def test_binding_is_added_behind_what_it_reads() -> None:
    edit = rewrite()
    edit.add(relax.op.exp(VAR["b"]), "new", is_dfvar=True)
    assert names(edit.mutated_root_fn()) == ["a", "b", "new", "c", "d"]
    with pytest.raises(RuntimeError, match="bound already"):
        edit.add_binding(relax.VarBinding(VAR["a"], main.params[0]))


def test_names_of_added_bindings_differ() -> None:
    edit = rewrite()
    edit.add(relax.op.exp(VAR["a"]))
    edit.add(relax.op.exp(VAR["a"]))
    assert len(set(names(edit.mutated_root_fn()))) == 6


def test_module_gets_the_edited_function() -> None:
    mod = IRModule({"main": main})
    edit = DataflowBlockRewrite(mod["main"].body.blocks[0], mod["main"])
    edit.remove_unused(VAR["c"])
    assert names(edit.mutate_irmodule(mod)["main"]) == ["a", "b", "d"]
    assert names(mod["main"]) == ["a", "b", "c", "d"]
