# SPDX-License-Identifier: Apache-2.0
"""From a model to an executable: what `relaxvm.compile` and `relaxvm.relax.build` do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from relaxvm._compiler import func
from relaxvm.ir.module import IRModule
from relaxvm.runtime.executable import Executable, VMExecutable

Progress = Callable[[str, int, int], None]


def compile(
    mod: Any,
    target: Any = None,
    *,
    relax_pipeline: str | Callable[[IRModule], IRModule] | None = "default",
    tir_pipeline: str | None = "default",
    exec_mode: str = "bytecode",
    params: Mapping[str, Any] | None = None,
    stop_after: str | None = None,
    num_threads: int | None = None,
    config: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Executable | IRModule:
    """Compiles a module, the model in a file or a program of `torch.export` for `target`
    ("llvm": this machine's CPU).

    The module may be at any stage; what is already lowered stays as it is.  `stop_after` names a stage ("lowered") or
    a pass ("FuseOps"): the module as it is then comes back.  `params` binds parameters of `main` to tensors.
    `exec_mode="compiled"` makes native code of the functions as well, where "bytecode" has the machine interpret them.
    `progress` is called with the name of the step, how many are done, and how many there are.  The `PassContext` in
    force watches and disables passes of the pipeline as well.

    A tensor program, or a module of nothing else, becomes functions that need no machine: `ex["name"](...)`.
    """
    _only_default_tir(tir_pipeline)
    options = {
        **_options(target, config),
        "exec_mode": exec_mode,
        "stop_after": stop_after or "",
        "num_threads": num_threads or 0,
        "progress": progress,
    }
    if stop_after is None and _only_tensor_programs(mod):
        from relaxvm.tirx.compiled import build_programs

        return build_programs(mod, options)
    options["take"] = not isinstance(mod, IRModule)
    mod, imports = _without_external_modules(_bind(as_module(mod), params))
    if relax_pipeline not in ("default", "default_build"):
        from relaxvm.relax.pipeline import get_pipeline

        if relax_pipeline is not None:
            mod = (
                get_pipeline(relax_pipeline)(mod)
                if isinstance(relax_pipeline, str)
                else relax_pipeline(mod)
            )
            options["take"] = False
        options["pipeline"] = "finish"
    built = _build(mod, options)
    if isinstance(built, VMExecutable):
        for module in imports:
            built.import_module(module)
    return built


def compile_last(mod: IRModule, target: Any) -> VMExecutable:
    """Compiles a module that nobody uses after this: weights are freed as soon as passes have replaced them.

    `mod` is empty afterwards.
    """
    executable = _build(mod, {**_options(target), "take": True})
    assert isinstance(executable, VMExecutable)
    return executable


def _options(target: Any, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Those of a plain compilation in the pass context in force; `config` adds to its config."""
    from relaxvm.transform import PassContext

    context = PassContext.current().for_pipeline()
    return {
        "pipeline": "default",
        "target": target_text(target),
        "exec_mode": "bytecode",
        "stop_after": "",
        "num_threads": 0,
        "progress": None,
        "take": False,  # the module, which is empty afterwards
        **context,
        "config": {**context["config"], **(config or {})},
    }


def _build(mod: IRModule, options: Mapping[str, Any]) -> VMExecutable | IRModule:
    built = func("pipeline.Build")(mod, options)
    if "executable" not in built:
        return built["module"]
    executable = VMExecutable(built["executable"])
    executable.timings = [tuple(row) for row in built["timings"]]
    return executable


def _only_tensor_programs(mod: Any) -> bool:
    """Whether there is nothing for the machine to run: a tensor program, or a module of such ones alone."""
    from relaxvm.tirx.function import PrimFunc

    if isinstance(mod, IRModule):
        functions = list(mod.functions.values())
        return bool(functions) and all(isinstance(f, PrimFunc) for f in functions)
    return isinstance(mod, PrimFunc)


def as_module(mod: Any) -> IRModule:
    """The module itself, or what a file (.onnx, .py with TVMScript), an ONNX model, an exported program of PyTorch or
    a function becomes."""
    if isinstance(mod, IRModule):
        return mod
    if isinstance(mod, (str, os.PathLike)):
        return _load(os.fspath(mod))
    if isinstance(mod, bytes) or type(mod).__name__ == "ModelProto":
        from relaxvm.relax.frontend.onnx import from_onnx

        return from_onnx(mod)
    if type(mod).__name__ == "ExportedProgram":
        from relaxvm.relax.frontend.torch import from_exported_program

        return from_exported_program(mod, run_ep_decomposition=False)
    from relaxvm.relax.expr import Function

    if isinstance(mod, Function):
        return IRModule({"main": mod})
    raise TypeError(
        "compile takes an IRModule, a Relax function, a program of torch.export, or the path of an ONNX"
        f" model or a script, not {type(mod).__name__}"
    )


def target_text(target: Any) -> str:
    """A target as compilation takes it: "llvm", "llvm -mcpu=znver3"."""
    from relaxvm.target import Target

    target = Target.current() if target is None else target
    text = "llvm" if target is None else str(Target(target) if isinstance(target, dict) else target)
    if text.split(" ", 1)[0] not in ("llvm", "cpu", "c"):
        raise ValueError(
            f'unknown target {text!r}; use "llvm", or "llvm -mcpu=<name>" for another CPU'
        )
    return "llvm" + text.removeprefix(text.split(" ", 1)[0])


def _load(path: str) -> IRModule:
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: there is no such file")
    if path.endswith(".py"):
        from relaxvm.script import from_source

        with open(path) as file:
            return from_source(file.read())
    from relaxvm.relax.frontend.onnx import from_onnx

    return from_onnx(path)


def _without_external_modules(mod: IRModule) -> tuple[IRModule, list[Any]]:
    """The module, and the native modules that AttachExternModules gave it: executables import them."""
    imports = list(mod.get_attr("external_mods") or [])
    return (mod.without_attr("external_mods") if imports else mod), imports


def _bind(mod: IRModule, params: Mapping[str, Any] | None) -> IRModule:
    if not params:
        return mod
    from relaxvm.relax.transform import BindParams

    return BindParams("main", params)(mod)


def _only_default_tir(tir_pipeline: str | None) -> None:
    if tir_pipeline not in (None, "default"):
        raise NotImplementedError(
            'tir_pipeline: only "default" is there; schedule tensor programs before compiling'
        )
