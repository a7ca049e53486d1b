# SPDX-License-Identifier: Apache-2.0
"""Cases of bench/operators.py: products, convolutions, pools and resizing."""

from __future__ import annotations

from typing import Any

import numpy as np
from operator_cases import Case, case, chain, node


def _products() -> list[Case]:
    found = []
    for m in (1, 2, 4, 8, 16, 64, 128, 197, 512):
        found.append(case(f"MatMul {m}x768 by 768x768", f"{m}x768", "*768x768"))
    for m, k, n in (
        (1, 1280, 1000),
        (1, 4096, 1024),
        (4, 1024, 4096),
        (32, 384, 1536),
        (64, 3072, 768),
        (50, 512, 2048),
        (1024, 64, 64),
        (256, 256, 256),
        (10000, 16, 8),
        (10000, 3, 64),
        (8, 64, 10000),
        (37, 53, 71),
        (100, 7, 3),
        (400, 256, 1),
        (1, 120, 6625),
        (40, 120, 6625),
        (3136, 96, 288),
        (196, 192, 768),
        (5, 5, 5),
    ):
        found.append(case(f"MatMul {m}x{k} by {k}x{n}", f"{m}x{k}", f"*{k}x{n}"))
    for x, y in (
        ("12x128x64", "12x64x128"),
        ("12x128x128", "12x128x64"),
        ("64x4x49x32", "64x4x32x49"),
        ("64x4x49x49", "64x4x49x32"),
        ("8x1x64", "8x64x500"),
        ("8x1x500", "8x500x64"),
        ("256x256", "256x256"),
        ("100x300", "300x200"),
        ("1x768", "768x768"),
        ("64x256", "256"),
        ("256", "256x64"),
        ("512x1", "1x512"),
        ("1x8x128x32", "1x1x32x128"),
        ("16x64x100", "100x64"),
        ("1000x3x3", "1000x3x3"),
        ("500x4x4", "500x4x1"),
        ("1x6x197x64", "1x6x64x197"),
    ):
        found.append(case(f"MatMul both {x} by {y}", x, y))
    return found + [
        case("MatMul const left", "*64x64", "1x64x3136"),
        case("MatMul const left of batch", "*17x17", "8x64x17x25"),
        case("MatMul tokens 4x128x768", "4x128x768", "*768x256"),
        case("MatMul f64", "f64:128x256", "*f64:256x256"),
        case("MatMul i32", "i32:64x64", "*i32:64x64"),
        case("MatMul i64", "i64:64x64 below 9", "i64:64x64 below 9"),
        chain(
            "MatMul by a transposed",
            node("Transpose", "12x128x64", perm=[0, 2, 1]),
            node("MatMul", "12x128x64", "@0"),
        ),
        chain(
            "MatMul of heads transposed",
            node("Transpose", "1x128x12x64", perm=[0, 2, 1, 3]),
            node("Transpose", "1x128x12x64", perm=[0, 2, 3, 1]),
            node("MatMul", "@0", "@1"),
        ),
        chain(
            "MatMul and bias and Gelu",
            node("MatMul", "128x768", "*768x1024"),
            node("Add", "@0", "*1024"),
            node("Gelu", "@1"),
        ),
        chain(
            "MatMul and residual",
            node("MatMul", "128x768", "*768x768"),
            node("Add", "@0", "128x768"),
        ),
        case("ms.FusedMatMul transB", "12x128x64", "12x128x64", transB=1, alpha=0.125),
        case("ms.FusedMatMul transA", "12x64x128", "12x64x128", transA=1),
        case("ms.FusedGemm Relu", "64x256", "*256x256", "*256", activation="Relu"),
        case("ms.TransposeMatMul", "12x128x64", "12x128x64", transB=1),
    ]


