# SPDX-License-Identifier: Apache-2.0
"""BindParams: parameters become constants."""

import numpy as np
import pytest
from pass_check import check_pass, module

import relaxvm
from relaxvm.relax.transform import BindParams

BEFORE = """
@R.function
def main(x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("k", 2), "float32")) -> R.Tensor(("n", 2), "float32"):
    n = T.int64()
    y: R.Tensor((n, 2), "float32") = R.matmul(x, w)
    return y
"""


def test_constant_also_fixes_sizes():
    result = BindParams("main", {"w": np.zeros((3, 2), "float32")})(module(BEFORE))
    main = result["main"]
    assert [str(p.name) for p in main.params] == ["x"]
    assert int(main.params[0].ty.shape[1]) == 3


def test_parameter_may_be_given_as_variable():
    mod = module(BEFORE)
    by_var = BindParams("main", {mod["main"].params[1]: np.ones((3, 2), "float32")})(mod)
    by_name = BindParams("main", {"w": np.ones((3, 2), "float32")})(mod)
    relaxvm.ir.assert_structural_equal(by_var, by_name)


def test_nothing_given_changes_nothing():
    check_pass(BindParams("main", {}), before=BEFORE)


def test_unknown_name_lists_the_parameters():
    with pytest.raises(RuntimeError, match="function main has no b; there are x, w"):
        BindParams("main", {"b": np.zeros((3,), "float32")})(module(BEFORE))


def test_value_of_the_wrong_shape_is_an_error():
    with pytest.raises(ValueError, match="value of w does not have the shape"):
        BindParams("main", {"w": np.zeros((3, 5), "float32")})(module(BEFORE))
