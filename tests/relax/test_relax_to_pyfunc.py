# SPDX-License-Identifier: Apache-2.0
"""Relax functions that PyTorch computes give what the machine gives."""

from __future__ import annotations

import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import BasePyModule
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T

pytestmark = pytest.mark.peer

F32 = [(2, 3, 4), (2, 3, 4)]
# expressions of x, y (and n, the first size of x), with the shapes of x and y
EXPRESSIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("R.add(x, R.multiply(y, R.const(2.0)))", F32),
    ("R.divide(R.subtract(x, y), R.exp(y))", F32),
    ("R.where(R.greater(x, y), R.abs(x), R.negative(y))", F32),
    ("R.astype(R.less_equal(x, y), 'int32')", F32),
    ("R.power(R.abs(x), R.const(1.5))", F32),
    ("R.floor_mod(x, R.const(0.7))", F32),
    ("R.clip(x, -0.5, 0.5)", F32),
    ("R.sum(x, axis=[1], keepdims=True)", F32),
    ("R.mean(x)", F32),
    ("R.prod(x, axis=[0, 2])", F32),
    ("R.variance(x, axis=[1, 2])", F32),
    ("R.max(x, axis=-1)", F32),
    ("R.argmax(x, axis=1)", F32),
    ("R.argsort(x, axis=1, descending=True, dtype='int64')", F32),
    ("R.topk(x, k=2, axis=2, ret_type='both', dtype='int64')", F32),
    ("R.cumsum(x, axis=1, exclusive=True)", F32),
    ("R.matmul(x, R.permute_dims(y, axes=[0, 2, 1]))", F32),
    ("R.reshape(x, R.shape([n, 12]))", F32),
    ("R.concat((x, y), axis=1)", F32),
    ("R.stack((x, y), axis=0)", F32),
    ("R.split(x, 2, axis=2)", F32),
    ("R.split(x, [1, 2], axis=1)", F32),
    ("R.strided_slice(x, [1, 2], [0, 3], [2, 0], [1, -1])", F32),
    ("R.expand_dims(R.squeeze(R.sum(x, axis=[1], keepdims=True), axis=[1]), axis=[0, 2])", F32),
    ("R.take(x, R.const([2, 0], 'int64'), axis=1)", F32),
    ("R.flip(R.tile(x, (1, 2, 1)), axis=1)", F32),
    ("R.repeat(x, 2, axis=0)", F32),
    ("R.broadcast_to(R.sum(x, axis=[0], keepdims=True), R.shape([n, 3, 4]))", F32),
    ("R.triu(x, 1)", F32),
    ("R.full(R.shape([n, 2]), R.const(3.0), 'float32')", F32),
    ("R.one_hot(R.argmax(x, axis=1), R.prim_value(2), R.prim_value(-1), depth=4, axis=1)", F32),
    ("R.scatter_elements(x, R.argsort(y, axis=1, dtype='int64'), y, axis=1, reduction='add')", F32),
    ("R.quantize(x, R.const(0.1), R.const(3, 'int8'), axis=0, out_dtype='int8')", F32),
    ("R.nn.softmax(x, axis=1)", F32),
    ("R.nn.gelu(R.nn.silu(R.nn.leakyrelu(x, 0.2)))", F32),
    ("R.nn.layer_norm(x, R.const([1.0, 2, 3, 4]), R.const([0.0, 1, 0, 1]), axes=[-1])", F32),
    ("R.nn.rms_norm(x, R.const([1.0, 2, 3, 4]), axes=[-1])", F32),
    ("R.nn.pad(x, [0, 0, 1, 2, 0, 1], pad_value=2.0)", F32),
    ("R.nn.conv2d(x, y, padding=[1, 0, 0, 1], strides=[2, 1])", [(1, 4, 5, 6), (3, 4, 2, 3)]),
    ("R.nn.conv2d(x, y, groups=2, dilation=[2, 1])", [(1, 4, 5, 6), (6, 2, 2, 3)]),
    ("R.nn.conv1d_transpose(x, y, strides=[2], padding=[1, 1])", [(2, 4, 5), (4, 3, 3)]),
    ("R.nn.max_pool2d(x, (2, 2), (1, 2), (1, 0, 0, 1))", [(1, 2, 5, 6), (1,)]),
    ("R.nn.avg_pool2d(x, (2, 3), (1, 2), (1, 1, 1, 1))", [(1, 2, 5, 6), (1,)]),
    ("R.nn.adaptive_avg_pool2d(x, (2, 3))", [(1, 2, 5, 6), (1,)]),
    ("R.nn.group_norm(x, y, y, 2, 1, [2, 3])", [(1, 4, 5, 6), (4,)]),
    ("R.nn.batch_norm(x, y, y, y, R.exp(y), axis=1, training=False)[0]", [(2, 4, 5), (4,)]),
    ("R.nn.attention(x, y, y, causal_mask='BottomRight')", [(1, 3, 4, 8), (1, 5, 2, 8)]),
    ("R.einsum((x, y), 'ijk,ilk->ijl')", F32),
]  # fmt: skip


