# SPDX-License-Identifier: Apache-2.0
"""Relax functions as functions of Python that PyTorch runs, operator by operator: to look into a model, or to change it
there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxvm import _compiler
from relaxvm._registry import get_global_func
from relaxvm.ir.expr import Call, GlobalVar, Op, Var, is_prim_expr
from relaxvm.ir.module import IRModule
from relaxvm.tirx import IntImm, PrimFunc

from .base_py_module import to_runtime, to_torch, zeros_of
from .expr import (
    Constant,
    DataTypeImm,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
)
from .expr_functor import PyExprVisitor
from .type import ShapeType, TensorType

_substitute = _compiler.func("ir.Substitute")
_simplify = _compiler.func("analysis.simplify")


class RelaxToPyFuncConverter:
    """Converts Relax functions of a module; `convert` gives modules, `ir_module` stays as it is."""

    def __init__(self, ir_module: IRModule) -> None:
        self.ir_module = getattr(ir_module, "ir_module", ir_module)

    def convert(self, relax_function_names: str | Sequence[str]) -> IRModule:
        """The module with these functions in `pyfuncs` as well: of PyTorch's tensors, numbers and tuples.

        Raises ValueError for names that are no Relax functions, and NotImplementedError with all operators of the
        functions, and of those that they call, that have no counterpart here.
        """
        names = relax_function_names
        result = self.ir_module.clone()
        functions = {
            str(var.name_hint): f
            for var, f in self.ir_module.functions_items()
            if isinstance(f, Function)
        }
        machine = _Interpreter(result)
        for name in [names] if isinstance(names, str) else names:
            if name not in functions:
                raise ValueError(
                    f"the module has no Relax function {name!r}; there are: "
                    f"{', '.join(functions) or 'none'}"
                )
            machine.check(name, functions[name])
            result.pyfuncs[name] = _python_function(machine, name, functions[name])
        return result


def convert_relax_to_pyfunc(
    ir_module: IRModule, relax_function_names: str | Sequence[str]
) -> IRModule:
    """The module with Relax functions in `pyfuncs` as well: see RelaxToPyFuncConverter.convert."""
    return RelaxToPyFuncConverter(ir_module).convert(relax_function_names)


def _python_function(machine: _Interpreter, name: str, function: Function) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        return machine.run(function, args, name)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"The Relax function {name}, computed by PyTorch."
    return run


class _Calls(PyExprVisitor):
    """Operators, functions and programs that a function calls."""

    def __init__(self) -> None:
        self.operators: dict[str, None] = {}
        self.functions: list[GlobalVar] = []

    def visit_call_(self, op: Any) -> None:
        if isinstance(op.op, Op):
            self.operators.setdefault(str(op.op.name).removeprefix("relax."))
        super().visit_call_(op)

    def visit_global_var_(self, op: Any) -> None:
        self.functions.append(op)


class _Interpreter:
    """Runs functions of one module on PyTorch's tensors."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.programs = {
            str(v.name_hint): f for v, f in module.functions_items() if isinstance(f, PrimFunc)
        }

    @functools.cached_property
    def compiled(self) -> Any:
        from relaxvm.tirx.compiled import build

        return build(
            IRModule({n: f.with_attr("global_symbol", n) for n, f in self.programs.items()})
        )

    def check(self, name: str, function: Function) -> None:
        """Names all operators that PyTorch cannot stand in for."""
        from .torch_operators import OPERATORS

        missing: dict[str, None] = {}
        todo, seen = [function], set[str]()
        while todo:
            calls = _Calls()
            calls.visit_expr(todo.pop())
            known = {*OPERATORS, *_SPECIAL}
            missing.update({op: None for op in calls.operators if op not in known})
            for var in calls.functions:
                callee = self.module[var]
                if isinstance(callee, Function) and var.name_hint not in seen:
                    seen.add(var.name_hint)
                    todo.append(callee)
        if missing:
            raise NotImplementedError(
                f"{name}: there is no function of PyTorch for {', '.join(sorted(missing))}; leave it in Relax"
            )

    def run(self, function: Function, args: Sequence[Any], name: str) -> Any:
        if len(args) != len(function.params):
            raise TypeError(f"{name} takes {len(function.params)} arguments, {len(args)} are given")
        frame = _Frame(self)
        for param, value in zip(function.params, args):
            frame.bind(param, to_torch(value), f"{name}: parameter {param.name_hint}")
        return frame.eval(function.body)

    def call_program(self, name: str, args: Sequence[Any], shapes: Sequence[Any]) -> Any:
        results = [zeros_of(shape, dtype) for shape, dtype in shapes]
        self.compiled[name](*(to_runtime(v) for v in (*args, *results)))
        return results[0] if len(results) == 1 else tuple(results)


