# SPDX-License-Identifier: Apache-2.0
"""Operators whose results are those of the table and whose parameters have other names in topi."""

from __future__ import annotations

import ast
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


def _scan_arguments(
    data: Tensor, axis: Any = None, dtype: Any = None, exclusive: Any = None
) -> tuple[Any, ...]:
    return (data, axis, dtype, bool(exclusive))


def _affine_grid_arguments(
    data: Tensor, target_shape: Any, align_corners: bool = True
) -> tuple[Any, ...]:
    return (data, tuple(target_shape), align_corners)


# topi's parameters where the operator takes others, and those.
_ARGUMENTS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "broadcast_to": lambda data, shape: (data, tuple(shape)),
    "cumprod": _scan_arguments,
    "cumsum": _scan_arguments,
    "eye": lambda n, m=None, k=0, dtype="float32": (n, n if m is None else m, k, dtype),
    "image.affine_grid": _affine_grid_arguments,
    "meshgrid": lambda a_tuple, indexing: (list(a_tuple), indexing),
    "tile": lambda a, reps: (a, [reps] if isinstance(reps, int) else list(reps)),
    "vision.multibox_transform_loc": _multibox_arguments,
    "vision.roi_align": _roi_align_arguments,
}
# topi's parameters where the operator takes the same in this order.
_PARAMETERS = {
    **dict.fromkeys(_OF_ONE, "x"),
    **dict.fromkeys(["max", "min", "prod", "sum"], "data axis=None keepdims=False"),
    **dict.fromkeys(["bitwise_not", "logical_not"], "data"),
    **dict.fromkeys(["nn.log_softmax", "nn.softmax"], "x axis=-1"),
    "flip": "a axis=0",
    "hamming_window": "window_size periodic alpha beta dtype",
    "index_put": "data indices values accumulate=False",
    "index_tensor": "data indices",
    "nn.group_norm": "data gamma beta num_groups channel_axis axes epsilon=1e-05",
    "nn.nll_loss": "predictions targets weights reduction ignore_index",
    "nn.prelu": "x slope axis=1",
    "nn.softplus": "x beta=1.0 threshold=20.0",
    "repeat": "a repeats axis",
    "reverse_sequence": "a seq_lengths seq_axis=1 batch_axis=0",
    "scatter_elements": "data indices updates axis=0 reduction='update'",
    "slice_scatter": "input_tensor src start end step axis",
    "squeeze": "a axis=None",
    "vision.roi_pool": "data rois pooled_size spatial_scale layout='NCHW'",
    "where": "condition x y",
}


def _signature(parameters: str) -> inspect.Signature:
    """Of "data axis=0": names, some with defaults."""
    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    pairs = (text.partition("=")[::2] for text in parameters.split())
    return inspect.Signature(
        [
            inspect.Parameter(name, kind, default=ast.literal_eval(value) if value else empty)
            for name, value in pairs
        ]
    )


def _renamed(
    name: str, signature: inspect.Signature, arguments: Callable[..., tuple[Any, ...]]
) -> Callable[..., Any]:
    operator_function = op[name]

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return operator_function(*arguments(*bound.args))

    function.__name__, function.__doc__ = operator_function.__name__, operator_function.__doc__
    function.__signature__ = signature  # type: ignore[attr-defined]
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
    **{name: _renamed(name, _signature(p), lambda *args: args) for name, p in _PARAMETERS.items()},
    **{name: _renamed(name, inspect.signature(a), a) for name, a in _ARGUMENTS.items()},
    **{name: _two_sided(name, on_numbers) for name, on_numbers in _ON_NUMBERS.items()},
}
