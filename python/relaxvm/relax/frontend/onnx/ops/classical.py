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
from ..scalars import is_symbolic

_ML = "ai.onnx.ml"


def _matrix(g: Graph, x: Any, features: int | None = None) -> Any:
    """`x` as floats [rows, features]; a vector is one row."""
    x = x if g.dtype(x) == "float32" else g.emit(op.astype(x, "float32"))
    if g.rank(x) == 1:
        x = g.emit(op.expand_dims(x, axis=[0]))
    if g.rank(x) != 2:
        raise UnsupportedModel("its input must be a matrix")
    return x if features is None else _of_width(g, x, features)


def _of_width(g: Graph, x: Any, width: int) -> Any:
    """`x` with a last dimension of `width`, checked at run time where the compiler cannot say."""
    *outer, have = g.shape(x)
    if not is_symbolic(have) and have != width:
        raise InvalidModel(f"its parameters are for {width} features, its input has {have}")
    return g.checked(x, [*outer, width])


def _floats(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32)


def _finished(g: Graph, scores: Any, transform: str) -> Any:
    """What `post_transform` makes of scores [rows, classes].

    A single score is no distribution: as in ONNX Runtime, PROBIT alone changes it.
    """
    if transform not in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"):
        raise InvalidModel(f"post_transform '{transform}' is unknown")
    if transform == "PROBIT":
        return _probit(g, scores)
    if transform == "NONE" or g.shape(scores)[-1] == 1:
        return scores
    if transform == "LOGISTIC":
        return g.emit(op.sigmoid(scores))
    if transform == "SOFTMAX":
        return g.emit(op.nn.softmax(scores, axis=-1))
    # Scores of 0 stay, and the others share the whole.
    zero = g.scalar(0.0, scores)
    top = g.emit(op.max(scores, axis=[1], keepdims=True))
    parts = g.emit(op.exp(g.emit(op.subtract(scores, top))))
    small = op.less_equal(op.abs(scores), g.scalar(1e-7, scores))
    parts = g.emit(op.where(g.emit(small), zero, parts))
    return g.emit(op.divide(parts, g.emit(op.sum(parts, axis=[1], keepdims=True))))


def _probit(g: Graph, p: Any) -> Any:
    """The quantile of a normal distribution, by the approximation of Winitzki that ONNX's reference takes."""
    number = lambda v: g.scalar(v, p)
    x = g.emit(op.subtract(op.multiply(p, number(2.0)), number(1.0)))
    log = g.emit(op.log(op.multiply(op.subtract(number(1.0), x), op.add(number(1.0), x))))
    half = op.multiply(log, number(0.5))
    first = g.emit(op.add(half, number(2 / (3.14159 * 0.147))))
    inner = op.subtract(op.multiply(first, first), op.multiply(log, number(1 / 0.147)))
    size = g.emit(op.sqrt(op.subtract(op.sqrt(g.emit(inner)), first)))
    signed = op.where(op.less(x, number(0.0)), op.negative(size), size)
    return g.emit(op.multiply(signed, number(2**0.5)))


def _pair(g: Graph, score: Any, whole: bool, transform: str) -> Any:
    """Two classes from the second one's score: the first one's is 1 - score where they make a whole."""
    if transform == "PROBIT":
        raise UnsupportedModel("post_transform 'PROBIT' of one score for two classes")
    negated = g.emit(op.negative(score))
    if transform == "LOGISTIC":
        return _two_columns(g, g.emit(op.sigmoid(negated)), g.emit(op.sigmoid(score)))
    first = g.emit(op.subtract(g.scalar(1.0, score), score)) if whole else negated
    return _two_columns(g, first, score)


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
    x = x if g.dtype(x) == "float32" else g.emit(op.astype(x, "float32"))
    for values, change in ((offset, op.subtract), (scale, op.multiply)):
        if values:
            x, numbers = _each_feature(g, x, values)
            x = g.emit(change(x, numbers))
    return x


def _each_feature(g: Graph, x: Any, values: list) -> tuple[Any, Any]:
    """`x` and numbers that belong to its features, or one for all."""
    if len(values) == 1:
        return x, g.scalar(values[0], x)
    return _of_width(g, x, len(values)), g.constant(values, g.dtype(x))


@onnx_op("Normalizer", since=1, domain=_ML)
def normalizer(g: Graph, x: Expr, *, norm: str = "MAX") -> Expr:
    shape = g.shape(x)
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
    return op.reshape(op.where(op.equal(size, zero), x, op.divide(x, size)), shape)


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
    x, wanted = _each_feature(g, x, values)
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
    default = g.constant(default, values.dtype)
    # NaN has no place in an order; before opset 4 it was a key that nothing equals.
    last = np.flatnonzero(keys != keys)
    if last.size and g.version >= 4:
        default = g.emit(op.where(op.isnan(x), g.constant(values[last[-1]]), default))
    keys, values = np.delete(keys, last), np.delete(values, last)
    return (
        _looked_up(g, x, keys, values, default)
        if keys.size
        else op.broadcast_to(default, g.shape(x))
    )


def _looked_up(g: Graph, x: Any, keys: np.ndarray, values: np.ndarray, default: Any) -> Any:
    """Keys in order: their place is found by halving."""
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    place = g.emit(op.bucketize(x, g.constant(keys), out_int32=False, right=False))
    place = g.emit(op.minimum(place, g.constant(len(keys) - 1, "int64")))
    found = op.equal(op.take(g.constant(keys), place, axis=0), x)
    return op.where(found, op.take(g.constant(values), place, axis=0), default)


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
    weight = _rows(coefficients or [], targets)
    x = _matrix(g, x, weight.shape[1])
    y = g.emit(op.matmul(x, g.constant(np.ascontiguousarray(weight.T))))
    if intercepts:
        y = g.emit(op.add(y, g.constant(_floats(intercepts).reshape(-1))))
    return _finished(g, y, post_transform)


def _rows(coefficients: list[float], rows: int) -> np.ndarray:
    weight = _floats(coefficients)
    if rows < 1 or not weight.size or weight.size % rows:
        raise InvalidModel(f"{weight.size} coefficients are not {rows} rows")
    return weight.reshape(rows, -1)


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
    x = _matrix(g, x)
    features = g.shape(x)[1]
    rows = len(intercepts) if intercepts else len(labels)
    if not intercepts and len(labels) == 2 and features == len(coefficients):
        rows = 1
    weight = _rows(coefficients, rows)
    x = _of_width(g, x, weight.shape[1])
    scores = g.emit(op.matmul(x, g.constant(np.ascontiguousarray(weight.T))))
    if intercepts:
        scores = g.emit(op.add(scores, g.constant(intercepts, "float32")))
    if rows == 1 and len(labels) == 2:
        positive = g.emit(op.astype(op.greater(scores, g.scalar(0.0, scores)), "int64"))
        best = g.emit(op.squeeze(positive, axis=[1]))
        return _labels(g, best, labels), _pair(g, scores, True, post_transform)
    if rows != len(labels):
        raise InvalidModel(f"it has {rows} intercepts for {len(labels)} classes")
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
