# SPDX-License-Identifier: Apache-2.0
"""Texts: labels, categories, and tensors of texts that are moved and compared."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

ML = "ai.onnx.ml"


def model_of(text: str, **initializers) -> bytes:
    graph = parser.parse_graph(text)
    for name, array in initializers.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    domains = [helper.make_opsetid("", 19), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=domains, ir_version=9).SerializeToString()


def session(model: bytes):
    from relaxvm.inference import InferenceSession

    return InferenceSession(model, cache_dir="")


def texts(*items) -> np.ndarray:
    return np.asarray(items, object)


def agree(have, want) -> None:
    for a, b in zip(have, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)


MODELS = {
    "moved": """g (string[n, 2] x, int64[1] i) => (string[a, b] y, string[c] z) {
        t = Transpose <perm = [1, 0]> (x)  y = Concat <axis = 0> (t, t)
        one = Constant <value_ints = [-1]> ()  flat = Reshape (x, one)  z = Gather (flat, i)
    }""",
    "compared": """g (string[n] x) => (bool[n] same, string[n] y) {
        word = Constant <value_string = "cat"> ()  other = Constant <value_strings = ["none"]> ()
        same = Equal (x, word)  y = Where (same, x, other)
    }""",
    "numbered": """g (string[n] x) => (int64[n] y) {
        y = ai.onnx.ml.LabelEncoder <keys_strings = ["dog", "cat"], values_int64s = [7, 3], default_int64 = -5> (x)
    }""",
    "named": """g (int64[n] k) => (string[n] y) {
        y = ai.onnx.ml.LabelEncoder <keys_int64s = [4, 1], values_strings = ["dog", "cat"]> (k)
    }""",
    "renamed": """g (string[n] x) => (string[n] y) {
        y = ai.onnx.ml.LabelEncoder <keys_strings = ["dog"], values_strings = ["cat"], default_string = "?"> (x)
    }""",
    "one hot": """g (string[n, 1] x) => (float[n, a, b] y) {
        y = ai.onnx.ml.OneHotEncoder <cats_strings = ["cat", "dog", "eel"]> (x)
    }""",
}
FEEDS = {
    "x": lambda name: (
        texts(["cat", "ant"], ["eel", ""], ["cat", "dog"])
        if name == "moved"
        else texts("dog", "new", "cat", "new", "\u00e9").reshape(
            (-1, 1) if name == "one hot" else -1
        )
    ),
    "i": lambda name: np.asarray([4], np.int64),
    "k": lambda name: np.asarray([1, 4, 9, 1], np.int64),
}


@pytest.mark.peer
@pytest.mark.parametrize("name", MODELS)
def test_texts_are_moved_and_compared(name):
    import onnxruntime

    model = model_of(MODELS[name])
    peer, ours = onnxruntime.InferenceSession(model), session(model)
    assert [o.type for o in ours.get_outputs()] == [o.type for o in peer.get_outputs()]
    feed = {i.name: FEEDS[i.name](name) for i in peer.get_inputs()}
    agree(ours.run(None, feed), peer.run(None, feed))


@pytest.mark.peer
def test_labels_that_are_texts():
    import onnxruntime

    model = model_of(
        """g (float[n, 3] x) => (string[n] label, float[n, 3] scores, string[k] drawn) {
            label, scores = ai.onnx.ml.LinearClassifier <coefficients = [0.5, -1.0, 2.0, 1.0, 0.25, -0.5, 0.0, 1.0, -1.0],
                intercepts = [0.1, 0.2, 0.3], classlabels_strings = ["dog", "cat", "ant"], post_transform = "SOFTMAX"> (x)
            best = ArgMax <axis = 1, keepdims = 0> (x)
            drawn = Gather (names, best)
        }""",
        names=texts("p", "q", "r"),
    )
    peer, ours = onnxruntime.InferenceSession(model), session(model)
    x = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32)
    have, want = ours.run(None, {"x": x}), peer.run(None, {"x": x})
    agree([have[0], have[2]], [want[0], want[2]])
    assert len(set(have[0])) > 1
    np.testing.assert_allclose(have[1], want[1], rtol=1e-5)


def test_texts_are_known_after_loading_from_the_cache(tmp_path):
    from relaxvm.inference import InferenceSession

    model = model_of(MODELS["renamed"])
    for _ in range(2):
        ours = InferenceSession(model, cache_dir=tmp_path)
        assert ours.run(None, {"x": texts("dog", "fox")})[0].tolist() == ["cat", "?"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("g (string[n] x) => (float[n] y) { y = Cast <to = 1> (x) }", "texts as its input"),
        ("g (float[n] x) => (string[n] y) { y = Cast <to = 8> (x) }", "strings are not supported"),
        (
            "g (string[n] x, bool c) => (string[n] y) { y = If (c) <then_branch = t () => (string[n] p)"
            " { p = Identity (x) }, else_branch = e () => (string[n] q) { q = Identity (x) }> }",
            "texts that leave a subgraph",
        ),
    ],
)
def test_what_is_not_done_with_texts_is_refused(text, message):
    from relaxvm.inference import NotImplemented as Refused

    with pytest.raises(Refused, match=message):
        session(model_of(text))


def test_numbers_and_texts_do_not_mix():
    from relaxvm.inference import InvalidArgument, InvalidGraph

    with pytest.raises(InvalidGraph, match="input 1 is no text"):
        session(model_of("g (string[n] x, int64[n] k) => (bool[n] y) { y = Equal (x, k) }"))
    with pytest.raises(InvalidGraph, match="not of the type that it says"):
        session(model_of("g (string[n] x) => (int64[n] y) { y = Identity (x) }"))
    ours = session(model_of(MODELS["compared"]))
    with pytest.raises(InvalidArgument, match="input 'x' must have texts as elements, got float"):
        ours.run(None, {"x": np.ones(2, np.float32)})
    with pytest.raises(InvalidArgument, match="no value for the inputs"):
        ours.run(None, {})
    with pytest.raises(InvalidArgument, match="1 dimensions"):
        ours.run(None, {"x": texts(["a"])})


def test_a_sequence_as_output_is_a_list():
    text = """g (float[n] x) => (seq(float[n]) items, float[n] y) {
        y = Neg (x)  items = SequenceConstruct (x, y)
    }"""
    graph = parser.parse_graph(text.replace("seq(float[n])", "float[n]"))
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    graph.output[0].CopyFrom(helper.make_value_info("items", kind))
    domains = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString()
    items, y = session(model).run(None, {"x": np.asarray([1, -2], np.float32)})
    assert [i.tolist() for i in items] == [[1, -2], [-1, 2]] and y.tolist() == [-1, 2]
