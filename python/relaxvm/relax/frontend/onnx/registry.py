# SPDX-License-Identifier: Apache-2.0
"""The table of ONNX operators: one decorated function each.

    @onnx_op("Softmax", since=13)
    def softmax(x: Expr, *, axis: int = -1) -> Expr: ...

The signature says everything: positional parameters are the node's inputs (a default of None makes
one optional, `*xs` takes the rest), keyword-only ones its attributes.  Annotations choose what an
input arrives as:

    Expr    a tensor of the graph language
    Dims    integers that are not negative, each an int or an expression over symbolic dimensions
    Offsets the same, but they may be negative
    Ints    integers that are constants
    Axes    the same, and when they are computed while running the node is imported for each choice
    Array   a constant, as a NumPy array
    Value   whatever it is (see values.py)

A first parameter called `g` receives the `Graph` (graph.py).  A function returns one value or a tuple.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import inspect
import operator
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

from . import choices
from .errors import InvalidModel, UnsupportedModel
from .values import Value

Expr = typing.NewType("Expr", object)
Dims = typing.NewType("Dims", list)
Offsets = typing.NewType("Offsets", list)
Ints = typing.NewType("Ints", list)
Axes = typing.NewType("Axes", list)
Array = typing.NewType("Array", object)
Subgraph = typing.NewType("Subgraph", object)

# How an annotation of an input is decoded: a method name of Graph.
_INPUT_KINDS: dict[Any, str] = {
    Expr: "as_expr",
    Dims: "as_dims",
    Offsets: "as_offsets",
    Ints: "as_ints",
    Axes: "as_axes",
    Array: "as_array",
    Value: "as_value",
}


@dataclasses.dataclass(frozen=True)
class Input:
    name: str
    kind: str
    optional: bool


@dataclasses.dataclass(frozen=True)
class Attribute:
    name: str
    type: Any
    default: Any  # inspect.Parameter.empty when required


@dataclasses.dataclass(frozen=True)
class Rule:
    """How one operator is imported, from opset `since` until the next rule of that name."""

    name: str
    domain: str
    since: int
    function: Callable
    takes_graph: bool
    inputs: tuple[Input, ...]
    rest: Input | None
    attributes: dict[str, Attribute]

    def __call__(self, g: Any, node: Any, inputs: list) -> Any:
        for i, (spec, value) in enumerate(zip(self.inputs, inputs)):
            if spec.kind == "as_axes" and value is not None and not g.is_constant(value):
                return choices.each(g, self, node, inputs, i)
        args = [g] if self.takes_graph else []
        for i, spec in enumerate(self.inputs):
            value = inputs[i] if i < len(inputs) else None
            if value is None and not spec.optional:
                raise InvalidModel(f"input {i} ('{spec.name}') is required")
            args.append(None if value is None else getattr(g, spec.kind)(value, spec.name))
        extra = inputs[len(self.inputs) :]
        if extra and self.rest is None:
            raise InvalidModel(f"{len(inputs)} inputs, at most {len(self.inputs)} are allowed")
        for value in extra:
            if value is None:
                raise InvalidModel(f"an input of '{self.rest.name}' is missing")
            args.append(getattr(g, self.rest.kind)(value, self.rest.name))
        return self.function(*args, **self._attributes(g, node))

    def _attributes(self, g: Any, node: Any) -> dict[str, Any]:
        values = {}
        for proto in node.attribute:
            spec = self.attributes.get(proto.name)
            if spec is None:
                raise UnsupportedModel(
                    f"attribute '{proto.name}' is unknown; known are: {', '.join(sorted(self.attributes)) or 'none'}"
                )
            values[proto.name] = decode_attribute(g, proto, spec.type)
        for spec in self.attributes.values():
            if spec.name not in values:
                if spec.default is inspect.Parameter.empty:
                    raise InvalidModel(f"attribute '{spec.name}' is required")
                values[spec.name] = spec.default
        return values


_rules: dict[tuple[str, str], list[Rule]] = {}


def onnx_op(name: str, since: int, domain: str = "") -> Callable[[Callable], Callable]:
    """Registers the importer of operator `name` from opset `since` on."""

    def register(function: Callable) -> Callable:
        rules = _rules.setdefault((domain, name), [])
        assert all(rule.since != since for rule in rules), (
            f"{name} of opset {since} has two importers"
        )
        bisect.insort(rules, _read(function, name, domain, since), key=lambda r: r.since)
        return function

    return register


def find(domain: str, name: str, version: int) -> Rule | None:
    """The rule of the newest version that is not above `version`."""
    found = None
    for rule in _rules.get((canonical_domain(domain), name), ()):
        if rule.since <= version:
            found = rule
    return found


def all_rules() -> list[Rule]:
    return [rule for key in sorted(_rules) for rule in _rules[key]]


def canonical_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _read(function: Callable, name: str, domain: str, since: int) -> Rule:
    parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    takes_graph = bool(parameters) and parameters[0].name == "g"
    inputs, rest, attributes = [], None, {}
    for p in parameters[takes_graph:]:
        if p.kind is p.KEYWORD_ONLY:
            attr = p.name.rstrip("_")  # `else_branch`, but also `to_`: a Python word gets a tail
            attributes[attr] = Attribute(attr, _without_none(p.annotation), p.default)
            continue
        entry = Input(p.name, _INPUT_KINDS[_without_none(p.annotation)], p.default is None)
        if p.kind is p.VAR_POSITIONAL:
            rest = entry
        else:
            inputs.append(entry)
    return Rule(name, domain, since, function, takes_graph, tuple(inputs), rest, attributes)


def _without_none(annotation: Any) -> Any:
    if annotation in _INPUT_KINDS:
        return annotation
    args = [a for a in typing.get_args(annotation) if a is not type(None)]
    if type(None) in typing.get_args(annotation):
        return args[0] if len(args) == 1 else functools.reduce(operator.or_, args)
    return annotation


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# attribute annotation -> (AttributeProto type name, reader)
_ATTRIBUTE_READERS: dict[Any, tuple[str, Callable[[Any, Any], Any]]] = {
    int: ("INT", lambda g, a: int(a.i)),
    float: ("FLOAT", lambda g, a: float(a.f)),
    str: ("STRING", lambda g, a: _text(a.s)),
    list[int]: ("INTS", lambda g, a: [int(v) for v in a.ints]),
    list[float]: ("FLOATS", lambda g, a: [float(v) for v in a.floats]),
    list[str]: ("STRINGS", lambda g, a: [_text(v) for v in a.strings]),
    np.ndarray: ("TENSOR", lambda g, a: g.read_tensor(a.t)),
    Subgraph: ("GRAPH", lambda g, a: a.g),
    object: ("TYPE_PROTO", lambda g, a: a.tp),
}


def decode_attribute(g: Any, proto: Any, kind: Any) -> Any:
    """The value of an attribute, checked to be of the kind that the rule asks for."""
    want, read = _ATTRIBUTE_READERS[kind]
    have = proto.AttributeType.Name(proto.type)
    if have == "UNDEFINED":  # models older than IR version 3 leave the type out
        have = want
    if have != want:
        raise InvalidModel(f"attribute '{proto.name}' must be of type {want}, not {have}")
    return read(g, proto)


def support_table() -> str:
    """The operators that are imported, as a page in Markdown."""
    rows: dict[tuple[str, str], list[Rule]] = {}
    for rule in all_rules():
        rows.setdefault((rule.domain, rule.name), []).append(rule)
    lines = [
        "# ONNX operators",
        "",
        "Operators that `from_onnx` imports, and the opsets from which each form is taken. Operators that ONNX",
        "defines by others are expanded when they are not listed. Attributes outside of the list are refused.",
        "",
        "| operator | since opset | attributes |",
        "| --- | --- | --- |",
    ]
    for (domain, name), rules in sorted(rows.items()):
        title = f"{domain}::{name}" if domain else name
        since = ", ".join(str(r.since) for r in rules)
        attributes = sorted({a for r in rules for a in r.attributes})
        lines.append(f"| {title} | {since} | {', '.join(attributes)} |")
    return "\n".join(lines) + "\n"
