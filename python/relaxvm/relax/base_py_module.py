# SPDX-License-Identifier: Apache-2.0
"""Modules that mix functions of Python with Relax functions and tensor programs, and run on PyTorch's tensors."""

from __future__ import annotations

import functools
import inspect
import itertools
import textwrap
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi

from relaxvm import _compiler, runtime
from relaxvm._registry import get_global_func
from relaxvm.ir.base import plain
from relaxvm.ir.expr import Call, GlobalVar
from relaxvm.ir.module import IRModule
from relaxvm.ir.type import TupleType
from relaxvm.tirx import IntImm, PrimFunc
from relaxvm.tirx.buffer import is_buffer

from .expr import ExternFunc, Function, StringImm
from .expr_functor import PyExprMutator

_substitute = _compiler.func("ir.Substitute")
_simplify = _compiler.func("analysis.simplify")
_serial = itertools.count()  # of modules: their functions of one name are kept apart


class BasePyModule:
    """A module whose functions are called as methods, with PyTorch's tensors and numbers.

    `ir_mod` has Relax functions and tensor programs, which are compiled for `target`, and functions of Python
    (`ir_mod.pyfuncs`), which take the place of Relax functions of the same name.  A function of Python whose first
    parameter is `self` gets the module.  Tensors are shared, not copied, where they lie in order; results of Relax
    functions are PyTorch's tensors, or tuples of them.  Raises what compiling raises.
    """

    def __init__(self, ir_mod: IRModule, device: Any = None, target: Any = None) -> None:
        from relaxvm.relax.virtual_machine import VirtualMachine
        from relaxvm.tirx.compiled import build

        self.ir_mod = ir_mod
        self.device = runtime.cpu() if device is None else device
        self.target = target
        self.pyfuncs: dict[str, Callable[..., Any]] = {}
        self.extern_funcs: dict[str, Any] = {}
        self.compiled_tir_funcs: dict[str, Any] = {}
        self.relax_vm: Any = None
        named = [(str(var.name_hint), f) for var, f in ir_mod.functions_items()]
        self._programs = {name: f for name, f in named if isinstance(f, PrimFunc)}
        self.tir_func_names = list(self._programs)
        self.relax_func_names = [
            name
            for name, f in named
            if isinstance(f, Function) and f.attrs and "global_symbol" in f.attrs
        ]
        for name, function in ir_mod.pyfuncs.items():
            self.add_python_function(name, function)
        if self._programs:
            programs = {n: f.with_attr("global_symbol", n) for n, f in self._programs.items()}
            built = build(IRModule(programs), target)
            self.compiled_tir_funcs = {name: built[name] for name in programs}
        if self.relax_func_names:
            from relaxvm._compile import compile

            executable = compile(self._with_own_names(ir_mod), target)
            self.relax_vm = VirtualMachine(executable, self.device)

    def _with_own_names(self, ir_mod: IRModule) -> IRModule:
        """Without functions of Python; calls of them by names that belong to this module alone."""
        names = _PyFuncNames(f"module{next(_serial)}")
        functions = {}
        for var, function in ir_mod.functions.items():
            if isinstance(function, Function):
                function = names.visit_expr(function)
            elif is_pyfunc(function):
                continue
            functions[var] = function
        mine = weakref.ref(self)
        for name, own in names.found.items():
            _builtin("register_py_func")(own, functools.partial(_called_by_machine, mine, name))
        if names.found:
            weakref.finalize(self, _forget, list(names.found.values()))
        return IRModule(functions, dict(ir_mod._attrs), dict(ir_mod.global_infos))

    # ---- functions by name

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and "ir_mod" in self.__dict__:
            found = self.get_function(name)
            if found is not None:
                return found
            if hasattr(self.ir_mod, name):
                return getattr(self.ir_mod, name)
        raise AttributeError(f"{type(self).__name__} has no attribute or function {name!r}")

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """The function of this name, in Python, Relax, as a tensor program or called before by its global name."""
        if name in self.pyfuncs:
            return _bound(self.pyfuncs[name], self)
        if name in self.relax_func_names:
            return functools.partial(self._call_relax, name)
        if name in self.compiled_tir_funcs:
            return self.compiled_tir_funcs[name]
        return self.extern_funcs.get(name)

    def list_functions(self) -> dict[str, list[str]]:
        """Their names by kind."""
        return {
            "python": list(self.pyfuncs),
            "relax": list(self.relax_func_names),
            "tirx": list(self.tir_func_names),
            "extern": list(self.extern_funcs),
        }

    def add_python_function(self, name: str, func: Callable[..., Any]) -> None:
        """Adds a function of Python, or replaces it; Relax functions reach it by R.call_py_func."""
        if not callable(func):
            raise TypeError(f"{name} is {type(func).__name__}, not a function")
        self.pyfuncs[name] = func

    # ---- calls

    def _call_relax(self, name: str, *args: Any, **kwargs: Any) -> Any:
        given = {key: to_runtime(value) for key, value in kwargs.items()}
        return to_torch(self.relax_vm[name](*(to_runtime(a) for a in args), **given))

    def call_py_func(self, func_name: str, args: Sequence[Any]) -> Any:
        """What a function of Python gives for PyTorch's tensors."""
        if func_name not in self.pyfuncs:
            raise ValueError(
                f"the module has no Python function {func_name!r}; there are: "
                f"{', '.join(self.pyfuncs) or 'none'}"
            )
        return _bound(self.pyfuncs[func_name], self)(*(to_torch(a) for a in args))

    def call_tir(self, tir_func: Any, args: Any, out_ty: Any = None) -> Any:
        """Runs a tensor program on fresh results: one tensor, or a list of several.

        `tir_func` is its name, its GlobalVar, or the module's function itself; `out_ty` the type of the result, or a
        list of types.  Sizes that `out_ty` leaves open, or all without one, follow from the program's buffers and
        the arguments.  Raises ValueError for programs that the module lacks and sizes that nothing says.
        """
        name = self._program_name(tir_func)
        given = _listed(args)
        kinds = None if out_ty is None else _types(out_ty)
        buffers = [p for p in self._programs[name].params]
        outputs = buffers[len(given) :] if kinds is None else buffers[-len(kinds) :]
        sizes = _sizes(buffers, given)
        results = []
        for i, buffer in enumerate(outputs):
            wanted = None if kinds is None else kinds[i]
            results.append(_fresh(f"{name}: result {i}", buffer.ty, wanted, sizes))
        self.compiled_tir_funcs[name](*(to_runtime(v) for v in (*given, *results)))
        return results[0] if len(results) == 1 else results

    def call_dps_packed(self, func_name: str, args: Any, out_ty: Any) -> Any:
        """Runs a global function on fresh results of type `out_ty`: one tensor, or a list of several.

        A function of the module by this name is called without results to write to, and gives them.  A symbolic size
        is that of the first argument of the same number of axes.  Raises ValueError for unknown functions and sizes.
        """
        given = _listed(args)
        own = self.get_function(func_name) if func_name not in self.extern_funcs else None
        if own is not None:
            return own(*given)
        if func_name not in self.extern_funcs:
            found = get_global_func(func_name, allow_missing=True)
            if found is None:
                raise ValueError(
                    f"there is no function {func_name!r}: neither in the module nor as a global one"
                )
            self.extern_funcs[func_name] = found
        results = [
            zeros_of(_like_arguments(func_name, shape, given), dtype)
            for shape, dtype in map(_described, _types(out_ty))
        ]
        self.extern_funcs[func_name](*(to_runtime(v) for v in (*given, *results)))
        return results[0] if len(results) == 1 else results

    def _program_name(self, func: Any) -> str:
        name = func.name_hint if isinstance(func, GlobalVar) else func
        if not isinstance(name, str):
            same = [n for n, f in self.compiled_tir_funcs.items() if f.same_as(func)]
            name = same[0] if same else getattr(func, "__name__", repr(func))
        if name not in self._programs:
            there = ", ".join(self._programs) or "none"
            raise ValueError(f"the module has no tensor program {name!r}; there are: {there}")
        return str(name)

    # ---- as text

    def script(self, **options: Any) -> str:
        """The module as TVMScript with its functions of Python, which `relaxvm.script.from_source` reads."""
        return script_with_pyfuncs(self.ir_mod, self.pyfuncs, **options)

    def show(self, *args: Any, **options: Any) -> None:
        """Prints `script()`."""
        print(self.script(show_meta=bool(options.get("show_meta", False))))


