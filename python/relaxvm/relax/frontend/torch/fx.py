# SPDX-License-Identifier: Apache-2.0
"""Graphs of torch.fx and of torch.compile: each is exported, and then imported as an exported program is."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from relaxvm import ir, relax

from .errors import UnsupportedProgram
from .importer import from_exported_program

InputInfo = Sequence[tuple[Sequence[Any], str]]

# A size for each open one while PyTorch traces: numbers that no other size is by chance.
_EXAMPLES = (11, 13, 17, 19, 23, 29, 31, 37)


def from_fx(
    model: torch.fx.GraphModule,
    input_info: InputInfo,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[str, Callable[..., Any]] | None = None,
    default_image_layout: str = "NCHW",
) -> ir.IRModule:
    """The Relax module of a graph, with one function `main`; `input_info` has shape and dtype of each input.

    A size that is a variable (`tirx.Var`) or a name is open; where it stands twice, both are equal.
    A single tensor is returned as it is, several are a tuple.  The other options are those of
    `from_exported_program`, with all operators kept that have an importer.  Layers that behave otherwise in training
    are taken as in evaluation.
    """
    if default_image_layout != "NCHW":
        raise ValueError(f"images of PyTorch are NCHW, not {default_image_layout}")
    inputs, dynamic = _examples(input_info)
    with _evaluating(model), torch.no_grad():
        program = torch.export.export(model, inputs, dynamic_shapes=dynamic)
    (result,) = (node.args[0] for node in model.graph.nodes if node.op == "output")
    return from_exported_program(
        program,
        keep_params_as_input=keep_params_as_input,
        unwrap_unit_return_tuple=unwrap_unit_return_tuple or isinstance(result, torch.fx.Node),
        no_bind_return_tuple=no_bind_return_tuple,
        custom_convert_map=custom_convert_map,
        run_ep_decomposition=False,
    )


def _examples(input_info: InputInfo) -> tuple[tuple[torch.Tensor, ...], Any]:
    """Tensors of these types, and which of their sizes are open."""
    dims: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    inputs, dynamic = [], []
    for shape, dtype in input_info:
        names = {i: _name_of(d) for i, d in enumerate(shape) if not isinstance(d, int)}
        for name in names.values():
            dims.setdefault(name, torch.export.Dim(name))
            sizes.setdefault(name, _EXAMPLES[len(sizes) % len(_EXAMPLES)])
        example = [sizes[names[i]] if i in names else int(d) for i, d in enumerate(shape)]
        inputs.append(torch.zeros(example, dtype=getattr(torch, str(dtype))))
        dynamic.append({i: dims[name] for i, name in names.items()} or None)
    return tuple(inputs), tuple(dynamic) if dims else None


def _name_of(dim: Any) -> str:
    name = dim if isinstance(dim, str) else getattr(dim, "name", None)
    if name is None:
        raise UnsupportedProgram(f"the size {dim} of an input; give a number or a variable")
    return f"size_{name}"


@contextlib.contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _info(inputs: Sequence[Any]) -> InputInfo:
    return [([int(s) for s in t.shape], str(t.dtype).removeprefix("torch.")) for t in inputs]


def _replaced(written: Mapping[Any, Any], node: Any) -> Any:
    return written.get(node, node)


def _given_back(value: Any) -> Any:
    return torch.from_dlpack(value) if hasattr(value, "shape") else value


def _is_open(value: Any) -> bool:
    """Is it a size, or a tensor of a size, that differs from call to call?"""
    sizes = value.shape if isinstance(value, torch.Tensor) else [value]
    return any(isinstance(s, torch.SymInt) for s in sizes)


def _with_numbers(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> torch.fx.GraphModule:
    """The graph with the inputs that are numbers written in."""
    whole = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    places = [node for node in whole.graph.nodes if node.op == "placeholder"]
    for node, value in zip(places, inputs):
        if isinstance(value, torch.Tensor):
            continue
        if not isinstance(value, (bool, int, float)):
            raise UnsupportedProgram(f"an input is {type(value).__name__}, no tensor and no number")
        written = {node: value}
        replaced = functools.partial(_replaced, written)
        for user in list(node.users):
            user.args = torch.fx.node.map_arg(user.args, replaced)
            user.kwargs = torch.fx.node.map_arg(user.kwargs, replaced)
        whole.graph.erase_node(node)
    whole.recompile()
    return whole


def _with_weights(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], weights: set[int]
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The graph with the inputs that are weights as its own tensors, and the other inputs."""
    whole, others = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph)), []
    places = [node for node in whole.graph.nodes if node.op == "placeholder"]
    for node, value in zip(places, inputs):
        if id(value) not in weights:
            others.append(value)
            continue
        if isinstance(value, torch.nn.Parameter):
            whole.register_parameter(node.name, value)
        else:
            whole.register_buffer(node.name, value)
        with whole.graph.inserting_before(node):
            node.replace_all_uses_with(whole.graph.get_attr(node.name))
        whole.graph.erase_node(node)
    whole.recompile()
    return whole, others


def relax_dynamo(
    pipeline: Callable[[ir.IRModule], ir.IRModule] | None = None,
) -> Callable[[torch.fx.GraphModule, list[torch.Tensor]], Callable[..., Any]]:
    """A backend for torch.compile that compiles each graph for this CPU and its sizes; `pipeline` comes before.

    A graph whose sizes torch.compile leaves open is compiled when it meets new ones.  For evaluation: results carry no
    gradients.  Weights are inputs of a graph, as torch.compile hands them over.
    """

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        import relaxvm

        compiled: dict[Any, Callable[..., Any]] = {}

        def main_for(values: Sequence[Any]) -> Callable[..., Any]:
            key = tuple(v.shape if isinstance(v, torch.Tensor) else v for v in values)
            if key not in compiled:
                tensors = [v for v in values if isinstance(v, torch.Tensor)]
                module = from_fx(_with_numbers(graph, values), _info(tensors))
                executable = relaxvm.compile(module if pipeline is None else pipeline(module))
                compiled[key] = relax.VirtualMachine(executable, relaxvm.cpu())["main"]
            return compiled[key]

        if not any(map(_is_open, inputs)):
            main_for(inputs)

        def run(*values: Any) -> Any:
            tensors = [v for v in values if isinstance(v, torch.Tensor)]
            given = [relaxvm.runtime.from_dlpack(v.detach().contiguous()) for v in tensors]
            result = main_for(values)(*given)
            single = hasattr(result, "shape")
            return _given_back(result) if single else [_given_back(r) for r in result]

        return run

    return backend


def dynamo_capture_subgraphs(
    model: torch.nn.Module, *params: torch.Tensor, **kwargs: Any
) -> ir.IRModule:
    """The graphs into which torch.compile cuts a model, for these inputs: functions `subgraph_0`, `subgraph_1`, ...

    With `keep_params_as_input` parameters are inputs, and their values the function attribute `params`; other keywords
    go to the model.
    """
    keep_params = kwargs.pop("keep_params_as_input", False)
    found: dict[str, Any] = {}
    weights = {id(w) for w in (*model.parameters(), *model.buffers())}

    def capture(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        whole, others = _with_weights(graph, inputs, weights)
        module = from_fx(whole, _info(others), keep_params_as_input=keep_params)
        name = f"subgraph_{len(found)}"
        found[name] = module["main"].with_attr("global_symbol", name)
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=capture, dynamic=False)(*params, **kwargs)
    torch._dynamo.reset()
    return ir.IRModule(found)
