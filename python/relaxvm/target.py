# SPDX-License-Identifier: Apache-2.0
"""What code is made for, as an object: `with Target("llvm -mcpu=znver3"):` holds for all compilations inside."""

from __future__ import annotations

import contextvars
import json
from collections.abc import Mapping
from typing import Any

_current: contextvars.ContextVar[tuple[Target, ...]] = contextvars.ContextVar(
    "relaxvm_target", default=()
)


class TargetKind(str):
    """What a target is in a word, "llvm"; its `name` is that word."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)


class Target:
    """A kind ("llvm") and its options ({"mcpu": "znver3"}).

    `text` is what the command line takes ("llvm -mcpu=znver3"), a mapping {"kind": "llvm", "mcpu": "znver3"}, such a
    mapping in JSON, or another target.  Options are attributes, too: `target.mcpu`.  `host` is where the code that
    starts kernels runs; a CPU is its own host.
    """

    kind: TargetKind
    attrs: dict[str, Any]
    host: Target | None

    def __init__(self, text: str | Mapping[str, Any] | Target, host: Any = None) -> None:
        if isinstance(text, str) and text.lstrip().startswith("{"):
            text = json.loads(text)
        if isinstance(text, Target):
            host = host if host is not None else text.host
            self.kind, self.attrs = text.kind, dict(text.attrs)
        elif isinstance(text, Mapping):
            others = ("kind", "host", "keys", "tag")
            self.attrs = {str(k): v for k, v in text.items() if k not in others}
            if "kind" not in text:
                raise ValueError(f"target {dict(text)!r} has no 'kind'; write {{'kind': 'llvm'}}")
            self.kind = TargetKind(text["kind"])
            host = host if host is not None else text.get("host")
        else:
            kind, self.attrs = _parse(str(text))
            self.kind = TargetKind(kind)
        self.host = None if host is None else Target(host)

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The innermost target of the `with` blocks around.  ValueError without one, unless that is allowed."""
        stack = _current.get()
        if not stack and not allow_none:
            raise ValueError('no target is set; write `with Target("llvm"):`')
        return stack[-1] if stack else None

    @staticmethod
    def from_device(device: Any) -> Target:
        """What code for a device is made for: this machine's CPU ("cpu", relaxvm.cpu())."""
        from relaxvm.runtime.device import device as named

        device = named(device) if isinstance(device, str) else device
        kind = device.type
        if kind != "cpu":
            raise ValueError(f'there is no target for a device of kind {kind!r}; use "cpu"')
        return Target("llvm")

    @property
    def mcpu(self) -> str:
        return str(self.attrs.get("mcpu", ""))

    def __getattr__(self, name: str) -> Any:
        for key in (name, name.replace("_", "-")):
            if not name.startswith("__") and key in self.__dict__.get("attrs", ()):
                return self.attrs[key]
        raise AttributeError(f"target {self.__dict__.get('kind', '')!r} has no option {name!r}")

    def with_host(self, host: Any) -> Target:
        """The same target, with its kernels started from `host`."""
        return Target(self, host)

    def export(self) -> dict[str, Any]:
        """The mapping that makes the same target."""
        host = {} if self.host is None else {"host": self.host.export()}
        return {"kind": self.kind.name, "tag": "", "keys": self.keys, **self.attrs, **host}

    @property
    def keys(self) -> list[str]:
        return ["cpu"] if self.kind in ("llvm", "c") else [self.kind]

    def __enter__(self) -> Target:
        _current.set((*_current.get(), self))
        return self

    def __exit__(self, *_: Any) -> None:
        _current.set(_current.get()[:-1])

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"-{k}={_value(v)}" for k, v in self.attrs.items())])

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Target) and (str(self), self.host) == (str(other), other.host)

    def __hash__(self) -> int:
        return hash((str(self), self.host))


def _value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    kind, *options = text.split() or [""]
    attrs: dict[str, Any] = {}
    for option in options:
        name, equals, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not equals:
            raise ValueError(f"target {text!r}: {option} is no option; write -mcpu=znver3")
        attrs[name] = value
    if not kind:
        raise ValueError('a target needs a kind, as "llvm"')
    return kind, attrs
