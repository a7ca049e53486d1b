# SPDX-License-Identifier: Apache-2.0
"""Rules for every test: a limit on memory, other engines hidden, and one switch to rewrite expected texts."""

from __future__ import annotations

import os
import resource
import sys

import pytest

# Address space, not resident memory: thread stacks and mapped libraries count, so the limit is generous.
MEMORY_LIMIT_BYTES = 12 << 30
# Nothing that a user may lack can be needed by accident: `import onnxruntime` fails outside tests marked `peer`.
HIDDEN = ("onnxruntime", "openvino", "torch", "tvm")


# The spec of each stage is checked after each pass, in processes that tests start as well.
os.environ.setdefault("RELAXVM_VERIFY", "1")


def _hide() -> dict[str, object]:
    hidden = {name: sys.modules.get(name) for name in HIDDEN}
    for name in HIDDEN:
        sys.modules[name] = None  # type: ignore[assignment]
    return hidden


def _show(hidden: dict[str, object]) -> None:
    for name, module in hidden.items():
        if module is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = module  # type: ignore[assignment]


_hidden = _hide()  # from the first import of a test file on


def pytest_configure(config: pytest.Config) -> None:
    # A sanitizer maps terabytes of shadow memory.
    if "LD_PRELOAD" not in os.environ:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = (
            MEMORY_LIMIT_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_LIMIT_BYTES, hard)
        )
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    """Shows the other engines to a test marked `peer`, its fixtures included, and hides them again after it."""
    global _hidden
    if item.get_closest_marker("peer") is None:
        return (yield)
    _show(_hidden)
    try:
        return (yield)
    finally:
        _hidden = _hide()


@pytest.fixture(scope="session")
def bless() -> bool:
    """True when expected texts are to be rewritten: `./dev bless` sets RELAXVM_BLESS=1."""
    return os.environ.get("RELAXVM_BLESS") == "1"
