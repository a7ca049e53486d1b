# SPDX-License-Identifier: Apache-2.0
"""Optimizers: steps against NumPy, the form of the function, and parameters that are refused."""

import textwrap

import numpy as np
import pytest

import relaxvm
from relaxvm import ir, relax
from relaxvm.relax.training.optimizer import SGD, Adam, MomentumSGD, Optimizer
from relaxvm.script import from_source

SHAPES = {"x": (3, 4), "y": (3,)}


def variables(dtype: str = "float64") -> list[relax.Var]:
    return [relax.Var(name, relax.TensorType(shape, dtype)) for name, shape in SHAPES.items()]


def sgd(p, g, s, t, lr=0.1, weight_decay=0.0):
    return p - lr * (g + weight_decay * p), s


def momentum_sgd(p, g, s, t, lr, momentum, dampening=0.0, weight_decay=0.0, nesterov=False):
    g = g + weight_decay * p
    v = momentum * s.get("v", 0.0) + (1 - dampening) * g
    return p - lr * (g + momentum * v if nesterov else v), {"v": v}


def adam(p, g, s, t, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    g = g + weight_decay * p
    m = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    v = betas[1] * s.get("v", 0.0) + (1 - betas[1]) * g * g
    m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
    return p - lr * m_hat / (np.sqrt(v_hat) + eps), {"m": m, "v": v}


CASES = {
    "sgd": (SGD, sgd, {"lr": 0.1}),
    "sgd_with_decay": (SGD, sgd, {"lr": 0.1, "weight_decay": 0.02}),
    "momentum": (MomentumSGD, momentum_sgd, {"lr": 0.1, "momentum": 0.9}),
    "momentum_dampened": (
        MomentumSGD,
        momentum_sgd,
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.85, "weight_decay": 0.02},
    ),
    "nesterov": (MomentumSGD, momentum_sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": (Adam, adam, {"lr": 0.1}),
    "adam_with_all": (
        Adam,
        adam,
        {"lr": 0.1, "betas": (0.8, 0.85), "eps": 1e-3, "weight_decay": 0.1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_numpy(name):
    cls, rule, options = CASES[name]
    optimizer = cls(**options).init(variables())
    mod = relaxvm.IRModule({"step": optimizer.get_function().with_attr("global_symbol", "step")})
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    rng = np.random.default_rng(2)
    expected = [rng.normal(size=shape) for shape in SHAPES.values()]
    slots = [{} for _ in expected]
    params = tuple(relaxvm.runtime.tensor(p) for p in expected)
    states = optimizer.state
    for step in range(1, 4):
        grads = [rng.normal(size=p.shape) for p in expected]
        for i, grad in enumerate(grads):
            expected[i], slots[i] = rule(expected[i], grad, slots[i], step, **options)
        grads = tuple(relaxvm.runtime.tensor(g) for g in grads)
        params, states = vm["step"](tuple(params), grads, tuple(states))
        for param, want in zip(params, expected):
            np.testing.assert_allclose(param.numpy(), want)
        assert int(states[0].numpy()) == step


def test_a_step_as_a_function():
    """The step counter first; weight decay adds to the gradient; constants have the parameters' type."""
    text = """
    from relaxvm.script import relax as R

    @R.function
    def MomentumSGD(
        params: R.Tuple(R.Tensor((3,), "float16")),
        gradients: R.Tuple(R.Tensor((3,), "float16")),
        optim_states: R.Tuple(R.Tensor((), "int64"), R.Tensor((3,), "float16")),
    ):
        with R.dataflow():
            num_steps = optim_states[0]
            num_steps_new = R.add(num_steps, R.const(1, "int64"))
            y = params[0]
            y_grad = gradients[0]
            y_v = optim_states[1]
            lv = R.multiply(R.const(0.02, "float16"), y)
            y_grad_new = R.add(lv, y_grad)
            lv1 = R.multiply(R.const(0.5, "float16"), y_v)
            lv2 = R.multiply(R.const(0.1, "float16"), y_grad_new)
            y_v_new = R.add(lv1, lv2)
            lv3 = R.multiply(R.const(0.01, "float16"), y_v_new)
            y_new = R.subtract(y, lv3)
            params_new = (y_new,)
            optim_states_new = (num_steps_new, y_v_new)
            R.output(params_new, optim_states_new)
        return (params_new, optim_states_new)
    """
    expected = from_source(textwrap.dedent(text))
    optimizer = MomentumSGD(0.01, 0.5, dampening=0.9, weight_decay=0.02)
    ir.assert_structural_equal(optimizer.init(variables("float16")[1]).get_function(), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_states_to_begin_with(dtype):
    states = Adam(0.1).init(variables(dtype)).state
    assert [s.shape for s in states] == [(), (), (), (3, 4), (3,), (3, 4), (3,)]
    assert [str(s.dtype) for s in states] == ["int64"] + [dtype] * 6
    assert [float(np.sum(s.numpy())) for s in states] == [0, 1, 1, 0, 0, 0, 0]


def test_a_constant_is_one_minus_the_written_number():
    """1 - 0.9 in binary is 0.09999999999999998."""
    text = Adam(0.1).init(variables()).get_function().script()
    assert 'R.const(0.1, "float64")' in text and "0.0999" not in text


def test_sgd_takes_symbolic_sizes():
    n = relaxvm.tirx.Var("n", "int64")
    step = SGD(0.1).init(relax.Var("x", relax.TensorType((n, 4), "float32"))).get_function()
    assert "R.subtract(x, lv)" in step.script()


def test_init_again_starts_afresh():
    optimizer = SGD(0.1).init(variables())
    (x, _) = variables("float32")
    optimizer.init(x)
    assert optimizer.param_list == [x] and str(optimizer.dtype) == "float32"


N = relaxvm.tirx.Var("n", "int64")
ERRORS = {
    "x appears more than once": lambda v: [v[0], v[0]],
    "must be of a floating-point type, not int64": lambda v: variables("int64"),
    "all parameters must have one element type": lambda v: [v[0], variables("float32")[1]],
    "is no variable": lambda v: [3],
    "t must be a tensor": lambda v: [relax.Var("t", relax.TupleType([v[0].ty]))],
    "needs a shape of known numbers": lambda v: [
        relax.Var("s", relax.TensorType((N, 4), "float32"))
    ],
}


@pytest.mark.parametrize("message", ERRORS)
def test_parameters_that_are_refused(message):
    with pytest.raises(ValueError, match=message):
        Adam(0.1).init(ERRORS[message](variables()))


@pytest.mark.parametrize("params", [None, []])
def test_a_step_needs_parameters(params):
    optimizer = SGD(0.1) if params is None else SGD(0.1).init(params)
    with pytest.raises(RuntimeError, match="call init"):
        optimizer.get_function()


def test_an_optimizer_of_its_own_says_how_it_steps():
    with pytest.raises(NotImplementedError):
        Optimizer("mine").init(variables()).get_function()
