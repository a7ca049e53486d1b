# SPDX-License-Identifier: Apache-2.0
"""FoldConstant: what is known at compile time is computed there."""

import numpy as np
from pass_check import check_pass, module

import relaxvm
from relaxvm.relax.transform import FoldConstant

ADD_ONE = """
@T.prim_func(private=True, s_tir=True)
def add_one(x: T.Buffer((T.int64(2),), "float32"), y: T.Buffer((T.int64(2),), "float32")):
    for i in range(T.int64(2)):
        with T.sblock("add_one"):
            vi = T.axis.spatial(T.int64(2), i)
            y[vi] = x[vi] + T.float32(1)
"""


def test_shape_of_a_known_type_is_a_shape():
    check_pass(
        FoldConstant(),
        before="""
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            s = R.shape_of(x)
            return s
        """,
        after="""
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            n = T.int64()
            s = R.shape([n, 4])
            return s
        """,
    )


def test_shape_becomes_a_tensor_and_a_shape_again():
    mod = FoldConstant()(
        module(
            """
            @R.function
            def main(x: R.Tensor((3, 4), "float32")):
                with R.dataflow():
                    s = R.shape_of(x)
                    t = R.shape_to_tensor(s)
                    u = R.tensor_to_shape(t)
                    y = R.reshape(x, R.shape([12]))
                    R.output(u, y)
                return (u, y)
            """
        )
    )
    text = mod.script()
    assert "shape_to_tensor" not in text
    assert "R.shape([3, 4])" in text


def test_call_of_a_program_on_constants_is_evaluated():
    """Through the whole pipeline, which supplies the evaluation."""
    mod = module(
        """
@R.function
def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    with R.dataflow():
        a = R.call_tir(Module.add_one, (R.const([1.0, 2.0], "float32"),), out_ty=R.Tensor((2,), "float32"))
        b = R.call_tir(Module.add_one, (a,), out_ty=R.Tensor((2,), "float32"))
        gv = R.add(x, b)
        R.output(gv)
    return gv
"""
        + ADD_ONE
    )
    folded = relaxvm.compile(mod, stop_after="lowered")
    assert "add_one" not in folded.script().split("def main")[1].split("@")[0]
    vm = relaxvm.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    result = vm["main"](relaxvm.runtime.tensor(np.zeros(2, "float32")))
    np.testing.assert_array_equal(result.numpy(), [3.0, 4.0])


def test_constants_may_need_large_temporaries():
    """The sums of a product of float16 lie in a temporary of float32, larger than a stack."""
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal(s, dtype="float32").astype("float16") for s in [(400, 24), (24, 300)]
    )
    bb = relaxvm.relax.BlockBuilder()
    x = relaxvm.relax.Var("x", relaxvm.relax.TensorType((1, 1), "float16"))
    op = relaxvm.relax.op
    with bb.function("main", [x]):
        with bb.dataflow():
            product = bb.emit(op.matmul(relaxvm.relax.const(a), relaxvm.relax.const(b)))
            gv = bb.emit_output(op.add(x, product))
        bb.emit_func_output(gv)
    vm = relaxvm.VirtualMachine(relaxvm.compile(bb.get()), relaxvm.cpu())
    got = vm["main"](relaxvm.runtime.tensor(np.zeros((1, 1), "float16"))).numpy()
    want = (a.astype("float32") @ b.astype("float32")).astype("float16")
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-3)


