# SPDX-License-Identifier: Apache-2.0
"""Convolutions 3x3 in Winograd's form: as exact as the nine products, at sizes that fill tiles and at sizes that do not,
with what follows them, the same with any number of threads; and only where it is worth it."""

from __future__ import annotations

import re

import ml_dtypes  # noqa: F401 - NumPy learns bfloat16
import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

# images, height, width, channels, filters, padding
CASES = [
    (1, 56, 56, 64, 64, 1),
    (2, 13, 19, 64, 64, 1),
    (1, 9, 30, 32, 80, 1),
    (1, 9, 9, 48, 48, 0),
    (3, 7, 8, 64, 16, 2),
    (1, 17, 23, 96, 24, 1),
    (2, 9, 11, 40, 72, 1),
    (3, 8, 8, 64, 64, 1),  # four tiles an image
    (7, 8, 12, 32, 64, 1),
    (1, 4, 4, 64, 64, 1),
]
# Few tiles of 4x4.
SMALL = [
    (1, 8, 8, 128, 128, 1),
    (1, 7, 8, 64, 104, 2),
    (2, 9, 10, 96, 80, 1),
    (1, 8, 8, 128, 128, 1, 2, 1),
    (1, 10, 9, 160, 96, 1, 2, 1),
    (1, 8, 12, 128, 128, 2, 1, 2),
]


# images, height, width, channels, filters, padding, groups, dilation
GROUPS = [
    (1, 28, 28, 64, 64, 1, 2, 1),
    (2, 13, 19, 96, 48, 1, 3, 1),
    (1, 9, 17, 40, 72, 0, 2, 1),  # groups end inside of vectors
    (1, 8, 8, 48, 240, 1, 2, 1),  # panels of a group that are not full
    (1, 14, 14, 256, 256, 1, 16, 1),
    # Several groups in each vector.
    (1, 28, 28, 64, 64, 1, 8, 1),
    (2, 13, 19, 104, 104, 1, 13, 1),  # the last vector has half as many
    (1, 14, 15, 40, 40, 2, 5, 2),
    (2, 12, 16, 80, 48, 1, 8, 1),  # vectors that are not full
    (1, 16, 16, 96, 120, 0, 24, 1),
]
DILATED = [
    (1, 32, 32, 64, 64, 2, 1, 2),
    (2, 13, 19, 64, 64, 2, 1, 2),  # the last tiles of some phases are empty
    (1, 17, 23, 64, 80, 4, 1, 4),
    (1, 14, 15, 64, 64, 0, 1, 3),
    (1, 20, 24, 64, 64, 1, 1, 2),  # less padding than dilation
    (1, 20, 24, 64, 64, 2, 2, 2),
]
# Weights that no second cache holds: blocks of more tiles than it has room for.
WIDE = [
    (1, 40, 36, 384, 288, 1),
    (2, 21, 19, 640, 96, 1),
    (1, 33, 30, 512, 104, 2, 1, 2),
    (1, 24, 24, 768, 640, 1),  # tiles of 4x4 would take too much memory
]


