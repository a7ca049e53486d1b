# SPDX-License-Identifier: Apache-2.0
"""The folder of compiled models: whole entries or none, a limit, many writers."""

import json
import logging
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from relaxvm import compile_cache
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
    cache = CompileCache(tmp_path)
    path = tmp_path / "model.onnx"
    content = bytearray(1_000_000)
    digests = set()
    for place in (0, 299_999, 300_000, 599_999, 650_000, 999_999):
        content[place] ^= 1
        path.write_bytes(content)
        digests.add(build.Source(str(path), None, None, "the model").digest(cache))
    path.write_bytes(content[:-1])
    digests.add(build.Source(str(path), None, None, "the model").digest(cache))
    assert len(digests) == 7


class Reader:
    """Gives what a file holds, and counts how often it was read."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, path: str) -> str:
        self.count += 1
        return key_of(Path(path).read_bytes())


@pytest.fixture
def large_file(tmp_path, monkeypatch):
    """Written to long enough ago that the clock of the file system has moved on."""
    monkeypatch.setattr(compile_cache, "SETTLED_NS", 50_000_000)
    path = tmp_path / "weights"
    path.write_bytes(b"a" * compile_cache.LEAST_NOTED_BYTES)
    while path.stat().st_ctime_ns + 2 * compile_cache.SETTLED_NS > time.time_ns():
        time.sleep(0.01)
    return path


def test_a_large_file_is_read_once(tmp_path, large_file):
    cache, read = CompileCache(tmp_path), Reader()
    first = cache.digest_of(str(large_file), "content", read)
    assert cache.digest_of(str(large_file), "content", read) == first and read.count == 1
    assert (
        CompileCache(tmp_path).digest_of(str(large_file), "content", read) == first
        and read.count == 1
    )


def test_a_note_is_of_one_kind_of_digest(tmp_path, large_file):
    cache, read = CompileCache(tmp_path), Reader()
    cache.digest_of(str(large_file), "content", read)
    assert cache.digest_of(str(large_file), "other", lambda path: "x") == "x"


@pytest.mark.parametrize("how", ["written", "replaced", "longer"])
def test_a_file_that_was_written_to_is_read_again(tmp_path, large_file, how):
    cache, read = CompileCache(tmp_path), Reader()
    first = cache.digest_of(str(large_file), "content", read)
    times = large_file.stat()
    other = b"b" * (times.st_size + (how == "longer"))
    if how == "replaced":
        (tmp_path / "other").write_bytes(other)
        os.replace(tmp_path / "other", large_file)
    else:
        large_file.write_bytes(other)
    os.utime(large_file, ns=(times.st_atime_ns, times.st_mtime_ns))  # as if nothing had been
    second = cache.digest_of(str(large_file), "content", read)
    assert second != first and second == key_of(other)


def test_what_was_written_lately_is_not_noted(tmp_path, large_file, monkeypatch):
    monkeypatch.setattr(compile_cache, "SETTLED_NS", 60 * 10**9)
    cache, read = CompileCache(tmp_path), Reader()
    cache.digest_of(str(large_file), "content", read)
    cache.digest_of(str(large_file), "content", read)
    assert read.count == 2 and not list(tmp_path.glob("*.note"))


def test_what_is_written_while_it_is_read_is_not_noted(tmp_path, large_file):
    cache = CompileCache(tmp_path)

    def read(path):
        large_file.write_bytes(b"c" * compile_cache.LEAST_NOTED_BYTES)
        return "of what was there before"

    cache.digest_of(str(large_file), "content", read)
    assert not list(tmp_path.glob("*.note"))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"file": {}}'])
def test_damaged_notes_are_not_believed(tmp_path, large_file, content):
    cache, read = CompileCache(tmp_path), Reader()
    first = cache.digest_of(str(large_file), "content", read)
    (note,) = tmp_path.glob("*.note")
    note.write_bytes(content)
    assert cache.digest_of(str(large_file), "content", read) == first and read.count == 2


def test_old_notes_are_dropped(tmp_path, large_file, monkeypatch):
    monkeypatch.setattr(compile_cache, "MOST_NOTES", 3)
    for i in range(5):
        (tmp_path / f"{i}.note").write_text("{}")
        os.utime(tmp_path / f"{i}.note", (i, i))
    CompileCache(tmp_path).digest_of(str(large_file), "content", Reader())
    names = {note.stem for note in tmp_path.glob("*.note")}
    assert len(names) == 3 and {"3", "4"} < names


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