def source(expression: str, shapes: list[tuple[int, ...]]) -> str:
    first = ", ".join(['"n"', *map(str, shapes[0][1:])])
    second = ", ".join(['"n"' if shapes is F32 else str(shapes[1][0]), *map(str, shapes[1][1:])])
    return f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(({first},), "float32"), y: R.Tensor(({second},), "float32")):
        n = T.int64()
        with R.dataflow():
            z = {expression}
            R.output(z)
        return z
"""


def flat(value) -> list:
    return [leaf for v in value for leaf in flat(v)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("expression,shapes", EXPRESSIONS, ids=[e for e, _ in EXPRESSIONS])
def test_operator_gives_what_the_machine_gives(expression, shapes):
    import torch

    from relaxvm.relax.relax_to_pyfunc_converter import convert_relax_to_pyfunc

    mod = from_source(source(expression, shapes))
    torch.manual_seed(0)
    inputs = [torch.randn(s) for s in shapes]
    converted = convert_relax_to_pyfunc(mod, "main")
    got = flat(converted.pyfuncs["main"](*inputs))
    want = flat(BasePyModule(mod).main(*inputs))
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@I.ir_module
class Calls:
    @T.prim_func
    def twice(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.sblock("twice"):
                v = T.axis.spatial(n, i)
                B[v] = A[v] * T.float32(2)

    @R.function
    def inner(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        y = R.call_tir(Calls.twice, (x,), out_ty=R.Tensor((n,), "float32"))
        return y

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
        n = T.int64()
        if c:
            y = Calls.inner(x)
        else:
            y = R.call_py_func("tests.thrice", (x,), out_ty=R.Tensor((n,), "float32"))
        shape = R.shape_of(y)
        return (y, shape)

    @R.function
    def cast(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(("m",), "float32")):
        m = T.int64()
        z = R.match_cast(x, R.Tensor((m,), "float32"))
        return R.add(z, y)

    @R.function
    def other(x: R.Tensor((2,), "float32")):
        y = R.unique(x)
        return R.layout_transform(x, index_map=T.index_map(lambda i: (i,))), y


def test_calls_branches_and_python_functions():
    import torch

    from relaxvm.relax.relax_to_pyfunc_converter import RelaxToPyFuncConverter

    converted = RelaxToPyFuncConverter(Calls).convert(["main", "inner"])
    converted.pyfuncs["tests.thrice"] = lambda x: x * 3
    main, x = converted.pyfuncs["main"], torch.tensor([1.0, 2.0])
    assert main(x, torch.tensor(True))[0].tolist() == [2, 4]
    assert main(x, torch.tensor(False))[0].tolist() == [3, 6]
    assert main(x, torch.tensor(True))[1] == (2,)
    assert "main" not in Calls.pyfuncs
    module = BasePyModule(relaxvm.ir.IRModule({v: f for v, f in converted.functions.items() if v.name_hint in ("inner", "twice")}))  # fmt: skip
    module.add_python_function("inner", converted.pyfuncs["inner"])
    assert module.inner(x).tolist() == [2, 4]


def test_sizes_are_checked():
    import torch

    from relaxvm.relax.relax_to_pyfunc_converter import convert_relax_to_pyfunc

    cast = convert_relax_to_pyfunc(Calls, "cast").pyfuncs["cast"]
    assert cast(torch.ones(2), torch.ones(2)).tolist() == [2, 2]
    with pytest.raises(ValueError, match="z has an axis of m, the value one of 3"):
        cast(torch.ones(3), torch.ones(2))
    with pytest.raises(TypeError, match="cast takes 2 arguments, 1 are given"):
        cast(torch.ones(3))


def test_what_cannot_be_converted_is_named():
    from relaxvm.relax.relax_to_pyfunc_converter import convert_relax_to_pyfunc

    with pytest.raises(ValueError, match="no Relax function 'none'; there are: cast, inner, main"):
        convert_relax_to_pyfunc(Calls, "none")
    with pytest.raises(NotImplementedError, match="other: .* for layout_transform, unique; leave"):
        convert_relax_to_pyfunc(Calls, ["other"])
    assert relax.relax_to_pyfunc_converter is not None
