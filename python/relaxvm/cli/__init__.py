# SPDX-License-Identifier: Apache-2.0
"""The command `relaxvm`: compile, run, inspect, doctor."""

from __future__ import annotations


def main() -> None:
    from .app import app

    app()