class PyModuleFactory:
    """What a class under @I.ir_module becomes that inherits from BasePyModule: `Module(device, target)` compiles it.

    Everything else is that of `ir_module`, the module of its functions.
    """

    def __init__(self, name: str, ir_module: IRModule) -> None:
        self.__name__ = name
        self.ir_module = ir_module

    def __call__(self, device: Any = None, target: Any = None) -> BasePyModule:
        return BasePyModule(self.ir_module, device, target)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "ir_module" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.ir_module, name)

    def __getitem__(self, name: Any) -> Any:
        return self.ir_module[name]

    def script(self, **options: Any) -> str:
        """The module as TVMScript with its functions of Python."""
        return script_with_pyfuncs(self.ir_module, self.ir_module.pyfuncs, **options)

    def show(self, *args: Any, **options: Any) -> None:
        """Prints `script()`."""
        print(self.script(show_meta=bool(options.get("show_meta", False))))


# ---- functions of Python


def is_pyfunc(function: Any) -> bool:
    """Does it stand for a function of Python in a module?"""
    if not isinstance(function, ExternFunc):
        return False
    return bool(function.attrs) and bool(function.attrs.get("is_pyfunc", False))


def _bound(function: Callable[..., Any], module: BasePyModule) -> Callable[..., Any]:
    try:
        first = next(iter(inspect.signature(function).parameters), None)
    except (TypeError, ValueError):
        first = None
    return functools.partial(function, module) if first == "self" else function


