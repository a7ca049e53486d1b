# SPDX-License-Identifier: Apache-2.0
"""Cases of bench/operators.py: recurrent layers, attention, quantised operators, detection and signals."""

from __future__ import annotations

from typing import Any

import numpy as np
from operator_cases import Case, Node, case, chain, node

# ---- recurrent layers


def _recurrent() -> list[Case]:
    def layer(
        op: str,
        seq: int,
        batch: int,
        given: int,
        hidden: int,
        direction: str = "forward",
        note: str = "",
        more: tuple[str, ...] = (),
        **attrs: Any,
    ) -> Case:
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
        d = 2 if direction == "bidirectional" else 1
        name = f"{op} {hidden} of {seq}x{batch}x{given} {direction} {note}".strip()
        rows = gates * hidden
        weights = (f"*{d}x{rows}x{given}", f"*{d}x{rows}x{hidden}", f"*{d}x{2 * rows}")
        return case(
            name,
            f"{seq}x{batch}x{given}",
            *weights,
            *more,
            outputs=3 if op == "LSTM" else 2,
            hidden_size=hidden,
            direction=direction,
            **attrs,
        )

    found = []
    for op in ("LSTM", "GRU"):
        found += [
            layer(op, 1, 1, 128, 128),
            layer(op, 50, 1, 128, 128),
            layer(op, 50, 8, 128, 128),
            layer(op, 20, 1, 64, 256),
            layer(op, 10, 1, 512, 512),
            layer(op, 30, 1, 40, 64, "bidirectional"),
            layer(op, 40, 1, 120, 48, "bidirectional"),
            layer(op, 40, 4, 96, 96, "bidirectional"),
            layer(op, 30, 2, 32, 32, "reverse"),
            layer(op, 100, 1, 8, 16),
            layer(op, 30, 1, 30, 37, note="odd"),
        ]
    lengths = ("i32:4 from1to 30",)
    return found + [
        layer("GRU", 50, 1, 128, 128, note="linear first", linear_before_reset=1),
        layer("GRU", 30, 4, 64, 96, "bidirectional", "linear first", linear_before_reset=1),
        layer("RNN", 50, 1, 128, 128),
        layer("RNN", 50, 8, 64, 256),
        layer("RNN", 30, 1, 64, 64, "bidirectional"),
        layer("LSTM", 30, 4, 64, 64, note="lengths", more=lengths),
        layer("GRU", 30, 4, 64, 64, note="lengths", more=lengths),
        case(
            "LSTM 128 with a state",
            "1x1x64",
            "*1x512x64",
            "*1x512x128",
            "*1x1024",
            None,
            "1x1x128",
            "1x1x128",
            outputs=3,
            hidden_size=128,
        ),
        case(
            "GRU 128 with a state",
            "1x1x64",
            "*1x384x64",
            "*1x384x128",
            "*1x768",
            None,
            "1x1x128",
            outputs=2,
            hidden_size=128,
            linear_before_reset=1,
        ),
        case(
            "LSTM 64 peepholes",
            "20x1x64",
            "*1x256x64",
            "*1x256x64",
            "*1x512",
            None,
            None,
            None,
            "*1x192",
            outputs=3,
            hidden_size=64,
        ),
        case(
            "GRU 64 without bias",
            "20x1x64",
            "*1x192x64",
            "*1x192x64",
            outputs=2,
            hidden_size=64,
        ),
    ]


# ---- attention


