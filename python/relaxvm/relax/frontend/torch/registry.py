# SPDX-License-Identifier: Apache-2.0
"""The table of PyTorch's operators: one decorated function each.

    @aten_op("softmax.int", "_softmax.default")
    def softmax(g: Graph, x, dim, *_): ...

A name is that of the overload, as PyTorch writes it behind `aten.`.  The function gets the node's
arguments in PyTorch's order and names: tensors as expressions, sizes as ints or expressions over
symbolic dimensions, lists as lists, all others as they are.  It returns an expression, or a tuple of
them for an operator of several results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]

_rules: dict[str, Rule] = {}
_complex_rules: dict[str, Rule] = {}
_of_both_parts: set[str] = set()
_drawing: set[str] = set()


def _registering(
    rules: dict[str, Rule], names: tuple[str, ...], what: str
) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            assert name not in rules, f"{name} has two {what}"
            rules[name] = rule
        return rule

    return register


def aten_op(*names: str) -> Callable[[Rule], Rule]:
    """Registers the importer of the overloads `names`."""
    return _registering(_rules, names, "importers")


def random_op(*names: str) -> Callable[[Rule], Rule]:
    """Registers the importer of the overloads `names`, which give other numbers at each call."""
    _drawing.update(names)
    return aten_op(*names)


def is_random(name: str) -> bool:
    return name in _drawing


def complex_op(*names: str) -> Callable[[Rule], Rule]:
    """Registers the importer of the overloads `names` for complex tensors, which rules see as pairs."""
    return _registering(_complex_rules, names, "importers for complex tensors")


def of_both_parts(*names: str) -> None:
    """The importers of real tensors serve for the real and for the imaginary part."""
    _of_both_parts.update(names)


def find_complex(name: str) -> Rule | None:
    """The importer for complex tensors, which may be that of real ones for either part."""
    if name in _of_both_parts:
        from .ops.complex import partwise

        return partwise(name)
    return _complex_rules.get(name)


def is_known(name: str) -> bool:
    return name in _rules or name in _complex_rules


def find(name: str) -> Rule | None:
    return _rules.get(name)


def all_names() -> list[str]:
    return sorted({*_rules, *_complex_rules})


def name_of(target: Any) -> str:
    """'add.Tensor' for `torch.ops.aten.add.Tensor`, with the namespace where it is not aten."""
    namespace, _, rest = target.name().partition("::")
    name = rest if "." in rest else f"{rest}.default"
    return name if namespace == "aten" else f"{namespace}::{name}"


def support_table() -> str:
    """The overloads that are imported, as a page in Markdown."""
    lines = [
        "# PyTorch operators",
        "",
        "Operators of exported programs that `from_exported_program` imports; PyTorch expresses others by these.",
        "",
        "| operator | overloads |",
        "| --- | --- |",
    ]
    rows: dict[str, list[str]] = {}
    for name in all_names():
        operator, _, overload = name.rpartition(".")
        rows.setdefault(operator, []).append(overload)
    lines += [f"| {operator} | {', '.join(overloads)} |" for operator, overloads in rows.items()]
    return "\n".join(lines) + "\n"
