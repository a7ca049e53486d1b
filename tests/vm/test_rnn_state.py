# SPDX-License-Identifier: Apache-2.0
"""Recurrent states of many sequences: values, steps back, forks, mistakes."""

import numpy as np
import pytest
import tvm_ffi

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import tirx as T

SEQUENCES, HISTORY, WIDTH = 4, 3, 2


def builtin(name):
    return relaxvm.get_global_func(f"vm.builtin.{name}")


def tensor(values, dtype="float32"):
    return relaxvm.runtime.tensor(np.array(values, dtype))


def shape(*values):
    return tvm_ffi.Shape(values)


@I.ir_module
class Access:
    @T.prim_func
    def get(storage: T.handle, slots: T.handle, histories: T.handle, out: T.handle):
        batch = T.int64()
        s = T.match_buffer(storage, (SEQUENCES, HISTORY, WIDTH), "float32")
        slot = T.match_buffer(slots, (batch,), "int32")
        history = T.match_buffer(histories, (batch,), "int32")
        o = T.match_buffer(out, (batch, WIDTH), "float32")
        for i, j in T.grid(batch, WIDTH):
            o[i, j] = s[slot[i], history[i], j]

    @T.prim_func
    def set(storage: T.handle, slots: T.handle, histories: T.handle, data: T.handle):
        batch = T.int64()
        s = T.match_buffer(storage, (SEQUENCES, HISTORY, WIDTH), "float32")
        slot = T.match_buffer(slots, (batch,), "int32")
        history = T.match_buffer(histories, (batch,), "int32")
        d = T.match_buffer(data, (batch, WIDTH), "float32")
        for i, j in T.grid(batch, WIDTH):
            s[slot[i], (history[i] + 1) % HISTORY, j] = d[i, j]


@pytest.fixture(scope="module")
def functions():
    module = relaxvm.compile(Access).mod
    return module.get_function("get"), module.get_function("set")


FIRST = [np.array([1, 2], "f4"), np.array([-1, -2], "f4")]


@pytest.fixture
def state(functions):
    get, put = functions
    return builtin("rnn_state_create")(
        2, SEQUENCES, HISTORY, [get, get], [put, put], [tensor(v) for v in FIRST]
    )


def step(state, *sequences, lengths=None, add=10):
    """Adds a number to every state; returns what state 1 of layer 1 was before."""
    lengths = lengths or [1] * len(sequences)
    builtin("kv_state_begin_forward")(state, shape(*sequences), shape(*lengths))
    out = relaxvm.runtime.empty((len(sequences), WIDTH), "float32")
    for layer in range(2):
        for index in range(2):
            builtin("rnn_state_get")(state, layer, index, out)
            builtin("rnn_state_set")(state, layer, index, tensor(out.numpy() + add))
    builtin("kv_state_end_forward")(state)
    return out.numpy()


def value(state, sequence):
    return builtin("rnn_state_debug_get")(state, 1, 1, sequence).numpy()


def test_sequences_have_values_of_their_own(state):
    for sequence in (7, 9):
        builtin("kv_state_add_sequence")(state, sequence)
    np.testing.assert_array_equal(step(state, 9), [FIRST[1]])
    np.testing.assert_array_equal(step(state, 7, 9), [FIRST[1], FIRST[1] + 10])
    np.testing.assert_array_equal(value(state, 9), FIRST[1] + 20)
    np.testing.assert_array_equal(value(state, 7), FIRST[1] + 10)
    builtin("kv_state_remove_sequence")(state, 9)
    builtin("kv_state_add_sequence")(state, 9)
    np.testing.assert_array_equal(value(state, 9), FIRST[1])


def test_history_takes_steps_back_and_no_more(state):
    builtin("kv_state_add_sequence")(state, 0)
    for _ in range(5):
        step(state, 0)
    builtin("kv_state_popn")(state, 0, 2)
    np.testing.assert_array_equal(value(state, 0), FIRST[1] + 30)
    with pytest.raises(ValueError, match="cannot go back 1 tokens: it keeps 0 earlier values"):
        builtin("kv_state_popn")(state, 0, 1)
    np.testing.assert_array_equal(step(state, 0), [FIRST[1] + 30])
    step(state, 0, lengths=[4])
    with pytest.raises(ValueError, match="values inside of a longer append are not kept"):
        builtin("kv_state_popn")(state, 0, 1)


