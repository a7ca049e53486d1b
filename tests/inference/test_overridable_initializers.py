# SPDX-License-Identifier: Apache-2.0
"""Initializers that are inputs, too: a run may give another value; checked against ONNX Runtime."""

import threading

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from relaxvm import inference
from relaxvm.inference import InferenceSession, InvalidArgument

pytestmark = pytest.mark.peer

W = np.float32([[1, 2], [3, 4], [5, 6]])
B = np.float32([10, 20])
X = np.arange(12, dtype="f4").reshape(4, 3)
LINEAR = """g (float[n, 3] x, float[3, 2] w, float[2] b) => (float[n, 2] y)
    { p = MatMul(x, w) q = Add(p, b) y = Relu(q) }"""


def model(text=LINEAR, ir_version=8, **initializers):
    graph = onnx.parser.parse_graph(text)
    for name, array in (initializers or {"w": W, "b": B}).items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    opset = helper.make_opsetid("", 13)
    return helper.make_model(graph, opset_imports=[opset], ir_version=ir_version)


def both(proto):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3  # it warns of initializers that are inputs
    data = proto.SerializeToString()
    return InferenceSession(data), ort.InferenceSession(data, options)


def entries(folder):
    return len(list(folder.glob("*.so")))


@pytest.mark.parametrize("ir_version", [3, 4, 8])
def test_are_listed_apart_from_the_inputs(ir_version):
    ours, theirs = both(model(ir_version=ir_version))
    for listed in ("get_inputs", "get_overridable_initializers"):
        got, want = (
            [(a.name, a.shape, a.type) for a in getattr(s, listed)()] for s in (ours, theirs)
        )
        assert got == want
    names = [a.name for a in ours.get_overridable_initializers()]
    assert names == ([] if ir_version < 4 else ["w", "b"])


def test_initializers_that_are_no_inputs_are_fixed():
    ours, _ = both(model("g (float[n, 2] x) => (float[n, 2] y) { y = Add(x, b) }", b=B))
    assert ours.get_overridable_initializers() == []
    with pytest.raises(InvalidArgument, match="no input called 'b'"):
        ours.run(None, {"x": X[:, :2], "b": B})


def test_before_ir_version_4_all_are_fixed():
    ours, theirs = both(model(ir_version=3))
    np.testing.assert_allclose(ours.run(None, {"x": X})[0], theirs.run(None, {"x": X})[0])
    with pytest.raises(InvalidArgument, match="input 'w' is an initializer"):
        ours.run(None, {"x": X, "w": W})


def test_a_run_may_give_any_of_them():
    ours, theirs = both(model())
    rng = np.random.default_rng(1)
    feeds = [{}, {"w": W * 2}, {"b": -B}, {"w": -W, "b": B * 100}, {}, {"w": W}]
    for given in feeds:
        feed = {"x": rng.standard_normal((5, 3)).astype("f4"), **given}
        np.testing.assert_allclose(
            ours.run(None, feed)[0], theirs.run(["y"], feed)[0], rtol=1e-5, atol=1e-5
        )


def test_none_means_the_value_of_the_model():
    ours, theirs = both(model())
    for given in ({"w": None}, {"w": None, "b": B * 3}):
        feed = {"x": X, **given}
        np.testing.assert_allclose(ours.run(None, feed)[0], theirs.run(None, feed)[0])


def test_a_shape_that_no_run_gives_stays_a_constant():
    text = """g (float[n, 6] x, int64[2] shape, float[3] b) => (float[k, 3] y)
        { r = Reshape(x, shape) y = Add(r, b) }"""
    ours, theirs = both(model(text, shape=np.int64([-1, 3]), b=np.float32([1, 2, 3])))
    feed = {"x": np.ones((2, 6), "f4"), "b": np.float32([7, 8, 9])}
    np.testing.assert_array_equal(ours.run(None, feed)[0], theirs.run(None, feed)[0])


@pytest.mark.parametrize("value", [np.int64([-1, 3]), np.int64([6, 2]), np.int64([12, 1])])
def test_a_shape_may_be_given(value):
    text = """g (float[n, 6] x, int64[2] shape) => (float[k, m] y) { y = Reshape(x, shape) }"""
    ours, theirs = both(model(text, shape=np.int64([3, -1])))
    feed = {"x": np.ones((2, 6), "f4"), "shape": value}
    assert ours.run(None, feed)[0].shape == theirs.run(None, feed)[0].shape


@pytest.mark.parametrize("declared", ["[k]", ""])
def test_sizes_that_are_open_may_change(declared):
    text = f"g (float[n] x, float{declared} b) => (float[m] y) {{ y = Add(x, b) }}"
    proto = model(text, b=np.float32([1, 2, 3]))
    if not declared:
        proto.graph.input[1].type.tensor_type.ClearField("shape")
    ours, theirs = both(proto)
    for size in (1, 3):
        feed = {"x": np.ones(3, "f4"), "b": np.arange(size, dtype="f4")}
        np.testing.assert_array_equal(ours.run(None, feed)[0], theirs.run(None, feed)[0])


