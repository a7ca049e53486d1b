# SPDX-License-Identifier: Apache-2.0
"""Mutator: replaces parts of a model, for instance linear layers by quantised ones."""

from __future__ import annotations

from typing import Any

from .containers import ModuleDict, ModuleList, ParameterDict, ParameterList
from .module import Module
from .tensor import Effect, Parameter


class Mutator:
    """Visits modules, parameters and states; what a method returns takes the visited thing's place.

    Override what is of interest, and call `visit` there to go on inside.
    """

    def visit_module(self, name: str, node: Module) -> Any:
        return self.visit(name, node)

    def visit_effect(self, name: str, node: Effect) -> Any:
        return self.visit(name, node)

    def visit_param(self, name: str, node: Parameter) -> Any:
        return self.visit(name, node)

    def visit_moduledict(self, name: str, node: ModuleDict) -> Any:
        return self.visit(name, node)

    def visit_modulelist(self, name: str, node: ModuleList) -> Any:
        return self.visit(name, node)

    def visit_parameterdict(self, name: str, node: ParameterDict) -> Any:
        return self.visit(name, node)

    def visit_parameterlist(self, name: str, node: ParameterList) -> Any:
        return self.visit(name, node)

    def visit(self, name: str, node: Any) -> Any:
        """Visits what `node` holds, each under its path below `name`; gives the node."""
        if isinstance(node, (ModuleList, ParameterList)):
            for index in range(len(node)):
                node[index] = self._visit_one(name, str(index), node[index])
        elif isinstance(node, (ModuleDict, ParameterDict)):
            for key in list(node.keys()):
                node[key] = self._visit_one(name, key, node[key])
        elif isinstance(node, Module):
            for key, value in list(vars(node).items()):
                setattr(node, key, self._visit_one(name, key, value))
        return node

    def _visit_one(self, parent: str, key: str, node: Any) -> Any:
        for kind, method in (
            (ModuleDict, self.visit_moduledict),
            (ModuleList, self.visit_modulelist),
            (ParameterDict, self.visit_parameterdict),
            (ParameterList, self.visit_parameterlist),
            (Module, self.visit_module),
            (Effect, self.visit_effect),
            (Parameter, self.visit_param),
        ):
            if isinstance(node, kind):
                return method(f"{parent}.{key}" if parent else key, node)  # type: ignore[operator]
        return node
