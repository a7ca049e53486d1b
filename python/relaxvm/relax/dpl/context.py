# SPDX-License-Identifier: Apache-2.0
"""Graphs of patterns: what is used by what, inside one dataflow block."""

from __future__ import annotations

import threading
from typing import Any

from ... import _compiler
from .pattern import CallPattern, DFPattern

_match = _compiler.func("relax.dpl.MatchBlock")


class _Stack(threading.local):
    def __init__(self) -> None:
        self.contexts: list[PatternContext] = []


_stack = _Stack()


class PatternContext:
    """Collects the relations that are stated while it is entered; an incremental one goes on from the one around it."""

    def __init__(self, incremental: bool = False) -> None:
        self.incremental = incremental
        self.nodes: list[DFPattern] = []
        self.edges: list[list[Any]] = []
        self.same_shape: list[list[DFPattern]] = []

    def __enter__(self) -> PatternContext:
        outer = PatternContext.current()
        if self.incremental and outer is not None:
            self.nodes, self.edges = list(outer.nodes), list(outer.edges)
            self.same_shape = list(outer.same_shape)
        _stack.contexts.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _stack.contexts.pop()

    @staticmethod
    def current() -> PatternContext | None:
        """The innermost context that is entered."""
        return _stack.contexts[-1] if _stack.contexts else None

    @staticmethod
    def require() -> PatternContext:
        """The innermost context; an error without one."""
        context = PatternContext.current()
        if context is None:
            raise RuntimeError(
                "a relation of patterns is stated inside of `with PatternContext() as ctx:`"
            )
        return context

    def _add_node(self, node: DFPattern) -> None:
        if not any(node.same_as(known) for known in self.nodes):
            self.nodes.append(node)

    def add_edge(self, producer: DFPattern, consumer: DFPattern, only: bool, index: int) -> None:
        """`consumer` uses `producer`."""
        self._add_node(producer)
        self._add_node(consumer)
        self.edges.append([producer, consumer, only, index])

    def add_call(self, call: CallPattern) -> None:
        """`call` is a node; it uses those of its arguments that are nodes."""
        self._add_node(call)
        for index, arg in enumerate(call.args):
            if any(arg.same_as(known) for known in self.nodes):
                self.add_edge(arg, call, False, index)

    def add_same_shape(self, group: list[DFPattern]) -> None:
        """All of `group` have one shape."""
        for node in group:
            self._add_node(node)
        self.same_shape.append(group)

    def match_dfb(self, dfb: Any) -> dict[DFPattern, Any] | None:
        """Variables of the block that fit the whole graph, by node; None when there are none."""
        found = _match(self.nodes, self.edges, self.same_shape, dfb)
        return None if found is None else dict(found.items())


class DFConstraint:
    """Base of what a context asks of several patterns at once."""


class SameShapeConstraint(DFConstraint):
    """In the current context: what the patterns match has one shape."""

    def __init__(self, *args: DFPattern) -> None:
        self.args = list(args)
        PatternContext.require().add_same_shape(self.args)
