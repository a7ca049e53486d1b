# SPDX-License-Identifier: Apache-2.0
"""Makes a factory of each row of the compiler's table of passes: FuseOps(fuse_opt_level=0)."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from ... import _compiler
from ...ir.base import plain
from ...ir.module import IRModule
from ...transform.passes import BuiltinPass, PassContext, Sequential
from ..op.build import usage


def signature_of(options: str) -> inspect.Signature:
    """A row's options, written as a Python signature."""
    args = ast.parse(f"def f({options}): pass").body[0].args  # type: ignore[attr-defined]
    first_default = len(args.args) - len(args.defaults)
    params = []
    for i, arg in enumerate(args.args):
        default: Any = inspect.Parameter.empty
        if i >= first_default:
            default = ast.literal_eval(args.defaults[i - first_default])
        note = ast.unparse(arg.annotation) if arg.annotation else inspect.Parameter.empty
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        params.append(inspect.Parameter(arg.arg, kind, default=default, annotation=note))
    return inspect.Signature(params)


def _option(value: Any) -> Any:
    value = plain(value)
    if isinstance(value, dict):
        return {k: _option(v) for k, v in value.items()}
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_option(v) for v in value]
    if hasattr(value, "__array__") or hasattr(value, "asnumpy"):
        from ..expr import to_tensor

        return to_tensor(value)
    return value


def make_factory(name: str, options: str, doc: str) -> Callable[..., BuiltinPass]:
    """The factory of a pass."""
    signature = signature_of(options)

    def factory(*args: Any, **kwargs: Any) -> BuiltinPass:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}: {error}; it takes ({usage(signature)})") from None
        bound.apply_defaults()
        return BuiltinPass(name, {k: _option(v) for k, v in bound.arguments.items()})

    factory.__name__ = factory.__qualname__ = name
    factory.__doc__ = doc
    factory.__signature__ = signature  # type: ignore[attr-defined]
    return factory


class _Tidied(Sequential):
    """A pass that leaves aliases and dead code behind, and those that clear them away when it has changed something."""

    def run(self, mod: IRModule, context: PassContext) -> IRModule:
        changed = self.passes[0](mod)
        return mod if changed.same_as(mod) else super().run(mod, context)


def tidied(
    factory: Callable[..., BuiltinPass], names: dict[str, Any], always: bool
) -> Callable[..., Sequential]:
    """The factory of a pass after which aliases and dead code are cleared away, `always` or after a change."""

    def tidy(*args: Any, **kwargs: Any) -> Sequential:
        steps = [
            factory(*args, **kwargs),
            names["CanonicalizeBindings"](),
            names["DeadCodeElimination"](),
        ]
        return (Sequential if always else _Tidied)(steps, name=factory.__name__)

    tidy.__name__ = tidy.__qualname__ = factory.__name__
    tidy.__doc__, tidy.__module__ = factory.__doc__, factory.__module__
    tidy.__signature__ = inspect.signature(factory)  # type: ignore[attr-defined]
    return tidy


def install(names: dict[str, Any]) -> list[str]:
    """Puts all factories into `names`; gives what they are called."""
    added = []
    for name, options, doc in _compiler.func("transform.List")():
        factory = make_factory(str(name), str(options), str(doc))
        factory.__module__ = names["__name__"]
        names[str(name)] = factory
        added.append(str(name))
    return added
