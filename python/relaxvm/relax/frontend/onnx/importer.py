# SPDX-License-Identifier: Apache-2.0
"""from_onnx: walks the nodes of an ONNX graph in order and emits a Relax function."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper

from relaxvm import ir, relax
from relaxvm.ir.base import span_scope
from relaxvm.relax import op

from . import byte_moves, ops, registry, symbolic
from .dimensions import identifier
from .element_types import carrier
from .errors import InvalidModel, OnnxError, UnsupportedModel
from .graph import Graph
from .load import Model, expand_operators, is_defined_by_others, read_model
from .subgraphs import RanksDiffer, emit_if, flat, unflat, walked
from .texts import check_node
from .values import ItemSequence, Known, Maybe, Sequence, Tensor, Value

ops.load()


def from_onnx(
    model: Any,
    shape_dict: dict[str, list] | None = None,
    dtype_dict: dict[str, str] | str | None = None,
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> ir.IRModule:
    """The Relax module of an ONNX model, with one function `main`.

    `model` is a path, the bytes of a file or an `onnx.ModelProto`.  `shape_dict` and `dtype_dict`
    replace what the model says about its inputs (a dimension is a number or a name), `opset` the
    version of the operators.  Initializers become constants, or with `keep_params_in_input`
    parameters after the inputs, whose values are the function attribute `params`.  The attribute
    `text_outputs` says which outputs are places of texts (texts.py).
    `sanitize_input_names=False` keeps names that the script language cannot write.
    """
    loaded = read_model(model)
    if opset is not None:
        loaded.opsets[""] = opset
    loaded = with_supported_operators(loaded)
    importer = _Importer(loaded, keep_params_in_input, sanitize_input_names)
    return importer.run(shape_dict or {}, dtype_dict)


@dataclasses.dataclass(frozen=True)
class _ItemType:
    """Of an input that is a sequence of tensors, or an optional value."""

    item: Any
    is_list: bool
    is_optional: bool = False

    def value(self, var: Any) -> Value:
        if self.is_optional:
            return Maybe(var, self.item, self.is_list)
        return ItemSequence(var, self.item)


class _Importer:
    def __init__(self, model: Model, keep_params: bool, sanitize: bool) -> None:
        self.model = model
        self.graph = model.proto.graph
        self.keep_params = keep_params
        self.sanitize = sanitize
        self.builder = relax.BlockBuilder()
        self.g = Graph(model, self.builder)
        self.g.walk = self._walk  # until `run` ends: in a cycle the model would stay in memory
        self.names: set[str] = set()
        self.params: list[tuple[Any, np.ndarray]] = []

    def run(self, shapes: dict[str, list], dtypes: dict[str, str] | str | None) -> ir.IRModule:
        nodes = needed_nodes(self.graph)
        check_supported(self.model, nodes)
        inputs = self._inputs(shapes, dtypes)
        self._initializers(self.graph)
        attrs: dict[str, Any] = {"num_input": len(inputs)}
        if self.params:
            attrs["params"] = [relax.const(array).data for _, array in self.params]
        parameters = inputs + [var for var, _ in self.params]
        try:
            with self.builder.function("main", parameters, attrs=attrs) as scope:
                self._nodes(nodes, [o.name for o in self.graph.output])
                scope.is_pure = self.g.is_pure
                outputs = self._outputs()
                self.builder.emit_func_output(outputs[0] if len(outputs) == 1 else outputs)
        finally:
            del self.g.walk
        module = self.builder.get()
        for var, func in self.g.functions.items():
            module.update_func(var, func)
        module = relax.transform.ConvertToDataflow(1)(module)
        texts = [i for i, o in enumerate(self.graph.output) if o.name in self.g.textual]
        if texts:
            module["main"] = module["main"].with_attr("text_outputs", texts)
        return module

    def _walk(self, graph: Any) -> None:
        """Imports the nodes of a subgraph, whose inputs are in the values of the graph already."""
        self._initializers(graph)
        self._nodes(needed_nodes(graph), [o.name for o in graph.output])

    # ---- inputs, weights, outputs

    def _inputs(self, shapes: dict[str, list], dtypes: dict[str, str] | str | None) -> list:
        weights = {t.name for t in self.graph.initializer}
        weights |= {t.values.name for t in self.graph.sparse_initializer}
        inputs = [i for i in self.graph.input if i.name not in weights]
        for name in {*shapes, *(dtypes if isinstance(dtypes, dict) else ())}:
            if name not in {i.name for i in inputs}:
                raise InvalidModel(
                    f"{self.model.place}: has no input '{name}'; its inputs are {[i.name for i in inputs]}"
                )
        variables = []
        for info in inputs:
            place = f"{self.model.place}: input '{info.name}'"
            if info.name in self.g.values:
                raise InvalidModel(f"{place} is there twice")
            dtype = dtypes.get(info.name) if isinstance(dtypes, dict) else dtypes
            self.g.set_type(info.name, info.type.tensor_type.elem_type)
            ty = self._input_type(info, place, shapes.get(info.name), dtype)
            is_tensor = isinstance(ty, relax.TensorType)
            var = relax.Var(self._unique(info.name, "input"), ty if is_tensor else relax.AnyType())
            self.g.values[info.name] = Tensor(var) if is_tensor else ty.value(var)
            variables.append(var)
        return variables

    def _input_type(self, info: Any, place: str, shape: list | None, dtype: str | None) -> Any:
        kind = info.type.WhichOneof("value")
        if kind in ("sequence_type", "optional_type"):
            return _item_type(info.type, place)
        if kind != "tensor_type":
            raise UnsupportedModel(
                f"{place}: is a {kind or 'value without a type'}; tensors, sequences of tensors and"
                " optional ones are supported"
            )
        tensor = info.type.tensor_type
        if tensor.elem_type == onnx.TensorProto.STRING:
            dtype = "int64"
        dtype = dtype or dtype_name(tensor.elem_type, place)
        dims = self.g.dimensions
        if shape is not None:
            return relax.TensorType(
                [dims.of_user(d, f"{info.name}_{i}") for i, d in enumerate(shape)], dtype
            )
        if not tensor.HasField("shape"):
            raise UnsupportedModel(
                f"{place}: has an unknown number of dimensions; give its shape in shape_dict"
            )
        return relax.TensorType(
            [dims.of_proto(d, f"{info.name}_{i}") for i, d in enumerate(tensor.shape.dim)], dtype
        )

    def _initializers(self, graph: Any) -> None:
        for tensor in graph.initializer:
            self._weight(tensor.name, self.g.elements(tensor))
            self.g.set_type(tensor.name, tensor.data_type)
        for sparse in graph.sparse_initializer:
            self._weight(sparse.values.name, dense(self.model, sparse))

    def _weight(self, name: str, array: np.ndarray) -> None:
        if name in self.g.values:
            raise InvalidModel(f"{self.model.place}: initializer '{name}' is there twice")
        value = Known.constant(array)
        # Small integers are shapes and axes: the importer has to see them.
        if (
            self.keep_params
            and self.g.node is None
            and (array.dtype.kind not in "iub" or array.size > 64)
        ):
            var = relax.Var(
                self._unique(name, "param"), relax.TensorType(list(array.shape), array.dtype.name)
            )
            self.params.append((var, array))
            value = Tensor(var)
        self.g.values[name] = value

    def _outputs(self) -> list:
        outputs = []
        for info in self.graph.output:
            value = self.g.values.get(info.name)
            if value is None:
                raise InvalidModel(f"{self.model.place}: no node makes the output '{info.name}'")
            says = info.type.tensor_type.elem_type
            if says and (says == onnx.TensorProto.STRING) != (info.name in self.g.textual):
                raise InvalidModel(
                    f"{self.model.place}: the output '{info.name}' is not of the type that it says"
                )
            if info.type.HasField("tensor_type") and isinstance(value, (Sequence, ItemSequence)):
                raise InvalidModel(
                    f"{self.model.place}: the output '{info.name}' is a sequence, not the tensor that it says"
                )
            if isinstance(value, Maybe):
                expr = op.null_value() if value.expr is None else value.expr
                outputs.append(self.g.emit(expr, info.name))
                continue
            if isinstance(value, (Sequence, ItemSequence)):
                items = op.call_pure_packed(
                    "vm.builtin.sequence_to_array",
                    self.g.sequence_expr(value),
                    ty_args=[relax.AnyType()],
                )
                outputs.append(self.g.emit(items, "items"))
                continue
            outputs.append(self.g.as_expr(value, info.name))
        return outputs

    def _unique(self, name: str, fallback: str) -> str:
        clean = identifier(name, fallback) if self.sanitize else name
        unique, n = clean, 0
        while unique in self.names:
            n += 1
            unique = f"{clean}_{n}"
        self.names.add(unique)
        return unique

    # ---- nodes

    def _nodes(self, nodes: list, outputs: list[str]) -> None:
        """Imports the nodes of a graph or subgraph with these outputs."""
        for i, node in enumerate(nodes):
            try:
                self._node(node)
            except RanksDiffer as split:
                if self._split(node, split, nodes[i + 1 :], outputs):
                    return

    def _split(self, node: Any, split: RanksDiffer, rest: list, outputs: list[str]) -> bool:
        """Imports `rest` once for each branch of `node`; True when the graph's outputs are there."""
        g, bodies, errors = self.g, [], []
        for branch in split.branches:
            try:
                bodies.append(walked(g, lambda b=branch: self._tail(node, b, rest, outputs)))
                errors.append(None)
            except OnnxError as e:
                errors.append(e)
        if len(bodies) == 2:
            g.values.update(zip(outputs, emit_if(g, g.as_expr(split.condition, "cond"), bodies)))
            return True
        if not bodies or not isinstance(split.condition, Known):
            raise next(e for e in errors if e is not None)
        # The model is wrong at shapes that take the other branch: those are refused while running.
        taken = errors[0] is None
        condition = split.condition.array.reshape(()).item()
        condition = condition if taken else g.scalars.logical_not(condition)
        values = split.branches[0 if taken else 1]()
        checked = iter([Tensor(g.only_if(condition, v, "output")) for v in flat(values)])
        g.values.update(zip(node.output, unflat(values, checked)))
        return False

    def _tail(
        self, node: Any, make: Callable[[], list[Value]], rest: list, outputs: list[str]
    ) -> list[Value]:
        """The graph's outputs, where `make` gives the outputs of `node`."""
        outer = self.g.values
        self.g.values = dict(outer)
        try:
            try:
                self.g.values.update(zip(node.output, make()))
                done = False
            except RanksDiffer as split:
                done = self._split(node, split, rest, outputs)
            if not done:
                self._nodes(rest, outputs)
            return [self.g.values[name] for name in outputs]
        finally:
            self.g.values = outer

    def _node(self, node: Any) -> None:
        label = node_label(node)
        inputs = []
        for name in node.input:
            if name and name not in self.g.values:
                raise InvalidModel(f"{label}: its input '{name}' is made by no earlier node")
            inputs.append(self.g.values[name] if name else None)
        outer, self.g.node = self.g.node, node
        try:
            with span_scope(ir.Span(label, 0, 0, 0, 0)):
                check_node(self.g.textual, node)
                results = self._evaluate(node, inputs)
        except OnnxError as e:
            raise type(e)(f"{label}: {e}") from e
        except (TypeError, ValueError, IndexError, NotImplementedError) as e:
            text = str(e)
            kind = UnsupportedModel if isinstance(e, NotImplementedError) else InvalidModel
            raise kind(text if text.startswith(label) else f"{label}: {text}") from e
        except (ArithmeticError, AttributeError, KeyError, RuntimeError) as e:
            raise InvalidModel(f"{label}: cannot be imported ({type(e).__name__}: {e})") from e
        finally:
            self.g.node = outer
        for i, name in enumerate(node.output):
            if not name:
                continue
            if name in self.g.values:
                raise InvalidModel(f"{label}: its output '{name}' exists already")
            if i >= len(results) or results[i] is None:
                raise UnsupportedModel(f"{label}: its output {i} ('{name}') is not supported")
            self.g.values[name] = results[i]

    def _evaluate(self, node: Any, inputs: list[Value | None]) -> list[Value]:
        version = self.g.version
        if not node.domain and all(i is None or isinstance(i, Known) for i in inputs):
            attributes = {a.name: self._raw_attribute(a) for a in node.attribute}
            known = symbolic.evaluate(node.op_type, inputs, attributes, version, self.g.scalars)
            if known is not None:
                return [self.g.shortened(k) for k in known]
        rule = registry.find(node.domain, node.op_type, version)
        for name in node.output:  # a node may be imported once for each branch of an If
            for notes in (
                self.g.block_weights,
                self.g.dequantized,
                self.g.joined,
                self.g.products,
                self.g.raised,
            ):
                notes.pop(name, None)
        result = byte_moves.moved(self.g, node, inputs, lambda i: rule(self.g, node, i))
        if result is None:
            result = rule(self.g, node, inputs)
        results = result if isinstance(result, (tuple, list)) else [result]
        return [None if r is None else self.g.to_value(r) for r in results]

    def _raw_attribute(self, proto: Any) -> Any:
        if proto.type == onnx.AttributeProto.TENSOR:
            return self.g.read_tensor(proto.t)
        value = helper.get_attribute_value(proto)
        return (
            list(value) if isinstance(value, (list, tuple)) or hasattr(value, "append") else value
        )


