# SPDX-License-Identifier: Apache-2.0
"""Samples of the operators' records as cases: arguments with values, attributes, expected results.

A sample item is "x: f32[4, 8]", "x: i64[3] in 0..4", "x: f32[5] sorted", "xs: (f32[2], f32[3])", or "name=literal" for
another argument or an attribute
(a literal, or the lambda of an index map).  A dimension written "=3" stays constant where the others become variables."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import ops_references as references
import scipy.special

from relaxvm import _compiler, tirx
from relaxvm.relax.op.build import ROWS

DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "bool": "bool",
}  # fmt: skip
NUMPY = {k: np.dtype(ml_dtypes.bfloat16 if k == "bf16" else v) for k, v in DTYPES.items()}
SHORT = {v: k for k, v in DTYPES.items()}
_oracle = _compiler.func("ops.Oracle")
_SHAPE = 2  # of ops::ArgKind


@dataclasses.dataclass(frozen=True)
class Spec:
    """A tensor argument of a sample."""

    dtype: str
    dims: tuple[tuple[int, bool], ...]  # extent, and whether it stays constant
    bounds: tuple[float, float] | None
    ascending: bool

    def shape(self, sizes: Mapping[int, int] | None = None) -> tuple[int, ...]:
        return tuple(n if fixed or n < 2 else (sizes or {}).get(n, n) for n, fixed in self.dims)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    op: str
    number: int
    tensors: tuple[tuple[str, Spec | tuple[Spec, ...]], ...]
    values: tuple[tuple[str, Any], ...]  # other arguments and attributes

    @property
    def name(self) -> str:
        return f"{self.op}-{self.number}"

    def specs(self) -> list[Spec]:
        found: list[Spec] = []
        for _, spec in self.tensors:
            found.extend(spec if isinstance(spec, tuple) else [spec])
        return found

    def primary(self) -> str | None:
        """The dtype that most tensors have."""
        names = [s.dtype for s in self.specs()]
        return max(names, key=names.count) if names else None

    def with_dtype(self, dtype: str) -> Case:
        primary = self.primary()

        def change(spec: Spec) -> Spec:
            return dataclasses.replace(spec, dtype=dtype) if spec.dtype == primary else spec

        changed = tuple(
            (n, tuple(change(p) for p in s) if isinstance(s, tuple) else change(s))
            for n, s in self.tensors
        )
        return dataclasses.replace(self, tensors=changed)

    def extents(self) -> list[int]:
        """What becomes a variable: every different extent above 1."""
        return sorted({n for s in self.specs() for n, fixed in s.dims if n > 1 and not fixed})


_TENSOR = re.compile(r"(\w+)\[([^\]]*)\](?:\s+in\s+(-?[\d.]+?)\.\.(-?[\d.]+))?(\s+sorted)?")


def _spec(text: str) -> Spec:
    match = _TENSOR.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a tensor: {text!r}")
    dims = [d.strip() for d in match[2].split(",") if d.strip()]
    bounds = (float(match[3]), float(match[4])) if match[3] else None
    extents = tuple((int(d.lstrip("=")), d.startswith("=")) for d in dims)
    return Spec(match[1], extents, bounds, match[5] is not None)


def _parse(op: str, number: int, items: Sequence[str]) -> Case:
    tensors: list[tuple[str, Spec | tuple[Spec, ...]]] = []
    values: list[tuple[str, Any]] = []
    for item in items:
        if match := re.match(r"(\w+): (.*)", item):
            text = match[2]
            if text.startswith("("):
                found = [m.group(0) for m in _TENSOR.finditer(text)]
                tensors.append((match[1], tuple(_spec(p) for p in found)))
            else:
                tensors.append((match[1], _spec(text)))
        else:
            name, _, literal = item.partition("=")
            if literal.startswith("lambda "):  # the text is our own
                values.append((name, tirx.IndexMap.from_func(eval(literal))))
            else:
                values.append((name, ast.literal_eval(literal)))
    return Case(op, number, tuple(tensors), tuple(values))


@dataclasses.dataclass(frozen=True)
class Record:
    """What tests know of an operator."""

    name: str
    computed: bool
    reference: str
    cases: tuple[Case, ...]
    exceptions: Mapping[str, str]
    defaults: Mapping[str, Any]


@functools.cache
def record(name: str) -> Record:
    computed, reference, samples, exceptions, defaults = _oracle(name)
    cases = tuple(_parse(name, i, [str(x) for x in sample]) for i, sample in enumerate(samples))
    named = {row[0]: value for row, value in zip(ROWS[name].args, defaults, strict=True)}
    skipped = {str(d): str(reason) for d, reason in exceptions}
    return Record(name, bool(computed), str(reference), cases, skipped, named)


def all_records() -> list[Record]:
    return [record(name) for name in sorted(ROWS)]


# ---- values


def make_value(spec: Spec, sizes: Mapping[int, int] | None, rng: np.random.Generator) -> np.ndarray:
    shape = spec.shape(sizes)
    dtype = NUMPY[spec.dtype]
    if spec.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if spec.dtype[0] in "iu":
        low, high = spec.bounds or ((-9, 9) if spec.dtype[0] == "i" else (0, 9))
        if spec.dtype[0] == "u":
            low = max(low, 0)
        value = rng.integers(int(low), int(high) + 1, shape).astype(dtype)
    else:
        low, high = spec.bounds or (-2.0, 2.0)
        value = np.asarray(rng.uniform(low, high, shape)).astype(dtype)
    return np.sort(value.reshape(-1)).reshape(shape) if spec.ascending else value


def make_tensors(case: Case, sizes: Mapping[int, int] | None = None) -> dict[str, Any]:
    """Arrays by argument name; a list of arrays for a tuple.  The same for the same case and sizes."""
    rng = np.random.default_rng(zlib.crc32(f"{case.name}{sorted((sizes or {}).items())}".encode()))
    return {
        name: [make_value(s, sizes, rng) for s in spec]
        if isinstance(spec, tuple)
        else make_value(spec, sizes, rng)
        for name, spec in case.tensors
    }


# ---- expected results


def _wide(value: Any) -> Any:
    """Floats in float64: the reference is computed as well as it can be."""
    if isinstance(value, list):
        return [_wide(v) for v in value]
    floats = value.dtype.kind == "f" or value.dtype == NUMPY["bf16"]
    return value.astype(np.float64) if floats else value


def _numpy_dtype(value: Any) -> Any:
    text = str(value)
    if text in SHORT:
        return NUMPY[SHORT[text]]
    return value


def resize_literal(case: Case, name: str, value: Any, sizes: Mapping[int, int] | None) -> Any:
    """A shape argument's extents follow the dimensions that have them."""
    kinds = {a[0]: a[2] for a in ROWS[case.op].args}
    if sizes and kinds.get(name) == _SHAPE and isinstance(value, list):
        return [sizes.get(v, v) if v > 1 else v for v in value]
    return value


