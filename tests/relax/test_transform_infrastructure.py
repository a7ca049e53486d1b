# SPDX-License-Identifier: Apache-2.0
"""Passes, contexts, instruments and functors as Python programs use them."""

import pytest

import relaxvm
from relaxvm import relax, transform
from relaxvm.ir.instrument import PassInstrument, pass_instrument
from relaxvm.relax.expr_functor import PyExprMutator, PyExprVisitor, mutator, visitor
from relaxvm.relax.ir.instrument import WellFormedInstrument
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            unused = R.exp(x)
            a = R.add(x, x)
            b = R.add(x, x)
            c = R.multiply(a, b)
            R.output(c)
        return c


class Recorder(PassInstrument):
    def __init__(self):
        self.events = []

    def enter_pass_ctx(self):
        self.events.append("enter")

    def exit_pass_ctx(self):
        self.events.append("exit")

    def should_run(self, mod, info):
        return info.name != "FoldConstant"

    def run_before_pass(self, mod, info):
        self.events.append("before " + info.name)

    def run_after_pass(self, mod, info):
        self.events.append("after " + info.name)


def num_bindings(mod):
    return sum(len(b.bindings) for b in mod["main"].body.blocks)


def test_instruments_see_every_pass_that_runs():
    recorder = Recorder()
    passes = [relax.transform.DeadCodeElimination(), relax.transform.FoldConstant()]
    with transform.PassContext(instruments=[recorder, WellFormedInstrument()]):
        after = transform.Sequential(passes)(Module)
    assert num_bindings(after) == 3
    assert recorder.events == [
        "enter",
        "before sequential",
        "before DeadCodeElimination",
        "after DeadCodeElimination",
        "after sequential",
        "exit",
    ]


def test_disabled_passes_are_left_out_of_sequences():
    sequence = transform.Sequential([relax.transform.EliminateCommonSubexpr()])
    with transform.PassContext(disabled_pass=["EliminateCommonSubexpr"]):
        assert sequence(Module).same_as(Module)
    assert not sequence(Module).same_as(Module)


def test_contexts_watch_and_disable_passes_of_compilations():
    recorder = Recorder()
    recorder.should_run = lambda mod, info: info.name != "FuseOps"
    with transform.PassContext(instruments=[recorder], disabled_pass=["DeadCodeElimination"]):
        executable = relaxvm.compile(Module)
    ran = [name for _, name, _, _ in executable.timings]
    ran = ran[: ran.index("VMCodeGen")]  # what comes then makes code, no module
    assert [e for e in recorder.events if e.startswith("after")] == [f"after {p}" for p in ran]
    assert "FuseTIR" in ran and not {"FuseOps", "DeadCodeElimination"} & set(ran)


def test_contexts_watch_pipelines():
    recorder = Recorder()
    with transform.PassContext(instruments=[recorder]):
        relax.get_pipeline("zero")(Module)
    assert "after FuseTIR" in recorder.events


def test_an_error_of_an_instrument_ends_the_compilation():
    class Refusing(PassInstrument):
        def run_after_pass(self, mod, info):
            raise ValueError("no space left")

    with transform.PassContext(instruments=[Refusing()]):
        with pytest.raises(ValueError, match="no space left"):
            relaxvm.compile(Module)


def test_configs_are_listed_and_checked():
    assert transform.PassContext.list_configs()["relax.FuseOps.max_depth"] == {"type": "int"}
    assert transform.PassContext(config={"tirx.noalias": True}).config == {"tirx.noalias": True}
    with pytest.raises(AttributeError, match="did you mean 'relax.FuseOps.max_depth'"):
        transform.PassContext(config={"relax.FuseOps.maxdepth": 1})
    with pytest.raises(AttributeError, match="relax.FuseOps.max_depth takes int, not 'deep'"):
        transform.PassContext(config={"relax.FuseOps.max_depth": "deep"})


