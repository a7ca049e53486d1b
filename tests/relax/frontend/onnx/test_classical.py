# SPDX-License-Identifier: Apache-2.0
"""Operators of ai.onnx.ml beside ONNX Runtime."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.peer

# Two trees over three features: x0 <= 0 ? (x2 <= 0.5 ? leaf : leaf) : leaf, and a single leaf.
NODES = {
    "nodes_treeids": [0, 0, 0, 0, 0, 1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0],
    "nodes_featureids": [0, 2, 0, 0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF", "LEAF"],
    "nodes_values": [0.0, 0.5, 0.0, 0.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 3, 0, 0, 0, 0],
    "nodes_falsenodeids": [2, 4, 0, 0, 0, 0],
    "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0],
}
# The second tree has a weight for every column: what ONNX Runtime does with none is its own.
LEAVES = {"treeids": [0, 0, 0, 1, 1, 1], "nodeids": [2, 3, 4, 0, 0, 0]}
WEIGHTS = [1.5, -2.0, 0.25, 0.125, 0.0625, -0.25]


def leaves(prefix: str, ids: list[int], weights: list[float]) -> dict:
    named = {f"{prefix}_{k}": v for k, v in LEAVES.items()}
    return {**NODES, **named, f"{prefix}_ids": ids, f"{prefix}_weights": weights}


def deep_forest(depth: int, trees: int) -> dict:
    """Complete trees with made-up questions; each leaf weighs its number in the tree."""
    inner, all_nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    rng = np.random.default_rng(depth)
    nodes = [(tree, node) for tree in range(trees) for node in range(all_nodes)]
    child = lambda node, side: 2 * node + side if node < inner else 0
    lasts = [(tree, node) for tree, node in nodes if node >= inner]
    return {
        "nodes_treeids": [tree for tree, _ in nodes],
        "nodes_nodeids": [node for _, node in nodes],
        "nodes_featureids": [int(rng.integers(3)) for _ in nodes],
        "nodes_modes": ["BRANCH_LEQ" if node < inner else "LEAF" for _, node in nodes],
        "nodes_values": [float(np.float32(rng.standard_normal())) for _ in nodes],
        "nodes_truenodeids": [child(node, 1) for _, node in nodes],
        "nodes_falsenodeids": [child(node, 2) for _, node in nodes],
        "target_treeids": [tree for tree, _ in lasts],
        "target_nodeids": [node for _, node in lasts],
        "target_ids": [0] * len(lasts),
        "target_weights": [float(node) for _, node in lasts],
        "n_targets": 1,
    }


# Five vectors over three features.
VECTORS = [0.5, -1.0, 0.25, 1.0, 0.0, -0.5, -0.75, 0.5, 1.5, 0.1, 0.2, -0.3, -1.0, 1.0, 0.0]


def machine(kind: str, **changes) -> dict:
    return {
        "kernel_type": kind,
        "kernel_params": [0.3, 0.5, 3.0],
        "support_vectors": VECTORS,
    } | changes


def regression(kind: str, **changes) -> dict:
    return machine(
        kind, coefficients=[0.5, -1.0, 0.75, 0.25, -0.3], n_supports=5, rho=[0.1], **changes
    )


LINEAR = [0.5, -1.0, 2.0, 1.0, 0.25, -0.5, 0.0, 1.0, -1.0]
CASES = {
    # name: (operator, attributes, number of outputs, opset of the domain)
    "scaler": ("Scaler", {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 0.5, 1.0]}, 1, 1),
    "scaler one": ("Scaler", {"offset": [1.0], "scale": [2.0]}, 1, 1),
    "normalizer L1": ("Normalizer", {"norm": "L1"}, 1, 1),
    "normalizer L2": ("Normalizer", {"norm": "L2"}, 1, 1),
    "imputer": (
        "Imputer",
        {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": float("nan")},
        1,
        1,
    ),
    "linear regressor": (
        "LinearRegressor", {"coefficients": LINEAR[:6], "intercepts": [0.5, 1.0], "targets": 2}, 1, 1),
    "linear classifier": (
        "LinearClassifier",
        {"coefficients": LINEAR, "intercepts": [0.1, 0.2, 0.3], "classlabels_ints": [5, 7, 9],
         "post_transform": "SOFTMAX"}, 2, 1),
    "linear classifier logistic": (
        "LinearClassifier",
        {"coefficients": LINEAR[:6], "intercepts": [0.1, 0.2], "classlabels_ints": [0, 1],
         "post_transform": "LOGISTIC"}, 2, 1),
    "vector machine linear": ("SVMRegressor", regression("LINEAR"), 1, 1),
    "vector machine poly": ("SVMRegressor", regression("POLY"), 1, 1),
    "vector machine rbf": ("SVMRegressor", regression("RBF"), 1, 1),
    "vector machine sigmoid": ("SVMRegressor", regression("SIGMOID"), 1, 1),
    "vector machine one class": ("SVMRegressor", regression("RBF", one_class=1), 1, 1),
    "vector machine without vectors": (
        "SVMRegressor", {"coefficients": [0.5, -1.0, 2.0], "rho": [0.25], "kernel_type": "LINEAR",
                         "kernel_params": [0.0, 0.0, 0.0]}, 1, 1),
    "vector classifier": (
        "SVMClassifier",
        machine("RBF", coefficients=[0.5, -1.0, 0.75, 0.25, -0.3, 1.0, 0.5, -0.6, -0.8, 0.9], rho=[0.1, -0.2, 0.05],
                vectors_per_class=[2, 1, 2], classlabels_ints=[4, 2, 9]), 2, 1),
    "tree regressor": ("TreeEnsembleRegressor", {**leaves("target", [0, 1, 2, 0, 1, 2], WEIGHTS), "n_targets": 3}, 1, 3),
    # Scheduling once copied the whole way down for each of the four reads of a place.
    "tree regressor deep": ("TreeEnsembleRegressor", deep_forest(8, 3), 1, 3),
    # Groups of trees; each tree has one column.
    "tree regressor many": (
        "TreeEnsembleRegressor",
        {**(many := deep_forest(2, 601)), "n_targets": 3, "target_ids": [t % 3 for t in many["target_treeids"]],
         "target_weights": [w / 64 for w in many["target_weights"]]}, 1, 3),
    "tree regressor least": (
        "TreeEnsembleRegressor", {**deep_forest(3, 11), "aggregate_function": "MIN"}, 1, 3),
    "tree regressor not equal": (
        "TreeEnsembleRegressor",
        {**leaves("target", [0, 1, 2, 0, 1, 2], WEIGHTS), "nodes_modes": ["BRANCH_NEQ"] * 2 + ["LEAF"] * 4,
         "nodes_values": [0.5, 0.5, 0.0, 0.0, 0.0, 0.0], "n_targets": 3}, 1, 3),
    "tree regressor average": (
        "TreeEnsembleRegressor",
        {**leaves("target", [0, 1, 0, 0, 1, 1], WEIGHTS), "n_targets": 2, "aggregate_function": "AVERAGE",
         "base_values": [0.5, 1.0]}, 1, 3),
    "tree classifier": (
        "TreeEnsembleClassifier",
        {**leaves("class", [0, 1, 2, 0, 1, 2], WEIGHTS), "classlabels_int64s": [3, 1, 2]}, 2, 3),
    "tree classifier one score": (
        "TreeEnsembleClassifier",
        {**leaves("class", [0, 0, 0, 0, 0, 0], WEIGHTS), "classlabels_int64s": [0, 1],
         "post_transform": "LOGISTIC"}, 2, 3),
    "tree classifier one probability": (
        "TreeEnsembleClassifier",
        {**leaves("class", [0, 0, 0, 0, 0, 0], [0.1, 0.2, 0.7, 0.1, 0.05, 0.05]), "classlabels_int64s": [4, 6]}, 2, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_agrees(name, run_model_once):
    import onnxruntime

    kind, attributes, count, version = CASES[name]
    names = ["y", "z"][:count]
    node = helper.make_node(kind, ["x"], names, domain="ai.onnx.ml", **attributes)
    outputs = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in names]
    for output in outputs:
        output.ClearField("type")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        outputs,
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    ours = run_model_once(model)
    for rows in (1, 9, 77):
        x = np.random.default_rng(rows).standard_normal((rows, 3), dtype=np.float32)
        if name.startswith(("imputer", "tree regressor")):
            x[0, 0] = np.nan
            x[-1, 0] = 0.5
        for have, want in zip(ours({"x": x}), peer.run(None, {"x": x}), strict=True):
            assert have.shape == want.shape and have.dtype == want.dtype
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def small_model(kind: str, outputs: list[str], attributes: dict):
    node = helper.make_node(kind, ["x"], outputs, domain="ai.onnx.ml", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    values = [
        helper.make_tensor_value_info(n, TensorProto.INT64 if n == "y" else TensorProto.FLOAT, None)
        for n in outputs
    ]
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    graph = helper.make_graph([node], "g", [x], values)
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def two_classes(**changes) -> dict:
    return machine("LINEAR", coefficients=[0.5, -1.0, 0.75, 0.25, -0.3], rho=[0.1], vectors_per_class=[3, 2],
                   classlabels_ints=[7, 3], prob_a=[-1.5], prob_b=[0.2]) | changes  # fmt: skip


TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]


def classes_of_vectors(count: int, positive: bool, probabilities: bool, **changes) -> dict:
    rng = np.random.default_rng(count)
    numbers = lambda *shape: rng.standard_normal(shape).astype(np.float32).ravel()
    per_class = [2, 1, 3, 1, 2][:count]
    vectors, pairs = sum(per_class), count * (count - 1) // 2
    weights = numbers(count - 1, vectors)
    attributes = dict(
        kernel_type="RBF", kernel_params=[0.3, 0.5, 3.0], support_vectors=numbers(vectors, 3).tolist(),
        coefficients=(abs(weights) if positive else weights).tolist(), rho=numbers(pairs).tolist(),
        vectors_per_class=per_class, classlabels_ints=[7, 3, 9, -1, 4][:count],
    )  # fmt: skip
    if probabilities:
        attributes |= {"prob_a": (-abs(numbers(pairs))).tolist(), "prob_b": numbers(pairs).tolist()}
    return attributes | changes


def agree_on_rows(model, run_model_once) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    ours = run_model_once(model)
    assert [o.name for o in peer.get_outputs()] == [o.name for o in model.graph.output]
    for rows in (1, 9, 77):
        x = np.random.default_rng(rows).standard_normal((rows, 3), dtype=np.float32)
        for have, want in zip(ours({"x": x}), peer.run(None, {"x": x}), strict=True):
            assert have.shape == want.shape and have.dtype == want.dtype
            if want.dtype.kind == "f":
                np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
            else:
                np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("probabilities", [True, False], ids=["probabilities", "decisions"])
@pytest.mark.parametrize("positive", [True, False], ids=["positive", "mixed"])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_vector_classifiers_agree(count, positive, probabilities, run_model_once):
    attributes = classes_of_vectors(count, positive, probabilities)
    agree_on_rows(small_model("SVMClassifier", ["y", "z"], attributes), run_model_once)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_agree(transform, run_model_once):
    linear = lambda rows: {
        "coefficients": LINEAR[: 3 * rows],
        "intercepts": [0.1, 0.2, 0.3][:rows],
    }
    labels = {"classlabels_ints": [5, 7]}
    models = [
        ("SVMClassifier", classes_of_vectors(2, False, False)),
        ("SVMClassifier", classes_of_vectors(3, False, True)),
        ("LinearClassifier", linear(1) | labels),
        ("LinearClassifier", linear(2) | labels),
        ("LinearRegressor", linear(1)),
        ("LinearRegressor", linear(2) | {"targets": 2}),
        ("TreeEnsembleClassifier", leaves("class", [0] * 6, WEIGHTS) | {"classlabels_int64s": [0, 1]}),
        ("TreeEnsembleClassifier", leaves("class", [0] * 6, [abs(w) for w in WEIGHTS]) | {"classlabels_int64s": [0, 1]}),
    ]  # fmt: skip
    for kind, attributes in models:
        outputs = ["z"] if kind == "LinearRegressor" else ["y", "z"]
        model = small_model(kind, outputs, attributes | {"post_transform": transform})
        agree_on_rows(model, run_model_once)


@pytest.mark.parametrize("positive", [True, False], ids=["positive", "mixed"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_vector_classifiers_without_vectors_agree(count, positive, run_model_once):
    weights = np.abs(LINEAR) if positive else np.asarray(LINEAR)
    attributes = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0], "rho": [-0.25],
                  "coefficients": weights[: 3 * count].tolist(), "classlabels_ints": [4, 2, 9][:count]}  # fmt: skip
    agree_on_rows(small_model("SVMClassifier", ["y", "z"], attributes), run_model_once)


PER_FEATURE = {
    "Scaler": {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 0.5, 1.0]},
    "Imputer": {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": 0.5},
    "SVMRegressor": regression("RBF"),
    "LinearRegressor": {"coefficients": [0.5, -1.0, 2.0]},
}


@pytest.mark.parametrize("kind", PER_FEATURE)
def test_a_width_that_is_unknown_is_checked_in_the_run(kind, run_model_once):
    model = small_model(kind, ["z"], PER_FEATURE[kind])
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "width"
    agree_on_rows(model, run_model_once)
    with pytest.raises(Exception, match="3"):
        run_model_once(model)({"x": np.zeros((2, 4), np.float32)})


def test_outputs_without_a_type_are_those_of_the_program(run_model_once):
    attributes = two_classes(classlabels_strings=["no", "yes"])
    del attributes["classlabels_ints"]
    model = small_model("SVMClassifier", ["y", "z"], attributes)
    for output in model.graph.output:
        output.ClearField("type")
    agree_on_rows(model, run_model_once)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prob_a": [1.0, 2.0]}, "prob_a and prob_b need 1 numbers"),
        ({"post_transform": "OTHER"}, "post_transform 'OTHER' is unknown"),
        ({"vectors_per_class": [3, 1]}, "its coefficients do not belong to its vectors"),
        ({"support_vectors": VECTORS[:10]}, "are for 2 features, its input has 3"),
        ({"kernel_type": "OTHER"}, "kernel_type 'OTHER' is unknown"),
    ],
)
def test_wrong_vector_machines_are_refused(changes, message, run_model_once):
    from relaxvm.inference import InvalidGraph
    from relaxvm.inference import NotImplemented as Refused

    attributes = {k: v for k, v in two_classes(**changes).items() if v != []}
    with pytest.raises((InvalidGraph, Refused), match=message):
        run_model_once(small_model("SVMClassifier", ["y", "z"], attributes))


def forest_of_splits(kind: type, **changes) -> dict:
    """Node 0 has a node and a leaf, node 1 two leaves; the second tree starts at node 2."""
    tensor = lambda values, of: numpy_helper.from_array(np.array(values, of))
    attributes = {
        "aggregate_function": 1, "n_targets": 2, "post_transform": 0, "tree_roots": [0, 2],
        "nodes_featureids": [0, 2, 1], "nodes_modes": tensor([0, 0, 0], "uint8"),
        "nodes_splits": tensor([0.1, 0.5, -0.2], kind),
        "nodes_truenodeids": [1, 1, 3], "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [0, 2, 4], "nodes_falseleafs": [1, 1, 1],
        "leaf_targetids": [0, 1, 0, 1, 1], "leaf_weights": tensor([1.5, -2, 0.25, 0.125, 3], kind),
        "nodes_missing_value_tracks_true": [1, 0, 0],
    }  # fmt: skip
    return attributes | {
        k: tensor(v, "uint8") if k == "nodes_modes" else v for k, v in changes.items()
    }


def model_of_splits(kind: type, **changes):
    node = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **forest_of_splits(kind, **changes)
    )
    of = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    values = [helper.make_tensor_value_info(n, of, ["n", c]) for n, c in (("x", 3), ("y", 2))]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 5)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nodes_modes": [3, 3, 3]},
        # Every column has a score in every row: what ONNX Runtime does with none is its own.
        {"aggregate_function": 0, "leaf_targetids": [0, 0, 0, 1, 1]},
    ],
    ids=["leq", "gt", "average"],
)
def test_trees_of_splits_agree(kind, changes, run_model_once):
    import onnxruntime

    model = model_of_splits(kind, **changes)
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    ours = run_model_once(model)
    for rows in (1, 40):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(kind)
        x[0, 0] = np.nan
        (have,), (want,) = ours({"x": x}), peer.run(None, {"x": x})
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("number", "transform"),
    [
        (1, lambda y: np.exp(y) / np.exp(y).sum(1, keepdims=True)),
        (2, lambda y: 1 / (1 + np.exp(-y))),
    ],
    ids=["softmax", "logistic"],
)
def test_transform_of_splits_counts_as_specified(number, transform, run_model_once):
    # ONNX Runtime counts softmax and logistic the other way round.
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    (plain,) = run_model_once(model_of_splits(np.float32))({"x": x})
    (have,) = run_model_once(model_of_splits(np.float32, post_transform=number))({"x": x})
    np.testing.assert_allclose(have, transform(plain), rtol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes_truenodeids": [1, 9, 3]}, {"nodes_truenodeids": [-1, 1, 3]}, {"tree_roots": [0, 7]},
        {"leaf_targetids": [0, 1, 0, 1, 2]}, {"nodes_featureids": [0, 2]}, {"nodes_truenodeids": [0, 1, 3]},
        {"nodes_modes": [0, 0, 6]}, {"post_transform": 9}, {"aggregate_function": -1},
    ],
    ids=["no such leaf", "negative", "root", "column", "lengths", "loop", "kinds", "transform", "aggregate"],
)  # fmt: skip
def test_wrong_splits_are_refused(changes, run_model_once):
    from relaxvm.inference import InvalidGraph
    from relaxvm.inference import NotImplemented as Refused

    with pytest.raises((InvalidGraph, Refused)):
        run_model_once(model_of_splits(np.float32, **changes))


def test_a_feature_that_the_input_lacks_is_refused(run_model_once):
    from relaxvm.inference import InvalidGraph

    with pytest.raises(InvalidGraph, match="there is no feature 3: its input has 3"):
        run_model_once(model_of_splits(np.float32, nodes_featureids=[0, 3, 1]))


@pytest.mark.parametrize(
    "keys", [{"classlabels_int64s": [7, -2]}, {"classlabels_strings": ["cat", "dog"]}]
)
def test_dictionaries_of_rows(keys):
    import onnxruntime

    from relaxvm.inference import InferenceSession

    nodes = [
        helper.make_node("Sigmoid", ["x"], ["p"]),
        helper.make_node("ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", **keys),
    ]
    key = TensorProto.INT64 if "classlabels_int64s" in keys else TensorProto.STRING
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, value))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "classes"])],
        [
            helper.make_tensor_value_info("p", TensorProto.FLOAT, None),
            helper.make_value_info("maps", maps),
        ],
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString()
    peer, ours = onnxruntime.InferenceSession(model), InferenceSession(model, cache_dir="")
    assert ours.get_outputs()[1].type == peer.get_outputs()[1].type
    for rows in (1, 3):
        x = np.random.default_rng(0).standard_normal((rows, 2)).astype(np.float32)
        want, have = peer.run(None, {"x": x})[1], ours.run(None, {"x": x})[1]
        assert have == [pytest.approx(row, rel=1e-6) for row in want]
        assert ours.run(["maps"], {"x": x}) == [have]
