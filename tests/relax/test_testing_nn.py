# SPDX-License-Identifier: Apache-2.0
"""relax.testing.nn: what modules and checkpoints emit; testing.check_numerical_grads."""

import textwrap

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax.analysis import well_formed
from relaxvm.relax.testing import nn
from relaxvm.relax.transform import Gradient
from relaxvm.script import from_source
from relaxvm.testing.utils import check_numerical_grads

T = 'R.Tensor((3, 4), "float32")'
op = relax.op


def build(body, *names: str) -> relaxvm.IRModule:
    """The module whose function gives what `body` gives of parameters with these names."""
    builder = relax.BlockBuilder()
    params = [relax.Var(name, relax.TensorType((3, 4), "float32")) for name in names]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(*params))
        builder.emit_func_output(result)
    well_formed(builder.get())
    return builder.get()


def check(mod: relaxvm.IRModule, params: str, steps: str) -> None:
    lines = "".join(f"        {step}\n" for step in steps.split("; "))
    text = (
        "from relaxvm.script import relax as R\n"
        f"@R.function\ndef main({params}):\n    with R.dataflow():\n{lines}        R.output(gv)\n    return gv\n"
    )
    relaxvm.ir.assert_structural_equal(mod["main"], from_source(textwrap.dedent(text)))


def test_a_checkpoint_marks_arguments_and_result():
    mod = build(lambda x, y: nn.checkpoint(op.add, x, x2=y), "x", "y")
    check(
        mod,
        f"x: {T}, y: {T}",
        "lv = R.grad.start_checkpoint(x); lv1 = R.grad.start_checkpoint(y); lv2 = R.add(lv, lv1);"
        " gv = R.grad.end_checkpoint(lv2)",
    )


def test_several_results_of_a_checkpoint_are_marked_each():
    def both(x, y):
        return relax.Tuple(nn.checkpoint(lambda a, b: [op.add(a, b), op.sin(a)], x, y))

    assert build(both, "x", "y")["main"].script().count("end_checkpoint") == 2


def test_an_emitted_checkpoint_has_names():
    def body(x):
        return nn.emit_checkpoint(
            lambda a, scale: nn.emit(op.multiply(a, scale)), x, relax.const(2.0)
        )

    text = build(body, "x")["main"].script()
    assert "x_scp: " in text and "_ecp: " in text
    mod = build(lambda x: nn.emit_checkpoint(lambda a: nn.emit(op.sin(a)), x), "x")
    check(
        mod,
        f"x: {T}",
        "x_scp = R.grad.start_checkpoint(x); lv = R.sin(x_scp); lv1 = lv; lv1_ecp = R.grad.end_checkpoint(lv1);"
        " gv = lv1_ecp",
    )


def test_an_emitted_checkpoint_of_several_results():
    def body(x, y):
        return relax.Tuple(nn.emit_checkpoint(lambda a, b: (nn.emit(op.add(a, b)), a), x, b=y))

    check(
        build(body, "x", "y"),
        f"x: {T}, y: {T}",
        "x_scp = R.grad.start_checkpoint(x); y_scp = R.grad.start_checkpoint(y); lv = R.add(x_scp, y_scp);"
        " lv_ecp = R.grad.end_checkpoint(lv); x_scp_ecp = R.grad.end_checkpoint(x_scp); gv = (lv_ecp, x_scp_ecp)",
    )


NAMES = ["sin", "cos", "exp", "tanh"]


@pytest.mark.parametrize(
    "segments, last, expected",
    [
        (1, False, "sin cos exp tanh"),
        (1, True, "[ sin cos exp tanh ]"),
        (2, False, "[ sin cos ] exp tanh"),
        (2, True, "[ sin cos ] [ exp tanh ]"),
        (3, False, "[ sin ] [ cos ] [ exp ] tanh"),
        ([0, 1], False, "[ sin ] cos exp tanh"),
        ([0, 1, 3], True, "[ sin ] [ cos exp ] [ tanh ]"),
    ],
)
def test_segments_are_checkpoints(segments, last, expected):
    functions = [lambda x, name=name: nn.emit(getattr(op, name)(x)) for name in NAMES]
    mod = build(lambda x: nn.emit_checkpoint_sequential(functions, segments, x, last), "x")
    marks = {"start_checkpoint": "[", "end_checkpoint": "]"}
    found = []
    for binding in mod["main"].body.blocks[0].bindings:
        if isinstance(binding.value, relax.Call):
            name = str(binding.value.op.name).rpartition(".")[2]
            found.append(marks.get(name, name))
    assert " ".join(found) == expected


