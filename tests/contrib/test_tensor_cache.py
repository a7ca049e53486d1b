# SPDX-License-Identifier: Apache-2.0
"""Folders of named tensors: written by contrib.tvmjs, read by the builtins of the VM."""

import json

import ml_dtypes
import numpy as np
import pytest

import relaxvm
from relaxvm.contrib import tvmjs

load = relaxvm.get_global_func("vm.builtin.tensor_cache.load")
get = relaxvm.get_global_func("vm.builtin.tensor_cache.get")
numbered = relaxvm.get_global_func("vm.builtin.param_array_from_cache")
by_name = relaxvm.get_global_func("vm.builtin.param_array_from_cache_by_name")


@pytest.fixture(autouse=True)
def empty_cache():
    yield
    relaxvm.get_global_func("vm.builtin.tensor_cache.clear")()


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "w_0": rng.integers(0, 9, (3,), dtype="int32"),
        "w_1": rng.standard_normal((4, 5), dtype="float32"),
        "w_2": rng.standard_normal((0, 5), dtype="float32"),
        "b": np.float16([1.5]),
        "h": rng.standard_normal((2, 2)).astype(ml_dtypes.bfloat16),
    }


def test_what_is_written_raw_comes_back(arrays, tmp_path):
    tvmjs.dump_tensor_cache(arrays, tmp_path, "raw", {"note": 7})
    load(str(tmp_path), 1, 0)
    for name, array in arrays.items():
        np.testing.assert_array_equal(get(name).numpy(), array)
    assert [t.shape for t in numbered("w", -1)] == [(3,), (4, 5), (0, 5)]
    assert len(numbered("w", 2)) == 2 and len(by_name(["b", "w_1"])) == 2
    tensors, metadata = tvmjs.load_tensor_cache(tmp_path)
    np.testing.assert_array_equal(tensors["w_1"].numpy(), arrays["w_1"])
    assert metadata == {"ParamSize": 5, "note": 7}


def test_halves_keep_the_nearest_bfloat16(arrays, tmp_path):
    arrays["w_1"][0, :3] = np.nan, np.inf, -0.0
    tvmjs.dump_tensor_cache(arrays, tmp_path)
    load(str(tmp_path), 1, 0)
    want = arrays["w_1"].astype(ml_dtypes.bfloat16).astype("float32")
    np.testing.assert_array_equal(get("w_1").numpy(), want)


def test_small_files_hold_all(arrays, tmp_path):
    many = {f"p_{i}": np.full(300_000, i, "float32") for i in range(4)}
    tvmjs.dump_tensor_cache(many, tmp_path, "raw", shard_cap_mb=1)
    assert len(list(tmp_path.glob("*.bin"))) == 4
    load(str(tmp_path), 1, 0)
    assert [t.numpy()[-1] for t in numbered("p", -1)] == [0, 1, 2, 3]


def test_an_update_keeps_the_others_and_drops_old_files(arrays, tmp_path):
    tvmjs.dump_tensor_cache(arrays, tmp_path, "raw", {"note": 7})
    tvmjs.dump_tensor_cache({"w_0": np.int32([9])}, tmp_path, "raw", update_if_exists=True)
    load(str(tmp_path), 1, 0)
    assert get("w_0").numpy().tolist() == [9] and get("w_1").shape == (4, 5)
    assert len(list(tmp_path.glob("*.bin"))) == 1
    assert tvmjs.load_index(tmp_path)["metadata"]["note"] == 7


def test_names_are_taken_once_unless_overridden():
    update = relaxvm.get_global_func("vm.builtin.tensor_cache.update")
    one = relaxvm.runtime.tensor(np.ones(2, "float32"))
    update("x", one)
    with pytest.raises(ValueError, match="holds 'x' already"):
        update("x", one)
    update("x", one, True)
    relaxvm.get_global_func("vm.builtin.tensor_cache.remove")("x")
    assert get("x") is None
    with pytest.raises(KeyError, match="holds no 'x'"):
        by_name(["x"])


def damage(**changes):
    def apply(index):
        index["records"][0]["records"][1].update(changes)

    return apply


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damage(shape=[1 << 40, 1 << 40]), "larger than its file"),
        (damage(shape=[-1]), "shape must be a list of sizes"),
        (damage(byteOffset=1 << 60), "is not inside its file"),
        (damage(nbytes=12), "is not inside its file"),
        (damage(format="zip"), "the format zip is unknown"),
        (damage(dtype="vax"), "vax"),
        (damage(name=3), "name must be a string"),
        (lambda index: index["records"][0].pop("dataPath"), "dataPath is missing"),
        (lambda index: index["records"][0].update(dataPath="../x"), "leads out of the folder"),
        (lambda index: index["records"][0].update(dataPath="/etc/passwd"), "leads out of"),
        (lambda index: index.update(records=3), "records must be a list"),
    ],
)
def test_a_damaged_index_is_an_error(arrays, tmp_path, change, message):
    tvmjs.dump_tensor_cache(arrays, tmp_path, "raw")
    index = json.loads((tmp_path / "tensor-cache.json").read_text())
    change(index)
    (tmp_path / "tensor-cache.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path), 1, 0)


def test_a_missing_or_broken_index_is_an_error(tmp_path):
    with pytest.raises((OSError, RuntimeError, ValueError), match="tensor-cache.json"):
        load(str(tmp_path), 1, 0)
    (tmp_path / "tensor-cache.json").write_text("{")
    with pytest.raises(ValueError, match="tensor-cache.json"):
        load(str(tmp_path), 1, 0)


def test_python_functions_are_called_by_name():
    register = relaxvm.get_global_func("vm.builtin.register_py_func")
    call = relaxvm.get_global_func("vm.builtin.call_py_func")
    register("test.add", lambda a, b: a + b)
    assert call(["test.add", [2, 3]]) == 5
    assert relaxvm.get_global_func("vm.builtin.get_py_func")("test.add")(1, 1) == 2
    relaxvm.get_global_func("vm.builtin.clear_py_func_registry")()
    with pytest.raises(KeyError, match="no Python function is registered as 'test.add'"):
        call(["test.add", [2, 3]])
