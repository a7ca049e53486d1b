# SPDX-License-Identifier: Apache-2.0
"""Data types in script: parse(print(module)) is the module; forms that mean the same."""

from __future__ import annotations

import pathlib
import sys

import pytest

import relaxvm
from relaxvm import relax
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "vm"))
from data_type_programs import Lists, Parity, Shapes


@pytest.mark.parametrize("mod", [Lists, Parity, Shapes], ids=["lists", "parity", "shapes"])
def test_round_trip(mod):
    text = mod.script()
    again = from_source(text)
    relaxvm.ir.assert_structural_equal(mod, again)
    assert again.script() == text
    assert relax.analysis.well_formed(again)


def test_text_of_a_definition_and_a_match():
    text = Lists.script()
    assert (
        '    @R.data("A")\n'
        "    class List:\n"
        "        def Nil(): ...\n"
        '        def Cons(head: "A", tail: "List[A]"): ...\n'
    ) in text
    assert "        match xs:\n            case List.Nil():\n" in text
    assert "            case List.Cons(head, tail):\n" in text
    assert "            case _:\n" in text


def test_a_definition_of_its_own():
    @R.data("A")
    class Option:
        """Maybe a value."""

        def Some(value: A): ...
        def Empty(): ...

    @R.function
    def main(x: Option[R.Tensor((3,), "float32")]) -> R.Tensor((3,), "float32"):
        match x:
            case Option.Some(v):
                r = v
            case Option.Empty():
                r = R.zeros((3,), "float32")
        return r

    assert isinstance(Option, relax.AdtDef)
    assert main.params[0].ty == Option[R.Tensor((3,), "float32")]
    mod = relaxvm.IRModule({"main": main}, global_infos={"data_types": [Option]})
    assert relax.analysis.well_formed(mod)
    relaxvm.ir.assert_structural_equal(from_source(mod.script()), mod)


def parse(body: str) -> relaxvm.IRModule:
    return from_source(
        f"""
@I.ir_module
class M:
    @R.data("A")
    class List:
        def Nil(): ...
        def Cons(head: "A", tail: "List[A]"): ...

    @R.function
    def main(xs: List[R.Tensor((2,), "float32")]) -> R.Any:
{body}
        return r
"""
    )


def test_fields_by_name_and_by_place_mean_the_same():
    by_place = parse(
        """
        match xs:
            case List.Cons(h, _):
                r = List.Cons(h, xs)
            case List.Nil():
                r = xs
"""
    )
    by_name = parse(
        """
        match xs:
            case List.Cons(head=h):
                r = List.Cons(tail=xs, head=h)
            case List.Nil():
                r = xs
"""
    )
    relaxvm.ir.assert_structural_equal(by_place, by_name)


def test_a_capture_names_the_value():
    mod = parse(
        """
        match xs:
            case List.Nil():
                r = xs
            case other:
                r = List.Cons(R.zeros((2,), "float32"), other)
"""
    )
    assert "case _:" in mod.script() and "List.Cons(gv, xs)" in mod.script().replace("lv", "gv")


def test_type_of_an_empty_list_is_that_of_its_neighbour():
    mod = parse(
        """
        match xs:
            case List.Nil():
                r = List.Nil()
            case List.Cons(h, t):
                r = List.Cons(h, List.Nil())
"""
    )
    assert mod["main"].ret_ty == mod["main"].params[0].ty


@I.ir_module
class Other:
    @R.data
    class Bit:
        def Off(): ...
        def On(): ...

    @R.function
    def main(b: Bit) -> Bit:
        match b:
            case Bit.Off():
                r = Bit.On()
            case Bit.On():
                r = Bit.Off()
        return r


def test_visitors_and_mutators_of_python_see_cases():
    seen = []

    @relax.expr_functor.visitor
    class Names(relax.PyExprVisitor):
        def visit_constructor_(self, op):
            seen.append(op.name)

    Names().visit_expr(Other["main"])
    assert seen == ["On", "Off"]

    @relax.expr_functor.mutator
    class Swap(relax.PyExprMutator):
        def visit_constructor_(self, op):
            return relax.Constructor(op.adt, 1 - op.tag)

    swapped = Swap().visit_expr(Other["main"])
    assert swapped.script().count("Bit.Off()") == 2
    assert "case Bit.Off():\n            r = Bit.Off()" in swapped.script() or "Off" in str(swapped)