def test_programs_of_one_kind_give_the_values_of_each_shape():
    """They are compiled together, as one program for all sizes."""
    rng = np.random.default_rng(0)
    shapes = [(3, 5), (5, 3), (4, 4), (1, 6), (6, 1), (2, 8)]
    weights = [rng.standard_normal(shape, dtype="float32") for shape in shapes]
    bb = relaxvm.relax.BlockBuilder()
    x = relaxvm.relax.Var("x", relaxvm.relax.TensorType((1,), "float32"))
    op = relaxvm.relax.op
    with bb.function("main", [x]):
        with bb.dataflow():
            outs = []
            for w in weights:
                c = relaxvm.relax.const(w)
                outs.append(bb.emit(op.permute_dims(c)))
                outs.append(bb.emit(op.reshape(c, (w.size // 2, 2) if w.size % 2 == 0 else (-1,))))
                outs.append(bb.emit(op.sum(c, axis=1)))
                outs.append(bb.emit(op.multiply(c, relaxvm.relax.const(w[:, :1]))))
            gv = bb.emit_output(relaxvm.relax.Tuple(outs))
        bb.emit_func_output(gv)
    vm = relaxvm.VirtualMachine(relaxvm.compile(bb.get()), relaxvm.cpu())
    got = iter(vm["main"](relaxvm.runtime.tensor(np.zeros(1, "float32"))))
    for w in weights:
        np.testing.assert_array_equal(next(got).numpy(), w.T)
        flat = w.reshape(w.size // 2, 2) if w.size % 2 == 0 else w.reshape(-1)
        np.testing.assert_array_equal(next(got).numpy(), flat)
        np.testing.assert_allclose(next(got).numpy(), w.sum(axis=1), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(next(got).numpy(), w * w[:, :1])


def test_constants_that_take_long_are_computed_by_scheduled_programs():
    """Beside others, each with its own values: the two kinds are compiled apart."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(s, dtype="float32") for s in [(300, 400), (400, 300), (300, 1)])
    bb = relaxvm.relax.BlockBuilder()
    x = relaxvm.relax.Var("x", relaxvm.relax.TensorType((1, 1), "float32"))
    op, const = relaxvm.relax.op, relaxvm.relax.const
    with bb.function("main", [x]):
        with bb.dataflow():
            product = bb.emit(op.matmul(const(a), const(b)))
            twice = bb.emit(op.add(const(c), const(c)))
            turned = bb.emit(op.permute_dims(product))
            gv = bb.emit_output(relaxvm.relax.Tuple([op.add(x, product), twice, turned]))
        bb.emit_func_output(gv)
    mod = bb.get()
    assert "matmul" not in relaxvm.compile(mod, stop_after="FoldConstant")["main"].script()
    vm = relaxvm.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    got = [t.numpy() for t in vm["main"](relaxvm.runtime.tensor(np.zeros((1, 1), "float32")))]
    want = a.astype("float64") @ b
    np.testing.assert_allclose(got[0], want, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(got[1], c + c)
    np.testing.assert_array_equal(got[2], got[0].T)


def test_large_tensors_of_one_value_are_made_once_where_a_product_reads_them():
    """As weights whose values were left out of a file; a sum makes the number where it adds it."""
    bb = relaxvm.relax.BlockBuilder()
    x = relaxvm.relax.Var("x", relaxvm.relax.TensorType((3, 600), "float32"))
    op, const = relaxvm.relax.op, relaxvm.relax.const
    scale = np.arange(600, dtype="float32") % 7
    with bb.function("main", [x]):
        with bb.dataflow():
            ones = bb.emit(op.full((600, 600), const(0.5, "float32")))
            product = bb.emit(op.matmul(x, op.multiply(ones, const(scale))))
            added = bb.emit(op.add(bb.emit(op.full((1000, 1, 600), const(2.0, "float32"))), x))
            gv = bb.emit_output(relaxvm.relax.Tuple([product, added]))
        bb.emit_func_output(gv)
    main = relaxvm.compile(bb.get(), stop_after="lowered")["main"].script()
    assert main.count("call_tir") == 2
    vm = relaxvm.VirtualMachine(relaxvm.compile(bb.get()), relaxvm.cpu())
    value = np.random.default_rng(0).integers(-3, 4, (3, 600)).astype("float32")
    product, added = (r.numpy() for r in vm["main"](relaxvm.runtime.tensor(value)))
    np.testing.assert_array_equal(product, value.sum(1, keepdims=True) * 0.5 * scale)
    np.testing.assert_array_equal(added, np.broadcast_to(value + 2, (1000, 3, 600)))