class _Frame:
    """The variables of one call, and its symbolic sizes."""

    def __init__(self, machine: _Interpreter) -> None:
        self.machine = machine
        self.values: dict[Any, Any] = {}
        self.sizes: dict[Any, Any] = {}

    # ---- names and sizes

    def bind(self, var: Any, value: Any, what: str, ty: Any = None) -> None:
        """Gives a variable its value; its type gives sizes theirs, or checks them."""
        self.values[var] = value
        ty = var.ty if ty is None else ty
        if isinstance(ty, TensorType) and ty.shape is not None and hasattr(value, "shape"):
            self._match(list(getattr(ty.shape, "values", [])), list(value.shape), what)
        if isinstance(ty, ShapeType) and ty.values is not None and isinstance(value, tuple):
            self._match(list(ty.values), list(value), what)
        if is_prim_expr(var) and isinstance(value, int):
            self.sizes[var] = IntImm(str(var.dtype), value)

    def _match(self, dims: list[Any], sizes: list[int], what: str) -> None:
        if len(dims) != len(sizes):
            raise ValueError(f"{what} has {len(dims)} axes, the value {len(sizes)}: {sizes}")
        for dim, size in zip(dims, sizes):
            if isinstance(dim, Var) and dim not in self.sizes:
                self.sizes[dim] = IntImm(str(dim.dtype), int(size))
            elif self.number(dim) not in (size, None):
                raise ValueError(f"{what} has an axis of {dim}, the value one of {size}")

    def number(self, value: Any) -> Any:
        """A size; None where a symbol of it has no value yet."""
        if isinstance(value, (int, float, bool)):
            return value
        if not isinstance(value, Var) and hasattr(value, "value"):
            return value.value
        return getattr(_simplify(_substitute(value, self.sizes)), "value", None)

    # ---- expressions

    def eval(self, expr: Any) -> Any:
        if is_prim_expr(expr):
            return self.values[expr] if expr in self.values else self.number(expr)
        for cls, method in _KINDS:
            if isinstance(expr, cls):
                return method(self, expr)
        raise NotImplementedError(f"an expression of kind {type(expr).__name__}")

    def _var(self, expr: Any) -> Any:
        return self.values[expr]

    def _constant(self, expr: Any) -> Any:
        return to_torch(expr.data)

    def _tuple(self, expr: Any) -> Any:
        return tuple(self.eval(f) for f in expr.fields)

    def _item(self, expr: Any) -> Any:
        return self.eval(expr.tuple_value)[expr.index]

    def _shape(self, expr: Any) -> Any:
        return tuple(self.number(v) for v in expr.values)

    def _text(self, expr: Any) -> Any:
        return str(expr.value)

    def _if(self, expr: Any) -> Any:
        return self.eval(expr.true_branch if bool(self.eval(expr.cond)) else expr.false_branch)

    def _function(self, expr: Any) -> Any:
        """A function inside a function sees the variables around it."""

        def run(*args: Any) -> Any:
            inner = _Frame(self.machine)
            inner.values.update(self.values)
            inner.sizes.update(self.sizes)
            for param, value in zip(expr.params, args):
                inner.bind(param, value, f"parameter {param.name_hint}")
            return inner.eval(expr.body)

        return run

    def _seq(self, expr: Any) -> Any:
        for block in expr.blocks:
            for binding in block.bindings:
                if isinstance(binding, MatchCast):
                    name = binding.var.name_hint
                    self.bind(binding.var, self.eval(binding.value), name, binding.ty)
                else:
                    self.values[binding.var] = self.eval(binding.value)
        return self.eval(expr.body)

    def _global(self, expr: Any) -> Any:
        name, machine = str(expr.name_hint), self.machine
        function = machine.module[expr]
        if not isinstance(function, Function):
            raise NotImplementedError(f"a call of {name}, which is no Relax function; use call_tir")
        return lambda *args: machine.run(function, args, name)

    def _extern(self, expr: Any) -> Any:
        function = get_global_func(str(expr.global_symbol))
        assert function is not None
        return lambda *args: to_torch(function(*(to_runtime(a) for a in args)))

    # ---- calls

    def _call(self, call: Any) -> Any:
        if not isinstance(call.op, Op):
            return self.eval(call.op)(*(self.eval(a) for a in call.args))
        name = str(call.op.name).removeprefix("relax.")
        if name in _SPECIAL:
            return _SPECIAL[name](self, call)
        from .torch_operators import OPERATORS, Attributes

        return OPERATORS[name](Attributes(call, self.number), *(self.eval(a) for a in call.args))

    def _results(self, call: Any) -> list[tuple[list[int], str]]:
        """Shapes and element types of what a call writes."""
        types = []
        for ty in call.ty_args:
            types += list(ty.fields) if hasattr(ty, "fields") else [ty]
        return [([self.number(d) for d in t.shape.values], str(t.dtype)) for t in types]

    def call_tir(self, call: Any) -> Any:
        args = list(self.eval(call.args[1]))
        if len(call.args) > 2:
            args += list(self.eval(call.args[2]))
        name = str(call.args[0].name_hint)
        return self.machine.call_program(name, args, self._results(call))

    def call_dps_packed(self, call: Any) -> Any:
        results = [zeros_of(shape, dtype) for shape, dtype in self._results(call)]
        function = get_global_func(str(call.args[0].global_symbol))
        assert function is not None
        function(*(to_runtime(v) for v in (*self.eval(call.args[1]), *results)))
        return results[0] if len(results) == 1 else tuple(results)

    def call_packed(self, call: Any) -> Any:
        return self.eval(call.args[0])(*(self.eval(a) for a in list(call.args)[1:]))

    def call_py_func(self, call: Any) -> Any:
        name, args = self.eval(call.args[0]), self.eval(call.args[1])
        own = self.machine.module.pyfuncs.get(name)
        if own is not None:
            return own(*args)
        registered = get_global_func("vm.builtin.get_py_func")
        assert registered is not None
        return to_torch(registered(name)(*(to_runtime(a) for a in args)))

    def invoke_closure(self, call: Any) -> Any:
        return self.eval(call.args[0])(*self.eval(call.args[1]))

    def make_closure(self, call: Any) -> Any:
        function, kept = self.eval(call.args[0]), self.eval(call.args[1])
        return lambda *args: function(*args, *kept)


_KINDS: tuple[tuple[type, Callable[[_Frame, Any], Any]], ...] = (
    (Constant, _Frame._constant),
    (Var, _Frame._var),
    (Tuple, _Frame._tuple),
    (TupleGetItem, _Frame._item),
    (ShapeExpr, _Frame._shape),
    (StringImm, _Frame._text),
    (DataTypeImm, _Frame._text),
    (If, _Frame._if),
    (SeqExpr, _Frame._seq),
    (Function, _Frame._function),
    (GlobalVar, _Frame._global),
    (ExternFunc, _Frame._extern),
    (Call, _Frame._call),
)
_SPECIAL: Mapping[str, Callable[[_Frame, Any], Any]] = {
    "call_dps_packed": _Frame.call_dps_packed,
    "call_pure_packed": _Frame.call_packed,
    "call_py_func": _Frame.call_py_func,
    "call_tir": _Frame.call_tir,
    "invoke_closure": _Frame.invoke_closure,
    "invoke_pure_closure": _Frame.invoke_closure,
    "make_closure": _Frame.make_closure,
}