def _called_by_machine(module: Any, name: str, *args: Any) -> Any:
    """A call of R.call_py_func: a function of the module, or one registered for the whole process."""
    owner = module()
    if owner is not None and name in owner.pyfuncs:
        return to_runtime(owner.call_py_func(name, args))
    return _builtin("get_py_func")(name)(*args)


def _builtin(name: str) -> Any:
    return get_global_func(f"vm.builtin.{name}")


def _forget(names: list[str]) -> None:
    for name in names:
        _builtin("register_py_func")(name, None)


class _PyFuncNames(PyExprMutator):
    """Gives the names in calls of R.call_py_func a prefix; `found` has them by their old name."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix
        self.found: dict[str, str] = {}

    def visit_call_(self, op: Any) -> Any:
        call = super().visit_call_(op)
        if getattr(op.op, "name", None) != "relax.call_py_func":
            return call
        if not isinstance(op.args[0], StringImm):
            return call
        name = str(op.args[0].value)
        self.found[name] = f"{self.prefix}.{name}"
        args = [StringImm(self.found[name]), *list(call.args)[1:]]
        return Call(op.op, args, op.attrs, op.ty_args, op.span)


# ---- tensors of both sides


def to_runtime(value: Any) -> Any:
    """A value as the machine takes it: PyTorch's tensors share their memory, NumPy's arrays are copied."""
    if isinstance(value, (list, tuple)) and not isinstance(value, tvm_ffi.Shape):
        if type(value).__name__ == "Size":
            return tvm_ffi.Shape(tuple(value))
        return [to_runtime(v) for v in value]
    if isinstance(value, np.ndarray):
        return runtime.tensor(value)
    if not _is_torch(value):
        return value
    if value.device.type != "cpu":
        raise ValueError(
            f"a tensor is on {value.device}; move it to the CPU, where the module runs"
        )
    return runtime.from_dlpack(value.detach().contiguous())


def to_torch(value: Any) -> Any:
    """A value of the machine as PyTorch takes it: tensors share their memory, arrays are tuples."""
    if isinstance(value, runtime.Tensor):
        import torch

        return torch.from_dlpack(value)
    if isinstance(value, tvm_ffi.Shape):
        return tuple(int(v) for v in value)
    if isinstance(value, (tvm_ffi.Array, list, tuple)):
        return tuple(to_torch(v) for v in value)
    return value


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _listed(args: Any) -> list[Any]:
    return list(args) if isinstance(args, (list, tuple)) else [args]


# ---- types of results


def _types(out_ty: Any) -> list[Any]:
    """Of each result; a list of whole numbers is the shape of one."""
    kind = plain(out_ty.as_object() if hasattr(out_ty, "as_object") else out_ty)
    if isinstance(kind, TupleType):
        return list(kind.fields)
    if isinstance(kind, (list, tuple)):
        is_shape = all(isinstance(d, (int, np.integer)) for d in kind)
        return [kind] if is_shape else [t for part in kind for t in _types(part)]
    return [kind]


def _described(kind: Any) -> tuple[list[Any], str]:
    """Shape and element type."""
    if isinstance(kind, (list, tuple)):
        return [int(d) for d in kind], "float32"
    shape = getattr(kind, "shape", None)
    if shape is None:
        raise ValueError(f"the type of a result has no shape: {kind}")
    return [_number(d) for d in getattr(shape, "values", shape)], str(kind.dtype)


def _number(dim: Any) -> Any:
    if isinstance(dim, (int, np.integer)):
        return int(dim)
    return int(dim.value) if isinstance(dim, IntImm) else dim


def zeros_of(shape: Sequence[int], dtype: str) -> Any:
    """PyTorch's tensor of zeros of this shape."""
    import torch

    return torch.zeros(shape, dtype=getattr(torch, dtype))


