# SPDX-License-Identifier: Apache-2.0
"""Compiled models on disk, so that the second compile of a model is nearly free.

An entry is a library `<key>.so` and a record `<key>.json`; the record is written last and makes the
entry valid.  Files are written under another name and renamed, and changes of the folder are made
under a lock, so any number of processes may share it.  What goes wrong here never stops a compile:
it is logged, and the cache is skipped.  A note `<key>.note` has the digest of a large file, so that
a model that nobody wrote to is not read again to be found.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

logger = logging.getLogger("relaxvm.cache")

DEFAULT_LIMIT_BYTES = 4 << 30
LOCK_TIMEOUT_S = 300.0

LEAST_NOTED_BYTES = 1 << 20  # smaller files are read as fast as a note of them
MOST_NOTES = 1000
# A file that was written to so lately may change again and show the same times: file systems count
# them in steps of up to two seconds.
SETTLED_NS = 2_000_000_000


def default_folder() -> Path | None:
    """`RELAXVM_CACHE_DIR`, or ~/.cache/relaxvm; empty turns the cache off."""
    folder = os.environ.get("RELAXVM_CACHE_DIR")
    if folder is not None:
        return Path(folder) if folder else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "relaxvm"


def key_of(*parts: bytes | str) -> str:
    """One name for everything that decides what is compiled."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class CompileCache:
    """Entries in one folder, the least recently used ones dropped above `limit_bytes`."""

    def __init__(self, folder: Path | str, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.folder = Path(folder)
        self.limit_bytes = limit_bytes

    def usable(self) -> bool:
        """Can entries be read and written here, and by nobody else?  Logs why not."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
            info = self.folder.stat()
        except OSError as e:
            logger.warning("the compile cache is not used: %s", e)
            return False
        # Entries are native code: whoever can write them can run code as this user.
        if info.st_uid not in (os.getuid(), 0) or info.st_mode & 0o002:
            logger.warning("the compile cache is not used: others may write to '%s'", self.folder)
            return False
        return True

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Holds off other processes that compile the same thing, for a bounded time."""
        import filelock

        lock = filelock.FileLock(self.folder / f"{key}.lock", timeout=LOCK_TIMEOUT_S)
        try:
            lock.acquire()
        except (OSError, filelock.Timeout) as e:
            logger.warning("the compile cache is not locked: %s", e)
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def find(self, key: str) -> tuple[Path, dict[str, Any]] | None:
        """The library and the record of an entry."""
        library, record = self._paths(key)
        try:
            info = json.loads(record.read_bytes())
            if library.stat().st_size != info["library_bytes"]:
                raise ValueError("the library has another size than recorded")
            os.utime(record)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as e:
            logger.warning("cache entry %s is not used: %s", key, e)
            self.drop(key)
            return None
        return library, info

    def put(self, key: str, write_library: Callable[[str], None], info: dict[str, Any]) -> bool:
        """Adds an entry; `write_library` writes to the path it is given.  False: it was skipped."""
        library, record = self._paths(key)
        try:
            with tempfile.TemporaryDirectory(dir=self.folder, prefix="new-") as scratch:
                new_library, new_record = Path(scratch) / "model.so", Path(scratch) / "model.json"
                write_library(str(new_library))
                info = dict(info, library_bytes=new_library.stat().st_size)
                new_record.write_text(json.dumps(info))
                os.replace(new_library, library)
                os.replace(new_record, record)
            self._evict(keep=key)
        except (OSError, RuntimeError, ValueError) as e:
            logger.warning("the compiled model is not cached: %s", e)
            return False
        return True

    def digest_of(self, path: str, kind: str, digest: Callable[[str], str]) -> str:
        """`digest(path)`; of a large file that nobody wrote to since, as it was noted.

        `kind` names how `digest` computes it.  OSError: the file cannot be read.
        """
        before = state_of(path)
        if before[2] < LEAST_NOTED_BYTES:
            return digest(path)
        note = self.folder / f"{key_of(kind, os.path.realpath(path))}.note"
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(note.read_bytes())
            if known["file"] == before:
                return str(known["digest"])
        found = digest(path)
        if state_of(path) == before and before[-1] + SETTLED_NS < time.time_ns():
            self._write_note(note, {"file": before, "digest": found})
        return found

    def _write_note(self, note: Path, content: dict[str, Any]) -> None:
        try:
            with tempfile.TemporaryDirectory(dir=self.folder, prefix="new-") as scratch:
                new = Path(scratch) / "note"
                new.write_text(json.dumps(content))
                os.replace(new, note)
            notes = list(self.folder.glob("*.note"))
            for old in sorted(notes, key=_age)[MOST_NOTES:]:
                old.unlink(missing_ok=True)
        except OSError as e:
            logger.warning("the digest of a file is not noted: %s", e)

    def drop(self, key: str) -> None:
        for path in reversed(self._paths(key)):
            with contextlib.suppress(OSError):
                path.unlink()

    def _evict(self, keep: str) -> None:
        import filelock

        with filelock.FileLock(self.folder / "evict.lock", timeout=LOCK_TIMEOUT_S):
            entries = []
            for record in self.folder.glob("*.json"):
                with contextlib.suppress(OSError):
                    used = record.stat()
                    size = used.st_size + record.with_suffix(".so").stat().st_size
                    entries.append((used.st_mtime_ns, size, record.stem))
            total = sum(size for _, size, _ in entries)
            for _, size, key in sorted(entries):
                if total <= self.limit_bytes:
                    return
                if key != keep:
                    self.drop(key)
                    with contextlib.suppress(OSError):
                        (self.folder / f"{key}.lock").unlink()
                    total -= size

    def _paths(self, key: str) -> tuple[Path, Path]:
        return self.folder / f"{key}.so", self.folder / f"{key}.json"


def state_of(path: str) -> list[int]:
    """What changes with every write to a file: device, inode, size, when it was written to; the last number also with
    other rights or names, and whatever times somebody gives it afterwards."""
    info = os.stat(path)
    return [info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def _age(note: Path) -> float:
    try:
        return -note.stat().st_mtime
    except FileNotFoundError:  # another process was faster
        return 0.0
