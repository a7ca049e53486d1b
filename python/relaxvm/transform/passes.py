# SPDX-License-Identifier: Apache-2.0
"""Passes: functions from module to module, run under the current context."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _compiler
from ..ir.instrument import PassInstrument
from ..ir.module import IRModule


class PassInfo:
    """What instruments know of a pass."""

    def __init__(
        self, opt_level: int, name: str, required: Sequence[str] = (), traceable: bool = False
    ) -> None:
        self.opt_level, self.name, self.required = opt_level, name, list(required)
        self.traceable = traceable

    def __repr__(self) -> str:
        return f"PassInfo({self.name!r}, opt_level={self.opt_level})"


class _Stack(threading.local):
    def __init__(self) -> None:
        self.contexts: list[PassContext] = []


_stack = _Stack()


class PassContext:
    """What passes may do and what watches them: `with PassContext(instruments=[...]):`"""

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[PassInstrument] | None = None,
        config: Mapping[str, Any] | None = None,
        trace: Any = None,
        trace_stack: Any = None,
        make_traceable: Any = None,
        num_evals: int = 0,
        tuning_api_database: Any = None,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = list(required_pass or ())
        self.disabled_pass = list(disabled_pass or ())
        self.instruments = list(instruments or ())
        self.config = dict(config or {})

    @staticmethod
    def current() -> PassContext:
        """The context in force; one without anything special outside of all."""
        return _stack.contexts[-1] if _stack.contexts else PassContext()

    def __enter__(self) -> PassContext:
        for instrument in self.instruments:
            instrument.enter_pass_ctx()
        _stack.contexts.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _stack.contexts.pop()
        for instrument in self.instruments:
            instrument.exit_pass_ctx()

    def override_instruments(self, instruments: Sequence[PassInstrument]) -> None:
        """Other instruments from here on."""
        self.instruments = list(instruments)

    def pass_enabled(self, info: PassInfo) -> bool:
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or info.opt_level <= self.opt_level


class Pass:
    """Calling a pass runs it on a module."""

    info: PassInfo

    def __call__(self, mod: IRModule) -> IRModule:
        context = PassContext.current()
        watchers = context.instruments
        if not all(w.should_run(mod, self.info) for w in watchers):
            return mod
        for w in watchers:
            w.run_before_pass(mod, self.info)
        mod = self.run(mod, context)
        for w in watchers:
            w.run_after_pass(mod, self.info)
        return mod

    def run(self, mod: IRModule, context: PassContext) -> IRModule:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<pass {self.info.name}>"


class ModulePass(Pass):
    """A pass made of a function of a module and the context."""

    def __init__(self, func: Callable[[IRModule, PassContext], IRModule], info: PassInfo) -> None:
        self.func, self.info = func, info

    def run(self, mod: IRModule, context: PassContext) -> IRModule:
        result = self.func(mod, context)
        if not isinstance(result, IRModule):
            raise TypeError(
                f"pass {self.info.name} must return a module, not {type(result).__name__}"
            )
        return result


class BuiltinPass(Pass):
    """A pass of the compiler, with its options."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.info = PassInfo(0, name)
        self.options = dict(options)

    def run(self, mod: IRModule, context: PassContext) -> IRModule:
        return _compiler.func("transform.Run")(
            self.info.name, mod, self.options, context.config, _current_target()
        )


def _current_target() -> str:
    return "llvm"


class Sequential(Pass):
    """Passes one after another; those that the context disables are left out."""

    def __init__(
        self,
        passes: Sequence[Pass] = (),
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] = (),
        traceable: bool = False,
    ) -> None:
        self.passes = list(passes)
        self.info = PassInfo(opt_level, name, required, traceable)

    def run(self, mod: IRModule, context: PassContext) -> IRModule:
        for p in self.passes:
            info = getattr(p, "info", None)
            if info is None or context.pass_enabled(info):
                mod = p(mod)
        return mod


def _instance_of(cls: type, method: str) -> Callable[..., Any]:
    """Decorated classes: the instance keeps its state, its method is the pass."""

    def make(*args: Any, **kwargs: Any) -> Any:
        return getattr(cls(*args, **kwargs), method)

    return make


def pass_function(
    wrap: Callable[[Any, PassInfo], Pass], method: str, default_name: str = ""
) -> Callable[..., Any]:
    """The decorator for passes whose function has the form that `wrap` takes."""

    def decorator(
        pass_func: Any = None,
        opt_level: int = 0,
        name: str | None = None,
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> Any:
        def create(func: Any) -> Any:
            info = PassInfo(opt_level, name or func.__name__, required or (), traceable)
            if not isinstance(func, type):
                return wrap(func, info)
            make = _instance_of(func, method)

            def construct(*args: Any, **kwargs: Any) -> Pass:
                return wrap(make(*args, **kwargs), info)

            construct.__name__, construct.__doc__ = func.__name__, func.__doc__
            return construct

        return create if pass_func is None else create(pass_func)

    return decorator


module_pass = pass_function(ModulePass, "transform_module")


def PrintIR(header: str = "") -> Pass:
    """A pass that prints `header` and the module, and changes nothing."""

    def show(mod: IRModule, context: PassContext) -> IRModule:
        print(f"PrintIR({header}):\n{mod}")
        return mod

    return ModulePass(show, PassInfo(0, "PrintIR"))
