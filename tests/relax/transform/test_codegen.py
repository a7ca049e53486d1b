# SPDX-License-Identifier: Apache-2.0
"""RunCodegen: external code generators take the functions that carry their name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax.dpl import is_const, is_op, wildcard
from relaxvm.relax.transform import FuseOpsByPattern, MergeCompositeFunctions, RunCodegen

W = np.arange(16, dtype="float32").reshape(4, 4)


def program(name: str) -> relaxvm.IRModule:
    """exp(relu(x W)), whose first two steps go to the code generator `name`."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(W)))
            out = builder.emit_output(relax.op.exp(builder.emit(relax.op.nn.relu(product))))
        builder.emit_func_output(out)
    pattern = is_op("relax.nn.relu")(is_op("relax.matmul")(wildcard(), is_const()))
    fused = FuseOpsByPattern([(f"{name}.matmul_relu", pattern)], bind_constants=True)
    return MergeCompositeFunctions()(fused(builder.finalize()))


def test_calls_become_calls_of_what_was_generated() -> None:
    seen: list[Any] = []

    def generate(functions: Any, options: Any, names: Any) -> list[Any]:
        seen.append(
            ([str(f.attrs["global_symbol"]) for f in functions], dict(options), dict(names))
        )
        return []

    relaxvm.register_global_func("relax.ext.test_recorder", generate, override=True)
    made = RunCodegen({"test_recorder": {"level": 3}})(program("test_recorder"))
    [(symbols, options, names)] = seen
    assert options == {"level": 3}
    assert list(names.values()) == [f"{symbols[0]}_const_0"]
    np.testing.assert_array_equal(
        made.attrs["const_name_to_constant"][f"{symbols[0]}_const_0"].numpy(), W
    )
    assert [str(v.name_hint) for v in made.get_global_vars()] == ["main"]
    assert f'R.call_dps_packed("{symbols[0]}", (x,)' in made.script()
    assert relax.analysis.well_formed(made)


def test_generated_code_runs() -> None:
    @relaxvm.register_global_func("relax.ext.test_numpy", override=True)
    def generate(functions: Any, options: Any, names: Any) -> list[Any]:
        for function in functions:

            def compute(x: Any, out: Any) -> None:
                relaxvm.runtime.tensor(np.maximum(x.numpy() @ W, 0)).copyto(out)

            symbol = str(function.attrs["global_symbol"])
            relaxvm.register_global_func(symbol, compute, override=True)
        return []

    mod = RunCodegen()(program("test_numpy"))
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    x = np.full((2, 4), -0.05, "float32")
    np.testing.assert_allclose(
        vm["main"](relaxvm.runtime.tensor(x)).numpy(), np.exp(np.maximum(x @ W, 0)), rtol=1e-5
    )


def test_functions_that_no_entry_reaches_are_left_alone() -> None:
    mod = program("test_nobody")
    assert RunCodegen(entry_functions=[])(mod).same_as(mod)


def test_an_unknown_code_generator_is_named() -> None:
    with pytest.raises(
        ValueError, match="'test_nobody' is not registered; .* relax.ext.test_nobody"
    ):
        RunCodegen()(program("test_nobody"))
