# SPDX-License-Identifier: Apache-2.0
"""The folder of compiled models: whole entries or none, a limit, many writers."""

import json
import logging
import multiprocessing
import os
from pathlib import Path

import pytest

from relaxvm._session import build
from relaxvm.compile_cache import CompileCache, default_folder, key_of


def writes(data: bytes):
    return lambda path: Path(path).write_bytes(data)


def test_finds_what_was_put(tmp_path):
    cache = CompileCache(tmp_path)
    assert cache.put("k", writes(b"code"), {"answer": 42})
    library, info = cache.find("k")
    assert library.read_bytes() == b"code" and info["answer"] == 42


def test_finds_nothing_under_another_key(tmp_path):
    cache = CompileCache(tmp_path)
    cache.put("k", writes(b"code"), {})
    assert cache.find("other") is None


def test_key_depends_on_where_parts_end():
    assert key_of("ab", "c") != key_of("a", "bc")


def test_what_the_system_grants_is_part_of_the_machine(monkeypatch):
    # Two processes on one CPU: the system may refuse matrix registers to one of them.
    of_runtime, before = build._ffi.runtime_function, build.machine()

    def other(name):
        return (lambda: "other") if name == "runtime.describe_machine" else of_runtime(name)

    monkeypatch.setattr(build._ffi, "runtime_function", other)
    assert build.machine() != before


def test_every_byte_of_a_file_of_several_pieces_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_PIECE_BYTES", 300_000)
    path = tmp_path / "model.onnx"
    content = bytearray(1_000_000)
    digests = set()
    for place in (0, 299_999, 300_000, 599_999, 650_000, 999_999):
        content[place] ^= 1
        path.write_bytes(content)
        digests.add(build.Source(str(path), None, None, "the model").digest())
    path.write_bytes(content[:-1])
    digests.add(build.Source(str(path), None, None, "the model").digest())
    assert len(digests) == 7


@pytest.mark.parametrize("spoil", ["library", "record", "missing"])
def test_damaged_entries_are_dropped(tmp_path, spoil, caplog):
    cache = CompileCache(tmp_path)
    cache.put("k", writes(b"code"), {})
    if spoil == "library":
        (tmp_path / "k.so").write_bytes(b"cod")
    elif spoil == "record":
        (tmp_path / "k.json").write_text("{")
    else:
        (tmp_path / "k.so").unlink()
    assert cache.find("k") is None


def test_a_failed_write_leaves_nothing_and_is_logged(tmp_path, caplog):
    def fails(path):
        Path(path).write_bytes(b"half")
        raise RuntimeError("no linker")

    with caplog.at_level(logging.WARNING, "relaxvm.cache"):
        assert not CompileCache(tmp_path).put("k", fails, {})
    assert "no linker" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_drops_the_least_recently_used_above_the_limit(tmp_path):
    cache = CompileCache(tmp_path, limit_bytes=2500)
    for i, key in enumerate("abc"):
        cache.put(key, writes(b"x" * 1000), {})
        if key in ("a", "b"):
            os.utime(tmp_path / f"{key}.json", (i, i))
    assert sorted(p.stem for p in tmp_path.glob("*.so")) == ["b", "c"]


def test_unwritable_folder_is_skipped_with_a_word(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "relaxvm.cache"):
        assert not CompileCache(tmp_path / "file" / "cache").usable()
    assert "the compile cache is not used" in caplog.text


def test_folder_that_others_may_write_to_is_not_trusted(tmp_path, caplog):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert not CompileCache(shared).usable()


def test_environment_names_the_folder(monkeypatch):
    monkeypatch.setenv("RELAXVM_CACHE_DIR", "/somewhere")
    assert default_folder() == Path("/somewhere")
    monkeypatch.setenv("RELAXVM_CACHE_DIR", "")
    assert default_folder() is None


def _write_many(folder, worker):
    cache = CompileCache(folder, limit_bytes=20_000)
    for i in range(20):
        with cache.locked("k"):
            data = bytes([worker]) * 1000
            cache.put("k", writes(data), {"worker": worker})
            library, info = cache.find("k")
            if library.read_bytes() != bytes([info["worker"]]) * 1000:
                os._exit(1)
        cache.put(f"{worker}-{i}", writes(b"x" * 1000), {})


def test_many_writers_never_see_half_an_entry(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write_many, args=(tmp_path, w)) for w in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
    assert [w.exitcode for w in workers] == [0, 0, 0]
    library, info = CompileCache(tmp_path).find("k") or (None, None)
    assert library is None or json.loads((tmp_path / "k.json").read_text()) == info
