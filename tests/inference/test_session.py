# SPDX-License-Identifier: Apache-2.0
"""InferenceSession in place of onnxruntime's: names, arrays, threads, errors."""

import logging
import os
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import relaxvm
import relaxvm.inference as inference
from relaxvm.inference import InferenceSession

TWICE = "g (float[n, 3] x) => (float[n, 3] y) { y = Add(x, x) }"


def test_runs_and_names_its_outputs(session):
    x = np.arange(6, dtype="f4").reshape(2, 3)
    (y,) = session(TWICE).run(None, {"x": x})
    np.testing.assert_array_equal(y, x + x)
    assert y.dtype == np.float32


def test_gives_outputs_in_the_order_asked_for(session):
    s = session("g (float[n] x) => (float[n] a, float[n] b) { a = Exp(x) b = Neg(x) }")
    x = np.float32([1, 2])
    b, a = s.run(["b", "a"], {"x": x})
    np.testing.assert_allclose(a, np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(b, -x)


def test_says_what_the_model_is(model_bytes):
    data = model_bytes(
        "g (float[n, 3, q] x, int64 k) => (float[n, 3, q] y) { f = Cast<to=1>(k) y = Mul(x, f) }",
        producer_name="me",
        doc_string="about",
        domain="d",
        model_version=7,
    )
    import onnx

    proto = onnx.load_from_string(data)
    proto.metadata_props.add(key="character", value="a\nb")
    s = InferenceSession(proto.SerializeToString())
    x, k = s.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["n", 3, "q"])
    assert (k.name, k.type, k.shape) == ("k", "tensor(int64)", [])
    assert [o.name for o in s.get_outputs()] == ["y"]
    meta = s.get_modelmeta()
    assert meta.custom_metadata_map == {"character": "a\nb"}
    assert (meta.producer_name, meta.description, meta.domain) == ("me", "about", "d")
    assert (meta.version, meta.graph_name) == (7, "g")
    assert s.get_providers() == ["CPUExecutionProvider"]


def test_outputs_have_the_sizes_that_operators_give(session):
    s = session(
        "g (float[n, 3] x) => (float[a, b] y, float z) "
        "{ y = Concat<axis=1>(x, x) z = Constant<value_float=1.0>() }"
    )
    assert [o.shape for o in s.get_outputs()] == [["a", 6], []]


@pytest.mark.parametrize("rows", [0, 1, 2, 17])
def test_one_compilation_serves_every_shape(session, rows):
    x = np.ones((rows, 3), "f4")
    (y,) = session(TWICE).run(None, {"x": x})
    np.testing.assert_array_equal(y, x + x)


def test_run_never_compiles(session, monkeypatch):
    import relaxvm._compile as compiler

    calls = []
    real = compiler._build
    monkeypatch.setattr(compiler, "_build", lambda *a, **k: calls.append(1) or real(*a, **k))
    s = session(TWICE)
    assert len(calls) == 1
    for rows in range(1, 101):
        s.run(None, {"x": np.ones((rows, 3), "f4")})
    assert len(calls) == 1


# ---- arrays


def layouts():
    base = np.arange(24, dtype="f4").reshape(8, 3)
    frozen = base.copy()
    frozen.flags.writeable = False
    yield "read-only", frozen
    yield "every second row", base[::2]
    yield "reversed", base[::-1]
    yield "transposed", np.arange(24, dtype="f4").reshape(3, 8).T
    yield "from bytes", np.frombuffer(base.tobytes(), "f4").reshape(8, 3)
    unaligned = np.frombuffer(b"\0" + base.tobytes(), "f4", offset=1).reshape(8, 3)
    yield "unaligned", unaligned
    yield "other byte order", base.astype(">f4")


@pytest.mark.parametrize(("name", "x"), list(layouts()), ids=[n for n, _ in layouts()])
def test_takes_arrays_of_any_layout(session, name, x):
    (y,) = session(TWICE).run(None, {"x": x})
    np.testing.assert_array_equal(y, (x + x).astype("f4"))


