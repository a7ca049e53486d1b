# SPDX-License-Identifier: Apache-2.0
"""What samples cannot say: decompositions, attributes spelled out, types of the core calls, effects of folding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ops_programs import infer_type

import relaxvm
from relaxvm import ir, relax, tirx
from relaxvm.relax import op

N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")


def tensor(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return relax.Var(name, relax.TensorType(list(shape), dtype))


X = tensor("x", N, 8)


def attrs(call: Any) -> dict[str, Any]:
    return {str(k): v for k, v in call.attrs.values.items()}


def test_one_stride_stands_for_all_axes() -> None:
    call = op.nn.conv2d(tensor("d", 1, 3, 9, 9), tensor("w", 4, 3, 3, 3), strides=2, padding=[1, 2])
    assert list(attrs(call)["strides"]) == [2, 2]
    assert list(attrs(call)["padding"]) == [1, 2, 1, 2]
    assert attrs(call)["out_layout"] == "NCHW"


def test_attributes_are_complete_and_in_order() -> None:
    call = op.nn.softmax(X)
    assert attrs(call) == {"axis": -1}
    assert list(attrs(op.sum(X))) == ["axis", "keepdims"]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: op.shape_of(X), "R.Shape([n, 8])"),
        (lambda: op.shape_to_tensor(relax.ShapeExpr([N, 8])), 'R.Tensor((2,), dtype="int64")'),
        (lambda: op.tensor_to_shape(tensor("s", 3, dtype="int64")), "R.Shape(ndim=3)"),
        (lambda: op.size(X), 'R.Tensor((), dtype="int64")'),
        (lambda: op.null_value(), "R.Any"),
        (lambda: op.nonzero(X), 'R.Tensor(dtype="int64", ndim=2)'),
        (lambda: op.unique(X), 'R.Tensor(dtype="float32", ndim=1)'),
    ],
)
def test_types_of_core_calls(make: Any, expected: str) -> None:
    assert str(infer_type(make())) == expected


def test_call_tir_takes_its_type_from_the_call() -> None:
    gv = ir.GlobalVar("f")
    call = op.call_tir(gv, X, out_ty=relax.TensorType([N, M], "int8"))
    assert isinstance(call.args[1], relax.Tuple)
    assert str(infer_type(call)) == 'R.Tensor((n, m), dtype="int8")'


def test_inplace_indices_are_checked() -> None:
    gv = ir.GlobalVar("f")
    out = relax.TensorType([N, 8], "float32")
    assert str(infer_type(op.call_tir_inplace(gv, [X], [0], out))) == str(out)
    with pytest.raises(ValueError, match=r"inplace_indices\[0\] is 1, but there are 1 arguments"):
        infer_type(op.call_tir_inplace(gv, [X], [1], out))
    with pytest.raises(TypeError, match=r"result 0 is .* and cannot overwrite argument 0"):
        infer_type(op.call_tir_inplace(gv, [X], [0], relax.TensorType([N, 9], "float32")))


def run_main(params: list[Any], call: Any, *arrays: np.ndarray) -> np.ndarray:
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(call))
    main = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())["main"]
    return main(*[relaxvm.runtime.tensor(a) for a in arrays]).numpy()


def test_dynamic_strided_slice_follows_numpy() -> None:
    x = tensor("x", N, M)
    bounds = [tensor(name, 2, dtype="int64") for name in ("begin", "end", "strides")]
    builder = relax.BlockBuilder()
    with builder.function("main", [x, *bounds]):
        builder.emit_func_output(builder.emit(op.dynamic_strided_slice(x, *bounds)))
    main = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())["main"]
    data = np.arange(7 * 9, dtype="float32").reshape(7, 9)
    for begin, end, stride in [
        ((1, 0), (6, 9), (2, 3)),
        ((-1, 7), (-9, 1), (-2, -1)),
        ((5, 2), (2, 2), (1, 1)),
    ]:
        got = main(
            *[relaxvm.runtime.tensor(np.array(v)) for v in (data, begin, end, stride)]
        ).numpy()
        slices = tuple(slice(b, None if s < 0 and e < -n else e, s) for b, e, s, n in zip(begin, end, stride, data.shape, strict=True))  # fmt: skip
        np.testing.assert_array_equal(got, data[slices])


def test_scalars_stand_for_tensors_in_arithmetic() -> None:
    x = tensor("x", N)
    got = run_main(
        [x], op.multiply(x, relax.prim_value(tirx.const(3.0, "float32"))), np.ones(4, "float32")
    )
    np.testing.assert_array_equal(got, np.full(4, 3, "float32"))


def test_sizes_that_only_a_shape_names_reach_the_program() -> None:
    x = tensor("x", N)
    got = run_main(
        [x], op.zeros(relax.ShapeExpr([N + 1, 2]), dtype="float32"), np.ones(4, "float32")
    )
    assert got.shape == (5, 2)
    assert not got.any()


DATA = np.array(
    [[3.0, 0.0, np.nan, -0.0], [3.0, 1.5, 0.0, np.nan], [3.0, 0.0, np.nan, 0.0]], "float32"
)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int8", "uint16", "int64", "bool"]
)
def test_nonzero_follows_numpy(dtype: str) -> None:
    data = np.nan_to_num(DATA).astype(dtype) if dtype[0] != "f" else DATA.astype(dtype)
    x = tensor("x", N, M, dtype=dtype)
    got = run_main([x], op.nonzero(x), data)
    np.testing.assert_array_equal(got, np.stack(np.nonzero(data)))


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64"])
def test_unique_follows_numpy(axis: int | None, dtype: str) -> None:
    rng = np.random.default_rng(7)
    data = rng.integers(0, 3, (6, 3)).astype(dtype)
    if dtype == "int8":
        data -= 1
    x = tensor("x", N, M, dtype=dtype)
    more = () if axis is None else (axis,)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.unique(x, True, True, True, True, *more)))
    main = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())["main"]
    got = [t.numpy() for t in main(relaxvm.runtime.tensor(data))]
    want = np.unique(data, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine, theirs.reshape(mine.shape))


def test_unique_in_order_of_appearance_with_one_nan() -> None:
    x = tensor("x", N)
    data = np.array([2, np.nan, 1, 2, np.nan, -0.0, 0.0], "float32")
    got = run_main([x], op.unique(x, False), data)
    np.testing.assert_array_equal(got, np.array([2, np.nan, 1, 0], "float32"))


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int64", "uint64"])
def test_unique_of_far_apart_elements_follows_numpy(sort: bool, dtype: str) -> None:
    find = relaxvm.get_global_func("relax.run.unique")
    bits = np.dtype(dtype).itemsize * 8
    for count in (0, 1, 3000):
        rng = np.random.default_rng(count)
        data = rng.integers(0, 2**bits, max(count // 2, 1), dtype="uint64")
        data = rng.choice(data, count).astype(f"uint{bits}").view(dtype)
        data = np.nan_to_num(data) if dtype[0] == "f" else data
        got = [t.numpy() for t in find(relaxvm.runtime.tensor(data), sort, True, True, True)]
        values, first, inverse, counts = np.unique(
            data, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.arange(len(values)) if sort else np.argsort(first)
        want = [values[order], first[order], np.argsort(order)[inverse], counts[order]]
        for mine, theirs in zip(got, want, strict=True):
            np.testing.assert_array_equal(mine, theirs)
