# SPDX-License-Identifier: Apache-2.0
"""Functions on arrays whose topi name, or parameters, are not those of the operator that computes them."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Sequence
from typing import Any

from .. import te, tirx
from ..ir.base import plain
from ..te.tensor import Tensor, compute
from .operators import OPERATORS as op

Ints = int | Sequence[int]


def _ints(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else [int(v) for v in value]


def identity(x: Tensor) -> Tensor:
    """A copy of `x`."""
    return compute(x.shape, lambda *i: x(*i), name="T_identity")


def cast(x: Tensor, dtype: Any, span: Any = None) -> Tensor:
    """`x` as another element type."""
    return op["astype"](x, dtype=str(dtype))


def _logarithm(name: str) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        return compute(x.shape, lambda *i: getattr(tirx, name)(x(*i)), name="compute")

    function.__name__ = name
    function.__doc__ = f"{name} of each element."
    return function


log2, log10 = _logarithm("log2"), _logarithm("log10")


def reinterpret(x: Tensor, dtype: Any) -> Tensor:
    """The bits of each element as another element type of that size."""
    return compute(x.shape, lambda *i: tirx.reinterpret(str(dtype), x(*i)), name="T_reinterpret")


def clip(x: Tensor, a_min: Any, a_max: Any) -> Tensor:
    """Elements below `a_min` or above `a_max` become those."""
    return op["clip"](x, a_min, a_max)


def full_like(x: Tensor, fill_value: Any) -> Tensor:
    """A tensor like `x` of one value."""
    return full(x.shape, x.dtype, fill_value)


def full(shape: Any, dtype: Any, fill_value: Any) -> Tensor:
    """A tensor of one value."""
    value = plain(fill_value)
    name = str(plain(dtype))
    value = tirx.const(value, name) if isinstance(value, (int, float)) else value.astype(name)
    return compute(shape, lambda *i: value, name="T_full")


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = "float32") -> Tensor:
    """start, start + step ... below stop; `arange(stop)` starts at 0."""
    first, last = (0, start) if stop is None else (start, stop)
    return op["arange"](first, last, step, dtype=str(dtype))


def one_hot(
    indices: Tensor, on_value: Any, off_value: Any, depth: int, axis: int, dtype: Any
) -> Tensor:
    """`on_value` at the index along a new axis of extent `depth`, elsewhere `off_value`."""
    name = str(dtype)
    on, off = (
        tirx.const(v, name) if isinstance(v, (int, float)) else plain(v).astype(name)
        for v in (on_value, off_value)
    )
    return op["one_hot"](indices, on, off, depth=depth, axis=axis)


def const_vector(vector: Any, name: str = "const_vector") -> Tensor:
    """The elements of a NumPy vector."""
    dtype, values = vector.dtype.name, vector.tolist()

    def formula(i: Any) -> Any:
        value = tirx.const(values[-1], dtype)
        for k in reversed(range(len(values) - 1)):
            value = tirx.Select(i == k, tirx.const(values[k], dtype), value)
        return value

    return compute((len(values),), formula, name=name)


# ---- reductions


def _select(name: str) -> Callable[..., Tensor]:
    def function(
        data: Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False
    ) -> Tensor:
        if select_last_index:
            raise NotImplementedError(f"topi.{name} gives the first of equal elements; flip data")
        return cast(op[name](data, axis=axis, keepdims=keepdims), "int32")

    function.__name__ = name
    function.__doc__ = f"The index (int32) of the first {name[3:]}imum along `axis`, or of all."
    return function


argmax, argmin = _select("argmax"), _select("argmin")


def _condition(name: str, reduce: str) -> Callable[..., Tensor]:
    def function(data: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
        if str(data.dtype) != "bool":
            raise TypeError(f"topi.{name} takes a tensor of bool, not of {data.dtype}; compare it")
        return cast(op[reduce](cast(data, "int8"), axis=axis, keepdims=keepdims), "bool")

    function.__name__ = name
    function.__doc__ = f"Whether {name} of the elements along `axis` are true."
    return function


all, any = _condition("all", "min"), _condition("any", "max")


def elemwise_sum(xs: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape."""
    total = xs[0]
    for x in xs[1:]:
        total = op["add"](total, x)
    return total


# ---- shapes and places


