# SPDX-License-Identifier: Apache-2.0
"""Devices by name: a script that is being parsed names those of its module."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from .global_info import VDevice


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


def lookup_vdevice(target_kind: str | None = None, device_index: int = -1) -> VDevice:
    """The `device_index`-th device of a kind among the module's."""
    infos = current_infos()
    if infos is None:
        raise ValueError(
            f'device "{target_kind}" is looked up outside of a module; write I.vdevice(...) instead'
        )
    devices = [d for d in infos.get("vdevice", []) if isinstance(d, VDevice)]
    index = max(device_index, 0)
    if target_kind != "vdevice":
        devices = [d for d in devices if str(d.target).split(" ")[0] == target_kind]
    if index >= len(devices):
        raise ValueError(
            f'the module has no device "{target_kind}:{index}"; list it in I.module_global_infos'
        )
    return devices[index]


def lookup_vdevice_text(text: str) -> VDevice:
    """The device written as "kind", "kind:index" or "kind:index:scope"."""
    parts = text.split(":")
    index = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
    return lookup_vdevice(parts[0], index)
