# SPDX-License-Identifier: Apache-2.0
"""Passes: functions from module to module, run under the current context."""

from __future__ import annotations

import difflib
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


# TVM's names that change nothing here (how its loops are lowered, its other targets): programs that set them run.
_WITHOUT_EFFECT = (
    "relax.ext.clml.options relax.ext.tensorrt.options relax.fallback_device_type "
    "relax.transform.apply_legalize_ops s_tir.HoistExpression s_tir.HoistIfThenElse s_tir.InjectDoubleBuffer "
    "s_tir.LoopPartition s_tir.instr_siblings s_tir.lwp_disable_func_prof s_tir.lwp_max_depth s_tir.lwp_min_height "
    "s_tir.reset_start_id testing.immutable_module tirx.RemoveNoOp tirx.StmtSimplify tirx.UnrollLoop "
    "tirx.add_lower_pass tirx.debug_keep_trivial_loop tirx.disable_assert tirx.disable_cse_tir "
    "tirx.disable_storage_rewrite tirx.disable_vectorize tirx.enable_buffer_level_predication tirx.enable_debug "
    "tirx.enable_fast_math tirx.instrument_bound_checkers tirx.instrument_lwp tirx.is_entry_func "
    "tirx.merge_static_smem tirx.noalias tirx.s_tir.ldg32 tirx.use_async_copy tirx.vtcm_capacity"
)
# What a context's config may say, and of which type.
CONFIGS: dict[str, tuple[type, ...]] = {
    "relax.FuseOps.max_depth": (int,),
    "relax.backend.use_cuda_graph": (bool, int),
    "relax.lift_transform_params.consume_params": (bool, int),
    **{name: (object,) for name in _WITHOUT_EFFECT.split()},
}


def _name(kinds: tuple[type, ...]) -> str:
    return "any value" if kinds[0] is object else kinds[0].__name__


def _check_config(config: Mapping[str, Any]) -> None:
    for name, value in config.items():
        if name not in CONFIGS:
            near = difflib.get_close_matches(name, CONFIGS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"Invalid config option {name!r}{hint}")
        if not isinstance(value, CONFIGS[name]):
            raise AttributeError(f"config {name} takes {_name(CONFIGS[name])}, not {value!r}")


class _Stack(threading.local):
    def __init__(self) -> None:
        self.contexts: list[PassContext] = []


_stack = _Stack()


class PassContext:
    """What passes may do and what watches them, those of `relaxvm.compile` included:
    `with PassContext(instruments=[...]):`

    Raises AttributeError for a name in `config` that `list_configs` does not have, or a value of another type.
    """

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
        _check_config(self.config)

    @staticmethod
    def list_configs() -> dict[str, dict[str, str]]:
        """What `config` may say: {name: {"type": ...}}."""
        return {name: {"type": _name(kinds)} for name, kinds in CONFIGS.items()}

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

    def begin_pass(self, mod: IRModule, info: PassInfo) -> bool:
        """Tells the instruments that a pass is about to run, unless one of them says that it should not."""
        if not all(w.should_run(mod, info) for w in self.instruments):
            return False
        for w in self.instruments:
            w.run_before_pass(mod, info)
        return True

    def end_pass(self, mod: IRModule, info: PassInfo) -> None:
        for w in self.instruments:
            w.run_after_pass(mod, info)

    def for_pipeline(self) -> dict[str, Any]:
        """What the compiler's pipelines take of a context: its config, and functions around each pass."""
        if not self.instruments and not self.disabled_pass:
            return {"config": self.config, "before": None, "after": None}

        def before(name: str, mod: IRModule) -> bool:
            info = PassInfo(0, str(name))
            return self.pass_enabled(info) and self.begin_pass(mod, info)

        def after(name: str, mod: IRModule) -> None:
            self.end_pass(mod, PassInfo(0, str(name)))

        return {"config": self.config, "before": before, "after": after}

    def __repr__(self) -> str:
        words = ("opt_level", "required_pass", "disabled_pass", "instruments", "config")
        return f"PassContext({', '.join(f'{w}={getattr(self, w)!r}' for w in words)})"


class Pass:
    """Calling a pass runs it on a module."""

    info: PassInfo

    def __call__(self, mod: IRModule) -> IRModule:
        context = PassContext.current()
        if not context.begin_pass(mod, self.info):
            return mod
        mod = self.run(mod, context)
        context.end_pass(mod, self.info)
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
