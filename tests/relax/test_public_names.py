# SPDX-License-Identifier: Apache-2.0
"""Short paths and small helpers that programs of the graph language are written with."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, te, topi
from relaxvm.ir.instrument import DumpIR, PassPrintingInstrument
from relaxvm.relax import frontend
from relaxvm.relax.dpl import PatternContext, SameShapeConstraint, is_op, wildcard
from relaxvm.relax.utils import gen_call_tir_inputs
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.transform import PassContext, PrintIR


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.sin(y)
            c = R.add(a, b)
            d = R.sum(c)
            R.output(d)
        return d


def test_formulas_use_scalar_functions_of_te():
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: te.if_then_else(a[i] > 0, te.exp(a[i]), te.const(1, "float32")))
    text = te.create_prim_func([a, b]).script()
    assert "T.if_then_else(a[i_1] > 0.0, T.exp(a[i_1]), 1.0)" in text.replace("i0", "i")


def test_operators_on_boxes_have_short_names():
    assert relax.op.roi_align is relax.op.vision.roi_align
    assert relax.op.non_max_suppression is relax.op.vision.non_max_suppression


def test_arguments_of_call_tir_for_a_function_of_tensors():
    x = relax.Var("x", R.Tensor((2, 3), "float32"))
    program, args, out_ty, sizes = gen_call_tir_inputs(topi.add, x, x, primfunc_attrs={"note": 1})
    assert [a.same_as(x) for a in args] == [True]
    assert int(program.attrs["note"]) == 1
    relaxvm.ir.assert_structural_equal(out_ty, x.ty)
    assert sizes is None


def test_parameters_are_detached():
    weights = [relax.const(np.ones(3, "f4")).data]
    given = relaxvm.IRModule({"main": Module["main"].with_attr("params", weights)})
    detached, params = frontend.detach_params(given)
    assert "params" not in detached["main"].attrs
    np.testing.assert_array_equal(params["main"][0].numpy(), np.ones(3))
    assert "params" in given["main"].attrs


def test_patterns_of_one_shape():
    block = Module["main"].body.blocks[0]
    for other, fits in (("relax.sin", True), ("relax.sum", False)):
        with PatternContext() as ctx:
            SameShapeConstraint(is_op("relax.exp")(wildcard()), is_op(other)(wildcard()))
            assert (ctx.match_dfb(block) is not None) == fits
    with pytest.raises(RuntimeError, match="inside of `with PatternContext"):
        SameShapeConstraint(wildcard(), wildcard())


def test_modules_are_printed_around_passes(capsys):
    with PassContext(instruments=[PassPrintingInstrument(["ToNonDataflow"], ["Normalize"])]):
        relax.transform.Normalize()(relax.transform.ToNonDataflow()(Module))
    lines = capsys.readouterr().out.split("\n")
    assert [line for line in lines if line.startswith("Print IR")] == [
        "Print IR before: ToNonDataflow",
        "Print IR after: Normalize",
    ]
    assert PrintIR("now")(Module).same_as(Module)
    assert capsys.readouterr().out.startswith("PrintIR(now):\n# from relaxvm.script")


def test_modules_are_written_after_passes(tmp_path):
    folder = tmp_path / "dump"
    with PassContext(instruments=[DumpIR(folder)]):
        relax.transform.Normalize()(relax.transform.ToNonDataflow()(Module))
    assert sorted(p.name for p in folder.iterdir()) == ["000_ToNonDataflow.py", "001_Normalize.py"]
    assert "R.dataflow" not in (folder / "000_ToNonDataflow.py").read_text()
    with PassContext(instruments=[DumpIR(folder, refresh=True)]):
        relax.transform.Normalize()(Module)
    assert [p.name for p in folder.iterdir()] == ["000_Normalize.py"]
    (folder / "notes.txt").write_text("keep")
    with pytest.raises(ValueError, match="has files that no dump wrote: notes.txt"):
        DumpIR(folder, refresh=True)
    assert sorted(p.name for p in folder.iterdir()) == ["000_Normalize.py", "notes.txt"]


def test_nodes_inside_of_containers_are_written_as_script():
    call = Module["main"].body.blocks[0].bindings[2].value
    assert repr(call.args) == "(a, b)" and repr(Module["main"].params) == "(x, y)"
    assert repr(call.ty.shape.values) == "(2, 3)"
    assert repr({"call": call}) == "{'call': R.add(a, b)}"
    assert str(Module["main"].body.blocks[0].bindings[3].value.attrs) == (
        "Attrs(axis=None, keepdims=False)"
    )


def test_language_model_parts_are_found_at_their_package():
    from relaxvm.relax.frontend.nn import llm

    assert llm.PagedKVCache is llm.kv_cache.PagedKVCache
    assert llm.llama_rope is llm.position_embedding.llama_rope
