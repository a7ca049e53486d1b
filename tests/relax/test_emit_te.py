# SPDX-License-Identifier: Apache-2.0
"""emit_te: tensor expressions with tensors and with scalars that only the running program knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ir, relax, te, tirx
from relaxvm.relax.analysis import well_formed
from relaxvm.script import relax as R


def shifted(a: Any, offset: Any, b: Any = None) -> Any:
    def value(i: Any) -> Any:
        return a[i + offset] if b is None else a[i + offset] + b[i]

    return te.compute((4,), value, name="shifted")


def run(builder: relax.BlockBuilder, *args: Any) -> np.ndarray:
    mod = builder.get()
    well_formed(mod)
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    given = [relaxvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in args]
    return vm["main"](*given).numpy()


X = np.arange(10, dtype=np.float32)

FUNCTIONS = {
    "power": (te.power, np.power),
    "logaddexp": (te.logaddexp, np.logaddexp),
    "hypot": (tirx.hypot, np.hypot),
    "ldexp": (tirx.ldexp, lambda a, b: a * 2**b),
    "exp10": (lambda a, b: tirx.exp10(a - b), lambda a, b: 10 ** (a - b)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_scalars(name: str) -> None:
    function, reference = FUNCTIONS[name]
    builder = relax.BlockBuilder()
    a, b = (relax.Var(n, R.Tensor([10], "float32")) for n in "ab")
    with builder.function("main", [a, b]):
        te_function = lambda s, t: te.compute((10,), lambda i: function(s[i], t[i]), name="out")
        builder.emit_func_output(builder.emit_te(te_function, a, b, primfunc_name_hint="out"))
    given = X / 4 + 0.5, X[::-1] / 8
    np.testing.assert_allclose(
        run(builder, *map(np.ascontiguousarray, given)), reference(*given), rtol=1e-5
    )


@pytest.mark.parametrize("more", [0, 1])
def test_a_size_of_another_tensor_is_an_argument(more: int) -> None:
    builder = relax.BlockBuilder()
    m = tirx.Var("m", "int64")
    x = relax.Var("x", R.Tensor([10], "float32"))
    y = relax.Var("y", R.Tensor([m], "float32"))
    with builder.function("main", [x, y]):
        builder.emit_func_output(builder.emit_te(shifted, x, m + more if more else m))
    call = builder.get()["main"].body.blocks[0].bindings[0].value
    assert len(call.args) == 2 and len(call.args[1].fields) == 2
    np.testing.assert_array_equal(run(builder, X, np.zeros(3, np.float32)), X[3 + more : 7 + more])


def test_a_parameter_stands_between_tensors() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor([10], "float32"))
    offset = relax.Var("offset", ir.PrimType("int64"))
    b = relax.Var("b", R.Tensor([4], "float32"))
    with builder.function("main", [x, offset, b]):
        builder.emit_func_output(builder.emit_te(shifted, x, offset, b))
    fields = builder.get()["main"].body.blocks[0].bindings[0].value.args[1].fields
    assert [f.name for f in fields] == ["x", "offset", "b"]
    got = run(builder, X, 5, np.full(4, 0.5, np.float32))
    np.testing.assert_array_equal(got, X[5:9] + 0.5)


def test_a_size_that_a_shape_gives_is_no_argument() -> None:
    builder = relax.BlockBuilder()
    n = tirx.Var("n", "int64")
    x = relax.Var("x", R.Tensor([n], "float32"))
    with builder.function("main", [x]):
        reverse = builder.emit_te(lambda a, size: te.compute((4,), lambda i: a[size - 1 - i]), x, n)
        builder.emit_func_output(reverse)
    call = builder.get()["main"].body.blocks[0].bindings[0].value
    assert len(call.args[1].fields) == 1
    np.testing.assert_array_equal(run(builder, X), X[::-1][:4])