def test_configs_hold_for_compilations():
    def num_fused():
        return str(relaxvm.compile(Module, stop_after="FuseOps")).count("fused_")

    together = num_fused()
    with transform.PassContext(config={"relax.FuseOps.max_depth": 1}):
        assert num_fused() < together


def test_unknown_option_names_the_options_there_are():
    with pytest.raises(TypeError, match=r"FuseOps: .*it takes \(fuse_opt_level=-1, max_outputs=1"):
        relax.transform.FuseOps(depth=3)


def test_passes_in_python():
    @transform.module_pass(opt_level=0, name="mark")
    def mark(mod, context):
        return mod.with_attr("marked", True)

    @relax.transform.function_pass(opt_level=0)
    class Rename:
        def __init__(self, suffix):
            self.suffix = suffix

        def transform_function(self, func, mod, context):
            return func.with_attr("suffix", self.suffix)

    @relax.transform.dataflowblock_pass(opt_level=0)
    def keep(block, mod, context):
        return block

    after = transform.Sequential([mark, Rename("x"), keep])(Module)
    assert after.attrs["marked"] and after["main"].attrs["suffix"] == "x"
    relaxvm.ir.assert_structural_equal(after["main"].body, Module["main"].body, map_free_vars=True)
    assert mark.info.name == "mark" and "marked" not in (Module.attrs or {})


def test_decorated_instrument():
    @pass_instrument
    class Count:
        seen = 0

        def run_after_pass(self, mod, info):
            Count.seen += 1

    with transform.PassContext(instruments=[Count()]):
        relax.transform.Normalize()(Module)
    assert Count.seen == 1


def test_visitor_meets_every_call():
    @visitor
    class Calls(PyExprVisitor):
        def __init__(self):
            self.names = []

        def visit_call_(self, op):
            self.names.append(str(op.op.name))
            super().visit_call_(op)

    calls = Calls()
    calls.visit_expr(Module["main"])
    assert calls.names == ["relax.exp", "relax.add", "relax.add", "relax.multiply"]


def test_mutator_replaces_calls_and_keeps_the_rest():
    @mutator
    class ToSubtract(PyExprMutator):
        def visit_call_(self, op):
            op = self.visit_expr_post_order(op)
            if op.op.name == "relax.multiply":
                return relax.op.subtract(self.builder_.emit(relax.op.exp(op.args[0])), op.args[1])
            return op

    after = ToSubtract().visit_expr(Module["main"])

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            unused = R.exp(x)
            a = R.add(x, x)
            b = R.add(x, x)
            e = R.exp(a)
            c = R.subtract(e, b)
            R.output(c)
        return c

    relaxvm.ir.assert_structural_equal(after, main)


def test_questions_about_programs():
    func = Module["main"]
    analysis = relax.analysis
    assert [v.name for v in analysis.free_vars(func.body)] == ["x"]
    assert [v.name for v in analysis.bound_vars(func)] == ["x", "unused", "a", "b", "c"]
    assert set(analysis.name_to_binding(func)) == {"unused", "a", "b", "c"}
    block = func.body.blocks[0]
    assert [v.name for v in analysis.udchain(block)[func.params[0]]].count("a") == 1
    assert not analysis.contains_impure_call(func)
    assert analysis.well_formed(Module)
    assert analysis.detect_recursion(Module) == []


def test_an_operator_error_says_what_it_takes():
    x = relax.Var("x", relax.TensorType([4], "float32"))
    with pytest.raises(TypeError, match=r"nn\.softmax: .*it takes \(data, axis="):
        relax.op.nn.softmax(x, axes=1)


def test_scalar_operators_and_tensor_operators_follow_the_type():
    n = relaxvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n], "float32"))
    assert isinstance(n * 2 + 1, relaxvm.tirx.Add)
    assert isinstance(n // 2, relaxvm.tirx.FloorDiv) and not isinstance(n // 2, relaxvm.tirx.Add)
    assert (x * 2.0).op.name == "relax.multiply" and (2.0 - x).op.name == "relax.subtract"
    assert (n == n) and not (n == n + 1)
