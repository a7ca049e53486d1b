# SPDX-License-Identifier: Apache-2.0
"""Walks over statements and expressions from Python."""

from __future__ import annotations

import pytest

import relaxvm
from relaxvm import tirx
from relaxvm.script import tirx as T
from relaxvm.tirx import stmt_functor


@T.prim_func
def scale(a: T.Buffer((8,), "float32"), n: T.int32):
    for i in range(8):
        a[i] = a[i] * T.Cast("float32", n + 1)


def test_a_visit_shows_parts_before_the_whole():
    seen = []
    stmt_functor.post_order_visit(scale, seen.append)
    names = [type(part).__name__ for part in seen]
    assert names.index("BufferLoad") < names.index("BufferStore") < names.index("For")
    assert any(part.same_as(scale.params[1]) for part in seen)


def test_a_visit_of_an_expression_shows_no_statement():
    n = tirx.Var("n", "int32")
    seen = []
    stmt_functor.post_order_visit(n + 1, seen.append)
    kinds = [tirx.Var, tirx.IntImm, tirx.Add]
    assert len(seen) == 3 and all(isinstance(part, kind) for part, kind in zip(seen, kinds))


def test_substitute_replaces_variables_in_statements_and_expressions():
    n = scale.params[1]
    seen = []
    stmt_functor.post_order_visit(stmt_functor.substitute(scale.body, {n: 3}), seen.append)
    assert seen and not any(part.same_as(n) for part in seen)
    relaxvm.ir.assert_structural_equal(
        stmt_functor.substitute(n + 1, {n: n * 2}), n * 2 + 1, map_free_vars=True
    )


def test_what_is_no_node_is_refused():
    with pytest.raises(TypeError):
        stmt_functor.substitute("n", {scale.params[1]: 1})
