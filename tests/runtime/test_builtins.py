# SPDX-License-Identifier: Apache-2.0
"""Builtins of the VM, called by name."""

import numpy as np
import pytest
import tvm_ffi

import relaxvm


def builtin(name: str):
    return relaxvm.get_global_func(f"vm.builtin.{name}")


def tensor(values, dtype="float32"):
    return relaxvm.runtime.tensor(np.array(values, dtype))


HEAP = "int64"


def test_shapes_are_made_from_immediates_and_the_heap():
    heap = tensor(np.arange(10) * 10, HEAP)
    assert tuple(builtin("make_shape")(heap, 3, 0, 7, 1, 2, 1, 9)) == (7, 20, 90)
    assert builtin("make_prim_value")(heap, 1, 4) == 40


def test_shapes_are_matched_and_stored():
    heap = tensor(np.zeros(4), HEAP)
    match = builtin("match_shape")
    match(tvm_ffi.Shape([1, 2, 3]), heap, 3, 0, 1, 1, 2, 2, 0, "f")
    assert heap.numpy().tolist() == [0, 0, 2, 0]
    match(tensor(np.zeros((9, 2))), heap, 2, 2, 0, 3, 2, "f")


@pytest.mark.parametrize(
    "codes, message",
    [
        ([2, 0, 3, 0, 3], "expected 2 dimensions, but .* has 1"),
        ([1, 0, 4], "main x: match_cast error: shape, dimension 0 expected to be 4, but it is 3"),
        ([1, 3, 0], "expected to be 0, but it is 3"),
        ([1, 1, 17], "slot 17 is outside of a shape heap of 4"),
        ([1, 1, -1], "slot -1 is outside"),
        ([1, 9, 0], "unknown match code 9"),
    ],
)
def test_shape_mismatch_says_where_and_what(codes, message):
    heap = tensor(np.zeros(4), HEAP)
    with pytest.raises((RuntimeError, IndexError, ValueError), match=message):
        builtin("match_shape")(tvm_ffi.Shape([3]), heap, *codes, "main x:")


@pytest.mark.parametrize(
    "args, kind, message",
    [
        ((3, 2, "float32", "f x:"), TypeError, "f x: expected a tensor, but it is an integer 3"),
        ((tensor([1.0]), 2, "float32", "f x:"), ValueError, "expected a tensor with ndim 2"),
        (
            (tensor([1.0]), 1, "int8", "f x:"),
            ValueError,
            "a tensor with dtype int8, but it is a tensor",
        ),
    ],
)
def test_tensor_check_names_expected_and_found(args, kind, message):
    with pytest.raises(kind, match=message):
        builtin("check_tensor_info")(*args)


def test_tensor_check_accepts_any_rank_and_dtype():
    builtin("check_tensor_info")(tensor([1.0]), -1, "")
    builtin("check_tensor_info")(tensor([1.0]), 1, None, "")


def test_reshape_shares_memory_and_finds_one_dimension():
    x = tensor(np.arange(6))
    y = builtin("reshape")(x, tvm_ffi.Shape([2, -1]))
    assert y.shape == (2, 3) and y.data_ptr() == x.data_ptr()
    for bad in ([4], [-1, 4], [-1, -1], [-2, 3]):
        with pytest.raises(ValueError, match="cannot reshape"):
            builtin("reshape")(x, tvm_ffi.Shape(bad))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32"])
def test_integers_become_a_shape(dtype):
    assert tuple(builtin("tensor_to_shape")(tensor([1, 2, 100], dtype))) == (1, 2, 100)


@pytest.mark.parametrize(
    "value, expected",
    [
        (0, False),
        (2, True),
        (tensor(0, "bool"), False),
        (tensor([3], "int64"), True),
        (tensor(256, "int32"), True),
    ],
)
def test_conditions_are_read(value, expected):
    assert builtin("read_if_cond")(value) is expected


@pytest.mark.parametrize("value", [None, 1.5, tensor([1, 2], "int32"), tensor(1.0)])
def test_other_values_are_no_condition(value):
    with pytest.raises(TypeError, match="a condition must be"):
        builtin("read_if_cond")(value)


def test_tuples_and_data_types():
    pair = builtin("make_tuple")(1, "two")
    assert builtin("tuple_getitem")(pair, 1) == "two"
    with pytest.raises(IndexError, match="field 2 of a tuple of 2"):
        builtin("tuple_getitem")(pair, 2)
    value = builtin("alloc_adt")(7, "field", 3)
    assert (builtin("get_tag")(value), builtin("get_field")(value, 1)) == (7, 3)
    with pytest.raises(TypeError, match="algebraic data type"):
        builtin("get_tag")(pair)


def test_fatal_ends_the_run():
    with pytest.raises(RuntimeError, match="no such case"):
        builtin("fatal")("no such case")


def test_builtin_of_the_machine_needs_one():
    with pytest.raises(TypeError, match="must be the VM"):
        builtin("alloc_shape_heap")(3, 4)


def test_print_and_assert_format_like_python(capsys):
    relaxvm.get_global_func("relax.run.print")("x = {}, {}", tensor([1.0, 2.0]), 3)
    assert capsys.readouterr().out == "x = [1. 2.], 3\n"
    relaxvm.get_global_func("relax.run.assert_op")(True, "never")
    with pytest.raises(AssertionError, match="Assertion Failed, x is 4"):
        relaxvm.get_global_func("relax.run.assert_op")(tensor(0, "bool"), "x is {}", 4)


def test_multinomial_picks_by_the_running_sum():
    prob = tensor([[0.25, 0.5, 0.25], [0.0, 0.0, 1.0]])
    draw = builtin("multinomial_from_uniform")
    assert draw(prob, tensor([[0.3], [0.0]])).numpy().tolist() == [[1], [2]]
    assert draw(prob, tensor([[1.0], [1.0]])).numpy().tolist() == [[2], [2]]


def test_top_p_keeps_the_most_probable():
    sample = builtin("sample_top_p_from_prob")
    prob = tensor([0.1, 0.6, 0.3])
    assert {sample(prob, 0.5, u / 10) for u in range(10)} == {1}
    assert {sample(prob, 1.0, u / 20) for u in range(20)} == {0, 1, 2}
    assert builtin("sample_top_p_from_logits")(tensor([1.0, 5.0, 2.0]), 0.0, 1.0, 0.9) == 1


def test_attention_cache_grows_and_goes_round():
    cache = builtin("attention_kv_cache_create")(tensor(np.zeros((1, 2))), tvm_ffi.Shape([2, 2]), 0)
    append, view = builtin("attention_kv_cache_append"), builtin("attention_kv_cache_view")
    for i in range(5):
        append(cache, tensor(np.full((1, 2), i)))
    assert view(cache).numpy()[:, 0].tolist() == [0, 1, 2, 3, 4]
    builtin("attention_kv_cache_array_popn")([cache], 2)
    assert view(cache, tvm_ffi.Shape([3, 2])).numpy()[:, 0].tolist() == [0, 1, 2]
    builtin("attention_kv_cache_array_clear")([cache])
    override = builtin("attention_kv_cache_window_override_with_sinks")
    for i in range(6):
        override(cache, tensor(np.full((1, 2), i)), 4, 1)
    assert view(cache).numpy()[:, 0].tolist() == [0, 4, 5, 3]
    with pytest.raises(ValueError, match="do not fit"):
        append(cache, tensor(np.zeros((1, 3))))
