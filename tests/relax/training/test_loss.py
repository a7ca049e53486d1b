# SPDX-License-Identifier: Apache-2.0
"""Losses: the value of each against NumPy, and what they are not taken of."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax.training.loss import (
    CategoricalCrossEntropyLoss,
    CrossEntropyLoss,
    L1Loss,
    Loss,
    MSELoss,
)

BATCH, CLASSES = 4, 5
REDUCTIONS = {"mean": np.mean, "sum": np.sum, "none": lambda x: x}
rng = np.random.default_rng(11)
LOGITS = rng.normal(size=(BATCH, CLASSES))
TARGETS = np.array([3, 0, 2, 3])
WEIGHTS = rng.uniform(0.5, 2.0, CLASSES)


def tensor_type(array: np.ndarray) -> relax.TensorType:
    return relax.TensorType(array.shape, str(array.dtype))


def value(loss: Loss, *args: np.ndarray) -> np.ndarray:
    function = loss(*map(tensor_type, args))
    mod = relaxvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    return vm["main"](*map(relaxvm.runtime.tensor, args)).numpy()


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_l1_loss(reduction):
    targets = rng.normal(size=LOGITS.shape)
    expected = REDUCTIONS[reduction](np.abs(LOGITS - targets))
    np.testing.assert_allclose(value(L1Loss(reduction), LOGITS, targets), expected)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_mse_loss(reduction):
    targets = rng.normal(size=LOGITS.shape)
    expected = REDUCTIONS[reduction]((LOGITS - targets) ** 2)
    np.testing.assert_allclose(value(MSELoss(reduction), LOGITS, targets), expected)


def cross_entropy(logits, targets, weights, reduction, ignore):
    """Classes are axis 1; 'mean' divides by the weights that count."""
    logp = log_softmax(logits, 1)
    picked = np.take_along_axis(logp, np.expand_dims(targets, 1), 1).squeeze(1)
    scale = np.where(targets == ignore, 0.0, weights[targets])
    losses = -picked * scale
    return losses.sum() / scale.sum() if reduction == "mean" else REDUCTIONS[reduction](losses)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore", [-100, 3])
def test_cross_entropy_loss(reduction, weighted, ignore):
    weights = WEIGHTS if weighted else np.ones(CLASSES)
    args = [LOGITS, TARGETS] + ([weights] if weighted else [])
    result = value(CrossEntropyLoss(reduction, ignore), *args)
    expected = cross_entropy(LOGITS, TARGETS, weights, reduction, ignore)
    np.testing.assert_allclose(result, expected)


def test_cross_entropy_loss_of_images_takes_classes_from_axis_1():
    logits, targets = rng.normal(size=(2, 3, 4, 5)), rng.integers(0, 3, (2, 4, 5))
    expected = cross_entropy(logits, targets, np.ones(3), "mean", -100)
    np.testing.assert_allclose(value(CrossEntropyLoss(), logits, targets), expected)


def test_cross_entropy_loss_without_a_batch():
    result = value(CrossEntropyLoss(), LOGITS[0], np.array(2))
    np.testing.assert_allclose(result, -log_softmax(LOGITS[0], 0)[2])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_categorical_cross_entropy_loss(reduction, weighted):
    weights = WEIGHTS if weighted else np.ones(CLASSES)
    args = [LOGITS, np.eye(CLASSES, dtype="int64")[TARGETS]] + ([weights] if weighted else [])
    losses = -log_softmax(LOGITS, 1) * args[1] * weights
    result = value(CategoricalCrossEntropyLoss(reduction), *args)
    np.testing.assert_allclose(result, REDUCTIONS[reduction](losses))


@pytest.mark.parametrize("shape", [(BATCH, CLASSES), (2, CLASSES, 3, 4)])
def test_categorical_cross_entropy_loss_that_ignores_a_class(shape):
    logits = rng.normal(size=shape)
    classes = rng.integers(0, CLASSES, (shape[0], *shape[2:]))
    chosen = np.moveaxis(np.eye(CLASSES, dtype="int64")[classes], -1, 1)
    result = value(CategoricalCrossEntropyLoss(ignore_index=3), logits, chosen, WEIGHTS)
    np.testing.assert_allclose(result, cross_entropy(logits, classes, WEIGHTS, "mean", 3))


def test_categorical_cross_entropy_loss_weighs_the_classes_of_images():
    logits = rng.normal(size=(2, 3, 4, 5))
    chosen = np.moveaxis(np.eye(3, dtype="int64")[rng.integers(0, 3, (2, 4, 5))], -1, 1)
    weights = WEIGHTS[:3]
    losses = -log_softmax(logits, 1) * chosen * weights.reshape(3, 1, 1)
    result = value(CategoricalCrossEntropyLoss("sum"), logits, chosen, weights)
    np.testing.assert_allclose(result, losses.sum())


def test_categorical_cross_entropy_loss_without_a_batch():
    chosen = np.eye(CLASSES, dtype="int64")[2]
    result = value(CategoricalCrossEntropyLoss("sum", 0), LOGITS[0], chosen)
    np.testing.assert_allclose(result, -log_softmax(LOGITS[0], 0)[2])


def test_variables_give_the_parameters_their_names_and_types():
    a, b = (relax.Var(name, tensor_type(LOGITS)) for name in "ab")
    params = MSELoss()(a, b).params
    assert [p.name for p in params] == ["a", "b"] and not params[0].same_as(a)


def test_a_loss_takes_symbolic_sizes():
    n = relaxvm.tirx.Var("n", "int64")
    function = MSELoss()(*[relax.TensorType((n, 3), "float32")] * 2)
    assert function.ret_ty.ndim == 0


def test_an_unknown_reduction_is_an_error():
    with pytest.raises(ValueError, match="reduction must be"):
        L1Loss("average")


def test_what_is_no_type_is_an_error():
    with pytest.raises(TypeError, match="targets must be a variable or a type"):
        L1Loss()(tensor_type(LOGITS), LOGITS)


def test_targets_of_the_categorical_loss_are_integers():
    with pytest.raises(TypeError, match="targets must be a tensor of integers"):
        CategoricalCrossEntropyLoss()(tensor_type(LOGITS), tensor_type(LOGITS))


def test_a_loss_of_its_own_says_how_it_is_computed():
    with pytest.raises(NotImplementedError):
        Loss("mine", 1)(tensor_type(LOGITS))
