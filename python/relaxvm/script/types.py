# SPDX-License-Identifier: Apache-2.0
"""Types as scripts write them.  A dimension may be a string, resolved where the script's names are
known; a name such as R.Tensor without a call is a type too."""

from __future__ import annotations

import ast
import typing
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.base import plain
from ..ir.expr import Expr, Var
from ..ir.type import FuncType, PrimType, TupleType, Type
from ..relax.data_type import AdtDef, Constructor
from ..relax.type import AdtType, AnyType, NothingType, ShapeType, TensorType

Resolve = Callable[[str], Expr]


class Annotation:
    """A type of which parts may have to be resolved."""

    def resolve(self, dim: Resolve) -> Type:
        raise NotImplementedError

    def as_object(self) -> Type:
        """The type on its own: names in it are fresh variables."""
        known: dict[str, Var] = {}

        def dim(text: str) -> Expr:
            from ..tirx import op as scalar

            names = {
                n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)
            }
            for name in names - {"T"}:
                known.setdefault(name, Var(name, "int64"))
            return eval(text, {"T": scalar, **known})

        return self.resolve(dim)

    def as_ty(self) -> Type:
        """as_object, by its older name."""
        return self.as_object()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self} is a type and cannot be called")

    def __eq__(self, other: object) -> bool:
        return self.as_object() == plain(other)

    def __hash__(self) -> int:
        return id(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.as_object(), name)


def resolve_type(value: Any, dim: Resolve) -> Type:
    """The type that an annotation's value stands for."""
    if isinstance(value, Annotation):
        return value.resolve(dim)
    value = plain(value)
    if callable(value) and isinstance(getattr(value, "bare", None), Annotation):
        return value.bare.resolve(dim)
    if value is None:
        return TupleType([])
    if isinstance(value, AdtDef):
        return value.bare_type()
    if isinstance(value, Constructor):
        raise TypeError(
            f"{value.adt.name}.{value.name} is a constructor; the type is {value.adt.name}"
        )
    if not isinstance(value, Type):
        raise TypeError(f'expected a type such as R.Tensor((n, 4), "float32"), got {value!r}')
    return value


def _dims(values: Sequence[Any], dim: Resolve) -> list[Any]:
    result = []
    for v in values:
        if isinstance(v, typing.TypeVar):
            v = v.__name__
        result.append(dim(v) if isinstance(v, str) else plain(v))
        last = result[-1]
        if (
            isinstance(last, Expr)
            and isinstance(last.ty, PrimType)
            and str(last.ty.dtype) != "int64"
        ):
            if isinstance(last, Var):
                raise TypeError(f"dimension {last} has dtype {last.ty.dtype}; dimensions are int64")
    return result


class _Tensor(Annotation):
    def __init__(self, shape: Any, dtype: Any, vdevice: Any, ndim: int) -> None:
        self._args = (shape, dtype, vdevice, ndim)

    def resolve(self, dim: Resolve) -> Type:
        shape, dtype, vdevice, ndim = self._args
        shape = plain(shape)
        if isinstance(shape, (tuple, list)):
            shape = _dims(shape, dim)
        return TensorType(shape, dtype, vdevice, ndim)


class _Shape(Annotation):
    def __init__(self, values: Sequence[Any] | None, ndim: int) -> None:
        self._args = (values, ndim)

    def resolve(self, dim: Resolve) -> Type:
        values, ndim = self._args
        return ShapeType(None if values is None else _dims(values, dim), ndim)


class _Tuple(Annotation):
    def __init__(self, fields: Sequence[Any]) -> None:
        self._args = fields

    def resolve(self, dim: Resolve) -> Type:
        return TupleType([resolve_type(f, dim) for f in self._args])


class _Callable(Annotation):
    def __init__(self, params: Sequence[Any] | None, ret: Any, purity: bool) -> None:
        self._args = (params, ret, purity)

    def resolve(self, dim: Resolve) -> Type:
        params, ret, purity = self._args
        result = AnyType() if ret is None and params is None else resolve_type(ret, dim)
        types = None if params is None else [resolve_type(p, dim) for p in params]
        return FuncType(types, result, purity)


