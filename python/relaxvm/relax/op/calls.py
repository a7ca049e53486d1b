# SPDX-License-Identifier: Apache-2.0
"""Operators whose Python form takes more than a row of the table can say: results' types, any number of arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.base import plain
from ...ir.expr import Call, Expr, GlobalVar
from ...tirx.expr import const
from ...tirx.index_map import IndexMap
from ..expr import ExternFunc, ShapeExpr, StringImm, Tuple, prim_value, to_expr
from ..type import TensorType, TupleType
from .build import ROWS, call_operator, make_function


def _result_type(out_ty: Any, types: Any = None) -> list[Any]:
    if out_ty is None:
        raise TypeError("the type of the result must be given: out_ty=R.Tensor(...)")
    if isinstance(out_ty, (list, tuple)) and len(out_ty) == 1:
        return [plain(out_ty[0])]
    if isinstance(out_ty, (list, tuple)):
        return [TupleType([plain(t) for t in out_ty])]
    return [plain(out_ty)]


def _types(ty_args: Any) -> list[Any]:
    if ty_args is None:
        return []
    if isinstance(ty_args, (list, tuple)):
        return [plain(t) for t in ty_args]
    return [plain(ty_args)]


def _tuple(args: Any) -> Expr:
    """Arguments as a tuple in line; a single expression is a tuple of one, unless it has tuple type."""
    if (
        isinstance(args, Expr)
        and not isinstance(args, Tuple)
        and not isinstance(args.ty, TupleType)
    ):
        return Tuple([args])
    return to_expr(args) if isinstance(args, (Expr, tuple, list)) else Tuple([to_expr(args)])


def _program_args(gvar: Any, args: Any, tir_vars: Any) -> list[Any]:
    if isinstance(gvar, str):
        raise TypeError(
            f'call_tir calls a tensor program of the module, not the packed function "{gvar}"; '
            "use call_dps_packed for that"
        )
    if not isinstance(gvar, GlobalVar):
        raise TypeError(
            "call_tir calls a tensor program of the module, by its GlobalVar (cls.name)"
        )
    values = [gvar, _tuple(args)]
    if tir_vars is not None:
        values.append(tir_vars if isinstance(tir_vars, Expr) else ShapeExpr(list(tir_vars)))
    return values


def call_tir(gvar: Any, args: Any, out_ty: Any = None, tir_vars: Any = None) -> Call:
    """Calls a tensor program on fresh results of type `out_ty` (a list: several results)."""
    return call_operator(
        "call_tir", _program_args(gvar, args, tir_vars), None, _result_type(out_ty)
    )


def call_tir_inplace(
    gvar: Any,
    args: Any,
    inplace_indices: int | Sequence[int] | None = None,
    out_ty: Any = None,
    tir_vars: Any = None,
) -> Call:
    """Calls a tensor program whose results overwrite arguments: per result an argument's index, or -1."""
    if inplace_indices is None:
        raise TypeError("call_tir_inplace: inplace_indices must be given")
    if not isinstance(args, (tuple, list, Tuple)) and isinstance(
        getattr(args, "ty", None), TupleType
    ):
        raise TypeError("call_tir_inplace: the arguments must be a tuple in line, (x, y)")
    indices = [inplace_indices] if isinstance(inplace_indices, int) else list(inplace_indices)
    attrs = {"inplace_indices": indices}
    return call_operator(
        "call_tir_inplace", _program_args(gvar, args, tir_vars), attrs, _result_type(out_ty)
    )


def call_tir_with_grad(
    gvar: Any,
    args: Any,
    out_ty: Any = None,
    te_grad_name: str = "",
    te_grad_kwargs: Mapping[str, Any] | None = None,
    tir_vars: Any = None,
) -> Call:
    """Calls a tensor program that names its gradient."""
    attrs = {"te_grad_name": te_grad_name, "te_grad_kwargs": dict(te_grad_kwargs or {})}
    return call_operator(
        "call_tir_with_grad", _program_args(gvar, args, tir_vars), attrs, _result_type(out_ty)
    )


