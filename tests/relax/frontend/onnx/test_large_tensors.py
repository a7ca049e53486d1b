# SPDX-License-Identifier: Apache-2.0
"""Large tensors stay in the file: whatever the file is, nothing is read otherwise than protobuf would."""

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError

from relaxvm.relax.frontend.onnx import DamagedModel, from_onnx, large_tensors
from relaxvm.relax.frontend.onnx.large_tensors import ModelFile, split
from relaxvm.relax.frontend.onnx.load import read_model

ADD = "g (float[n, 300] x) => (float[n, 300] y) { a = Add(x, w) y = Mul(a, small) }"
ROWS = np.arange(90000, dtype="f4").reshape(300, 300)


@pytest.fixture
def model(make_model):
    return make_model(ADD, initializers={"w": ROWS, "small": np.float32([2])})


def whole(data: bytes) -> onnx.ModelProto:
    """The message with the large tensors put back."""
    message, large = split(ModelFile("", data))
    proto = onnx.ModelProto.FromString(message)
    for tensor in proto.graph.initializer:
        if not tensor.HasField("raw_data") and (raw := large.read(tensor.name)) is not None:
            tensor.raw_data = raw
    return proto


def test_a_large_tensor_is_left_out_and_read_when_it_is_asked_for(model, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    message, _ = split(ModelFile(str(path)))
    assert len(message) < 1000
    for source in (path, model.SerializeToString(), model):
        read = read_model(source)
        tensors = {t.name: read.read_tensor(t) for t in read.proto.graph.initializer}
        np.testing.assert_array_equal(tensors["w"], ROWS)
        np.testing.assert_array_equal(tensors["small"], [2])
    assert whole(model.SerializeToString()) == model


def test_a_file_that_changed_after_it_was_opened_is_damaged(model, tmp_path):
    path = tmp_path / "m.onnx"
    data = model.SerializeToString()
    path.write_bytes(data)
    read = read_model(path)
    path.write_bytes(data[:1000])
    with pytest.raises(DamagedModel, match="tensor 'w': its data cannot be read"):
        from_onnx(read)


def test_data_that_does_not_fit_its_shape(model):
    (w,) = (t for t in model.graph.initializer if t.name == "w")
    w.raw_data = w.raw_data[:-4]
    with pytest.raises(DamagedModel, match="tensor 'w': its data does not fit"):
        from_onnx(model.SerializeToString())


def test_two_tensors_of_one_name_and_one_without(model):
    for name in ("w", ""):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        copy.graph.initializer.add().CopyFrom(onnx.numpy_helper.from_array(ROWS + 1, name))
        assert whole(copy.SerializeToString()) == copy


def test_graphs_that_protobuf_merges(model):
    more = onnx.ModelProto()
    more.graph.initializer.add().CopyFrom(onnx.numpy_helper.from_array(ROWS + 1, "v"))
    data = model.SerializeToString() + more.SerializeToString()
    assert whole(data) == onnx.ModelProto.FromString(data)


@pytest.mark.parametrize("seed", range(4))
def test_random_damage_reads_as_protobuf_reads_it(make_model, monkeypatch, seed):
    monkeypatch.setattr(large_tensors, "_LARGE", 8)
    initializers = {"w": ROWS[:2, :5], "v": np.arange(9), "small": np.float32([2])}
    data = make_model(ADD, initializers=initializers).SerializeToString()
    rng = np.random.default_rng(seed)
    num_read = 0
    for _ in range(1000):
        damaged = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            place = int(rng.integers(len(damaged)))
            kind = rng.integers(4)
            if kind == 0:
                damaged[place] = int(rng.integers(256))
            elif kind == 1:
                del damaged[place : place + int(rng.integers(1, 30))]
            elif kind == 2:
                start = int(rng.integers(len(damaged)))
                damaged[place:place] = damaged[start : start + int(rng.integers(1, 200))]
            else:
                del damaged[place:]
            if not damaged:
                break
        try:
            want = onnx.ModelProto.FromString(bytes(damaged))
        except DecodeError:
            with pytest.raises(DecodeError):
                whole(bytes(damaged))
            continue
        num_read += 1
        # Fields that protobuf does not know keep their places in its serialized form.
        assert whole(bytes(damaged)).SerializeToString(deterministic=True) == (
            want.SerializeToString(deterministic=True)
        )
    assert num_read > 50