def test_texts_may_be_given():
    text = """g (string[n] x, string[1] t) => (bool[n] y, string[1] s) { y = Equal(x, t) s = Identity(t) }"""
    graph = onnx.parser.parse_graph(text)
    graph.initializer.append(helper.make_tensor("t", onnx.TensorProto.STRING, [1], ["red"]))
    opset = helper.make_opsetid("", 19)
    ours, _ = both(helper.make_model(graph, opset_imports=[opset], ir_version=9))
    x = np.array(["red", "blue"], object)
    y, s = ours.run(None, {"x": x})
    assert y.tolist() == [True, False] and s.tolist() == ["red"]
    y, s = ours.run(None, {"x": x, "t": np.array(["blue"], object)})
    assert y.tolist() == [False, True] and s.tolist() == ["blue"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"w": W.astype("f8")}, "input 'w' must have element type float32, got float64"),
        ({"w": W[:2]}, r"input 'w' must have shape \[3, 2\], got \[2, 2\]"),
        ({"b": W}, r"input 'b' must have 1 dimensions \[2\], got 2"),
        ({"b": B, "c": B}, r"no input called 'c'; the inputs are \['x', 'b'\]"),
    ],
)
def test_values_are_checked_as_inputs_are(given, message):
    ours, _ = both(model())
    with pytest.raises(InvalidArgument, match=message):
        ours.run(None, {"x": X, **given})


def test_an_io_binding_takes_them():
    ours, theirs = both(model())
    binding = ours.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("b", B * 2)
    binding.bind_output("y")
    ours.run_with_iobinding(binding)
    want = theirs.run(None, {"x": X, "b": B * 2})[0]
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], want)


@pytest.mark.parametrize("folder", ["cache", ""])
def test_one_program_for_each_set_of_names(folder, tmp_path, monkeypatch):
    data = model().SerializeToString()
    folder = folder and tmp_path / folder
    compiled = []
    compile_one = inference.compile_overriding
    monkeypatch.setattr(
        inference, "compile_overriding", lambda c, n: compiled.append(n) or compile_one(c, n)
    )
    s = InferenceSession(data, cache_dir=folder)
    s.run(None, {"x": X})
    assert compiled == []
    for given in ({"w": W}, {"w": -W}, {"b": B}, {}, {"w": W}):
        s.run(None, {"x": X, **given})
    assert compiled == [{"w"}, {"b"}]


def test_the_cache_keeps_each_program(tmp_path, monkeypatch):
    from relaxvm._session import build

    data = model().SerializeToString()
    cache = tmp_path / "cache"
    first = InferenceSession(data, cache_dir=cache)
    assert entries(cache) == 1
    want = first.run(None, {"x": X, "w": -W})[0]
    assert entries(cache) == 2
    monkeypatch.setattr(build, "_compile", lambda *_: pytest.fail("compiled again"))
    again = InferenceSession(data, cache_dir=cache)
    assert [a.name for a in again.get_overridable_initializers()] == ["w", "b"]
    np.testing.assert_array_equal(again.run(None, {"x": X, "w": -W})[0], want)
    np.testing.assert_array_equal(again.run(None, {"x": X})[0], first.run(None, {"x": X})[0])


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("changed", ["model.onnx", "w.bin"])
def test_a_file_that_changed_meanwhile_is_refused(tmp_path, cached, changed):
    path = tmp_path / "model.onnx"
    onnx.save(model(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    s = InferenceSession(path, cache_dir=tmp_path / "cache" if cached else "")
    content = bytearray((tmp_path / changed).read_bytes())
    content[-1] ^= 1
    (tmp_path / changed).write_bytes(content)
    s.run(None, {"x": X})
    with pytest.raises(inference.Fail, match=r"written to since.*\['b'\], make a new session"):
        s.run(None, {"x": X, "b": B})


def test_external_weights_may_be_overridden(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(model(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    s = InferenceSession(path)
    got = s.run(None, {"x": X, "w": -W})[0]
    np.testing.assert_allclose(got, np.maximum(X @ -W + B, 0))


def test_threads_that_give_values_at_once_share_a_program():
    ours, theirs = both(model())
    results = {}

    def work(i):
        results[i] = ours.run(None, {"x": X, "w": W * i})[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(4):
        np.testing.assert_allclose(results[i], theirs.run(None, {"x": X, "w": W * i})[0])
    assert len(ours._overriding) == 1


def test_the_number_of_threads_holds_for_all_programs():
    ours, _ = both(model())
    ours.run(None, {"x": X, "b": B})
    ours.num_threads = 1
    assert [s.num_threads for s in ours._overriding.values()] == [1]
