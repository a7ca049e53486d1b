# SPDX-License-Identifier: Apache-2.0
"""ToNonDataflow: dataflow blocks become plain blocks."""

from __future__ import annotations

import relaxvm
from relaxvm.relax import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R


def test_block_and_its_variables_become_plain() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.add(x, x)
                b = R.multiply(a, a)
                R.output(b)
            return b

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.add(x, x)
            b = R.multiply(a, a)
            return b

    assert relaxvm.ir.structural_equal(transform.ToNonDataflow()(Before), After)
