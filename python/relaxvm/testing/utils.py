# SPDX-License-Identifier: Apache-2.0
"""Gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# Central differences: {offset in steps: weight}.
_THREE_POINTS = {1: 1 / 2, -1: -1 / 2}
_FIVE_POINTS = {2: -1 / 12, 1: 2 / 3, -1: -2 / 3, -2: 1 / 12}


def _slope(value: Callable[[np.ndarray], float], x: np.ndarray, weights: Any, step: float) -> Any:
    result = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        for offset, weight in weights.items():
            moved = x.copy()
            moved[at] += offset * step
            result[at] += weight * value(moved) / step
    return result


def check_numerical_grads(
    function: Callable[..., Any],
    input_values: Sequence[Any] | Mapping[str, Any],
    grad_values: Sequence[Any] | Mapping[str, Any],
    function_value: float | None = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
) -> None:
    """Checks gradients of `function` by finite differences.

    function: takes arrays, in order or by name, and gives a scalar; input_values, grad_values: arrays in order
    or by name; delta: the step. A gradient of n elements may be `atol * sqrt(n) + rtol * norm` away. Raises
    AssertionError for one that is further away, or of another shape, or for another `function_value`."""
    names = list(input_values) if isinstance(input_values, Mapping) else range(len(input_values))
    if len(grad_values) != len(names):
        raise AssertionError(f"{len(grad_values)} gradients are given for {len(names)} inputs")
    inputs: dict[Any, np.ndarray] = {n: np.asarray(input_values[n]) for n in names}  # type: ignore

    def call(values: dict[Any, np.ndarray]) -> float:
        if isinstance(input_values, Mapping):
            return float(function(**values))
        return float(function(*values.values()))

    if function_value is not None:
        np.testing.assert_allclose(call(inputs), function_value, atol=atol, rtol=rtol)
    for name in names:
        grad = np.asarray(grad_values[name])  # type: ignore[index, call-overload]
        x = inputs[name]
        if grad.shape != x.shape:
            raise AssertionError(
                f"the gradient by {name!r} has shape {grad.shape}, its input {x.shape}"
            )

        def value(moved: np.ndarray, name: Any = name) -> float:
            return call({**inputs, name: moved})

        allowed = atol * np.sqrt(grad.size) + rtol * np.linalg.norm(grad)
        for weights in (_THREE_POINTS, _FIVE_POINTS):
            slope = _slope(value, x, weights, delta)
            distance = np.linalg.norm(slope - grad)
            if distance <= allowed:
                break
        else:
            raise AssertionError(
                f"the gradient by {name!r} is {distance:g} away from finite differences, allowed are "
                f"{allowed:g}\ngiven:  {grad}\nslopes: {slope}"
            )
