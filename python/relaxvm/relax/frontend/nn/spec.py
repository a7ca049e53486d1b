# SPDX-License-Identifier: Apache-2.0
"""What methods are exported with: the types of arguments, and how functions take parameters and state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relaxvm.ir.expr import Expr

if TYPE_CHECKING:
    from .module import Module

_MODES = ("plain", "packed", "none")


class Int:
    """An integer that is known when the method runs; in the method a symbolic size."""

    def __repr__(self) -> str:
        return "int"


class Tensor:
    """A tensor; a string in `shape` is a symbolic size, equal names in one method are one size."""

    def __init__(self, shape: Sequence[int | str | Expr], dtype: str) -> None:
        self.shape, self.dtype = list(shape), dtype

    def __repr__(self) -> str:
        return f"Tensor([{', '.join(str(s) for s in self.shape)}], '{self.dtype}')"


class Object:
    """A value that is no tensor; the method gets `object_type(_expr=..., _name=...)`."""

    def __init__(self, object_type: type) -> None:
        self.object_type = object_type

    def __repr__(self) -> str:
        return "object"


class Tuple:
    """A tuple or list of arguments under one name."""

    def __init__(self, name: str, elements: list[Any] | tuple[Any, ...]) -> None:
        if not isinstance(elements, (list, tuple)):
            raise TypeError(f"elements of {name} are a list or a tuple, not {type(elements)}")
        self.name, self.elements = name, elements

    def __repr__(self) -> str:
        return repr(self.elements)


def argument_spec(value: Any, name: str) -> Any:
    """A spec from what may stand for it: `int`, "int", a spec, a list or tuple of such."""
    if value is int or value == "int":
        return Int()
    if isinstance(value, Tuple):
        value = value.elements
    if isinstance(value, (list, tuple)):
        return Tuple(
            name, type(value)(argument_spec(v, f"{name}_{i}") for i, v in enumerate(value))
        )
    if isinstance(value, (Int, Tensor, Object)):
        return value
    raise TypeError(
        f"argument {name} is specified by int, nn.spec.Tensor, nn.spec.Object or a tuple of these, not by {value!r}"
    )


class MethodSpec:
    """A method with specs of its arguments.

    `param_mode` and `effect_mode`: one argument each ("plain"), one tuple of all ("packed"), or left out ("none").
    """

    def __init__(
        self,
        method: Callable[..., Any],
        arg_names: list[str],
        arg_specs: list[Any],
        param_mode: str,
        effect_mode: str,
    ) -> None:
        for name, mode in (("param_mode", param_mode), ("effect_mode", effect_mode)):
            if mode not in _MODES:
                raise ValueError(f"{name} is one of {', '.join(_MODES)}, not {mode!r}")
        self.method = method
        self.arg_names, self.arg_specs = arg_names, arg_specs
        self.param_mode, self.effect_mode = param_mode, effect_mode

    def describe(self, name: str) -> str:
        args = (f"{n}: {s!r}" for n, s in zip(self.arg_names, self.arg_specs))
        return f"{name}({', '.join(args)})"

    def __repr__(self) -> str:
        return self.describe("MethodSpec")

    @staticmethod
    def from_raw(spec: MethodSpec | Mapping[str, Any], method: Callable[..., Any]) -> MethodSpec:
        """From a dict of argument names to specs; under "$" stand `param_mode` and `effect_mode`."""
        if isinstance(spec, MethodSpec):
            return spec
        place = getattr(method, "__qualname__", str(method))
        if not isinstance(spec, Mapping):
            raise TypeError(f"{place} is specified by a dict of its arguments, not by {spec!r}")
        given = dict(spec)
        modes = {"param_mode": "plain", "effect_mode": "plain", **given.pop("$", {})}
        parameters = inspect.signature(method).parameters
        known = [name for name in parameters if name in given]
        unknown = [name for name in given if name not in parameters]
        missing = [
            name
            for name, p in parameters.items()
            if name not in given
            and p.default is p.empty
            and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        if unknown or missing:
            raise TypeError(
                f"the spec of {place} has no argument {', '.join(missing)}"
                if missing
                else f"{place} has no argument {', '.join(unknown)}"
            )
        specs = [argument_spec(given[name], name) for name in known]
        return MethodSpec(method, known, specs, modes["param_mode"], modes["effect_mode"])

    @staticmethod
    def from_torch(args: list[Any], method: Callable[..., Any]) -> MethodSpec:
        """From example arguments: integers and PyTorch tensors."""
        names = list(inspect.signature(method).parameters)
        if len(names) < len(args):
            raise TypeError(f"{method} takes {len(names)} arguments, {len(args)} are given")
        specs = [_example_spec(a, n) for n, a in zip(names, args)]
        return MethodSpec(method, names[: len(args)], specs, "plain", "plain")


def _example_spec(value: Any, name: str) -> Any:
    if isinstance(value, int):
        return Int()
    if isinstance(value, (list, tuple)):
        return Tuple(name, [_example_spec(v, f"{name}_{i}") for i, v in enumerate(value)])
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return Tensor([int(s) for s in value.shape], str(value.dtype).removeprefix("torch."))
    raise TypeError(f"the example of {name} is an integer or a tensor, not {type(value).__name__}")


class ModuleSpec:
    """A module with the methods to export."""

    def __init__(
        self, module: Module, method_names: list[str], method_specs: list[MethodSpec]
    ) -> None:
        self.module, self.method_names, self.method_specs = module, method_names, method_specs

    @staticmethod
    def from_raw(spec: ModuleSpec | Mapping[str, Any], module: Module) -> ModuleSpec:
        """From a dict of method names to specs of methods."""
        if isinstance(spec, ModuleSpec):
            return spec
        if not isinstance(spec, Mapping):
            raise TypeError(
                f"a module is specified by a dict of its methods, such as"
                f' {{"forward": {{"x": nn.spec.Tensor(...)}}}}, not by {spec!r}'
            )
        names = list(spec)
        return ModuleSpec(
            module, names, [MethodSpec.from_raw(spec[n], getattr(module, n)) for n in names]
        )

    def __repr__(self) -> str:
        lines = (f"  {s.describe(n)}" for n, s in zip(self.method_names, self.method_specs))
        return "ModuleSpec:\n" + "\n".join(lines)