def test_fork_copies_values_and_history(state):
    builtin("kv_state_add_sequence")(state, 0)
    for _ in range(3):
        step(state, 0)
    builtin("kv_state_fork_sequence")(state, 0, 1)
    builtin("kv_state_fork_sequence")(state, 0, 2, 1)
    step(state, 1, 2, add=100)
    assert [value(state, i)[0] + 1 for i in range(3)] == [30, 130, 110]
    builtin("kv_state_popn")(state, 1, 1)
    np.testing.assert_array_equal(value(state, 1), value(state, 0))


def begin(state, *args):
    builtin("kv_state_begin_forward")(state, *args)


MISTAKES = {
    "unknown": (KeyError, "no sequence 5", lambda s: begin(s, shape(5), shape(1))),
    "twice": (ValueError, "stands twice", lambda s: begin(s, shape(0, 0), shape(1, 1))),
    "no length": (ValueError, "as many lengths", lambda s: begin(s, shape(0), shape())),
    "zero": (ValueError, "cannot append 0", lambda s: begin(s, shape(0), shape(0))),
    "tree": (ValueError, "no parents", lambda s: begin(s, shape(0), shape(1), shape(-1))),
    "taken": (ValueError, "already", lambda s: builtin("kv_state_add_sequence")(s, 0)),
    "end": (RuntimeError, "without begin", lambda s: builtin("kv_state_end_forward")(s)),
    "outside": (
        RuntimeError,
        "after begin_forward",
        lambda s: builtin("rnn_state_get")(s, 0, 0, tensor([[0, 0]])),
    ),
    "layer": (IndexError, "2 layers of 2", lambda s: builtin("rnn_state_debug_get")(s, 2, 0, 0)),
    "not a state": (
        TypeError,
        "a KV cache or an RNN state",
        lambda s: builtin("kv_state_clear")(tensor([1])),
    ),
    "fork ahead": (
        ValueError,
        "cannot go back -4",
        lambda s: builtin("kv_state_fork_sequence")(s, 0, 1, 4),
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_errors(state, case):
    kind, message, act = MISTAKES[case]
    builtin("kv_state_add_sequence")(state, 0)
    with pytest.raises(kind, match=message):
        act(state)
    step(state, 0)
    np.testing.assert_array_equal(value(state, 0), FIRST[1] + 10)  # nothing was changed


def test_a_full_state_says_so_and_rows_must_fit(state):
    for i in range(SEQUENCES):
        builtin("kv_state_add_sequence")(state, i)
    with pytest.raises(RuntimeError, match="room for 4 sequences"):
        builtin("kv_state_add_sequence")(state, 99)
    begin(state, shape(0, 1), shape(1, 1))
    with pytest.raises(ValueError, match="does not fit a tensor"):
        builtin("rnn_state_set")(state, 0, 0, tensor([[1, 2]]))
    with pytest.raises(RuntimeError, match="between begin_forward and end_forward"):
        builtin("kv_state_remove_sequence")(state, 0)
    builtin("kv_state_clear")(state)
    builtin("kv_state_add_sequence")(state, 0)


def test_a_function_that_calls_back_is_refused(functions):
    get, _ = functions
    kept = []

    def again(*_args):
        builtin("kv_state_clear")(kept[0])

    kept.append(
        builtin("rnn_state_create")(1, 1, 1, [get], [tvm_ffi.convert(again)], [tensor(FIRST[0])])
    )
    builtin("kv_state_add_sequence")(kept[0], 0)
    begin(kept[0], shape(0), shape(1))
    with pytest.raises(RuntimeError, match="in use by another call"):
        builtin("rnn_state_set")(kept[0], 0, 0, tensor([[1, 2]]))


@pytest.mark.parametrize(
    "args, message",
    [((0, 1, 1), "at least one layer"), ((1, 1, 0), "at least one layer"), ((1, 0, 1), "sequence")],
)
def test_sizes_are_checked(functions, args, message):
    with pytest.raises(ValueError, match=message):
        builtin("rnn_state_create")(*args, [functions[0]], [functions[1]], [tensor(FIRST[0])])
