# SPDX-License-Identifier: Apache-2.0
"""Tensors joined of parts that are joined themselves: each part is copied once, as long as it lies in memory."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)


def whole(*shape: int) -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype("float32")


def test_a_part_that_is_joined_of_parts_leaves_the_other_whole() -> None:
    n, m = (relaxvm.tirx.Var(name, "int64") for name in "nm")
    builder = relax.BlockBuilder()
    shapes = [[n, 24], [m, 8], [m, 16]]
    params = [relax.Var(x, relax.TensorType(shape, "float32")) for x, shape in zip("xyz", shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            part = op.concat([op.negative(params[1]), params[2]], axis=1)
            out = builder.emit_output(op.concat([params[0], part], axis=0))
        builder.emit_func_output(out)
    scheduled = relaxvm.compile(builder.get(), stop_after="scheduled")
    programs = [f for f in scheduled.functions.values() if not isinstance(f, relax.Function)]
    # One loop copies x, one for each part of the rest.
    assert sum(f.script().count("T.parallel") for f in programs) == 3
    vm = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())
    for sizes in [(0, 3), (5, 0), (7, 2)]:
        x, y, z = (whole(sizes[i > 0], w) for i, w in enumerate((24, 8, 16)))
        got = vm["main"](*(relaxvm.runtime.tensor(a) for a in (x, y, z))).numpy()
        np.testing.assert_array_equal(got, np.concatenate([x, np.concatenate([-y, z], 1)], 0))


def test_pictures_of_a_batch_that_may_be_one_are_cut_further_for_threads() -> None:
    """Resized, joined and permuted: the stages share the batch alone."""
    n, h, w = (relaxvm.tirx.Var(name, "int64") for name in "nhw")
    builder = relax.BlockBuilder()
    params = [relax.Var(x, relax.TensorType([n, 8, h, w], "float32")) for x in "xy"]
    with builder.function("main", params):
        with builder.dataflow():
            size = relax.ShapeExpr([2 * h, 2 * w])
            bigger = [op.image.resize2d(p, size, layout="NCHW", method="linear") for p in params]
            out = builder.emit_output(op.permute_dims(op.concat(bigger, axis=1), [0, 2, 3, 1]))
        builder.emit_func_output(out)
    scheduled = relaxvm.compile(builder.get(), stop_after="scheduled")
    programs = [f for f in scheduled.functions.values() if not isinstance(f, relax.Function)]
    text = "".join(f.script() for f in programs)
    assert "T.parallel(" in text
    assert "T.parallel(n," not in text
    vm = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())
    for sizes in [(1, 8, 3, 17), (2, 8, 20, 5), (0, 8, 3, 3)]:
        x, y = whole(*sizes), whole(*sizes)
        got = vm["main"](relaxvm.runtime.tensor(x), relaxvm.runtime.tensor(y)).numpy()
        a, b = np.concatenate([x, y], 1), np.arange(2 * sizes[3])
        at = np.maximum((b + 0.5) / 2 - 0.5, 0)
        low = at.astype(int)
        a = a[..., low] * (1 - at + low) + a[..., np.minimum(low + 1, sizes[3] - 1)] * (at - low)
        b = np.arange(2 * sizes[2])
        at = np.maximum((b + 0.5) / 2 - 0.5, 0)
        low = at.astype(int)
        rows, high = (at - low)[:, None], np.minimum(low + 1, sizes[2] - 1)
        a = a[..., low, :] * (1 - rows) + a[..., high, :] * rows
        np.testing.assert_allclose(got, a.transpose(0, 2, 3, 1), atol=1e-6)


def joined(
    shapes: list[list[object]], axis: int, rectify: bool = False, scaled: bool = False
) -> relaxvm.IRModule:
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)
    ]
    width = sum(shape[axis] for shape in shapes) if scaled else 0
    scale = relax.Var("scale", relax.TensorType([width], "float32"))
    with builder.function("main", [*params, scale] if scaled else params):
        with builder.dataflow():
            out = op.concat(params, axis=axis)
            out = op.nn.relu(out) if rectify else out
            out = builder.emit_output(op.multiply(out, scale) if scaled else out)
        builder.emit_func_output(out)
    return builder.get()


def scheduled(mod: relaxvm.IRModule) -> str:
    functions = relaxvm.compile(mod, stop_after="scheduled").functions.values()
    return "".join(f.script() for f in functions if not isinstance(f, relax.Function))


def run(mod: relaxvm.IRModule, parts: list[np.ndarray], num_threads: int = 2) -> np.ndarray:
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    vm.set_num_threads(num_threads)
    return vm["main"](*(relaxvm.runtime.tensor(a) for a in parts)).numpy()


@pytest.mark.parametrize(("count", "axis"), [(12, 0), (12, 1), (12, 2), (100, 1), (130, 0)])
def test_many_parts_of_unknown_sizes_share_one_loop(count: int, axis: int) -> None:
    """Also more of them than the simplifier adds up."""
    sizes = [relaxvm.tirx.Var(f"d{i}", "int64") for i in range(count)]
    shapes: list[list[object]] = [[3, 2, 5] for _ in sizes]
    for shape, size in zip(shapes, sizes):
        shape[axis] = size
    rectify = count == 12
    mod = joined(shapes, axis, rectify)
    assert scheduled(mod).count("T.parallel") == 1
    parts = []
    for _ in sizes:
        shape = [3, 2, 5]
        shape[axis] = int(RNG.integers(0, 40))
        parts.append(whole(*shape))
    want = np.concatenate(parts, axis)
    want = np.maximum(want, 0) if rectify else want
    np.testing.assert_array_equal(run(mod, parts), want)
    empty = [part[tuple(slice(0 if i == axis else None) for i in range(3))] for part in parts]
    np.testing.assert_array_equal(run(mod, empty), np.concatenate(empty, axis))


def test_parts_of_one_size_are_rows_of_one_loop_beside_the_others() -> None:
    """As in DenseNet: a wide part first, then narrow ones, and a formula that goes by the place."""
    n = relaxvm.tirx.Var("n", "int64")
    widths = [64] + [32] * 14 + [7, 7]
    mod = joined([[n, 9, w] for w in widths], 2, scaled=True)
    # The wide part, the fourteen, and the two that are too few to be looked up.
    assert scheduled(mod).count("T.parallel") == 4
    by = whole(sum(widths))
    for batch in (0, 1, 5):
        parts = [whole(batch, 9, w) for w in widths]
        want = np.concatenate(parts, 2) * by
        for num_threads in (1, 2):
            got = run(mod, [*parts, by], num_threads)
            np.testing.assert_array_equal(got, want)


def test_parts_of_many_known_sizes_are_one_loop() -> None:
    widths = list(range(3, 43))
    mod = joined([[6, w] for w in widths], 1)
    assert scheduled(mod).count("T.parallel") == 1
    parts = [whole(6, w) for w in widths]
    np.testing.assert_array_equal(run(mod, parts), np.concatenate(parts, 1))


def test_parts_of_different_formulas_are_not_taken_for_one_another() -> None:
    builder = relax.BlockBuilder()
    d = [relaxvm.tirx.Var(f"d{i}", "int64") for i in range(48)]
    params = [
        relax.Var(f"x{i}", relax.TensorType([size, 4], "float32")) for i, size in enumerate(d)
    ]
    forms = [op.negative, op.nn.relu, lambda x: op.add(x, relax.const(1.5, "float32")), op.abs]
    with builder.function("main", params):
        with builder.dataflow():
            parts = [forms[i % 4](x) for i, x in enumerate(params)]
            out = builder.emit_output(op.concat([*parts, params[3]], axis=0))
        builder.emit_func_output(out)
    values = [whole(int(size), 4) for size in RNG.integers(0, 9, 48)]
    numbers = [np.negative, lambda x: np.maximum(x, 0), lambda x: x + np.float32(1.5), np.abs]
    want = np.concatenate([*(numbers[i % 4](x) for i, x in enumerate(values)), values[3]])
    np.testing.assert_array_equal(run(builder.get(), values), want)


def test_parts_that_the_program_makes_itself_are_read_after_they_are_made() -> None:
    """Sums along rows stand in temporaries; only what nothing writes to is found by its address."""
    builder = relax.BlockBuilder()
    m = relaxvm.tirx.Var("m", "int64")
    params = [relax.Var(f"x{i}", relax.TensorType([m, 33], "float32")) for i in range(16)]
    with builder.function("main", params):
        with builder.dataflow():
            parts = [op.sum(x, axis=[1], keepdims=True) for x in params]
            out = builder.emit_output(op.concat(parts, axis=1))
        builder.emit_func_output(out)
    values = [whole(19, 33) for _ in params]
    want = np.concatenate([x.sum(1, keepdims=True) for x in values], 1)
    np.testing.assert_array_equal(run(builder.get(), values), want)


def test_parts_whose_sizes_are_products_lie_where_the_ones_before_end() -> None:
    """As the anchors of a detector's levels."""
    h = [relaxvm.tirx.Var(f"h{i}", "int64") for i in range(14)]
    sizes = RNG.integers(0, 5, 14)
    parts = [whole(int(s) ** 2 * 9, 4) for s in sizes] + [whole(int(s), 4) for s in sizes]
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType([s, 4], "float32")) for i, s in enumerate(h)]
    squares = [
        relax.Var(f"y{i}", relax.TensorType([s * s * 9, 4], "float32")) for i, s in enumerate(h)
    ]
    with builder.function("main", [*params, *squares]):
        with builder.dataflow():
            out = builder.emit_output(op.concat([*squares, *params], axis=0))
        builder.emit_func_output(out)
    mod = builder.get()
    # The place behind the first part is that part's size, whoever speaks of it: one name for each end.
    assert scheduled(mod).count(": T.int64 = end") == 26
    got = run(mod, [*parts[14:], *parts[:14]])
    np.testing.assert_array_equal(got, np.concatenate(parts))


