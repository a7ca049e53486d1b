# SPDX-License-Identifier: Apache-2.0
"""Files give dimensions of different sizes one name: a run that shows it makes the session compile them apart."""

import logging

import numpy as np
import onnx
import pytest
from onnx import helper

from relaxvm.inference import InferenceSession, InvalidArgument

JOINED = """g (float[n, width] a, float[n, width] b) => (float[n, width] y, float[n] s)
    { y = Concat<axis: int = 1>(a, b) one = Constant<value_ints: ints = [1]>()
      s = ReduceSum<keepdims: int = 0>(y, one) }"""


def model(text: str = JOINED) -> bytes:
    graph = onnx.parser.parse_graph(text)
    opsets = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def check(session: InferenceSession, a: np.ndarray, b: np.ndarray) -> None:
    y, s = session.run(None, {"a": a, "b": b})
    want = np.concatenate([a, b], axis=1)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_allclose(s, want.sum(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("given", ["bytes", "path"])
def test_sizes_differ(given, tmp_path, caplog):
    source = model()
    if given == "path":
        path = tmp_path / "m.onnx"
        path.write_bytes(source)
        source = str(path)
    session = InferenceSession(source, cache_dir=tmp_path / "cache", num_threads=2)
    check(session, floats(3, 5), floats(3, 5))
    with caplog.at_level(logging.WARNING, "relaxvm.inference"):
        check(session, floats(3, 5), floats(3, 2))
        check(session, floats(3, 4), floats(3, 7))
        check(session, floats(2, 4), floats(2, 4))
    assert len(caplog.records) == 1 and "dimension 1 of input 'b' is 2" in caplog.text
    assert session.get_inputs()[1].shape == ["n", "width"]
    session.num_threads = 1
    check(session, floats(2, 1), floats(2, 3))
    again = InferenceSession(source, cache_dir=tmp_path / "cache")
    check(again, floats(2, 1), floats(2, 3))
    check(again, floats(2, 3), floats(2, 3))


def test_what_operators_need_is_still_checked():
    session = InferenceSession(model(), cache_dir="")
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="'n' is 3 already"):
            session.run(None, {"a": floats(3, 5), "b": floats(2, 5)})
    check(session, floats(3, 5), floats(3, 5))
    check(session, floats(3, 5), floats(3, 2))


def test_a_file_that_was_written_to(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model())
    session = InferenceSession(str(path), cache_dir="")
    path.write_bytes(model(JOINED.replace("Concat", "Add").replace("<axis: int = 1>", "")))
    with pytest.raises(InvalidArgument, match="'width' is 5 already"):
        session.run(None, {"a": floats(3, 5), "b": floats(3, 2)})
    check(session, floats(3, 5), floats(3, 5))
