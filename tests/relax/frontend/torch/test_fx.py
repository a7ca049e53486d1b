# SPDX-License-Identifier: Apache-2.0
"""Graphs of torch.fx and of torch.compile."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.peer


def network():
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Dropout(),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 5),
    )


def branching():
    import torch

    class Branching(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x, shift=0.0):
            y = self.layer(x) + shift
            return torch.relu(y) + 1 if y.sum() > 0 else y * 2

    return Branching()


IMAGE = [((2, 3, 4, 4), "float32")]


def test_graph_of_layers_is_taken_in_evaluation(run_module, agree):
    import torch

    from relaxvm.relax.frontend.torch import from_fx

    model = network()
    graph = torch.fx.symbolic_trace(model)
    module = from_fx(graph, IMAGE)
    assert graph.training and graph.get_submodule("3").training
    x = torch.randn(2, 3, 4, 4)
    assert not agree(run_module(module, x), model.eval()(x))


def test_result_is_what_the_graph_returns(run_module, agree):
    import torch

    from relaxvm.relax.frontend.torch import from_fx

    info = [((2, 3), "float32"), ((3,), "int64")]
    pair = torch.fx.symbolic_trace(lambda x, i: (x[:, i], x + 1))
    inputs = torch.randn(2, 3), torch.tensor([2, 0, 1])
    assert not agree(run_module(from_fx(pair, info), *inputs), pair(*inputs))
    unit = torch.fx.symbolic_trace(lambda x: (x * 2,))
    assert hasattr(from_fx(unit, info[:1])["main"].ret_ty, "fields")
    assert not hasattr(from_fx(unit, info[:1], unwrap_unit_return_tuple=True)["main"].ret_ty, "fields")  # fmt: skip


def test_parameters_may_stay_inputs():
    import torch

    from relaxvm.relax.frontend.torch import from_fx

    module = from_fx(torch.fx.symbolic_trace(network()), IMAGE, keep_params_as_input=True)
    main = module["main"]
    assert main.attrs["num_input"] == 1 and len(main.params) == 1 + len(main.attrs["params"])


def test_torch_compile_runs_graphs_here():
    import torch

    from relaxvm.relax.frontend.torch import relax_dynamo
    from relaxvm.relax.transform import FoldConstant

    seen = []
    torch._dynamo.reset()
    model = branching().eval()
    backend = relax_dynamo(lambda mod: seen.append(mod) or FoldConstant()(mod))
    compiled = torch.compile(model, backend=backend, dynamic=False)
    with torch.no_grad():
        for shift in (9.0, -9.0):
            x = torch.randn(2, 4) + shift
            torch.testing.assert_close(compiled(x), model(x))
        model.layer.weight.mul_(2)  # weights are inputs, so changes are seen
        torch.testing.assert_close(compiled(x), model(x))
    assert len(seen) >= 3


def test_torch_compile_meets_other_sizes():
    import torch

    from relaxvm.relax.frontend.torch import relax_dynamo

    torch._dynamo.reset()
    seen = []
    function = lambda x: (x.reshape(-1, x.shape[0]) * 2, x.sum(0) + x.shape[0])
    backend = relax_dynamo(lambda mod: seen.append(mod) or mod)
    compiled = torch.compile(function, backend=backend)
    with torch.no_grad():
        for rows in (2, 3, 5, 3):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(compiled(x), function(x))
    assert len(seen) == 3


def test_graphs_between_breaks_are_functions(run_module, agree):
    import torch

    from relaxvm import ir
    from relaxvm.relax.frontend.torch import dynamo_capture_subgraphs

    model, x = branching(), torch.full((2, 4), 9.0)
    module = dynamo_capture_subgraphs(model, x, shift=torch.tensor(99.0))
    assert [v.name_hint for v in module.get_global_vars()] == ["subgraph_0", "subgraph_1"]
    assert len(module["subgraph_0"].params) == 2
    y = model(x, torch.tensor(99.0)).detach() - 1
    main = module["subgraph_1"].with_attr("global_symbol", "main")
    assert not agree(run_module(ir.IRModule({"main": main}), y), y + 1)
    kept = dynamo_capture_subgraphs(model, x, keep_params_as_input=True)["subgraph_0"]
    assert len(kept.attrs["params"]) == 2


def test_what_cannot_be_taken_is_named():
    import torch

    from relaxvm.relax.frontend.torch import UnsupportedProgram, from_fx, relax_dynamo

    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(ValueError, match="NCHW, not NHWC"):
        from_fx(graph, [((2,), "float32")], default_image_layout="NHWC")
    with pytest.raises(UnsupportedProgram, match="an input is str, no tensor and no number"):
        relax_dynamo()(graph, ["text"])


def test_sizes_that_are_variables_stay_open(run_module, agree):
    import torch

    import relaxvm
    from relaxvm import tirx
    from relaxvm.relax.frontend.torch import UnsupportedProgram, from_fx

    n = tirx.Var("n", "int64")
    graph = torch.fx.symbolic_trace(lambda x, y: torch.cat([x, x * y]).sum(1))
    info = [((n, "m"), "float32"), ((n, "m"), "float32")]
    executable = relaxvm.compile(from_fx(graph, info), num_threads=1)
    for shape in ((2, 3), (5, 7)):
        inputs = torch.randn(shape), torch.randn(shape)
        assert not agree(run_module(executable, *inputs), graph(*inputs))
    with pytest.raises(UnsupportedProgram, match="give a number or a variable"):
        from_fx(graph, [((n + 1, 2), "float32"), ((n, 2), "float32")])
