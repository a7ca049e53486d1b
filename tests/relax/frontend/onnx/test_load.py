# SPDX-License-Identifier: Apache-2.0
"""Reading models: what is damaged or reaches out of the model's folder is refused."""

import gc
import os
import tracemalloc
import weakref

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper

from relaxvm.relax.frontend.onnx import (
    DamagedModel,
    InvalidModel,
    UnsupportedModel,
    from_onnx,
)
from relaxvm.relax.frontend.onnx.load import read_model

ADD = "g (float[n] x) => (float[n] y) { y = Add(x, w) }"


@pytest.fixture
def small(make_model):
    return make_model(ADD, initializers={"w": np.arange(4, dtype="f4")})


def test_reads_path_bytes_and_proto(small, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(small.SerializeToString())
    for source in (path, str(path), small.SerializeToString(), small):
        assert read_model(source).proto.graph.name == "g"


def test_an_imported_model_is_freed_without_the_collector(small):
    model = read_model(small)
    is_alive = weakref.ref(model)
    gc.disable()
    try:
        module = from_onnx(model)
        del model
        assert is_alive() is None
        assert "main" in [var.name_hint for var in module.get_global_vars()]
    finally:
        gc.enable()


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_truncated_files_are_damaged(make_model, kept):
    weights = {"w": np.arange(4000, dtype="f4")}
    data = make_model(ADD, initializers=weights).SerializeToString()
    with pytest.raises(DamagedModel, match="(is empty|damaged or truncated)"):
        read_model(data[: int(len(data) * kept)])


@pytest.mark.parametrize("data", [b"hello", b"\x08\x08", b"PK\x03\x04" * 50, bytes(100)])
def test_other_files_are_no_models(data):
    with pytest.raises(DamagedModel, match="is not an ONNX model"):
        read_model(data)


def test_no_path_of_random_damage_leads_elsewhere(small):
    """A changed byte gives a model or an OnnxError, nothing else."""
    from relaxvm.relax.frontend.onnx import OnnxError

    data = small.SerializeToString()
    rng = np.random.default_rng(7)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.integers(len(data))] = rng.integers(256)
        try:
            model = read_model(bytes(damaged))
            for tensor in model.proto.graph.initializer:
                model.read_tensor(tensor)
        except OnnxError:
            pass


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.onnx"):
        read_model(tmp_path / "nowhere.onnx")


def test_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError):
        read_model(tmp_path)


def test_data_that_does_not_fit_its_shape(small):
    small.graph.initializer[0].dims[0] = 1 << 40
    model = read_model(small)
    with pytest.raises(DamagedModel, match="tensor 'w': its data does not fit"):
        model.read_tensor(model.proto.graph.initializer[0])


def test_texts_that_do_not_fit_their_shape(make_model):
    model = make_model(ADD, initializers={"w": np.array(["a"], object)})
    tensor = model.graph.initializer[0]
    assert read_model(model).read_tensor(tensor).tolist() == ["a"]
    tensor.dims[0] = 2
    with pytest.raises(DamagedModel, match="tensor 'w': its data does not fit"):
        read_model(model).read_tensor(tensor)


def test_old_forms_of_operators_are_unsupported(make_model):
    with pytest.raises(UnsupportedModel, match=r"Add \(opset 6\).*\n.*version_converter"):
        from_onnx(make_model(ADD, opset=6))


def test_old_models_of_operators_that_never_changed_are_imported(make_model):
    text = "g (bool[n] x) => (bool[n] y) { y = Not(x) }"
    assert "logical_not" in from_onnx(make_model(text, opset=1)).script()


# ---- external data


