# SPDX-License-Identifier: Apache-2.0
"""IOBinding, OrtValue and run_async: inputs and outputs in memory that the caller holds."""

import threading

import numpy as np
import pytest

from relaxvm.inference import InvalidArgument, OrtValue

TWO = "g (float[n, 3] x, float[n, 3] b) => (float[n, 3] s, float[n, 3] d) { s = Add(x, b) d = Sub(x, b) }"
X = np.arange(6, dtype="f4").reshape(2, 3)
B = np.full((2, 3), 10, "f4")


@pytest.fixture
def two(session):
    return session(TWO)


def bound(session, x=X, b=B):
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("b", b)
    return binding


def test_gives_the_bound_outputs_in_the_order_of_binding(two):
    binding = bound(two)
    binding.bind_output("d")
    binding.bind_output("s", "cpu")
    two.run_with_iobinding(binding)
    d, s = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(d, X - B)
    np.testing.assert_array_equal(s, X + B)
    assert [v.shape() for v in binding.get_outputs()] == [[2, 3], [2, 3]]


def test_reads_a_bound_array_when_it_runs(two):
    x = X.copy()
    binding = bound(two, x)
    binding.bind_output("s")
    x += 1
    two.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), X + 1 + B)


def test_runs_at_another_shape_after_binding_anew(two):
    binding = bound(two)
    binding.bind_output("s")
    two.run_with_iobinding(binding)
    for name in "xb":
        binding.bind_cpu_input(name, np.ones((5, 3), "f4"))
    two.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].shape == (5, 3)


def test_copies_an_array_that_is_not_contiguous(two):
    x = np.arange(12, dtype="f4").reshape(2, 6)[:, ::2]
    binding = bound(two, x)
    binding.bind_output("s")
    two.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], x + B)


def test_reads_and_writes_addresses(two):
    out = np.zeros((2, 3), "f4")
    binding = two.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    binding.bind_input("b", "cpu", 0, 1, B.shape, B.ctypes.data)  # 1: ONNX's number of float
    binding.bind_output("s", "cpu", 0, np.float32, out.shape, out.ctypes.data)
    two.run_with_iobinding(binding)
    np.testing.assert_array_equal(out, X + B)


def test_writes_into_a_value_that_is_bound(two):
    target = OrtValue.ortvalue_from_shape_and_type((2, 3), np.float32)
    binding = bound(two)
    binding.bind_ortvalue_output("d", target)
    two.run_with_iobinding(binding)
    assert binding.get_outputs() == [target]
    np.testing.assert_array_equal(target.numpy(), X - B)


def test_an_output_feeds_the_next_run_without_a_copy(two):
    binding = bound(two)
    binding.bind_output("s")
    two.run_with_iobinding(binding)
    (s,) = binding.get_outputs()
    binding.bind_ortvalue_input("x", s)
    two.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), X + 2 * B)


def test_memory_of_another_shape_is_an_error(two):
    binding = bound(two)
    binding.bind_ortvalue_output("s", OrtValue.ortvalue_from_shape_and_type((4, 3), "float32"))
    with pytest.raises(InvalidArgument, match=r"output 's' has .*\[2, 3\], the memory .*\[4, 3\]"):
        two.run_with_iobinding(binding)


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        (lambda b: b.bind_cpu_input("q", X), "no input called 'q'"),
        (lambda b: b.bind_output("q"), "no output called 'q'"),
        (lambda b: b.bind_output("s", "cuda"), "device 'cuda' is not supported"),
        (lambda b: b.bind_output("s", buffer_ptr=8), "needs its element_type and shape"),
        (lambda b: b.bind_input("x", "cpu", 0, "f4", [2, -3], 8), "negative dimension"),
        (lambda b: b.bind_input("x", "cpu", 0, "f4", [2, 3], 0), "address"),
        (lambda b: b.bind_input("x", "cpu", 0, "no type", [1], 8), "is no element type"),
        (lambda b: b.bind_ortvalue_input("x", X), "an OrtValue is expected, not ndarray"),
    ],
)
def test_wrong_bindings_are_errors(two, bind, message):
    with pytest.raises(InvalidArgument, match=message):
        bind(two.io_binding())


def test_running_without_outputs_or_inputs_is_an_error(two):
    with pytest.raises(InvalidArgument, match="no output is bound"):
        two.run_with_iobinding(bound(two))
    binding = two.io_binding()
    binding.bind_output("s")
    with pytest.raises(InvalidArgument, match="no value for the inputs"):
        two.run_with_iobinding(binding)


def test_a_binding_of_another_session_is_an_error(session, two):
    binding = bound(session(TWO))
    binding.bind_output("s")
    with pytest.raises(InvalidArgument, match="belongs to the session"):
        two.run_with_iobinding(binding)
    with pytest.raises(InvalidArgument, match="an IOBinding of io_binding"):
        two.run_with_iobinding(None)


def test_what_is_cleared_is_not_bound(two):
    binding = bound(two)
    binding.bind_output("s")
    two.run_with_iobinding(binding)
    binding.clear_binding_inputs()
    with pytest.raises(InvalidArgument, match="no value for the inputs"):
        two.run_with_iobinding(binding)
    binding.clear_binding_outputs()
    assert binding.get_outputs() == []


def test_runs_on_values(two):
    feed = {"x": OrtValue.ortvalue_from_numpy(X), "b": OrtValue.ortvalue_from_numpy(B)}
    (s,) = two.run_with_ort_values(["s"], feed)
    np.testing.assert_array_equal(s.numpy(), X + B)


def test_a_value_says_what_it_is():
    value = OrtValue.ortvalue_from_numpy(X)
    assert (value.shape(), value.data_type(), value.element_type()) == ([2, 3], "tensor(float)", 1)
    assert (value.tensor_size_in_bytes(), value.device_name()) == (24, "cpu")
    assert value.is_tensor() and value.has_value()
    assert not value.is_tensor_sequence() and not value.is_sparse_tensor()
    assert value.data_ptr() == X.ctypes.data
    np.testing.assert_array_equal(np.asarray(value, "f8"), X)


def test_a_value_is_overwritten_in_place():
    value = OrtValue.ortvalue_from_shape_and_type([2, 3], 1)
    value.update_inplace(X)
    np.testing.assert_array_equal(value.numpy(), X)
    with pytest.raises(InvalidArgument, match="float64"):
        value.update_inplace(X.astype("f8"))


@pytest.mark.peer
def test_takes_values_of_onnxruntime(two):
    import onnxruntime

    x = onnxruntime.OrtValue.ortvalue_from_numpy(X)
    target = onnxruntime.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding = bound(two)
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("s", target)
    two.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.numpy(), X + B)


def test_calls_back_when_a_run_has_ended(two):
    done, calls = threading.Event(), []

    def callback(results, data, error):
        calls.append((results, data, error))
        done.set()

    two.run_async(["s"], {"x": X, "b": B}, callback, "mine")
    assert done.wait(60)
    ((results, data, error),) = calls
    np.testing.assert_array_equal(results[0], X + B)
    assert (data, error) == ("mine", "")


def test_calls_back_with_what_went_wrong(two):
    done, calls = threading.Event(), []
    two.run_async(None, {"x": X}, lambda *call: (calls.append(call), done.set()), None)
    assert done.wait(60)
    assert calls[0][0] == [] and "no value for the inputs ['b']" in calls[0][2]
