# SPDX-License-Identifier: Apache-2.0
"""AnnotateTIROpPattern: kinds are written down.  Which ones: tests/analysis/program_kind_test.cc."""

from fused_programs import ADD_ONE
from pass_check import check_pass

from relaxvm.relax.transform import AnnotateTIROpPattern


def test_kind_is_an_attribute():
    check_pass(
        AnnotateTIROpPattern(), before=ADD_ONE.replace('"op_pattern": 0, ', ""), after=ADD_ONE
    )


def test_kind_that_is_given_stays():
    check_pass(AnnotateTIROpPattern(), before=ADD_ONE.replace('"op_pattern": 0', '"op_pattern": 8'))