def node_label(node: Any) -> str:
    """What messages and spans call a node."""
    name = (
        f"node '{node.name}'"
        if node.name
        else f"node that makes '{next(filter(None, node.output), '')}'"
    )
    return f"{name} ({node.op_type})"


def dtype_name(elem_type: int, place: str) -> str:
    if elem_type == onnx.TensorProto.STRING:
        raise UnsupportedModel(f"{place}: strings are not supported")
    try:
        return carrier(elem_type)
    except OnnxError as e:
        raise type(e)(f"{place}: {e}") from e


def _item_type(ty: Any, place: str) -> _ItemType:
    """Of a sequence of tensors, an optional tensor or an optional sequence."""
    is_optional = ty.WhichOneof("value") == "optional_type"
    inner = ty.optional_type.elem_type if is_optional else ty
    is_list = inner.WhichOneof("value") == "sequence_type"
    item = inner.sequence_type.elem_type.tensor_type if is_list else inner.tensor_type
    if not item.elem_type:
        raise UnsupportedModel(f"{place}: only sequences of tensors are supported")
    rank = len(item.shape.dim) if item.HasField("shape") else -1
    tensor = relax.TensorType(None, dtype_name(item.elem_type, place), ndim=rank)
    return _ItemType(tensor, is_list, is_optional)


