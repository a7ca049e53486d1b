# SPDX-License-Identifier: Apache-2.0
"""PyExprMutator: another variable at a definition is read wherever the old one was."""

from __future__ import annotations

from typing import Any

from relaxvm import relax
from relaxvm.relax.expr_functor import PyExprMutator
from relaxvm.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor(ndim=2, dtype="float32"):
    a = R.exp(x)
    b = R.match_cast(a, R.Tensor(ndim=2, dtype="float32"))
    c = R.add(b, b)
    return c


class Rename(PyExprMutator):
    def visit_var_def_(self, var: Any) -> Any:
        return relax.Var(f"new_{var.name}", var.ty)


def test_new_variables_are_read_in_place_of_the_old_ones() -> None:
    func = Rename().visit_expr(main)
    assert [p.name for p in func.params] == ["new_x"]
    bindings = func.body.blocks[0].bindings
    assert [b.var.name for b in bindings] == ["new_a", "new_b", "new_c"]
    assert bindings[0].value.args[0].same_as(func.params[0])
    assert bindings[1].value.same_as(bindings[0].var)
    assert func.body.body.same_as(bindings[2].var)
    assert relax.analysis.well_formed(func)