def external(folder, location, data=b"\0" * 16, **entries):
    """A model in `folder` whose initializer lies at `location`."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    node = helper.make_node("Identity", ["w"], ["y"])
    graph = helper.make_graph([node], "g", [], [y], [tensor])
    path = folder / "m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return path


def read_weight(path):
    model = read_model(path)
    return model.read_tensor(model.proto.graph.initializer[0])


def test_reads_external_data(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(np.arange(6, dtype="f4").tobytes())
    array = read_weight(external(tmp_path, "sub/w.bin", offset=4, length=16))
    np.testing.assert_array_equal(array, np.float32([1, 2, 3, 4]))


def test_reads_what_onnx_writes(small, tmp_path):
    external_data_helper.convert_model_to_external_data(small, location="all.bin", size_threshold=0)
    onnx.save(small, tmp_path / "m.onnx")
    np.testing.assert_array_equal(read_weight(tmp_path / "m.onnx"), np.arange(4, dtype="f4"))


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float64", "int64", "uint8", "bool", "int4"]
)
def test_reads_what_onnx_writes_of_every_kind(tmp_path, dtype):
    elem_type = getattr(
        TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())
    )
    numbers = np.arange(8) % 2 if dtype == "bool" else np.arange(8)
    tensor = helper.make_tensor("w", elem_type, [2, 4], numbers)
    y = helper.make_tensor_value_info("y", elem_type, [2, 4])
    node = helper.make_node("Identity", ["w"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [], [y], [tensor]))
    kept = onnx.numpy_helper.to_array(tensor)
    save = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(model, tmp_path / "m.onnx", **save)
    read = read_weight(tmp_path / "m.onnx")
    assert read.dtype == kept.dtype
    np.testing.assert_array_equal(read, kept)


def test_weights_are_held_once(tmp_path):
    megabytes, weights = 8, 6
    size = megabytes << 18
    names = [f"w{i}" for i in range(weights)]
    (tmp_path / "w.bin").write_bytes(bytes(weights * 4 * size))
    tensors = []
    for i, name in enumerate(names):
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[size])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "w.bin", "offset": 4 * size * i, "length": 4 * size}.items():
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [size]) for n in "xy")
    node = helper.make_node("Sum", ["x", *names], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], tensors))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    from_onnx(tmp_path / "m.onnx")  # imports what it needs
    tracemalloc.start()
    try:
        module = from_onnx(tmp_path / "m.onnx")
        held, peak = (b / (megabytes << 20) for b in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    del module
    assert held < weights + 0.5
    assert peak < weights + 2.5  # and one as it was read


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../w.bin", "a/../../w.bin", "..\\w.bin", "", "C:w.bin", "a/.."]
)
def test_data_outside_of_the_folder_is_refused(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(16))
    with pytest.raises(InvalidModel, match="(must lie in the model's folder|names no file)"):
        read_weight(external(folder, location))


def test_link_out_of_the_folder_is_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(16))
    os.symlink(tmp_path / "secret", folder / "w.bin")
    with pytest.raises(InvalidModel, match="is a link out of the model's folder"):
        read_weight(external(folder, "w.bin"))


def test_linked_folder_is_refused(tmp_path):
    folder, other = tmp_path / "model", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "w.bin").write_bytes(bytes(16))
    os.symlink(other, folder / "sub")
    with pytest.raises(InvalidModel, match="is a link out of the model's folder"):
        read_weight(external(folder, "sub/w.bin"))


def test_link_inside_the_folder_is_followed(tmp_path):
    (tmp_path / "real.bin").write_bytes(bytes(16))
    os.symlink("real.bin", tmp_path / "w.bin")
    assert read_weight(external(tmp_path, "w.bin")).shape == (4,)


def test_missing_data_file_is_named(tmp_path):
    with pytest.raises(DamagedModel, match="'w.bin' does not exist"):
        read_weight(external(tmp_path, "w.bin"))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"length": 17}, "needs bytes 0 to 17 of 'w.bin', which has 16"),
        ({"offset": 99}, "needs bytes 99"),
        ({"offset": "-4"}, "the offset of its data is '-4'"),
        ({"length": "1" * 30}, "the length of its data"),
        ({"length": 8}, "does not fit its type and shape"),
    ],
)
def test_wrong_places_in_the_data_file(tmp_path, entries, message):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    with pytest.raises(DamagedModel, match=message):
        read_weight(external(tmp_path, "w.bin", **entries))


def test_bytes_have_no_folder(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    with pytest.raises(InvalidModel, match="give the path of the model, not its bytes"):
        read_weight(external(tmp_path, "w.bin").read_bytes())


def test_indices_of_a_sparse_tensor_that_lie_outside(make_model):
    model = make_model("g (float[4] x) => (float[4] y) { y = Add(x, w) }")
    sparse = model.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0]))
    sparse.indices.CopyFrom(helper.make_tensor("i", TensorProto.INT64, [1], [9]))
    with pytest.raises(
        InvalidModel, match=r"tensor 'w': its indices do not fit its dimensions \[4\]"
    ):
        from_onnx(model)