def _attention() -> list[Case]:
    found = []
    for b, s, heads, d in ((1, 128, 12, 64), (1, 197, 6, 64), (8, 50, 8, 64), (1, 500, 4, 32)):
        width = f"{b}x{s}x{heads * d}"
        found.append(
            case(f"ms.MultiHeadAttention {width} {heads}", width, width, width, num_heads=heads)
        )
        whole = f"{b}x{heads}x{s}x{d}"
        found.append(case(f"Attention {whole}", whole, whole, whole, version=23))
        found.append(
            case(f"Attention causal {whole}", whole, whole, whole, version=23, is_causal=1)
        )
    rows = "1x128x768"
    packed = ("1x128x768", "*768x2304", "*2304")
    return found + [
        case("ms.MultiHeadAttention bias", rows, rows, rows, "*2304", num_heads=12),
        case(
            "ms.MultiHeadAttention padding",
            "2x128x768",
            "2x128x768",
            "2x128x768",
            None,
            "i32:2x128 all 1",
            num_heads=12,
        ),
        case(
            "ms.MultiHeadAttention added",
            rows,
            rows,
            rows,
            None,
            None,
            "1x12x128x128",
            num_heads=12,
        ),
        case("ms.MultiHeadAttention cross", "1x16x512", "1x200x512", "1x200x512", num_heads=8),
        case("ms.MultiHeadAttention one", "1x1x512", "1x500x512", "1x500x512", num_heads=8),
        case("ms.Attention 128x768", *packed, num_heads=12),
        case("ms.Attention mask", *packed, "i32:1x128 all 1", num_heads=12),
        case("ms.Attention one way", "1x64x768", *packed[1:], num_heads=12, unidirectional=1),
        case("Attention mask", *["1x12x128x64"] * 3, "1x1x128x128", version=23),
        case("Attention bool mask", *["1x12x128x64"] * 3, "bool:128x128 all 1", version=23),
        case("Attention groups", "1x32x64x64", "1x8x64x64", "1x8x64x64", version=23),
        case("Attention rows", *[rows] * 3, version=23, q_num_heads=12, kv_num_heads=12),
        case("Attention one", "1x32x1x64", "1x32x500x64", "1x32x500x64", version=23),
        case(
            "Attention with a cache",
            *["1x12x1x64"] * 3,
            None,
            "1x12x255x64",
            "1x12x255x64",
            outputs=3,
            version=23,
        ),
        *[
            case(
                f"ms.GroupQueryAttention {s} of {total}",
                f"1x{s}x1024!",
                f"1x{s}x256!",
                f"1x{s}x256!",
                f"1x4!x{total - s}x64!",
                f"1x4!x{total - s}x64!",
                f"i32:1 all {total - 1}",
                f"i32: all {total}",
                "*1024x32",
                "*1024x32",
                outputs=3,
                num_heads=16,
                kv_num_heads=4,
                do_rotary=1,
            )
            for s, total in ((1, 128), (1, 700), (64, 64))
        ],
        case(
            "ms.RotaryEmbedding rows",
            "1x128x768",
            "i64:1x128 range 127",
            "*512x32",
            "*512x32",
        ),
        case(
            "ms.RotaryEmbedding heads",
            "1x12x128x64",
            "i64:1 all 0",
            "*512x32",
            "*512x32",
        ),
        case(
            "ms.RotaryEmbedding interleaved",
            "1x12x128x64",
            "i64:1x128 range 127",
            "*512x32",
            "*512x32",
            interleaved=1,
        ),
        case(
            "RotaryEmbedding heads",
            "1x12x128x64",
            "*512x32",
            "*512x32",
            "i64:1x128 range 127",
            version=23,
        ),
        case(
            "ms.EmbedLayerNormalization 128x768",
            "i32:1x128 below 3000",
            "i32:1x128 below 2",
            "*3000x768",
            "*512x768",
            "*2x768",
            "*768",
            "*768",
            "i32:1x128 all 1",
            outputs=2,
        ),
        chain(
            "Attention by parts",
            node("MatMul", "1x12x128x64", "1x12x64x128"),
            node("Mul", "@0", 0.125),
            node("Softmax", "@1", axis=-1),
            node("MatMul", "@2", "1x12x128x64"),
        ),
        chain(
            "Rotary by parts",
            node("Split", "1x12x128x64", outputs=2, axis=-1, num_outputs=2),
            node("Neg", "@0.1"),
            node("Concat", "@1", "@0", axis=-1),
            node("Mul", "@2", "1x1x128x64"),
        ),
    ]


# ---- bytes

_S, _T = np.float32(0.02), np.float32(0.005)
_U, _I = np.uint8(128), np.int8(0)


