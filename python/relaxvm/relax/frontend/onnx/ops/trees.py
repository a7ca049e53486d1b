# SPDX-License-Identifier: Apache-2.0
"""Ensembles of decision trees (ai.onnx.ml).  All trees go down together, one step for each level.

A leaf points to itself, so that every tree may take as many steps as the deepest one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from .classical import _finished, _floats, _int_labels, _labels, _matrix, _two_columns

_ML = "ai.onnx.ml"
_COMPARE = {
    "BRANCH_LEQ": op.less_equal, "BRANCH_LT": op.less, "BRANCH_GTE": op.greater_equal,
    "BRANCH_GT": op.greater, "BRANCH_EQ": op.equal, "BRANCH_NEQ": op.not_equal,
}  # fmt: skip
_MODES = list(_COMPARE)  # as TreeEnsemble counts them
_AGGREGATES = ["AVERAGE", "SUM", "MIN", "MAX"]
_TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
_MAX_DEPTH = 256


@dataclasses.dataclass
class Forest:
    """The nodes of all trees in one list."""

    features: np.ndarray
    thresholds: np.ndarray
    true: np.ndarray
    false: np.ndarray
    missing_true: np.ndarray
    mode: str
    roots: np.ndarray
    depth: int
    places: dict[tuple[int, int], int]  # (tree, node) -> position

    @classmethod
    def of(cls, a: dict[str, Any]) -> Forest:
        trees, ids, modes = a["treeids"], a["nodeids"], a["modes"]
        if not trees or not len(trees) == len(ids) == len(modes) == len(a["values"]):
            raise InvalidModel("its lists of nodes differ in length")
        places = {key: i for i, key in enumerate(zip(trees, ids, strict=True))}
        leaf = np.array([m == "LEAF" for m in modes])
        kinds = {m for m in modes if m != "LEAF"}
        if len(kinds) > 1 or not kinds <= set(_COMPARE):
            raise UnsupportedModel(f"nodes of the kinds {', '.join(sorted(kinds))} in one ensemble")

        def children(name: str) -> np.ndarray:
            try:
                return np.array([
                    i if leaf[i] else places[trees[i], child] for i, child in enumerate(a[name])
                ])  # fmt: skip
            except KeyError as e:
                raise InvalidModel(f"there is no node {e}") from None

        true, false = children("truenodeids"), children("falsenodeids")
        pointed = {int(c) for cs in (true, false) for i, c in enumerate(cs) if not leaf[i]}
        roots = np.array([i for i in range(len(ids)) if i not in pointed])
        if len(roots) != len(set(trees)):
            raise InvalidModel("its nodes are not trees")
        tracks = a["missing_value_tracks_true"]
        missing = np.array(tracks if tracks else [0] * len(ids), bool)
        mode = next(iter(kinds), "BRANCH_LEQ")
        depth = _depth(roots, true, false, leaf)
        thresholds = _floats(np.where(leaf, 0, a["values"]))
        features = np.where(leaf, 0, a["featureids"])
        return cls(features, thresholds, true, false, missing, mode, roots, depth, places)

    def leaves(self, g: Graph, x: Any) -> Any:
        """Where every row ends in every tree: [rows, trees]."""
        table = lambda values: g.constant(values, "int64")
        rows = g.shape(x)[0]
        at = g.emit(op.broadcast_to(table(self.roots), [rows, len(self.roots)]))
        features, true, false = table(self.features), table(self.true), table(self.false)
        thresholds, tracks = g.constant(self.thresholds), self.missing_true.any()
        for _ in range(self.depth):
            value = g.emit(op.gather_elements(x, g.emit(op.take(features, at, axis=0)), axis=1))
            yes = g.emit(_COMPARE[self.mode](value, g.emit(op.take(thresholds, at, axis=0))))
            if tracks:
                missing = g.emit(op.take(g.constant(self.missing_true), at, axis=0))
                yes = g.emit(op.logical_or(yes, op.logical_and(op.isnan(value), missing)))
            at = g.emit(op.where(yes, op.take(true, at, axis=0), op.take(false, at, axis=0)))
        return at

    @classmethod
    def of_splits(cls, a: dict[str, Any], leaves: int, roots: list[int]) -> Forest:
        """Nodes and leaves are counted apart; in one list the leaves follow the nodes."""
        features, modes, splits = (np.asarray(a[k]) for k in ("featureids", "modes", "splits"))
        n = len(features)
        if not n or not leaves or not len(modes) == len(splits) == n or splits.dtype.kind != "f":
            raise InvalidModel("its lists of nodes differ in length or type")
        kinds = sorted(set(modes.tolist()))
        if len(kinds) > 1 or not 0 <= kinds[0] < len(_MODES):
            raise UnsupportedModel(f"nodes of the kinds {kinds} in one ensemble")
        own = np.arange(n, n + leaves)

        def children(side: str) -> np.ndarray:
            ids, ends = np.asarray(a[side + "nodeids"]), np.asarray(a[side + "leafs"])
            if not len(ids) == len(ends) == n or (ids < 0).any():
                raise InvalidModel("its lists of nodes differ in length")
            if (ids >= np.where(ends, leaves, n)).any():
                raise InvalidModel("there is no such node")
            return np.concatenate([np.where(ends, n + ids, ids), own])

        true, false = children("true"), children("false")
        if not roots or not all(0 <= r < n for r in roots):
            raise InvalidModel("its roots are no nodes")
        padded = lambda values, dtype: np.concatenate([values, np.zeros(leaves)]).astype(dtype)
        missing = a["missing_value_tracks_true"] or np.zeros(n)
        leaf, tops = np.arange(n + leaves) >= n, np.array(roots)
        depth = _depth(tops, true, false, leaf)
        return cls(
            padded(features, np.int64), padded(splits, splits.dtype), true, false, padded(missing, bool),
            _MODES[kinds[0]], tops, depth, {},
        )  # fmt: skip

    def weights(self, trees: list, nodes: list, columns: list, values: Any, n: int) -> np.ndarray:
        """What each node adds to each column: [nodes, n]."""
        table = np.zeros((len(self.features), n), np.float32)
        for tree, node, column, value in zip(trees, nodes, columns, values, strict=True):
            place = self.places.get((tree, node))
            if place is None or not 0 <= column < n:
                raise InvalidModel(f"there is no node {node} in tree {tree}, or no column {column}")
            table[place, column] += np.float32(value)
        return table


def _depth(roots: np.ndarray, true: np.ndarray, false: np.ndarray, leaf: np.ndarray) -> int:
    level, depth = set(roots.tolist()), 0
    while level := {int(c) for i in level if not leaf[i] for c in (true[i], false[i])}:
        depth += 1
        if depth > _MAX_DEPTH:
            raise UnsupportedModel(f"its trees are deeper than {_MAX_DEPTH} levels")
    return depth


def _sums(g: Graph, forest: Forest, x: Any, table: np.ndarray, aggregate: str = "SUM") -> Any:
    """The ensemble's answer before base values: [rows, columns]."""
    each = g.emit(op.take(g.constant(table), forest.leaves(g, x), axis=0))
    if aggregate in ("SUM", "AVERAGE"):
        total = g.emit(op.sum(each, axis=[1]))
        if aggregate == "SUM":
            return total
        return g.emit(op.divide(total, g.scalar(len(forest.roots), total)))
    if aggregate not in ("MIN", "MAX"):
        raise InvalidModel(f"aggregate_function '{aggregate}' is unknown")
    return g.emit((op.min if aggregate == "MIN" else op.max)(each, axis=[1]))


