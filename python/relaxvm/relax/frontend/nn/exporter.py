# SPDX-License-Identifier: Apache-2.0
"""Traces the methods of a module into functions of an IRModule."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from relaxvm.ir.expr import Expr, Var
from relaxvm.ir.module import IRModule
from relaxvm.relax.analysis import free_symbolic_vars, free_vars
from relaxvm.relax.block_builder import BlockBuilder
from relaxvm.relax.expr import Function, Tuple, TupleGetItem
from relaxvm.relax.type import AnyType, ShapeType, TensorType, TupleType

from . import spec as specs
from .extern import ExternModule
from .modules.effect import IOEffect
from .sizes import Sizes
from .tensor import Effect, Parameter, Tensor, bind, unwrap_nested


class _Stack(threading.local):
    def __init__(self) -> None:
        self.exporters: list[Exporter] = []


_stack = _Stack()


def add_extern(mod: ExternModule) -> None:
    """Takes an external module into the model that is being exported."""
    Exporter.current().add_external_module(mod)


class Exporter:
    """One export: the module's builder, the state of prints (with `debug`), external modules in use."""

    def __init__(self, debug: bool) -> None:
        self.builder = BlockBuilder()
        self.io_effect: IOEffect | None = IOEffect() if debug else None
        self.extern_mods: list[ExternModule] = []

    @staticmethod
    def current() -> Exporter:
        """The export in progress; RuntimeError when there is none."""
        if not _stack.exporters:
            raise RuntimeError("no model is being exported; call this in a method of an nn.Module")
        return _stack.exporters[-1]

    def add_external_module(self, mod: ExternModule) -> None:
        if not any(known is mod for known in self.extern_mods):
            self.extern_mods.append(mod)

    def build(
        self, spec: specs.ModuleSpec
    ) -> tuple[IRModule, list[tuple[str, Parameter]], list[ExternModule]]:
        params = list(spec.module._find(Parameter, ""))
        effects: list[tuple[str, Effect]] = [("", self.io_effect)] if self.io_effect else []
        effects += list(spec.module._find(Effect, ""))
        own = [p._expr for _, p in params]
        _stack.exporters.append(self)
        try:
            if effects:
                self._emit_initial_state(effects)
            for name, method in zip(spec.method_names, spec.method_specs):
                _Method(self.builder, name, method).emit(params, effects)
        finally:
            _stack.exporters.pop()
            for (_, param), expr in zip(params, own):
                param._expr = expr
        return self.builder.get(), params, self.extern_mods

    def _emit_initial_state(self, effects: list[tuple[str, Effect]]) -> None:
        builder = self.builder
        with builder.function("_initialize_effect", []):
            with builder.dataflow():
                state = [v for name, e in effects for v in e.emit_init(name, builder)]
                result = builder.emit_output(bind(Tuple(state)))
            builder.emit_func_output(result)


