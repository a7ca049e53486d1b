# SPDX-License-Identifier: Apache-2.0
"""Operators whose results are those of the table and whose parameters have other names in topi."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

from .. import tirx
from ..ir.base import plain
from ..te.tensor import Tensor
from .operators import OPERATORS as op

# What the two-sided operators do to numbers.
_ON_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": tirx.add,
    "subtract": tirx.subtract,
    "multiply": tirx.multiply,
    "divide": tirx.div,
    "floor_divide": tirx.floordiv,
    "mod": tirx.truncmod,
    "floor_mod": tirx.floormod,
    "maximum": tirx.max,
    "minimum": tirx.min,
    "power": tirx.pow,
    "atan2": tirx.atan2,
    "log_add_exp": tirx.logaddexp,
    "left_shift": tirx.shift_left,
    "right_shift": tirx.shift_right,
    "bitwise_and": tirx.bitwise_and,
    "bitwise_or": tirx.bitwise_or,
    "bitwise_xor": tirx.bitwise_xor,
    "logical_and": tirx.all,
    "logical_or": tirx.any,
    "logical_xor": operator.ne,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
_OF_ONE = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor isfinite isinf isnan log negative round rsqrt "
    "sigmoid sign sin sinh sqrt tan tanh trunc nn.relu"
).split()


def _multibox_arguments(
    cls_pred: Tensor,
    loc_pred: Tensor,
    anchor: Tensor,
    variances: Any,
    clip: bool = False,
    threshold: float = 0.0,
    keep_background: bool = True,
    apply_softmax: bool = True,
) -> tuple[Any, ...]:
    attrs = (clip, threshold, list(variances), keep_background, apply_softmax)
    return (cls_pred, loc_pred, anchor, *attrs)


def _roi_align_arguments(
    data: Tensor,
    rois: Tensor,
    pooled_size: Any,
    spatial_scale: float,
    mode: str = "avg",
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: str = "NCHW",
) -> tuple[Any, ...]:
    return (data, rois, pooled_size, spatial_scale, sample_ratio, aligned, layout, mode)


# topi's parameters, and what of them the operator takes.
_PARAMETERS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "broadcast_to": lambda data, shape: (data, tuple(shape)),
    "cumprod": lambda data, axis=None, dtype=None, exclusive=None: (
        data,
        axis,
        dtype,
        bool(exclusive),
    ),
    "cumsum": lambda data, axis=None, dtype=None, exclusive=None: (
        data,
        axis,
        dtype,
        bool(exclusive),
    ),
    "eye": lambda n, m=None, k=0, dtype="float32": (n, n if m is None else m, k, dtype),
    "flip": lambda a, axis=0: (a, axis),
    "hamming_window": lambda window_size, periodic, alpha, beta, dtype: (
        window_size,
        periodic,
        alpha,
        beta,
        dtype,
    ),
    "index_put": lambda data, indices, values, accumulate=False: (
        data,
        indices,
        values,
        accumulate,
    ),
    "index_tensor": lambda data, indices: (data, indices),
    "meshgrid": lambda a_tuple, indexing: (list(a_tuple), indexing),
    "repeat": lambda a, repeats, axis: (a, repeats, axis),
    "reverse_sequence": lambda a, seq_lengths, seq_axis=1, batch_axis=0: (
        a,
        seq_lengths,
        seq_axis,
        batch_axis,
    ),
    "scatter_elements": lambda data, indices, updates, axis=0, reduction="update": (
        data,
        indices,
        updates,
        axis,
        reduction,
    ),
    "slice_scatter": lambda input_tensor, src, start, end, step, axis: (
        input_tensor,
        src,
        start,
        end,
        step,
        axis,
    ),
    "squeeze": lambda a, axis=None: (a, axis),
    "tile": lambda a, reps: (a, [reps] if isinstance(reps, int) else list(reps)),
    "max": lambda data, axis=None, keepdims=False: (data, axis, keepdims),
    "min": lambda data, axis=None, keepdims=False: (data, axis, keepdims),
    "prod": lambda data, axis=None, keepdims=False: (data, axis, keepdims),
    "sum": lambda data, axis=None, keepdims=False: (data, axis, keepdims),
    "bitwise_not": lambda data: (data,),
    "logical_not": lambda data: (data,),
    "image.affine_grid": lambda data, target_shape, align_corners=True: (
        data,
        tuple(target_shape),
        align_corners,
    ),
    "where": lambda condition, x, y: (condition, x, y),
    "nn.group_norm": lambda data, gamma, beta, num_groups, channel_axis, axes, epsilon=1e-05: (
        data,
        gamma,
        beta,
        num_groups,
        channel_axis,
        axes,
        epsilon,
    ),
    "nn.log_softmax": lambda x, axis=-1: (x, axis),
    "nn.nll_loss": lambda predictions, targets, weights, reduction, ignore_index: (
        predictions,
        targets,
        weights,
        reduction,
        ignore_index,
    ),
    "nn.prelu": lambda x, slope, axis=1: (x, slope, axis),
    "nn.softmax": lambda x, axis=-1: (x, axis),
    "nn.softplus": lambda x, beta=1.0, threshold=20.0: (x, beta, threshold),
    "vision.multibox_transform_loc": _multibox_arguments,
    "vision.roi_align": _roi_align_arguments,
    "vision.roi_pool": lambda data, rois, pooled_size, spatial_scale, layout="NCHW": (
        data,
        rois,
        pooled_size,
        spatial_scale,
        layout,
    ),
}


def _renamed(name: str, arguments: Callable[..., tuple[Any, ...]]) -> Callable[..., Any]:
    operator_function = op[name]

    def function(*args: Any, **kwargs: Any) -> Any:
        return operator_function(*arguments(*args, **kwargs))

    function.__name__, function.__doc__ = operator_function.__name__, operator_function.__doc__
    function.__signature__ = inspect.signature(arguments)  # type: ignore[attr-defined]
    return function


def _beside(number: Any, tensor: Tensor) -> Any:
    """A number, or a scalar, with the element type of the tensor that it meets."""
    dtype = str(tensor.dtype)
    if isinstance(number, (bool, int, float)):
        return tirx.const(number, dtype)
    value = plain(number)
    return value if str(value.dtype) == dtype else value.astype(dtype)


def _two_sided(name: str, on_numbers: Callable[..., Any]) -> Callable[..., Any]:
    def function(lhs: Any, rhs: Any) -> Any:
        left, right = isinstance(lhs, Tensor), isinstance(rhs, Tensor)
        if not left and not right:
            return on_numbers(lhs, rhs)
        return op[name](lhs if left else _beside(lhs, rhs), rhs if right else _beside(rhs, lhs))

    function.__name__, function.__doc__ = (
        name,
        f"{op[name].__doc__} Numbers take the tensor's type.",
    )
    return function


FUNCTIONS = {
    **{name: _renamed(name, lambda x: (x,)) for name in _OF_ONE},
    **{name: _renamed(name, arguments) for name, arguments in _PARAMETERS.items()},
    **{name: _two_sided(name, on_numbers) for name, on_numbers in _ON_NUMBERS.items()},
}
