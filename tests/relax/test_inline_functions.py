# SPDX-License-Identifier: Apache-2.0
"""Function.inline_functions: bodies in place of calls."""

from __future__ import annotations

import pytest

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Mod:
    @R.function(private=True)
    def main(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        with R.dataflow():
            b = R.exp(a)
            c = Mod.plain(b)
            d = Mod.block(c)
            e = R.add(c, d)
            R.output(e)
        return e

    @R.function(private=True)
    def plain(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        y = R.sin(x)
        return y

    @R.function(private=True)
    def block(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        with R.dataflow():
            y = R.cos(x)
            z = Mod.plain(y)
            R.output(z)
        return z

    @R.function(private=True)
    def endless(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = Mod.endless(x)
        return y

    @R.function(private=True)
    def calls(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2,), "float32"):
        if c:
            y = R.exp(x)
            r = Mod.endless(y)
        else:
            r = Mod.plain(x)
        return r


def text(func: relaxvm.relax.Function) -> str:
    assert relaxvm.relax.analysis.well_formed(relaxvm.IRModule({"main": func}))
    return func.script()


def test_a_plain_body_splits_the_block_around_it():
    found = text(Mod["main"].inline_functions({"plain": Mod["plain"], "block": Mod["block"]}))
    assert "plain" not in found and "block" not in found
    assert found.count("R.sin") == 2 and found.count("R.cos") == 1
    assert found.count("with R.dataflow():") >= 2


def test_what_is_not_named_stays():
    block = Mod.get_global_var("block")
    found = text(Mod["main"].inline_functions({block: Mod["block"]}))
    assert found.count("plain") == 2 and "block" not in found


def test_branches_are_reached():
    found = text(Mod["calls"].inline_functions({"plain": Mod["plain"]}))
    assert "R.sin" in found and "endless" in found


def test_recursion_is_an_error():
    with pytest.raises(ValueError, match="function endless calls itself, directly or not"):
        Mod["calls"].inline_functions({"endless": Mod["endless"]})


def test_a_name_given_twice_is_an_error():
    plain = Mod.get_global_var("plain")
    with pytest.raises(ValueError, match="plain is given twice"):
        Mod["main"].inline_functions({plain: Mod["plain"], "plain": Mod["plain"]})


def test_outputs_of_a_body_are_none_within_the_callers_block():
    @I.ir_module
    class Given:
        @R.function(private=True)
        def main(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                b = Given.block(a)
                c = R.cos(b)
                R.output(c)
            return c

        @R.function(private=True)
        def block(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                y = R.sin(x)
                R.output(y)
            return y

    @R.function(private=True)
    def expected(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        with R.dataflow():
            b = R.sin(a)
            c = R.cos(b)
            R.output(c)
        return c

    inlined = Given["main"].inline_functions({"block": Given["block"]})
    relaxvm.ir.assert_structural_equal(inlined, expected)
