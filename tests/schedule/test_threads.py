# SPDX-License-Identifier: Apache-2.0
"""Results have the same bits with any number of threads: every family of kernels, at sizes where work is split, with
sizes that are known and with sizes that are variables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

Shape = tuple[int, ...]
Program = tuple[dict[str, Shape], Callable[..., relax.Expr]]

# Of the arguments: "x" is float32, "q" int8, "i7" int64 below 7; "w" is float32 and keeps its sizes (a weight, for
# which kernels want them).
PROGRAMS: dict[str, Program] = {
    "matmul": ({"x": (129, 96), "x2": (96, 203)}, op.matmul),
    "matmul, few rows": ({"x": (3, 301), "w": (301, 517)}, op.matmul),
    "matmul, one row": ({"x": (1, 700), "w": (700, 333)}, op.matmul),
    "matmul, long sum": ({"x": (17, 5000), "w": (5000, 19)}, op.matmul),
    "matmul, batched": ({"x": (6, 33, 40), "x2": (6, 40, 37)}, op.matmul),
    "matmul, transposed": (
        {"x": (70, 90), "x2": (110, 90)},
        lambda a, b: op.matmul(a, op.permute_dims(b, [1, 0])),
    ),
    "matmul, int8": (
        {"q": (65, 128), "q2": (128, 96)},
        lambda a, b: op.matmul(a, b, out_dtype="int32"),
    ),
    "matmul, epilogue": (
        {"x": (77, 64), "w": (64, 130), "w2": (130,)},
        lambda a, b, c: op.nn.gelu(op.add(op.matmul(a, b), c)),
    ),
    "conv1d": ({"x": (2, 16, 400), "w": (24, 16, 5)}, lambda x, w: op.nn.conv1d(x, w, padding=2)),
    "conv2d": ({"x": (2, 16, 30, 31), "w": (33, 16, 3, 3)}, op.nn.conv2d),
    "conv2d, 1x1": ({"x": (1, 40, 28, 28), "w": (48, 40, 1, 1)}, op.nn.conv2d),
    "conv2d, depthwise": (
        {"x": (1, 24, 40, 40), "w": (24, 1, 3, 3)},
        lambda x, w: op.nn.conv2d(x, w, groups=24, padding=1, strides=2),
    ),
    "conv2d, groups": (
        {"x": (1, 16, 30, 30), "w": (32, 4, 3, 3)},
        lambda x, w: op.nn.conv2d(x, w, groups=4, padding=1),
    ),
    "conv2d, transposed": (
        {"x": (1, 16, 20, 20), "w": (16, 24, 2, 2)},
        lambda x, w: op.nn.conv2d_transpose(x, w, strides=2),
    ),
    "conv2d, transposed, windows overlap": (
        {"x": (1, 16, 20, 20), "w": (16, 24, 3, 3)},
        lambda x, w: op.nn.conv2d_transpose(x, w, strides=2, padding=1),
    ),
    "conv3d": ({"x": (1, 4, 8, 14, 14), "w": (8, 4, 3, 3, 3)}, op.nn.conv3d),
    "pool": (
        {"x": (2, 24, 40, 40)},
        lambda x: op.nn.avg_pool2d(x, pool_size=3, strides=2, padding=1),
    ),
    "softmax": ({"x": (300, 257)}, op.nn.softmax),
    "softmax, inner axis": ({"x": (20, 57, 61)}, lambda x: op.nn.softmax(x, axis=1)),
    "log_softmax": ({"x": (300, 257)}, op.nn.log_softmax),
    "layer_norm": (
        {"x": (301, 192), "w": (192,), "w2": (192,)},
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
    ),
    "group_norm": (
        {"x": (4, 16, 30, 30), "w": (16,), "w2": (16,)},
        lambda x, g, b: op.nn.group_norm(x, g, b, num_groups=4, channel_axis=1, axes=[2, 3]),
    ),
    "sum, rows": ({"x": (400, 333)}, lambda x: op.sum(x, axis=1)),
    "sum, columns": ({"x": (400, 333)}, lambda x: op.sum(x, axis=0)),
    "sum, middle": ({"x": (30, 71, 65)}, lambda x: op.sum(x, axis=1)),
    "sum, all": ({"x": (300, 301)}, op.sum),
    "argmax": ({"x": (300, 301)}, lambda x: op.argmax(x, axis=-1)),
    "cumsum": ({"x": (300, 301)}, lambda x: op.cumsum(x, axis=-1)),
    "cumsum, columns": ({"x": (300, 301)}, lambda x: op.cumsum(x, axis=0)),
    "elementwise": ({"x": (333, 401)}, lambda x: op.multiply(op.tanh(x), op.exp(x))),
    "sort": ({"x": (200, 301)}, op.sort),
    "argsort": ({"x": (200, 301)}, lambda x: op.argsort(x, descending=True)),
    "topk": ({"x": (200, 301)}, lambda x: op.topk(x, k=7, ret_type="values")),
    "topk, many": ({"x": (100, 301)}, lambda x: op.topk(x, k=60, ret_type="indices")),
    "attention": (
        {"x": (2, 101, 3, 16), "x2": (2, 101, 3, 16), "x3": (2, 101, 3, 16)},
        op.nn.attention,
    ),
    "lstm": (
        {"x": (9, 6, 1, 2, 4, 16), "w": (1, 2, 32, 4, 16), "w3": (1, 6, 32), "w4": (1, 6, 32)},
        lambda *a: op.rvm.lstm(*a)[0],
    ),
    "gru": (
        {"x": (9, 6, 1, 2, 3, 16), "w": (1, 2, 32, 3, 16), "w3": (1, 6, 32), "w4": (1, 2, 16)},
        lambda *a: op.rvm.gru(*a)[0],
    ),
    "rnn": (
        {"x": (9, 6, 1, 2, 1, 16), "w": (1, 2, 32, 1, 16), "w3": (1, 6, 32)},
        lambda *a: op.rvm.rnn(*a)[0],
    ),
    "scatter_elements": (
        {"x": (200, 100), "i200": (300, 100), "x3": (300, 100)},
        lambda x, i, u: op.scatter_elements(x, i, u, axis=0, reduction="add"),
    ),
    "scatter_nd": (
        {"x": (50, 300), "i50": (400, 1), "x3": (400, 300)},
        lambda x, i, u: op.scatter_nd(x, i, u, reduction="add"),
    ),
    "take": ({"x": (300, 90), "i300": (700,)}, lambda x, i: op.take(x, i, axis=0)),
    "resize": (
        {"x": (2, 8, 40, 41)},
        lambda x: op.image.resize2d(x, (77, 80), layout="NCHW", method="linear"),
    ),
    "resize, cubic": (
        {"x": (2, 8, 40, 41)},
        lambda x: op.image.resize2d(x, (77, 80), layout="NCHW", method="cubic"),
    ),
    "transpose": ({"x": (301, 407)}, lambda x: op.permute_dims(x, [1, 0])),
    "concat": ({"x": (201, 107), "x2": (201, 208)}, lambda a, b: op.concat([a, b], axis=1)),
}


def values(name: str, shape: Shape) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    if name[0] == "i":
        return rng.integers(0, int(name[1:]), shape)
    if name[0] == "q":
        return rng.integers(-128, 128, shape).astype(np.int8)
    return rng.standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_do_not_depend_on_the_number_of_threads(name: str, symbolic: bool) -> None:
    shapes, body = PROGRAMS[name]
    arrays = {arg: values(arg, shape) for arg, shape in shapes.items()}
    sizes: dict[int, relaxvm.tirx.Var] = {}

    def dim(arg: str, axis: int, extent: int) -> relaxvm.tirx.Var | int:
        known = not symbolic or arg[0] == "w" or (axis > 0 and name not in PLAIN)
        if known:
            return extent
        return sizes.setdefault(extent, relaxvm.tirx.Var(f"n{extent}", "int64"))

    params = [
        relax.Var(
            arg,
            relax.TensorType(
                [dim(arg, axis, d) for axis, d in enumerate(shapes[arg])], str(array.dtype)
            ),
        )
        for arg, array in arrays.items()
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(body(*params)))
        builder.emit_func_output(result)
    executable = relaxvm.compile(builder.get())
    results = []
    for threads in (1, 2, 3):
        vm = relax.VirtualMachine(executable, relaxvm.cpu(), num_threads=threads)
        out = vm["main"](*[relaxvm.runtime.tensor(a) for a in arrays.values()]).numpy()
        assert np.isfinite(out).all()
        results.append(out.tobytes())
    assert results[0] == results[1] == results[2]


# Every dimension of the arguments may be a variable; elsewhere only the first one is.
PLAIN = {
    name for name in PROGRAMS if name.startswith(("sum", "soft", "sort", "arg", "cum", "transpose"))
}
