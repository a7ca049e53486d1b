# SPDX-License-Identifier: Apache-2.0
"""LazyTransformParams: weights are loaded one by one, and results given away as soon as they are there."""

import numpy as np
import pytest
from pass_check import check_pass, module

import relaxvm
from relaxvm import relax
from relaxvm.relax.transform import LazyTransformParams
from relaxvm.script import relax as R

TUPLE = """
@R.function
def main_transform_params(
    params: R.Tuple(R.Tensor((3, 4), "float32"), R.Tensor((4,), "float32"))
) -> R.Tuple(R.Tensor((4, 3), "float32"), R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
    with R.dataflow():
        a = params[0]
        c = R.permute_dims(a)
        b = params[1]
        d = R.add(b, b)
        e = R.multiply(d, b)
        R.output(b, c, e)
    gv = (c, e, b)
    return gv
"""


def test_items_of_a_tuple_are_loaded_and_freed():
    check_pass(
        LazyTransformParams(),
        before=TUPLE,
        after="""
        @R.function(pure=False)
        def main_transform_params() -> R.Tuple:
            a_any: R.Any = R.call_packed("get_item", R.prim_value(0), ty_args=(R.Any,))
            a_typed: R.Tensor((3, 4), "float32") = R.match_cast(a_any, R.Tensor((3, 4), "float32"))
            a: R.Tensor((3, 4), "float32") = a_typed
            c: R.Tensor((4, 3), "float32") = R.permute_dims(a)
            _: R.Tuple = R.vm.kill_object(a)
            _1: R.Any = R.call_packed("set_item", R.prim_value(0), c, ty_args=(R.Any,))
            b_any: R.Any = R.call_packed("get_item", R.prim_value(1), ty_args=(R.Any,))
            b_typed: R.Tensor((4,), "float32") = R.match_cast(b_any, R.Tensor((4,), "float32"))
            b: R.Tensor((4,), "float32") = b_typed
            d: R.Tensor((4,), "float32") = R.add(b, b)
            e: R.Tensor((4,), "float32") = R.multiply(d, b)
            _2: R.Any = R.call_packed("set_item", R.prim_value(2), b, ty_args=(R.Any,))
            _3: R.Tuple = R.vm.kill_object(b)
            _4: R.Any = R.call_packed("set_item", R.prim_value(1), e, ty_args=(R.Any,))
            gv: R.Tuple = R.tuple()
            return R.tuple()
        """,
    )


def test_without_fset_item_results_are_returned():
    check_pass(
        LazyTransformParams(fset_item=None),
        before=TUPLE,
        after="""
        @R.function(pure=False)
        def main_transform_params() -> R.Tuple(R.Tensor((4, 3), "float32"), R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            a_any: R.Any = R.call_packed("get_item", R.prim_value(0), ty_args=(R.Any,))
            a_typed: R.Tensor((3, 4), "float32") = R.match_cast(a_any, R.Tensor((3, 4), "float32"))
            a: R.Tensor((3, 4), "float32") = a_typed
            c: R.Tensor((4, 3), "float32") = R.permute_dims(a)
            b_any: R.Any = R.call_packed("get_item", R.prim_value(1), ty_args=(R.Any,))
            b_typed: R.Tensor((4,), "float32") = R.match_cast(b_any, R.Tensor((4,), "float32"))
            b: R.Tensor((4,), "float32") = b_typed
            d: R.Tensor((4,), "float32") = R.add(b, b)
            e: R.Tensor((4,), "float32") = R.multiply(d, b)
            gv = (c, e, b)
            return gv
        """,
    )


