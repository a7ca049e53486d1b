# SPDX-License-Identifier: Apache-2.0
"""RemovePurityChecking: calls that were marked pure become plain calls."""

from __future__ import annotations

from relaxvm.relax import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R


def test_pure_packed_call_becomes_a_packed_call_and_the_function_says_so() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.call_pure_packed("f", x, ty_args=(R.Tensor((4,), "float32"),))
            return y

    text = transform.RemovePurityChecking()(Mod).script()
    assert 'R.call_packed("f", x' in text
    assert '"relax.force_pure": True' in text


def test_impure_function_stays_as_it_is() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            y = R.call_packed("f", x, ty_args=(R.Tensor((4,), "float32"),))
            return y

    assert transform.RemovePurityChecking()(Mod).same_as(Mod)