def _gemms() -> list[Case]:
    found = []
    for m in (1, 8, 64, 256):
        found.append(case(f"Gemm {m}x512 transB", f"{m}x512", "*1000x512", "*1000", transB=1))
    return found + [
        case("Gemm plain", "64x512", "*512x512", "*512"),
        case("Gemm transA", "512x64", "*512x256", "*256", transA=1),
        case("Gemm transA transB", "512x64", "*256x512", "*256", transA=1, transB=1),
        case("Gemm alpha beta", "64x512", "*512x256", "*256", alpha=0.5, beta=2.0),
        case("Gemm no bias", "64x512", "*512x256"),
        case("Gemm bias column", "64x512", "*512x256", "*64x1"),
        case("Gemm bias scalar", "64x512", "*512x256", 1.0),
        case("Gemm bias full", "64x512", "*512x256", "64x256"),
        case("Gemm both", "128x256", "256x128", "128"),
        case("Gemm both transB", "128x256", "128x256", "128", transB=1),
        case("Gemm both transA", "256x128", "256x128", transA=1),
        case("Gemm to one", "100x64", "*1x64", "*1", transB=1),
        case("Gemm 25088 to 256", "1x25088", "*256x25088", "*256", transB=1),
        case("Gemm f64", "f64:64x256", "*f64:256x256", "*f64:256"),
    ]


def _einsums() -> list[Case]:
    rows: tuple[tuple[str, ...], ...] = (
        ("bij,bjk->bik", "12x128x64", "12x64x128"),
        ("bhqd,bhkd->bhqk", "1x12x128x64", "1x12x128x64"),
        ("bhqk,bhkd->bhqd", "1x12x128x128", "1x12x128x64"),
        ("bqhd,bkhd->bhqk", "1x128x12x64", "1x128x12x64"),
        ("bhqk,bkhd->bqhd", "1x12x128x128", "1x128x12x64"),
        ("ij,jk,kl->il", "64x32", "32x64", "64x16"),
        ("ij->ji", "512x512"),
        ("ij->i", "512x512"),
        ("ii->i", "512x512"),
        ("bij,bij->bi", "8x128x256", "8x128x256"),
        ("i,j->ij", "512", "512"),
        ("bsh,hnd->bsnd", "1x128x768", "*768x12x64"),
        ("bsnd,ndh->bsh", "1x128x12x64", "*12x64x768"),
        ("bchw,kc->bkhw", "1x64x28x28", "*128x64"),
        ("bqc,bchw->bqhw", "1x100x256", "1x256x32x32"),
        ("nctv,vw->nctw", "1x64x50x25", "*25x25"),
        ("nkctv,kvw->nctw", "1x3x64x50x25", "*3x25x25"),
        ("...ij,...jk->...ik", "8x64x64", "8x64x64"),
        ("bhwc,hkc->bhwk", "64x14x14x32", "14x14x32"),
        ("bld,bn->bldn", "1x128x256", "1x16"),
        ("bdn,bn->bd", "1x1536x16", "1x16"),
    )
    return [case(f"Einsum {equation}", *given, equation=equation) for equation, *given in rows]


# ---- convolutions


