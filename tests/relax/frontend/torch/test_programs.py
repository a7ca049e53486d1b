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
