# SPDX-License-Identifier: Apache-2.0
"""A compiled nn.Module that takes and gives PyTorch tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import tvm_ffi

from relaxvm.runtime import Shape, from_dlpack
from relaxvm.runtime.device import device as as_device
from relaxvm.runtime.vm import VirtualMachine

from . import spec as specs

if TYPE_CHECKING:
    from .module import Module


class TorchModule:
    """Methods by name: `module["forward"](x)`; calling it is "forward". State is kept from call to call."""

    def __init__(
        self, spec: specs.ModuleSpec, vm: VirtualMachine, params: list[tvm_ffi.Tensor]
    ) -> None:
        self.spec, self.vm, self.params = spec, vm, params
        has_state = vm.module.implements_function("_initialize_effect")
        self.effects: list[Any] = list(vm["_initialize_effect"]()) if has_state else []

    def __getitem__(self, method_name: str) -> Callable[..., Any]:
        if method_name not in self.spec.method_names:
            raise KeyError(
                f"{method_name} was not compiled; methods are {', '.join(self.spec.method_names)}"
            )
        method = self.spec.method_specs[self.spec.method_names.index(method_name)]
        function = self.vm[method_name]

        def call(*args: Any) -> Any:
            if len(args) != len(method.arg_names):
                raise TypeError(
                    f"{method_name} takes {len(method.arg_names)} arguments ({', '.join(method.arg_names)}),"
                    f" {len(args)} are given"
                )
            named = zip(args, method.arg_names, method.arg_specs)
            inputs = [_argument(a, n, s) for a, n, s in named]
            inputs += _given(self.effects, method.effect_mode)
            inputs += _given(self.params, method.param_mode)
            result = function(*inputs)
            if self.effects and method.effect_mode != "none":
                result, state = result
                self.effects = list(state)
            return _result(result)

        call.__name__ = method_name
        return call

    def forward(self, *args: Any) -> Any:
        return self["forward"](*args)

    __call__ = forward


def compile_module(
    module: Module, spec: Any, device: Any, pipeline: Any, debug: bool
) -> TorchModule:
    """What nn.Module.jit does."""
    from relaxvm.relax.transform import AttachExternModules
    from relaxvm.relax.vm_build import build

    spec = specs.ModuleSpec.from_raw(spec, module)
    mod, named, extern_mods = module.export_tvm(spec, debug=debug, allow_extern=True)
    missing = [name for name, param in named if param.data is None]
    if missing:
        raise ValueError(f"parameters without values: {', '.join(missing)}; set their data")
    place = as_device(device) if isinstance(device, str) else device
    executable = build(AttachExternModules(extern_mods)(mod), relax_pipeline=pipeline)
    return TorchModule(spec, VirtualMachine(executable, place), [p.data for _, p in named])


def _given(values: list[Any], mode: str) -> list[Any]:
    if mode == "none":
        return []
    return [tuple(values)] if mode == "packed" else values


def _argument(value: Any, name: str, spec: Any) -> Any:
    if isinstance(spec, specs.Int):
        if not isinstance(value, int):
            raise TypeError(f"argument {name} is an integer, not {type(value).__name__}")
        return Shape([value])
    if isinstance(spec, specs.Tensor):
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"argument {name} is a torch.Tensor, not {type(value).__name__}")
        return from_dlpack(value.detach().contiguous())
    if isinstance(spec, specs.Tuple):
        pairs = enumerate(zip(value, spec.elements))
        return tuple(_argument(v, f"{name}_{i}", s) for i, (v, s) in pairs)
    return value


def _result(value: Any) -> Any:
    if isinstance(value, tvm_ffi.Tensor):
        return torch.from_dlpack(value)
    if isinstance(value, (list, tuple, tvm_ffi.Array)):
        return tuple(_result(v) for v in value)
    return value
