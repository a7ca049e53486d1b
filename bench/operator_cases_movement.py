# SPDX-License-Identifier: Apache-2.0
"""Cases of bench/operators.py: data movement, indexing, and what makes tensors from nothing."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto
from operator_cases import Case, Input, case, chain, node

_TRANSPOSED = {
    "1024x1024": "10",
    "1000x3": "10",
    "3x1000": "10",
    "333x777": "10",
    "1x64x56x56": "0231",
    "1x56x56x64": "0312",
    "1x3x224x224": "0231",
    "1x224x224x3": "0312",
    "1x128x12x64": "0213",
    "1x12x128x64": "0132 0213",
    "2x3x4x5x6x7": "503142",
    "197x3x12x64": "1203",
    "1x8x8x7x8x7x32": "0135246",
    "1x56x56x3x32": "03124",
    "128x8x64": "102 120 201",
    "64x64x64": "210",
    "1x256x7x7": "0231",
    "1x40x1x512": "3012",
    "16x16x16x16x3": "40213",
}


def _transposed() -> list[Case]:
    found = []
    for shape, perms in _TRANSPOSED.items():
        for perm in perms.split():
            axes = [int(axis) for axis in perm]
            found.append(case(f"Transpose {shape} {perm}", shape, perm=axes))
    for dtype, shape, perm in (
        ("u8", "480x640x3", "201"),
        ("u8", "3x480x640", "120"),
        ("i64", "128x1000", "10"),
        ("f16", "1024x1024", "10"),
        ("f64", "512x512", "10"),
        ("bool", "512x512", "10"),
    ):
        axes = [int(axis) for axis in perm]
        found.append(case(f"Transpose {dtype} {shape} {perm}", f"{dtype}:{shape}", perm=axes))
    return found


def _joined() -> list[Case]:
    def joined(name: str, *inputs: Input, axis: int) -> Case:
        return case(f"Concat {name}", *inputs, axis=axis)

    def parts(name: str, given: str, sizes: list[int], axis: int) -> Case:
        return case(f"Split {name}", given, sizes, outputs=len(sizes), axis=axis)

    return [
        joined("channels", "1x64x56x56", "1x64x56x56", axis=1),
        joined("channels of four", *["1x64x20x20"] * 4, axis=1),
        joined("many channels", *["1x32x14x14"] * 16, axis=1),
        joined("rows", "512x256", "512x256", axis=0),
        joined("last", "512x256", "512x256", axis=-1),
        joined("last odd", "512x3", "512x80", axis=-1),
        joined("columns", *["1024x1"] * 4, axis=-1),
        joined("a cache", "1x12x127x64", "1x12x1x64", axis=2),
        joined("a class token", "*1x1x768", "1x196x768", axis=1),
        joined("boxes", "1x1600x85", "1x400x85", "1x100x85", axis=1),
        joined("halves turned", "1x12x128x32", "1x12x128x32", axis=-1),
        joined("u8", "u8:240x320x3", "u8:240x320x3", axis=0),
        joined("u8 last", "u8:240x320x3", "u8:240x320x1", axis=-1),
        joined("i64 shapes", "i64:1", "i64:1", "*i64:2", axis=0),
        parts("channels", "1x64x56x56", [32, 32], 1),
        parts("last in three", "128x2304", [768, 768, 768], -1),
        parts("last odd", "1x2100x85", [4, 1, 80], -1),
        parts("rows", "512x256", [128, 384], 0),
        parts("gates", "1x256x80", [128, 128], 1),
        case("Split in four", "1x64x28x28", outputs=4, axis=1, num_outputs=4),
        parts("u8", "u8:480x640x3", [1, 1, 1], -1),
    ]


def _slices() -> list[Case]:
    def part(name: str, x: str, starts: list[int], ends: list[int], *more: list[int]) -> Case:
        return case(f"Slice {name}", x, starts, ends, *more)

    end = 1 << 60
    return [
        part("rows", "1024x256", [100], [900], [0]),
        part("columns", "1024x256", [17], [201], [1]),
        part("a crop", "1x64x60x60", [2, 2], [58, 58], [2, 3]),
        part("channels", "1x64x56x56", [32], [end], [1]),
        part("every second", "1024x256", [0], [end], [1], [2]),
        part("every second row", "1024x256", [0], [end], [0], [2]),
        part("focus", "1x3x320x320", [0, 1], [end, end], [2, 3], [2, 2]),
        part("reversed", "1024x256", [-1], [-end], [1], [-1]),
        part("reversed rows", "1024x256", [-1], [-end], [0], [-1]),
        part("BGR to RGB", "u8:480x640x3", [-1], [-end], [2], [-1]),
        part("last of a sequence", "16x128x256", [-1], [end], [1]),
        part("first of four", "1x8400x84", [0], [4], [2]),
        part("without first of four", "1x8400x84", [4], [end], [2]),
        part("every third", "3x1000x9", [1], [end], [2], [3]),
        part("i64", "i64:512x512", [0], [300], [1]),
        part("u8 crop", "u8:480x640x3", [100, 100], [400, 500], [0, 1]),
        case("CenterCropPad 224", "3x256x256", [224, 224], axes=[1, 2]),
        case("CenterCropPad 300", "3x256x256", [300, 300], axes=[1, 2]),
    ]


def _padded() -> list[Case]:
    image, one = "1x64x56x56", [0, 0, 1, 1, 0, 0, 1, 1]
    found = [
        case(f"Pad {mode} planes", image, one, mode=mode)
        for mode in ("constant", "reflect", "edge", "wrap")
    ]
    return found + [
        case("Pad constant 1 by 3", "1x3x224x224", [0, 0, 3, 3, 0, 0, 3, 3], 1.0),
        case("Pad reflect 10", "1x3x224x224", [0, 0, 10, 10, 0, 0, 10, 10], mode="reflect"),
        case("Pad end only", "1x64x56x56", [0, 0, 0, 0, 0, 0, 1, 1]),
        case("Pad channels last", "1x56x56x64", [0, 1, 1, 0, 0, 1, 1, 0]),
        case("Pad sequence", "1x512x300", [0, 0, 3, 0, 0, 3]),
        case("Pad causal", "1x300x512", [0, 4, 0, 0, 0, 0]),
        case("Pad reflect sound", "1x16000", [0, 200, 0, 200], mode="reflect"),
        case("Pad negative", "1x64x58x58", [0, 0, -1, -1, 0, 0, -1, -1]),
        case("Pad u8 picture", "u8:480x640x3", [80, 0, 0, 80, 0, 0], np.uint8(114)),
        case("Pad i64 ids", "i64:8x100", [0, 0, 0, 28], 0),
        case("Pad channels", "1x30x28x28", [0, 0, 0, 0, 0, 2, 0, 0]),
        case("Pad axes", "1x64x56x56", [1, 1, 1, 1], None, [2, 3]),
    ]


def _repeated() -> list[Case]:
    return [
        case("Tile rows", "256x256", [4, 1]),
        case("Tile columns", "256x64", [1, 4]),
        case("Tile both", "64x64", [4, 4]),
        case("Tile beams", "1x128x768", [4, 1, 1]),
        case("Tile a column", "1024x1", [1, 64]),
        case("Tile odd", "57x3", [2, 50]),
        case("Tile u8", "u8:240x320x1", [1, 1, 3]),
        case("Tile i64", "i64:1x512", [16, 1]),
        case("Expand a token", "1x1x768", [128, 1, 768]),
        case("Expand columns", "1024x1", [1024, 256]),
        case("Expand heads", "1x4x1x128x64", [1, 4, 3, 128, 64]),
        case("Expand a mask", "bool:1x1x1x128", [1, 1, 128, 128]),
        case("Expand a scalar", "1", [512, 512]),
        case("Expand i64", "i64:1x512", [64, 512]),
    ]


def _gathered() -> list[Case]:
    return [
        case("Gather words", "*30000x128", "i64:1x128 below 30000"),
        case("Gather words of 768", "*5000x768", "i64:4x128 below 5000"),
        case("Gather words i32", "*5000x64", "i32:1x512 below 5000"),
        case("Gather rows", "1024x256", "i64:300 below 1024"),
        case("Gather columns", "1024x256", "i64:100 below 256", axis=1),
        case("Gather one", "16x128x256", -1, axis=1),
        case("Gather first token", "16x197x384", 0, axis=1),
        case("Gather three parts", "3x1x12x197x32", 1, axis=0),
        case("Gather channels", "1x64x28x28", "*i64:64 distinct 64", axis=1),
        case("Gather last", "512x256", [3, 1, 2], axis=-1),
        case("Gather i64", "i64:5000", "i64:2000 below 5000"),
        case("Gather a palette", "*u8:256x3", "i32:240x320 below 256"),
        case("Gather bias of windows", "*169x4", "*i64:2401 below 169"),
        case("GatherElements last", "128x768", "i64:128x64 below 768", axis=1),
        case("GatherElements first", "256x512", "i64:64x512 below 256", axis=0),
        case("GatherElements boxes", "1x8400x4", "i64:1x300x4 below 8400", axis=1),
        case("GatherElements distances", "32x128x64", "i64:32x128x64 below 64", axis=-1),
        case("GatherND rows", "1024x256", "i64:300x1! below 1024"),
        case("GatherND points", "64x64x16", "i64:500x2! below 64"),
        case("GatherND batched", "8x512x64", "i64:8x100x1! below 512", batch_dims=1),
        case("GatherND scalars", "128x128", "i64:2000x2! below 128"),
        case("Compress rows", "1024x256", "bool:1024", axis=0),
        case("Compress columns", "256x512", "bool:512", axis=1),
        case("Compress flat", "128x128", "bool:16384"),
    ]


def _scattered() -> list[Case]:
    places = "i64:128x64 distinct 768"
    found = [
        case(
            f"ScatterElements {how}",
            "128x768",
            "i64:128x64 below 768",
            "128x64",
            axis=1,
            reduction=how,
        )
        for how in ("add", "mul", "max", "min")
    ]
    found += [
        case(f"ScatterND {how}", "1024x256", "i64:300x1! below 1024", "300x256", reduction=how)
        for how in ("add", "max")
    ]
    return found + [
        case("ScatterElements last", "128x768", places, "128x64", axis=1),
        case("ScatterElements first", "256x128", "i64:1x128 below 256", "1x128", axis=0),
        case(
            "ScatterElements nodes",
            "1000x32",
            "i64:5000x32 below 1000",
            "5000x32",
            reduction="add",
        ),
        case("ScatterND rows", "1024x256", "i64:300x1! distinct 1024", "300x256"),
        case("ScatterND a cache", "512x768", "i64:1x1! below 512", "1x768"),
        case("ScatterND points", "i64:4096", "i64:500x1! distinct 4096", "i64:500"),
    ]


def _blocks() -> list[Case]:
    return [
        case("SpaceToDepth 2", "1x64x56x56", blocksize=2),
        case("SpaceToDepth 4", "1x3x224x224", blocksize=4),
        case("DepthToSpace DCR 2", "1x256x28x28", blocksize=2, mode="DCR"),
        case("DepthToSpace CRD 2", "1x256x28x28", blocksize=2, mode="CRD"),
        case("DepthToSpace CRD 3", "1x27x100x100", blocksize=3, mode="CRD"),
        case("DepthToSpace CRD 4", "1x48x64x64", blocksize=4, mode="CRD"),
        case(
            "ReverseSequence time first",
            "64x16x128",
            "i64:16 from1to 64",
            time_axis=0,
            batch_axis=1,
        ),
        case(
            "ReverseSequence batch first",
            "16x64x128",
            "i64:16 from1to 64",
            time_axis=1,
            batch_axis=0,
        ),
        case("Trilu upper", "512x512", upper=1),
        case("Trilu lower", "8x128x128", upper=0),
        case("Trilu i64", "i64:256x256", 1, upper=1),
        case("Trilu bool", "bool:512x512", upper=0),
        case("Col2Im 2x2", "1x256x784", [56, 56], [2, 2], strides=[2, 2]),
        case("Col2Im 3x3", "1x144x900", [30, 30], [3, 3], pads=[1, 1, 1, 1]),
        chain(
            "Reshape after Transpose",
            node("Transpose", "1x12x128x64", perm=[0, 2, 1, 3]),
            node("Reshape", "@0", [1, 128, 768]),
        ),
        chain(
            "Transpose after Reshape",
            node("Reshape", "1x128x768", [1, 128, 12, 64]),
            node("Transpose", "@0", perm=[0, 2, 1, 3]),
        ),
        chain(
            "Channel shuffle",
            node("Reshape", "1x116x28x28", [1, 2, 58, 28, 28]),
            node("Transpose", "@0", perm=[0, 2, 1, 3, 4]),
            node("Reshape", "@1", [1, 116, 28, 28]),
        ),
        chain(
            "Pixels to patches",
            node("Reshape", "1x3x14x16x14x16", [3, 14, 16, 14, 16]),
            node("Transpose", "@0", perm=[1, 3, 0, 2, 4]),
        ),
        case("Reshape copy", "1x64x56x56", [64, 3136]),
        case("Flatten 512x7x7", "1x512x7x7"),
        case("Unsqueeze 128x768", "128x768", [0]),
        case("Squeeze 1x1280x1x1", "1x1280x1x1", [2, 3]),
        case("Identity i64", "i64:1x128"),
        case("Shape 4d", "1x3x224x224"),
        case("Size 4d", "1x3x224x224"),
    ]


def _made() -> list[Case]:
    i64, f32 = int(TensorProto.INT64), int(TensorProto.FLOAT)
    return [
        case("EyeLike 512", "512x512", dtype=f32),
        case("EyeLike i64 k=1", "i64:256x256", k=1),
        case("OneHot last 1000", "i64:64 below 1000", 1000, "*2 range 1"),
        case("OneHot middle 21", "i64:64x64 below 21", 21, "*2 range 1", axis=1),
        case("OneHot i64 6625", "i64:40 below 6625", 6625, [0, 1]),
        case("Range i64 5000", "i64: all 0", "i64: all 5000", "i64: all 1"),
        case("Range f32 5000", " all 0", " all 2500", " all 0.5"),
        case("Range i32 640", "i32: all 0", "i32: all 640", "i32: all 1"),
        case("ConstantOfShape 512x512", "i64:2! all 512"),
        case("NonZero bool 512x512", "bool:512x512 rare"),
        case("NonZero f32 128x768", "128x768 rare"),
        case("NonZero i64 8400", "i64:8400 rare"),
        case("NonZero dense", "bool:256x256"),
        case("Unique f32 sorted", "f32:5000 below 500", outputs=4),
        case("Unique i64 all outputs", "i64:20000 below 1000", outputs=4),
        case("Unique i64 alone", "i64:5000 below 3000"),
        case("Unique i64 in order", "i64:5000 below 100", outputs=4, sorted=0),
        case("Unique rows", "i64:500x2 below 20", outputs=4, axis=0),
        case("HannWindow 400", "i64: all 400"),
        case("BlackmanWindow 512", "i64: all 512"),
        case("Det 4x4", "200x4!x4!"),
        chain(
            "Range compared",
            node("Range", "i64: all 0", "i64: all 512", 1),
            node("Less", "@0", "i64:8x1 from1to 512"),
            node("Cast", "@1", to=i64),
        ),
    ]


def _pictures() -> list[Case]:
    """Pictures in bytes, up to what a network takes."""
    to = int(TensorProto.FLOAT)
    return [
        chain(
            "Picture to floats",
            node("Cast", "u8:1x480x640x3", to=to),
            node("Transpose", "@0", perm=[0, 3, 1, 2]),
        ),
        chain(
            "Picture to 0..1",
            node("Cast", "u8:480x640x3", to=to),
            node("Div", "@0", np.float32(255)),
            node("Transpose", "@1", perm=[2, 0, 1]),
        ),
        chain(
            "Picture normalised",
            node("Cast", "u8:240x320x3", to=to),
            node("Sub", "@0", np.array([123.7, 116.3, 103.5], np.float32)),
            node("Div", "@1", np.array([58.4, 57.1, 57.4], np.float32)),
            node("Transpose", "@2", perm=[2, 0, 1]),
        ),
        chain(
            "Picture of channels normalised",
            node("Sub", "1x3x480x640 positive", "*3x1x1"),
            node("Div", "@0", "*3x1x1 positive"),
        ),
        chain(
            "Picture turned to BGR",
            node("Slice", "u8:480x640x3", [-1], [-(1 << 60)], [2], [-1]),
            node("Cast", "@0", to=to),
            node("Transpose", "@1", perm=[2, 0, 1]),
        ),
        chain(
            "Picture to bytes",
            node("Mul", "1x3x480x640 positive", 255.0),
            node("Clip", "@0", 0.0, 255.0),
            node("Cast", "@1", to=int(TensorProto.UINT8)),
            slack=1,
        ),
        chain(
            "Picture to grey",
            node("Cast", "u8:240x320x3", to=to),
            node("Mul", "@0", np.array([0.299, 0.587, 0.114], np.float32)),
            node("ReduceSum", "@1", [2]),
        ),
        chain(
            "Picture resized to floats",
            node("Cast", "u8:1x480x640x3", to=to),
            node("Transpose", "@0", perm=[0, 3, 1, 2]),
            node("Resize", "@1", None, None, [1, 3, 320, 320], mode="linear"),
        ),
    ]


CASES = [
    *_transposed(),
    *_joined(),
    *_slices(),
    *_padded(),
    *_repeated(),
    *_gathered(),
    *_scattered(),
    *_blocks(),
    *_made(),
    *_pictures(),
]
