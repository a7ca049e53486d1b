# SPDX-License-Identifier: Apache-2.0
"""What scikit-learn and its kin export (domain ai.onnx.ml): linear models, trees, vector machines, scaling."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx import TensorProto
from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op

_ML = "ai.onnx.ml"


def _matrix(g: Graph, x: Any) -> Any:
    """`x` as floats [rows, features]; a vector is one row."""
    x = x if g.dtype(x) == "float32" else g.emit(op.astype(x, "float32"))
    if g.rank(x) == 1:
        return g.emit(op.expand_dims(x, axis=[0]))
    if g.rank(x) != 2:
        raise UnsupportedModel("its input must be a matrix")
    return x


def _floats(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32)


def _finished(g: Graph, scores: Any, transform: str) -> Any:
    """What `post_transform` makes of scores [rows, classes]."""
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return g.emit(op.sigmoid(scores))
    if transform == "SOFTMAX":
        return g.emit(op.nn.softmax(scores, axis=-1))
    if transform == "SOFTMAX_ZERO":  # scores of 0 stay
        zero = g.scalar(0.0, scores)
        soft = g.emit(op.nn.softmax(scores, axis=-1))
        return g.emit(op.where(op.equal(scores, zero), zero, soft))
    raise UnsupportedModel(f"post_transform '{transform}' is not supported")


def _labels(g: Graph, best: Any, labels: list[int]) -> Any:
    """The labels of indices of classes."""
    if labels == list(range(len(labels))):
        return best
    return g.emit(op.take(g.constant(labels, "int64"), best, axis=0))


def _classes(g: Graph, ints: list[int] | None, texts: list[str] | None) -> list[int]:
    """The labels of a classifier, whose first output has their type."""
    if bool(ints) == bool(texts):
        raise InvalidModel("it needs labels that are numbers, or labels that are texts")
    if ints:
        return ints
    g.set_output_type(0, TensorProto.STRING)
    return g.texts.places(texts).tolist()


def _two_columns(g: Graph, first: Any, second: Any) -> Any:
    return g.emit(op.concat([first, second], axis=1))


# ---- scaling


@onnx_op("Scaler", since=1, domain=_ML)
def scaler(
    g: Graph, x: Expr, *, offset: list[float] | None = None, scale: list[float] | None = None
) -> Expr:
    x = x if g.dtype(x).startswith("float") else g.emit(op.astype(x, "float32"))
    dtype = g.dtype(x)
    if offset:
        x = g.emit(op.subtract(x, g.constant(offset if len(offset) > 1 else offset[0], dtype)))
    return op.multiply(x, g.constant(scale if len(scale) > 1 else scale[0], dtype)) if scale else x


@onnx_op("Normalizer", since=1, domain=_ML)
def normalizer(g: Graph, x: Expr, *, norm: str = "MAX") -> Expr:
    x = _matrix(g, x)
    if norm == "MAX":
        size = g.emit(op.max(x, axis=[1], keepdims=True))
    elif norm == "L1":
        size = g.emit(op.sum(op.abs(x), axis=[1], keepdims=True))
    elif norm == "L2":
        size = g.emit(op.sqrt(op.sum(op.multiply(x, x), axis=[1], keepdims=True)))
    else:
        raise InvalidModel(f"norm '{norm}' is unknown")
    zero = g.constant(0.0, "float32")
    return op.where(op.equal(size, zero), x, op.divide(x, size))


@onnx_op("Imputer", since=1, domain=_ML)
def imputer(
    g: Graph,
    x: Expr,
    *,
    imputed_value_floats: list[float] | None = None,
    imputed_value_int64s: list[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Expr:
    dtype = g.dtype(x)
    real = dtype.startswith("float")
    values = imputed_value_floats if real else imputed_value_int64s
    if not values:
        raise InvalidModel("it has no values to put in")
    wanted = g.constant(values if len(values) > 1 else values[0], dtype)
    if real and np.isnan(replaced_value_float):
        missing = op.isnan(x)
    else:
        missing = op.equal(x, g.scalar(replaced_value_float if real else replaced_value_int64, x))
    return op.where(missing, wanted, x)


@onnx_op("FeatureVectorizer", since=1, domain=_ML)
def feature_vectorizer(g: Graph, *parts: Expr, inputdimensions: list[int] | None = None) -> Expr:
    parts = [_matrix(g, p) for p in parts]
    return op.concat(parts, axis=1) if len(parts) > 1 else parts[0]


@onnx_op("OneHotEncoder", since=1, domain=_ML)
def one_hot_encoder(
    g: Graph,
    x: Expr,
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    zeros: int = 1,
) -> Expr:
    if not zeros:
        raise UnsupportedModel("an error for unknown categories (zeros=0) is not supported")
    if not (cats_strings if g.is_text(0) else cats_int64s):
        raise InvalidModel("it has no categories of its input's type")
    categories = g.constant(g.texts.places(cats_strings) if g.is_text(0) else cats_int64s, "int64")
    wide = x if g.dtype(x) == "int64" else g.emit(op.astype(x, "int64"))
    deep = g.emit(op.expand_dims(wide, axis=[-1]))
    return op.astype(op.equal(deep, categories), "float32")


_ENCODED = {"int64": "int64", "float": "float32", "tensor": None}


@onnx_op("LabelEncoder", since=2, domain=_ML)
def label_encoder(
    g: Graph,
    x: Expr,
    *,
    keys_int64s: list[int] | None = None,
    keys_floats: list[float] | None = None,
    keys_strings: list[str] | None = None,
    keys_tensor: np.ndarray | None = None,
    values_int64s: list[int] | None = None,
    values_floats: list[float] | None = None,
    values_strings: list[str] | None = None,
    values_tensor: np.ndarray | None = None,
    default_int64: int = -1,
    default_float: float = -0.0,
    default_string: str = "_Unused",
    default_tensor: np.ndarray | None = None,
) -> Expr:
    given = {a.name: a.t.data_type for a in g.node.attribute}
    if g.is_text(0) != bool(keys_strings or given.get("keys_tensor") == TensorProto.STRING):
        raise InvalidModel("its keys are not of its input's type")
    keys = _first_array(
        (keys_int64s, "int64"),
        (keys_floats, "float32"),
        (g.texts.places(keys_strings or []), None),
        (keys_tensor, None),
    )
    values = _first_array(
        (values_int64s, "int64"),
        (values_floats, "float32"),
        (g.texts.places(values_strings or []), None),
        (values_tensor, None),
    )
    if keys.shape != values.shape:
        raise InvalidModel(f"{keys.size} keys have {values.size} values")
    default = default_int64 if values.dtype == np.int64 else default_float
    if values_strings or given.get("values_tensor") == TensorProto.STRING:
        g.set_output_type(0, TensorProto.STRING)
        default = g.texts.place(default_string)
    default = default if default_tensor is None else default_tensor.reshape(-1)[0]
    # Keys in order: their place is found by halving.
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    place = g.emit(op.bucketize(x, g.constant(keys), out_int32=False, right=False))
    place = g.emit(op.minimum(place, g.constant(len(keys) - 1, "int64")))
    found = op.equal(op.take(g.constant(keys), place, axis=0), x)
    taken = op.take(g.constant(values), place, axis=0)
    return op.where(found, taken, g.constant(default, values.dtype))


def _first_array(*candidates: tuple[Any, str | None]) -> np.ndarray:
    for values, dtype in candidates:
        if values is not None and len(values):
            return np.asarray(values, dtype).reshape(-1)
    raise InvalidModel("it has no keys or no values")


# ---- linear models


@onnx_op("LinearRegressor", since=1, domain=_ML)
def linear_regressor(
    g: Graph,
    x: Expr,
    *,
    coefficients: list[float] | None = None,
    intercepts: list[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Expr:
    weight = _floats(coefficients or []).reshape(targets, -1)
    y = g.emit(op.matmul(_matrix(g, x), g.constant(np.ascontiguousarray(weight.T))))
    if intercepts:
        y = g.emit(op.add(y, g.constant(intercepts, "float32")))
    return _finished(g, y, post_transform)


@onnx_op("LinearClassifier", since=1, domain=_ML)
def linear_classifier(
    g: Graph,
    x: Expr,
    *,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple:
    labels = _classes(g, classlabels_ints, classlabels_strings)
    rows = len(intercepts) if intercepts else len(labels)
    weight = _floats(coefficients).reshape(rows, -1)
    scores = g.emit(op.matmul(_matrix(g, x), g.constant(np.ascontiguousarray(weight.T))))
    if intercepts:
        scores = g.emit(op.add(scores, g.constant(intercepts, "float32")))
    if rows == 1 and len(labels) == 2:
        negated = g.emit(op.negative(scores))
        if post_transform == "LOGISTIC":
            negated = g.emit(op.subtract(g.constant(1.0, "float32"), op.sigmoid(scores)))
            both = _two_columns(g, negated, g.emit(op.sigmoid(scores)))
        else:
            both = _finished(g, _two_columns(g, negated, scores), post_transform)
        positive = g.emit(op.astype(op.greater(scores, g.constant(0.0, "float32")), "int64"))
        return _labels(g, g.emit(op.squeeze(positive, axis=[1])), labels), both
    best = g.emit(op.argmax(scores, axis=1, keepdims=False))
    return _labels(g, best, labels), _finished(g, scores, post_transform)


@onnx_op("ZipMap", since=1, domain=_ML)
def zip_map(
    g: Graph,
    x: Expr,
    *,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
) -> Expr:
    """[rows, classes] as it is: `InferenceSession.run` makes a dictionary of each row."""
    labels = classlabels_int64s or classlabels_strings
    if not labels or (classlabels_int64s and classlabels_strings):
        raise InvalidModel("one of classlabels_int64s and classlabels_strings is needed")
    if g.node.output[0] not in [o.name for o in g.model.proto.graph.output]:
        raise UnsupportedModel("its dictionaries must be an output of the model")
    x = _matrix(g, x)
    return g.checked(x, [g.shape(x)[0], len(labels)])