def call_dps_packed(func: str | Expr, args: Any, out_ty: Any = None) -> Call:
    """Calls a packed function with the arguments and fresh results of type `out_ty` to write to."""
    callee = ExternFunc(func) if isinstance(func, str) else func
    return call_operator("call_dps_packed", [callee, _tuple(args)], None, _result_type(out_ty))


def call_packed(func: str, *args: Any, ty_args: Any = None, **kwargs: Any) -> Call:
    """Calls a packed function that may have effects; `ty_args` is the type of what it returns."""
    from ...ir.attrs import Attrs

    attrs = Attrs({k: plain(v) for k, v in kwargs.items()}) if kwargs else None
    return Call(ExternFunc(func), [to_expr(a) for a in args], attrs, _types(ty_args))


def call_pure_packed(func: str | Expr, *args: Any, ty_args: Any = None) -> Call:
    """Calls a packed function that has no effect besides its result."""
    if ty_args is None and isinstance(func, str):
        raise ValueError("call_pure_packed: the type of the result must be given: ty_args=R.Any")
    callee = ExternFunc(func) if isinstance(func, str) else func
    return call_operator("call_pure_packed", [callee, *map(to_expr, args)], None, _types(ty_args))


def call_inplace_packed(
    func: str | Expr, *args: Any, inplace_indices: int | Sequence[int] = (), ty_args: Any = None
) -> Call:
    """Calls a packed function whose results overwrite arguments."""
    callee = ExternFunc(func) if isinstance(func, str) else func
    indices = [inplace_indices] if isinstance(inplace_indices, int) else list(inplace_indices)
    attrs = {"inplace_indices": indices}
    return call_operator(
        "call_inplace_packed", [callee, *map(to_expr, args)], attrs, _types(ty_args)
    )


def call_builtin_with_ctx(func: str | Expr, args: Any, *, ty_args: Any = None) -> Call:
    """Calls a builtin of the VM that takes the running VM first."""
    callee = ExternFunc(func) if isinstance(func, str) else func
    return call_operator("call_builtin_with_ctx", [callee, _tuple(args)], None, _types(ty_args))


def call_py_func(func_name: str | Expr, args: Any, out_ty: Any = None, ty_args: Any = None) -> Call:
    """Calls a Python function registered with the VM."""
    types = _types(ty_args) if out_ty is None else _result_type(out_ty)
    return call_operator("call_py_func", [func_name, _tuple(args)], None, types)


def invoke_closure(closure: Expr, args: Any, ty_args: Any = None) -> Call:
    """Calls a closure."""
    return call_operator("invoke_closure", [closure, _tuple(args)], None, _types(ty_args))


def invoke_pure_closure(closure: Expr, args: Any, ty_args: Any = None) -> Call:
    """Calls a closure that has no effect besides its result."""
    return call_operator("invoke_pure_closure", [closure, _tuple(args)], None, _types(ty_args))


def make_closure(func: Expr, args: Any) -> Call:
    """A function of the module together with the values of its last parameters."""
    return call_operator("make_closure", [func, _tuple(args)])


def vm_call_tir_dyn(func: Expr, args: Any) -> Call:
    """Calls a tensor program with tensors and, last, a shape whose values are passed."""
    return call_operator("vm.call_tir_dyn", [func, _tuple(args)])


def print_(*values: Any, format: str | Expr = "") -> Call:
    """Prints values; `{}` in `format` stands for one."""
    if values and isinstance(values[0], StringImm) and format == "":
        return call_operator("print", list(values))
    text = StringImm(format) if isinstance(format, str) else format
    return call_operator("print", [text, *values])