def _sizes(buffers: Sequence[Any], args: Sequence[Any]) -> dict[Any, int]:
    """The symbolic sizes of a program that its arguments say."""
    sizes: dict[Any, int] = {}
    for buffer, value in zip(buffers, args):
        if not is_buffer(buffer):
            if isinstance(value, int):
                sizes[buffer] = value
            continue
        for dim, size in zip(buffer.ty.shape, getattr(value, "shape", ())):
            if not isinstance(_number(dim), int) and dim not in sizes and _is_variable(dim):
                sizes[dim] = int(size)
    return sizes


def _is_variable(dim: Any) -> bool:
    return type(dim).__name__ in ("Var", "SizeVar")


def _fresh(what: str, buffer: Any, wanted: Any, sizes: Mapping[Any, int]) -> Any:
    """A tensor for a result: as `wanted` says, and the buffer where that is silent."""
    shape, dtype = ([], str(buffer.dtype)) if wanted is None else _described(wanted)
    known = [_value(d, sizes) for d in buffer.shape]
    if wanted is None:
        shape = known
    elif len(shape) == len(known):
        shape = [a if isinstance(a, int) else b for a, b in zip(shape, known)]
    if not all(isinstance(d, int) for d in shape):
        raise ValueError(
            f"{what}: the arguments do not say its size {shape}; give numbers in out_ty"
        )
    return zeros_of(shape, dtype)


def _value(dim: Any, sizes: Mapping[Any, int]) -> Any:
    dim = _number(dim)
    if isinstance(dim, int):
        return dim
    known = {v: IntImm(str(v.dtype), n) for v, n in sizes.items()}
    return _number(_simplify(_substitute(dim, known)))


def _like_arguments(what: str, shape: list[Any], args: Sequence[Any]) -> list[int]:
    if all(isinstance(d, int) for d in shape):
        return shape
    for value in args:
        there = getattr(value, "shape", None)
        if there is not None and len(there) == len(shape):
            return [d if isinstance(d, int) else int(n) for d, n in zip(shape, there)]
    raise ValueError(f"{what}: the arguments do not say the size {shape}; give numbers in out_ty")


# ---- text


def script_with_pyfuncs(
    ir_mod: IRModule, pyfuncs: Mapping[str, Callable[..., Any]], **options: Any
) -> str:
    """TVMScript of a module with functions of Python in front of the others."""
    functions = {v: f for v, f in ir_mod.functions.items() if not is_pyfunc(f)}
    rest = IRModule(functions, dict(ir_mod._attrs), dict(ir_mod.global_infos))
    lines = rest.script(**options).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("class "))
    lines[at] = lines[at].replace(":", "(BasePyModule):", 1)
    body = lines[at + 1 :]
    if pyfuncs and [line.strip() for line in body if line.strip()] == ["pass"]:
        body = []
    texts = [textwrap.indent(source_of(name, f), "    ") for name, f in pyfuncs.items()]
    return "\n".join([*lines[: at + 1], *"\n\n".join(texts).splitlines(), *body]) + "\n"


def source_of(name: str, function: Callable[..., Any]) -> str:
    """The text of a function of Python under @I.pyfunc; a remark where there is none to read."""
    text = getattr(function, "script_source", None)
    if text is None:
        try:
            text = textwrap.dedent(inspect.getsource(function)).rstrip()
        except (OSError, TypeError):
            return f"# {name}: a function of Python without a source"
    return text if text.lstrip().startswith("@") else f"@I.pyfunc\n{text}"