def needed_nodes(graph: Any) -> list:
    """The nodes that an output of the graph depends on, in an order in which each follows what it reads."""
    needed = {o.name for o in graph.output}
    kept = []
    for node in reversed(_in_order(list(graph.node))):
        if needed.intersection(filter(None, node.output)):
            kept.append(node)
            needed.update(_names_read(node))
    return kept[::-1]


def _names_read(node: Any) -> list[str]:
    names = list(node.input)
    for attribute in node.attribute:
        for sub in (attribute.g, *attribute.graphs):
            names.extend(outer_names(sub))
    return names


def _in_order(nodes: list) -> list:
    """The nodes as they stand, but each behind those that make what it reads: some tools write them anywhere."""
    makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    if all(makers.get(name, -1) < i for i, node in enumerate(nodes) for name in _names_read(node)):
        return nodes
    entered: set[int] = set()
    done: set[int] = set()
    result = []
    for first in range(len(nodes)):
        waiting = [first]
        while waiting:
            i = waiting[-1]
            if i not in entered:
                entered.add(i)
                read = (makers.get(name) for name in _names_read(nodes[i]))
                # Of a circle nobody can say the order; its first node will miss an input.
                waiting.extend([m for m in read if m is not None and m not in entered][::-1])
                continue
            waiting.pop()
            if i not in done:
                done.add(i)
                result.append(nodes[i])
    return result


