# SPDX-License-Identifier: Apache-2.0
"""IRBuilder: the words of the script as ordinary calls."""

from __future__ import annotations

import pytest

from relaxvm import relax, te
from relaxvm.ir import assert_structural_equal
from relaxvm.relax.analysis import well_formed
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script.ir_builder import IRBuilder
from relaxvm.script.ir_builder import ir as module_builder
from relaxvm.script.ir_builder import relax as relax_builder


def chain(length: int):
    """A function whose size the caller chooses: what a script cannot say."""
    with IRBuilder() as builder, relax_builder.function():
        R.func_name("main")
        x = R.arg("x", R.Tensor(("n", 4), "float32"))
        for _ in range(length):
            x = R.emit(R.exp(x))
        R.func_ret_value(x)
    return builder.get()


def test_calls_make_the_function_that_the_script_says():
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        y = R.exp(x)
        z = R.exp(y)
        return z

    assert_structural_equal(chain(2), main)


def test_outputs_of_a_dataflow_block_are_named_when_it_ends():
    with IRBuilder() as builder, relax_builder.function(is_private=True):
        x = R.arg("x", R.Tensor((4,), "float32"))
        with R.dataflow() as frame:
            y = R.emit(R.exp(x))
            z = R.emit(R.add(y, y))
            R.output(y, z)
        y, z = frame.output_vars
        R.func_ret_value(R.emit(R.multiply(y, z)))

    @R.function(private=True)
    def expected(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            z = R.add(y, y)
            R.output(y, z)
        w = R.multiply(y, z)
        return w

    assert_structural_equal(builder.get(), expected)


def test_attributes_types_casts_and_tensor_expressions():
    with IRBuilder() as builder, relax_builder.function(is_pure=False):
        R.func_name("main")
        R.func_attr({"num_input": 1})
        R.func_ret_ty(R.Tensor(ndim=1, dtype="float32"))
        x = R.arg("x", R.Tensor(ndim=1, dtype="float32"))
        y = R.emit_match_cast(x, R.Tensor(("n",), "float32"))
        z = R.emit_te(lambda a: te.compute(a.shape, lambda i: a[i] + 1.0), y)
        w = R.emit(R.exp(z), R.Tensor(ndim=1, dtype="float32"))
        R.func_ret_value(w)
    func = builder.get()
    assert int(func.attrs["num_input"]) == 1 and not func.is_pure
    assert func.ret_ty.ndim == 1 and w.ty.shape is None


def test_functions_become_a_module():
    with IRBuilder() as builder, module_builder.ir_module():
        for name in ("f", "g"):
            with relax_builder.function():
                R.func_name(name)
                R.func_ret_value(R.emit(R.sin(R.arg("x", R.Tensor((2,), "float32")))))

    @I.ir_module
    class Expected:
        @R.function
        def f(x: R.Tensor((2,), "float32")):
            y = R.sin(x)
            return y

        @R.function
        def g(x: R.Tensor((2,), "float32")):
            y = R.sin(x)
            return y

    assert well_formed(builder.get())
    assert_structural_equal(builder.get(), Expected)


def test_what_a_function_lacks_is_told():
    with IRBuilder() as builder:
        with pytest.raises(RuntimeError, match="call R.func_ret_value"):
            with relax_builder.function():
                R.arg("x", R.Tensor((2,), "float32"))
        with module_builder.ir_module(), pytest.raises(RuntimeError, match="call R.func_name"):
            with relax_builder.function():
                R.func_ret_value(R.arg("x", R.Tensor((2,), "float32")))
        with pytest.raises(RuntimeError, match="which the block does not bind"):
            with relax_builder.function(), R.dataflow():
                R.output(R.arg("x", R.Tensor((2,), "float32")))
    with pytest.raises(RuntimeError, match="there is no builder"):
        builder.current()
    with pytest.raises(RuntimeError, match="inside of `with ir_builder.relax.function"):
        R.arg("x", R.Tensor((2,), "float32"))


def test_a_builder_builds_one_thing():
    def build() -> None:
        with relax_builder.function():
            R.func_ret_value(R.arg("x", R.Tensor((2,), "float32")))

    with IRBuilder():
        build()
        with pytest.raises(RuntimeError, match="one function or one module"):
            build()


def test_variables_get_names_and_bindings_come_whole() -> None:
    with IRBuilder() as builder:
        with relax_builder.function():
            R.func_name("main")
            x = R.arg("x", relax.TensorType((2,), "float32"))
            R.func_ret_type(relax.TensorType((2,), "float32"))
            value = relax.BlockBuilder().normalize(relax.op.exp(x))
            y = R.emit_var_binding(relax.VarBinding(relax.Var("y", value.ty), value))
            z = IRBuilder.name("z", R.emit(relax.op.add(y, x)))
            R.func_ret_value(z)
    bindings = builder.get().body.blocks[0].bindings
    assert [b.var.name for b in bindings] == ["y", "z"]
    assert builder.get().body.body.same_as(bindings[1].var)
