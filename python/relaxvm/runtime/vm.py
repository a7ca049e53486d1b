# SPDX-License-Identifier: Apache-2.0
"""The virtual machine as Python sees it."""

from __future__ import annotations

import enum
import numbers
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from relaxvm._ffi import runtime_function, tvm_ffi
from relaxvm._registry import get_global_func
from relaxvm.runtime.device import Device, cpu, synchronize
from relaxvm.runtime.executable import Executable
from relaxvm.runtime.module import BenchmarkResult
from relaxvm.runtime.profile import Event, Profile
from relaxvm.runtime.tensor import borrow, tensor

_create = runtime_function("vm.create")
_CPU = 1
_AS_IT_IS = (tvm_ffi.core.Object, tvm_ffi.core.Tensor, tvm_ffi.Shape, str, bool, type(None))


class VMInstrumentReturnKind(enum.IntEnum):
    """What an instrument tells the VM to do with the call it is asked about."""

    NO_OP = 0
    SKIP_RUN = 1


class VirtualMachine:
    """An executable, ready to run on devices.

    `vm["f"](x)` calls a function; any number of threads may do so at once.
    """

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    def __init__(
        self,
        rt_mod: Executable | tvm_ffi.Module,
        device: Device | Sequence[Device] | None = None,
        memory_cfg: str | Mapping[Device, str] | None = None,
        profile: bool = False,
        *,
        memory_limit: int | Mapping[Device, int] = 0,
        num_threads: int | None = None,
    ) -> None:
        """`memory_cfg` is "naive" or "pooled" (the default), for all or for each device.

        `memory_limit` is in bytes, for all or for each device; 0 is none.
        """
        self.module = _create(
            rt_mod.mod if isinstance(rt_mod, Executable) else rt_mod,
            *self._device_args(device, memory_cfg, memory_limit),
        )
        self._functions: dict[str, tvm_ffi.Function] = {}
        self._set_input = self.module["set_input"]
        self._invoke_stateful = self.module["invoke_stateful"]
        self._get_output = self.module["get_output"]
        self._get_output_arity = self.module["get_output_arity"]
        self._get_function_arity = self.module["get_function_arity"]
        self._get_function_param_name = self.module["get_function_param_name"]
        self._devices = self._device_list(device)
        if num_threads is not None:
            self.set_num_threads(num_threads)

    @staticmethod
    def _device_list(device) -> list[Device]:
        devices = (
            [cpu()] if device is None else [device] if isinstance(device, Device) else list(device)
        )
        if not all(isinstance(dev, Device) for dev in devices):
            raise TypeError("device must be a device, such as relaxvm.cpu(), or a list of devices")
        if devices and devices[-1].dlpack_device_type() != _CPU:
            devices.append(cpu())
        return devices

    @classmethod
    def _device_args(cls, device, memory_cfg, memory_limit) -> list[int]:
        kinds = {"naive": cls.NAIVE_ALLOCATOR, "pooled": cls.POOLED_ALLOCATOR}
        args: list[int] = []
        for dev in cls._device_list(device):
            config = (
                memory_cfg
                if isinstance(memory_cfg, str) or memory_cfg is None
                else memory_cfg.get(dev)
            )
            config = config or "pooled"
            if config not in kinds:
                raise ValueError(f"memory_cfg is {config!r}; use 'naive' or 'pooled'")
            limit = memory_limit if isinstance(memory_limit, int) else memory_limit.get(dev, 0)
            args += [dev.dlpack_device_type(), dev.index, kinds[config], limit]
        return args

    # ---- calls ----

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The function of that name; look it up once when calls are short."""
        try:
            return self._functions[name]
        except KeyError:
            return self._bind(name)

    def _bind(self, name: str) -> Callable[..., Any]:
        try:
            function = self.module[name]
        except AttributeError:
            raise AttributeError(f"the executable has no function {name!r}") from None
        self._functions[name] = function
        return function

    def call(self, name: str, *args, **kwargs):
        """Calls a function with keyword arguments, NumPy arrays, tensors of other libraries and numbers.

        Nested tuples and lists are taken as tuples; arrays are not copied where the first device is the host.
        """
        return self[name](*self._arguments(name, args, kwargs, keep=False))

    def invoke_closure(self, closure, *args):
        """Calls a closure that a function of the VM returned."""
        return closure(*args)

    # ---- stateful interface ----

    def _bind_kwargs(self, name: str, args: tuple, kwargs: Mapping[str, Any]) -> list:
        if not kwargs:
            return list(args)
        arity = self._get_function_arity(name)
        names = [str(self._get_function_param_name(name, i)) for i in range(arity)]
        values: list = list(args) + [None] * (arity - len(args))
        given = set(names[: len(args)])
        for key, value in kwargs.items():
            if key not in names:
                raise ValueError(
                    f"function {name} has no parameter {key!r}; its parameters are {', '.join(names)}"
                )
            if key in given:
                raise ValueError(f"function {name}: parameter {key!r} is given twice")
            given.add(key)
            values[names.index(key)] = value
        missing = [key for key in names if key not in given]
        if missing:
            raise ValueError(f"function {name}: no value for {', '.join(missing)}")
        return values

    def _convert(self, arg: Any, keep: bool) -> Any:
        """What the VM takes: arrays and numbers become tensors on the first device, tuples and lists stay nested.

        Arrays that are not kept beyond the call are not copied where the device is the host.
        """
        if isinstance(arg, _AS_IT_IS):  # a shape is a tuple to Python
            return arg
        if isinstance(arg, (list, tuple)):
            return [self._convert(item, keep) for item in arg]
        device = self._devices[0]
        if isinstance(arg, np.generic):
            return tensor(arg, device)
        if isinstance(arg, numbers.Number):
            dtype = "int64" if isinstance(arg, numbers.Integral) else "float32"
            return tensor(np.array(arg, dtype=dtype), device)
        if not (isinstance(arg, np.ndarray) or hasattr(arg, "__dlpack__")):
            return arg
        values = borrow(arg)
        return values if values.device == device and not keep else tensor(values, device)

    def _arguments(self, name: str, args: tuple, kwargs: Mapping[str, Any], keep: bool) -> list:
        return [self._convert(arg, keep) for arg in self._bind_kwargs(name, args, kwargs)]

    def set_input(self, func_name: str, *args, **kwargs) -> None:
        """Keeps copies of the arguments of a function for `invoke_stateful`."""
        self._set_input(func_name, *self._arguments(func_name, args, kwargs, keep=True))

    def invoke_stateful(self, func_name: str) -> None:
        """Calls a function with the arguments that `set_input` keeps; `get_outputs` has the result."""
        self._invoke_stateful(func_name)

    def get_outputs(self, func_name: str):
        """The result of the last `invoke_stateful`: a value, or nested tuples of values."""
        return self._output(func_name, ())

    def _output(self, func_name: str, path: tuple[int, ...]):
        arity = self._get_output_arity(func_name, *path)
        if arity < 0:
            return self._get_output(func_name, *path)
        return tuple(self._output(func_name, (*path, i)) for i in range(arity))

    def save_function(
        self, func_name: str, saved_name: str, *args, include_return: bool = True, **kwargs
    ) -> None:
        """Makes `saved_name` a function without parameters that calls `func_name` with these arguments."""
        values = self._arguments(func_name, args, kwargs, keep=True)
        self._functions.pop(saved_name, None)
        self.module["save_function"](func_name, saved_name, include_return, *values)

    # ---- observation ----

    def set_instrument(self, instrument: Callable | None) -> None:
        """Calls `instrument(func, name, before_run, ret_value, *args)` before and after every call; None ends it."""
        self.module["set_instrument"](instrument)
        self._functions.clear()

    def profile(self, func_name: str, *args, **kwargs) -> Profile:
        """Calls a function once and records every call in it: time, bytes and operations of each."""
        values = self._arguments(func_name, args, kwargs, keep=False)
        self.module["begin_profile"]()
        try:
            start = time.perf_counter()
            result = self.module[func_name](*values)
            for device in self._devices:
                synchronize(device)
            total_us = (time.perf_counter() - start) * 1e6
        finally:
            rows, num_lost = self.module["end_profile"]()
        events = [
            Event(
                str(name),
                str(kind),
                start_ns / 1e3,
                duration_ns / 1e3,
                num_bytes,
                flop,
                str(products),
                thread,
                depth,
                str(text),
            )
            for name, kind, start_ns, duration_ns, num_bytes, flop, products, thread, depth, text in rows
        ]
        return Profile(events, total_us, result, num_lost)

    def time_evaluator(
        self,
        func_name: str,
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that calls `func_name` repeatedly and returns its times in seconds.

        After one call that warms up it measures `repeat` times the mean of `number` calls, of more when those take less
        than `min_repeat_ms`; it waits for the machine's devices (`dev` is one of them).  `f_preproc` names a global
        function that is called with the arguments before each of the `repeat` measurements.
        """
        if dev is not None and dev not in self._devices:
            raise ValueError(f"{dev} is no device of this machine, which has {self._devices}")
        time_function = self.module["time_function"]

        def evaluate(*args, **kwargs) -> BenchmarkResult:
            values = self._arguments(func_name, args, kwargs, keep=False)
            preproc = get_global_func(f_preproc) if f_preproc else None
            pause = cooldown_interval_ms / 1e3, repeats_to_cooldown
            return BenchmarkResult(
                time_function(
                    func_name, preproc, number, repeat, min_repeat_ms / 1e3, *pause, *values
                )
            )

        return evaluate

    # ---- resources ----

    def memory_stats(self, device_index: int = 0) -> dict[str, int]:
        """Bytes in use and taken from the device, their peaks, and counts of allocations."""
        return {
            str(key): int(value) for key, value in self.module["memory_stats"](device_index).items()
        }

    def reset_peak_memory(self, device_index: int = 0) -> None:
        self.module["reset_peak_memory"](device_index)

    def trim_memory(self) -> int:
        """Gives cached memory back; returns how many bytes."""
        return self.module["trim_memory"]()

    def set_memory_limit(self, num_bytes: int, device_index: int = 0) -> None:
        """The most bytes to take from the device; 0 is no limit."""
        self.module["set_memory_limit"](num_bytes, device_index)

    def set_num_threads(self, count: int) -> None:
        """The most threads that a kernel uses."""
        self.module["set_num_threads"](count)

    def set_time_limit(self, milliseconds: float) -> None:
        """The most time for each call, which then ends in a TimeoutError; 0 is no limit."""
        self.module["set_time_limit"](float(milliseconds))

    def set_stack_limit(self, num_bytes: int) -> None:
        """The most memory for the registers of a call and of the calls below it (64 MiB unless set): what bounds
        recursion that is no tail call.  Beyond it a call ends in a RecursionError."""
        self.module["set_stack_limit"](int(num_bytes))
