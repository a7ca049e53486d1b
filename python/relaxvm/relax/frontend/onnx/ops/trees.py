# SPDX-License-Identifier: Apache-2.0
"""Ensembles of decision trees (ai.onnx.ml): their nodes in the order of rvm.tree_sums."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from .classical import _classes, _finished, _floats, _labels, _matrix, _pair

_ML = "ai.onnx.ml"
_COMPARE = {
    "BRANCH_LEQ": "<=", "BRANCH_LT": "<", "BRANCH_GTE": ">=", "BRANCH_GT": ">", "BRANCH_EQ": "==",
    "BRANCH_NEQ": "==",  # the other way round
}  # fmt: skip
_MODES = list(_COMPARE)  # as TreeEnsemble counts them
_AGGREGATES = ["AVERAGE", "SUM", "MIN", "MAX"]
_TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
_MAX_DEPTH = 256
# Trees that are worth a group of their own: threads share groups where there are few rows.
_GROUP = 256


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
    leaf: np.ndarray
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
        thresholds, features = _floats(a["values"]), np.asarray(a["featureids"])
        return cls(features, thresholds, true, false, missing, mode, roots, leaf, places)

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
        return cls(
            padded(features, np.int64), padded(splits, splits.dtype), true, false, padded(missing, bool),
            _MODES[kinds[0]], np.array(roots), np.arange(n + leaves) >= n, {},
        )  # fmt: skip

    def weights(self, trees: list, nodes: list, columns: list, values: Any, n: int) -> Weights:
        """What each node adds to each column."""
        try:
            places = np.array([self.places[key] for key in zip(trees, nodes, strict=True)], int)
        except KeyError as e:
            raise InvalidModel(f"there is no node {e}") from None
        return Weights.of(places, columns, _floats(values), n)

    def in_order(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Nodes tree by tree, level by level, the two that follow one side by side: where each one stands
        here, its first follower there (a leaf: itself), its tree; and how many levels each tree has."""
        level, tree = self.roots, np.arange(len(self.roots))
        nodes, owners, followers, count = [], [], [], 0
        depths = np.zeros(len(self.roots), np.int64)
        for depth in range(_MAX_DEPTH + 1):
            inner = ~self.leaf[level]
            after = count + len(level) + 2 * (np.cumsum(inner) - 1)
            nodes.append(level)
            owners.append(tree)
            followers.append(np.where(inner, after, count + np.arange(len(level))))
            depths[tree] = depth
            count += len(level)
            if not inner.any():
                break
            if count > 4 * len(self.features):
                raise UnsupportedModel("its trees share many nodes")
            at, tree = level[inner], np.repeat(tree[inner], 2)
            level = np.stack([self.false[at], self.true[at]], 1).reshape(-1)
        else:
            raise UnsupportedModel(f"its trees are deeper than {_MAX_DEPTH} levels")
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        follower = place[np.concatenate(followers)[order]]
        return np.concatenate(nodes)[order], follower, owner[order], depths


@dataclasses.dataclass
class Weights:
    """What nodes add to columns, as a list."""

    places: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    count: int  # of columns

    @classmethod
    def of(cls, places: np.ndarray, columns: Any, values: np.ndarray, count: int) -> Weights:
        columns = np.asarray(columns, int)
        if not len(places) == len(columns) == len(values):
            raise InvalidModel("its lists of weights differ in length")
        if not ((columns >= 0) & (columns < count)).all():
            raise InvalidModel("a weight has no column")
        return cls(places, columns, values, count)

    def full(self, nodes: int, trees: int) -> tuple[np.ndarray, np.ndarray]:
        """[nodes, columns], and the first column of each tree."""
        table = np.zeros((nodes, self.count), self.values.dtype)
        np.add.at(table, (self.places, self.columns), self.values)
        return table, np.zeros(trees, int)

    def by_tree(self, nodes: int, owner: np.ndarray, trees: int) -> tuple[np.ndarray, np.ndarray]:
        """The same; trees that have one column each (those of boosting) have one weight a node."""
        first = np.full(trees, self.count)
        last = np.zeros(trees, int)
        np.minimum.at(first, owner[self.places], self.columns)
        np.maximum.at(last, owner[self.places], self.columns)
        if (last > first).any():
            return self.full(nodes, trees)
        table = np.zeros((nodes, 1), self.values.dtype)
        np.add.at(table[:, 0], self.places, self.values)
        return table, np.where(first == self.count, 0, first)


