# SPDX-License-Identifier: Apache-2.0
"""What `from_exported_program` makes of a program's inputs, sizes, weights, results and branches."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

pytestmark = pytest.mark.peer


@pytest.fixture
def imported():
    """The module of a function or PyTorch module; `dynamic` are its dynamic shapes."""
    from relaxvm.relax.frontend.torch import from_exported_program

    from .programs import exported

    def make(function, *inputs, dynamic=None, **options):
        options.setdefault("run_ep_decomposition", False)
        shapes = None if dynamic is None else (tuple(dynamic),)
        if not hasattr(function, "parameters"):
            return from_exported_program(
                exported(function, inputs, dynamic_shapes=shapes), **options
            )
        program = exported(function, inputs, dynamic_shapes=shapes and shapes[0])
        return from_exported_program(program, **options)

    return make


def test_sizes_are_symbolic_and_one_program_takes_all(imported, run_module, agree):
    import torch

    rows = torch.export.Dim("rows", min=3, max=9)
    f = lambda x, y: (torch.cat([x, y]) @ y.T, x.flatten(), x.shape[0] * 2, x[-2:], x[1:])
    module = imported(f, torch.randn(4, 3), torch.randn(5, 3), dynamic=({0: rows}, {0: torch.export.Dim("n")}))  # fmt: skip
    bounds = (
        module["main"].attrs["tir_var_lower_bound"],
        module["main"].attrs["tir_var_upper_bound"],
    )
    assert 3 in dict(bounds[0]).values() and list(dict(bounds[1]).values()) == [9]
    executable = relaxvm.compile(module)
    for a, b in ((3, 7), (9, 2)):
        inputs = torch.randn(a, 3), torch.randn(b, 3)
        got = run_module(executable, *inputs)
        assert not agree(got, f(*inputs))


def test_size_that_is_a_multiple(imported, run_module, agree):
    import torch

    n = torch.export.Dim("n", min=2, max=9)
    f = lambda x: x.reshape(2, -1).sum(0) + x.shape[0] // 2
    module = imported(f, torch.randn(8), dynamic=({0: 2 * n},))
    executable = relaxvm.compile(module)
    x = torch.randn(12)
    assert not agree(run_module(executable, x), f(x))


def test_sizes_that_depend_on_values(imported, run_module, agree):
    import torch

    f = lambda x: (x[x > 0] * 2, torch.nonzero(x > 0).sum(0), x.masked_select(x < 0))
    module = imported(f, torch.randn(3, 4))
    for x in (torch.randn(3, 4), torch.ones(3, 4)):
        assert not agree(run_module(module, x), f(x))


def test_size_out_of_a_tensor(imported, run_module, agree):
    import torch

    def f(x, n):
        size = n.item()
        torch._check(size >= 0)
        torch._check(size <= 4)
        return torch.zeros(size, 3) + x

    module = imported(f, torch.randn(3), torch.tensor(2))
    for n in (1, 4):
        inputs = torch.randn(3), torch.tensor(n)
        assert not agree(run_module(module, *inputs), f(*inputs))


def test_parameters_as_inputs(imported, run_module, agree):
    import torch

    layer = torch.nn.Linear(3, 4)
    module = imported(layer, torch.randn(2, 3), keep_params_as_input=True)
    main = module["main"]
    assert [p.name_hint for p in main.params] == ["input", "p_weight", "p_bias"]
    assert int(main.attrs["num_input"]) == 1 and len(main.attrs["params"]) == 2
    x = torch.randn(2, 3)
    assert not agree(run_module(module, x, layer.weight, layer.bias), layer(x))


def test_form_of_the_results(imported):
    import torch

    x = torch.randn(2)
    one = lambda x: x + 1
    assert isinstance(imported(one, x)["main"].ret_ty, relax.TupleType)
    assert isinstance(imported(one, x, unwrap_unit_return_tuple=True)["main"].ret_ty, relax.TensorType)  # fmt: skip
    unbound = imported(lambda x: (x + 1, x * 2), x, no_bind_return_tuple=True)["main"]
    assert isinstance(unbound.body.body, relax.Tuple)


def test_nested_results_and_numbers(imported, run_module):
    import torch

    f = lambda x: {"sum": x.sum(), "parts": [x[0], (x[1], 7)]}
    got = run_module(imported(f, torch.arange(2.0)), torch.arange(2.0))
    assert [float(g) for g in got] == [1.0, 0.0, 1.0, 7.0]


def test_writes_stay_inside(imported, run_module, agree):
    import torch

    def f(x):
        y = x.clone()
        y[1:] += 1
        y.view(-1)[0] = 5.0
        return y * 2

    x = torch.randn(3, 2)
    assert not agree(run_module(imported(f, x), x), f(x))


def test_program_without_shared_writes_is_imported_as_traced(monkeypatch, run_module, agree):
    import torch
    from torch import nn

    from .programs import exported

    layers = nn.Conv2d(3, 4, 3, padding="same"), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
    rest = nn.MaxPool2d(2), nn.Hardswish(inplace=True), nn.Flatten(), nn.Linear(64, 5)
    model, x = nn.Sequential(*layers, *rest).eval(), torch.randn(2, 3, 8, 8)
    program = exported(model, (x,))
    monkeypatch.delattr(type(program), "run_decompositions")
    assert not agree(run_module(relaxvm.compile(program), x), model(x))


def test_write_that_others_see(imported, run_module, agree):
    import torch

    def f(x):
        y = x * 2
        first = y[0]
        y.add_(1)
        z = y.relu_()
        return first, z, y

    x = torch.randn(3, 2)
    assert not agree(run_module(imported(f, x), x), f(x))


def test_branches(imported, run_module, agree):
    import torch

    more = lambda a, b: (a + b, a * 2)
    less = lambda a, b: (a - b, a.sin())
    f = lambda x, y: torch.cond(x.sum() > 0, more, less, (x, y))
    module = imported(f, torch.ones(3), torch.ones(3))
    for sign in (1.0, -1.0):
        inputs = sign * torch.ones(3), torch.randn(3)
        assert not agree(run_module(module, *inputs), f(*inputs))


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64"])
def test_weights_of_other_types(imported, run_module, name):
    import torch

    layer = torch.nn.Linear(3, 4).to(getattr(torch, name))
    x = torch.randn(2, 3)
    f = lambda x: layer(x.to(layer.weight.dtype)).float()
    module = imported(f, x)
    assert np.allclose(run_module(module, x)[0], f(x).numpy(), atol=3e-2)


def test_compile_takes_an_exported_program(run_module, agree):
    import torch

    from .programs import exported

    layer, x = torch.nn.LayerNorm(4), torch.randn(2, 4)
    assert not agree(run_module(relaxvm.compile(exported(layer, (x,))), x), layer(x))


def test_attention_stays_one_operator(imported):
    import torch

    q = torch.randn(1, 2, 3, 4)
    script = imported(torch.nn.functional.scaled_dot_product_attention, q, q, q).script()
    assert "R.nn.attention(" in script and "softmax" not in script


def test_recurrent_layer_is_a_loop_over_unknown_steps(imported, run_module, agree):
    import torch

    layer = torch.nn.GRU(4, 6, bidirectional=True)
    module = imported(layer, torch.randn(5, 2, 4))
    assert "R.rvm.gru" in module.script() or "rvm.gru" in module.script()
    x = torch.randn(5, 2, 4)
    assert not agree(run_module(module, x), layer(x))


def test_operator_of_a_users_own(imported, run_module, agree):
    import torch

    from relaxvm.relax import op

    schema = "(Tensor x) -> Tensor"
    twice = torch.library.custom_op(
        "relaxvm_tests::twice", lambda x: x * 2, mutates_args=(), schema=schema
    )
    twice.register_fake(lambda x: torch.empty_like(x))
    f = lambda x: twice(x) + 1
    x = torch.randn(3)
    with pytest.raises(
        NotImplementedError, match=r"relaxvm_tests::twice\.default; made by File .*in"
    ):
        imported(f, x)
    rule = lambda node, g: op.add(*(g.args(node) * 2))
    module = imported(f, x, custom_convert_map={"relaxvm_tests::twice.default": rule})
    assert not agree(run_module(module, x), f(x))


def test_all_unknown_operators_are_named(imported):
    import torch

    f = lambda x: (torch.linalg.svdvals(x), torch.linalg.eigvalsh(x))
    with pytest.raises(ValueError) as error:
        imported(f, torch.eye(3))
    assert "svd" in str(error.value) and "eigh" in str(error.value)


def test_training_is_refused(imported):
    import torch

    from relaxvm.relax.frontend.torch import from_exported_program

    program = torch.export.export(torch.nn.Dropout(0.5).train(), (torch.randn(3),))
    with pytest.raises(ValueError, match=r"dropout.*model\.eval\(\)"):
        from_exported_program(program, run_ep_decomposition=False)


def test_arithmetic_on_sizes(imported, run_module, agree):
    import torch

    def f(x):
        n = x.shape[0]
        wide = torch.sym_max(n // 2, 3)
        return x.new_ones(n // 2 + 1, n * n), x.new_zeros(n % 4 + 2), x.new_zeros(wide), n - 1

    module = imported(f, torch.randn(6), dynamic=({0: torch.export.Dim("n", min=3, max=99)},))
    executable = relaxvm.compile(module)
    for n in (3, 7, 20):
        assert not agree(run_module(executable, torch.randn(n)), f(torch.randn(n)))