def _with_base(g: Graph, scores: Any, base: list[float] | None) -> Any:
    return g.emit(op.add(scores, g.constant(base, "float32"))) if base else scores


@onnx_op("TreeEnsembleRegressor", since=1, domain=_ML)
def tree_ensemble_regressor(
    g: Graph,
    x: Expr,
    *,
    aggregate_function: str = "SUM",
    base_values: list[float] | None = None,
    n_targets: int = 1,
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: list[float] | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: list[str],
    nodes_nodeids: list[int],
    nodes_treeids: list[int],
    nodes_truenodeids: list[int],
    nodes_values: list[float],
    post_transform: str = "NONE",
    target_ids: list[int],
    target_nodeids: list[int],
    target_treeids: list[int],
    target_weights: list[float],
) -> Expr:
    forest = Forest.of({
        "treeids": nodes_treeids, "nodeids": nodes_nodeids, "modes": nodes_modes, "values": nodes_values,
        "featureids": nodes_featureids, "truenodeids": nodes_truenodeids, "falsenodeids": nodes_falsenodeids,
        "missing_value_tracks_true": nodes_missing_value_tracks_true,
    })  # fmt: skip
    table = forest.weights(target_treeids, target_nodeids, target_ids, target_weights, n_targets)
    scores = _sums(g, forest, _matrix(g, x), table, aggregate_function)
    return _finished(g, _with_base(g, scores, base_values), post_transform)


