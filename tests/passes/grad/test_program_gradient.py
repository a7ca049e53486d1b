# SPDX-License-Identifier: Apache-2.0
"""Gradient: calls of tensor programs that name their gradient, a function of tensor expressions."""

import numpy as np
import pytest
from pass_check import module

import relaxvm
from relaxvm import relax, te
from relaxvm.relax.training.utils import register_te_gradient
from relaxvm.relax.transform import Gradient, Normalize

T34 = 'R.Tensor((3, 4), "float32")'
PROGRAMS = """
@T.prim_func(private=True)
def product(A: T.Buffer((3, 4), "float32"), B: T.Buffer((3, 4), "float32"), C: T.Buffer((3, 4), "float32")):
    for i, j in T.grid(3, 4):
        C[i, j] = A[i, j] * B[i, j]

@T.prim_func(private=True)
def square(A: T.Buffer((3, 4), "float32"), C: T.Buffer((3, 4), "float32")):
    for i, j in T.grid(3, 4):
        C[i, j] = A[i, j] * A[i, j]

@T.prim_func(private=True)
def both(
    A: T.Buffer((3, 4), "float32"), B: T.Buffer((3, 4), "float32"),
    S: T.Buffer((3, 4), "float32"), P: T.Buffer((3, 4), "float32")
):
    for i, j in T.grid(3, 4):
        S[i, j] = A[i, j] + B[i, j]
        P[i, j] = A[i, j] * B[i, j]
"""


def each(shape, f, name):
    return te.compute(shape, lambda *i: f(i), name=name)


@register_te_gradient("test.product")
def product_gradient(grad, a, b):
    return [
        each(a.shape, lambda i: grad(*i) * b(*i), "to_a"),
        each(b.shape, lambda i: grad(*i) * a(*i), "to_b"),
    ]


@register_te_gradient("test.square")
def square_gradient(grad, a, factor):
    return each(a.shape, lambda i: grad(*i) * a(*i) * factor, "to_a")


@register_te_gradient("test.both")
def both_gradient(grads, a, b):
    to_sum, to_product = grads
    return [
        each(a.shape, lambda i: to_sum(*i) + to_product(*i) * b(*i), "to_a"),
        each(b.shape, lambda i: to_sum(*i) + to_product(*i) * a(*i), "to_b"),
    ]


@register_te_gradient("test.one_of_two")
def one_of_two(grad, a, b):
    return each(a.shape, lambda i: grad(*i) * b(*i), "to_a")


def program(steps: str) -> relaxvm.IRModule:
    lines = "".join(f"        {step}\n" for step in steps.split("; "))
    text = (
        f"\n@R.function\ndef main(x: {T34}, y: {T34}):\n    cls = Module\n    with R.dataflow():\n"
    )
    return module(PROGRAMS + text + lines + "        R.output(gv)\n    return gv\n")


def product(out: str, a: str, b: str) -> str:
    return f'{out} = R.call_tir_with_grad(cls.product, ({a}, {b}), out_ty={T34}, te_grad_name="test.product")'


