# SPDX-License-Identifier: Apache-2.0
"""What layouts of results suggest for a tensor program's blocks and buffers."""

import pytest

from relaxvm.relax.analysis import suggest_layout_transforms
from relaxvm.script import from_source
from relaxvm.tirx import IndexMap

HEADER = """
from relaxvm.script import tirx as T

@T.prim_func(private=True, s_tir=True)
def f(%s):
%s
"""
LAST = lambda n, c, h, w: (n, h, w, c)
TILED = lambda n, c, h, w: (n, c // 4, h, w, c % 4)


def program(params, *blocks, temporaries=()):
    """Blocks as (extents of spatial axes, extents of reduced axes, statement with axes s0, s1, r0...)."""
    lines = [f"{name} = T.sblock_alloc_buffer({shape}, 'float32')" for name, shape in temporaries]
    for k, (spatial, reduced, statement) in enumerate(blocks):
        names = [f"s{i}" for i in range(len(spatial))] + [f"r{i}" for i in range(len(reduced))]
        loops = ", ".join(n.replace("s", "i").replace("r", "j") for n in names)
        kinds = "S" * len(spatial) + "R" * len(reduced)
        extents = ", ".join(map(str, (*spatial, *reduced)))
        lines += [
            f"for {loops} in T.grid({extents}):",
            f"    with T.sblock('block{k}'):",
            f"        {', '.join(names)} = T.axis.remap('{kinds}', [{loops}])",
            f"        {statement}",
        ]
    typed = ", ".join(f"{name}: T.Buffer({shape}, 'float32')" for name, shape in params)
    return from_source(HEADER % (typed, "\n".join("    " + line for line in lines)))


def suggested(func, *layouts):
    """By block: the maps of the block and of its buffers, by name."""
    found = suggest_layout_transforms(func, list(layouts))
    return {
        block.name_hint: {
            getattr(thing, "name_hint", None) or thing.name: m for thing, m in parts.items()
        }
        for block, parts in found.items()
    }


def check(func, layouts, expected):
    found = suggested(func, *layouts)
    assert {b: set(parts) for b, parts in found.items()} == {b: set(p) for b, p in expected.items()}
    for block, parts in expected.items():
        for name, function in parts.items():
            assert found[block][name].is_equivalent_to(IndexMap.from_func(function)), (block, name)


SHAPE = (2, 8, 6, 6)
IN_OUT = [("a", SHAPE), ("o", SHAPE)]


@pytest.mark.parametrize("layout", [LAST, TILED, lambda n, c, h, w: (n * 8 + c, h, w)])
def test_elementwise_work_takes_the_layout_of_its_result(layout):
    func = program(IN_OUT, (SHAPE, (), "o[s0, s1, s2, s3] = T.exp(a[s0, s1, s2, s3])"))
    check(func, [layout], {"block0": {"block0": layout, "o": layout, "a": layout}})


def test_operands_with_fewer_dimensions_take_a_part():
    func = program(
        [("a", SHAPE), ("b", (8, 6)), ("c", (6, 8)), ("o", SHAPE)],
        (SHAPE, (), "o[s0, s1, s2, s3] = a[s0, s1, s2, s3] + b[s1, s3] * c[s3, s1]"),
    )
    check(
        func,
        [TILED],
        {"block0": {"block0": TILED, "o": TILED, "a": TILED, "b": lambda c, w: (c // 4, w, c % 4)}},
    )
    assert set(suggested(func, LAST)["block0"]) == {"block0", "o", "a", "b"}


def test_reduced_axes_stay_where_they_are():
    func = program(
        [("a", SHAPE), ("o", (2, 6))],
        ((2, 6), (8, 6), "o[s0, s1] = o[s0, s1] + a[s0, r0, r1, s1]"),
    )
    split = lambda n, c: (n, c // 3, c % 3)
    found = suggested(func, split)["block0"]
    assert found["a"].is_equivalent_to(
        IndexMap.from_func(lambda n, d, e, c: (n, d, e, c // 3, c % 3))
    )
    # The block's own axes: spatial ones first, as they are listed.
    assert found["block0"].is_equivalent_to(
        IndexMap.from_func(lambda n, c, d, e: (n, c // 3, d, e, c % 3))
    )


def test_windows_follow_their_axis():
    func = program(
        [("a", (2, 8, 13, 7)), ("o", SHAPE)],
        (
            SHAPE,
            (2, 2),
            "o[s0, s1, s2, s3] = T.max(o[s0, s1, s2, s3], a[s0, s1, s2 * 2 + r0, s3 + r1])",
        ),
    )
    check(
        func,
        [LAST],
        {
            "block0": {
                "block0": lambda n, c, h, w, d, e: (n, h, w, c, d, e),
                "o": LAST,
                "a": LAST,
            }
        },
    )


def test_layouts_pass_through_temporaries():
    func = program(
        IN_OUT,
        (SHAPE, (), "t[s0, s1, s2, s3] = T.exp(a[s0, s1, s2, s3])"),
        (SHAPE, (), "o[s0, s1, s2, s3] = t[s0, s1, s2, s3] + T.float32(1)"),
        temporaries=[("t", SHAPE)],
    )
    check(
        func,
        [LAST],
        {
            "block0": {"block0": LAST, "t": LAST, "a": LAST},
            "block1": {"block1": LAST, "o": LAST, "t": LAST},
        },
    )


@pytest.mark.parametrize(
    "index",
    [
        "s1, s0, s2, s3",
        "s0, s1, s3, s2",
        "s0, s1, s2, s2",
        "s0, s1, s2 + s3, s3",
        "s0, s1, s2, 5 - s3 // 2",
    ],
)
def test_other_orders_get_no_suggestion(index):
    func = program(
        [("a", (8, 8, 12, 12)), ("o", SHAPE)],
        (SHAPE, (), f"o[s0, s1, s2, s3] = T.exp(a[{index}])"),
    )
    check(func, [LAST], {"block0": {"block0": LAST, "o": LAST}})


def test_loads_that_disagree_get_no_suggestion():
    func = program(IN_OUT, (SHAPE, (), "o[s0, s1, s2, s3] = a[s0, s1, s2, s3] * a[s0, s1, s3, s2]"))
    check(func, [LAST], {"block0": {"block0": LAST, "o": LAST}})


def test_mixed_axes_are_not_taken_apart():
    func = program(
        [("a", SHAPE), ("b", (8,)), ("o", SHAPE)],
        (SHAPE, (), "o[s0, s1, s2, s3] = a[s0, s1, s2, s3] + b[s1]"),
    )
    mixed = lambda n, c, h, w: (n * 8 + c, h, w)
    check(func, [mixed], {"block0": {"block0": mixed, "o": mixed, "a": mixed}})


def test_without_layouts_nothing_is_suggested():
    func = program(IN_OUT, (SHAPE, (), "o[s0, s1, s2, s3] = T.exp(a[s0, s1, s2, s3])"))
    assert suggested(func) == {}


def test_layouts_that_do_not_fit_are_an_error():
    func = program(IN_OUT, (SHAPE, (), "o[s0, s1, s2, s3] = T.exp(a[s0, s1, s2, s3])"))
    with pytest.raises(
        ValueError, match="the layout of o takes 2 indices, and it has 4 dimensions"
    ):
        suggested(func, lambda a, b: (b, a))
    with pytest.raises(ValueError, match="3 layouts are given for a program with 2 buffers"):
        suggested(func, LAST, LAST, LAST)
