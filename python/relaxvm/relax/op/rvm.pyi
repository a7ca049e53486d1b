# SPDX-License-Identifier: Apache-2.0
# Written by tools/make_stubs.py from the compiler's tables.
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxvm.ir.expr import Call, Expr

# An expression, or what becomes one: a number, an array, a tuple.
Argument = Any

def gru(x: Argument, r: Argument, initial_h: Argument, bias: Argument, lengths: Argument = None, activations: str = '', alpha: Sequence[float] = ..., beta: Sequence[float] = ..., clip: float = 0.0, direction: str = 'forward', linear_before_reset: bool = False) -> Call: ...
def lstm(x: Argument, r: Argument, initial_h: Argument, initial_c: Argument, lengths: Argument = None, peepholes: Argument = None, activations: str = '', alpha: Sequence[float] = ..., beta: Sequence[float] = ..., clip: float = 0.0, direction: str = 'forward', input_forget: bool = False) -> Call: ...
def resize_weights(scale: Argument, window: Argument, sizes: Argument, mode: str = 'linear', coordinates: str = 'half_pixel', rounding: str = 'round_prefer_floor', cubic_alpha: float = -0.75, exclude_outside: bool = False, antialias: bool = False) -> Call: ...
def rnn(x: Argument, r: Argument, initial_h: Argument, lengths: Argument = None, activations: str = '', alpha: Sequence[float] = ..., beta: Sequence[float] = ..., clip: float = 0.0, direction: str = 'forward') -> Call: ...
