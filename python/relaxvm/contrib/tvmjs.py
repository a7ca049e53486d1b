# SPDX-License-Identifier: Apache-2.0
"""Folders of named tensors (tensor-cache.json and its files), which vm.builtin.tensor_cache.load reads."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

INDEX = "tensor-cache.json"


def _convert_f32_to_bf16(value: np.ndarray) -> np.ndarray:
    """The upper halves of floats, rounded to the nearest, as uint16."""
    bits = np.ascontiguousarray(value, "float32").view("uint32")
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return np.where(np.isnan(value), (bits >> 16) | 0x40, rounded >> 16).astype("uint16")


def _convert_bf16_to_f32(value: np.ndarray) -> np.ndarray:
    return (value.astype("uint32") << 16).view("float32")


def dump_tensor_cache(
    params: Mapping[str, Any] | Iterable[tuple[str, Any]],
    cache_dir: str | os.PathLike,
    encode_format: str = "f32-to-bf16",
    meta_data: Mapping[str, Any] | None = None,
    shard_cap_mb: int = 32,
    update_if_exists: bool = False,
) -> None:
    """Writes arrays or tensors into a folder, in files of about `shard_cap_mb`.

    `encode_format`: "raw", or "f32-to-bf16" to keep float32 in half the bytes.  `update_if_exists` keeps what the
    folder has under other names.  The index is written last: a folder that was left half-way has the old one.
    """
    if encode_format not in ("raw", "f32-to-bf16"):
        raise ValueError(f'encode_format is "raw" or "f32-to-bf16", not {encode_format!r}')
    folder = Path(cache_dir)
    folder.mkdir(parents=True, exist_ok=True)
    named = {
        name: _array(v) for name, v in (params.items() if isinstance(params, Mapping) else params)
    }
    metadata: dict[str, Any] = {}
    if update_if_exists and (folder / INDEX).exists():
        old = load_index(folder)
        metadata.update(old["metadata"])
        named = {**dict(_read_all(folder, old)), **named}
    metadata = {**metadata, "ParamSize": len(named), **(meta_data or {})}
    shards = [
        _write_shard(folder, i, s)
        for i, s in enumerate(_shards(named, encode_format, shard_cap_mb << 20))
    ]
    _write_whole(
        folder / INDEX, json.dumps({"metadata": metadata, "records": shards}, indent=2).encode()
    )
    kept = {shard["dataPath"] for shard in shards}
    for path in folder.glob("params_shard_*.bin"):
        if path.name not in kept:
            path.unlink()


def load_tensor_cache(
    cache_path: str | os.PathLike, device: Any = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of a folder (or of the index in it) and its metadata."""
    from relaxvm.runtime import cpu, tensor

    folder = Path(cache_path)
    folder = folder if folder.is_dir() else folder.parent
    index = load_index(folder)
    where = cpu() if device is None else device
    return {name: tensor(array, where) for name, array in _read_all(folder, index)}, index[
        "metadata"
    ]


def load_index(folder: Path) -> dict[str, Any]:
    """tensor-cache.json of a folder.  ValueError when it is none."""
    try:
        index = json.loads((folder / INDEX).read_text())
        return {"metadata": dict(index["metadata"]), "records": list(index["records"])}
    except (KeyError, TypeError, ValueError) as e:
        raise ValueError(f"{folder / INDEX}: {e}; write the folder again") from e


def _array(value: Any) -> np.ndarray:
    return np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value)


def _shards(
    named: dict[str, np.ndarray], encode_format: str, cap: int
) -> Iterator[list[tuple[dict, bytes]]]:
    """Tensors in groups whose bytes stay below `cap`; a larger one is alone."""
    group: list[tuple[dict, bytes]] = []
    size = 0
    for name, array in named.items():
        halves = encode_format == "f32-to-bf16" and array.dtype == np.float32
        data = (_convert_f32_to_bf16(array) if halves else array).tobytes()
        if group and size + len(data) > cap:
            yield group
            group, size = [], 0
        record = {
            "name": name,
            "shape": list(array.shape),
            "dtype": array.dtype.name,
            "format": "f32-to-bf16" if halves else "raw",
            "nbytes": len(data),
            "byteOffset": size,
        }
        group.append((record, data))
        size += len(data)
    if group:
        yield group


def _write_shard(folder: Path, number: int, group: list[tuple[dict, bytes]]) -> dict[str, Any]:
    data = b"".join(part for _, part in group)
    digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
    # The digest is in the name: the files that an older index points to stay whole until the new index is there.
    name = f"params_shard_{number}_{digest[:8]}.bin"
    _write_whole(folder / name, data)
    records = [record for record, _ in group]
    return {
        "dataPath": name,
        "format": "raw-shard",
        "nbytes": len(data),
        "records": records,
        "md5sum": digest,
    }


def _write_whole(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, path)


def _read_all(folder: Path, index: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    import ml_dtypes

    for shard in index["records"]:
        data = (folder / Path(shard["dataPath"]).name).read_bytes()
        for entry in shard["records"]:
            part = data[entry["byteOffset"] : entry["byteOffset"] + entry["nbytes"]]
            if entry["format"] == "f32-to-bf16" and entry["dtype"] == "float32":
                flat = _convert_bf16_to_f32(np.frombuffer(part, "uint16"))
            else:
                kind = getattr(ml_dtypes, entry["dtype"], entry["dtype"])
                flat = np.frombuffer(part, kind)
            yield entry["name"], flat.reshape(entry["shape"])