def transpose(a: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Dimension `axes[i]` of `a` becomes dimension i; reversed without `axes`."""
    return op["permute_dims"](a, axes=None if axes is None else _ints(axes))


def reshape(a: Tensor, newshape: Any) -> Tensor:
    """The elements in their order, in another shape."""
    return op["reshape"](a, newshape)


def expand_dims(a: Tensor, axis: Ints, num_newaxis: int = 1) -> Tensor:
    """`num_newaxis` dimensions of extent 1 from `axis` on."""
    axes = _ints(axis)
    if num_newaxis != 1:
        first = axes[0] + (a.ndim + 1 if axes[0] < 0 else 0)
        axes = list(range(first, first + num_newaxis))
    return op["expand_dims"](a, axis=axes)


def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after another along `axis`."""
    return op["concat"](list(a_tuple), axis=axis)


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors along a new axis."""
    return op["stack"](list(tensors), axis=axis)


def split(ary: Tensor, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """Equal parts, or the parts that begin at the indices; always a list."""
    parts = op["split"](ary, indices_or_sections=indices_or_sections, axis=axis)
    return parts if isinstance(parts, list) else [parts]


def trilu(data: Tensor, k: Any, upper: bool) -> Tensor:
    """The upper or the lower triangle of matrices, from diagonal `k` on."""
    return op["triu" if upper else "tril"](data, k)


def shape(array: Tensor, dtype: str = "int32") -> Tensor:
    """The extents of an array as a tensor."""
    extents = [e.astype(dtype) for e in array.shape]

    def formula(i: Any) -> Any:
        value = extents[-1]
        for k in reversed(range(len(extents) - 1)):
            value = tirx.Select(i == k, extents[k], value)
        return value

    return compute((len(extents),), formula, name="T_shape")


def sequence_mask(
    data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0
) -> Tensor:
    """`mask_value` from place valid_length[batch] on along `axis`, 0 or 1; the batches are along the other one."""
    if axis not in (0, 1):
        raise ValueError(f"topi.sequence_mask: axis must be 0 or 1, not {axis}")

    def formula(*i: Any) -> Any:
        inside = i[axis] < valid_length(i[1 - axis]).astype("int64")
        return tirx.Select(inside, data(*i), tirx.const(mask_value, str(data.dtype)))

    return compute(data.shape, formula, name="T_sequence_mask")


def _letters(layout: str) -> list[tuple[str, int]]:
    """The axes of a layout: "NCHW4c" is N, C, H, W and the 4 innermost of C; 0 is no block."""
    found = re.findall(r"(\d*)([A-Za-z])", layout)
    if "".join(n + c for n, c in found) != layout or builtins.any(
        bool(n) != c.islower() for n, c in found
    ):
        raise ValueError(f'layout {layout!r} is not written as "NCHW" or "NCHW4c"')
    return [(c, int(n or 0)) for n, c in found]


def layout_transform(array: Tensor, src_layout: str, dst_layout: str) -> Tensor:
    """An array in another order of its axes, of which some may be blocked: "NCHW" to "NHWC" or "NCHW4c"."""
    source, target = _letters(src_layout), _letters(dst_layout)
    if {c.upper() for c, _ in source} != {c.upper() for c, _ in target}:
        raise ValueError(f"layouts {src_layout!r} and {dst_layout!r} have other axes")
    extents: dict[str, Any] = {}
    for (letter, _), extent in zip(source, array.shape):
        extents[letter.upper()] = extents.get(letter.upper(), 1) * extent
    old, new = ({c.upper(): n for c, n in axes if n} for axes in (source, target))
    shape = [n or extents[c] // new.get(c, 1) for c, n in target]

    def formula(*i: Any) -> Any:
        places: dict[str, Any] = {}
        for (letter, n), index in zip(target, i):
            weight = 1 if n else new.get(letter, 1)
            places[letter.upper()] = places.get(letter.upper(), 0) + index * weight
        return array(
            *(places[c.upper()] % n if n else places[c] // old.get(c, 1) for c, n in source)
        )

    return compute(shape, formula, name="T_layout_trans")


def expand_like(a: Tensor, shape_like: Tensor, axis: Ints) -> Tensor:
    """`a` repeated along new dimensions `axis`, so that it gets the shape of `shape_like`."""
    new = {x % shape_like.ndim for x in _ints(axis)}
    kept = [d for d in range(shape_like.ndim) if d not in new]
    if len(kept) != a.ndim and not (a.ndim == 1 and not kept):
        raise ValueError(
            f"expand_like: {a.ndim} dimensions and {len(new)} new ones are not {shape_like.ndim}"
        )
    return compute(
        shape_like.shape, lambda *i: a(*([i[d] for d in kept] or [0])), name="T_expand_like"
    )


def collapse_sum(data: Tensor, target_shape: Sequence[Any]) -> Tensor:
    """The sum over the dimensions along which an array of `target_shape` was broadcast to `data`."""
    return op["collapse_sum_to"](data, tuple(target_shape))


def dyn_tile(a: Tensor, new_shape: Sequence[Any], rdim: int) -> Tensor:
    """`a` again and again until it has `new_shape`, of at least `rdim` dimensions."""
    lead = len(new_shape) - a.ndim
    if len(new_shape) != max(rdim, a.ndim):
        raise ValueError(
            f"dyn_tile: new_shape has {len(new_shape)} dimensions, not {max(rdim, a.ndim)}"
        )
    return compute(
        list(new_shape),
        lambda *i: a(*(x % n for x, n in zip(i[lead:], a.shape))),
        name="T_tile",
    )


def tensor_size(array: Tensor, dtype: str = "int32") -> Tensor:
    """How many elements an array has, as a tensor."""
    total: Any = tirx.const(1, "int64")
    for extent in array.shape:
        total = total * extent
    return compute((), lambda: total.astype(dtype), name="T_tensor_size")


# ---- order


def sort(data: Tensor, axis: int = -1, is_ascend: int = 1) -> Tensor:
    """The elements along `axis` in order."""
    return op["sort"](data, axis=axis, descending=not is_ascend)


def argsort(
    data: Tensor,
    valid_count: Tensor | None = None,
    axis: int = -1,
    is_ascend: int = 1,
    dtype: str = "float32",
) -> Tensor:
    """The places of the elements along `axis` in their order."""
    if valid_count is not None:
        raise NotImplementedError("topi.argsort: valid_count; slice data first")
    return cast(op["argsort"](data, axis=axis, descending=not is_ascend), dtype)


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int64",
) -> Any:
    """The `k` greatest elements along `axis`, or the least with `is_ascend`: values, indices or both."""
    return op["topk"](data, k=k, axis=axis, ret_type=ret_type, largest=not is_ascend, dtype=dtype)


# ---- products


def matmul(
    a: Tensor, b: Tensor, transp_a: bool = False, transp_b: bool = False, out_dtype: Any = None
) -> Tensor:
    """The product of matrices, each transposed on demand."""
    a = transpose_last(a) if transp_a else a
    b = transpose_last(b) if transp_b else b
    return op["matmul"](a, b, out_dtype=out_dtype)


def transpose_last(a: Tensor) -> Tensor:
    """The last two dimensions swapped."""
    return transpose(a, [*range(a.ndim - 2), a.ndim - 1, a.ndim - 2])


def tensordot(a: Tensor, b: Tensor, axes: Any) -> Tensor:
    """Sums over the last `axes` dimensions of `a` and the first of `b`, or over the axes named for each."""
    if isinstance(axes, int):
        of_a, of_b = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        of_a, of_b = ([x % t.ndim for x in _ints(named)] for t, named in zip((a, b), axes))
    kept_a = [x for x in range(a.ndim) if x not in of_a]
    kept_b = [x for x in range(b.ndim) if x not in of_b]
    sums = [te.reduce_axis((0, a.shape[x]), f"k{n}") for n, x in enumerate(of_a)]

    def formula(*i: Any) -> Any:
        left = dict(zip(kept_a, i)) | dict(zip(of_a, sums))
        right = dict(zip(kept_b, i[len(kept_a) :])) | dict(zip(of_b, sums))
        x = a(*(left[d] for d in range(a.ndim)))
        return te.sum(x * b(*(right[d] for d in range(b.ndim))), axis=sums)

    extents = [*(a.shape[x] for x in kept_a), *(b.shape[x] for x in kept_b)]
    return compute(extents, formula, name="T_tensordot")


def einsum(subscripts: str, *operands: Tensor) -> Tensor:
    """Einstein's sum: "ij,jk->ik"."""
    return op["einsum"](list(operands), subscripts=subscripts)