def expected(case: Case, attrs: Mapping[str, Any], tensors: Mapping[str, Any], sizes: Mapping[int, int] | None = None) -> list[np.ndarray]:  # fmt: skip
    """The results by the record's reference.  Raises what NumPy raises when the values do not fit."""
    rec = record(case.op)
    scope: dict[str, Any] = {k: v for k, v in vars(references).items() if not k.startswith("_")}
    scope |= {"np": np, "scipy": scipy}
    scope |= {name: default for name, default in rec.defaults.items()}
    scope |= {name: _plain(value) for name, value in attrs.items()}
    scope |= {n: resize_literal(case, n, v, sizes) for n, v in case.values if n not in attrs}
    scope |= {name: _wide(value) for name, value in tensors.items()}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing
        exec(rec.reference, scope)  # the text is our own
    out = scope["out"]
    return [np.asarray(o) for o in out] if isinstance(out, (tuple, list)) else [np.asarray(out)]


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, tirx.IndexMap)) or value is None:
        return value
    if isinstance(value, tirx.IntImm | tirx.FloatImm):
        return value.value
    if isinstance(value, str):
        return str(value)
    if type(value).__name__ in ("dtype", "DataType") or str(value) in SHORT:
        return _numpy_dtype(value)
    return tuple(_plain(v) for v in value)


_RELATIVE = {"float64": 1e-9, "float32": 3e-5, "float16": 2e-3, "bfloat16": 1.6e-2}


def assert_close(got: np.ndarray, want: np.ndarray, what: str) -> None:
    assert tuple(got.shape) == tuple(want.shape), (
        f"{what}: shape {got.shape}, expected {want.shape}"
    )
    name = got.dtype.name
    if name not in _RELATIVE:
        with np.errstate(all="ignore"):
            want = want.astype(got.dtype)
        bad = got != want
        assert not bad.any(), (
            f"{what}: {bad.sum()} of {bad.size} differ: {got[bad][:4]} for {want[bad][:4]}"
        )
        return
    with np.errstate(all="ignore"):
        want = want.astype(got.dtype).astype(np.float64)
        value = got.astype(np.float64)
        finite = np.abs(want[np.isfinite(want)])
        allowed = _RELATIVE[name] * (np.abs(want) + max(1.0, finite.max(initial=0.0)))
        same = (value == want) | (np.isnan(value) & np.isnan(want))
        bad = ~(same | (np.abs(value - want) <= allowed))
    assert not bad.any(), (
        f"{what}: {bad.sum()} of {bad.size} differ: {value[bad][:4]} for {want[bad][:4]}"
    )


def named_items(case: Case) -> Iterator[tuple[str, Any]]:
    yield from case.tensors
    yield from case.values
