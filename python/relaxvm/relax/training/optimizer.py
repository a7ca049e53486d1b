# SPDX-License-Identifier: Apache-2.0
"""Optimizers: each is a Relax function (params, gradients, states) -> (new params, new states)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from ... import runtime
from ...ir.expr import Expr, IntImm, Var
from ...ir.type import TupleType
from .. import op
from ..block_builder import BlockBuilder
from ..expr import Function, ShapeExpr, Tuple, TupleGetItem, const
from ..type import TensorType

_op: Any = op  # its functions are made from the table of operators


def _complement(x: float) -> float:
    """1 - x as it is written in decimal: of 0.9 it is 0.1, not 0.09999999999999998."""
    return float(Decimal(1) - Decimal(str(x)))


def _static_shape(var: Var) -> list[int]:
    shape = var.ty.shape
    if not isinstance(shape, ShapeExpr) or not all(isinstance(d, IntImm) for d in shape.values):
        raise ValueError(
            f"parameter {var.name} is {var.ty}, but a state of its own needs a shape of known numbers"
        )
    return [int(d) for d in shape.values]


def _zeros(shape: Sequence[int], dtype: str) -> Any:
    values = runtime.empty(shape, dtype)
    return values.copyfrom(np.zeros(list(shape)))


class Optimizer:
    """What optimizers have in common.

    `init(params)` says what is optimized, `get_function()` gives the step as a function of three tuples,
    and `state` holds the values of the states before the first step. The states are the number of steps
    (int64), then `_PRODUCTS` scalars, then for each name in `_SLOTS` a tensor like each parameter."""

    _PRODUCTS: tuple[str, ...] = ()
    _SLOTS: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name
        self.param_list: list[Var] | None = None
        self.state: Any = None
        self.dtype: Any = None

    def init(self, params: Var | list[Var]) -> Optimizer:
        """Says which parameters are optimized, and makes the states for them.

        params: tensors of one floating-point type. Raises ValueError when they are not, and when one is
        there twice or has sizes that a state needs and that are not known."""
        self._set_params_and_dtype([params] if isinstance(params, Var) else list(params))
        assert self.param_list is not None
        dtype = str(self.dtype)
        state = [runtime.tensor(np.array(0, "int64"))]
        for _ in self._PRODUCTS:
            state.append(runtime.empty((), dtype).copyfrom(np.ones(())))
        for _ in self._SLOTS:
            state += [_zeros(_static_shape(p), dtype) for p in self.param_list]
        self.state = tuple(state)
        return self

    def _set_params_and_dtype(self, params: list[Var]) -> None:
        seen: list[Var] = []
        dtype = None
        for param in params:
            if not isinstance(param, Var):
                raise ValueError(f"parameter {param} is no variable")
            if any(param.same_as(other) for other in seen):
                raise ValueError(f"parameter {param.name} appears more than once")
            seen.append(param)
            if not isinstance(param.ty, TensorType):
                raise ValueError(f"parameter {param.name} must be a tensor, not {param.ty}")
            if not str(param.ty.dtype).startswith(("float", "bfloat")):
                raise ValueError(
                    f"parameter {param.name} must be of a floating-point type, not {param.ty.dtype}"
                )
            if dtype is not None and dtype != param.ty.dtype:
                raise ValueError(
                    "all parameters must have one element type, but "
                    f"{param.name} has {param.ty.dtype} and those before it {dtype}"
                )
            dtype = param.ty.dtype
        self.param_list, self.dtype = params, dtype

    def _const(self, value: float) -> Expr:
        return const(value, self.dtype)

    def get_function(self) -> Function:
        """The step: params, gradients and states to new params and new states, called `name`.

        Raises RuntimeError when there are no parameters yet."""
        if not self.param_list:
            raise RuntimeError(
                f"{self.name}: call init() with the parameters before get_function()"
            )
        params = Var("params", TupleType([p.ty for p in self.param_list]))
        grads = Var("gradients", params.ty)
        states = Var("optim_states", TupleType(self._state_types()))
        builder = BlockBuilder()
        with builder.function(self.name, [params, grads, states]):
            with builder.dataflow():
                new_params, new_states = self._step(builder, params, grads, states)
                results = [
                    builder.emit_output(Tuple(new_params), "params_new"),
                    builder.emit_output(Tuple(new_states), "optim_states_new"),
                ]
            builder.emit_func_output(Tuple(results))
        function = builder.get()[self.name]
        assert isinstance(function, Function)
        return function

    def _state_types(self) -> list[TensorType]:
        assert self.param_list is not None
        types = [TensorType((), "int64")]
        types += [TensorType((), self.dtype) for _ in self._PRODUCTS]
        return types + [p.ty for _ in self._SLOTS for p in self.param_list]

    def _step(
        self, builder: BlockBuilder, params: Var, grads: Var, states: Var
    ) -> tuple[list[Var], list[Var]]:
        assert self.param_list is not None
        count, first = len(self.param_list), 1 + len(self._PRODUCTS)
        steps = builder.emit(TupleGetItem(states, 0), "num_steps")
        new_states = [builder.emit(_op.add(steps, const(1, "int64")), "num_steps_new")]
        products = self._products(builder, states)
        new_params: list[Var] = []
        new_slots: list[list[Var]] = [[] for _ in self._SLOTS]
        for i, param in enumerate(self.param_list):
            name = param.name
            value = builder.emit(TupleGetItem(params, i), name)
            grad = builder.emit(TupleGetItem(grads, i), name + "_grad")
            slots = [
                builder.emit(TupleGetItem(states, first + s * count + i), f"{name}_{slot}")
                for s, slot in enumerate(self._SLOTS)
            ]
            decay = getattr(self, "weight_decay", 0.0)
            if decay:
                decayed = _op.add(_op.multiply(self._const(decay), value), grad)
                grad = builder.emit(decayed, name + "_grad_new")
            direction, slots = self._direction(builder, name, grad, slots, products)
            lr = self._const(self.lr)
            new = _op.subtract(value, _op.multiply(lr, direction))
            new_params.append(builder.emit(new, name + "_new"))
            for s, slot in enumerate(slots):
                new_slots[s].append(slot)
        return new_params, new_states + products + [v for slot in new_slots for v in slot]

    def _products(self, builder: BlockBuilder, states: Var) -> list[Var]:
        """The new values of the scalars that all parameters share."""
        return []

    def _direction(
        self, builder: BlockBuilder, name: str, grad: Var, slots: list[Var], products: list[Var]
    ) -> tuple[Expr, list[Var]]:
        """What the learning rate scales, and the new states of one parameter."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it steps")


