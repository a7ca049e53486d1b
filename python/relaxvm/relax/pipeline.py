# SPDX-License-Identifier: Apache-2.0
"""Pipelines by name: functions from module to module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxvm._compiler import func
from relaxvm.ir.module import IRModule
from relaxvm.transform import PassContext

Pipeline = Callable[[IRModule], IRModule]


class BuiltinPipeline:
    """One of the compiler's own pipelines; `stages` and `passes` say what it does."""

    def __init__(
        self,
        name: str,
        *,
        target: str = "llvm",
        stop_after: str = "",
        config: dict[str, Any] | None = None,
    ):
        self.name = name
        self._options = {
            "pipeline": name,
            "target": target,
            "exec_mode": "bytecode",
            "stop_after": stop_after,
            "num_threads": 0,
            "progress": None,
        }
        self._config = config or {}

    def __call__(self, mod: IRModule) -> IRModule:
        context = PassContext.current().for_pipeline()
        config = {**context["config"], **self._config}
        return func("pipeline.Run")(mod, {**self._options, **context, "config": config})

    @property
    def passes(self) -> list[tuple[str, str]]:
        """(stage, pass) in order."""
        return [(str(stage), str(name)) for stage, name in func("pipeline.Steps")(self.name)]

    def __repr__(self) -> str:
        return f"BuiltinPipeline({self.name!r})"


def zero_pipeline(**options: Any) -> Pipeline:
    """Lowers operators and fuses them; memory and shapes stay implicit."""
    return BuiltinPipeline("zero", **options)


def default_build_pipeline(**options: Any) -> Pipeline:
    """The whole road to what VMCodeGen takes."""
    return BuiltinPipeline("default", **options)


PIPELINE_MAP: dict[str, Callable[..., Pipeline]] = {
    "default": default_build_pipeline,
    "default_build": default_build_pipeline,
    "zero": zero_pipeline,
}


def get_pipeline(name: str = "zero", **kwargs: Any) -> Pipeline:
    """The pipeline of that name, made with `kwargs`."""
    if name not in PIPELINE_MAP:
        raise ValueError(
            f"there is no pipeline {name!r}; there are {', '.join(sorted(PIPELINE_MAP))}"
        )
    return PIPELINE_MAP[name](**kwargs)


def register_pipeline(name: str) -> Callable[[Callable[..., Pipeline]], Callable[..., Pipeline]]:
    """Decorates a function that makes a pipeline; `get_pipeline(name, **kwargs)` calls it."""
    if name in PIPELINE_MAP:
        raise ValueError(f"there is a pipeline {name!r} already")

    def register(make: Callable[..., Pipeline]) -> Callable[..., Pipeline]:
        PIPELINE_MAP[name] = make
        return make

    return register


def get_default_pipeline(target: Any) -> Pipeline:
    """The pipeline that `build` runs for a target."""
    from relaxvm._compile import target_text

    return default_build_pipeline(target=target_text(target))


def _generic(target: Any) -> Any:
    from relaxvm.target import Target

    from .backend import cpu_generic

    kind = Target(target).kind
    if kind not in ("llvm", "c"):
        raise ValueError(f'there are no lists of passes for targets of kind {kind!r}; use "llvm"')
    return cpu_generic


def library_dispatch_passes(target: Any) -> list[Any]:
    """Passes for operators that have an implementation of their own.  Raises ValueError for a target that is no CPU."""
    return _generic(target).library_dispatch_passes(target)


def legalize_passes(target: Any) -> list[Any]:
    """Passes from operators to fused tensor programs.  Raises ValueError for a target that is no CPU."""
    return _generic(target).legalize_passes(target)


def dataflow_lower_passes(target: Any) -> list[Any]:
    """Passes that make destination passing explicit.  Raises ValueError for a target that is no CPU."""
    return _generic(target).dataflow_lower_passes(target)


def finalize_passes(target: Any) -> list[Any]:
    """Passes that plan memory and compute sizes.  Raises ValueError for a target that is no CPU."""
    return _generic(target).finalize_passes(target)
