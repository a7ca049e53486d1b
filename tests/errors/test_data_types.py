# SPDX-License-Identifier: Apache-2.0
"""Mistakes in data types and match are errors with line and column."""

from __future__ import annotations

import re

import pytest

import relaxvm
from relaxvm import relax
from relaxvm.error import DiagnosticError
from relaxvm.script import from_source

HEAD = """\
@I.ir_module
class M:
    @R.data("A")
    class List:
        def Nil(): ...
        def Cons(head: "A", tail: "List[A]"): ...

    @R.data
    class Bit:
        def Off(): ...
        def On(): ...

    @R.function
    def main(xs: List[R.Tensor((2,), "float32")], x: R.Tensor((2,), "float32")) -> R.Any:
"""
FIRST = HEAD.count("\n") + 1  # the line of the first statement


def error_of(text: str) -> str:
    with pytest.raises(DiagnosticError) as caught:
        from_source(text)
    return str(caught.value)


def body(text: str) -> str:
    lines = [line for line in text.strip("\n").splitlines()]
    return HEAD + "\n".join("        " + line for line in lines) + "\n"


CASES = {
    "missing case": (
        "match xs:\n    case List.Cons(h, t):\n        r = h\nreturn r",
        (0, 9, "no case for List.Nil; add it, or case _"),
    ),
    "unknown constructor": (
        "match xs:\n    case List.Snoc(h, t):\n        r = h\nreturn r",
        (1, 18, "data type List has no constructor Snoc; it has: Nil, Cons"),
    ),
    "too few fields": (
        "match xs:\n    case List.Cons(h):\n        r = h\n    case _:\n        r = x\nreturn r",
        (1, 18, "List.Cons has 2 fields, but 1 is given"),
    ),
    "too many fields": (
        "match xs:\n    case List.Nil(h):\n        r = h\n    case _:\n        r = x\nreturn r",
        (1, 18, "List.Nil has 0 fields, but 1 is given"),
    ),
    "unknown field": (
        "match xs:\n    case List.Cons(first=h):\n        r = h\n    case _:\n        r = x\nreturn r",
        (1, 18, "List.Cons has no field first; its fields are: head, tail"),
    ),
    "twice": (
        "match xs:\n    case List.Nil():\n        r = x\n    case List.Nil():\n        r = x\n"
        "    case _:\n        r = x\nreturn r",
        (3, 18, "there are two cases of List.Nil"),
    ),
    "never runs": (
        "match xs:\n    case _:\n        r = x\n    case List.Nil():\n        r = x\nreturn r",
        (3, 18, "this case never runs: the one before it takes every value"),
    ),
    "other data type": (
        "match xs:\n    case Bit.On():\n        r = x\n    case _:\n        r = x\nreturn r",
        (1, 18, "Bit.On never makes a List"),
    ),
    "no data type": (
        "match x:\n    case _:\n        r = x\nreturn r",
        (0, 15, "match takes a value of a data type"),
    ),
    "no constructor": (
        "match xs:\n    case List(h):\n        r = x\nreturn r",
        (1, 18, "List is no constructor"),
    ),
    "not called": (
        "match xs:\n    case List.Nil:\n        r = x\nreturn r",
        (1, 18, "a case calls its constructor: case List.Nil(...):"),
    ),
    "guard": (
        "match xs:\n    case _ if x:\n        r = x\nreturn r",
        (1, 23, "a case has no condition; write `if` inside of it"),
    ),
    "different names": (
        "match xs:\n    case List.Nil():\n        r = x\n    case _:\n        q = x\nreturn x",
        (4, 17, "the cases end by assigning different names, r and q"),
    ),
    "one name for two fields": (
        "match xs:\n    case List.Cons(a, a):\n        r = x\n    case _:\n        r = x\nreturn r",
        (1, 0, ""),
    ),
    "call with too few fields": (
        "r = List.Cons(x)\nreturn r",
        (0, 13, "List.Cons has 2 fields, but 1 is given"),
    ),
    "call with a wrong field": (
        "r = List.Cons(x, x)\nreturn r",
        (0, 9, "field tail of List.Cons does not accept the value that is given"),
    ),
    "call of nothing": (
        "r = List.Snoc(x)\nreturn r",
        (0, 13, "data type List has no constructor Snoc"),
    ),
    "match in a dataflow block": (
        "with R.dataflow():\n    match xs:\n        case _:\n            r = x\n    R.output(r)\nreturn r",
        (1, 13, "a dataflow block has no control flow"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_mistake_in_a_function(name):
    text, (line, column, message) = CASES[name]
    found = error_of(body(text))
    place = re.match(r"<script>:(\d+):(\d+): ", found)
    assert place, found
    if not message:  # Python's own parser refuses it
        assert int(place[1]) == FIRST + line
        return
    assert (int(place[1]), int(place[2])) == (FIRST + line, column), found
    assert message in found


DEFINITIONS = {
    "no constructor": ("pass", (2, "data type D has no constructor, so it has no value")),
    "two of a name": ("def A(): ...\n        def A(): ...", (4, "two constructors called A")),
    "no type": ("def A(x): ...", (4, "field x of D.A needs a type")),
    "size": (
        'def A(x: R.Tensor(("n",), "float32")): ...',
        (4, 'a field knows no size "n"'),
    ),
    "unknown type": ('def A(x: "B"): ...', (4, "name 'B' is not defined")),
    "a body": ("def A():\n            return 1", (5, "a constructor has no body")),
    "a value": ("A = 1", (4, "a data type holds constructors")),
    "defaults": ("def A(x: R.Any = 1): ...", (4, "fields are plain names with a type")),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_mistake_in_a_definition(name):
    text, (line, message) = DEFINITIONS[name]
    found = error_of(f"@I.ir_module\nclass M:\n    @R.data\n    class D:\n        {text}\n")
    assert message in found
    place = re.match(r"<script>:(\d+):(\d+): ", found)
    assert place and int(place[1]) >= line, found


def test_type_arguments_are_counted():
    head = '@I.ir_module\nclass M:\n    @R.data("A")\n    class D:\n        def C(x: "A"): ...\n'
    found = error_of(
        head + "    @R.function\n    def f(x: D[R.Any, R.Any]) -> R.Any:\n        return x\n"
    )
    assert found.startswith("<script>:7:14: data type D takes 1 type parameters, got 2")


def test_a_program_built_by_hand_is_checked_too():
    option = relax.AdtDef(
        "Option",
        ["A"],
        [
            relax.ConstructorDef("Some", [("value", relax.TypeParam("A"))]),
            relax.ConstructorDef("No"),
        ],
    )
    x = relax.Var("x", option[relax.TensorType((3,), "float32")])
    v = relax.Var("v")
    only_some = relax.Match(x, [relax.MatchCase(option.Some, [v], v)])
    bb = relax.BlockBuilder()
    with pytest.raises(TypeError, match="no case for Option.No; add it, or case _"):
        bb.normalize(only_some)
    with pytest.raises(TypeError, match="Option.Some has 1 field, but 0 are given"):
        bb.normalize(relax.Match(x, [relax.MatchCase(option.Some, [], x)]))


def test_a_module_without_the_definition_is_not_well_formed():
    mod = from_source(body("return xs"))
    used = from_source(body("r = List.Nil()\nreturn r"))
    assert relax.analysis.well_formed(used)
    bare = relaxvm.IRModule(used.functions)
    assert relax.analysis.well_formed(relaxvm.IRModule(mod.functions))
    with pytest.raises(ValueError, match="does not declare the data type List .*data-type-is-decl"):
        relax.analysis.well_formed(bare)