def _quantised() -> list[Case]:
    zeros = np.zeros(64, np.int8)
    return [
        case("QuantizeLinear u8", "1x64x56x56", 0.02, _U, slack=1),
        case("QuantizeLinear i8", "128x768", 0.02, _I, slack=1),
        case("QuantizeLinear channels", "1x64x56x56", "*64 scale 0.02", zeros, axis=1, slack=1),
        case("QuantizeLinear last axis", "512x64", "*64 scale 0.02", zeros, axis=1, slack=1),
        case("QuantizeLinear u16", "128x768", 0.001, np.uint16(32768), slack=2),
        case("DequantizeLinear u8", "u8:1x64x56x56", 0.02, _U),
        case("DequantizeLinear i8", "i8:128x768", 0.02, _I),
        case("DequantizeLinear i32", "i32:128x768", 0.001),
        case("DequantizeLinear channels", "i8:1x64x56x56", "*64 scale 0.02", zeros, axis=1),
        case("DequantizeLinear last axis", "i8:512x64", "*64 scale 0.02", zeros, axis=1),
        case("DequantizeLinear blocks", "i8:128x768", "*128x24 scale 0.02", axis=1, block_size=32),
        case("DynamicQuantizeLinear 128x768", "128x768", outputs=3, slack=1),
        case("DynamicQuantizeLinear image", "1x64x56x56", outputs=3, slack=1),
        case("DynamicQuantizeLinear row", "1x768", outputs=3, slack=1),
        chain(
            "QuantizeLinear and back",
            node("QuantizeLinear", "128x768", 0.02, _U),
            node("DequantizeLinear", "@0", 0.02, _U),
            slack=0.02,
        ),
        chain(
            "DequantizeLinear and MatMul",
            node("DequantizeLinear", "*i8:768x768", 0.01, _I),
            node("MatMul", "64x768", "@0"),
            slack=0.02,  # ONNX Runtime makes bytes of the other side, too
        ),
    ]


def _byte_products() -> list[Case]:
    found = []
    for m, k, n in ((1, 768, 768), (16, 768, 768), (128, 768, 768), (197, 192, 768), (37, 53, 71)):
        size = f"{m}x{k} by {k}x{n}"
        x, w = f"u8:{m}x{k}", f"*i8:{k}x{n}"
        found.append(case(f"MatMulInteger {size}", x, w, _U))
        found.append(
            case(f"QLinearMatMul {size}", x, _S, _U, w, _T, _I, np.float32(1.5), _U, slack=1)
        )
    dynamic: dict[str, Any] = {"slack": 0.02}
    return found + [
        case("MatMulInteger both", "u8:12x64x64", "u8:12x64x64", _U, _U),
        case("MatMulInteger i8", "i8:64x256", "*i8:256x256"),
        case("ms.QGemm 64x512", "u8:64x512", _S, _U, "*i8:256x512", _T, _I, None, transB=1),
        case(
            "ms.MatMulIntegerToFloat 64x768",
            "u8:64x768",
            "*i8:768x768",
            0.02,
            0.005,
            _U,
            None,
            "*768",
        ),
        case("ms.DynamicQuantizeMatMul 1x768", "1x768", "*i8:768x768", 0.005, **dynamic),
        case("ms.DynamicQuantizeMatMul 64x768", "64x768", "*i8:768x768", 0.005, **dynamic),
        chain(
            "DynamicQuantizeLinear and MatMulInteger",
            node("DynamicQuantizeLinear", "64x768", outputs=3),
            node("MatMulInteger", "@0", "*i8:768x768", "@0.2"),
            node("Cast", "@1", to=1),
            node("Mul", "@0.1", 0.01),
            node("Mul", "@2", "@3"),
            slack=0.02,
        ),
        *[
            case(
                f"ms.MatMulNBits {bits} bits {m}x768{note}",
                f"{m}x768",
                f"*u8:1024x24x{4 * bits}",
                "*24576 scale 0.02",
                K=768,
                N=1024,
                bits=bits,
                block_size=32,
                accuracy_level=level,
                slack=0.03 if level else None,
            )
            for m in (1, 16, 128)
            for bits, level, note in ((4, 0, ""), (4, 4, " in bytes"), (8, 0, ""))
        ],
        case(
            "ms.MatMulNBits zero points",
            "1x768",
            "*u8:1024x24x16",
            "*24576 scale 0.02",
            "*u8:12288",
            K=768,
            N=1024,
            bits=4,
            block_size=32,
        ),
    ]