def convolution(
    case: tuple[int, ...], unknown: int, dtype: str = "float32"
) -> tuple[relaxvm.IRModule, np.ndarray, np.ndarray, np.ndarray]:
    images, height, width, channels, filters, padding, groups, dilation = (*case, 1, 1)[:8]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((images, height, width, channels), dtype=np.float32).astype(dtype)
    w = rng.standard_normal((3, 3, channels // groups, filters), dtype=np.float32)
    w = (w / np.float32(np.sqrt(9 * channels // groups))).astype(dtype)
    bias = rng.standard_normal(filters, dtype=np.float32).astype(dtype)
    dims = [relaxvm.tirx.Var(name, "int64") for name in "nhw"[:unknown]]
    dims += [images, height, width][unknown:]
    data = relax.Var("x", relax.TensorType([*dims, channels], dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            y = builder.emit(
                op.nn.conv2d(
                    data,
                    relax.const(w, dtype),
                    padding=padding,
                    groups=groups,
                    dilation=dilation,
                    data_layout="NHWC",
                    kernel_layout="HWIO",
                )
            )
            result = builder.emit_output(op.nn.relu(op.add(y, relax.const(bias, dtype))))
        builder.emit_func_output(result)
    return builder.finalize(), x, w, bias


def expected(case: tuple[int, ...], x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    padding, groups, step = (*case, 1, 1)[5:8]
    wide = np.pad(x.astype("float64"), [(0, 0), (padding,) * 2, (padding,) * 2, (0, 0)])
    height, width = wide.shape[1] - 2 * step, wide.shape[2] - 2 * step
    parts = []
    for of_group in range(groups):
        data = np.split(wide, groups, axis=3)[of_group]
        weight = np.split(w, groups, axis=3)[of_group].astype("float64")
        parts.append(
            sum(
                data[:, i * step : i * step + height, j * step : j * step + width] @ weight[i, j]
                for i in range(3)
                for j in range(3)
            )
        )
    return np.maximum(np.concatenate(parts, axis=3) + bias, 0)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("unknown", [0, 1, 3])
@pytest.mark.parametrize("case", CASES + SMALL + GROUPS + DILATED + WIDE, ids=str)
def test_right_results(case: tuple[int, ...], unknown: int, target: str) -> None:
    module, x, w, bias = convolution(case, unknown)
    vm = relaxvm.VirtualMachine(relaxvm.compile(module, target=target), relaxvm.cpu())
    want = expected(case, x, w, bias)
    vm.set_num_threads(1)
    alone = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    assert np.max(np.abs(alone - want)) < 4e-6 * np.max(np.abs(want))
    vm.set_num_threads(3)
    np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), alone)


# channels, filters, padding, groups, dilation
OPEN = [
    (512, 640, 1, 1, 1),
    (128, 96, 1, 1, 1),
    (96, 104, 1, 1, 1),
    (128, 128, 0, 1, 1),
    (96, 128, 2, 1, 1),
    (256, 256, 1, 16, 1),
    (120, 104, 1, 2, 1),
    (128, 96, 2, 1, 2),
    (96, 96, 1, 1, 3),  # less padding than dilation
]


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", OPEN, ids=str)
def test_images_of_few_tiles_and_of_many(case: tuple[int, ...], dtype: str, target: str) -> None:
    channels, _, padding, _, dilation = case
    module, _, w, bias = convolution((1, 9, 9, *case), 3, dtype)
    vm = relaxvm.VirtualMachine(relaxvm.compile(module, target=target), relaxvm.cpu())
    rng = np.random.default_rng(1)
    error = 4e-6 if dtype == "float32" else 2e-3
    sizes = [(1, 1), (3, 4), (5, 5), (6, 8), (2, 9), (7, 7), (9, 10), (12, 13), (20, 21)]
    for images, shape in zip([1, 1, 2, 0, 3, 1, 2, 1, 1], sizes, strict=True):
        shape = (images, *shape)
        if min(shape[1:]) + 2 * padding <= 2 * dilation:
            continue
        x = rng.standard_normal((*shape, channels), dtype=np.float32).astype(dtype)
        want = expected((*shape, *case), x, w, bias)
        vm.set_num_threads(1)
        alone = vm["main"](relaxvm.runtime.tensor(x)).numpy()
        assert alone.shape == want.shape
        assert np.max(np.abs(alone - want), initial=0) <= error * np.max(np.abs(want), initial=0)
        vm.set_num_threads(3)
        np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), alone)


# images, depth, height, width, channels, filters, layers of the kernel, padding of the depth
VOLUMES = [
    (1, 8, 16, 16, 16, 16, 3, 1),
    (2, 5, 13, 19, 32, 40, 3, 1),  # blocks of layers and of tiles that are not full
    (1, 7, 9, 30, 40, 24, 2, 0),
    (3, 4, 8, 8, 32, 80, 1, 0),  # one layer: pictures one after the other
    (1, 3, 20, 21, 24, 32, 5, 2),
    (1, 1, 8, 8, 64, 64, 3, 1),
    (1, 2, 8, 9, 128, 64, 3, 1),  # few tiles of 4x4
    (2, 3, 6, 6, 96, 96, 3, 1),
]


def volume(
    case: tuple[int, ...], unknown: int
) -> tuple[relaxvm.IRModule, np.ndarray, np.ndarray, np.ndarray]:
    images, *sizes, channels, filters, layers, padding = case
    rng = np.random.default_rng(0)
    x = rng.standard_normal((images, *sizes, channels), dtype=np.float32)
    w = rng.standard_normal((layers, 3, 3, channels, filters), dtype=np.float32)
    w /= np.float32(np.sqrt(9 * layers * channels))
    dims = [relaxvm.tirx.Var(name, "int64") for name in "ndhw"[:unknown]] + [images, *sizes][
        unknown:
    ]
    data = relax.Var("x", relax.TensorType([*dims, channels], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            attrs = {"data_layout": "NDHWC", "kernel_layout": "DHWIO", "padding": [padding, 1, 1]}
            y = builder.emit(op.nn.conv3d(data, relax.const(w), **attrs))
            result = builder.emit_output(op.nn.relu(y))
        builder.emit_func_output(result)
    wide = np.pad(x.astype("float64"), [(0, 0), (padding,) * 2, (1, 1), (1, 1), (0, 0)])
    depth = wide.shape[1] - layers + 1
    want = sum(
        wide[:, z : z + depth, i : i + sizes[1], j : j + sizes[2]] @ w[z, i, j].astype("float64")
        for z in range(layers)
        for i in range(3)
        for j in range(3)
    )
    return builder.finalize(), x, w, np.maximum(want, 0)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("unknown", [0, 2, 4])
@pytest.mark.parametrize("case", VOLUMES, ids=str)
def test_volumes(case: tuple[int, ...], unknown: int, target: str) -> None:
    module, x, _, want = volume(case, unknown)
    vm = relaxvm.VirtualMachine(relaxvm.compile(module, target=target), relaxvm.cpu())
    vm.set_num_threads(1)
    alone = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    assert np.max(np.abs(alone - want)) < 5e-6 * np.max(np.abs(want))
    vm.set_num_threads(3)
    np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), alone)


def test_volumes_are_transformed_layer_by_layer() -> None:
    for case in VOLUMES[:2]:
        module, *_ = volume(case, 4)
        assert "winograd_product" in relaxvm.compile(module, stop_after="lowered").script()


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("case", CASES[1:3] + GROUPS[1:2] + DILATED[1:2], ids=str)
def test_half_precision_is_transformed_in_float32(
    case: tuple[int, ...], dtype: str, target: str
) -> None:
    module, x, w, bias = convolution(case, 3, dtype)
    vm = relaxvm.VirtualMachine(relaxvm.compile(module, target=target), relaxvm.cpu())
    got = vm["main"](relaxvm.runtime.tensor(x)).numpy().astype("float64")
    want = expected(case, x, w, bias)
    # Rounded twice: the convolution, and the sum with the bias.
    least = 2.0 ** (-11 if dtype == "float16" else -8)
    assert np.max(np.abs(got - want) / (1 + np.abs(want))) < 2.5 * least


# Caches of a known size.
SERVER = "llvm -mcpu=icelake-server"


def lowered(case: tuple[int, ...], dtype: str = "float32", unknown: int = 3) -> str:
    module, *_ = convolution(case, unknown, dtype)
    return relaxvm.compile(module, target=SERVER, stop_after="lowered").script()


def points(module: relaxvm.IRModule, target: str = SERVER) -> int:
    """Of a panel of the transformed weights; 0: there are none."""
    script = relaxvm.compile(module, target=target, stop_after="lowered").script()
    if "winograd_product" not in script:
        return 0
    weights = re.findall(r"param_1: T.Buffer\(\((.*?)\), \"float32\"", script)
    return int(re.findall(r"\d+(?=\))", weights[0])[1])


def test_only_where_it_is_worth_it() -> None:
    assert "winograd_product" in lowered((1, 28, 28, 64, 64, 1))
    assert "winograd_product" in lowered((1, 28, 28, 64, 64, 1), "float16")
    assert "winograd" not in lowered((1, 28, 28, 3, 64, 1)), "there is little to multiply"
    assert "winograd" not in lowered((1, 3, 3, 1024, 1024, 1), unknown=0), (
        "weights are all there is"
    )
    assert "winograd_product" in lowered((1, 28, 28, 104, 104, 1, 13, 1))
    assert "winograd" not in lowered((1, 28, 28, 64, 64, 1, 16, 1)), "a group fills a quarter"
    assert "winograd" not in lowered((1, 12, 12, 64, 64, 12, 1, 12)), "phases do not fill tiles"


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_tiles_are_small_where_they_are_few(case: tuple[int, ...]) -> None:
    assert points(convolution(case, 0)[0]) == 16


def test_tiles_are_small_where_the_cache_does_not_hold_larger_weights() -> None:
    assert points(convolution((1, 28, 28, 512, 640, 1), 3)[0]) == 16 + 9
    assert points(convolution((1, 28, 28, 256, 256, 1), 3)[0]) == 36 + 9


def test_a_core_that_multiplies_less_in_a_cycle_has_time_to_read_larger_weights() -> None:
    few_tiles = convolution((1, 6, 6, 512, 512, 1), 0)[0]
    assert points(few_tiles) == 0, "as fast by the nine products"
    assert points(few_tiles, "llvm -mcpu=znver4") == 16


@pytest.mark.parametrize(("case", "forms"), [((128, 96), 2), ((512, 640), 1), ((48, 64), 1)])
def test_tiles_of_both_sizes_share_weights(case: tuple[int, int], forms: int) -> None:
    """Where sizes are open and weights for tiles of 4x4 are there, with the plain ones."""
    module, *_ = convolution((1, 9, 9, *case, 1), 3)
    script = relaxvm.compile(module, target=SERVER, stop_after="scheduled").script()
    assert len(re.findall(r"product\w* = T.alloc_buffer", script)) == forms


def test_plain_weights_stand_behind_the_points_where_images_may_be_small() -> None:
    assert points(convolution((1, 28, 28, 128, 128, 1), 3)[0]) == 36 + 9
    assert points(convolution((1, 28, 28, 128, 128, 1), 1)[0]) == 36
    assert points(convolution((1, 28, 28, 256, 256, 1, 16, 1), 3)[0]) == 36 + 9
    assert points(convolution((1, 28, 28, 48, 64, 1), 3)[0]) == 36, "reading them is quick"


@pytest.mark.parametrize("case", GROUPS + DILATED[:2] + CASES[:2], ids=str)
def test_padding_is_not_copied(case: tuple[int, ...]) -> None:
    script = lowered(case)
    assert "winograd_product" in script
    assert "pad" not in script.split("def main")[0]