def all_nodes(nodes: list) -> Iterator[Any]:
    """The nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for sub in (attribute.g, *attribute.graphs):
                yield from all_nodes(needed_nodes(sub))


def outer_names(graph: Any) -> set[str]:
    """Names that a subgraph may take from the graph around it."""
    names = {o.name for o in graph.output}
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            for sub in (attribute.g, *attribute.graphs):
                names |= outer_names(sub)
    return names


# Older forms of some operators are not imported.
COMPLETE_OPSET = 7
# Definitions use other operators that are defined so in their turn.
MAX_EXPANSIONS = 8


def with_supported_operators(model: Model) -> Model:
    """The model with unsupported operators replaced by their definitions, where ONNX has one."""
    for _ in range(MAX_EXPANSIONS):
        missing = set()
        for node in all_nodes(needed_nodes(model.proto.graph)):
            domain = registry.canonical_domain(node.domain)
            version = model.version_of(node)
            if version is None or registry.find(domain, node.op_type, version) is not None:
                continue
            if is_defined_by_others(domain, node.op_type, version):
                missing.add((domain, node.op_type))
        expanded = expand_operators(model, missing) if missing else model
        if expanded is model:
            break
        model = expanded
    return model


def check_supported(model: Model, nodes: list) -> None:
    """One error that names every node whose operator cannot be imported."""
    missing: dict[str, list[str]] = {}
    for node in all_nodes(nodes):
        domain = registry.canonical_domain(node.domain)
        version = model.version_of(node)
        if version is None:
            raise InvalidModel(
                f"{node_label(node)}: its domain '{node.domain}' is not in the model's opset_import"
            )
        if registry.find(domain, node.op_type, version) is None:
            kind = f"{domain}::{node.op_type}" if domain else node.op_type
            missing.setdefault(f"{kind} (opset {version})", []).append(
                node.name or f"-> {next(filter(None, node.output), '')}"
            )
    if missing:
        lines = [
            f"  {kind}: {len(names)} node{'s' if len(names) > 1 else ''}: "
            + ", ".join(f"'{n}'" for n in names)
            for kind, names in sorted(missing.items())
        ]
        count = f"{len(missing)} operator{'s' if len(missing) > 1 else ''}"
        if model.opsets[""] < COMPLETE_OPSET:
            lines.append("onnx.version_converter makes newer models of old ones")
        raise UnsupportedModel(
            f"{model.place}: {count} of this model cannot be imported:\n" + "\n".join(lines)
        )


def dense(model: Model, sparse: Any) -> np.ndarray:
    """A sparse initializer with all its elements."""
    values, indices = model.read_tensor(sparse.values), model.read_tensor(sparse.indices)
    try:
        out = np.zeros(list(sparse.dims), values.dtype)
        if indices.ndim == 1:
            out.reshape(-1)[indices] = values
        else:
            out[tuple(indices.T)] = values
    except (IndexError, MemoryError, ValueError) as e:
        raise InvalidModel(
            f"{model.place}: tensor '{sparse.values.name}': its indices do not fit"
            f" its dimensions {list(sparse.dims)} ({e})"
        ) from e
    return out
