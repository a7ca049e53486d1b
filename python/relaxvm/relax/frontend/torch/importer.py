# SPDX-License-Identifier: Apache-2.0
"""from_exported_program: walks the nodes of an exported program in order and emits a Relax function."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy
import torch
from torch.export.graph_signature import InputKind, OutputKind

from relaxvm import ir, relax, runtime
from relaxvm.ir.base import span_scope
from relaxvm.relax import op

from . import control_flow, ops, registry
from .control_flow import places_of
from .errors import TorchError, UnsupportedProgram
from .graph import Complex, Graph, array_of, dtype_name
from .ops import complex as complex_
from .symbols import Symbols

ops.load()

# Nodes that check or hint and make nothing: what PyTorch proved or asks at its own run time.
_CHECKS = {
    "_assert_async.default",
    "_assert_async.msg",
    "_assert_scalar.default",
    "_assert_tensor_metadata.default",
    "sym_constrain_range.default",
    "sym_constrain_range_for_size.default",
}
_PARAMETERS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def from_exported_program(
    exported_program: torch.export.ExportedProgram,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[str, Callable[..., Any]] | None = None,
    run_ep_decomposition: bool = True,
) -> ir.IRModule:
    """The Relax module of a program that `torch.export.export` made, with one function `main`.

    Parameters and buffers become constants; with `keep_params_as_input` the parameters are inputs after
    the others, and their values the function attribute `params`.  The results are a tuple, of which
    `unwrap_unit_return_tuple` takes the only element out and which `no_bind_return_tuple` leaves
    unbound.  Values that the program writes into its inputs and buffers are not given back.
    `custom_convert_map` has importers by the name of an overload ("my_add.default"): functions of the
    node and the `Graph`, whose `args(node)` are the arguments, that give an expression.
    `run_ep_decomposition` has PyTorch express the program by its core operators first; without, only
    operators that are not known here are.  Raises `UnsupportedProgram` with all operators that have no importer.
    """
    custom = dict(custom_convert_map or {})
    program = _decomposed(exported_program, not run_ep_decomposition, custom)
    importer = _Importer(program, keep_params_as_input, custom)
    return importer.run(unwrap_unit_return_tuple, no_bind_return_tuple)


def _decomposed(program: Any, keep_known: bool, custom: dict[str, Any]) -> Any:
    """Without operators that write into their arguments, in operators that are known.

    PyTorch traces the program again for this, which takes seconds: not where it is so already.
    """
    if keep_known and _is_ready(program.graph_module, custom):
        return program
    of_real: set[str] = set()  # imported for complex tensors alone, and used for real ones
    while True:
        of_real |= _misused(program.graph_module)
        table = torch.export.default_decompositions()
        names = {target: registry.name_of(target) for target in table}
        for target, name in names.items():
            # In core operators resizing would be a gather for each tap, at places that are made of sizes,
            # and systems of equations would have checks with effects.
            keeps = keep_known or name.lstrip("_").startswith(("upsample_", "linalg_", "inverse."))
            keeps = keeps and registry.is_known(name) and name not in of_real
            if name in custom or keeps:
                del table[target]
        program = program.run_decompositions(table)
        if not (_misused(program.graph_module) & set(names.values())) - of_real:
            return program


def _misused(module: Any) -> set[str]:
    """Operators that are known for complex tensors alone and have real ones."""
    parts = (part for part in module.modules() if isinstance(part, torch.fx.GraphModule))
    calls = (n for part in parts for n in part.graph.nodes if n.op == "call_function")
    real = {
        registry.name_of(n.target)
        for n in calls
        if isinstance(n.target, torch._ops.OpOverload) and not _touches_complex(n)
    }
    return {name for name in real if registry.is_known(name) and registry.find(name) is None}


def _touches_complex(node: Any) -> bool:
    return complex_.is_complex([n.meta.get("val") for n in (node, *node.all_input_nodes)])


class _Importer:
    def __init__(self, program: Any, keep_params: bool, custom: dict[str, Any]) -> None:
        self.program = program
        self.keep_params = keep_params
        self.custom = custom
        self.symbols = Symbols(program.range_constraints)
        self.builder = relax.BlockBuilder()
        self.g = Graph(self.builder, self.symbols)
        self.values: dict[Any, Any] = {}
        self.params: list[tuple[Any, Any]] = []
        self.functions: dict[Any, Any] = {}  # those of loops

    def run(self, unwrap: bool, unbound: bool) -> ir.IRModule:
        graph = self.program.graph
        _check_supported(self.program.graph_module, self.custom)
        inputs = self._inputs()
        attrs: dict[str, Any] = {}
        if self.params:
            attrs["num_input"] = len(inputs)
            attrs["params"] = [value for _, value in self.params]
        attrs |= self._bounds()
        variables = inputs + [var for var, _ in self.params]
        walk = _Walk(self)
        draws = _draws(self.program.graph_module)
        is_dataflow = not draws and not _has_branches(self.program.graph_module)
        bound = self.builder.emit_output if is_dataflow else lambda value: value
        block = self.builder.dataflow() if is_dataflow else contextlib.nullcontext()
        with self.builder.function("main", variables, attrs=attrs or None) as scope:
            with block:
                walk.nodes(graph)
                scope.is_pure = self.g.is_pure
                outputs = [_result(walk.value(v)) for v in self._results(graph)]
                if unwrap and len(outputs) == 1:
                    result = bound(outputs[0])
                elif unbound:
                    result = [bound(o) for o in outputs]
                else:
                    result = bound(relax.Tuple(outputs))
            self.builder.emit_func_output(result)
        module = self.builder.get()
        module.update(self.functions)
        return relax.transform.ConvertToDataflow(1)(module) if draws else module

    # ---- inputs and results

    def _inputs(self) -> list[Any]:
        """The variables of the inputs; parameters and buffers get their values."""
        places = {n.name: n for n in self.program.graph.nodes if n.op == "placeholder"}
        users = []
        self._define_symbols(places)
        for spec in self.program.graph_signature.input_specs:
            node = places[spec.arg.name] if hasattr(spec.arg, "name") else None
            if spec.kind == InputKind.USER_INPUT:
                if node is not None:
                    users += self._user_input(node)
            elif spec.kind in _PARAMETERS:
                self._parameter(spec, node)
            else:
                raise UnsupportedProgram(f"the input {spec.arg} of kind {spec.kind}")
        return users

    def _define_symbols(self, places: dict[str, Any]) -> None:
        """A variable for each size of an input; where a size is an expression, for its symbol."""
        shapes = [
            node.meta["val"].shape
            for node in places.values()
            if isinstance(node.meta.get("val"), torch.Tensor)
        ]
        values = [
            n.meta["val"] for n in places.values() if isinstance(n.meta.get("val"), torch.SymInt)
        ]
        sizes = [d for shape in shapes for d in shape if not isinstance(d, int)] + values
        expressions = [d.node.expr for d in sizes]
        for expr in expressions:
            if isinstance(expr, sympy.Symbol):
                self.symbols.variable(expr.name)
        self._solved: dict[Any, Any] = {}
        for expr in expressions:
            for symbol in sorted(expr.free_symbols, key=lambda s: s.name):
                if not self.symbols.knows(symbol):
                    self._solve(expr, symbol)

    def _solve(self, expr: Any, symbol: Any) -> None:
        """From a size a * s + b: the size is a variable, and s is computed of it."""
        rest = expr.free_symbols - {symbol}
        a, b = expr.coeff(symbol, 1), expr.coeff(symbol, 0)
        if rest or not a.is_Integer or not b.is_Integer or sympy.expand(a * symbol + b - expr) != 0:
            raise UnsupportedProgram(f"an input's size is {expr}; give {symbol} a size of its own")
        variable = self.symbols.variable(f"{symbol.name}_size")
        self._solved[expr] = variable
        self.symbols.define(symbol.name, (variable - int(b)) // int(a))

    def _user_input(self, node: Any) -> list[Any]:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            if value.is_complex():
                raise UnsupportedProgram(
                    f"the input {node.name} is complex; take torch.view_as_real of it, and view_as_complex inside"
                )
            dims = [
                self._solved.get(d.node.expr)
                if not isinstance(d, int) and d.node.expr in self._solved
                else self.symbols.size(d)
                for d in value.shape
            ]
            var = relax.Var(node.name, relax.TensorType(dims, dtype_name(value.dtype)))
        elif isinstance(value, torch.SymInt):
            var = relax.Var(node.name, relax.ShapeType([self.symbols.size(value)]))
            self.values[node] = self.symbols.size(value)
            return [var]
        else:
            return []  # a number or a flag, which the program holds already
        self.values[node] = var
        return [var]

    def _parameter(self, spec: Any, node: Any) -> None:
        program = self.program
        if spec.kind == InputKind.CONSTANT_TENSOR or (
            spec.kind == InputKind.BUFFER and not spec.persistent
        ):
            tensor = program.constants[spec.target]
        else:
            tensor = program.state_dict[spec.target]
        if self.keep_params and spec.kind == InputKind.PARAMETER and not tensor.is_complex():
            value = runtime.tensor(array_of(tensor))
            var = relax.Var(
                node.name, relax.TensorType(list(tensor.shape), dtype_name(tensor.dtype))
            )
            self.params.append((var, value))
            self.values[node] = var
        elif node.users:
            self.values[node] = self.g.tensor(tensor)

    def _bounds(self) -> dict[str, Any]:
        """Function attributes: what PyTorch knows of the sizes."""
        lower, upper = {}, {}
        for symbol, bounds in self.program.range_constraints.items():
            if not isinstance(symbol, sympy.Symbol) or not self.symbols.knows(symbol):
                continue
            if bounds.lower.is_Integer:
                lower[symbol.name] = int(bounds.lower)
            if bounds.upper.is_Integer and bounds.upper < np.iinfo(np.int64).max:
                upper[symbol.name] = int(bounds.upper)
        attrs = {"tir_var_lower_bound": lower, "tir_var_upper_bound": upper}
        return {name: value for name, value in attrs.items() if value}

    def _results(self, graph: Any) -> list[Any]:
        output = next(n for n in graph.nodes if n.op == "output")
        specs = self.program.graph_signature.output_specs
        return [
            value
            for value, spec in zip(output.args[0], specs)
            if spec.kind == OutputKind.USER_OUTPUT
        ]


class _Walk:
    """Emits the nodes of one graph, and of the graphs that are its branches."""

    def __init__(self, importer: _Importer) -> None:
        self.importer = importer
        self.values = importer.values
        self.g = importer.g
        self.g.args = self.args
        self.module = importer.program.graph_module

    def nodes(self, graph: Any) -> None:
        for node in graph.nodes:
            if node.op == "call_function":
                with span_scope(_span_of(node)):
                    self._call(node)
            elif node.op == "get_attr":
                target = _attribute(self.module, node.target)
                if isinstance(target, torch.Tensor):
                    self.values[node] = self.g.tensor(target)

    def value(self, arg: Any) -> Any:
        """An argument or result as rules see it."""
        if isinstance(arg, torch.fx.Node):
            meta = arg.meta.get("val")
            if arg in self.values:
                value = self.values[arg]
                if value is None and isinstance(meta, torch.Tensor):
                    raise UnsupportedProgram(
                        f"{arg.name}: a result of {arg.args[0]} that is not computed here{_place(arg)}"
                    )
                return value
            if isinstance(meta, (torch.SymBool, bool)):
                return self.g.symbols.condition(meta)
            if isinstance(meta, (torch.SymInt, int)):
                return self.g.symbols.size(meta)
            raise UnsupportedProgram(
                f"{arg.name}: {arg.target} makes a value that is not known here"
            )
        if isinstance(arg, (list, tuple)):
            return [self.value(a) for a in arg]
        if isinstance(arg, slice):
            return slice(*(self.value(a) for a in (arg.start, arg.stop, arg.step)))
        return arg

    def args(self, node: Any) -> list[Any]:
        return [self.value(a) for a in node.args]

    def _call(self, node: Any) -> None:
        target, g = node.target, self.g
        g.node = node
        if target is operator.getitem:
            source = self.values.get(node.args[0])
            if source is not None and node.args[1] < len(source):
                self.values[node] = source[node.args[1]]
            return
        if not isinstance(target, torch._ops.OperatorBase):
            return  # arithmetic on sizes: PyTorch's description of the result says it
        if (higher_order := control_flow.find(target)) is not None:
            self.values[node] = higher_order(self, node)
            g.node = node
            return
        name = _functional(registry.name_of(target))
        if name in _CHECKS:
            return
        meta = node.meta.get("val")
        if isinstance(meta, torch.SymInt) and g.symbols.knows(meta.node.expr):
            return
        custom = self.importer.custom.get(name)
        is_complex = (
            any(map(complex_.is_complex, (self.args(node), meta))) if custom is None else False
        )
        rule = registry.find_complex(name) if is_complex else registry.find(name)
        if is_complex and rule is None and node.all_input_nodes:
            raise UnsupportedProgram(f"{node.name} ({name}): of complex tensors{_place(node)}")
        if custom is None and rule is None:
            self.values[node] = g.tensor(target(*node.args, **node.kwargs))  # see _is_constant
            return
        try:
            if custom is not None:
                result = custom(node, g)
            else:
                kwargs = {k: self.value(v) for k, v in node.kwargs.items()}
                result = rule(g, *self.args(node), **kwargs)
        except TorchError as error:
            raise type(error)(f"{node.name} ({name}): {error}{_place(node)}") from None
        self.values[node] = self._emitted(result, meta)

    def _emitted(self, result: Any, meta: Any) -> Any:
        if isinstance(result, (tuple, list)):
            metas = meta if isinstance(meta, (tuple, list)) else [None] * len(result)
            return tuple(None if r is None else self._emitted(r, m) for r, m in zip(result, metas))
        if isinstance(result, Complex):
            return Complex(self._emitted(result.real, meta), self._emitted(result.imag, meta))
        if not isinstance(result, relax.Expr) or isinstance(result, relax.Constant):
            return result
        if isinstance(meta, torch.Tensor) and isinstance(result, relax.Call):
            result = self._broadcast_as_known(result, meta)
        var = self.g.emit(result)
        if not isinstance(meta, torch.Tensor):
            return var
        return self.sized(var, meta)

    def _broadcast_as_known(self, call: Any, meta: torch.Tensor) -> Any:
        """The call, with the sizes that PyTorch found where ours are not seen to be equal."""
        symbols = self.g.symbols
        open_ = [d for d in meta.shape if not isinstance(d, int)]
        if not open_ or not all(symbols.knows(d.node.expr) for d in open_):
            return call
        if torch.Tag.pointwise not in getattr(self.g.node.target, "tags", ()):
            return call
        if self.g.builder.normalize(call).ty.shape is not None:
            return call
        shape, args = symbols.shape(meta.shape), []
        for arg in call.args:
            dims = self.g.shape(arg) if self.g.is_tensor(arg) else []
            # What is not 1 is the size of the result.
            want = [1 if d == 1 else r for d, r in zip(dims, shape[len(shape) - len(dims) :])]
            cast = self.g.builder.match_cast
            args.append(cast(arg, relax.TensorType(want, self.g.dtype(arg))) if dims else arg)
        return relax.Call(call.op, args, call.attrs, call.ty_args, call.span)

    def sized(self, var: Any, meta: torch.Tensor) -> Any:
        """With variables for the sizes that are known only now."""
        symbols = self.g.symbols
        new = [d for d in meta.shape if not isinstance(d, int) and not symbols.knows(d.node.expr)]
        if not new and var.ty.shape is not None:
            return var
        for d in new:
            if isinstance(d.node.expr, sympy.Symbol):
                symbols.variable(d.node.expr.name)
        shape = symbols.shape(meta.shape)
        return self.g.builder.match_cast(var, relax.TensorType(shape, str(var.ty.dtype)))

    def graph(self, branch: Any, arguments: Sequence[Any]) -> list[Any]:
        """Emits the nodes of a graph that is the node `branch` here, for these arguments; its results."""
        module = _attribute(self.module, branch.target)
        self.values.update(zip(places_of(module), arguments, strict=True))
        outer, self.module = self.module, module
        self.nodes(module.graph)
        output = next(n for n in module.graph.nodes if n.op == "output").args[0]
        results = [
            self.value(v) for v in (output if isinstance(output, (list, tuple)) else [output])
        ]
        self.module = outer
        return results


def _result(value: Any) -> Any:
    """None and texts take a place among the results as well."""
    if isinstance(value, Complex):
        raise UnsupportedProgram("a result is complex; return torch.view_as_real of it")
    if value is None:
        return op.null_value()
    return relax.StringImm(value) if isinstance(value, str) else value


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _span_of(node: Any) -> Any:
    return ir.Span(node.name, 0, 0, 0, 0)


def _place(node: Any) -> str:
    """Where the user's code made the node, as PyTorch remembers it."""
    lines = [
        line for line in (node.stack_trace or "").splitlines() if line.strip().startswith("File")
    ]
    return f"; made by {lines[-1].strip()}" if lines else ""


