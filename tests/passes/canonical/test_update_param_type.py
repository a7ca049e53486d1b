# SPDX-License-Identifier: Apache-2.0
"""UpdateParamType: other types of parameters, and what follows from them."""

from pass_check import check_pass, module

from relaxvm import relax
from relaxvm.relax.transform import UpdateParamType


def to_symbolic(var: relax.Var):
    if var.name == "x":
        return relax.TensorType((relax.Var("n", "int64"), 4), "float32")
    return None


def test_types_are_inferred_again():
    def wider(var: relax.Var):
        return relax.TensorType([64, 16], "float32") if var.name == "weight" else None

    check_pass(
        UpdateParamType(wider),
        before="""
        @R.function
        def main(x: R.Tensor((16,), "float32"), weight: R.Tensor((32, 16), "float32")):
            with R.dataflow():
                y = R.matmul(weight, x)
                z = R.exp(y)
                R.output(z)
            return z
        """,
        after="""
        @R.function
        def main(x: R.Tensor((16,), "float32"), weight: R.Tensor((64, 16), "float32")):
            with R.dataflow():
                y = R.matmul(weight, x)
                z = R.exp(y)
                R.output(z)
            return z
        """,
    )


def test_tuples_and_branches_follow():
    given = """
    @R.function
    def main(x: R.Tensor(({0}, 4), "float32"), c: R.Tensor((), "bool")):
        if c:
            y = R.exp(x)
            r = (y, x)
        else:
            r = (x, x)
        z = r[0]
        return z
    """
    result = UpdateParamType(to_symbolic)(module(given.format(8)))
    assert str(result["main"].ret_ty) == 'R.Tensor((n, 4), dtype="float32")'


def test_no_new_type_changes_nothing():
    mod = module(
        """
        @R.function
        def main(y: R.Tensor((2,), "float32")):
            z = R.exp(y)
            return z
        """
    )
    assert UpdateParamType(to_symbolic)(mod)["main"].same_as(mod["main"])
