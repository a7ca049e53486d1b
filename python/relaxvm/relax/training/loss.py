# SPDX-License-Identifier: Apache-2.0
"""Losses: calling one with the types of its arguments gives a Relax function of one dataflow block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ...ir.expr import Expr, Var
from ...ir.type import Type
from .. import op
from ..block_builder import BlockBuilder
from ..expr import Function, ShapeExpr
from ..type import TensorType

_op: Any = op  # its functions are made from the table of operators
Reduction = Literal["mean", "sum", "none"]


def _param(given: Var | Type, name: str) -> Var:
    """A parameter of the loss: of a given type, or like a given variable."""
    if isinstance(given, Var):
        return Var(given.name, given.ty)
    if isinstance(given, Type):
        return Var(name, given)
    raise TypeError(f"{name} must be a variable or a type, not {type(given).__name__}")


def _build(name: str, params: list[Var], body: Callable[[BlockBuilder], Expr]) -> Function:
    """The function called `name` that gives what `body` emits into one dataflow block."""
    builder = BlockBuilder()
    with builder.function(name, params):
        with builder.dataflow():
            result = builder.emit_output(body(builder))
        builder.emit_func_output(result)
    function = builder.get()[name]
    assert isinstance(function, Function)
    return function


class Loss:
    """What losses have in common: a name, how many results of the backbone they take, a reduction."""

    def __init__(
        self, loss_name: str, num_backbone_outputs: int, reduction: Reduction = "mean"
    ) -> None:
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
        self._loss_name = loss_name
        self._reduction = reduction
        self._num_backbone_outputs = num_backbone_outputs

    @property
    def num_backbone_outputs(self) -> int:
        """How many of the function's first parameters are results of the backbone."""
        return self._num_backbone_outputs

    def __call__(self, *args: Any) -> Function:
        """The loss as a function; subclasses say of what."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is computed")

    def _with_reduction(self, expr: Expr) -> Expr:
        if self._reduction == "none":
            return expr
        return (_op.mean if self._reduction == "mean" else _op.sum)(expr)


class L1Loss(Loss):
    """The absolute difference of predictions and targets.

    Both are tensors of one floating-point type whose shapes broadcast; the result is a scalar, or has
    their shape for the reduction 'none'."""

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__("l1_loss", 1, reduction)

    def __call__(self, predictions: Var | Type, targets: Var | Type) -> Function:
        x, t = _param(predictions, "predictions"), _param(targets, "targets")

        def body(builder: BlockBuilder) -> Expr:
            difference = builder.emit(_op.subtract(x, t))
            return self._with_reduction(_op.abs(difference))

        return _build(self._loss_name, [x, t], body)


class MSELoss(Loss):
    """The squared difference of predictions and targets.

    Both are tensors of one floating-point type whose shapes broadcast; the result is a scalar, or has
    their shape for the reduction 'none'."""

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__("mse_loss", 1, reduction)

    def __call__(self, predictions: Var | Type, targets: Var | Type) -> Function:
        x, t = _param(predictions, "predictions"), _param(targets, "targets")

        def body(builder: BlockBuilder) -> Expr:
            difference = builder.emit(_op.subtract(x, t))
            return self._with_reduction(_op.multiply(difference, difference))

        return _build(self._loss_name, [x, t], body)


def _rank(x: Var) -> int:
    if not isinstance(x.ty, TensorType) or x.ty.ndim < 1:
        raise TypeError(f"{x.name} must be a tensor of known rank, at least 1, not {x.ty}")
    return x.ty.ndim


class _ClassLoss(Loss):
    """Losses of logits [batch, classes, ...] or [classes]."""

    def __init__(self, name: str, reduction: Reduction, ignore_index: int) -> None:
        super().__init__(name, 1, reduction)
        self.ignore_index = ignore_index

    def _log_softmax(self, builder: BlockBuilder, x: Var) -> Var:
        axis = -1 if _rank(x) <= 2 else 1
        return builder.emit(_op.nn.log_softmax(x, axis=axis))

    def _nll(self, logp: Expr, classes: Expr, weights: Var | None) -> Expr:
        return _op.nn.nll_loss(logp, classes, weights, self._reduction, self.ignore_index)


class CrossEntropyLoss(_ClassLoss):
    """-log(softmax(predictions))[targets], weighted by class.

    predictions: logits [batch, classes, ...] or [classes], floating-point; targets: classes, integers
    of predictions' shape without the axis of classes; weights: one for each class. A target equal to
    `ignore_index` does not count. 'mean' divides by the sum of the weights of what counts."""

    def __init__(self, reduction: Reduction = "mean", ignore_index: int = -100) -> None:
        super().__init__("cross_entropy_loss", reduction, ignore_index)

    def __call__(
        self, predictions: Var | Type, targets: Var | Type, weights: Var | Type | None = None
    ) -> Function:
        params = [_param(predictions, "predictions"), _param(targets, "targets")]
        if weights is not None:
            params.append(_param(weights, "weights"))

        def body(builder: BlockBuilder) -> Expr:
            logp = self._log_softmax(builder, params[0])
            return self._nll(logp, params[1], params[2] if weights is not None else None)

        return _build(self._loss_name, params, body)


class CategoricalCrossEntropyLoss(_ClassLoss):
    """-log(softmax(predictions)) * targets, weighted by class.

    predictions: logits [batch, classes, ...] or [classes], floating-point; targets: integers of the
    same shape, the chosen class 1 and the others 0; weights: one for each class. With an
    `ignore_index` of 0 or more, examples of that class do not count; the loss is then the
    CrossEntropyLoss of the chosen classes. Raises TypeError for targets that are no integers."""

    def __init__(self, reduction: Reduction = "mean", ignore_index: int = -100) -> None:
        super().__init__("categorical_cross_entropy_loss", reduction, ignore_index)

    def __call__(
        self, predictions: Var | Type, targets: Var | Type, weights: Var | Type | None = None
    ) -> Function:
        x, t = _param(predictions, "predictions"), _param(targets, "targets")
        w = None if weights is None else _param(weights, "weights")
        dtype = t.ty.dtype if isinstance(t.ty, TensorType) else None
        if "int" not in str(dtype):
            raise TypeError(f"targets must be a tensor of integers, not {t.ty}")

        def body(builder: BlockBuilder) -> Expr:
            logp = self._log_softmax(builder, x)
            if self.ignore_index >= 0:
                return self._nll(logp, _chosen(builder, t), w)
            return self._with_reduction(_weighted(builder, logp, x, t, w))

        return _build(self._loss_name, [x, t] if w is None else [x, t, w], body)


def _chosen(builder: BlockBuilder, targets: Var) -> Var:
    """The class of each example."""
    axis = min(_rank(targets) - 1, 1)
    if not isinstance(targets.ty.shape, ShapeExpr):
        raise TypeError(f"{targets.name} must be a tensor of known shape, not {targets.ty}")
    dims = list(targets.ty.shape.values)
    classes = builder.emit(_op.argmax(targets, axis))
    return builder.emit(_op.reshape(classes, dims[:axis] + dims[axis + 1 :]))


def _weighted(builder: BlockBuilder, logp: Var, x: Var, targets: Var, weights: Var | None) -> Var:
    """The loss of each element."""
    product = _op.multiply(_op.negative(logp), _op.astype(targets, x.ty.dtype))
    if weights is None:
        return builder.emit(product)
    if _rank(x) > 2:  # classes are axis 1: [classes, 1, ...] broadcasts with it
        return builder.emit(
            _op.multiply(product, _op.expand_dims(weights, list(range(1, _rank(x) - 1))))
        )
    return builder.emit(_op.multiply(product, weights))