def test_takes_arrays_of_all_layouts_by_turns(session):
    """Once one was refused, arrays are made dense before the call."""
    s = session(TWICE)
    for _ in range(3):
        for name, x in layouts():
            (y,) = s.run(None, {"x": x})
            np.testing.assert_array_equal(y, (x + x).astype("f4"), err_msg=name)
            assert not np.shares_memory(x, y)


def test_takes_and_gives_scalars(session):
    s = session("g (float x) => (float y) { y = Exp(x) }")
    for x in (np.float32(1), np.array(1, "f4")):
        (y,) = s.run(None, {"x": x})
        assert y.shape == () and abs(float(y) - np.e) < 1e-5


@pytest.mark.parametrize(
    "dtype", ["f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
)
def test_takes_and_gives_all_element_types(model_bytes, dtype):
    import onnx
    from onnx import helper

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    infos = [helper.make_tensor_value_info(n, kind, ["n"]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)], "g", *[[i] for i in infos]
    )
    data = helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)]
    ).SerializeToString()
    x = np.array([0, 1, 1]).astype(dtype)
    (y,) = InferenceSession(data).run(None, {"x": x})
    np.testing.assert_array_equal(y, np.concatenate([x, x]))
    assert y.dtype == x.dtype


def test_outputs_stay_valid_after_the_next_run(session):
    s = session(TWICE)
    kept = [s.run(None, {"x": np.full((2, 3), i, "f4")})[0] for i in range(10)]
    for i, y in enumerate(kept):
        np.testing.assert_array_equal(y, np.full((2, 3), 2 * i, "f4"))


def test_outputs_outlive_the_session(session):
    (y,) = session(TWICE).run(None, {"x": np.ones((2, 3), "f4")})
    np.testing.assert_array_equal(y, np.full((2, 3), 2, "f4"))


def test_outputs_belong_to_the_caller(session):
    """An output that is an input, or a constant of the model, is a copy."""
    s = session(
        "g (float[3] x) => (float[3] a, float[3] b, float[1, 3] c)"
        " { a = Identity(x) b = Identity(w) z = Constant<value_ints = [0]>() c = Unsqueeze(w, z) }",
        initializers={"w": np.float32([1, 2, 3])},
    )
    x = np.zeros(3, "f4")
    for _ in range(2):
        a, b, c = s.run(None, {"x": x})
        np.testing.assert_array_equal(b, [1, 2, 3])
        np.testing.assert_array_equal(c, [[1, 2, 3]])
        a += 1
        b += 1
        c += 1
    np.testing.assert_array_equal(x, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"u": np.zeros((2, 5), "f4")}, "input 'u' must have shape"),
        ({"u": np.zeros((2, 4), "f8")}, "input 'u' must have element type float32, got float64"),
        ({"u": np.zeros(8, "f4")}, "input 'u' must have 2 dimensions"),
        ({"u": np.zeros((3, 4), "f4")}, "dimension 0 of input 'u' is 3, but 'n' is 2 already"),
        ({"x": np.zeros((2, 3), "c8")}, "input 'x' must have element type float32, got complex64"),
        ({"x": np.zeros((2, 3), "O")}, "input 'x' must have element type float32, got object"),
        ({"z": np.zeros(1, "f4")}, "there is no input called 'z'"),
    ],
)
def test_every_input_is_checked_in_every_run(session, change, message):
    s = session(
        "g (float[n, 3] x, float[n, 4] u) => (float[n, 7] y) { y = Concat<axis: int = 1>(x, u) }"
    )
    good = {"x": np.ones((2, 3), "f4"), "u": np.ones((2, 4), "f4")}
    np.testing.assert_array_equal(s.run(None, good)[0], np.ones((2, 7)))
    with pytest.raises(inference.InvalidArgument, match=message):
        s.run(None, {**good, **change})