def assert_op(condition: Any, format_args: Any = None, *more: Any, format: str | Expr = "") -> Call:
    """Stops with a message unless the condition holds."""
    if isinstance(condition, bool):
        condition = prim_value(condition)
    if isinstance(format_args, StringImm) and format == "":
        return call_operator("assert_op", [condition, format_args, *more])
    values = [] if format_args is None else format_args
    values = list(values) if isinstance(values, (tuple, list)) else [values]
    text = StringImm(format) if isinstance(format, str) else format
    return call_operator("assert_op", [condition, text, *values, *more])


def to_vdevice(data: Expr, dst_vdevice: Any) -> Call:
    """The tensor on another device."""
    if isinstance(dst_vdevice, str):
        from ...ir.devices import lookup_vdevice_text

        dst_vdevice = lookup_vdevice_text(dst_vdevice)
    return call_operator("to_vdevice", [data], {"dst_vdevice": dst_vdevice})


def hint_on_device(
    data: Expr,
    dst_vdevice: Any = None,
    memory_scope: str = "global",
    *,
    device_type: int | None = None,
    index: int | None = None,
) -> Call:
    """Says where a tensor should lie; a hint for the device pass."""
    if dst_vdevice is not None:
        device_type = int(dst_vdevice.dlpack_device_type())
        index = int(dst_vdevice.index)
    attrs = {"device_type": device_type, "index": index or 0, "memory_scope": memory_scope}
    return call_operator("hint_on_device", [data], attrs)


def call_op(name: str, args: Sequence[Any], **attrs: Any) -> Call:
    """A call of any operator by its full name."""
    return call_operator(name, list(args), attrs)


def arange(start: Any, end: Any = None, step: Any = 1, dtype: Any = None) -> Call:
    """Numbers from `start` up to, without, `end`; arange(n) counts from 0."""
    if end is None:
        start, end = 0, start
    return call_operator("arange", [start, end, step], {"dtype": dtype})


def eye(n: Any, m: Any = None, k: Any = 0, dtype: Any = "float32") -> Call:
    """Ones on the `k`-th diagonal of n rows and m (or n) columns."""
    return call_operator("eye", [n, n if m is None else m, k], {"dtype": dtype})


def layout_transform(
    x: Expr,
    index_map: Any,
    pad_value: Any = None,
    axis_separators: Sequence[int] | None = None,
    input_axis_separators: Sequence[int] | None = None,
) -> Call:
    """Stores each element where `index_map` says; places that get none hold `pad_value` (None: 0)."""
    if axis_separators or input_axis_separators:
        raise ValueError(
            "layout_transform: buffers have one physical axis; leave axis_separators out"
        )
    ty = x.ty
    if not isinstance(index_map, IndexMap):
        known = isinstance(ty, TensorType) and ty.ndim >= 0
        index_map = IndexMap.from_func(index_map, ty.ndim if known else None)
    if (
        isinstance(pad_value, (bool, int, float))
        and isinstance(ty, TensorType)
        and ty.dtype is not None
    ):
        pad_value = const(pad_value, ty.dtype)
    return call_operator("layout_transform", [x], {"index_map": index_map, "pad_value": pad_value})


def linear(data: Expr, weight: Expr, bias: Expr | None = None, out_dtype: Any = None) -> Call:
    """data @ weight^T + bias, made of permute_dims, matmul and add."""
    product = call_operator(
        "matmul", [data, call_operator("permute_dims", [weight])], {"out_dtype": out_dtype}
    )
    return product if bias is None else call_operator("add", [product, bias])


def _attention(base: Callable[..., Call]) -> Callable[..., Call]:
    """nn.attention, and nn.attention_bias when there is a bias."""
    biased = make_function(ROWS["nn.attention_bias"])

    @functools.wraps(base)
    def attention(
        query: Expr,
        key: Expr,
        value: Expr,
        bias: Expr | None = None,
        scale: float | None = None,
        causal_mask: str | None = None,
        window_size: int | None = None,
        softcap: float | None = None,
    ) -> Call:
        attrs = {
            "scale": scale,
            "causal_mask": causal_mask,
            "window_size": window_size,
            "softcap": softcap,
        }
        if bias is None:
            return base(query, key, value, **attrs)
        return biased(query, key, value, bias, **attrs)

    del attention.__dict__["__signature__"]
    del attention.__wrapped__  # type: ignore[attr-defined]
    return attention


