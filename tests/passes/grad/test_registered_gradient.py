# SPDX-License-Identifier: Apache-2.0
"""FPrimalGradient: operators' rules for Python, and rules that Python registers."""

import contextlib

import numpy as np
import pytest
from gradient_check import F, build, check_numerically, program, random_inputs, run
from pass_check import module

from relaxvm import relax, te
from relaxvm.ir import Op, register_op_attr
from relaxvm.relax import op
from relaxvm.relax.transform import Gradient


@contextlib.contextmanager
def registered(name: str, rule):
    op.register_gradient(name, rule)
    try:
        yield
    finally:
        Op.get(name).reset_attr("FPrimalGradient")


def by_hand(make, dtype: str = "float64"):
    """The gradients of a call of x, y by its operator's rule, as a function of x, y and the result's gradient."""
    names = [relax.Var(name, relax.TensorType((3, 4), dtype)) for name in "xyg"]
    builder = relax.BlockBuilder()
    with builder.function("main", names):
        with builder.dataflow():
            call = make(*names[:2])
            out = builder.emit(call)
            rule = call.op.get_attr("FPrimalGradient")
            grads = rule(out, call, names[2], builder)
            result = builder.emit_output(relax.Tuple(grads))
        builder.emit_func_output(result)
    return builder.get()


X, Y, G = np.random.default_rng(9).uniform(0.5, 2, (3, 3, 4))


def test_an_operators_rule_is_an_attribute():
    vm = build(by_hand(op.multiply))
    to_x, to_y = run(vm, "main", [X, Y, G])
    np.testing.assert_allclose(to_x, G * Y)
    np.testing.assert_allclose(to_y, G * X)


def test_arguments_without_a_gradient_are_marked():
    mod = by_hand(lambda x, y: op.where(op.less(x, y), x, y))
    fields = [b for b in mod["main"].script().splitlines() if "R.grad.no_grad" in b]
    assert len(fields) == 1
    to_x, to_y = run(build(mod), "main", [X, Y, G])[1:]
    np.testing.assert_allclose(to_x, np.where(X < Y, G, 0))
    np.testing.assert_allclose(to_y, np.where(X < Y, 0, G))


def test_operators_without_a_rule_have_no_attribute():
    assert Op.get("relax.cumprod").get_attr("FPrimalGradient") is None
    assert not Op.get("relax.cumprod").has_attr("FPrimalGradient")
    assert Op.get("relax.add").has_attr("FPrimalGradient")


def cumprod_gradient(out, call, grad, builder):
    """Of elements that are not 0: the sum of what follows of grad * out, over x."""
    weighted = builder.emit(op.multiply(grad, out))
    total = op.sum(weighted, axis=[1], keepdims=True)
    so_far = op.cumsum(weighted, axis=1, exclusive=True)
    return [op.divide(op.subtract(total, so_far), call.args[0])]


def test_a_registered_rule_makes_an_operator_differentiable():
    mod = module(program(f"x: {F}", "a = R.cumprod(x, 1); b = R.multiply(a, a); gv = R.sum(b)"))
    with registered("relax.cumprod", cumprod_gradient):
        check_numerically(mod, random_inputs(mod))
    with pytest.raises(ValueError, match="relax.cumprod has no gradient"):
        Gradient("main")(mod)


def test_a_registered_rule_goes_before_the_operators_own():
    mod = module(program(f"x: {F}", "a = R.round(x); gv = R.sum(a)"))
    with registered("relax.round", lambda out, call, grad, builder: [grad]):
        through = run(build(Gradient("main")(mod)), "main_adjoint", [X])[1]
    np.testing.assert_array_equal(through, np.ones_like(X))
    np.testing.assert_array_equal(
        run(build(Gradient("main")(mod)), "main_adjoint", [X])[1], np.zeros_like(X)
    )


def test_a_rule_may_add_tensor_programs():
    def rule(out, call, grad, builder):
        def scaled(g):
            return te.compute(g.shape, lambda i, j: g[i, j] * 3.0, name="scaled")

        return [builder.emit_te(scaled, grad)]

    mod = module(
        program(f"x: {F}", "a = R.round(x); b = R.multiply(a, x); c = R.round(b); gv = R.sum(c)")
    )
    with registered("relax.round", rule):
        result = Gradient("main")(mod)
    assert [str(g.name_hint) for g in result.get_global_vars()].count("scaled") == 1
    (grad,) = run(build(result), "main_adjoint", [X])[1:]
    np.testing.assert_allclose(grad, 3 * np.round(X) + 9 * X)


def test_no_grad_ends_what_a_rule_passes_on():
    def first_only(out, call, grad, builder):
        return [grad, op.grad.no_grad(call.args[1])]

    mod = module(program(f"x: {F}, y: {F}", "a = R.add(x, y); gv = R.sum(a)"))
    with registered("relax.add", first_only):
        to_x, to_y = run(build(Gradient("main")(mod)), "main_adjoint", [X, Y])[1:]
    np.testing.assert_array_equal(to_x, np.ones_like(X))
    np.testing.assert_array_equal(to_y, np.zeros_like(X))


def test_an_operator_of_its_own_with_a_gradient():
    register_op_attr("test.twice", "FInferType", lambda call, builder: call.args[0].ty)
    register_op_attr(
        "test.twice", "FLegalize", lambda builder, call: op.add(call.args[0], call.args[0])
    )

    @op.register_gradient("test.twice")
    def gradient(out, call, grad, builder):
        return [op.add(grad, grad)]

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 4), "float64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            doubled = builder.emit(relax.Call(Op.get("test.twice"), [x]))
            result = builder.emit_output(op.sum(doubled))
        builder.emit_func_output(result)
    (grad,) = run(build(Gradient("main")(builder.get())), "main_adjoint", [X])[1:]
    np.testing.assert_array_equal(grad, np.full_like(X, 2))


def test_a_rule_of_too_few_gradients_is_an_error():
    mod = module(program(f"x: {F}, y: {F}", "a = R.add(x, y); gv = R.sum(a)"))
    with registered("relax.add", lambda out, call, grad, builder: [grad]):
        with pytest.raises(ValueError, match="for each of the 2 arguments, but gives 1"):
            Gradient("main")(mod)
