# SPDX-License-Identifier: Apache-2.0
"""What a command prints: tables for people, or one JSON object; and how errors end it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import typer

BAD_INPUT = 2
INTERRUPTED = 130


class Report:
    """Collects the fields of the JSON object; prints tables and lines unless JSON is wanted."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.fields: dict[str, Any] = {}

    def set(self, **fields: Any) -> None:
        self.fields.update(fields)

    def line(self, text: str) -> None:
        if not self.as_json:
            _console().print(text, markup=False, highlight=False, soft_wrap=True)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if self.as_json:
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, title_justify="left", show_edge=False)
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        _console().print(table)

    def code(self, title: str, text: str, language: str) -> None:
        if self.as_json:
            return
        console = _console()
        console.rule(title)
        if console.is_terminal:
            from rich.syntax import Syntax

            console.print(Syntax(text, language, background_color="default"))
        else:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    def finish(self) -> None:
        if self.as_json:
            print(json.dumps(self.fields, indent=2, default=str))

    def fail(self, message: str) -> None:
        if self.as_json:
            print(json.dumps({"error": message}, indent=2))
        print(f"relaxvm: error: {message}", file=sys.stderr)


def _console() -> Any:
    from rich.console import Console

    return Console()


@contextlib.contextmanager
def reporting(report: Report) -> Iterator[Report]:
    """Turns every user's mistake into one message and exit status 2."""
    try:
        yield report
        report.finish()
    except KeyboardInterrupt:
        print("relaxvm: interrupted", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise typer.Exit(1) from None
    except MemoryError as e:
        report.fail(f"out of memory: {e}" if str(e) else "out of memory")
        raise typer.Exit(BAD_INPUT) from None
    except (
        ArithmeticError,
        LookupError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
        ImportError,
    ) as e:
        report.fail(message_of(e))
        raise typer.Exit(BAD_INPUT) from None


def message_of(e: BaseException) -> str:
    """The message of an error without quotes, numbers and frames that mean nothing to a user."""
    if isinstance(e, OSError) and e.strerror and e.filename is not None:
        return f"'{e.filename}': {e.strerror[0].lower()}{e.strerror[1:]}"
    if isinstance(e, KeyError) and e.args:
        return str(e.args[0])
    return str(e) or type(e).__name__


@contextlib.contextmanager
def progress(report: Report, what: str) -> Iterator[Any]:
    """A bar while the compiler works, on a terminal only; gives a function (step, done, total)."""
    if report.as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[stage]}"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, stage="")
        yield lambda step, done, total: bar.update(task, completed=done, total=total, stage=step)
