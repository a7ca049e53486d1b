# SPDX-License-Identifier: Apache-2.0
"""FuseOps: calls that run as one program become a function of their own.  Which ones: tests/passes/fuse/fuse_test.cc."""

import numpy as np
from fused_programs import ADD_ONE, TWICE
from pass_check import check_pass, module

import relaxvm
from relaxvm import ir, relax, tirx
from relaxvm.relax.transform import FuseOps
from relaxvm.script import ir as I
from relaxvm.script import relax as R

CHAIN = """
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    with R.dataflow():
        a = R.call_tir(Module.add_one, (x,), out_ty=R.Tensor((4,), "float32"))
        gv = R.call_tir(Module.twice, (a,), out_ty=R.Tensor((4,), "float32"))
        R.output(gv)
    return gv
"""


def test_group_becomes_a_primitive_function():
    check_pass(
        FuseOps(),
        before=CHAIN + ADD_ONE + TWICE,
        after="""
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                gv: R.Tensor((4,), "float32") = Module.fused_add_one_twice(x)
                R.output(gv)
            return gv

        @R.function(private=True)
        def fused_add_one_twice(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                a = R.call_tir(Module.add_one, (x,), out_ty=R.Tensor((4,), "float32"))
                gv = R.call_tir(Module.twice, (a,), out_ty=R.Tensor((4,), "float32"))
                R.output(gv)
            return gv
        """
        + ("\n" + ADD_ONE + TWICE).replace("\n", "\n        "),
    )


def test_level_zero_fuses_nothing():
    check_pass(FuseOps(fuse_opt_level=0), before=CHAIN + ADD_ONE + TWICE)


def test_calls_outside_of_dataflow_blocks_stay():
    check_pass(
        FuseOps(),
        before="""
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    a = R.call_tir(Module.add_one, (x,), out_ty=R.Tensor((4,), "float32"))
    gv = R.call_tir(Module.twice, (a,), out_ty=R.Tensor((4,), "float32"))
    return gv
"""
        + ADD_ONE
        + TWICE,
    )


