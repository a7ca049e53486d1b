# SPDX-License-Identifier: Apache-2.0
"""What the functions of I, R and T know of the script being parsed: the devices of its module."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any


class _State(threading.local):
    def __init__(self) -> None:
        self.infos: list[dict[str, Any]] = []


_state = _State()


@contextlib.contextmanager
def module_infos(infos: dict[str, Any]) -> Iterator[None]:
    """Inside, names of devices refer to `infos`."""
    _state.infos.append(infos)
    try:
        yield
    finally:
        _state.infos.pop()


def current_infos() -> dict[str, Any] | None:
    """The global infos of the module being parsed; None outside of one."""
    return _state.infos[-1] if _state.infos else None
