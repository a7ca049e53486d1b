# SPDX-License-Identifier: Apache-2.0
"""LiftTransformParams: what depends on weights alone runs once."""

import pytest
from pass_check import check_pass, module

import relaxvm
from relaxvm.relax.transform import LiftTransformParams

BEFORE = """
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"), w: R.Tensor((4, 3), "float32"), b: R.Tensor((4,), "float32")
    ) -> R.Tensor((2, 4), "float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            t: R.Tensor((3, 4), "float32") = R.permute_dims(w)
            y: R.Tensor((2, 4), "float32") = R.matmul(x, t)
            z: R.Tensor((2, 4), "float32") = R.add(y, b)
            R.output(z)
        return z
    """


def test_weight_that_is_read_as_it_is_comes_first():
    check_pass(
        LiftTransformParams(),
        before=BEFORE,
        after="""
        @R.function
        def main(
            x: R.Tensor((2, 3), "float32"), b: R.Tensor((4,), "float32"), t: R.Tensor((3, 4), "float32")
        ) -> R.Tensor((2, 4), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                y: R.Tensor((2, 4), "float32") = R.matmul(x, t)
                z: R.Tensor((2, 4), "float32") = R.add(y, b)
                R.output(z)
            return z

        @R.function
        def main_transform_params(
            params: R.Tuple(R.Tensor((4, 3), "float32"), R.Tensor((4,), "float32"))
        ) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((3, 4), "float32")):
            R.func_attr({"num_input": 0})
            with R.dataflow():
                w: R.Tensor((4, 3), "float32") = params[0]
                t: R.Tensor((3, 4), "float32") = R.permute_dims(w)
                b: R.Tensor((4,), "float32") = params[1]
                out: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((3, 4), "float32")) = (b, t)
                R.output(out)
            return out
        """,
    )


def test_second_run_changes_nothing():
    once = LiftTransformParams()(module(BEFORE))
    assert LiftTransformParams()(once).script() == once.script()


def test_consumed_weights_leave_the_tuple():
    with relaxvm.transform.PassContext(config={"relax.lift_transform_params.consume_params": True}):
        made = LiftTransformParams()(module(BEFORE))
    assert made["main_transform_params"].script().count("vm.builtin.tuple_reset_item") == 2


def test_stop_lift_params_is_a_border():
    made = LiftTransformParams()(
        module(
            """
            @R.function
            def main(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                R.func_attr({"num_input": 1})
                with R.dataflow():
                    a: R.Tensor((2,), "float32") = R.exp(w)
                    b: R.Tensor((2,), "float32") = R.builtin.stop_lift_params(a)
                    c: R.Tensor((2,), "float32") = R.tanh(b)
                    d: R.Tensor((2,), "float32") = R.add(x, c)
                    R.output(d)
                return d
            """
        )
    )
    assert "R.exp" in made["main_transform_params"].script()
    assert "R.tanh" in made["main"].script()
    assert "stop_lift_params" not in made.script()


def test_shared_transformation_holds_what_all_compute():
    made = LiftTransformParams(shared_transform=True)(
        module(
            """
            @R.function
            def f(x: R.Tensor((2, 2), "float32"), w: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
                R.func_attr({"num_input": 1})
                a: R.Tensor((2, 2), "float32") = R.permute_dims(w)
                b: R.Tensor((2, 2), "float32") = R.matmul(x, a)
                return b

            @R.function
            def g(x: R.Tensor((2, 2), "float32"), w: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
                R.func_attr({"num_input": 1})
                a: R.Tensor((2, 2), "float32") = R.permute_dims(w)
                b: R.Tensor((2, 2), "float32") = R.add(x, a)
                return b
            """
        )
    )
    assert [v.name_hint for v in made.get_global_vars()] == ["f", "g", "transform_params"]
    assert "permute_dims" not in made["f"].script() + made["g"].script()


def test_shared_weights_must_agree():
    with pytest.raises(RuntimeError, match="weights differ"):
        LiftTransformParams(shared_transform=True)(
            module(
                """
                @R.function
                def f(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                    R.func_attr({"num_input": 1})
                    b: R.Tensor((2,), "float32") = R.add(x, w)
                    return b

                @R.function
                def g(x: R.Tensor((2,), "float32"), w: R.Tensor((3,), "float32")) -> R.Tensor((2,), "float32"):
                    R.func_attr({"num_input": 1})
                    return x
                """
            )
        )
