# SPDX-License-Identifier: Apache-2.0
"""Cases of bench/operators.py: reductions, running sums, TopK, softmax and norms."""

from __future__ import annotations

from operator_cases import Case, case, chain, node

_REDUCTIONS = "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split()
_KINDS = {"Prod": " near1", "LogSum": " positive"}


def _reductions() -> list[Case]:
    found = []
    for word in _REDUCTIONS:
        op, kind = f"Reduce{word}", _KINDS.get(word, "")
        found.append(case(f"{op} last", f"128x768{kind}", [1], keepdims=0))
        found.append(case(f"{op} middle", f"32x128x64{kind}", [1]))
        found.append(case(f"{op} planes", f"1x64x56x56{kind}", [2, 3]))
    for word in ("Sum", "Mean", "Max"):
        op = f"Reduce{word}"
        found += [
            case(f"{op} first", "256x1024", [0], keepdims=0),
            case(f"{op} channels", "1x256x28x28", [1]),
            case(f"{op} all but channels", "8x64x28x28", [0, 2, 3]),
            case(f"{op} axes 0 and 2", "32x64x96", [0, 2]),
            case(f"{op} axes 1 and 3", "8x28x32x28", [1, 3]),
            case(f"{op} all", "256x1024", keepdims=0),
            case(f"{op} channels last", "1x56x56x64", [1, 2]),
            *[case(f"{op} rows of {n}", f"{m}x{n}", [1]) for m, n in ((20000, 3), (9000, 7))],
            case(f"{op} rows of 56", "3584x56", [-1]),
            case(f"{op} rows of 1000", "32x1000", [-1]),
            case(f"{op} one row of 50257", "1x50257", [-1]),
        ]
    return found + [
        *[case(f"ReduceSum {t}", f"{t}:128x768", [1]) for t in ("i32", "i64", "f64")],
        *[case(f"ReduceMax {t}", f"{t}:128x768", [1]) for t in ("i32", "i64", "u8", "i8")],
        *[case(f"ReduceMin {t} first", f"{t}:256x512", [0]) for t in ("i32", "u8")],
        case("ReduceSum i64 first", "i64:256x512", [0]),
        case("ReduceSum i64 mask", "i64:8x128 below 2", [1], keepdims=0),
        case("ReduceProd i64", "i64:1000x4 below 9", [1]),
        case("ReduceMean i32", "i32:128x768", [1], slack=1),
        case("ReduceMean f64 planes", "f64:1x64x56x56", [2, 3]),
    ]


def _positions() -> list[Case]:
    found = []
    for op in ("ArgMax", "ArgMin"):
        found += [
            case(f"{op} last", "128x768", axis=-1, keepdims=0),
            case(f"{op} first", "256x1024", axis=0, keepdims=0),
            case(f"{op} classes", "1x21x128x128", axis=1, keepdims=0),
        ]
    return found + [
        case("ArgMax 8400 boxes", "1x8400x80", axis=-1, keepdims=0),
        case("ArgMax rows of 7", "8000x7", axis=1),
        case("ArgMax rows of 56", "3584x56", axis=1),
        case("ArgMax one row", "1x50257", axis=-1),
        case("ArgMax of lines", "40x6625", axis=1, keepdims=0),
        case("ArgMax u8", "u8:480x640", axis=1),
        case("ArgMax i32", "i32:128x768", axis=-1),
        case("ArgMax the last one", "128x768", axis=-1, select_last_index=1),
    ]


def _running() -> list[Case]:
    return [
        case("CumSum last", "128x768", 1),
        case("CumSum first", "256x512", 0),
        case("CumSum middle", "16x64x64", 1),
        case("CumSum exclusive", "128x768", 1, exclusive=1),
        case("CumSum reverse", "128x768", 1, reverse=1),
        case("CumSum vector", "100000", 0),
        case("CumSum rows of 7", "5000x7", 1),
        case("CumSum i64 mask", "i64:8x512 below 2", 1),
        case("CumSum i32 first", "i32:256x512", 0),
        case("CumSum f64", "f64:128x768", 1),
    ]


def _top() -> list[Case]:
    found = [
        case(f"TopK {k} of {shape}", shape, [k], outputs=2, axis=-1)
        for k, shape in (
            (1, "1x1000"),
            (5, "1x1000"),
            (5, "128x768"),
            (8, "128x64"),
            (2, "1024x8"),
            (100, "1x8400"),
            (300, "1x8400"),
            (300, "1x24000"),
            (1000, "1x50000"),
            (50, "1x50257"),
            (50, "4x32000"),
            (768, "16x768"),
            (20, "256x1024"),
        )
    ]
    return found + [
        case("TopK 10 smallest", "64x1000", [10], outputs=2, largest=0),
        case("TopK 5 along axis 1", "1x84x2100", [5], outputs=2, axis=1),
        case("TopK 3 along axis 0", "100x512", [3], outputs=2, axis=0),
        case("TopK 1 along axis 1", "1x80x2100", [1], outputs=2, axis=1),
        case("TopK 10 i64", "i64:64x1000", [10], outputs=2),
        case("TopK 100 i32", "i32:1x8400", [100], outputs=2),
        case("TopK 10 f64", "f64:64x1000", [10], outputs=2),
        case("TopK 100 f64", "f64:1x8400", [100], outputs=2),
    ]