def test_takes_tensors_and_lists_in_place_of_arrays(session):
    s = session(TWICE)
    for x in ([[1.0, 2, 3]], relaxvm.runtime.tensor(np.float32([[1, 2, 3]]))):
        (y,) = s.run(None, types.MappingProxyType({"x": x}))
        assert type(y) is np.ndarray and y.tolist() == [[2, 4, 6]]


def test_empty_outputs_of_empty_inputs_belong_to_the_caller(session):
    s = session("g (float[n] x) => (float[n] a, float[n] b) { a = Identity(x) b = Exp(x) }")
    a, b = s.run(None, {"x": np.zeros(0, "f4")})
    assert a.shape == b.shape == (0,) and a.flags.writeable and b.flags.writeable


def test_views_of_inputs_are_copied(session):
    s = session(
        "g (float[4, 3] x) => (float[2, 3] a, float[12] b)"
        " { s = Constant<value_ints = [2]>() e = Constant<value_ints = [4]>()"
        " a = Slice(x, s, e) t = Constant<value_ints = [-1]>() b = Reshape(x, t) }"
    )
    x = np.arange(12, dtype="f4").reshape(4, 3)
    a, b = s.run(None, {"x": x})
    a[:] = b[:] = -1
    np.testing.assert_array_equal(x, np.arange(12).reshape(4, 3))


def test_threads_run_one_session_at_once(session):
    s = session(TWICE)
    wrong = []

    def work(i):
        for k in range(50):
            x = np.full((i + 1, 3), k, "f4")
            if not np.array_equal(s.run(None, {"x": x})[0], x + x):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- options


