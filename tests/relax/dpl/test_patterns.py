# SPDX-License-Identifier: Apache-2.0
"""The pattern language: what each node fits, graphs of patterns, rewriting."""

import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax.analysis import get_var2val
from relaxvm.relax.dpl import (
    FunctionPattern,
    PatternContext,
    has_dtype,
    is_call_packed,
    is_call_tir,
    is_const,
    is_dfv,
    is_expr,
    is_gv,
    is_op,
    is_shape,
    is_tuple,
    is_tuple_get_item,
    is_var,
    rewrite_bindings,
    rewrite_call,
    wildcard,
)
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


@R.function
def chain(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
    with R.dataflow():
        a = R.add(x, y)
        b = R.nn.relu(a)
        t = R.split(b, 2)
        c = t[1]
        d = R.add(c, c)
        R.output(d)
    return d


VALUES = get_var2val(chain)
NAMED = {v.name: v for v in VALUES}


def fits(pattern, name: str) -> bool:
    return pattern.match(NAMED[name], VALUES)


@pytest.mark.parametrize(
    "pattern, expr, expected",
    [
        (is_var("x"), relax.Var("x"), True),
        (is_var("x"), relax.Var("y"), False),
        (is_var(), relax.GlobalVar("x"), False),
        (is_dfv(), relax.Var("x"), False),
        (is_gv("f"), relax.GlobalVar("f"), True),
        (is_const(), relax.const(1.0), True),
        (is_const(), relax.Var("x"), False),
        (is_shape([1, 2]), relax.ShapeExpr([1, 2]), True),
        (is_shape([1, 2]), relax.ShapeExpr([2, 2]), False),
        (~is_const(), relax.Var("x"), True),
        (is_tuple([is_const(), is_var()]), relax.Tuple([relax.const(1), relax.Var("x")]), True),
        (is_tuple([is_var(), is_const()]), relax.Tuple([relax.const(1), relax.Var("x")]), False),
        (
            is_tuple([is_var(), is_const()], unordered=True),
            relax.Tuple([relax.const(1), relax.Var("x")]),
            True,
        ),
    ],
)
def test_leaves_and_tuples(pattern, expr, expected):
    assert pattern.match(expr) is expected


@pytest.mark.parametrize(
    "pattern, name, expected",
    [
        (is_op("relax.nn.relu")(is_op("relax.add")(is_var("x"), wildcard())), "b", True),
        (is_op("relax.nn.relu")(is_op("relax.multiply")(wildcard(), wildcard())), "b", False),
        (
            is_op("relax.nn.relu")(wildcard()) | is_op("relax.add")(wildcard(), wildcard()),
            "a",
            True,
        ),
        (is_tuple_get_item(is_op("relax.split")(wildcard()), 1), "c", True),
        (is_tuple_get_item(is_op("relax.split")(wildcard()), 0), "c", False),
        (is_op("relax.split")(wildcard()).has_attr({"axis": 0}), "t", True),
        (is_op("relax.split")(wildcard()).has_attr({"axis": 1}), "t", False),
        (wildcard().has_shape((2, 3)) & has_dtype("float32"), "a", True),
        (wildcard().has_shape((2, 3)) & has_dtype("float16"), "a", False),
        (wildcard().has_ty(relax.TensorType(ndim=2)), "a", True),
    ],
)
def test_values_behind_variables(pattern, name, expected):
    assert fits(pattern, name) is expected


def test_node_in_two_places_is_one_value():
    x = wildcard()
    twice = is_op("relax.add")(x, x)
    assert fits(twice, "d")
    assert not fits(twice, "a")


def test_alternatives_are_tried_until_the_whole_fits():
    x = wildcard()
    either = is_var("y") | is_var("x")
    assert fits(is_op("relax.add")(x & is_var("x"), either & ~is_var("x")), "a")


def test_symbolic_size_of_a_pattern_is_one_size():
    n = T.Var("n", "int64")
    square = wildcard().has_ty(relax.TensorType([n, n], "float32"))
    assert not fits(square, "a")
    assert wildcard().has_ty(relax.TensorType([n, 3], "float32")).match(NAMED["a"])


def test_functions_match_by_parameters_and_body():
    x, y = wildcard(), wildcard()
    ty = relax.TensorType([2], "float32")
    a, b = relax.Var("a", ty), relax.Var("b", ty)
    pattern = FunctionPattern([x, y], is_op("relax.add")(x, y))
    assert pattern.match(relax.Function([a, b], relax.op.add(a, b), ret_ty=ty))
    assert not pattern.match(relax.Function([a, b], relax.op.add(b, a), ret_ty=ty))


def test_calls_of_programs_and_packed_functions_by_name():
    call = relax.Call(relax.ExternFunc("fill"), [relax.Var("x")])
    assert is_call_packed("fill").match(call)
    assert not is_call_packed("other").match(call)
    assert not is_call_tir("fill").match(call)


def test_block_is_searched_for_a_graph():
    dfb = chain.body.blocks[0]
    with PatternContext() as ctx:
        add, relu = is_op("relax.add")(wildcard(), wildcard()), is_op("relax.nn.relu")(wildcard())
        add >> relu  # pylint: disable=pointless-statement
        found = ctx.match_dfb(dfb)
    assert found[add].name == "a" and found[relu].name == "b"


def test_only_user_is_the_only_one():
    @R.function
    def fork(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.nn.relu(a)
            c = R.add(a, b)
            R.output(c)
        return c

    dfb = fork.body.blocks[0]
    with PatternContext() as ctx:
        is_op("relax.exp")(wildcard()).only_used_by(is_op("relax.nn.relu")(wildcard()))
        assert ctx.match_dfb(dfb) is None
    with PatternContext() as ctx:
        is_op("relax.exp")(wildcard()).used_by(is_op("relax.nn.relu")(wildcard()))
        assert ctx.match_dfb(dfb) is not None


def test_a_call_made_in_a_context_is_a_node_of_its_graph():
    x = wildcard()
    with PatternContext() as ctx:
        add = is_op("relax.add")(x, wildcard())
        relu = is_op("relax.nn.relu")(add)
    found = ctx.match_dfb(chain.body.blocks[0])
    assert [found[p].name for p in (x, add, relu)] == ["x", "a", "b"]

    after = rewrite_bindings(ctx, lambda m, _: {m[relu]: R.nn.silu(m[add])}, chain)
    names = [b.value.op.name for b in after.body.blocks[0].bindings if hasattr(b.value, "op")]
    assert names[:2] == ["relax.add", "relax.nn.silu"]


@pytest.mark.parametrize("constrained", [True, False])
def test_a_call_without_constraint_is_no_node(constrained: bool):
    with PatternContext() as ctx:
        is_op("relax.exp")(wildcard(), add_constraint=constrained)
        is_op("relax.nn.relu")(wildcard())
    assert (ctx.match_dfb(chain.body.blocks[0]) is None) == constrained


def test_incremental_context_goes_on():
    dfb = chain.body.blocks[0]
    relu = is_op("relax.nn.relu")(wildcard())
    with PatternContext() as outer:
        is_op("relax.add")(wildcard(), wildcard()) >> relu
        with PatternContext(incremental=True) as inner:
            relu >> is_op("relax.exp")(wildcard())
            assert inner.match_dfb(dfb) is None
        assert outer.match_dfb(dfb) is not None


def test_rewrite_call_goes_on_until_nothing_fits():
    x = wildcard()

    def double(_, found):
        return R.multiply(found[x], R.const(2, "float32"))

    @R.function(private=True)
    def before(a: R.Tensor((2,), "float32")):
        with R.dataflow():
            b = R.add(a, a)
            c = R.add(b, b)
            R.output(c)
        return c

    @R.function(private=True)
    def after(a: R.Tensor((2,), "float32")):
        with R.dataflow():
            b = R.multiply(a, R.const(2, "float32"))
            c = R.multiply(b, R.const(2, "float32"))
            R.output(c)
        return c

    relaxvm.ir.assert_structural_equal(
        rewrite_call(is_op("relax.add")(x, x), double, before), after
    )


def test_rewriting_that_never_ends_is_an_error():
    x, y = wildcard(), wildcard()
    with pytest.raises(RuntimeError, match="does not end"):
        rewrite_call(is_op("relax.add")(x, y), lambda _, found: R.add(found[y], found[x]), chain)


def test_rewrite_bindings_computes_a_shared_value_once():
    @R.function(private=True)
    def before(
        x: R.Tensor((2, 4), "float32"),
        v: R.Tensor((4, 4), "float32"),
        w: R.Tensor((4, 4), "float32"),
    ):
        with R.dataflow():
            a = R.matmul(x, v)
            b = R.matmul(x, w)
            c = R.add(a, b)
            R.output(c)
        return c

    with PatternContext() as ctx:
        inp, left, right = wildcard(), wildcard(), wildcard()
        one, two = is_op("relax.matmul")(inp, left), is_op("relax.matmul")(inp, right)
        inp.used_by(one, 0)
        inp.used_by(two, 0)
        left.only_used_by(one, 1)
        right.only_used_by(two, 1)

    def merge(found, _):
        both = R.split(
            R.matmul(found[inp], R.concat([found[left], found[right]], axis=1)), 2, axis=1
        )
        return {found[one]: both[0], found[two]: both[1]}

    text = rewrite_bindings(ctx, merge, before).script()
    assert text.count("R.matmul") == 1 and text.count("R.split") == 1


def test_rewriter_of_two_functions():
    @R.rewriter
    class Fuse:
        @R.function
        def pattern(a: R.Tensor(["n"], "float32"), b: R.Tensor(["n"], "float32")):
            return R.nn.relu(R.add(a, b))

        @R.function
        def replacement(a: R.Tensor(["n"], "float32"), b: R.Tensor(["n"], "float32")):
            n = T.int64()
            return R.call_pure_packed("add_relu", a, b, ty_args=R.Tensor([n], "float32"))

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(["m"], "float32")) -> R.Tensor(["m"], "float32"):
            y = R.add(x, x)
            z = R.nn.relu(y)
            return z

    after = Fuse(Before)
    assert "add_relu" in after.script() and "R.add" not in after.script()
    assert [d.name for d in after["main"].ret_ty.shape] == ["m"]


def test_effects_between_keep_values_apart():
    @R.rewriter
    class Fuse:
        @R.function
        def pattern(a: R.Tensor([2], "float32")):
            return R.nn.relu(R.exp(a))

        @R.function
        def replacement(a: R.Tensor([2], "float32")):
            return R.call_pure_packed("exp_relu", a, ty_args=R.Tensor([2], "float32"))

    @R.function(private=True, pure=False)
    def before(x: R.Tensor([2], "float32")):
        y = R.exp(x)
        R.print(format="between")
        z = R.nn.relu(y)
        return z

    relaxvm.ir.assert_structural_equal(Fuse(before), before)


def test_expression_pattern_is_one_expression():
    v = relax.Var("v")
    assert is_expr(v).match(v) and not is_expr(v).match(relax.Var("v"))


def test_pattern_is_made_of_patterns() -> None:
    with pytest.raises(TypeError, match="a pattern is made of patterns"):
        is_op("relax.nn.relu")(None)  # type: ignore[arg-type]
