# SPDX-License-Identifier: Apache-2.0
"""Operators that take graphs: branches on sizes, loops, and functions that PyTorch maps over a tensor."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.peer


@pytest.fixture
def check(run_module, agree):
    """Compares a function with its program at inputs of several sizes; the first ones are exported."""

    def run(function, *rows, dynamic):
        import relaxvm

        from .programs import exported

        program = exported(function, rows[0], dynamic_shapes=(dynamic,))
        executable = relaxvm.compile(program, num_threads=1)
        for inputs in rows:
            assert not agree(run_module(executable, *inputs), function(*inputs))

    return run


def rows(*shape):
    import torch

    return torch.linspace(-1, 1, shape[0] * (shape[1] if len(shape) > 1 else 1)).reshape(shape)


def dim(name="n"):
    import torch

    return {0: torch.export.Dim(name, min=2, max=99)}


def test_branch_on_a_size(check):
    import torch

    f = lambda x: torch.cond(x.shape[0] > 4, lambda x: x + 1, lambda x: x * 2, (x,))
    check(f, (rows(3),), (rows(5),), dynamic=(dim(),))


def test_while_loop_over_tensors(check):
    import torch
    from torch._higher_order_ops.while_loop import while_loop

    def f(x, y, limit):
        step = lambda i, x: (i + 1, x * 1.5 + y.sum())
        return while_loop(lambda i, x: i < limit, step, (torch.zeros((), dtype=torch.int64), x))

    inputs = (rows(3, 2), rows(2), torch.tensor(3)), (rows(5, 2), rows(4), torch.tensor(0))
    check(f, *inputs, dynamic=(dim(), dim("m"), None))


def test_while_loop_over_numbers(check):
    import torch
    from torch._higher_order_ops.while_loop import while_loop

    def f(x, limit):
        return while_loop(lambda i, y: i < limit.item(), lambda i, y: (i + 2, y * 2), (0, x))[1]

    inputs = (rows(3, 2), torch.tensor(3)), (rows(5, 2), torch.tensor(6))
    check(f, *inputs, dynamic=(dim(), None))


def test_loop_inside_a_branch(check):
    import torch
    from torch._higher_order_ops.while_loop import while_loop

    def grow(x):
        return while_loop(lambda y: y.sum() < 50, lambda y: (y * 2,), (x,))[0]

    f = lambda x: torch.cond(x.sum() > 0, grow, lambda x: x.clone(), (x,))
    check(f, (rows(3) + 1,), (rows(6) + 2,), (rows(4) - 2,), dynamic=(dim(),))


def test_scan_carries_and_gathers(check):
    from torch._higher_order_ops.scan import scan

    def f(start, x):
        step = lambda carry, row: (carry * 0.5 + row, (carry + row).clone())
        return scan(step, start, x), scan(step, start, x, reverse=True)

    check(f, (rows(2), rows(3, 2)), (rows(2), rows(7, 2)), dynamic=(None, dim()))


def test_map_over_rows(check):
    import torch
    from torch._higher_order_ops.map import map

    weight = rows(3, 3)
    f = lambda x, y: map(lambda row, y: (torch.tanh(weight @ row), row * y), x, y)
    check(f, (rows(2, 3), rows(3)), (rows(5, 3), rows(3)), dynamic=(dim(), None))


def test_vmap_is_taken_apart(check):
    import torch

    f = lambda x: torch.vmap(lambda row: row.sin() / row.sum())(x)
    check(f, (rows(2, 3) + 2,), (rows(5, 3) + 2,), dynamic=(dim(),))


def test_loop_is_one_function_of_the_module():
    import torch
    from torch._higher_order_ops.while_loop import while_loop

    from relaxvm.relax.frontend.torch import from_exported_program

    from .programs import exported

    f = lambda x, y: while_loop(lambda x: x.sum() < 9, lambda x: (x * 2 + y,), (x,))
    module = from_exported_program(exported(f, (torch.ones(2), torch.ones(2))))
    assert sorted(v.name_hint for v in module.get_global_vars()) == ["loop_0", "main"]
    assert module.script().count("cls.loop_0(") == 2