def _named(names: list[str], index: int, what: str) -> str:
    if not 0 <= index < len(names):
        raise InvalidModel(f"{what} {index} is unknown")
    return names[index]


@onnx_op("TreeEnsemble", since=5, domain=_ML)
def tree_ensemble(
    g: Graph,
    x: Expr,
    *,
    aggregate_function: int = 1,
    leaf_targetids: list[int],
    leaf_weights: np.ndarray,
    membership_values: np.ndarray | None = None,
    n_targets: int = 1,
    nodes_falseleafs: list[int],
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: np.ndarray | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: np.ndarray,
    nodes_splits: np.ndarray,
    nodes_trueleafs: list[int],
    nodes_truenodeids: list[int],
    post_transform: int = 0,
    tree_roots: list[int],
) -> Expr:
    forest = Forest.of_splits({
        "featureids": nodes_featureids, "modes": nodes_modes, "splits": nodes_splits,
        "truenodeids": nodes_truenodeids, "trueleafs": nodes_trueleafs,
        "falsenodeids": nodes_falsenodeids, "falseleafs": nodes_falseleafs,
        "missing_value_tracks_true": nodes_missing_value_tracks_true,
    }, len(leaf_targetids), tree_roots)  # fmt: skip
    columns = np.array(leaf_targetids)
    if len(leaf_weights) != len(columns) or not ((columns >= 0) & (columns < n_targets)).all():
        raise InvalidModel("a leaf has no weight, or no column")
    table = np.zeros((len(forest.features), n_targets), leaf_weights.dtype)
    table[np.arange(len(columns)) + len(nodes_featureids), columns] = leaf_weights
    if g.dtype(x) != leaf_weights.dtype or g.dtype(x) != nodes_splits.dtype:
        raise InvalidModel("its splits, weights and input differ in type")
    if g.rank(x) != 2:
        raise UnsupportedModel("its input must be a matrix")
    aggregate = _named(_AGGREGATES, aggregate_function, "aggregate_function")
    scores = _sums(g, forest, x, table, aggregate)
    return _finished(g, scores, _named(_TRANSFORMS, post_transform, "post_transform"))


@onnx_op("TreeEnsembleClassifier", since=1, domain=_ML)
def tree_ensemble_classifier(
    g: Graph,
    x: Expr,
    *,
    base_values: list[float] | None = None,
    class_ids: list[int],
    class_nodeids: list[int],
    class_treeids: list[int],
    class_weights: list[float],
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: list[float] | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: list[str],
    nodes_nodeids: list[int],
    nodes_treeids: list[int],
    nodes_truenodeids: list[int],
    nodes_values: list[float],
    post_transform: str = "NONE",
) -> tuple:
    labels = _int_labels(classlabels_int64s, classlabels_strings)
    forest = Forest.of({
        "treeids": nodes_treeids, "nodeids": nodes_nodeids, "modes": nodes_modes, "values": nodes_values,
        "featureids": nodes_featureids, "truenodeids": nodes_truenodeids, "falsenodeids": nodes_falsenodeids,
        "missing_value_tracks_true": nodes_missing_value_tracks_true,
    })  # fmt: skip
    single = len(labels) == 2 and len(set(class_ids)) == 1
    columns, count = ([0] * len(class_ids), 1) if single else (class_ids, len(labels))
    table = forest.weights(class_treeids, class_nodeids, columns, class_weights, count)
    base = base_values[-1:] if single and base_values else base_values
    scores = _with_base(g, _sums(g, forest, _matrix(g, x), table), base)
    if not single:
        best = g.emit(op.argmax(scores, axis=1, keepdims=False))
        return _labels(g, best, labels), _finished(g, scores, post_transform)
    return _of_one_score(g, scores, min(class_weights) >= 0, labels, post_transform)


def _of_one_score(g: Graph, score: Any, positive: bool, labels: list[int], transform: str) -> tuple:
    """Two classes from one score: a probability when no weight is negative, else a distance from 0."""
    bound = g.constant(0.5 if positive else 0.0, "float32")
    index = op.squeeze(op.astype(op.greater(score, bound), "int64"), axis=[1])
    if positive:
        both = _two_columns(g, g.emit(op.subtract(g.constant(1.0, "float32"), score)), score)
    else:
        both = _finished(g, _two_columns(g, g.emit(op.negative(score)), score), transform)
    return _labels(g, g.emit(index), labels), both
