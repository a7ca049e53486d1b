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


def test_penalties_change_logits_in_place():
    logits = tensor([[2.0, -2.0, 4.0, 1.0]])
    builtin("apply_repetition_penalty")(logits, tensor([0, 1], "int32"), 2.0)
    assert logits.numpy().tolist() == [[1, -4, 4, 1]]
    builtin("apply_presence_and_frequency_penalty")(
        logits, tensor([2, 3], "int32"), tensor([3, 1], "int32"), 0.5, 0.25
    )
    assert logits.numpy().tolist() == [[1, -4, 4 - 0.5 - 0.75, 1 - 0.75]]


@pytest.mark.parametrize("temperature", [0.0, 0.5, 2.0])
def test_softmax_with_temperature_is_row_by_row(temperature):
    values = np.array([[1, 3, 2], [-1000, -1001, -1002]], "f4")
    logits = tensor(values)
    builtin("apply_softmax_with_temperature")(logits, temperature)
    e = np.exp((values - values.max(1, keepdims=True)) / max(temperature, 1e-3))
    np.testing.assert_allclose(logits.numpy(), e / e.sum(1, keepdims=True), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize(
    "name, args, kind, message",
    [
        ("apply_repetition_penalty", ([3], 1.0), IndexError, "token 3 is none of the 3 logits"),
        ("apply_repetition_penalty", ([-1], 1.0), IndexError, "token -1 is none"),
        ("apply_repetition_penalty", ([0], 0.0), ValueError, "penalty is positive"),
        ("apply_presence_and_frequency_penalty", ([0], [1, 2], 0.0, 0.0), ValueError, "2 counts"),
        ("apply_softmax_with_temperature", (-1.0,), ValueError, "not negative"),
    ],
)
def test_penalties_refuse_what_has_no_meaning(name, args, kind, message):
    values = [tensor(a, "int32") if isinstance(a, list) else a for a in args]
    with pytest.raises(kind, match=message):
        builtin(name)(tensor([1, 2, 3]), *values)


def test_parameters_of_the_cache_as_a_module():
    for i in range(3):
        builtin("tensor_cache.update")(f"pm_{i}", tensor([i]), True)
    module = builtin("param_module_from_cache")("pm", -1)
    assert [int(t.numpy()[0]) for t in module.get_function("get_params")()] == [0, 1, 2]
    module = builtin("param_module_from_cache_by_name")(["pm_2", "pm_0"])
    assert [int(t.numpy()[0]) for t in module.get_function("get_params")()] == [2, 0]
    with pytest.raises(KeyError, match="pm_7"):
        builtin("param_module_from_cache_by_name")(["pm_7"])


def test_debug_print_shows_line_shape_dtype_and_values(capsys):
    builtin("debug_print")("model.py:7", tensor([[1, 2]], "int32"))
    text = capsys.readouterr().out
    assert text == "model.py:7: shape = (1, 2), dtype = int32, data =\n[[1 2]]\n"
