# SPDX-License-Identifier: Apache-2.0
"""Modules: a class whose functions are functions of the module."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from ...ir.base import plain
from ...ir.devices import module_infos
from ...ir.expr import BaseFunc, GlobalVar
from ...ir.module import IRModule
from ...ir.type import FuncType, TupleType, Type
from ...relax.block_builder import BlockBuilder
from .data_type import is_data_type, parse_data_types
from .evaluate import Evaluator, Scope
from .graph import GraphParser
from .program import ProgramParser
from .source import Source


class ModuleNames:
    """`cls` in a script: the functions of the module by name."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"], self.__dict__["_vars"] = name, {}

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__["_vars"].get(name)
        if found is None:
            names = ", ".join(self.__dict__["_vars"]) or "none"
            raise AttributeError(
                f"module {self.__dict__['_name']} has no function {name}; there are: {names}"
            )
        return found


def function_kind(evaluator: Evaluator, node: ast.FunctionDef) -> tuple[str | None, dict[str, Any]]:
    """Which language a function is in, and the options of its decorator."""
    for item in node.decorator_list:
        call = item if isinstance(item, ast.Call) else None
        decorator = evaluator.eval(call.func if call else item)
        kind = getattr(decorator, "script_kind", None)
        if kind is None:
            continue
        options = {k.arg: evaluator.eval(k.value) for k in call.keywords if k.arg} if call else {}
        return kind, options
    return None, {}


def parse_module(
    source: Source,
    node: ast.ClassDef,
    outside: dict[str, Any],
    methods: Mapping[str, Any] | None = None,
) -> Any:
    """The module that a class describes; a factory of modules where it inherits from BasePyModule.

    `methods` are its functions where Python has made the class."""
    parser = ModuleParser(source, node, outside, methods)
    module = parser.parse()
    if not parser.mixes_python:
        return module
    from ...relax.base_py_module import PyModuleFactory

    return PyModuleFactory(node.name, module)