def _draws(module: Any) -> bool:
    """Does it draw random numbers?"""
    parts = (part for part in module.modules() if isinstance(part, torch.fx.GraphModule))
    targets = (node.target for part in parts for node in part.graph.nodes)
    targets = (t for t in targets if isinstance(t, torch._ops.OpOverload))
    return any(registry.is_random(_functional(registry.name_of(t))) for t in targets)


def _has_branches(module: Any) -> bool:
    return any(control_flow.find(n.target) is not None for n in module.graph.nodes)


def _functional(name: str) -> str:
    """'relu.default' for 'relu_.default': it writes where nobody else looks, see _is_ready.  And 'view.default' for
    'view_copy.default': all tensors are values."""
    operator, _, overload = name.rpartition(".")
    if operator.endswith("_copy") and not registry.is_known(name):
        return f"{operator.removesuffix('_copy')}.{overload}"
    plain = f"{operator[:-1]}.{overload}"
    return plain if operator.endswith("_") and not operator.startswith("__") else name


def _is_known(node: Any, custom: Mapping[str, Any], name: str) -> bool:
    """Is `name`, which the node calls, imported: for complex tensors, or for real ones as the node has them?"""
    if name in custom or name in _CHECKS or registry.find(name) is not None:
        return True
    return registry.is_known(name) and _touches_complex(node)


