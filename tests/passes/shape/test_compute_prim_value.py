# SPDX-License-Identifier: Apache-2.0
"""ComputePrimValue: computed scalars are what tensor programs return."""

from __future__ import annotations

from relaxvm.relax import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


def test_argument_and_result_become_variables() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            _ = R.call_packed("f", R.prim_value(n * 2 + 1), ty_args=(R.Tuple(),))
            return R.prim_value(n + 5)

    text = transform.ComputePrimValue()(Mod).script()
    assert "return n * 2 + 1" in text
    assert "return n + 5" in text
    assert text.count("cls.compute_symbolic_expr") == 2
    assert 'R.call_packed("f", value' in text
    assert "return value" in text


def test_equal_scalars_share_a_program() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor(("n", "m"), "float32")):
            n, m = T.int64(), T.int64()
            _ = R.assert_op(n % 16 == 0)
            _ = R.assert_op(m % 16 == 0)
            return x

    functions = transform.ComputePrimValue()(Mod).functions
    assert len(functions) == 2


def test_sizes_of_shapes_stay() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            return R.shape([n * 2])

    assert transform.ComputePrimValue()(Mod).same_as(Mod)