def test_weights_behind_num_input_are_loaded_before_their_first_use():
    check_pass(
        LazyTransformParams(
            "load", "store", [relax.Var("loader", R.Any())], [relax.Var("writer", R.Any())]
        ),
        before="""
        @R.function
        def main_transform_params(x: R.Tensor(("n",), "float32"), a: R.Tensor((3, 4), "float32"), b: R.Tensor(("n",), "float32")):
            R.func_attr({"num_input": 1})
            n = T.int64()
            with R.dataflow():
                d = R.add(b, x)
                c = R.permute_dims(a)
                R.output(c, d)
            gv = (c, d, x, c, R.const(1, "float32"))
            return gv
        """,
        after="""
        @R.function(pure=False)
        def main_transform_params(x: R.Tensor(("n",), "float32"), loader: R.Any, writer: R.Any) -> R.Tuple:
            R.func_attr({"num_input": 1})
            n = T.int64()
            b_any: R.Any = R.call_packed("load", loader, R.prim_value(1), ty_args=(R.Any,))
            b: R.Tensor((n,), "float32") = R.match_cast(b_any, R.Tensor((n,), "float32"))
            d: R.Tensor((n,), "float32") = R.add(b, x)
            _2: R.Any = R.call_packed("store", writer, R.prim_value(2), x, ty_args=(R.Any,))
            _1: R.Any = R.call_packed("store", writer, R.prim_value(1), d, ty_args=(R.Any,))
            a_any: R.Any = R.call_packed("load", loader, R.prim_value(0), ty_args=(R.Any,))
            a: R.Tensor((3, 4), "float32") = R.match_cast(a_any, R.Tensor((3, 4), "float32"))
            c: R.Tensor((4, 3), "float32") = R.permute_dims(a)
            _3: R.Any = R.call_packed("store", writer, R.prim_value(0), c, ty_args=(R.Any,))
            _4: R.Any = R.call_packed("store", writer, R.prim_value(3), c, ty_args=(R.Any,))
            gv: R.Tuple = R.tuple()
            _5: R.Any = R.call_packed("store", writer, R.prim_value(4), R.const(1, "float32"), ty_args=(R.Any,))
            return R.tuple()
        """,
    )


def test_functions_of_other_names_stay():
    given = module(TUPLE.replace("main_transform_params", "main"))
    assert LazyTransformParams()(given).same_as(given)


@pytest.mark.parametrize(
    "result, expected",
    [
        ("(c, params[1])", {0: (4, 3), 1: (4,)}),
        ("c", {0: (4, 3)}),
        ("(a, a)", {0: (3, 4), 1: (3, 4)}),
    ],
)
def test_every_result_is_given_away(result, expected):
    given = module(f"""
        @R.function
        def transform_params(params: R.Tuple(R.Tensor((3, 4), "float32"), R.Tensor((4,), "float32"))):
            a = params[0]
            c = R.permute_dims(a)
            return {result}
        """)
    weights = [np.arange(12, dtype="f4").reshape(3, 4), np.ones(4, "f4")]
    found = {}

    @relaxvm.register_global_func("test.lazy.get", override=True)
    def get(index):
        return relaxvm.runtime.tensor(weights[index])

    @relaxvm.register_global_func("test.lazy.set", override=True)
    def put(index, value):
        found[index] = value.numpy()

    lazy = LazyTransformParams("test.lazy.get", "test.lazy.set")(given)
    relax.VirtualMachine(relaxvm.compile(lazy), relaxvm.cpu())["transform_params"]()
    assert {i: v.shape for i, v in found.items()} == expected
    if result != "(a, a)":
        np.testing.assert_array_equal(found[0], weights[0].T)


def test_weights_that_are_used_as_a_whole_are_an_error():
    given = module("""
        @R.function
        def transform_params(params: R.Tuple(R.Tensor((3, 4), "float32"), R.Tensor((4,), "float32"))):
            return params
        """)
    with pytest.raises(ValueError, match="params is used as a whole.*take its items"):
        LazyTransformParams()(given)


def test_extra_parameters_are_variables():
    with pytest.raises(TypeError):
        LazyTransformParams(extra_get_item_params=["loader"])(module(TUPLE))
