# SPDX-License-Identifier: Apache-2.0
"""Random numbers are spread as PyTorch's are, and others at each call."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.peer
PARTS = 8


def drawn(run_module, function):
    """The results of a program of X, in two calls."""
    from relaxvm.relax.frontend.torch import from_exported_program

    from .programs import exported
    from .random_programs import X

    module = from_exported_program(exported(function, (X,)))
    return run_module(module, X), run_module(module, X)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_spread(part, run_module):
    import torch

    import relaxvm
    from relaxvm.relax.frontend.torch import from_exported_program

    from .programs import Function
    from .random_programs import COUNT, SPREADS, X

    for name, (function, mean, deviation, low, high) in list(SPREADS.items())[part::PARTS]:
        for core in (False, True):
            is_open = core and name != "multinomial"
            shapes = (({0: torch.export.Dim("n", min=2)},),) if is_open else None
            program = torch.export.export(Function(function), (X,), dynamic_shapes=shapes)
            module = from_exported_program(program, run_ep_decomposition=core)
            executable = relaxvm.compile(module, num_threads=1)
            (got,), (again,) = run_module(executable, X), run_module(executable, X)
            want = function(X)
            assert got.shape == tuple(want.shape), name
            assert f"torch.{got.dtype}" == str(want.dtype), name
            assert not np.array_equal(got, again), name
            values = got.astype(np.float64)
            assert values.min() >= low and values.max() <= high, name
            # Eight standard errors; the deviation's are three times as large for the steepest of these.
            assert abs(values.mean() - mean) < 8 * deviation / COUNT**0.5, name
            assert abs(values.std() - deviation) < 24 * deviation / COUNT**0.5, name


def test_two_draws_differ(run_module):
    import torch

    ((a, b), _) = drawn(run_module, lambda x: (torch.randn(100), torch.randn(100)))
    assert not np.array_equal(a, b)


def test_randperm_is_a_permutation(run_module):
    import torch

    (order,), (again,) = drawn(run_module, lambda x: torch.randperm(500))
    assert sorted(order) == list(range(500))
    assert list(order) != list(again)


def test_multinomial_without_replacement(run_module):
    """All places of a weight above 0, each once; the heavier one is first more often."""
    import torch

    weights = torch.tensor([[0.0, 1, 9, 0]]).repeat(2000, 1)
    (got,), _ = drawn(run_module, lambda x: torch.multinomial(weights + 0 * x[:1, :1], 2))
    assert (np.sort(got, 1) == [1, 2]).all()
    assert 0.85 < (got[:, 0] == 2).mean() < 0.95


def test_draws_in_a_loop(run_module):
    import torch

    def walk(x):
        step = lambda place, row: (place + torch.randn_like(place), place + row)
        return torch._higher_order_ops.scan(step, x[0], x[:3])

    ends, again = drawn(run_module, walk)
    assert [e.shape for e in ends] == [(4,), (3, 4)]
    assert not np.array_equal(ends[0], again[0])
    assert np.array_equal(ends[1][0], again[1][0])


def test_dropout_in_training_is_refused(run_module):
    import torch

    from relaxvm.relax.frontend.torch.errors import UnsupportedProgram

    with pytest.raises(UnsupportedProgram, match="export the model after model.eval"):
        drawn(run_module, lambda x: torch.nn.functional.dropout(x, 0.5, True))
