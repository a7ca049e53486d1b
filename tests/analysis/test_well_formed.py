# SPDX-License-Identifier: Apache-2.0
"""The rules of the language: each has a module that breaks it, and the message names function and variable."""

from __future__ import annotations

import pytest

import relaxvm
from relaxvm import relax
from relaxvm._compiler import func
from relaxvm.relax import op
from relaxvm.script import ir as I
from relaxvm.script import relax as R

X = relax.TensorType([4], "float32")


def tensor(name: str) -> relax.Var:
    return relax.Var(name, X)


def module(
    blocks: list[relax.BindingBlock], result: relax.Expr, **options: object
) -> relaxvm.IRModule:
    f = relax.Function([PARAM], relax.SeqExpr(blocks, result), X, **options)
    return relaxvm.IRModule({"main": f})


def typed(call: relax.Call) -> relax.Call:
    call._update_type(X)
    return call


def block(*pairs: tuple[relax.Var, relax.Expr]) -> relax.BindingBlock:
    return relax.BindingBlock([relax.VarBinding(v, e) for v, e in pairs])


def dataflow(*pairs: tuple[relax.Var, relax.Expr]) -> relax.DataflowBlock:
    return relax.DataflowBlock([relax.VarBinding(v, e) for v, e in pairs])


PARAM = tensor("x")
Y, Z = tensor("y"), tensor("z")
INNER = relax.DataflowVar("inner", X)
IMPURE = relax.Call(relax.ExternFunc("f"), [PARAM], None, [X])

BROKEN = {
    "arguments-are-leaves": (
        module([block((Y, typed(op.exp(typed(op.exp(PARAM))))))], Y),
        "in the value of y is computed in place",
    ),
    "types-are-present": (module([block((relax.Var("y"), PARAM))], PARAM), "y has no type"),
    "defined-before-use": (
        module([block((Y, typed(op.exp(Z))), (Z, PARAM))], Y),
        "z is used but not defined",
    ),
    "one-definition": (module([block((Y, PARAM), (Y, PARAM))], Y), "y is defined twice"),
    "dataflow-variable-stays-inside": (
        module([dataflow((INNER, PARAM))], INNER),
        "inner is used outside of its dataflow block",
    ),
    "dataflow-variable-in-dataflow-block": (
        module([block((INNER, PARAM))], PARAM),
        "inner is defined outside of a dataflow block",
    ),
    "no-effect-in-dataflow": (
        module([dataflow((Y, typed(IMPURE)))], Y, is_pure=False),
        "the value of y has an effect inside",
    ),
    "pure-function-is-pure": (
        module([block((Y, typed(IMPURE)))], Y),
        "the value of y has an effect, but the function is pure",
    ),
    "called-function-exists": (
        module([block((Y, typed(relax.Call(relax.GlobalVar("gone"), [PARAM]))))], Y, is_pure=False),
        "there is no function gone",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_module_that_breaks_the_rule_is_found(rule: str) -> None:
    mod, message = BROKEN[rule]
    found = func("analysis.ill_formed")(mod)
    assert found is not None and f"[{rule}]" in str(found), found
    assert f"function main: {message}" in str(found) or message in str(found)


def test_module_that_keeps_the_rules_is_well_formed() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), c: R.Prim("bool")):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, x)
                R.output(b)
            if c:
                r = R.negative(b)
            else:
                r = b
            return r

    assert func("analysis.ill_formed")(Mod) is None


@pytest.mark.parametrize("pure", [True, False])
def test_a_call_without_a_result_is_pure_where_its_function_is(pure: bool):
    program = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> None:
        r = Module.callee(x)
        return r

    @R.function(pure=%s)
    def callee(x: R.Tensor((4,), "float32")) -> None:
        y = R.exp(x)
        return R.tuple()
"""
    mod = relaxvm.script.from_source(program % pure, check_well_formed=False)
    assert relax.analysis.check_well_formed(mod) == pure


@pytest.mark.parametrize("pure", [True, False])
def test_a_call_of_a_parameter_without_a_result_is_pure_where_its_type_says_so(pure: bool):
    program = """
@R.function
def main(x: R.Tensor((4,), "float32"), f: R.Callable([R.Tensor((4,), "float32")], R.Tuple([]), %s)):
    r = f(x)
    return R.tuple()
"""
    main = relaxvm.script.from_source(program % pure, check_well_formed=False)
    assert relax.analysis.check_well_formed(relaxvm.IRModule.from_expr(main)) == pure
