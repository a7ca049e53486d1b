# SPDX-License-Identifier: Apache-2.0
"""Rules of Gradient for activations, reductions, moved elements, normalisations and windows, by finite differences."""

import numpy as np
import pytest
from gradient_check import F, build, check_numerically, program, random_inputs, run, t
from pass_check import module

from relaxvm.relax.transform import Gradient


def both(name: str, *arguments: str) -> dict[str, tuple[str, str]]:
    """One case of a unary function for each text of further arguments."""
    return {
        f"{name}_{i}": (f"x: {F}", f"a = R.{name}(x{', ' if a else ''}{a})")
        for i, a in enumerate(arguments)
    }


AXES = ("", "axis=[1]", "axis=[0, -1]", "axis=[0], keepdims=True", "keepdims=True")
IMAGE, IMAGE_LAST = t(2, 4, 5, 3), t(2, 5, 3, 4)

RULES = {
    **{
        name: (f"x: {F}", f"a = R.{name}(x)")
        for name in "sinh cosh asinh atan nn.selu nn.softplus nn.gelu_tanh nn.batch_flatten".split()
    },
    **{
        name: (f"x: {F}", f"b = R.multiply(x, R.const(0.4, 'float64')); a = R.{name}(b)")
        for name in "asin acos atanh".split()
    },
    "acosh": (f"x: {F}", "b = R.add(x, R.const(1.0, 'float64')); a = R.acosh(b)"),
    **{
        f"{name}{suffix}": (f"x: {F}, y: {y}", f"a = R.{name}(x, y)")
        for name in ("atan2", "log_add_exp")
        for suffix, y in (("", F), ("_broadcasts", t(4)))
    },
    "ewise_fma": (f"x: {F}, y: {F}, z: {F}", "a = R.ewise_fma(x, y, z)"),
    "clip": (f"x: {F}", "a = R.clip(x, -0.7, 0.9)"),
    "leakyrelu": (f"x: {F}", "a = R.nn.leakyrelu(x, alpha=0.3)"),
    "prelu": (f"x: {t(2, 3, 4)}, y: {t(3)}", "a = R.nn.prelu(x, y, axis=1)"),
    "prelu_of_one_axis": (f"x: {t(4)}, y: {t(4)}", "a = R.nn.prelu(x, y, axis=0)"),
    "softplus": (f"x: {F}", "a = R.nn.softplus(x, beta=2.0, threshold=1.5)"),
    **{
        f"{name}_of_no_slope": (f"x: {F}", f"b = R.{name}(x); a = R.multiply(b, x)")
        for name in "floor ceil round trunc sign".split()
    },
    "floor_divide": (f"x: {F}, y: {F}", "b = R.floor_divide(x, y); a = R.multiply(b, x)"),
    **both("max", *AXES),
    **both("min", *AXES),
    **both("prod", *AXES),
    **both("std", *AXES),
    **both(
        "strided_slice",
        "axes=[1], begin=[1], end=[4]",
        "axes=[0, 1], begin=[1, 0], end=[3, 4], strides=[1, 2]",
        "axes=[1], begin=[1], end=[4], strides=[3]",
        "axes=[1], begin=[-3], end=[-1]",
        "axes=[-1], begin=[-1], end=[-5], strides=[-2]",
        "axes=[0], begin=[0], end=[100]",
        "axes=[1], begin=[3], end=[0], strides=[-1]",
    ),
    **both("flip", "axis=0", "axis=-1"),
    **both("tile", "(2, 3)", "(2, 1, 3)", "(2,)"),
    **both("repeat", "2, axis=0", "3, axis=-1", "2"),
    **both(
        "nn.pad",
        "pad_width=(1, 2, 0, 3), pad_value=0.5",
        "pad_width=(-1, 0, 1, -1)",
    ),
    "stack": (f"x: {F}, y: {F}, z: {F}", "a = R.stack((x, y, z), axis=1)"),
    "stack_at_the_end": (f"x: {F}, y: {F}", "a = R.stack((x, y), axis=-1)"),
    "gather_elements": (
        f"x: {F}",
        "a = R.gather_elements(x, R.const([[0, 0, 3], [1, 2, 1], [3, 3, 3]], 'int64'), axis=1)",
    ),
    "collapse_sum_to": (f"x: {t(2, 3, 4)}", "a = R.collapse_sum_to(x, (3, 1))"),
    "collapse_sum_like": (
        f"x: {t(2, 3, 4)}, y: {t(3, 1)}",
        "b = R.collapse_sum_like(x, y); a = R.multiply(b, y)",
    ),
    "outer": (f"x: {t(3)}, y: {t(4)}", "a = R.outer(x, y)"),
    **{
        f"layer_norm{suffix}": (
            f"x: {x}, y: {y}, z: {y}",
            f"b = R.nn.layer_norm(x, y, z, {arguments}); c = R.exp(b); a = R.multiply(c, x)",
        )
        for suffix, x, y, arguments in (
            ("", t(3, 5), t(5), "axes=[-1]"),
            ("_of_axes", t(2, 3, 4), t(3, 4), "axes=[1, 2]"),
            ("_of_an_inner_axis", t(2, 3, 4), t(3), "axes=[1]"),
            ("_of_all", t(3, 4), t(3, 4), "axes=[0, 1]"),
            ("_without_weights", t(3, 5), t(5), "axes=[-1], center=False, scale=False"),
        )
    },
    **{
        f"rms_norm{suffix}": (
            f"x: {x}, y: {y}",
            f"b = R.nn.rms_norm(x, y, {arguments}); c = R.exp(b); a = R.multiply(c, x)",
        )
        for suffix, x, y, arguments in (
            ("", t(3, 5), t(5), "axes=[-1]"),
            ("_of_axes", t(2, 3, 4), t(3, 4), "axes=[1, 2]"),
        )
    },
    "instance_norm": (
        f"x: {t(2, 3, 4, 2)}, y: {t(3)}, z: {t(3)}",
        "b = R.nn.instance_norm(x, y, z, channel_axis=1, axes=[2, 3]); c = R.exp(b); a = R.multiply(c, x)",
    ),
    "group_norm": (
        f"x: {t(2, 4, 3)}, y: {t(4)}, z: {t(4)}",
        "b = R.nn.group_norm(x, y, z, num_groups=2, channel_axis=1, axes=[2]); c = R.exp(b); a = R.multiply(c, x)",
    ),
    "group_norm_with_channels_last": (
        f"x: {t(2, 3, 4)}, y: {t(4)}, z: {t(4)}",
        "b = R.nn.group_norm(x, y, z, num_groups=2, channel_axis=-1, axes=[1], center=False);"
        " c = R.exp(b); a = R.multiply(c, x)",
    ),
    "conv2d_with_channels_last": (
        f"x: {t(2, 7, 6, 2)}, y: {t(3, 3, 2, 2)}",
        "a = R.nn.conv2d(x, y, strides=(2, 1), padding=1, data_layout='NHWC', kernel_layout='OHWI')",
    ),
    "conv2d_into_another_layout": (
        f"x: {t(1, 5, 5, 4)}, y: {t(3, 2, 2, 4)}",
        "a = R.nn.conv2d(x, y, groups=2, data_layout='NHWC', kernel_layout='HWIO', out_layout='NCHW')",
    ),
    "conv1d": (
        f"x: {t(2, 4, 8)}, y: {t(6, 2, 3)}",
        "a = R.nn.conv1d(x, y, strides=2, padding=1, groups=2)",
    ),
    "conv1d_with_channels_last": (
        f"x: {t(1, 8, 3)}, y: {t(3, 3, 2)}",
        "a = R.nn.conv1d(x, y, dilation=2, data_layout='NWC', kernel_layout='WIO')",
    ),
    "conv3d": (
        f"x: {t(1, 2, 4, 5, 4)}, y: {t(2, 2, 2, 3, 2)}",
        "a = R.nn.conv3d(x, y, strides=(1, 2, 2), padding=(1, 0, 0, 0, 1, 1))",
    ),
    "conv2d_transpose": (
        f"x: {t(2, 3, 4, 3)}, y: {t(3, 2, 3, 2)}",
        "a = R.nn.conv2d_transpose(x, y, strides=(2, 1), padding=(1, 0, 1, 0), output_padding=(1, 0))",
    ),
    "conv2d_transpose_with_groups": (
        f"x: {t(1, 4, 3, 3)}, y: {t(4, 2, 2, 2)}",
        "a = R.nn.conv2d_transpose(x, y, strides=2, groups=2)",
    ),
    "conv1d_transpose": (
        f"x: {t(2, 3, 5)}, y: {t(3, 2, 3)}",
        "a = R.nn.conv1d_transpose(x, y, strides=2, padding=1)",
    ),
    **{
        f"{name}_pool1d_{i}": (f"x: {x}", f"a = R.nn.{name}_pool1d(x, {arguments})")
        for name in ("max", "avg")
        for i, (x, arguments) in enumerate(
            [
                (t(2, 3, 9), "3, strides=2, padding=(1, 1)"),
                (t(2, 8, 3), "2, strides=2, layout='NWC'"),
            ]
        )
    },
    "avg_pool1d_that_counts_padding": (
        f"x: {t(1, 2, 7)}",
        "a = R.nn.avg_pool1d(x, 3, strides=2, padding=(1, 1), ceil_mode=True, count_include_pad=True)",
    ),
    "adaptive_avg_pool1d": (f"x: {t(2, 3, 6)}", "a = R.nn.adaptive_avg_pool1d(x, 3)"),
    "adaptive_avg_pool2d": (f"x: {t(2, 3, 4, 6)}", "a = R.nn.adaptive_avg_pool2d(x, (2, 6))"),
    "adaptive_avg_pool2d_to_one": (
        f"x: {t(2, 5, 3, 4)}",
        "a = R.nn.adaptive_avg_pool2d(x, (1, 1), layout='NHWC')",
    ),
    "adaptive_avg_pool3d": (
        f"x: {t(1, 2, 4, 2, 2)}",
        "a = R.nn.adaptive_avg_pool3d(x, (2, 1, 2))",
    ),
}
BELOW_ZERO = "clip leakyrelu prelu selu softplus gelu_tanh asin acos atanh asinh atan max min pad floor ceil".split()


