# SPDX-License-Identifier: Apache-2.0
"""Every program of the table gives what PyTorch gives, in PyTorch's core operators and in all that are known."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.peer
PARTS = 64


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_program_agrees_with_pytorch(part, run_module, agree):
    from relaxvm.relax.frontend.torch import from_exported_program

    from .programs import PROGRAMS, Function, exported

    wrong = []
    for name, (function, inputs) in list(PROGRAMS.items())[part::PARTS]:
        program = exported(function, inputs)
        call = function if callable(function) else Function(function)
        want, texts = call(*inputs), set()
        for core in (False, True):
            module = from_exported_program(program, run_ep_decomposition=core)
            text = module.script(show_meta=True)
            if text in texts:
                continue
            texts.add(text)
            if what := agree(run_module(module, *inputs), want):
                wrong.append(f"{name} (core operators: {core}): {what}")
    assert not wrong, "\n".join(wrong)


RESIZED = {
    "bilinear": dict(size=(13, 40)),
    "bilinear of a factor": dict(scale_factor=(0.75, 1.25)),
    "bilinear aligned": dict(size=(13, 40), align_corners=True),
    "bilinear smoothed": dict(size=(13, 40), antialias=True),
    "bicubic": dict(size=(13, 40)),
    "bicubic smoothed": dict(size=(13, 40), antialias=True),
}


@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("name", RESIZED)
def test_bytes_are_resized_as_pytorch_does(name, is_open, run_module):
    """Rounded after each axis, and clipped; PyTorch's weights have 16 bits: what is near a half may differ by 1."""
    import numpy as np
    import torch

    from relaxvm.relax.frontend.torch import from_exported_program
    from relaxvm.relax.frontend.torch.errors import UnsupportedProgram

    from .programs import exported, ints

    options = dict(RESIZED[name], mode=name.split()[0])
    function = lambda x: torch.nn.functional.interpolate(x, **options)
    x = ints(2, 3, 27, 29, high=256, dtype=torch.uint8)
    open_ = torch.export.Dim("h", min=8, max=99)
    shapes = (({2: open_},),) if is_open else None
    program = exported(function, (x,), dynamic_shapes=shapes)
    if is_open and "antialias" in options:
        with pytest.raises(UnsupportedProgram, match="sizes that are not known"):
            from_exported_program(program)
        return
    (got,) = run_module(from_exported_program(program), x)
    want = function(x).numpy()
    assert got.dtype == want.dtype and got.shape == want.shape
    difference = np.abs(got.astype(int) - want.astype(int))
    assert difference.max() <= 1
    assert difference.mean() < 0.15