class _Method:
    """One function: inputs, state, parameters, in this order."""

    def __init__(self, builder: BlockBuilder, name: str, spec: specs.MethodSpec) -> None:
        self.builder, self.name, self.spec = builder, name, spec
        self.sizes = Sizes()
        self.unpacking: list[Callable[[], None]] = []

    def emit(self, params: list[tuple[str, Parameter]], effects: list[tuple[str, Effect]]) -> None:
        pairs = zip(self.spec.arg_names, self.spec.arg_specs)
        inputs = [self._input(n, s) for n, s in pairs]
        state = self._state(effects)
        weights = self._weights(params)
        num_input = len(inputs) + len(state)
        variables = [var for var, _ in inputs] + state + weights
        with self.builder.function(self.name, variables, attrs={"num_input": num_input}):
            with self.builder.dataflow():
                for unpack in self.unpacking:
                    unpack()
                values = [value() for _, value in inputs]
                outputs = self.spec.method(**dict(zip(self.spec.arg_names, values)))
                result = self._result(outputs)
                if effects and self.spec.effect_mode != "none":
                    result = Tuple([result, Tuple([v for _, e in effects for v in e.finalize()])])
                else:
                    for _, effect in effects:
                        effect.finalize()
                gv = self.builder.emit_output(result)
            gvar = self.builder.emit_func_output(gv)
        self._check_closed(self.builder.get()[gvar])

    def _check_closed(self, function: Function) -> None:
        """A method uses nothing but its own arguments, state and parameters."""
        names = [v.name for v in [*free_vars(function), *free_symbolic_vars(function)]]
        if names:
            raise ValueError(
                f"{self.name} uses {', '.join(names)}, which it does not get: a parameter needs another param_mode than"
                ' "none", a size must be one of an argument, and values of one method cannot be kept for another'
            )

    def _input(self, name: str, spec: Any) -> tuple[Var, Callable[[], Any]]:
        """The parameter of an argument, and what gives the method its value inside of the function."""
        var = Var(name, self._type(name, spec))
        return var, lambda: self._value(var, name, spec)

    def _type(self, name: str, spec: Any) -> Any:
        if isinstance(spec, specs.Int):
            return ShapeType([self.sizes.named(name)])
        if isinstance(spec, specs.Tensor):
            return TensorType([self.sizes.own(s) for s in spec.shape], spec.dtype)
        if isinstance(spec, specs.Object):
            return AnyType()
        fields = enumerate(spec.elements)
        return TupleType([self._type(f"{name}_{i}", s) for i, s in fields])

    def _value(self, var: Var, name: str, spec: Any) -> Any:
        if isinstance(spec, specs.Int):
            return self.sizes.named(name)
        if isinstance(spec, specs.Tensor):
            return Tensor(_expr=var)
        if isinstance(spec, specs.Object):
            return spec.object_type(_expr=var, _name=name)
        values = []
        for i, element in enumerate(spec.elements):
            inner = f"{name}_{i}"
            field = bind(TupleGetItem(var, i), inner)
            values.append(self._value(field, inner, element))
        return type(spec.elements)(values)

    def _state(self, effects: list[tuple[str, Effect]]) -> list[Var]:
        mode = self.spec.effect_mode
        created = [(e, e.create(name)) for name, e in effects]
        if mode == "plain":
            for effect, variables in created:
                effect.set_state(variables)
            return [v for _, variables in created for v in variables]
        if mode == "none":
            return []
        flat = [v for _, variables in created for v in variables]
        packed = Var("packed_effects", TupleType([v.ty for v in flat]))

        def unpack() -> None:
            index = 0
            for effect, variables in created:
                fields = []
                for variable in variables:
                    fields.append(bind(TupleGetItem(packed, index), variable.name))
                    index += 1
                effect.set_state(fields)

        self.unpacking.append(unpack)
        return [packed]

    def _weights(self, params: list[tuple[str, Parameter]]) -> list[Var]:
        mode, sizes = self.spec.param_mode, Sizes()
        variables = []
        for name, param in params:
            ty = TensorType([sizes.own(s) for s in param.shape], param.dtype)
            variables.append(Var(name, ty))
        pairs = list(zip(params, variables))
        for (_, param), variable in pairs:
            param._expr = variable
        if mode != "packed":
            return variables if mode == "plain" else []
        packed = Var("packed_params", TupleType([v.ty for v in variables]))

        def unpack() -> None:
            for index, ((_, param), variable) in enumerate(pairs):
                param._expr = bind(TupleGetItem(packed, index), variable.name)

        self.unpacking.append(unpack)
        return [packed]

    def _result(self, outputs: Any) -> Expr:
        return self._check(unwrap_nested(outputs))

    def _check(self, value: Any) -> Expr:
        if isinstance(value, tuple):
            return Tuple([self._check(v) for v in value])
        if isinstance(value, Expr):
            return value
        raise TypeError(
            f"{self.name} returns {type(value).__name__}; a method returns tensors, objects and tuples or lists of them"
        )


__all__: Sequence[str] = ["Exporter", "add_extern"]