class _Adt(Annotation):
    def __init__(self, name: str, args: Sequence[Any]) -> None:
        self._args = (name, args)

    def resolve(self, dim: Resolve) -> Type:
        name, args = self._args
        return AdtType(name, [resolve_type(a, dim) for a in args])


def adt_annotation(name: str, args: Sequence[Any]) -> Any:
    """A data type with types for its parameters."""
    return AdtType(name, args) if all(isinstance(a, Type) for a in args) else _Adt(name, args)


class _Plain(Annotation):
    def __init__(self, make: Callable[[], Type]) -> None:
        self._make = make

    def resolve(self, dim: Resolve) -> Type:
        return self._make()


def _needs_names(values: Any) -> bool:
    if isinstance(values, (tuple, list)):
        return any(isinstance(v, (str, typing.TypeVar)) for v in values)
    return False


class _TensorName(_Tensor):
    """R.Tensor"""

    def __init__(self) -> None:
        super().__init__(None, None, None, -1)

    def __call__(
        self, shape: Any = None, dtype: Any = None, vdevice: Any = None, ndim: int = -1
    ) -> Any:
        """A tensor: dimensions (strings define or name symbolic variables), dtype, device, rank."""
        if isinstance(shape, str) and dtype is None:
            shape, dtype = None, shape
        if not isinstance(ndim, int):
            raise TypeError(f"R.Tensor: ndim must be an integer, got {ndim!r}")
        if shape is not None and not isinstance(plain(shape), (tuple, list, Expr)):
            if not hasattr(shape, "__len__"):
                raise TypeError(f"R.Tensor: the shape must be a tuple of dimensions, got {shape!r}")
            shape = list(shape)
        if isinstance(shape, (tuple, list)) and ndim not in (-1, len(shape)):
            raise ValueError(f"R.Tensor: ndim is {ndim}, but the shape has {len(shape)} dimensions")
        if _needs_names(shape) or isinstance(vdevice, str):
            return _Tensor(shape, dtype, vdevice, ndim)
        return TensorType(shape, dtype, vdevice, ndim)


class _ShapeName(_Shape):
    """R.Shape"""

    def __init__(self) -> None:
        super().__init__(None, -1)

    def __call__(self, values: Sequence[Any] | None = None, ndim: int = -1) -> Any:
        """A shape: its dimensions, or only their number."""
        if _needs_names(values):
            return _Shape(values, ndim)
        return ShapeType(values, ndim)


class _TupleName(_Tuple):
    """R.Tuple"""

    def __init__(self) -> None:
        super().__init__(())

    def __call__(self, *fields: Any) -> Any:
        """A tuple of types; without any it is "void"."""
        if len(fields) == 1 and isinstance(fields[0], (tuple, list)):
            fields = tuple(fields[0])
        if all(isinstance(f, Type) for f in fields):
            return TupleType(fields)
        return _Tuple(fields)


class _CallableName(_Callable):
    """R.Callable"""

    def __init__(self) -> None:
        super().__init__(None, None, False)

    def __call__(
        self,
        params: Any = None,
        ret: Any = None,
        purity: bool | None = None,
        derive_func: Any = None,
    ) -> Any:
        """A function: types of parameters (None: anything), of the result, and whether it is pure."""
        if derive_func is not None:
            raise NotImplementedError(
                "R.Callable: derive_func is not supported; state the result at the call"
            )
        pure = params is not None if purity is None else purity
        if params is not None and not isinstance(params, (tuple, list)):
            params = (params,)
        return _Callable(params, ret, pure)


class _NothingName(_Plain):
    """R.Nothing"""

    def __init__(self) -> None:
        super().__init__(NothingType)


class _AnyName(_Plain):
    """R.Any"""

    def __init__(self) -> None:
        super().__init__(AnyType)

    def __call__(self) -> Type:
        return AnyType()


Tensor = _TensorName()
ShapeAnnotation = _ShapeName()
TupleAnnotation = _TupleName()
CallableAnnotation = _CallableName()
AnyAnnotation = _AnyName()
NothingAnnotation = _NothingName()


def Prim(dtype: Any) -> PrimType:
    """A scalar."""
    return PrimType(dtype)