def masked_fill(x: Expr, mask: Expr, value: Expr | float) -> Call:
    """`value` where the mask is true, else x."""
    fill = value if isinstance(value, Expr) else prim_value(value)
    if isinstance(value, (bool, int, float)) and isinstance(x.ty, TensorType) and x.ty.dtype:
        fill = const(value, x.ty.dtype)
    return call_operator("where", [mask, call_operator("full_like", [x, fill]), x])


def relu6(data: Expr) -> Call:
    """Between 0 and 6."""
    return make_function(ROWS["clip"])(data, 0, 6)


def register_gradient(
    op_name: str, fgradient: Callable[..., Any] | None = None, level: int = 10
) -> Any:
    """Says how an operator is differentiated; a decorator without a function.

    `fgradient(result, call, gradient, builder)` gives an expression for each argument, `grad.no_grad` of one that
    has no gradient. It goes before the operator's own rule."""
    from ...ir.op import register_op_attr

    return register_op_attr(op_name, "FPrimalGradient", fgradient, level)


def _is_scalar(value: Any) -> bool:
    from ...ir.type import PrimType

    return isinstance(value, int) or (isinstance(value, Expr) and isinstance(value.ty, PrimType))


def _with_size(name: str, count: int) -> Callable[..., Call]:
    """The operator's function; one number as `size` stands for all axes."""
    base = make_function(ROWS[name])

    @functools.wraps(base)
    def function(data: Expr, size: Any, *args: Any, **attrs: Any) -> Call:
        return base(data, [size] * count if _is_scalar(size) else size, *args, **attrs)

    return function


def _with_shape(name: str) -> Callable[..., Call]:
    """The operator's function, which takes no number for a shape."""
    base = make_function(ROWS[name])

    @functools.wraps(base)
    def function(shape: Any, *args: Any, **attrs: Any) -> Call:
        if _is_scalar(shape):
            raise TypeError(f"{name}: shape must be a list of extents or a shape, got {shape}")
        return base(shape, *args, **attrs)

    return function


# Operators of the table with a hand-written function.
SPECIAL: dict[str, Callable[..., Call]] = {
    "arange": arange,
    "assert_op": assert_op,
    "call_builtin_with_ctx": call_builtin_with_ctx,
    "call_dps_packed": call_dps_packed,
    "call_inplace_packed": call_inplace_packed,
    "call_pure_packed": call_pure_packed,
    "call_py_func": call_py_func,
    "call_tir": call_tir,
    "call_tir_inplace": call_tir_inplace,
    "call_tir_with_grad": call_tir_with_grad,
    "eye": eye,
    "full": _with_shape("full"),
    "hint_on_device": hint_on_device,
    "image.affine_grid": _with_size("image.affine_grid", 2),
    "image.resize2d": _with_size("image.resize2d", 2),
    "image.resize3d": _with_size("image.resize3d", 3),
    "invoke_closure": invoke_closure,
    "invoke_pure_closure": invoke_pure_closure,
    "layout_transform": layout_transform,
    "make_closure": make_closure,
    "nn.attention": _attention(make_function(ROWS["nn.attention"])),
    "ones": _with_shape("ones"),
    "print": print_,
    "to_vdevice": to_vdevice,
    "vm.call_tir_dyn": vm_call_tir_dyn,
    "zeros": _with_shape("zeros"),
}

# Functions beside the table: name -> (sub-packages, function).
EXTRA: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "call_op": ((), call_op),
    "call_packed": ((), call_packed),
    "linear": ((), linear),
    "masked_fill": ((), masked_fill),
    "register_gradient": ((), register_gradient),
    "relu6": (("nn",), relu6),
}
