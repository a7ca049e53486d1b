# SPDX-License-Identifier: Apache-2.0
"""ConvertLayout: convolutions in the wanted layout, neighbours that follow, conversions only where somebody asks."""

import numpy as np
import pytest
from pass_check import module

import relaxvm
from relaxvm import relax, tirx

LAST = {"relax.nn.conv2d": ["NHWC", "HWIO"]}


def conv_chain(tail):
    """x -> conv -> tail -> conv, channels first, with symbolic batch and image size."""
    n, h, w = (tirx.Var(name, "int64") for name in "nhw")
    x = relax.Var("x", relax.TensorType([n, 3, h, w], "float32"))
    rng = np.random.default_rng(3)
    first, second = (
        relax.const(rng.random(s, dtype="float32")) for s in ((8, 3, 3, 3), (5, 8, 1, 1))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, first, padding=1))
            y = tail(y)
            out = builder.emit_output(relax.op.nn.conv2d(y, second))
        builder.emit_func_output(out)
    return builder.get()


def conv_branches():
    """x -> conv -> if flag: relu(conv(conv(.))) else conv(.) -> conv: values in the wanted layout cross every border."""
    n, h, w = (tirx.Var(name, "int64") for name in "nhw")
    x = relax.Var("x", relax.TensorType([n, 3, h, w], "float32"))
    flag = relax.Var("flag", relax.TensorType([], "bool"))
    rng = np.random.default_rng(4)
    first, inner = (
        relax.const(rng.random(s, dtype="float32")) for s in ((8, 3, 3, 3), (8, 8, 1, 1))
    )
    conv = relax.op.nn.conv2d
    builder = relax.BlockBuilder()
    with builder.function("main", [x, flag]):
        y = builder.emit(conv(x, first, padding=1))
        deep = relax.op.nn.relu(conv(conv(y, inner), inner))
        y = builder.emit(relax.If(flag, deep, conv(y, inner)))
        builder.emit_func_output(builder.emit(conv(y, inner)))
    return relax.transform.ConvertToDataflow(min_size=1)(builder.get())


def conversions(mod):
    """The lines that permute a value with the symbolic batch: no weights, no broadcast operands."""
    return [s for s in mod.script().splitlines() if "R.permute_dims(" in s and "R.Tensor((n, " in s]


TAILS = {
    "nothing": lambda y: y,
    "relu": relax.op.nn.relu,
    "bias": lambda y: relax.op.add(y, relax.const(np.ones((8, 1, 1), "float32"))),
    "scalar": lambda y: relax.op.multiply(y, relax.const(2.0, "float32")),
    "pool": lambda y: relax.op.nn.max_pool2d(y, pool_size=3, padding=1),
    "concat": lambda y: relax.op.strided_slice(relax.op.concat([y, y], axis=1), [1], [0], [8]),
    "softmax": lambda y: relax.op.nn.softmax(y, axis=1),
    "mean": lambda y: relax.op.multiply(y, relax.op.mean(y, axis=[2, 3], keepdims=True)),
}


@pytest.mark.parametrize("tail", TAILS)
def test_result_is_the_same(tail):
    mod = conv_chain(TAILS[tail])
    x = np.random.default_rng(1).random((2, 3, 6, 7), dtype="float32")
    results = []
    for passes in ([], [relax.transform.ConvertLayout(LAST)]):
        converted = mod
        for p in passes:
            converted = p(converted)
        vm = relax.VirtualMachine(relaxvm.compile(converted, relax_pipeline="zero"), relaxvm.cpu())
        results.append(vm["main"](relaxvm.runtime.tensor(x)).numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("flag", [True, False])
def test_branches_are_converted(flag):
    converted = relax.transform.ConvertLayout(LAST)(conv_branches())
    assert converted.script().count('data_layout="NHWC"') == 5
    assert relax.analysis.well_formed(converted)
    x = relaxvm.runtime.tensor(np.random.default_rng(1).random((2, 3, 6, 7), dtype="float32"))
    results = []
    for mod in (conv_branches(), converted):
        vm = relax.VirtualMachine(relaxvm.compile(mod, relax_pipeline="zero"), relaxvm.cpu())
        results.append(vm["main"](x, relaxvm.runtime.tensor(np.array(flag))).numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("tail", ["nothing", "relu", "bias", "scalar", "pool", "softmax", "mean"])
def test_only_the_ends_are_converted(tail):
    converted = relax.transform.ConvertLayout(LAST)(conv_chain(TAILS[tail]))
    assert len(conversions(converted)) == 2


def test_operators_without_a_wanted_layout_stay():
    mod = conv_chain(TAILS["relu"])
    converted = relax.transform.ConvertLayout({"relax.nn.conv1d": ["NWC", "WIO"]})(mod)
    relaxvm.ir.assert_structural_equal(converted, mod)


def test_sizes_that_are_matched_between_convolutions_convert_nothing_there():
    n, h, w = (tirx.Var(name, "int64") for name in "nhw")
    x = relax.Var("x", relax.TensorType([n, 8, h, w], "float32"))
    weight = relax.const(np.ones((8, 8, 3, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, weight, strides=2, padding=1))
            y = builder.match_cast(y, relax.TensorType([n, 8, h // 2, w // 2], "float32"))
            out = builder.emit_output(relax.op.nn.conv2d(y, weight))
        builder.emit_func_output(out)
    converted = relax.transform.ConvertLayout(LAST)(builder.get())
    assert len(conversions(converted)) == 2  # of the parameter and of the result
    assert relaxvm.relax.analysis.well_formed(converted)


def test_permuted_results_that_no_later_block_reads_stay_inside() -> None:
    after = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(
        module("""
@R.function
def main(x: R.Tensor((2, 3, 28, 28), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
    with R.dataflow():
        gv = R.nn.conv2d(x, w)
        R.output(gv)
    return gv
""")
    )
    bindings = after["main"].body.blocks[0].bindings
    seen = [b.var for b in bindings if not isinstance(b.var, relax.DataflowVar)]
    assert len(seen) == 1 and seen[0].same_as(after["main"].body.body)
    assert bindings[-1].value.op.name == "relax.permute_dims"
