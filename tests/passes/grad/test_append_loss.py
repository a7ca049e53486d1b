# SPDX-License-Identifier: Apache-2.0
"""AppendLoss: what becomes of the parameters and results of both functions, and requests that are refused."""

import pytest
from pass_check import check_pass, module

from relaxvm.relax.transform import AppendLoss

T = 'R.Tensor((2, 3), "float32")'


def loss_function(params: str, steps: str, result: str = "gv"):
    text = f"@R.function\ndef loss({params}):\n    with R.dataflow():\n"
    text += "".join(f"        {s}\n" for s in steps.split("; "))
    return module(f"{text}        R.output(gv)\n    return {result}")["loss"]


DISTANCE = loss_function(f"a: {T}, b: {T}", "lv = R.subtract(a, b); gv = R.sum(lv)")

BACKBONE = f"""
@R.function
def main(x: {T}, w: {T}):
    R.func_attr({{"num_input": 1}})
    with R.dataflow():
        lv = R.add(x, w)
        out = R.multiply(lv, lv)
        state = R.exp(lv)
        R.output(out, state)
    return (out, state)
"""


def test_the_loss_takes_the_first_result_and_the_others_follow_it():
    check_pass(
        AppendLoss("main", DISTANCE),
        before=BACKBONE,
        after=BACKBONE
        + f"""
@R.function
def main_loss(x: {T}, w: {T}, b: {T}):
    R.func_attr({{"num_input": 1}})
    with R.dataflow():
        lv = R.add(x, w)
        out = R.multiply(lv, lv)
        state = R.exp(lv)
        lv1 = R.subtract(out, b)
        gv = R.sum(lv1)
        R.output(state, gv)
    return (gv, state)
""",
    )


def test_a_loss_of_all_results_gives_its_value_alone():
    check_pass(
        AppendLoss("main", DISTANCE, num_backbone_outputs=2, new_func_name="distance"),
        before=BACKBONE,
        after=BACKBONE
        + f"""
@R.function
def distance(x: {T}, w: {T}):
    R.func_attr({{"num_input": 1}})
    with R.dataflow():
        lv = R.add(x, w)
        out = R.multiply(lv, lv)
        state = R.exp(lv)
        lv1 = R.subtract(out, state)
        gv = R.sum(lv1)
        R.output(gv)
    return gv
""",
    )


def test_a_result_that_the_function_still_gives_stays_visible():
    same_twice = BACKBONE.replace("return (out, state)", "return (out, out)")
    result = AppendLoss("main", DISTANCE)(module(same_twice))["main_loss"]
    assert "return (gv, out)" in result.script()


def test_sizes_of_the_loss_are_those_of_the_result():
    n = 'R.Tensor(("n", 3), "float32")'
    k = 'R.Tensor(("k", 3), "float32")'
    mod = module(f"""
    @R.function
    def main(x: {n}):
        with R.dataflow():
            out = R.concat((x, x), axis=0)
            R.output(out)
        return out
    """)
    loss = loss_function(f"a: {k}, b: {k}", "lv = R.subtract(a, b); gv = R.sum(lv)")
    appended = AppendLoss("main", loss)(mod)["main_loss"]
    size, target = appended.params[0].ty.shape.values[0], appended.params[1].ty.shape.values[0]
    assert str(target) in (f"{size} * 2", f"2 * {size}")


ERRORS = {
    "num_backbone_outputs is 3, but the backbone gives 2 values": (BACKBONE, DISTANCE, 3),
    "num_backbone_outputs is 2, but the loss has 1 parameters": (
        BACKBONE,
        loss_function(f"a: {T}", "gv = R.sum(a)"),
        2,
    ),
    "num_backbone_outputs is -1": (BACKBONE, DISTANCE, -1),
    "result 0 of the backbone is": (BACKBONE.replace("(2, 3)", "(2, 4)"), DISTANCE, 1),
    "the loss must give one scalar tensor": (
        BACKBONE,
        loss_function(f"a: {T}", "gv = R.exp(a)"),
        1,
    ),
    "body of the backbone must be one dataflow block": (
        f"@R.function\ndef main(x: {T}):\n    y = R.exp(x)\n    return y\n",
        DISTANCE,
        1,
    ),
    "body of the loss must be one dataflow block": (
        BACKBONE,
        module(f"@R.function\ndef loss(a: {T}):\n    gv = R.sum(a)\n    return gv\n")["loss"],
        1,
    ),
    "a tuple of variables": (
        BACKBONE.replace("return (out, state)", "return (out, (state,))"),
        DISTANCE,
        1,
    ),
    "has a function main_loss already": (
        BACKBONE + BACKBONE.replace("main", "main_loss"),
        DISTANCE,
        1,
    ),
}


@pytest.mark.parametrize("message", ERRORS)
def test_wrong_requests_are_errors(message):
    text, loss, count = ERRORS[message]
    with pytest.raises(ValueError, match=message):
        AppendLoss("main", loss, count)(module(text))


def test_an_unknown_function_is_an_error():
    with pytest.raises(KeyError):
        AppendLoss("other", DISTANCE)(module(BACKBONE))