@pytest.mark.parametrize("known", [True, False])
def test_padding_of_the_outermost_axis_is_a_piece_of_its_own(known: bool) -> None:
    """Rows before, rows as they are, rows behind; where rows are padded themselves, the middle asks for that alone."""
    n = 11 if known else relaxvm.tirx.Var("n", "int64")
    for widths, asks in (([2, 3, 0, 0, 0, 0], False), ([2, 3, 1, 0, 0, 0], True)):
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType([n, 70, 3], "uint8"))
        with builder.function("main", [x]):
            with builder.dataflow():
                out = builder.emit_output(op.nn.pad(x, widths, pad_value=7))
            builder.emit_func_output(out)
        scheduled = relaxvm.compile(builder.get(), stop_after="scheduled")
        programs = [f for f in scheduled.functions.values() if not isinstance(f, relax.Function)]
        text = "".join(f.script() for f in programs)
        if known:
            assert ("if_then_else" in text) == asks
        vm = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())
        pairs = list(zip(widths[::2], widths[1::2]))
        for rows in [11] if known else [0, 1, 9]:
            a = RNG.integers(0, 255, (rows, 70, 3)).astype("uint8")
            got = vm["main"](relaxvm.runtime.tensor(a)).numpy()
            np.testing.assert_array_equal(got, np.pad(a, pairs, constant_values=7))


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16"])
@pytest.mark.parametrize("known", [True, False])
def test_padded_and_permuted_pictures_are_turned_round_inside_of_their_padding(
    dtype: str, known: bool
) -> None:
    h, w = (37, 50) if known else (relaxvm.tirx.Var(name, "int64") for name in "hw")
    for axes, pads in (
        ([0, 2, 3, 1], [0, 0, 0, 0, 1, 2, 3, 0]),
        ([0, 3, 1, 2], [0, 0, 2, 1, 0, 2, 0, 0]),
        ([0, 3, 1, 2], [0, 0, 0, 0, 0, 0, 1, 1]),
    ):
        to_last = axes[1] == 2
        shape = [2, 33, h, w] if to_last else [2, h, w, 33]
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType(shape, dtype))
        with builder.function("main", [x]):
            with builder.dataflow():
                padded = op.nn.pad(x, pads, "constant", 3.0)
                out = builder.emit_output(op.permute_dims(padded, axes))
            builder.emit_func_output(out)
        mod = builder.get()
        assert "turned = T.alloc_buffer" in scheduled(mod)
        sizes = [(37, 50)] if known else [(37, 50), (16, 16), (1, 3), (5, 0)]
        for height, width in sizes:
            at = (2, 33, height, width) if to_last else (2, height, width, 33)
            value = RNG.integers(0, 9, at).astype(dtype)
            want = np.pad(value, np.reshape(pads, (4, 2)), constant_values=3).transpose(axes)
            for num_threads in (1, 3):
                np.testing.assert_array_equal(run(mod, [value], num_threads), want)