def _sums(g: Graph, forest: Forest, x: Any, weights: Weights, aggregate: str = "SUM") -> Any:
    """The ensemble's answer before base values: [rows, columns]."""
    if aggregate not in _AGGREGATES:
        raise InvalidModel(f"aggregate_function '{aggregate}' is unknown")
    if forest.mode == "BRANCH_NEQ":  # that nothing equals NaN leads it there as well
        missing = np.zeros_like(forest.missing_true)
        forest = dataclasses.replace(
            forest, true=forest.false, false=forest.true, missing_true=missing
        )
    nodes, follower, owner, depths = forest.in_order()
    leaf, trees = forest.leaf[nodes], len(forest.roots)
    features = np.where(leaf, 0, forest.features[nodes])
    available = g.shape(x)[1]
    if features.min() < 0 or (isinstance(available, int) and features.max() >= available):
        raise InvalidModel(f"there is no feature {features.max()}: its input has {available}")
    missing = np.where(leaf, False, forest.missing_true[nodes])
    splits = np.where(leaf, np.nan, forest.thresholds[nodes]).astype(forest.thresholds.dtype)
    is_sum = aggregate in ("SUM", "AVERAGE")
    if is_sum and len(np.unique(nodes)) == len(nodes):
        tree_of = np.zeros(len(forest.features), int)
        tree_of[nodes] = owner
        table, first = weights.by_tree(len(forest.features), tree_of, trees)
    else:
        table, first = weights.full(len(forest.features), trees)
    firsts = np.searchsorted(owner, np.arange(trees))
    groups = max(1, trees // _GROUP) if is_sum else 1
    total = g.emit(
        op.rvm.tree_sums(
            x,
            g.constant(splits),
            g.constant(np.stack([2 * features + missing, follower], 1), "int32"),
            g.constant(np.stack([firsts, (depths + 1) // 2, first], 1), "int32"),
            g.constant(np.where(leaf[:, None], table[nodes], 0).astype(table.dtype)),
            columns=weights.count,
            compare=_COMPARE[forest.mode],
            combine="sum" if is_sum else aggregate.lower(),
            missing=bool(missing.any()),
            groups=groups,
        )
    )
    total = op.sum(total, axis=[0]) if groups > 1 else op.squeeze(total, axis=[0])
    total = g.emit(total)
    if aggregate != "AVERAGE":
        return total
    return g.emit(op.divide(total, g.scalar(trees, total)))


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
    weights = forest.weights(target_treeids, target_nodeids, target_ids, target_weights, n_targets)
    scores = _sums(g, forest, _matrix(g, x), weights, aggregate_function)
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
    places = np.arange(len(leaf_targetids)) + len(nodes_featureids)
    weights = Weights.of(places, leaf_targetids, leaf_weights, n_targets)
    if g.dtype(x) != leaf_weights.dtype or g.dtype(x) != nodes_splits.dtype:
        raise InvalidModel("its splits, weights and input differ in type")
    if g.rank(x) != 2:
        raise UnsupportedModel("its input must be a matrix")
    aggregate = _named(_AGGREGATES, aggregate_function, "aggregate_function")
    dtype = g.dtype(x)
    if dtype == "float16":
        x = g.emit(op.astype(x, "float32"))
        forest.thresholds, weights.values = _floats(forest.thresholds), _floats(weights.values)
    scores = _sums(g, forest, x, weights, aggregate)
    scores = g.emit(op.astype(scores, dtype)) if dtype == "float16" else scores
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
    labels = _classes(g, classlabels_int64s, classlabels_strings)
    forest = Forest.of({
        "treeids": nodes_treeids, "nodeids": nodes_nodeids, "modes": nodes_modes, "values": nodes_values,
        "featureids": nodes_featureids, "truenodeids": nodes_truenodeids, "falsenodeids": nodes_falsenodeids,
        "missing_value_tracks_true": nodes_missing_value_tracks_true,
    })  # fmt: skip
    single = len(labels) == 2 and len(set(class_ids)) == 1
    columns, count = ([0] * len(class_ids), 1) if single else (class_ids, len(labels))
    weights = forest.weights(class_treeids, class_nodeids, columns, class_weights, count)
    base = base_values[-1:] if single and base_values else base_values
    scores = _with_base(g, _sums(g, forest, _matrix(g, x), weights), base)
    if not single:
        best = g.emit(op.argmax(scores, axis=1, keepdims=False))
        return _labels(g, best, labels), _finished(g, scores, post_transform)
    return _of_one_score(g, scores, min(class_weights) >= 0, labels, post_transform)


def _of_one_score(g: Graph, score: Any, positive: bool, labels: list[int], transform: str) -> tuple:
    """Two classes from one score: a probability when no weight is negative, else a distance from 0."""
    bound = g.constant(0.5 if positive else 0.0, "float32")
    index = op.squeeze(op.astype(op.greater(score, bound), "int64"), axis=[1])
    return _labels(g, g.emit(index), labels), _pair(g, score, positive, transform)