def _softmax() -> list[Case]:
    rows = "20000x3 9000x7 3584x56 1536x128 197x197 32x1000 1x1000 1x50257 4x32000 1x12x128x128"
    found = [case(f"Softmax {shape}", shape, axis=-1) for shape in rows.split()]
    for shape in ("9000x7", "128x768", "32x1000", "1x50257"):
        found.append(case(f"LogSoftmax {shape}", shape, axis=-1))
    return found + [
        case("Softmax of 21 classes", "1x21x96x96", axis=1),
        case("Softmax of two classes", "1x2x256x256", axis=1),
        case("Softmax axis 0", "128x768", axis=0),
        case("Softmax axis 2 of 4", "1x16x64x64", axis=2),
        case("Softmax of distributions", "1x4x16x2100", axis=2),
        case("LogSoftmax axis 1", "1x21x64x64", axis=1),
        case("LogSoftmax axis 0", "128x768", axis=0),
        case("Softmax f64", "f64:128x768"),
        case("Hardmax last", "128x768", axis=-1),
        case("Hardmax axis 1", "1x21x64x64", axis=1),
        chain(
            "Softmax masked",
            node("Add", "1x12x128x128", "1x1x1x128"),
            node("Softmax", "@0", axis=-1),
        ),
        chain(
            "Softmax scaled",
            node("Div", "1x12x128x128", 8.0),
            node("Softmax", "@0", axis=-1),
        ),
    ]


def _layer_norms() -> list[Case]:
    shapes = "128x768 1x196x384 1x3136x96 50x512 4096x64 8000x7 1x1x1024 32x1000 16x4096"
    found = []
    for shape in shapes.split():
        n = shape.split("x")[-1]
        op = "LayerNormalization"
        found.append(case(f"{op} {shape}", shape, f"*{n}", f"*{n}", axis=-1))
        if n in ("768", "4096", "64"):
            found.append(case(f"RMSNormalization {shape}", shape, f"*{n}", version=23))
            name = f"ms.SkipLayerNormalization {shape}"
            found.append(case(name, shape, shape, f"*{n}", f"*{n}", f"*{n}"))
            name = f"ms.SkipSimplifiedLayerNormalization {shape}"
            found.append(case(name, shape, shape, f"*{n}"))
            found.append(case(f"SimplifiedLayerNormalization {shape}", shape, f"*{n}"))
    return found + [
        case("LayerNormalization no bias", "128x768", "*768"),
        case("LayerNormalization statistics", "128x768", "*768", "*768", outputs=3),
        case("LayerNormalization two axes", "64x32x64", "*32x64", "*32x64", axis=1),
        case("LayerNormalization f64", "f64:128x768", "*f64:768", "*f64:768"),
        chain(
            "LayerNormalization of channels",
            node("Transpose", "1x96x56x56", perm=[0, 2, 3, 1]),
            node("LayerNormalization", "@0", "*96", "*96", axis=-1),
            node("Transpose", "@1", perm=[0, 3, 1, 2]),
        ),
    ]


def _other_norms() -> list[Case]:
    found = []
    for shape in (
        "1x64x56x56",
        "1x3x256x256",
        "8x128x14x14",
        "1x512x100",
        "1x32x7x7",
        "1x30x21x21",
    ):
        c = shape.split("x")[1]
        name = f"InstanceNormalization {shape}"
        found.append(case(name, shape, f"*{c}", f"*{c}"))
        variance = f"*{c} positive"
        name = f"BatchNormalization {shape}"
        found.append(case(name, shape, variance, f"*{c}", f"*{c}", variance))
    for shape, groups in (
        ("1x320x32x32", 32),
        ("1x64x56x56", 8),
        ("2x32x14x14", 1),
        ("1x30x21x21", 5),
        ("1x512x400", 32),
    ):
        c = shape.split("x")[1]
        name = f"GroupNormalization {groups} of {shape}"
        found.append(case(name, shape, f"*{c}", f"*{c}", num_groups=groups))
    for axis, shape in ((1, "1x256x28x28"), (-1, "128x768"), (-1, "2000x7"), (1, "1x512")):
        for p in (1, 2):
            found.append(case(f"LpNormalization {p} axis {axis} {shape}", shape, axis=axis, p=p))
    return found + [
        case("LRN 5 of 96x27x27", "1x96x27x27", size=5, alpha=1e-4, beta=0.75),
        case("LRN 3 of 64x28x28", "1x64x28x28", size=3),
        case("MeanVarianceNormalization", "1x64x56x56"),
        case("MeanVarianceNormalization channels", "1x64x56x56", axes=[1]),
        case("MeanVarianceNormalization planes", "1x64x56x56", axes=[2, 3]),
        case("BatchNormalization of rows", "128x768", "*768", "*768", "*768", "*768 positive"),
    ]


CASES = [
    *_reductions(),
    *_positions(),
    *_running(),
    *_top(),
    *_softmax(),
    *_layer_norms(),
    *_other_norms(),
]