def _byte_convolutions() -> list[Case]:
    found = []
    for name, x, w, attrs in (
        ("3x3 64x28x28", "1x64x28x28", "64x64x3x3", {"pads": [1] * 4}),
        ("1x1 256x14x14", "1x256x14x14", "256x256x1x1", {}),
        ("3x3/2 64x56x56", "1x64x56x56", "128x64x3x3", {"pads": [1] * 4, "strides": [2, 2]}),
        ("7x7/2 3x224x224", "1x3x224x224", "64x3x7x7", {"pads": [3] * 4, "strides": [2, 2]}),
        ("depthwise 96x56x56", "1x96x56x56", "96x1x3x3", {"pads": [1] * 4, "group": 96}),
        ("groups 4 64x28x28", "1x64x28x28", "64x16x3x3", {"pads": [1] * 4, "group": 4}),
        ("odd 17x21x21", "1x17x21x21", "19x17x3x3", {"pads": [1] * 4}),
    ):
        filters = w.split("x")[0]
        given = (f"u8:{x}", _S, _U, f"*i8:{w}", _T, _I, np.float32(0.5), _U)
        bias = f"*i32:{filters}"
        found.append(case(f"QLinearConv {name}", *given, bias, slack=1, **attrs))
        scales, zeros = f"*{filters} scale 0.005", np.zeros(int(filters), np.int8)
        nodes = [
            node("DequantizeLinear", f"u8:{x}", 0.02, _U),
            node("DequantizeLinear", f"*i8:{w}", scales, zeros, axis=0),
            node("Conv", "@0", "@1", f"*{filters}", **attrs),
            node("QuantizeLinear", "@2", 0.5, _U),
        ]
        found.append(chain(f"Conv between bytes {name}", *nodes, slack=1))
    return found + [
        case("ConvInteger 3x3", "u8:1x64x28x28", "*u8:64x64x3x3", _U, _U, pads=[1] * 4),
        case("ConvInteger 1x1", "u8:1x64x28x28", "*u8:64x64x1x1", _U),
    ]


def _byte_rows() -> list[Case]:
    x, y = "u8:1x64x56x56", np.float32(0.03)
    found = []
    for op in ("QLinearAdd", "QLinearMul"):
        found.append(case(f"ms.{op} same", x, _S, _U, x, _S, _U, y, _U, slack=1))
        found.append(case(f"ms.{op} gate", x, _S, _U, "u8:1x64x1x1", _S, _U, y, _U, slack=1))
    sum_of: tuple[Node, ...] = (
        node("DequantizeLinear", x, 0.02, _U),
        node("DequantizeLinear", x, 0.03, _U),
        node("Add", "@0", "@1"),
        node("QuantizeLinear", "@2", 0.05, _U),
    )
    return found + [
        case("ms.QLinearSigmoid", x, _S, _U, np.float32(1 / 256), np.uint8(0), slack=1),
        case("ms.QLinearLeakyRelu", x, _S, _U, y, _U, alpha=0.1, slack=1),
        case(
            "ms.QLinearConcat",
            y,
            _U,
            x,
            _S,
            _U,
            x,
            y,
            _U,
            axis=1,
            slack=1,
        ),
        case(
            "ms.QLinearGlobalAveragePool",
            "u8:1x512x7x7",
            _S,
            _U,
            _S,
            _U,
            slack=1,
        ),
        case(
            "ms.QLinearAveragePool",
            x,
            _S,
            _U,
            _S,
            _U,
            kernel_shape=[3, 3],
            strides=[2, 2],
            slack=1,
        ),
        case(
            "ms.QLinearSoftmax 128",
            "u8:1536x128",
            _S,
            _U,
            np.float32(1 / 256),
            np.uint8(0),
            axis=-1,
            opset=13,
            slack=1,
        ),
        chain("Add between bytes", *sum_of, slack=1),
        chain(
            "Relu between bytes",
            node("DequantizeLinear", x, 0.02, _U),
            node("Relu", "@0"),
            node("QuantizeLinear", "@1", 0.02, np.uint8(0)),
            slack=1,
        ),
        chain(
            "Sigmoid between bytes",
            node("DequantizeLinear", x, 0.02, _U),
            node("Sigmoid", "@0"),
            node("QuantizeLinear", "@1", 1 / 256, np.uint8(0)),
            slack=1,
        ),
    ]