@pytest.mark.parametrize("segments", [0, 5, [1, 3], [0, 2, 2], [0, 4], []])
def test_segments_that_do_not_divide_the_functions_are_errors(segments):
    with pytest.raises(ValueError, match="segments"):
        nn.emit_checkpoint_sequential([op.sin] * 4, segments, relax.Var("x"))


def test_segments_are_computed_again_for_the_gradient():
    functions = [lambda x, name=name: nn.emit(getattr(op, name)(x)) for name in NAMES]
    mod = build(
        lambda x: nn.emit(op.sum(nn.emit_checkpoint_sequential(functions, 2, x))),
        "x",
    )
    text = Gradient("main")(mod)["main_adjoint"].script()
    assert text.count("R.sin(") == 2 + 1  # forward, again, and in the gradient of cos
    assert text.count("R.tanh(") == 1


def test_modules_emit_tensor_programs():
    builder = relax.BlockBuilder()
    with builder.function("main"):
        x = nn.Placeholder((3, 4))
        model = nn.Sequential(
            nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6, bias=False), nn.LogSoftmax()
        )
        y = model(x)
        assert len(model.parameters()) == 3
        builder.emit_func_output(y, params=[x, *model.parameters()])
    mod = builder.get()
    well_formed(mod)
    names = [str(p.name) for p in mod["main"].params]
    assert names == ["data", "linear_weight", "linear_bias", "linear_weight1"]
    assert mod["main"].script().count("R.call_tir") == 5
    weights = nn.init_params(mod)
    assert [w.shape for w in weights] == [(4, 5), (5,), (5, 6)]
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    values = np.ones((3, 4), "float32")
    w0, b0, w1 = (w.numpy() for w in weights)
    out = np.maximum(values @ w0 + b0, 0) @ w1
    expected = out - np.log(np.exp(out).sum(1, keepdims=True))
    result = vm["main"](relaxvm.runtime.tensor(values), *weights).numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_parameters_are_found_in_lists_and_dictionaries():
    class Model(nn.Module):
        def __init__(self):
            self.parts = [nn.Linear(2, 3, bias=False)]
            self.others = {"scale": nn.Parameter((3,), name="scale")}
            self.size = 3

    assert [str(p.name) for p in Model().parameters()] == ["linear_weight", "scale"]
    with pytest.raises(NotImplementedError):
        Model()(1)


def test_emitting_outside_of_a_function_is_an_error():
    with pytest.raises(RuntimeError, match="no function is being built"):
        nn.emit(relax.const(1))


def test_unknown_sizes_have_no_random_values():
    n = relaxvm.tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    w = relax.Var("w", relax.TensorType((n, 4), "float32"))
    with builder.function("main", [w]):
        builder.emit_func_output(w)
    with pytest.raises(ValueError, match="its shape is not known"):
        nn.init_params(builder.get())


# ---- check_numerical_grads

A, B = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 2.0])


def dot(a, b):
    return (a * b).sum()


def test_right_gradients_pass():
    check_numerical_grads(dot, [A, B], [B, A], function_value=dot(A, B))
    check_numerical_grads(dot, {"a": A, "b": B}, {"b": A, "a": B})


@pytest.mark.parametrize(
    "grads, message",
    [
        ([B, 2 * A], "gradient by 1 is .* away"),
        ([B[:2], A], "gradient by 0 has shape"),
        ([B], "1 gradients are given for 2 inputs"),
    ],
)
def test_wrong_gradients_do_not(grads, message):
    with pytest.raises(AssertionError, match=message):
        check_numerical_grads(dot, [A, B], grads)


def test_another_value_of_the_function_does_not():
    with pytest.raises(AssertionError):
        check_numerical_grads(dot, [A, B], [B, A], function_value=100.0)
