# SPDX-License-Identifier: Apache-2.0
"""LowerDataTypes: constructors and match become builtins, If and fields."""

import textwrap

from pass_check import module

import relaxvm
from relaxvm.relax.analysis import well_formed
from relaxvm.relax.transform import LowerDataTypes

TYPES = """
@R.data("A")
class List:
    def Nil(): ...
    def Cons(head: "A", tail: "List[A]"): ...

@R.data
class Color:
    def Red(): ...
    def Green(): ...
    def Blue(level: R.Prim("int64")): ...

@R.data("A")
class Box:
    def Of(value: "A"): ...
"""


def with_types(function: str) -> relaxvm.IRModule:
    return module(TYPES + textwrap.dedent(function))


def lowered(function: str) -> relaxvm.IRModule:
    given = with_types(function)
    text = given.script()
    result = LowerDataTypes()(given)
    assert given.script() == text, "the pass changed its argument"
    assert well_formed(result)
    return result


def check(before: str, after: str) -> None:
    relaxvm.ir.assert_structural_equal(lowered(before), with_types(after))


def test_a_constructor_allocates():
    check(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32"), xs: List[R.Tensor((2,), "float32")]):
            r = List.Cons(x, xs)
            return r
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32"), xs: List[R.Tensor((2,), "float32")]):
            r = R.call_pure_packed(
                "vm.builtin.alloc_adt", R.prim_value(1), x, xs, ty_args=List[R.Tensor((2,), "float32")]
            )
            return r
        """,
    )


def test_two_cases_become_one_test_of_the_tag():
    text = lowered(
        """
        @R.function
        def main(xs: List[R.Tensor((2,), "float32")]) -> List[R.Tensor((2,), "float32")]:
            match xs:
                case List.Nil():
                    r = xs
                case List.Cons(_, tail):
                    r = tail
            return r
        """
    ).script()
    assert text.count("vm.builtin.get_tag") == 1
    assert text.count("vm.builtin.get_field") == 1, "a field that nobody uses is not taken out"
    assert "match" not in text and "has_tag" not in text and "R.match_cast" not in text


def test_fields_are_checked_where_they_are_taken_out():
    text = lowered(
        """
        @R.function
        def main(xs: List[R.Tensor((2,), "float32")]) -> R.Tensor((2,), "float32"):
            match xs:
                case List.Cons(head, _):
                    r = R.exp(head)
                case _:
                    r = R.zeros((2,), "float32")
            return r
        """
    ).script()
    assert 'R.match_cast(head, R.Tensor((2,), dtype="float32"))' in text
    assert 'R.call_pure_packed("vm.builtin.has_tag", xs, R.prim_value(1)' in text


def test_the_last_case_needs_no_test():
    text = lowered(
        """
        @R.function
        def main(c: Color) -> R.Prim("int64"):
            match c:
                case Color.Green():
                    r = T.int64(1)
                case Color.Blue(level):
                    r = level
                case Color.Red():
                    r = T.int64(0)
            return r
        """
    ).script()
    assert text.count("has_tag") == 2 and "get_tag" not in text
    assert text.count("if ") == 2


def test_an_only_case_needs_no_branch():
    text = lowered(
        """
        @R.function
        def main(b: Box[R.Tensor((2,), "float32")]) -> R.Tensor((2,), "float32"):
            match b:
                case Box.Of(x):
                    with R.dataflow():
                        y = R.exp(x)
                        z = R.exp(y)
                        R.output(z)
                    r = z
            return r
        """
    ).script()
    assert "if " not in text and "_tag" not in text
    assert text.count("R.exp") == 2 and text.count("vm.builtin.get_field") == 1


def test_a_match_in_a_case():
    result = lowered(
        """
        @R.function
        def main(xs: List[Box[R.Tensor((2,), "float32")]]) -> R.Tensor((2,), "float32"):
            match xs:
                case List.Cons(box, _):
                    match box:
                        case Box.Of(x):
                            r = x
                case List.Nil():
                    r = R.zeros((2,), "float32")
            return r
        """
    )
    assert "match " not in result.script().replace("R.match_cast", "")


def test_nothing_to_do_changes_nothing():
    mod = module(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            y = R.exp(x)
            return y
        """
    )
    assert LowerDataTypes()(mod)["main"].same_as(mod["main"])