# ---- detection and signals


def _detection() -> list[Case]:
    half, tenth, none = np.float32(0.5), np.float32(0.1), np.float32(-1)
    found = []
    for classes, boxes, most in ((1, 2000, 100), (20, 1000, 50), (80, 400, 20), (1, 8400, 300)):
        size = f"{classes}x{boxes}"
        found.append(
            case(
                f"NonMaxSuppression {size}",
                f"1x{boxes}x4 boxes 640",
                f"1x{classes}x{boxes} unit",
                most,
                half,
                tenth if boxes < 8000 else none,
            )
        )
    for name, attrs in (
        ("half pixel", {"sampling_ratio": 2}),
        ("adaptive", {"sampling_ratio": 0}),
        (
            "whole pixel",
            {"sampling_ratio": 2, "coordinate_transformation_mode": "output_half_pixel"},
        ),
    ):
        found.append(
            case(
                f"RoiAlign {name}",
                "1x64x50x50",
                "50x4 boxes 800",
                "i64:50 below 1",
                output_height=7,
                output_width=7,
                spatial_scale=0.0625,
                **attrs,
            )
        )
    for mode in ("linear", "nearest", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            found.append(
                case(
                    f"GridSample {mode} {padding}",
                    "1x16x48x48",
                    "1x32x32x2 unit 1.1",
                    mode=mode,
                    padding_mode=padding,
                )
            )
    return found + [
        case(
            "GridSample corners",
            "1x3x128x128",
            "1x128x128x2 unit",
            align_corners=1,
        ),
        case("GridSample 3d", "1x4x8x32x32", "1x8x32x32x3 unit 1.1"),
        case("GridSample sites", "8x32x25x25", "8x300x4x2 unit 1.1"),
        case("AffineGrid 128", "1x2x3", [1, 3, 128, 128]),
        case("AffineGrid 3d", "1x3x4", [1, 3, 16, 32, 32]),
        chain(
            "MaxRoiPool 7x7",
            node("Concat", "*50x1 all 0", "50x4 boxes 400", axis=1),
            node("MaxRoiPool", "1x64x25x25", "@0", pooled_shape=[7, 7], spatial_scale=0.0625),
        ),
    ]


def _signals() -> list[Case]:
    rough = 1e-3  # ONNX Runtime itself is 1e-4 away from a DFT in float64 where the length is no power of two
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)).astype(np.float32)
    return [
        case("DFT 8x512", "8x512x1!", None, 1),
        case("DFT 8x512 complex", "8x512x2!", None, 1),
        case("DFT 8x512 inverse", "8x512x2!", None, 1, inverse=1),
        case("DFT 8x512 one side", "8x512x1!", None, 1, onesided=1),
        case("DFT 32x400 one side", "32x400x1!", None, 1, onesided=1, slack=rough),
        case("DFT 4x331", "4x331x1!", None, 1, slack=rough),
        case("DFT 32x400 to 512", "32x400x1!", 512, 1, onesided=1),
        case("DFT 64x64 axis 0", "64x64x2!", None, 0),
        case("DFT 1x4096", "1x4096x1!", None, 1),
        case("STFT 512", "1x8000x1!", 160, None, 512),
        case("STFT 400 window", "1x8000", 160, window, 400, slack=rough),
        case("STFT 400 two sides", "1x8000", 160, window, 400, onesided=0, slack=rough),
    ]


CASES = [
    *_recurrent(),
    *_attention(),
    *_quantised(),
    *_byte_products(),
    *_byte_convolutions(),
    *_byte_rows(),
    *_detection(),
    *_signals(),
]