def test_equal_groups_get_names_of_their_own():
    mod = module(
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        a = R.call_tir(Module.add_one, (x,), out_ty=R.Tensor((4,), "float32"))
        b = R.call_tir(Module.twice, (a,), out_ty=R.Tensor((4,), "float32"))
        c = R.call_tir(Module.add_one, (b,), out_ty=R.Tensor((4,), "float32"))
        d = R.call_tir(Module.twice, (c,), out_ty=R.Tensor((4,), "float32"))
        R.output(b, d)
    return (b, d)
"""
        + ADD_ONE
        + TWICE
    )
    names = {str(v.name_hint) for v in FuseOps()(mod).get_global_vars()}
    assert names == {"main", "add_one", "twice", "fused_add_one_twice", "fused_add_one_twice1"}


WIDE = """
@T.prim_func(private=True)
def add_one(x: T.Buffer((4, 64), "float32"), y: T.Buffer((4, 64), "float32")):
    T.func_attr({"op_pattern": 0, "tirx.noalias": True})
    for i, j in T.grid(4, 64):
        with T.sblock("y"):
            a, b = T.axis.remap("SS", [i, j])
            y[a, b] = x[a, b] + T.float32(1)

@T.prim_func(private=True)
def twice(x: T.Buffer((4, 64), "float32"), y: T.Buffer((4, 64), "float32")):
    T.func_attr({"op_pattern": 0, "tirx.noalias": True})
    for i, j in T.grid(4, 64):
        with T.sblock("y"):
            a, b = T.axis.remap("SS", [i, j])
            y[a, b] = x[a, b] * T.float32(2)
"""
F = 'R.Tensor((4, 64), "float32")'


def calls(text: str, output: str) -> str:
    lines = []
    for line in text.split():
        var, program, arg = line.split(":")
        lines.append(f"{var} = R.call_tir(Module.{program}, ({arg},), out_ty={F})")
    body = "\n        ".join(lines)
    return (
        f"@R.function\ndef main(x: {F}):\n    with R.dataflow():\n        {body}\n"
        f"        R.output({output})\n    return ({output})\n"
    )


def test_a_result_that_is_used_outside_too_is_an_output_of_the_group():
    mod = FuseOps(max_outputs=2)(module(calls("a:add_one:x b:twice:a", "a, b") + WIDE))
    group = mod["fused_add_one_twice"]
    assert len(group.ret_ty.fields) == 2
    text = mod["main"].script()
    assert text.count("fused_add_one_twice") >= 1 and "R.call_tir" not in text
    assert "[0]" in text and "[1]" in text


def test_a_result_that_is_used_outside_too_ends_its_group():
    check_pass(FuseOps(), before=calls("a:add_one:x b:twice:a", "a, b") + WIDE)


def test_three_outputs_keep_their_order():
    text = "a:add_one:x b:twice:a c:add_one:b"
    mod = FuseOps(max_outputs=3)(module(calls(text, "c, a, b") + WIDE))
    assert len(mod["fused_add_one_twice_add_one"].ret_ty.fields) == 3


def test_a_reader_between_the_calls_keeps_them_apart():
    """It would have to run before the group and after it."""
    between = f"""
@R.function
def main(x: {F}):
    with R.dataflow():
        a = R.call_tir(Module.add_one, (x,), out_ty={F})
        s = R.call_pure_packed("test.between", a, ty_args={F})
        b = R.call_tir(Module.twice, (a,), out_ty={F})
        R.output(s, b)
    return (s, b)
"""
    check_pass(FuseOps(max_outputs=4), before=between + WIDE)


def test_short_rows_stay_apart():
    given = calls("a:add_one:x b:twice:a", "a, b").replace("(4, 64)", "(4,)")
    check_pass(FuseOps(max_outputs=4), before=given + ADD_ONE + TWICE)


def test_a_group_with_several_outputs_computes_the_same():
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 96), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.multiply(a, x)
                c = R.add(b, a)
                d = R.matmul(a, R.permute_dims(c))
                R.output(a, c, d)
            return (a, c, d)

    fused = relaxvm.compile(Mod, stop_after="FuseTIR")
    outputs = [f.attrs.get("num_outputs") for f in fused.functions.values()]
    assert 2 in [int(n) for n in outputs if n is not None], fused.script()
    vm = relaxvm.VirtualMachine(relaxvm.compile(Mod), relaxvm.cpu())
    for n in (0, 1, 5, 200):
        x = np.random.default_rng(n).standard_normal((n, 96)).astype("float32")
        a, c, d = (t.numpy() for t in vm["main"](relaxvm.runtime.tensor(x)))
        np.testing.assert_allclose(a, np.exp(x), rtol=1e-5)
        np.testing.assert_allclose(c, np.exp(x) * x + np.exp(x), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(d, a @ c.T, rtol=1e-3, atol=1e-2)


def groups(build, **options):
    """The names of the calls that are left after fusing what `build` makes of x: (n, 8, 6)."""
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n, 8, 6], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(build(x, n))
        builder.emit_func_output(out)
    mod = builder.get()
    fuse = FuseOps(**options)
    for p in (relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern(), fuse):
        mod = p(mod)
    bindings = mod["main"].body.blocks[0].bindings
    callees = [
        b.value.op if isinstance(b.value.op, ir.GlobalVar) else b.value.args[0] for b in bindings
    ]
    return [c.name_hint for c in callees]


def test_reshapes_at_the_ends_of_a_group_stay_alone():
    """They cost nothing then; between other calls they do not split a group."""
    op = relax.op

    def kept(build):
        return groups(build, keep_reshapes=True)

    assert kept(lambda x, n: op.reshape(op.exp(op.negative(x)), [n * 8, 6])) == [
        "fused_negative_exp",
        "reshape",
    ]
    assert kept(lambda x, n: op.exp(op.negative(op.reshape(x, [n * 8, 6])))) == [
        "reshape",
        "fused_negative_exp",
    ]
    assert kept(lambda x, n: op.exp(op.reshape(op.negative(x), [n * 8, 6]))) == [
        "fused_negative_reshape_exp"
    ]
    assert kept(lambda x, n: op.reshape(op.exp(x), [n, 48])) == ["exp", "reshape"]


def test_reshapes_join_groups_otherwise():
    op = relax.op
    assert groups(lambda x, n: op.reshape(op.exp(x), [n, 48])) == ["fused_exp_reshape"]


def test_windows_pass_over_padding_that_is_not_written():
    op = relax.op
    kernel = relax.const(np.ones((4, 8, 3), "float32"))
    lowest = relax.const(-np.inf, "float32")

    def padded(x, n):
        return op.rvm.pad(x, [0, 0, n % 2], [0, 0, 1], lowest)

    def pooled(y):
        return op.nn.max_pool1d(y, pool_size=3, strides=2)

    assert groups(lambda x, n: pooled(padded(x, n))) == ["fused_pad_max_pool1d"]
    assert groups(lambda x, n: op.nn.conv1d(padded(x, n), kernel, strides=2)) == [
        "fused_pad_conv1d"
    ]
    # What pads itself reads a tensor, and so does a product.
    assert groups(lambda x, n: op.nn.conv1d(padded(x, n), kernel, padding=1)) == ["pad", "conv1d"]
    right = relax.const(np.ones((7, 4), "float32"))
    assert groups(lambda x, n: op.matmul(padded(x, 0), right)) == ["pad", "matmul"]


def test_what_is_sampled_is_made_before():
    """Each element of an image is read by several samples, at places that the grid tells."""
    op = relax.op
    grid = relax.const(np.zeros((1, 2, 5, 7), "float32"))

    def sampled(image, method):
        return op.image.grid_sample(image, grid, method=method)

    def image(x):
        return op.reshape(op.exp(x), [1, 8, 6, -1])

    assert groups(lambda x, n: sampled(image(x), "bilinear")) == [
        "fused_exp_reshape",
        "grid_sample",
    ]
    assert groups(lambda x, n: sampled(image(x), "nearest")) == ["fused_exp_reshape_grid_sample"]


def test_what_follows_a_reduction_joins_when_asked():
    def build(x, n):
        return relax.op.exp(relax.op.sum(x, axis=2))

    assert groups(build) == ["sum", "exp"]
    assert groups(build, extend_reductions=True) == ["fused_sum_exp"]
