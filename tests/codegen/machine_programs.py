# SPDX-License-Identifier: Apache-2.0
"""Programs that every machine must compute alike: the families of kernels (tests/schedule), what constant weights are
turned into, and arithmetic whose instructions differ from one kind of processor to the next."""

from __future__ import annotations

import functools
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_threads import PROGRAMS as FAMILIES
from test_threads import values

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(7)
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-39, 88.8, -104.0, 2.5, 3.5, -2.5, 3e9]


@dataclass
class Program:
    body: Callable[..., relax.Expr]
    inputs: list[np.ndarray]
    first_size: bool = False  # is a variable


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def integers(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    some = RNG.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    ends = RNG.choice(np.array([limits.min, limits.max], dtype), shape)
    return np.where(RNG.random(shape) < 0.2, ends, some)


def special() -> np.ndarray:
    return np.array([*SPECIAL, *np.linspace(-12, 12, 200)], np.float32).reshape(3, 71)


def const(array: np.ndarray) -> relax.Expr:
    return relax.const(array, str(array.dtype))


def product(left: str, right: str, *, depth: int = 64) -> Program:
    x, w = integers(left, 9, depth), const(integers(right, depth, 40))
    return Program(lambda x: op.matmul(x, w, out_dtype="int32"), [x])


def conv(channels: int, filters: int, window: int, size: int, **how: Any) -> Program:
    groups = how.get("groups", 1)
    w = const(floats(filters, channels // groups, window, window) / window)
    bias = const(floats(1, filters, 1, 1))
    body = lambda x: op.nn.relu(op.add(op.nn.conv2d(x, w, **how), bias))
    return Program(body, [floats(2, channels, size, size + 1)])


def unary(body: Callable[..., relax.Expr]) -> Program:
    return Program(body, [special()])


def codes_by_bytes() -> Program:
    """Weights of four bits; the left side is rounded to bytes."""
    words, scales = const(integers("int32", 3, 8, 16)), const(floats(3, 2, 16))
    body = lambda x: op.rvm.block_matmul(x, words, scales, bits=4, columns=40, bytes=True)
    return Program(body, [floats(7, 64)])


WINDOW, POINT = const(floats(24, 3, 3, 3)), const(floats(40, 24, 1, 1))


def two_convolutions(x: relax.Expr) -> relax.Expr:
    y = op.nn.relu(op.nn.conv2d(x, WINDOW, strides=2, padding=1))
    return op.nn.max_pool2d(op.nn.conv2d(y, POINT), pool_size=3, strides=2, padding=1)


LINEAR = const(floats(90, 75)), const(floats(75))
OTHERS: dict[str, Program] = {
    **{
        name: unary(getattr(op, name))
        for name in (
            *("exp", "log", "tanh", "erf", "sigmoid", "sin", "cos", "tan", "sqrt", "rsqrt"),
            *("floor", "ceil", "trunc", "round", "atan", "asinh", "isnan", "sign"),
        )
    },
    "gelu": unary(op.nn.gelu),
    "power": Program(op.power, [np.abs(special()), special()[::-1].copy()]),
    "minimum": Program(op.minimum, [special(), special()[::-1].copy()]),
    "floats to bytes": unary(lambda x: op.astype(op.clip(x, -128, 127), "int8")),
    "floats to int32": unary(lambda x: op.astype(x, "int32")),
    "floats to int64": unary(lambda x: op.astype(x, "int64")),
    "floats to uint32": unary(lambda x: op.astype(op.clip(x, 0, 4e9), "uint32")),
    "float16": unary(lambda x: op.multiply(op.astype(x, "float16"), op.astype(x, "float16"))),
    "bfloat16": unary(lambda x: op.astype(op.exp(op.astype(x, "bfloat16")), "float32")),
    "float64": unary(lambda x: op.tanh(op.astype(x, "float64"))),
    "floor_divide": Program(op.floor_divide, [integers("int32", 7, 33), integers("int32", 7, 33)]),
    "floor_mod": Program(op.floor_mod, [integers("int64", 7, 33), integers("int64", 7, 33)]),
    "shifts": Program(
        lambda x: op.right_shift(op.left_shift(x, const(np.int32(3))), const(np.int32(5))),
        [integers("int32", 7, 33)],
    ),
    "linear": Program(
        lambda x: op.nn.gelu(op.add(op.matmul(x, LINEAR[0]), LINEAR[1])), [floats(13, 90)], True
    ),
    "linear, one row": Program(lambda x: op.matmul(x, LINEAR[0]), [floats(1, 90)]),
    "product of bytes": product("uint8", "int8"),
    "product of signed bytes": product("int8", "int8"),
    "product of bytes, signed left": product("int8", "uint8", depth=61),
    "product of bfloat16": Program(
        lambda x, y: op.matmul(x, y, out_dtype="float32"),
        [floats(9, 64).astype(ml_dtypes.bfloat16), floats(64, 40).astype(ml_dtypes.bfloat16)],
    ),
    "codes by bytes": codes_by_bytes(),
    "winograd": conv(64, 64, 3, 20, padding=1),
    "conv2d, packed": conv(12, 20, 3, 17, strides=2, padding=1),
    "depthwise": conv(40, 40, 3, 17, padding=1, groups=40),
    "three channels": conv(3, 24, 7, 33, strides=2, padding=3),
    "layouts": Program(two_convolutions, [floats(1, 3, 32, 32)]),
    "split": Program(
        lambda x: op.concat([op.split(x, 3, axis=1)[2], op.split(x, 3, axis=1)[0]], axis=1),
        [floats(9, 33)],
    ),
    "pad": Program(lambda x: op.nn.pad(x, [1, 2, 3, 0]), [floats(9, 33)]),
    "slice": Program(
        lambda x: op.strided_slice(x, [0, 1], [1, 30], [9, 1], [2, -3]), [floats(9, 33)]
    ),
    "transpose of bytes": Program(
        lambda x: op.permute_dims(x, [2, 0, 1]), [integers("int8", 9, 33, 70)]
    ),
    "gather_elements": Program(
        lambda x, i: op.gather_elements(x, i, axis=1),
        [floats(9, 33), RNG.integers(0, 33, (9, 50))],
    ),
}


def programs() -> dict[str, Program]:
    families = {
        name: Program(body, [values(arg, shape) for arg, shape in shapes.items()])
        for name, (shapes, body) in FAMILIES.items()
    }
    return {**families, **OTHERS}


NAMES = sorted(programs())
# A group is one module: what a machine costs is its start.
GROUPS = [tuple(NAMES[at::6]) for at in range(6)]


def module_of(names: tuple[str, ...]) -> relaxvm.IRModule:
    """Each program as the function f<index>."""
    builder = relax.BlockBuilder()
    for at, name in enumerate(names):
        program = programs()[name]
        params = []
        for i, array in enumerate(program.inputs):
            shape: list[Any] = list(array.shape)
            if program.first_size:
                shape[0] = relaxvm.tirx.Var("n", "int64")
            params.append(relax.Var(f"x{i}", relax.TensorType(shape, str(array.dtype))))
        with builder.function(f"f{at}", params):
            with builder.dataflow():
                result = builder.emit_output(builder.normalize(program.body(*params)))
            builder.emit_func_output(result)
    return builder.get()


@functools.cache
def results_here(names: tuple[str, ...], target: str = "llvm") -> list[np.ndarray]:
    """What the programs give on this machine."""
    vm = relaxvm.VirtualMachine(relaxvm.compile(module_of(names), target=target), relaxvm.cpu())
    tensor = relaxvm.runtime.tensor
    return [
        vm[f"f{at}"](*map(tensor, programs()[name].inputs)).numpy() for at, name in enumerate(names)
    ]


# Of the largest result.  The weights of the recurrent layers are so large that each step doubles a difference.
COARSER = {
    "float16": 1e-3,
    "bfloat16": 1e-2,
    "product of bfloat16": 1e-4,
    "lstm": 1e-3,
    "gru": 1e-3,
    "rnn": 1e-3,
}


def mnemonics(name: str, target: str, folder: pathlib.Path, objdump: str) -> set[str]:
    """The instructions that a program is made of."""
    if shutil.which(objdump) is None:
        pytest.skip(f"{objdump} is not installed")
    library = folder / "program.a"
    relaxvm.compile(module_of((name,)), target=target).export_library(library)
    listing = subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", str(library)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    return set(re.findall(r"^\s+[0-9a-f]+:\s+(?:\{vex\} )?(\w+)", listing, re.MULTILINE))


def check_same(name: str, have: np.ndarray, want: np.ndarray) -> None:
    """Integers are equal, floats as near as sums in another order are."""
    assert have.dtype == want.dtype and have.shape == want.shape, name
    if have.dtype.kind in "iub":
        np.testing.assert_array_equal(have, want, err_msg=name)
        return
    have, want = have.astype(np.float64), want.astype(np.float64)
    largest = np.abs(want[np.isfinite(want)]).max()
    atol = COARSER.get(name, 2e-5) * largest
    np.testing.assert_allclose(have, want, rtol=1e-6, atol=atol, err_msg=name)