def test_takes_session_options_of_any_make(model_bytes):
    options = types.SimpleNamespace(intra_op_num_threads=1, enable_cpu_mem_arena=False)
    s = InferenceSession(
        model_bytes(TWICE),
        sess_options=options,
        providers=[("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})],
    )
    assert s.num_threads == 1 and s.get_session_options() is options


@pytest.mark.peer
def test_takes_onnxruntimes_own_session_options(model_bytes):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    s = InferenceSession(model_bytes(TWICE), options, ["CPUExecutionProvider"])
    assert s.num_threads == 1


def test_says_that_a_provider_is_not_there(model_bytes, caplog):
    with caplog.at_level(logging.WARNING, "relaxvm.inference"):
        InferenceSession(model_bytes(TWICE), providers=["CUDAExecutionProvider"])
    assert "runs on the CPU" in caplog.text


def test_number_of_threads_can_change(session):
    s = session(TWICE)
    assert s.num_threads >= 1
    s.num_threads = 1
    assert s.num_threads == 1
    np.testing.assert_array_equal(s.run(None, {"x": np.ones((1, 3), "f4")})[0], 2)


_ONE_THREAD = """
import os, sys
import numpy as np
from relaxvm._ffi import runtime_function
from relaxvm.inference import InferenceSession

def threads():
    return len(os.listdir("/proc/self/task"))

s = InferenceSession(sys.argv[1], num_threads=1, cache_dir="")
feed = {"x": np.ones((50, 4, 256), "f4")}
before = threads()
s.run(None, feed)
s._compiled.vm.profile("main", feed["x"])
alone = threads() - before
s.num_threads = 3
s.run(None, feed)
wanted = min(3, runtime_function("runtime.num_usable_cpus")())
print(alone, threads() - before == wanted - 1)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux's list of threads")
def test_one_thread_starts_no_other(model_bytes, tmp_path):
    text = "m (float[t, n, 256] x) => (float[t, n, 256] y) { p = MatMul(x, w) q = Relu(p) y = MatMul(q, w) }"
    path = tmp_path / "model.onnx"
    path.write_bytes(model_bytes(text, initializers={"w": np.eye(256, dtype="f4")}))
    out = subprocess.run(
        [sys.executable, "-c", _ONE_THREAD, str(path)], capture_output=True, text=True, timeout=300
    )
    assert out.stdout.split() == ["0", "True"], out.stderr


def test_one_provider_may_be_a_name(model_bytes):
    s = InferenceSession(model_bytes(TWICE), providers="CPUExecutionProvider")
    assert s.get_providers() == ["CPUExecutionProvider"]


def test_has_options_when_none_are_given(session):
    assert session(TWICE).get_session_options().intra_op_num_threads == 0


def test_says_that_an_option_has_no_effect(model_bytes, caplog):
    options = inference.SessionOptions()
    options.enable_profiling = True
    InferenceSession(model_bytes(TWICE), options)
    assert "enable_profiling has no effect" in caplog.text


def test_options_keep_their_entries():
    options = inference.SessionOptions()
    options.add_session_config_entry("a", "1")
    assert options.has_session_config_entry("a") and options.get_session_config_entry("a") == "1"
    with pytest.raises(RuntimeError, match="no session config entry 'b'"):
        options.get_session_config_entry("b")


# ---- errors


def test_what_is_not_supported_is_a_clear_error(session):
    with pytest.raises(
        inference.NotImplemented, match="InferenceSession.end_profiling is not supported"
    ):
        session(TWICE).end_profiling()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"providers": b"CPUExecutionProvider"}, "providers must be a list"),
        ({"providers": [3]}, "a provider is a name"),
        ({"provider_options": [{}]}, "provider_options needs providers"),
        ({"num_threads": -1}, "num_threads must be 0"),
        ({"num_threads": 1.5}, "num_threads must be an int"),
    ],
)
def test_says_what_is_wrong_with_an_option(model_bytes, options, message):
    with pytest.raises(inference.InvalidArgument, match=message):
        InferenceSession(model_bytes(TWICE), **options)


def test_kinds_of_errors_are_onnxruntimes(model_bytes, tmp_path):
    good = model_bytes(TWICE)
    with pytest.raises(inference.NoSuchFile, match="no file '.*nowhere.onnx'"):
        InferenceSession(tmp_path / "nowhere.onnx")
    with pytest.raises(inference.NoSuchFile, match="is not a file"):
        InferenceSession(tmp_path)
    with pytest.raises(inference.InvalidProtobuf, match="damaged or truncated"):
        InferenceSession(good[:-5])
    with pytest.raises(inference.InvalidGraph, match="made by no earlier node"):
        InferenceSession(model_bytes("g (float[n] x) => (float[n] y) { y = Exp(z) }"))
    with pytest.raises(inference.NotImplemented, match="Foo"):
        InferenceSession(model_bytes("g (float[n] x) => (float[n] y) { y = Foo(x) }"))
    with pytest.raises(inference.InvalidArgument, match="no value for the inputs"):
        InferenceSession(good).run(None, {})
    with pytest.raises(TypeError, match="a path or bytes, not int"):
        InferenceSession(3)


def test_a_mirrored_border_longer_than_its_axis_is_an_error(session):
    s = session(
        "g (float[n] x) => (float[m] y) { p = Constant<value = int64[2] {3, 2}>() "
        'y = Pad<mode = "reflect">(x, p) }'
    )
    (y,) = s.run(None, {"x": np.float32([0, 1, 2, 3])})
    np.testing.assert_array_equal(y, [3, 2, 1, 0, 1, 2, 3, 2, 1])
    with pytest.raises(inference.Fail, match="Pad.*expected to be 4, but it is 3"):
        s.run(None, {"x": np.float32([0, 1, 2])})


def test_a_relation_that_does_not_hold_is_an_error_of_the_run(session):
    s = session("g (float[n] a, float[m] b) => (float[k] y) { y = Add(a, b) }")
    np.testing.assert_array_equal(
        s.run(None, {"a": np.ones(3, "f4"), "b": np.ones(3, "f4")})[0], [2, 2, 2]
    )
    with pytest.raises(inference.Fail):
        s.run(None, {"a": np.ones(3, "f4"), "b": np.ones(4, "f4")})


def test_a_window_larger_than_its_data_is_an_error_that_names_the_shapes(session):
    s = session("g (float[n,1,h] x, float[1,1,5] w) => (float[a,b,c] y) { y = Conv(x, w) }")
    w = np.ones((1, 1, 5), "f4")
    assert s.run(None, {"x": np.ones((2, 1, 5), "f4"), "w": w})[0].shape == (2, 1, 1)
    with pytest.raises(inference.Fail, match=r"window.*'x' \[2, 1, 3\], 'w' \[1, 1, 5\]"):
        s.run(None, {"x": np.ones((2, 1, 3), "f4"), "w": w})


# ---- cache


def test_second_session_comes_from_the_cache(model_bytes, tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(model_bytes(TWICE))
    InferenceSession(path)
    monkeypatch.setattr("relaxvm.compile", lambda *a, **k: pytest.fail("compiled again"))
    s = InferenceSession(path)
    x = np.ones((2, 3), "f4")
    np.testing.assert_array_equal(s.run(None, {"x": x})[0], x + x)
    assert s.get_inputs()[0].shape == ["n", 3]


def test_another_model_is_compiled(model_bytes, tmp_path):
    a = InferenceSession(model_bytes(TWICE))
    b = InferenceSession(model_bytes(TWICE.replace("Add", "Mul")))
    x = np.full((1, 3), 3, "f4")
    assert a.run(None, {"x": x})[0][0, 0] == 6 and b.run(None, {"x": x})[0][0, 0] == 9


def test_damaged_cache_entries_are_made_again(model_bytes, tmp_path):
    data = model_bytes(TWICE)
    InferenceSession(data)
    (library,) = (tmp_path / "cache").glob("*.so")
    content = bytearray(library.read_bytes())
    content[len(content) // 2 :: 7] = bytes(len(content[len(content) // 2 :: 7]))
    library.write_bytes(content)
    x = np.ones((2, 3), "f4")
    np.testing.assert_array_equal(InferenceSession(data).run(None, {"x": x})[0], x + x)


def test_bytes_find_external_data_where_the_options_say(tmp_path):
    import onnx
    from onnx import external_data_helper, helper, numpy_helper

    tensor = numpy_helper.from_array(np.float32([1, 2, 3]), "w")
    graph = onnx.parser.parse_graph("g (float[n, 3] x) => (float[n, 3] y) { y = Add(x, w) }")
    graph.initializer.append(tensor)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    external_data_helper.convert_model_to_external_data(model, location="w.bin", size_threshold=0)
    onnx.save(model, tmp_path / "model.onnx")
    options = inference.SessionOptions()
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(tmp_path)
    )
    s = InferenceSession((tmp_path / "model.onnx").read_bytes(), options)
    np.testing.assert_array_equal(s.run(None, {"x": np.ones((1, 3), "f4")})[0], [[2, 3, 4]])


def test_changed_external_data_is_seen(tmp_path):
    import onnx
    from onnx import TensorProto, helper

    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy"]
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], [tensor])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx"
    )
    for factor in (2, 3):
        (tmp_path / "w.bin").write_bytes(np.float32(factor).tobytes())
        (y,) = InferenceSession(tmp_path / "m.onnx").run(None, {"x": np.ones(2, "f4")})
        np.testing.assert_array_equal(y, np.full(2, factor, "f4"))


def test_works_without_a_cache(model_bytes, tmp_path):
    s = InferenceSession(model_bytes(TWICE), cache_dir="")
    assert s.run(None, {"x": np.ones((1, 3), "f4")})[0][0, 0] == 2
    assert not (tmp_path / "cache").exists()