def _is_ready(module: Any, custom: Mapping[str, Any]) -> bool:
    """Can the program be imported as PyTorch traced it?  What is written over must have no other reader."""
    for node in module.graph.nodes:
        target = node.target
        if node.op != "call_function" or target is operator.getitem or _is_number(node):
            continue
        if not isinstance(target, torch._ops.OpOverload):
            return (
                False  # it takes graphs, or is one of vmap's functions, which PyTorch takes apart
            )
        name = registry.name_of(target)
        if target._schema.is_mutable:
            if _functional(name) == name or not _is_alone(node.args[0]):
                return False
        if not _is_known(node, custom, _functional(name)):
            return False
    return True


def _is_number(node: Any) -> bool:
    """Does it compute with sizes alone?"""
    kinds = (torch.SymInt, torch.SymBool, torch.SymFloat, bool, int, float)
    return isinstance(node.meta.get("val"), kinds)


def _is_alone(node: Any) -> bool:
    """Is it a tensor of its own, no view of another and no input, that one node reads?"""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    returns = node.target._schema.returns
    fresh = len(returns) == 1 and returns[0].alias_info is None
    own = node.target._schema.is_mutable  # which _is_ready has asked about already
    return (fresh or own) and len(node.users) == 1


def _is_constant(node: Any) -> bool:
    """Does it make a tensor of numbers alone, always the same?  Then PyTorch makes it."""
    is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    made = isinstance(node.meta.get("val"), torch.Tensor)
    plain = isinstance(node.target, torch._ops.OpOverload)
    return made and plain and not node.all_input_nodes and not is_random


def _check_supported(module: Any, custom: dict[str, Any]) -> None:
    """Names all operators that have no importer at once."""
    missing: dict[str, str] = {}
    for part in module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            target = node.target
            if node.op != "call_function" or not isinstance(target, torch._ops.OperatorBase):
                continue
            if control_flow.find(target) is not None:
                continue
            name = registry.name_of(target) if hasattr(target, "_schema") else str(target)
            name = _functional(name)
            known = _is_known(node, custom, name) or _is_constant(node)
            if not known and not _is_number(node):
                missing.setdefault(name, _place(node))
    if missing:
        names = ", ".join(f"{name}{place}" for name, place in sorted(missing.items()))
        raise UnsupportedProgram(
            f"no importer for {names}; give one in custom_convert_map, or write the model without"
        )