@pytest.mark.parametrize("name", RULES)
def test_rule_agrees_with_finite_differences(name):
    params, steps = RULES[name]
    mod = module(program(params, steps + "; sq = R.multiply(a, a); gv = R.sum(sq)"))
    low = -2.0 if name != "acosh" and any(word in name for word in BELOW_ZERO) else 0.5
    check_numerically(mod, random_inputs(mod, low))


def test_a_product_with_zeros_has_a_gradient():
    mod = module(program(f"x: {t(2, 3)}", "a = R.prod(x, axis=[1]); gv = R.sum(a)"))
    check_numerically(mod, [np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0]])])


def test_equal_extremes_share_the_gradient():
    mod = module(program(f"x: {t(4)}", "gv = R.max(x)"))

    outputs = run(build(Gradient("main")(mod)), "main_adjoint", [np.array([1.0, 3.0, 3.0, 2.0])])
    np.testing.assert_array_equal(outputs[1], [0, 0.5, 0.5, 0])


SYMBOLIC = {
    "max": "b = R.max(x, axis=[0]); a = R.multiply(b, b)",
    "std": "a = R.std(x)",
    "prod": "a = R.prod(x, axis=[0])",
    "strided_slice": "b = R.strided_slice(x, axes=[0, 1], begin=[1, 1], end=[3, 4]); a = R.multiply(b, b)",
    "stack": "b = R.stack((x, x), axis=0); a = R.multiply(b, b)",
    "tile": "b = R.tile(x, (2, 1)); a = R.multiply(b, b)",
    "repeat": "b = R.repeat(x, 2, axis=0); a = R.multiply(b, b)",
    "layer_norm": "b = R.nn.layer_norm(x, w, w, axes=[-1]); c = R.exp(b); a = R.multiply(c, x)",
    "rms_norm": "b = R.nn.rms_norm(x, w, axes=[-1]); c = R.exp(b); a = R.multiply(c, x)",
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_rules_take_symbolic_sizes(name):
    params = 'x: R.Tensor(("n", 4), "float64"), w: R.Tensor((4,), "float64")'
    mod = module(program(params, SYMBOLIC[name] + "; gv = R.sum(a)"))
    rng = np.random.default_rng(3)
    check_numerically(mod, [rng.uniform(0.5, 2.0, s) for s in ((4, 4), (4,))])


ERRORS = {
    "pad_mode 'constant'": (F, "a = R.nn.pad(x, pad_width=(1, 1, 0, 0), pad_mode='reflect')"),
    "axes in growing order": (
        t(4, 4),
        "a = R.nn.rms_norm(x, x, axes=[1, 0])",
    ),
    "sizes that output_size divides": (
        t(1, 2, 5, 5),
        "a = R.nn.adaptive_avg_pool2d(x, (2, 2))",
    ),
    "needs stride 1": (
        'R.Tensor(("n", 4), "float64")',
        "a = R.strided_slice(x, axes=[0], begin=[0], end=[2], strides=[2])",
    ),
    "layouts of whole dimensions": (
        t(1, 2, 5, 5, 4),
        "w = R.ones((1, 2, 3, 3, 4, 4), 'float64');"
        " a = R.nn.conv2d(x, w, data_layout='NCHW4c', kernel_layout='OIHW4i4o')",
    ),
}


@pytest.mark.parametrize("message", ERRORS)
def test_calls_that_have_no_gradient(message):
    x, steps = ERRORS[message]
    mod = module(program(f"x: {x}", steps + "; gv = R.sum(a)"))
    with pytest.raises(ValueError, match=message):
        Gradient("main")(mod)