class SGD(Optimizer):
    """Gradient descent: p -= lr * g, where g is the gradient plus weight_decay * p."""

    def __init__(self, lr: float, weight_decay: float = 0) -> None:
        super().__init__("SGD")
        self.lr, self.weight_decay = float(lr), float(weight_decay)

    def _direction(
        self, builder: BlockBuilder, name: str, grad: Var, slots: list[Var], products: list[Var]
    ) -> tuple[Expr, list[Var]]:
        return grad, slots


class MomentumSGD(Optimizer):
    """Gradient descent with momentum: v = momentum * v + (1 - dampening) * g; p -= lr * v.

    g is the gradient plus weight_decay * p; with `nesterov`, p -= lr * (g + momentum * v). v starts at 0."""

    _SLOTS = ("v",)

    def __init__(
        self,
        lr: float,
        momentum: float,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
    ) -> None:
        super().__init__("MomentumSGD")
        self.lr, self.momentum = float(lr), float(momentum)
        self.weight_decay, self.dampening = float(weight_decay), float(dampening)
        self.nesterov = nesterov

    def _direction(
        self, builder: BlockBuilder, name: str, grad: Var, slots: list[Var], products: list[Var]
    ) -> tuple[Expr, list[Var]]:
        momentum = self._const(self.momentum)
        kept = _op.multiply(momentum, slots[0])
        taken: Expr = grad
        if self.dampening:
            taken = _op.multiply(self._const(_complement(self.dampening)), grad)
        v = builder.emit(_op.add(kept, taken), name + "_v_new")
        if not self.nesterov:
            return v, [v]
        ahead = builder.emit(_op.add(grad, _op.multiply(momentum, v)), name + "_g_nest")
        return ahead, [v]


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015): steps along the mean gradient over the root of its mean square.

    m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * g * g; after t steps
    p -= lr * (m / (1 - b1**t)) / (sqrt(v / (1 - b2**t)) + eps), where g is the gradient plus
    weight_decay * p. m and v start at 0."""

    _PRODUCTS = ("beta1_prod", "beta2_prod")
    _SLOTS = ("m", "v")

    def __init__(
        self,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0,
    ) -> None:
        super().__init__("Adam")
        self.lr, self.beta1, self.beta2 = float(lr), float(betas[0]), float(betas[1])
        self.eps, self.weight_decay = float(eps), float(weight_decay)

    def _products(self, builder: BlockBuilder, states: Var) -> list[Var]:
        betas = (self.beta1, self.beta2)
        return [
            builder.emit(_op.multiply(TupleGetItem(states, i + 1), self._const(betas[i])), name)
            for i, name in enumerate(self._PRODUCTS)
        ]

    def _mean(self, beta: float, old: Var, value: Expr) -> Expr:
        kept = _op.multiply(self._const(beta), old)
        return _op.add(kept, _op.multiply(self._const(_complement(beta)), value))

    def _direction(
        self, builder: BlockBuilder, name: str, grad: Var, slots: list[Var], products: list[Var]
    ) -> tuple[Expr, list[Var]]:
        m = builder.emit(self._mean(self.beta1, slots[0], grad), name + "_m_new")
        square = _op.multiply(grad, grad)
        v = builder.emit(self._mean(self.beta2, slots[1], square), name + "_v_new")
        one = self._const(1.0)
        m_hat = builder.emit(_op.divide(m, _op.subtract(one, products[0])), name + "_m_hat")
        v_hat = builder.emit(_op.divide(v, _op.subtract(one, products[1])), name + "_v_hat")
        root = _op.add(_op.sqrt(v_hat), self._const(self.eps))
        return _op.divide(m_hat, root), [m, v]
