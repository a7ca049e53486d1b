# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of this folder import its programs, and run what they compile in both modes."""

from __future__ import annotations

import functools
import pathlib
import sys

import pytest

import relaxvm

sys.path.insert(0, str(pathlib.Path(__file__).parent))


@pytest.fixture(params=["bytecode", "compiled"])
def exec_mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The mode in which `relaxvm.compile` compiles while a test runs."""
    monkeypatch.setattr(
        relaxvm, "compile", functools.partial(relaxvm.compile, exec_mode=request.param)
    )
    return request.param
