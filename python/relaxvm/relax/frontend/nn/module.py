# SPDX-License-Identifier: Apache-2.0
"""nn.Module: parameters and parts by attribute, methods that export_tvm traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .subroutine import SubroutineMixin
from .tensor import Parameter

if TYPE_CHECKING:
    from relaxvm.ir.module import IRModule

    from .extern import ExternModule


class Module(SubroutineMixin):
    """A part of a model. Parameters and other modules are its attributes; `forward` is what calling it does."""

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Parameters by their path ("blocks.0.weight"), in the order in which attributes were set."""
        yield from self._find(Parameter, prefix)

    def parameters(self) -> Iterator[Parameter]:
        """The parameters without their paths."""
        for _, parameter in self.named_parameters():
            yield parameter

    def state_dict(
        self, *, prefix: str = "", destination: dict[str, Parameter] | None = None
    ) -> dict[str, Parameter]:
        """Parameters by path, added to `destination` when that is given."""
        result = {} if destination is None else destination
        result.update(self.named_parameters(prefix))
        return result

    def load_state_dict(
        self, state_dict: Mapping[str, Parameter], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Takes over the values of equally named parameters; gives missing and unexpected names.

        KeyError when there are such names and `strict`; ValueError for a parameter without value.
        """
        own = self.state_dict()
        unexpected = [name for name in state_dict if name not in own]
        missing = [name for name in own if name not in state_dict]
        for name, parameter in state_dict.items():
            if name in own and parameter.data is None:
                raise ValueError(f"parameter {name} has no value to take over; set its data")
        if strict and (missing or unexpected):
            raise KeyError(f"missing parameters: {missing}; unexpected parameters: {unexpected}")
        for name in own:
            if name in state_dict:
                own[name].data = state_dict[name].data
        return missing, unexpected

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forward: Callable[..., Any] | None = getattr(self, "forward", None)
        if forward is None:
            raise NotImplementedError(f"{type(self).__name__} has no method forward")
        return forward(*args, **kwargs)

    def to(self, dtype: str | None = None) -> None:
        """Changes the element type of all parameters and states."""
        for item in self.__dict__.values():
            if callable(getattr(item, "to", None)):
                item.to(dtype=dtype)
        if dtype is not None and isinstance(getattr(self, "dtype", None), str):
            self.dtype = dtype

    def export_tvm(
        self, spec: Any, debug: bool = False, allow_extern: bool = False
    ) -> (
        tuple[IRModule, list[tuple[str, Parameter]]]
        | tuple[IRModule, list[tuple[str, Parameter]], list[ExternModule]]
    ):
        """Traces methods into functions of a module.

        `spec` maps names of methods to the types of their arguments (see nn.spec).  Besides the module come its
        parameters by path, in the order in which functions take them, and with `allow_extern` the external modules
        that were used.  `debug` allows print_ and debug_func.
        """
        from .exporter import Exporter
        from .spec import ModuleSpec

        mod, params, extern_mods = Exporter(debug=debug).build(ModuleSpec.from_raw(spec, self))
        if allow_extern:
            return mod, params, extern_mods
        if extern_mods:
            raise ValueError(
                "the model calls functions of external modules; export_tvm(..., allow_extern=True) gives them, and"
                " relax.transform.AttachExternModules takes them to the compiler"
            )
        return mod, params

    def jit(
        self,
        spec: Any,
        device: Any = "cpu",
        pipeline: Any = "default_build",
        out_format: str = "torch",
        debug: bool = False,
    ) -> Any:
        """Traces and compiles; gives functions on PyTorch tensors by the names of methods.

        All parameters need values. ValueError for another `out_format` than "torch".
        """
        if out_format != "torch":
            raise ValueError(f'unknown out_format {out_format!r}; use "torch"')
        from .torch import compile_module

        return compile_module(self, spec, device, pipeline, debug)

    def _children(self) -> Iterator[tuple[str, Any]]:
        """Attributes that may hold parameters, effects or modules."""
        yield from self.__dict__.items()

    def _find(self, kind: type, prefix: str) -> Iterator[tuple[str, Any]]:
        for name, item in self._children():
            if isinstance(item, kind):
                yield prefix + name, item
            elif isinstance(item, Module):
                yield from item._find(kind, f"{prefix}{name}.")
