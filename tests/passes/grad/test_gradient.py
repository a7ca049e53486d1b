# SPDX-License-Identifier: Apache-2.0
"""Gradient: programs by structure, and the rule of every operator against finite differences."""

import numpy as np
import pytest
from gradient_check import F, build, check_numerically, program, random_inputs, run, t
from pass_check import check_pass, module

import relaxvm
from relaxvm import relax
from relaxvm.relax.transform import DecomposeOps, Gradient, LegalizeOps

# name: (parameters, steps that define `a`); the target is the sum of the squares of `a`.
RULES = {
    **{
        name: (f"x: {F}", f"a = R.{name}(x)")
        for name in (
            "abs cos sin tan exp log negative sigmoid sqrt rsqrt square tanh erf nn.relu nn.silu nn.gelu nn.softmax"
            " nn.log_softmax tril triu sum mean variance permute_dims flatten"
        ).split()
    },
    **{
        f"{name}{suffix}": (f"x: {x}, y: {y}", f"a = R.{name}(x, y)")
        for name in "add subtract multiply divide power maximum minimum".split()
        for suffix, x, y in (
            ("", F, F),
            ("_broadcasts_right", F, t(1, 4)),
            ("_broadcasts_left", t(4), F),
        )
    },
    **{
        f"{name}{suffix}": (f"x: {F}", f"a = R.{name}(x, {arguments})")
        for name in ("sum", "mean", "variance")
        for suffix, arguments in (
            ("_of_an_axis", "axis=[1]"),
            ("_of_axes", "axis=[0, -1]"),
            ("_that_keeps_axes", "axis=[0], keepdims=True"),
            ("_of_no_axis", "axis=[]"),
        )
    },
    **{
        f"mask_{name}": (f"x: {F}, y: {F}", f"c = R.{name}(x, y); a = R.where(c, x, y)")
        for name in "equal not_equal less less_equal greater greater_equal".split()
    },
    **{
        f"matmul_{len(x)}_{len(y)}_{i}": (f"x: {t(*x)}, y: {t(*y)}", "a = R.matmul(x, y)")
        for i, (x, y) in enumerate(
            [
                ((3, 4), (4, 5)),
                ((4,), (4, 5)),
                ((3, 4), (4,)),
                ((4,), (4,)),
                ((4,), (2, 4, 5)),
                ((2, 3, 4), (4,)),
                ((2, 3, 4, 5), (3, 5, 4)),
                ((2, 1, 4, 5), (1, 3, 5, 4)),
            ]
        )
    },
    "where_broadcasts": (
        f"x: {F}, y: {t(4)}, z: {t(3, 1)}",
        "z1 = R.grad.no_grad(z); c = R.less(z1, R.const(1.2, 'float64')); a = R.where(c, x, y)",
    ),
    "full": (f"x: {t()}", "a = R.full((3, 4), x)"),
    "full_like": (f"x: {t()}, y: {F}", "b = R.full_like(y, x); a = R.multiply(b, y)"),
    "ones_and_zeros": (
        f"x: {F}",
        "b = R.ones((3, 4), 'float64'); c = R.ones_like(x); d = R.zeros((3, 4), 'float64'); e = R.zeros_like(x);"
        " f = R.add(b, c); g = R.add(d, e); h = R.add(f, g); a = R.multiply(h, x)",
    ),
    "triu_above_the_diagonal": (f"x: {F}", "a = R.triu(x, 1)"),
    "permute_dims_by_axes": (f"x: {t(2, 3, 4)}", "a = R.permute_dims(x, axes=[2, 0, -2])"),
    "concat": (f"x: {F}, y: {F}, z: {t(5, 4)}", "a = R.concat((x, y, z), axis=0)"),
    "concat_of_vectors": (f"x: {t(3)}, y: {t(4)}", "a = R.concat((x, y), axis=None)"),
    "split": (f"x: {F}", "s = R.split(x, 2, axis=1); a = s[1]"),
    "split_at_indices": (
        f"x: {F}",
        "s = R.split(x, [1], axis=1); b = s[0]; c = s[1]; a = R.multiply(b, c)",
    ),
    "reshape": (f"x: {F}", "a = R.reshape(x, (2, 6))"),
    "squeeze": (f"x: {t(3, 1, 4)}", "a = R.squeeze(x)"),
    "expand_dims": (f"x: {F}", "a = R.expand_dims(x, [0, 3])"),
    "broadcast_to": (f"x: {t(3, 1)}", "a = R.broadcast_to(x, (2, 3, 4))"),
    "cumsum": (f"x: {F}", "a = R.cumsum(x, 1)"),
    "cumsum_exclusive": (f"x: {F}", "a = R.cumsum(x, 0, exclusive=True)"),
    "cumsum_of_all": (f"x: {F}", "a = R.cumsum(x)"),
    "astype": (f"x: {F}", "b = R.astype(x, 'float64'); a = R.sin(b)"),
    "softmax_of_an_axis": (f"x: {F}", "a = R.nn.softmax(x, axis=0)"),
    "log_softmax_of_an_axis": (f"x: {F}", "a = R.nn.log_softmax(x, axis=0)"),
    "cross_entropy_of_a_batch": (
        f"x: {F}, y: {F}",
        "a = R.nn.cross_entropy_with_logits(x, y)",
    ),
    "cross_entropy": (f"x: {t(4)}, y: {t(4)}", "a = R.nn.cross_entropy_with_logits(x, y)"),
    "conv2d": (f"x: {t(2, 3, 6, 7)}, y: {t(4, 3, 3, 2)}", "a = R.nn.conv2d(x, y)"),
    "conv2d_with_strides": (
        f"x: {t(2, 2, 8, 8)}, y: {t(3, 2, 3, 3)}",
        "a = R.nn.conv2d(x, y, strides=(2, 3), padding=(1, 1, 1, 1))",
    ),
    "conv2d_with_groups": (
        f"x: {t(2, 4, 9, 8)}, y: {t(6, 2, 3, 2)}",
        "a = R.nn.conv2d(x, y, strides=(2, 1), padding=(1, 2, 1, 0), dilation=(1, 2), groups=2)",
    ),
    "max_pool2d": (
        f"x: {t(2, 2, 6, 6)}",
        "a = R.nn.max_pool2d(x, (3, 2), (2, 2), (1, 1, 1, 0))",
    ),
    "avg_pool2d": (
        f"x: {t(2, 2, 7, 7)}",
        "a = R.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), True, True)",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rule_agrees_with_finite_differences(name):
    params, steps = RULES[name]
    mod = module(program(params, steps + "; sq = R.multiply(a, a); gv = R.sum(sq)"))
    low = -2.0 if name in ("abs", "nn.relu", "nn.gelu", "erf", "tanh", "nn.silu") else 0.5
    fixed = 2 if name == "where_broadcasts" else -1
    check_numerically(mod, random_inputs(mod, low), fixed)


@pytest.mark.parametrize("axis, indices", [("0", [2, 0, 2]), ("1", [3, 3]), ("-1", [1])])
def test_take_adds_up_what_was_taken_more_than_once(axis, indices):
    taken = f"R.const({indices}, 'int64')"
    steps = f"a = R.take(x, {taken}, axis={axis}); sq = R.multiply(a, a); gv = R.sum(sq)"
    mod = module(program(f"x: {F}", steps))
    check_numerically(mod, random_inputs(mod))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_loss_by_predictions(reduction):
    classes, weights = "R.const([3, 0, 1], 'int64')", "R.const([1.0, 2.0, 0.5, 3.0], 'float64')"
    loss = f"a = R.nn.nll_loss(x, {classes}, {weights}, reduction='{reduction}')"
    mod = module(program(f"x: {F}", loss + "; sq = R.multiply(a, a); gv = R.sum(sq)"))
    check_numerically(mod, random_inputs(mod))


SYMBOLIC = {
    "mean": "b = R.mean(x, axis=[0]); a = R.multiply(b, b)",
    "variance": "b = R.variance(x); a = R.multiply(b, b)",
    "concat": "b = R.concat((x, y, x), axis=0); a = R.multiply(b, b)",
    "add": "b = R.add(x, w); a = R.multiply(b, b)",
    "matmul": "u = R.permute_dims(x); b = R.matmul(u, x); a = R.multiply(b, b)",
    "nn.cross_entropy_with_logits": "a = R.nn.cross_entropy_with_logits(x, x)",
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_rules_take_symbolic_sizes(name):
    params = 'x: R.Tensor(("n", 4), "float64"), y: R.Tensor((2, 4), "float64"), w: R.Tensor((4,), "float64")'
    mod = module(program(params, SYMBOLIC[name] + "; gv = R.sum(a)"))
    rng = np.random.default_rng(3)
    check_numerically(mod, [rng.uniform(0.5, 2.0, s) for s in ((3, 4), (2, 4), (4,))])


FORWARD = """
@R.function
def main(x: R.Tensor((3, 3), "float32"), y: R.Tensor((3, 3), "float32"), z: R.Tensor((3, 3), "float32")):
    with R.dataflow():
        a = R.multiply(x, y)
        b = R.add(a, x)
        gv = R.sum(b)
        R.output(gv)
    return gv
"""


def test_contributions_add_up_and_unused_parameters_get_zeros():
    check_pass(
        Gradient("main"),
        before=FORWARD,
        after=FORWARD
        + """
@R.function
def main_adjoint(x: R.Tensor((3, 3), "float32"), y: R.Tensor((3, 3), "float32"), z: R.Tensor((3, 3), "float32")):
    with R.dataflow():
        a = R.multiply(x, y)
        b = R.add(a, x)
        gv = R.sum(b)
        gv_adjoint = R.ones(R.shape([]), dtype="float32")
        b_adjoint = R.broadcast_to(gv_adjoint, R.shape([3, 3]))
        a_adjoint = b_adjoint
        x_adjoint = b_adjoint
        lv = R.multiply(a_adjoint, y)
        x_adjoint1 = R.add(x_adjoint, lv)
        y_adjoint = R.multiply(a_adjoint, x)
        x_out = x_adjoint1
        y_out = y_adjoint
        z_adjoint = R.zeros(R.shape([3, 3]), dtype="float32")
        z_out = z_adjoint
        R.output(gv, x_out, y_out, z_out)
    return (gv, (x_out, y_out, z_out))
""",
    )


def test_only_wanted_gradients_are_computed():
    mod = module(FORWARD)
    both = Gradient("main", require_grads=mod["main"].params[1])(mod)["main_adjoint"]
    assert len(both.ret_ty.fields[1].fields) == 1
    assert "R.zeros" not in both.script()


def test_target_index_picks_a_result():
    text = """
    @R.function
    def main(x: R.Tensor((3,), "float64")):
        with R.dataflow():
            a = R.sum(x)
            b = R.sin(a)
            R.output(a, b)
        return (a, b)
    """
    mod = module(text)
    x = np.array([0.1, 0.2, 0.3])
    outputs = run(build(Gradient("main", target_index=1)(mod)), "main_adjoint", [x])
    np.testing.assert_allclose(outputs[2], np.full(3, np.cos(x.sum())))


TUPLES = f"""
@R.function
def main(x: R.Tuple({F}, R.Tuple({F}, {F}))):
    with R.dataflow():
        a = x[1]
        b = a[0]
        c = x[0]
        d = R.multiply(b, c)
        e = (d, a)
        f = e[1]
        g = f[1]
        h = e[0]
        i = R.multiply(g, h)
        gv = R.sum(i)
        R.output(gv)
    return gv
"""


def test_adjoints_of_nested_tuples():
    vm = build(Gradient("main")(module(TUPLES)))
    rng = np.random.default_rng(5)
    p, q, r = (rng.uniform(0.5, 2, (3, 4)) for _ in range(3))
    tensor = relaxvm.runtime.tensor
    grads = vm["main_adjoint"]((tensor(p), (tensor(q), tensor(r))))[1][0]
    np.testing.assert_allclose(grads[0].numpy(), q * r)
    np.testing.assert_allclose(grads[1][0].numpy(), p * r)
    np.testing.assert_allclose(grads[1][1].numpy(), p * q)


def test_a_tuple_that_several_contributions_read_is_computed_once():
    text = f"""
    @R.function
    def main(x: {F}):
        with R.dataflow():
            a = (x, x)
            b = R.concat(a, axis=0)
            c = a[0]
            d = R.concat((b, c), axis=0)
            gv = R.sum(d)
            R.output(gv)
        return gv
    """
    adjoint = Gradient("main")(module(text))["main_adjoint"]
    assert adjoint.script().count("R.split") == 2
    x = np.ones((3, 4))
    outputs = run(build(Gradient("main")(module(text))), "main_adjoint", [x])
    np.testing.assert_array_equal(outputs[1], 3 * x)


CHECKPOINT = f"""
@R.function
def main(x: {F}):
    with R.dataflow():
        s = R.grad.start_checkpoint(x)
        b = R.sin(s)
        c = R.multiply(b, b)
        d = R.grad.end_checkpoint(c)
        e = R.multiply(d, d)
        gv = R.sum(e)
        R.output(gv)
    return gv
"""


def test_what_lies_between_checkpoints_is_computed_again():
    mod = module(CHECKPOINT)
    text = Gradient("main")(mod)["main_adjoint"].script()
    assert text.count("R.sin(x)") == 2
    assert "checkpoint" not in text
    check_numerically(mod, random_inputs(mod))


def test_values_that_a_stage_starts_from_are_kept():
    stages = CHECKPOINT.replace(
        "e = R.multiply(d, d)", "p = R.grad.start_checkpoint(d)\n        e = R.cos(p)"
    )
    mod = module(stages)
    assert "R.sin(c)" in Gradient("main")(mod)["main_adjoint"].script()
    check_numerically(mod, random_inputs(mod))


MARKS = f"""
@R.function
def main(x: {F}):
    with R.dataflow():
        a = R.grad.no_grad(x)
        b = R.grad.start_checkpoint(a)
        c = R.grad.end_checkpoint(b)
        R.output(c)
    return c
"""


def test_marks_are_no_computation():
    check_pass(
        LegalizeOps(),
        before=MARKS,
        after=MARKS.replace("R.grad.no_grad(x)", "x")
        .replace("R.grad.start_checkpoint(a)", "a")
        .replace("R.grad.end_checkpoint(b)", "b"),
    )
    x = np.ones((3, 4))
    vm = relax.VirtualMachine(relaxvm.compile(module(MARKS)), relaxvm.cpu())
    np.testing.assert_array_equal(run(vm, "main", [x])[0], x)


def test_decomposition_keeps_the_marks():
    check_pass(DecomposeOps(), before=MARKS)


def test_no_grad_takes_any_value():
    builder = relax.BlockBuilder()
    mark = relax.op.grad.no_grad
    assert isinstance(builder.normalize(mark(relax.ShapeExpr([1, 2]))).ty, relax.ShapeType)
    pair = relax.Var("p", relax.TupleType([relax.TensorType((2,), "float32")]))
    assert builder.normalize(mark(pair)).ty == pair.ty


def test_a_cast_passes_the_adjoint_on():
    text = """
    @R.function
    def main(x: R.Tensor("float64", ndim=2)):
        with R.dataflow():
            a = R.match_cast(x, R.Tensor((3, 4), "float64"))
            b = R.multiply(a, a)
            gv = R.sum(b)
            R.output(gv)
        return gv
    """
    x = np.random.default_rng(1).uniform(size=(3, 4))
    outputs = run(build(Gradient("main")(module(text))), "main_adjoint", [x])
    np.testing.assert_allclose(outputs[1], 2 * x)


ERRORS = {
    "is no parameter": (
        FORWARD,
        {"require_grads": [relax.Var("q", relax.TensorType((3, 3), "float32"))]},
    ),
    "target_index is 1": (FORWARD, {"target_index": 1}),
    "must be a scalar tensor of floats": (FORWARD.replace("R.sum(b)", "R.sin(b)"), {}),
    "relax.cumprod has no gradient": (FORWARD.replace("R.add(a, x)", "R.cumprod(a, 0)"), {}),
    "must be one dataflow block": (
        FORWARD.replace("with R.dataflow():", "if True:")
        .replace("        R.output(gv)\n", "")
        .replace("if True:", "k = x")
        .replace("\n        ", "\n    "),
        {},
    ),
    "has a function main_adjoint already": (FORWARD + FORWARD.replace("main", "main_adjoint"), {}),
}


@pytest.mark.parametrize("message", ERRORS)
def test_wrong_requests_are_errors(message):
    text, options = ERRORS[message]
    with pytest.raises(ValueError, match=message):
        Gradient("main", **options)(module(text))


def test_users_of_relax_catch_its_internal_error():
    with pytest.raises(relaxvm.error.InternalError):
        Gradient("main", target_index=1)(module(FORWARD))


def test_a_parameter_named_twice_is_an_error():
    mod = module(FORWARD)
    x = mod["main"].params[0]
    with pytest.raises(ValueError, match="names x twice"):
        Gradient("main", require_grads=[x, x])(mod)


def test_unknown_function_is_an_error():
    with pytest.raises(KeyError):
        Gradient("other")(module(FORWARD))