def _conv(size: str, filters: int, window: str, stride: int = 1, **more: Any) -> Case:
    """A convolution of `size` (without the batch) that keeps the size, but for the stride."""
    batch, bias, note = more.pop("batch", 1), more.pop("bias", True), more.pop("note", "")
    sizes, kernel = [int(n) for n in size.split("x")], [int(n) for n in window.split("x")]
    dilation, groups = more.pop("dilation", 1), more.pop("groups", 1)
    margins = more.pop("pads", None)
    if margins is None:
        half = [dilation * (n - 1) // 2 for n in kernel]
        margins = [*half, *[dilation * (n - 1) - h for n, h in zip(kernel, half, strict=True)]]
    name = f"Conv {window}{f'/{stride}' if stride > 1 else ''} {size} to {filters}"
    name += f" groups {groups}" if groups > 1 else ""
    name += f" dilation {dilation}" if dilation > 1 else ""
    name += f" batch {batch}" if batch > 1 else ""
    weights = [f"*{filters}x{sizes[0] // groups}x{window}"] + ([f"*{filters}"] if bias else [])
    return case(
        f"{name} {note}".strip(),
        f"{batch}x{size}",
        *weights,
        pads=margins,
        strides=[stride] * len(kernel),
        dilations=[dilation] * len(kernel),
        group=groups,
    )


def _convolutions() -> list[Case]:
    conv = _conv
    return [
        conv("64x56x56", 64, "1x1"),
        conv("64x56x56", 256, "1x1"),
        conv("256x14x14", 1024, "1x1"),
        conv("512x7x7", 2048, "1x1"),
        conv("256x56x56", 512, "1x1", 2),
        conv("128x20x20", 85, "1x1"),
        conv("960x1x1", 240, "1x1"),
        conv("16x112x112", 1, "1x1"),
        conv("3x224x224", 32, "1x1"),
        conv("64x56x56", 64, "3x3"),
        conv("128x28x28", 128, "3x3"),
        conv("256x14x14", 256, "3x3"),
        conv("512x7x7", 512, "3x3"),
        conv("128x14x14", 128, "3x3", batch=4),
        conv("64x56x56", 128, "3x3", 2),
        conv("256x14x14", 256, "3x3", 2),
        conv("32x160x160", 16, "3x3"),
        conv("3x224x224", 32, "3x3", 2),
        conv("3x320x320", 16, "3x3"),
        conv("1x28x28", 32, "3x3"),
        conv("8x64x64", 8, "3x3"),
        conv("30x21x21", 50, "3x3"),
        conv("17x33x47", 19, "3x3"),
        conv("64x128x128", 3, "3x3"),
        conv("64x128x128", 2, "1x1"),
        conv("32x112x112", 3, "9x9"),
        conv("256x20x20", 4, "3x3"),
        conv("64x56x56", 64, "3x3", bias=False, note="no bias"),
        conv("64x56x56", 64, "3x3", pads=[0, 0, 0, 0], note="valid"),
        conv("64x56x56", 64, "3x3", 2, pads=[0, 0, 1, 1], note="SAME"),
        conv("64x56x56", 64, "3x3", pads=[2, 0, 0, 2], note="uneven"),
        conv("32x20x320", 32, "3x3", pads=[1, 0, 1, 0], note="one side"),
        conv("32x28x28", 64, "5x5"),
        conv("1x28x28", 16, "5x5"),
        conv("3x224x224", 64, "7x7", 2),
        conv("64x28x28", 64, "7x7"),
        conv("3x227x227", 96, "11x11", 4, pads=[0, 0, 0, 0]),
        conv("3x224x224", 192, "16x16", 16, pads=[0, 0, 0, 0]),
        conv("3x224x224", 96, "4x4", 4, pads=[0, 0, 0, 0]),
        conv("128x28x28", 64, "2x2", 2, pads=[0, 0, 0, 0]),
        conv("192x17x17", 192, "1x7"),
        conv("192x17x17", 192, "7x1"),
        conv("32x24x80", 32, "3x1"),
        conv("64x28x28", 64, "3x3", dilation=2),
        conv("128x28x28", 64, "3x3", dilation=6),
        conv("256x14x14", 64, "3x3", dilation=12),
        conv("64x112x112", 64, "3x3", groups=64),
        conv("96x112x112", 96, "3x3", 2, groups=96),
        conv("384x14x14", 384, "3x3", groups=384),
        conv("960x7x7", 960, "5x5", groups=960),
        conv("120x28x28", 120, "5x5", groups=120),
        conv("240x28x28", 240, "5x5", 2, groups=240),
        conv("96x56x56", 96, "7x7", groups=96),
        conv("30x21x21", 30, "3x3", groups=30),
        conv("32x56x56", 64, "3x3", groups=32, note="two each"),
        conv("64x28x28", 64, "3x3", groups=64, dilation=2),
        conv("128x28x28", 128, "3x3", groups=32),
        conv("128x28x28", 128, "3x3", groups=2),
        conv("232x14x14", 232, "3x3", 2, groups=29),
        conv("116x28x28", 116, "1x1", groups=4),
        conv("80x300", 256, "3"),
        conv("256x300", 256, "3"),
        conv("512x100", 512, "1"),
        conv("1x16000", 64, "10", 5, pads=[0, 0]),
        conv("1x16000", 16, "64", 8),
        conv("256x300", 256, "3", dilation=4),
        conv("256x300", 256, "31", groups=256),
        conv("512x100", 512, "4", groups=512, pads=[3, 0], note="causal"),
        conv("256x99", 256, "64", groups=16, pads=[32, 31]),
        conv("3x8x56x56", 16, "3x3x3"),
        conv("16x8x28x28", 32, "3x3x3"),
        conv("32x4x14x14", 64, "3x3x3", 2),
        conv("32x8x14x14", 32, "1x3x3"),
        conv("32x8x14x14", 32, "3x1x1"),
        conv("64x4x14x14", 64, "1x1x1"),
        case("Conv SAME_UPPER", "1x32x57x57", "*32x32x3x3", auto_pad="SAME_UPPER", strides=[2, 2]),
        case(
            "Conv weights of a run",
            "1x64x28x28",
            "64x64x3x3",
            pads=[1, 1, 1, 1],
            kernel_shape=[3, 3],
        ),
        chain(
            "Conv Relu 3x3",
            node("Conv", "1x64x28x28", "*64x64x3x3", "*64", pads=[1, 1, 1, 1]),
            node("Relu", "@0"),
        ),
        chain(
            "Conv SiLU 3x3",
            node("Conv", "1x64x40x40", "*64x64x3x3", "*64", pads=[1, 1, 1, 1]),
            node("Sigmoid", "@0"),
            node("Mul", "@0", "@1"),
        ),
        chain(
            "Conv Add 1x1",
            node("Conv", "1x64x56x56", "*64x64x1x1", "*64"),
            node("Add", "@0", "1x64x56x56"),
        ),
        chain(
            "Conv HardSwish depthwise",
            node("Conv", "1x120x28x28", "*120x1x5x5", "*120", pads=[2, 2, 2, 2], group=120),
            node("HardSwish", "@0"),
        ),
        chain(
            "Conv BatchNormalization Relu",
            node("Conv", "1x64x28x28", "*64x64x3x3", pads=[1, 1, 1, 1]),
            node("BatchNormalization", "@0", "*64", "*64", "*64", "*64 positive"),
            node("Relu", "@1"),
        ),
        case(
            "ms.FusedConv 3x3 Relu",
            "1x64x28x28",
            "*64x64x3x3",
            "*64",
            activation="Relu",
            pads=[1, 1, 1, 1],
        ),
        case(
            "DeformConv 3x3",
            "1x32x28x28",
            "*32x32x3x3",
            "1x18x28x28",
            "*32",
            pads=[1, 1, 1, 1],
            kernel_shape=[3, 3],
        ),
    ]


def _transposed_convolutions() -> list[Case]:
    rows: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
        ("2x2/2 64 to 64", "1x64x28x28", "64x64x2x2", {"strides": [2, 2]}),
        ("2x2/2 24 to 24", "1x24x80x80", "24x24x2x2", {"strides": [2, 2]}),
        ("2x2/2 24 to 1", "1x24x160x160", "24x1x2x2", {"strides": [2, 2]}),
        ("2x2/2 256 to 2", "1x256x14x14", "256x2x2x2", {"strides": [2, 2]}),
        ("4x4/2 128 to 64", "1x128x16x16", "128x64x4x4", {"strides": [2, 2], "pads": [1] * 4}),
        ("4x4/2 64 to 3", "1x64x64x64", "64x3x4x4", {"strides": [2, 2], "pads": [1] * 4}),
        (
            "3x3/2 and 1 more",
            "1x64x28x28",
            "64x32x3x3",
            {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]},
        ),
        ("3x3/2 no padding", "1x32x28x28", "32x32x3x3", {"strides": [2, 2]}),
        ("3x3 64 to 64", "1x64x28x28", "64x64x3x3", {"pads": [1] * 4}),
        ("4x4 100 to 256 of a point", "1x100x1x1", "100x256x4x4", {}),
        ("5x5/2 48 to 24", "1x48x32x32", "48x24x5x5", {"strides": [2, 2], "pads": [2] * 4}),
        ("3x3 dilation 2", "1x32x28x28", "32x32x3x3", {"dilations": [2, 2]}),
        (
            "4x4/2 groups 64",
            "1x64x28x28",
            "64x1x4x4",
            {"strides": [2, 2], "pads": [1] * 4, "group": 64},
        ),
        ("2x2/2 groups 4", "1x64x28x28", "64x16x2x2", {"strides": [2, 2], "group": 4}),
        ("16x16/8 21 to 21", "1x21x14x14", "21x21x16x16", {"strides": [8, 8], "pads": [4] * 4}),
        ("1d 4/2", "1x256x100", "256x128x4", {"strides": [2], "pads": [1, 1]}),
        ("1d 16/8", "1x128x50", "128x64x16", {"strides": [8], "pads": [4, 4]}),
        ("3d 2x2x2/2", "1x32x8x14x14", "32x16x2x2x2", {"strides": [2, 2, 2]}),
    )
    return [
        case(
            f"ConvTranspose {name}", x, f"*{w}", f"*{int(w.split('x')[1]) * a.get('group', 1)}", **a
        )
        for name, x, w, a in rows
    ]


