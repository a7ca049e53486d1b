# SPDX-License-Identifier: Apache-2.0
"""LegalizeOps: operators become calls of tensor programs or packed functions."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, topi
from relaxvm.ir import Op, register_op_attr
from relaxvm.relax import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


def legal(mod: relaxvm.IRModule) -> str:
    return transform.LegalizeOps()(mod).script()


def test_equal_work_at_different_sizes_is_one_program() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), y: R.Tensor(("m", 8), "float32")):
            n = T.int64()
            a = R.exp(x)
            b = R.exp(y)
            c = R.concat((x, x), axis=0)
            d = R.exp(c)
            return (a, b, d)

    text = legal(Mod)
    assert text.count("def exp") == 1
    assert text.count("R.call_tir(cls.exp,") == 3


def test_scalar_constant_becomes_an_immediate() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.multiply(x, R.const(2.5, "float32"))
            return y

    text = legal(Mod)
    assert "2.5" in text.split("def main")[0]
    assert "R.call_tir(cls.multiply, (x,)" in text


def test_number_in_another_shape_is_known_too() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.reshape(R.const([[2.5]], "float32"), R.shape([1]))
                b = R.squeeze(R.const([7.5], "float32"))
                y = R.divide(x, a)
                z = R.divide(y, b)
                R.output(z)
            return z

    text = legal(Mod)
    assert "2.5" in text.split("def main")[0]
    assert "7.5" in text.split("def main")[0]
    assert "R.call_tir(cls.divide, (x,)" in text


def test_argument_of_unknown_sizes_is_matched_to_fresh_ones() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(dtype="float32", ndim=2)):
            y = R.exp(x)
            return y

    text = legal(Mod)
    assert 'R.match_cast(x, R.Tensor((d0, d1), dtype="float32"))' in text
    assert 'out_ty=R.Tensor((d0, d1), dtype="float32")' in text


def test_argument_of_unknown_sizes_is_matched_where_the_result_is_known() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(dtype="float32", ndim=2)):
            y = R.sum(x)
            return y

    text = legal(Mod)
    assert 'R.match_cast(x, R.Tensor((d0, d1), dtype="float32"))' in text
    assert 'out_ty=R.Tensor((), dtype="float32")' in text


def test_argument_of_unknown_rank_is_an_error() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(dtype="float32")):
            y = R.sum(x)
            return y

    with pytest.raises(ValueError, match="relax.sum: the shapes of its arguments .* match_cast"):
        legal(Mod)


def test_skipped_operators_stay() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = R.sqrt(a)
            return b

    text = transform.LegalizeOps(skip_ops=["relax.sqrt"])(Mod).script()
    assert "R.sqrt(" in text
    assert "R.exp(" not in text


@I.ir_module
class AddThenExp:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        a = R.add(x, y)
        b = R.exp(a)
        return b


def test_rules_of_the_caller_come_before_those_of_operators() -> None:
    def as_packed(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return relax.call_dps_packed("my.add", list(call.args), out_ty=call.ty)

    text = transform.LegalizeOps({"relax.add": as_packed})(AddThenExp).script()
    assert 'R.call_dps_packed("my.add", (x, y)' in text
    assert "def exp" in text
    assert "def add" not in text


def test_a_rule_may_emit_bindings_and_programs() -> None:
    def twice(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        total = builder.emit(relax.op.subtract(*call.args), "total")
        return builder.call_te(topi.add, total, total)

    text = transform.LegalizeOps({"relax.add": twice})(AddThenExp).script()
    assert "total" in text
    assert "def subtract" in text
    assert "def add" in text


def test_a_rule_may_leave_a_call_to_the_operator() -> None:
    text = transform.LegalizeOps({"relax.add": lambda builder, call: call})(AddThenExp).script()
    assert "def add" in text


def test_a_rule_ends_with_its_pass() -> None:
    as_packed = {
        "relax.add": lambda b, call: relax.call_dps_packed("my.add", list(call.args), call.ty)
    }
    transform.LegalizeOps(as_packed)(AddThenExp)
    assert "my.add" not in legal(AddThenExp)


def test_operators_without_rule_are_named_when_asked(caplog: pytest.LogCaptureFixture) -> None:
    register_op_attr("test.without_rule", "FInferType", lambda call, builder: call.args[0].ty)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.Call(Op.get("test.without_rule"), [x])))
    transform.LegalizeOps(enable_warning=True)(builder.finalize())
    assert caplog.messages == ["LegalizeOps: test.without_rule has no rule and stays as it is"]


def test_size_that_no_argument_gives_is_passed_as_a_scalar() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n * 3",), "float32"), s: R.Shape(["n", "k"])):
            n = T.int64()
            k = T.int64()
            y = R.full(R.shape([n, 2 * k]), R.const(1.0, "float32"), "float32")
            return y

    text = legal(Mod)
    assert "R.call_tir(" in text


def test_check_of_undecided_sizes_uses_what_the_result_gives() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", "h // 2", 4), "float32"), s: R.Shape(["k", "h"])):
            n = T.int64()
            k = T.int64()
            y = R.reshape(x, R.shape([n, k // 3, 4]))
            return y

    mod = transform.LegalizeOps()(Mod)
    assert "assert" in mod.script()
    import numpy as np

    vm = relaxvm.VirtualMachine(relaxvm.compile(Mod), relaxvm.cpu())
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    shape = relaxvm.runtime.Shape([9, 6])
    np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x), shape).numpy(), x)


def test_items_of_a_tuple_become_arguments_with_variables_of_their_own() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(t: R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((4, 3), "float32"))):
            with R.dataflow():
                y = R.concat(t, axis=0)
                R.output(y)
            return y

    lowered = transform.LegalizeOps()(Mod)
    assert relax.analysis.well_formed(lowered)
    text = lowered.script()
    assert "= t[0]" in text and "= t[1]" in text
    a, b = (np.arange(3 * n, dtype="float32").reshape(n, 3) for n in (2, 4))
    vm = relaxvm.VirtualMachine(relaxvm.compile(Mod), relaxvm.cpu())
    got = vm["main"]((relaxvm.runtime.tensor(a), relaxvm.runtime.tensor(b))).numpy()
    np.testing.assert_array_equal(got, np.concatenate([a, b]))
