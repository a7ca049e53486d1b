# SPDX-License-Identifier: Apache-2.0
"""Random numbers: a counter is hashed, so that with the same seed the numbers are the same in every run.

The hash of 32 bits is `lowbias32` of C. Wellons, "Prospecting for hash functions" (2018).
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxvm import relax
from relaxvm.relax import op

Emit = Callable[[Any], Any]
Words = tuple[Any, Any]  # two numbers of 32 bits, the seed

SEED = "vm.builtin.random_seed"  # gives 64 random bits, others at each call
SEED_TYPE = relax.TensorType((), "int64")

# 0 is what the hash makes of 0: a seed of 0 is another number.
_SEED_OF_ZERO = 0x9E3779B97F4A7C15


def known_words(seed: float) -> Words:
    bits = struct.unpack("<Q", struct.pack("<d", float(seed)))[0] ^ _SEED_OF_ZERO
    return _word(bits & 0xFFFFFFFF), _word(bits >> 32)


def words_of(emit: Emit, bits: Any) -> Words:
    """Of a result of SEED."""
    words = emit(op.memory.view(op.reshape(bits, [1]), [2], "uint32"))
    pick = lambda i: emit(op.take(words, relax.const(np.int64(i)), axis=0))
    return pick(0), pick(1)


def bits(emit: Emit, shape: Sequence[Any], words: Words, stream: int = 0) -> Any:
    """32 random bits for each element of `shape`; streams are independent."""
    count = functools.reduce(operator.mul, shape, 1)
    numbers = emit(op.astype(op.arange(0, count, 1, dtype="int64"), "uint32"))
    first = _mixed(emit, op.add(words[0], _word(stream * 0x9E3779B9 & 0xFFFFFFFF)))
    x = _mixed(emit, emit(op.bitwise_xor(numbers, first)))
    x = _mixed(emit, emit(op.add(x, words[1])))
    return emit(op.reshape(x, list(shape)))


def uniform(
    emit: Emit, shape: Sequence[Any], words: Words, dtype: str = "float32", stream: int = 0
) -> Any:
    """Numbers in [0, 1), multiples of 2^-24 (float64: of 2^-53)."""
    number = lambda v: relax.const(np.asarray(v, dtype))
    top = op.right_shift(bits(emit, shape, words, 2 * stream), _word(8))
    unit = op.multiply(op.astype(top, dtype), number(2.0**-24))
    if dtype == "float32":
        return emit(unit)
    low = op.right_shift(bits(emit, shape, words, 2 * stream + 1), _word(3))
    return emit(op.add(unit, op.multiply(op.astype(low, dtype), number(2.0**-53))))


def normal(emit: Emit, shape: Sequence[Any], words: Words, dtype: str = "float32") -> Any:
    """Numbers of mean 0 and variance 1, float32 or float64, by the transform of Box and Muller."""
    number = lambda v: relax.const(np.asarray(v, dtype))
    length = op.log(op.subtract(number(1), uniform(emit, shape, words, dtype, 0)))
    length = op.sqrt(op.multiply(number(-2.0), length))
    angle = op.multiply(number(2 * math.pi), uniform(emit, shape, words, dtype, 1))
    return emit(op.multiply(length, op.cos(angle)))


def _word(value: int) -> Any:
    return relax.const(np.asarray(value, "uint32"))


def _mixed(emit: Emit, x: Any) -> Any:
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, None)):
        x = emit(op.bitwise_xor(x, op.right_shift(x, _word(shift))))
        x = x if factor is None else emit(op.multiply(x, _word(factor)))
    return x
