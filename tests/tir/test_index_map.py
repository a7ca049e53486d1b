# SPDX-License-Identifier: Apache-2.0
"""Index maps: where elements go, the way back, and what has none."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.script import from_source
from relaxvm.tirx import IndexMap, Var


def test_places_and_shape() -> None:
    blocks = IndexMap.from_func(lambda n, c, h: (n, c // 4, h, c % 4))
    assert [int(i) for i in blocks.map_indices([1, 6, 2])] == [1, 1, 2, 2]
    assert [int(n) for n in blocks.map_shape([2, 8, 3])] == [2, 2, 3, 4]
    assert [int(n) for n in blocks.map_shape([2, 7, 3])] == [2, 2, 3, 4]  # padded


def test_way_back() -> None:
    blocks = IndexMap.from_func(lambda i, j: (i // 4, j, i % 4))
    back = blocks.inverse([8, 3])
    assert back.is_equivalent_to(IndexMap.from_func(lambda a, b, c: (a * 4 + c, b)))
    with pytest.raises(ValueError, match="get no element"):
        blocks.inverse([7, 3])
    _, padding = blocks.non_surjective_inverse([7, 3])
    assert str(padding).strip() == "j0 * 4 + j2 >= 7"


def test_symbolic_extents() -> None:
    n = Var("n", "int64")
    flat = IndexMap.from_func(lambda i, j: (i * n + j,))
    m = Var("m", "int64")
    assert relaxvm.ir.structural_equal(flat.map_shape([m, n])[0], n * m)


@pytest.mark.parametrize(
    "mapping",
    [lambda i: (i * 2,), lambda i: (i // 2,), lambda i: (i % 4, i % 8), lambda i: (i * i,), lambda i: (i + 1,)],
)  # fmt: skip
def test_maps_without_a_way_back_are_refused(mapping) -> None:
    with pytest.raises(ValueError, match="no way back"):
        IndexMap.from_func(mapping).map_shape([16])


def test_wrong_numbers_of_indices() -> None:
    pair = IndexMap.from_func(lambda i, j: (j, i))
    with pytest.raises(ValueError, match="takes 2 indices, got 1"):
        pair.map_indices([3])
    with pytest.raises(TypeError, match="not 3"):
        IndexMap.from_func(lambda i, j: (j, i), ndim=3)
    with pytest.raises(TypeError, match="give ndim"):
        IndexMap.from_func(lambda *i: i[::-1])
    assert len(IndexMap.from_func(lambda *i: i[::-1], ndim=3).initial_indices) == 3


def test_random_maps_move_every_element_once() -> None:
    rng = random.Random(7)
    for _ in range(60):
        shape = [rng.choice([1, 2, 3, 4, 6, 8, 12]) for _ in range(rng.randint(1, 3))]
        cuts = [rng.choice([None, 2, 3, 4]) for _ in shape]

        indices = [Var(f"i{d}", "int64") for d in range(len(shape))]
        parts = []
        for i, cut in zip(indices, cuts, strict=True):
            parts += [i] if cut is None else [i // cut, i % cut]
        rng.shuffle(parts)
        index_map = IndexMap(indices, parts)
        x = np.arange(1, int(np.prod(shape)) + 1).reshape(shape)
        moved = index_map.map_ndarray(x)
        back, _ = index_map.non_surjective_inverse(shape)
        for place in itertools.product(*map(range, moved.shape)):
            if moved[place]:
                origin = tuple(int(i) for i in back.map_indices(place))
                assert x[origin] == moved[place]


def test_script_round_trip() -> None:
    x = relax.Var("x", relax.TensorType([7], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        moved = relax.op.layout_transform(x, lambda i: (i // 4, i % 4), pad_value=2)
        builder.emit_func_output(builder.emit(moved))
    mod = builder.get()
    relaxvm.ir.assert_structural_equal(from_source(mod.script()), mod)
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    result = vm["main"](relaxvm.runtime.tensor(np.arange(7, dtype="float32"))).numpy()
    assert result.tolist() == [[0, 1, 2, 3], [4, 5, 6, 2]]


def test_messages() -> None:
    x = relax.Var("x", relax.TensorType([7, 2], "float32"))
    builder = relax.BlockBuilder()
    with pytest.raises(TypeError, match="takes 1 indices, not 2"):
        relax.op.layout_transform(x, lambda i: (i,))
    with builder.function("main", [x]):
        with pytest.raises(TypeError, match="pad_value is of int32"):
            pad = relaxvm.tirx.const(1, "int32")
            builder.emit(relax.op.layout_transform(x, lambda i, j: (j, i), pad))
        builder.emit_func_output(x)
