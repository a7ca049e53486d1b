# SPDX-License-Identifier: Apache-2.0
"""Facts about integer expressions, asked from Python."""

import pytest

import relaxvm
from relaxvm import sym, tirx
from relaxvm.ir import Range


@pytest.fixture
def n():
    return tirx.Var("n", "int64")


def test_expressions_are_simplified(n):
    analyzer = sym.Analyzer()
    assert str(analyzer.simplify(n * 2 - n)) == "n"
    assert str(analyzer.simplify((n * 4 + 8) // 4)) == "n + 2"
    assert int(analyzer.simplify(tirx.const(6, "int64") // 4)) == 1


def test_what_holds_for_all_values_is_proved(n):
    analyzer = sym.Analyzer()
    assert analyzer.can_prove_equal(n + 1, 1 + n)
    assert analyzer.can_prove(n * 2 == n + n) and not analyzer.can_prove(n < 10)
    assert analyzer.can_prove(n >= 0)  # extents are not negative


def test_variables_have_ranges_and_values(n):
    analyzer = sym.Analyzer()
    analyzer.bind(n, Range(0, 10))
    assert analyzer.can_prove(n < 10)
    assert analyzer.const_int_bound(n * 2 + 1) == (1, 19)
    assert int(analyzer.simplify(n // 16)) == 0
    m = tirx.Var("m", "int64")
    analyzer.bind(m, n * 3)
    assert analyzer.can_prove_equal(m, n + 2 * n)
    assert analyzer.modular_set(n * 4 + 1) == sym.ModularSet(4, 1)


def test_bounds_are_updated_and_open_ends_are_named(n):
    analyzer = sym.Analyzer()
    assert analyzer.const_int_bound(n).max_value == sym.ConstIntBound.POS_INF
    analyzer.update(n, sym.ConstIntBound(sym.ConstIntBound.NEG_INF, 5))
    assert analyzer.const_int_bound(n) == (sym.ConstIntBound.NEG_INF, 5)
    with pytest.raises(TypeError, match="takes a ConstIntBound, not int"):
        analyzer.update(n, 5)


def test_constraints_hold_inside_of_their_block(n):
    analyzer = sym.Analyzer()
    with analyzer.constraint_scope(n > 5):
        assert analyzer.can_prove(n >= 6)
        with analyzer.constraint_scope(n < 7):
            assert analyzer.can_prove_equal(n, 6)
        assert not analyzer.can_prove_equal(n, 6)
    assert not analyzer.can_prove(n >= 6)


def test_other_expressions_are_refused(n):
    analyzer = sym.Analyzer()
    with pytest.raises(TypeError, match="expected an expression of bool"):
        analyzer.can_prove(n + 1)
    with pytest.raises(TypeError, match="expected an expression of integers"):
        analyzer.const_int_bound(tirx.Var("x", "float32"))
    with pytest.raises(TypeError):
        analyzer.simplify("n")


def test_its_older_name_is_the_same_module():
    assert relaxvm.arith is sym