class ModuleParser:
    def __init__(
        self,
        source: Source,
        node: ast.ClassDef,
        outside: dict[str, Any],
        methods: Mapping[str, Any] | None = None,
    ) -> None:
        self.source, self.node, self.methods = source, node, methods
        self.names = ModuleNames(node.name)
        self.outside = {**outside, node.name: self.names}
        self.evaluator = Evaluator(source, Scope(self.outside))
        self.attrs: dict[str, Any] = {}
        self.infos: dict[str, Any] = {}
        self.functions: dict[GlobalVar, BaseFunc] = {}
        self.builder = BlockBuilder()  # collects the programs of R.emit_te
        self.pyfuncs: dict[str, Any] = {}
        bases = [self.evaluator.eval(base) for base in node.bases]
        self.mixes_python = any(getattr(b, "__name__", "") == "BasePyModule" for b in bases)

    def _data_types(self) -> None:
        """Classes under @R.data: functions and each other see them by name."""
        nodes = [s for s in self.node.body if isinstance(s, ast.ClassDef)]
        for node in nodes:
            if not is_data_type(self.evaluator, node):
                self.source.fail(node, "a class in a module is a data type; put @R.data before it")
        names = [n.name for n in nodes]
        for node in nodes:
            if names.count(node.name) > 1:
                self.source.fail(node, f"the module has two data types called {node.name}")
        if not nodes:
            return
        types = parse_data_types(self.source, nodes, self.outside)
        self.infos["data_types"] = types
        for adt in types:
            self.outside[str(adt.name)] = adt

    def parse(self) -> IRModule:
        self._data_types()
        for stmt in self.node.body:
            self._setting(stmt)
        with module_infos(self.infos):
            definitions = [
                s for s in self.node.body if isinstance(s, (ast.FunctionDef, ast.Assign))
            ]
            kinds = [self._declare(d) for d in definitions]
            for definition, kind in zip(definitions, kinds):
                self._define(definition, kind)
        for var, program in self.builder.get().functions.items():
            self.functions[var] = program
        module = IRModule(self.functions, self.attrs, self.infos)
        module.pyfuncs.update(self.pyfuncs)
        return module

    def _setting(self, stmt: ast.stmt) -> None:
        """I.module_attrs(...), I.module_global_infos(...); docstrings and `pass` say nothing."""
        if isinstance(stmt, (ast.FunctionDef, ast.Assign, ast.Pass, ast.ClassDef)):
            return
        if not isinstance(stmt, ast.Expr):
            self.source.fail(
                stmt,
                "a module holds functions, data types, I.module_attrs and I.module_global_infos",
            )
        value = self.evaluator.eval(stmt.value)
        kind = getattr(value, "module_setting", None)
        if kind == "attrs":
            self.attrs.update(value.values)
        elif kind == "global_infos":
            self.infos.update(value.values)
        elif not isinstance(value, str):
            self.source.fail(stmt, "this expression has no meaning in a module; remove it")

    def _declare(self, node: ast.FunctionDef | ast.Assign) -> tuple[str, dict[str, Any]]:
        names = self.names.__dict__["_vars"]
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            if len(node.targets) != 1 or not isinstance(target, ast.Name):
                self.source.fail(
                    node, "a module defines one function at a time: name = R.ExternFunc(...)"
                )
            name, kind, options = target.id, "value", dict[str, Any]()
        else:
            found, options = function_kind(self.evaluator, node)
            if found is None:
                self.source.fail(
                    node,
                    f"{node.name} is no function of a module; put @R.function or @T.prim_func before it",
                )
            name, kind = node.name, found
        if name in {str(t.name) for t in self.infos.get("data_types", ())}:
            self.source.fail(node, f"{name} is a data type of the module; rename the function")
        if name in names:
            self.source.fail(node, f"the module has two functions called {name}; rename one")
        var = GlobalVar(name)
        if kind == "function" and isinstance(node, ast.FunctionDef):
            parser = GraphParser(self.source, self.outside)
            var._update_type(parser.signature(node, bool(options.get("pure", True))))
        if kind == "prim_func" and isinstance(node, ast.FunctionDef):
            value = None if node.returns is None else plain(self.evaluator.eval(node.returns))
            ret = value if isinstance(value, Type) else TupleType([])
            var._update_type(FuncType(None, ret, purity=False))
        names[name] = var
        self.outside[name] = var
        return kind, options

    def _define(self, node: ast.FunctionDef | ast.Assign, kind: tuple[str, dict[str, Any]]) -> None:
        language, options = kind
        func: Any
        if isinstance(node, ast.Assign):
            var = self.names.__dict__["_vars"][node.targets[0].id]  # type: ignore[attr-defined]
            func = self.evaluator.eval(node.value)
            if not isinstance(func, BaseFunc):
                self.source.fail(node.value, "a module's name must stand for a function")
            self.functions[var] = func
            return
        var = self.names.__dict__["_vars"][node.name]
        private = bool(options.get("private"))
        if language == "pyfunc":
            func = self._pyfunc(node)
        elif language == "prim_func":
            func = ProgramParser(self.source, self.outside).parse(node, private=private)
        else:
            pure = bool(options.get("pure", True))
            parser = GraphParser(self.source, self.outside, self.builder)
            func = parser.parse(node, pure=pure, private=private)
        if language != "pyfunc":
            var._update_type(func.ty)
        self.functions[var] = func

    def _pyfunc(self, node: ast.FunctionDef) -> Any:
        """A function of Python, and what stands for it in the module."""
        from ...relax.expr import ExternFunc

        if not self.mixes_python:
            self.source.fail(
                node,
                f"{node.name} is a function of Python; the class must inherit from relax.BasePyModule",
            )
        function = None if self.methods is None else self.methods.get(node.name)
        if function is None:
            names = dict(self.outside)
            text = ast.unparse(node)
            exec(compile(ast.Module([node], []), self.source.name, "exec"), names)
            function = names[node.name]
            function.script_source = text
        self.pyfuncs[node.name] = function
        return ExternFunc(node.name).with_attr("is_pyfunc", True)