# ---- pools


def _pools() -> list[Case]:
    found = []
    for op in ("MaxPool", "AveragePool"):
        for name, x, a in (
            ("2x2/2", "1x64x56x56", {"kernel_shape": [2, 2], "strides": [2, 2]}),
            (
                "2x2/2 ceil",
                "1x64x55x55",
                {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
            ),
            ("2x2", "1x64x28x28", {"kernel_shape": [2, 2]}),
            ("3x3", "1x192x17x17", {"kernel_shape": [3, 3], "pads": [1] * 4}),
            ("3x3/2", "1x64x112x112", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
            (
                "3x3/2 ceil",
                "1x64x55x55",
                {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
            ),
            ("3x3/2 odd", "1x30x21x21", {"kernel_shape": [3, 3], "strides": [2, 2]}),
            ("5x5", "1x128x20x20", {"kernel_shape": [5, 5], "pads": [2] * 4}),
            ("7x7/7", "1x64x56x56", {"kernel_shape": [7, 7], "strides": [7, 7]}),
            ("7x7", "1x512x7x7", {"kernel_shape": [7, 7]}),
            ("1d 3", "1x256x300", {"kernel_shape": [3], "pads": [1, 1]}),
            ("1d 2/2", "1x256x300", {"kernel_shape": [2], "strides": [2]}),
            ("3d 2x2x2/2", "1x32x8x28x28", {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
            (
                "3d 1x3x3/2",
                "1x32x8x28x28",
                {"kernel_shape": [1, 3, 3], "strides": [1, 2, 2], "pads": [0, 1, 1] * 2},
            ),
            ("dilation 2", "1x64x28x28", {"kernel_shape": [3, 3], "dilations": [2, 2]}),
            ("2x1/2x1", "1x128x24x80", {"kernel_shape": [2, 1], "strides": [2, 1]}),
            (
                "SAME",
                "1x64x55x55",
                {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
            ),
        ):
            found.append(case(f"{op} {name} {x}", x, **a))  # type: ignore[arg-type]
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        for x in ("1x1280x7x7", "1x64x56x56", "4x512x7x7", "1x256x300", "1x512x4x7x7"):
            found.append(case(f"{op} {x}", x))
    half: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    return found + [
        case("MaxPool 13x13", "1x128x13x13", kernel_shape=[13, 13], pads=[6] * 4),
        case("MaxPool 9x9", "1x128x20x20", kernel_shape=[9, 9], pads=[4] * 4),
        case("MaxPool 3x3 batch 4", "4x128x14x14", **half),
        case("MaxPool u8", "u8:1x64x56x56", **half),
        case("MaxPool i8", "i8:1x64x56x56", **half),
        case("MaxPool indices", "1x64x56x56", outputs=2, **half),
        case("MaxPool f64", "f64:1x64x28x28", **half),
        case("AveragePool with padding", "1x64x56x56", count_include_pad=1, **half),
        case("AveragePool blur", "1x1x320x320", kernel_shape=[5, 5], pads=[2] * 4),
        case("LpPool 2 of 3x3/2", "1x64x28x28", p=2, **half),
        case("LpPool 1 of 2x2/2", "1x64x28x28", p=1, kernel_shape=[2, 2], strides=[2, 2]),
        case("GlobalLpPool 2", "1x512x7x7", p=2),
        chain(
            "MaxUnpool after MaxPool",
            node("MaxPool", "1x32x56x56", outputs=2, kernel_shape=[2, 2], strides=[2, 2]),
            node("MaxUnpool", "@0", "@0.1", kernel_shape=[2, 2], strides=[2, 2]),
        ),
        chain(
            "MaxPool three of 5x5 and Concat",
            node("MaxPool", "1x128x20x20", kernel_shape=[5, 5], pads=[2] * 4),
            node("MaxPool", "@0", kernel_shape=[5, 5], pads=[2] * 4),
            node("MaxPool", "@1", kernel_shape=[5, 5], pads=[2] * 4),
            node("Concat", "@0", "@1", "@2", axis=1),
        ),
    ]


# ---- resizing


def _resized() -> list[Case]:
    def to(name: str, x: str, *sizes: int, **attrs: Any) -> Case:
        return case(f"Resize {name}", x, None, None, list(sizes), **attrs)

    def by(name: str, x: str, *scales: float, **attrs: Any) -> Case:
        return case(f"Resize {name}", x, None, np.array(scales, np.float32), **attrs)

    found = []
    asymmetric = {"coordinate_transformation_mode": "asymmetric"}
    corners = {"coordinate_transformation_mode": "align_corners"}
    for mode in ("nearest", "linear", "cubic"):
        c = 8 if mode == "cubic" else 32
        side, small = (160, 112) if mode == "cubic" else (320, 224)
        found += [
            by(f"{mode} up 2", f"1x{c}x28x28", 1, 1, 2, 2, mode=mode),
            by(f"{mode} down 2", f"1x{c}x56x56", 1, 1, 0.5, 0.5, mode=mode),
            to(f"{mode} 20 to 33", f"1x{c}x20x20", 1, c, 33, 33, mode=mode),
            to(f"{mode} corners", f"1x{c}x28x28", 1, c, 56, 56, mode=mode, **corners),
            to(f"{mode} asymmetric", f"1x{c}x28x28", 1, c, 56, 56, mode=mode, **asymmetric),
            to(f"{mode} picture", f"1x3x{side}x{side}", 1, 3, small, small, mode=mode),
        ]
        if mode != "nearest":
            antialias: dict[str, Any] = {"mode": mode, "antialias": 1}
            found.append(to(f"{mode} antialias down", "1x3x320x320", 1, 3, 128, 128, **antialias))
            found.append(to(f"{mode} antialias up", "1x3x64x64", 1, 3, 128, 128, **antialias))
    floor = {**asymmetric, "nearest_mode": "floor"}
    torch = {"coordinate_transformation_mode": "pytorch_half_pixel"}
    return found + [
        by("nearest floor up 2", "1x128x20x20", 1, 1, 2, 2, mode="nearest", **floor),
        by("nearest floor up 4", "1x24x40x40", 1, 1, 4, 4, mode="nearest", **floor),
        by("nearest floor up 8", "1x24x20x20", 1, 1, 8, 8, mode="nearest", **floor),
        by("linear up 4", "1x21x64x64", 1, 1, 4, 4, mode="linear"),
        by("linear up 8", "1x21x28x28", 1, 1, 8, 8, mode="linear"),
        to("linear torch", "1x32x28x28", 1, 32, 56, 56, mode="linear", **torch),
        to("cubic torch", "1x8x28x28", 1, 8, 56, 56, mode="cubic", cubic_coeff_a=-0.75, **torch),
        to("linear channels last", "1x56x56x32", 1, 112, 112, 32, mode="linear", **asymmetric),
        by("nearest channels last", "1x28x28x64", 1, 2, 2, 1, mode="nearest", **floor),
        by("linear 1d", "1x64x300", 1, 1, 2, mode="linear"),
        by("nearest 1d", "1x64x300", 1, 1, 2, mode="nearest"),
        by("linear 3d", "1x8x8x28x28", 1, 1, 2, 2, 2, mode="linear"),
        by("nearest 3d", "1x4x8x28x28", 1, 1, 2, 2, 2, mode="nearest"),
        to("linear to 1x1 grid", "1x64x6x6", 1, 64, 1, 1, mode="linear"),
        to("linear from 1x1", "1x256x1x1", 1, 256, 28, 28, mode="linear"),
        by("u8 nearest up 2", "u8:1x3x240x320", 1, 1, 2, 2, mode="nearest", **floor),
        case(
            "Resize u8 linear",
            "u8:1x3x480x640",
            None,
            None,
            [1, 3, 320, 320],
            mode="linear",
            slack=1,
        ),
    ]


CASES = [
    *_products(),
    *_gemms(),
    *_einsums(),
    *_convolutions(),
    *_transposed_convolutions(),
    *_pools(),
    *_resized(),
]