def gradients(mod: relaxvm.IRModule, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    mod = Normalize()(relax.transform.LegalizeOps()(Gradient("main")(mod)))
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    args = [relaxvm.runtime.tensor(v) for v in (x, y)]
    value, grads = vm["main_adjoint"](*args)
    np.testing.assert_allclose(value.numpy(), vm["main"](*args).numpy())
    return [g.numpy() for g in grads]


rng = np.random.default_rng(3)
X, Y = (rng.uniform(0.5, 2, (3, 4)).astype("float32") for _ in "xy")


def test_results_of_the_gradient_go_to_the_arguments():
    x_to, y_to = gradients(program(product("a", "x", "y") + "; gv = R.sum(a)"), X, Y)
    np.testing.assert_allclose(x_to, Y)
    np.testing.assert_allclose(y_to, X)


def test_the_program_runs_as_call_tir_and_its_gradient_is_added_once():
    steps = f"{product('b', 'x', 'y')}; {product('a', 'b', 'y')}; gv = R.sum(a)"
    mod = Gradient("main")(program(steps))
    text = mod["main_adjoint"].script()
    assert "call_tir_with_grad" not in text and text.count("R.call_tir(") == 4
    assert len(mod.get_global_vars()) == 6
    x_to, y_to = gradients(program(steps), X, Y)
    np.testing.assert_allclose(x_to, Y * Y, rtol=1e-6)
    np.testing.assert_allclose(y_to, 2 * X * Y, rtol=1e-6)


def test_further_arguments_of_the_gradient():
    steps = (
        f'a = R.call_tir_with_grad(cls.square, (x,), out_ty={T34}, te_grad_name="test.square",'
        ' te_grad_kwargs={"factor": 2.0}); gv = R.sum(a)'
    )
    x_to, y_to = gradients(program(steps), X, Y)
    np.testing.assert_allclose(x_to, 2 * X)
    np.testing.assert_array_equal(y_to, 0 * Y)


@pytest.mark.parametrize("used", ["sum", "product"])
def test_gradients_of_several_results_come_as_a_list(used):
    item = {"sum": 0, "product": 1}[used]
    steps = (
        f'b = R.call_tir_with_grad(cls.both, (x, y), out_ty=[{T34}, {T34}], te_grad_name="test.both");'
        f" a = b[{item}]; gv = R.sum(a)"
    )
    x_to, y_to = gradients(program(steps), X, Y)
    one = np.ones_like(X)
    np.testing.assert_allclose(x_to, one if used == "sum" else Y)
    np.testing.assert_allclose(y_to, one if used == "sum" else X)


def test_a_program_between_checkpoints_is_called_again():
    steps = (
        f"s = R.grad.start_checkpoint(x); {product('b', 's', 'y')}; c = R.multiply(b, b);"
        " a = R.grad.end_checkpoint(c); gv = R.sum(a)"
    )
    text = Gradient("main")(program(steps)).script()
    assert text.count("R.call_tir(cls.product") == 2
    x_to, _ = gradients(program(steps), X, Y)
    np.testing.assert_allclose(x_to, 2 * X * Y * Y, rtol=1e-6)


SQUARE = f"""
@R.function
def main(x: {T34}):
    cls = Module
    with R.dataflow():
        a = R.call_tir_with_grad(
            cls.square, (x,), out_ty={T34}, te_grad_name="test.square", te_grad_kwargs={{"factor": 3.0}}
        )
        gv = R.sum(a)
        R.output(gv)
    return gv
"""


def test_the_adjoint_as_text():
    adjoint = f"""
@R.function
def main_adjoint(x: {T34}):
    cls = Module
    with R.dataflow():
        a = R.call_tir(cls.square, (x,), out_ty={T34})
        gv = R.sum(a)
        gv_adjoint = R.ones(R.shape([]), dtype="float32")
        a_adjoint = R.broadcast_to(gv_adjoint, R.shape([3, 4]))
        lv = R.call_tir(cls.test_square, (a_adjoint, x), out_ty={T34})
        x_adjoint = lv
        x_out = x_adjoint
        R.output(gv, x_out)
    return (gv, (x_out,))
"""
    builder = relax.BlockBuilder()
    grad, a = (relax.Var(name, relax.TensorType((3, 4), "float32")) for name in "ga")
    with builder.function("f", [grad, a]):
        builder.emit_func_output(builder.emit_te(square_gradient, grad, a, 3.0))
    before = module(PROGRAMS + SQUARE)
    text = PROGRAMS + SQUARE + adjoint.replace("cls.test_square", "cls.square")
    expected = module(text, check_well_formed=False)  # the gradient's program comes below
    expected["test_square"] = builder.get()["square_gradient"]
    result = Gradient("main")(before)
    text = expected.script().replace("square, (a_adjoint", "test_square, (a_adjoint")
    relaxvm.ir.assert_structural_equal(result, relaxvm.script.from_source(text))


def test_an_unknown_gradient_is_an_error():
    steps = product("a", "x", "y").replace("test.product", "test.nobody") + "; gv = R.sum(a)"
    with pytest.raises(ValueError, match='no gradient is registered under the name "test.nobody"'):
        Gradient("main")(program(steps))


def test_a_gradient_of_too_few_arguments_is_an_error():
    steps = product("a", "x", "y").replace("test.product", "test.one_of_two") + "; gv = R.sum(a)"
    with pytest.raises(ValueError, match="one tensor for each of the 2 arguments, but gives 1"):
        Gradient("main")(program(steps))


def test_a_program_without_a_named_gradient_is_an_error():
    steps = f"a = R.call_tir(cls.product, (x, y), out_ty={T34}); gv = R.sum(a)"
    with pytest.raises(ValueError, match="name the gradient of a tensor program"):
        Gradient("main")(program(steps))


def test_a_name_is_given_once():
    with pytest.raises(RuntimeError, match="there is a gradient called 'test.product' already"):
        register_te_gradient("test.product", product_gradient)


def test_a_builder_calls_tensor_expressions_that_name_their_gradient():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit_te_with_grad(
                lambda t: each(t.shape, lambda i: t(*i) * t(*i), "squares"),
                x,
                te_grad_name="test.square",
                te_grad_kwargs={"factor": 2.0},
                primfunc_name_hint="squares",
            )
            out = builder.emit_output(relax.op.sum(a))
        builder.emit_func_output(out)
    mod = builder.finalize()
    assert 'te_grad_name="test.square"' in mod.script()
    vm = relax.VirtualMachine(relaxvm.compile(Gradient("main")(mod)), relaxvm.cpu())
    given = np.arange(12, dtype="float32").reshape(3, 4)
    total, (gradient,) = vm["main_adjoint"](relaxvm.runtime.tensor(given))
    np.testing.assert_allclose(total.numpy(), (given**2).sum())
    np.testing.assert_allclose(gradient.numpy(), 2 * given)
