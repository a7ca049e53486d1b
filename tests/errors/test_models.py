# SPDX-License-Identifier: Apache-2.0
"""Mistakes with models: one clear error each, that says what and where, and nothing half-written."""

import os
import signal

import numpy as np
import pytest
from onnx import helper, parser

import relaxvm
from relaxvm.inference import InferenceSession

MODEL = "g (float[n, 3] x, float[n] z) => (float[n, 3] y) { y = Mul(x, x) }"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def model(tmp_path):
    def write(text=MODEL):
        proto = helper.make_model(
            parser.parse_graph(text), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        )
        path = tmp_path / "m.onnx"
        path.write_bytes(proto.SerializeToString())
        return path

    return write


def test_truncated_model(model):
    path = model()
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(
        ValueError, match="m.onnx': is not an ONNX model, or is damaged or truncated"
    ):
        relaxvm.compile(path)


def test_missing_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.onnx"):
        relaxvm.compile(tmp_path / "nowhere.onnx")


def test_unknown_operators_are_named_together(model):
    path = model("g (float[n] x) => (float[n] y) { a = Foo(x) y = Bar(a) }")
    with pytest.raises(NotImplementedError, match="(?s)2 operators.*Bar.*Foo"):
        relaxvm.compile(path)


def test_unknown_target(model):
    with pytest.raises(ValueError, match="unknown target 'vax'"):
        relaxvm.compile(model(), target="vax")


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({"y": np.ones((2, 3), "f4"), "z": np.ones(2, "f4")}, r"no value for the inputs \['x'\]"),
        ({"x": np.ones((2, 3), "f4")}, r"no value for the inputs \['z'\]"),
        ({"x": np.ones(3, "f4"), "z": np.ones(2, "f4")}, "'x' must have 2 dimensions"),
        ({"x": np.ones((2, 4), "f4"), "z": np.ones(2, "f4")}, "dimension 1 is 4, not 3"),
        ({"x": np.ones((2, 3)), "z": np.ones(2, "f4")}, "element type float32, got float64"),
    ],
)
def test_wrong_inputs(model, feed, message):
    with pytest.raises(ValueError, match=message):
        InferenceSession(model()).run(None, feed)


def test_sizes_under_one_name(model):
    path = model("g (float[n, 3] x, float[n] z) => (float[3] y) { y = MatMul(z, x) }")
    with pytest.raises(ValueError, match="'z' is 5, but 'n' is 2 already"):
        InferenceSession(path).run(None, {"x": np.ones((2, 3), "f4"), "z": np.ones(5, "f4")})


def test_a_contradiction_that_only_the_vm_can_see_names_the_node(model):
    path = model("g (float[n] x, float[m] z) => (float[k] y) { y = Add(x, z) }")
    session = InferenceSession(path)
    with pytest.raises(RuntimeError, match="node that makes 'y' .Add.*to be 3, but it is 4"):
        session.run(None, {"x": np.ones(3, "f4"), "z": np.ones(4, "f4")})


def test_unwritable_library(model, tmp_path):
    executable = relaxvm.compile(model())
    before = set(tmp_path.iterdir())
    with pytest.raises((RuntimeError, OSError, ValueError), match="no/such/folder"):
        executable.export_library(tmp_path / "no/such/folder/m.so")
    assert set(tmp_path.iterdir()) == before


def test_no_linker(model, tmp_path, monkeypatch):
    executable = relaxvm.compile(model())
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RuntimeError, match="linker"):
        executable.export_library(tmp_path / "m.so")
    assert not (tmp_path / "m.so").exists()


def test_no_linker_does_not_stop_a_session(model, monkeypatch, caplog):
    monkeypatch.setenv("PATH", "/nowhere")
    (y,) = InferenceSession(model()).run(
        None, {"x": np.full((1, 3), 3, "f4"), "z": np.ones(1, "f4")}
    )
    np.testing.assert_array_equal(y, np.full((1, 3), 9, "f4"))
    assert "not cached" in caplog.text


@pytest.mark.parametrize("cut", [1, 24, 25, 200, 5000])
def test_truncated_library(model, tmp_path, cut):
    path = tmp_path / "m.so"
    relaxvm.compile(model()).export_library(path)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(ValueError, match="m.so: is truncated or damaged|checksum"):
        relaxvm.load(path)


def test_damaged_library(model, tmp_path):
    path = tmp_path / "m.so"
    relaxvm.compile(model()).export_library(path)
    data = path.read_bytes()
    rng = np.random.default_rng(11)
    for position in rng.integers(len(data), size=50):
        damaged = bytearray(data)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises((ValueError, RuntimeError), match="m.so"):
            relaxvm.load(path)


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt, also where the shell started the tests with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_stops_a_compile(model, interruptible):
    steps = []

    def progress(step, done, total):
        steps.append(step)
        if len(steps) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        relaxvm.compile(model(), progress=progress)
    assert len(steps) < 10
