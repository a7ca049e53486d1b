# SPDX-License-Identifier: Apache-2.0
"""parse(print(program)) is the program, for every construct of both languages."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


def check(program):
    text = program.script(show_meta=True)
    again = from_source(text)
    relaxvm.ir.assert_structural_equal(program, again)
    assert again.script(show_meta=True) == text, "printing is not stable"


GRAPHS = {
    "operators": """
@R.function
def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 8), "float32")):
    n = T.int64()
    y = R.nn.relu(R.matmul(x, w))
    z = R.nn.softmax(y, axis=-1)
    s = R.sum(z, axis=[0], keepdims=True)
    r = R.reshape(z, R.shape([n * 8]))
    c = R.astype(r, "int32")
    k = R.concat((y, z), axis=1)
    p = R.permute_dims(k)
    return (s, c, p)
""",
    "types": """
@R.function(private=True)
def main(
    a: R.Any,
    b: R.Prim("int64"),
    c: R.Shape(["m", 3]),
    d: R.Shape(ndim=2),
    e: R.Shape,
    f: R.Tuple(R.Tensor, R.Tuple(R.Prim("bool"), R.Tensor(ndim=3))),
    g: R.Callable((R.Tensor((2,), "int8"),), R.Tensor((2,), "int8")),
    h: R.Callable(None, R.Any, False),
    i: R.Tensor(dtype="bfloat16"),
    j: R.Tensor(("m", "m * 2 + 1"), "float8_e4m3fn"),
    k: R.Tensor((), "bool"),
    l: R.Tuple(),
) -> R.Any:
    return a
""",
    "leaves": """
@R.function(private=True, pure=False)
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    a = R.const(1.5, "float16")
    b = R.const([[1, 2], [3, 4]], "int8")
    c = R.const(float("inf"), "float32")
    d = R.str("a \\"quoted\\"\\ntext")
    e = R.dtype("float4_e2m1fn")
    f = R.shape([n, n + 1, n * 2 // 3 % 5])
    g = R.ExternFunc("some.function")
    h = T.int64(7)
    i = n * 3 - 1
    j = R.tuple()
    k = (x, (a, b))
    l = k[1][0]
    m = R.prim_value(T.float32(0.25))
    o = R.const(True, "bool")
    return (l, h)
""",
    "control flow": """
@R.function
def main(c: R.Tensor((), "bool"), p: R.Prim("bool"), x: R.Tensor((3,), "float32")):
    if c:
        a = R.add(x, x)
        y = R.multiply(a, a)
    else:
        y = x
    if p:
        if c:
            z = R.exp(y)
        else:
            z = R.sqrt(y)
    else:
        z = R.add(y, y)
    return z
""",
    "dataflow": """
@R.function
def main(x: R.Tensor((3,), "float32")):
    with R.dataflow():
        a = R.add(x, x)
        b = R.multiply(a, a)
        c = R.exp(b)
        R.output(a, c)
    d = R.add(a, c)
    with R.dataflow():
        e = R.add(d, d)
        R.output(e)
    return e
""",
    "casts": """
@R.function
def main(x: R.Tensor, s: R.Shape):
    m, n = T.int64(), T.int64()
    y = R.match_cast(x, R.Tensor((m, n), "float32"))
    t = R.match_cast(s, R.Shape([m, 4]))
    z: R.Tensor(t) = R.reshape(y, t)
    return z
""",
    "functions in functions": """
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32"), i: R.Prim("int64")):
    n = T.int64()

    @R.function
    def scale(y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        z = R.multiply(y, x)
        return z

    @R.function(pure=False)
    def count(k: R.Prim("int64")) -> R.Prim("int64"):
        again = count(k)
        return again

    u = scale(x)
    v = count(i)
    return (u, v)
""",
    "calls": """
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32"), o: R.Any):
    R.func_attr({"flag": True, "number": 3, "half": 0.5, "list": [1, "two"], "none": None, "map": {"a": 1}})
    a = R.call_packed("f", x, R.str("s"), ty_args=(R.Tensor((4,), "float32"),))
    b = R.call_packed("g", ty_args=(R.Any,))
    c = R.call_pure_packed("h", x, ty_args=(R.Tensor, R.Shape(ndim=1)))
    d = R.call_dps_packed("k", (x, a), out_ty=[R.Tensor((4,), "float32"), R.Tensor((2,), "int32")])
    e = R.call_builtin_with_ctx("vm.builtin.alloc_shape_heap", (T.int64(4),), ty_args=(R.Any,))
    f = R.invoke_pure_closure(o, (x,), ty_args=(R.Tensor((4,), "float32"),))
    R.print(x, format="x = {}")
    R.assert_op(R.const(True, "bool"), x, format="x is {}")
    g = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), T.int64(0), R.str("global"))
    h = R.null_value()
    return f
""",
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graph(name):
    check(from_source(GRAPHS[name]))


PROGRAMS = {
    "blocks": """
@T.prim_func(private=True)
def main(a: T.handle, B: T.Buffer((128, 64), "float32"), c: T.handle):
    T.func_attr({"tirx.noalias": True, "op_pattern": 4})
    n = T.int64()
    A = T.match_buffer(a, (n, T.int64(128)), "float32")
    C = T.match_buffer(c, (n, T.int64(64)), "float32")
    for i, j, k in T.grid(n, T.int64(64), T.int64(128)):
        with T.sblock("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] += A[vi, vk] * B[vk, vj]
""",
    "loops": """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), n: T.int32):
    for i in T.parallel(4):
        for j in T.vectorized(0, 16):
            B[i * 16 + j] = A[i * 16 + j] + 1.0
    for i in T.unroll(2, 4):
        B[i] = A[i]
    for i in T.serial(n, annotations={"pragma": "x"}):
        B[i] = A[i] * T.float32(2)
    for t in T.thread_binding(8, thread="threadIdx.x"):
        B[t] = A[t]
    for i in range(n, n + 4):
        B[i] = A[i]
    while B[0] < 10.0:
        B[0] = B[0] + 1.0
""",
    "axes": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16,), "float32")):
    for i, j in T.grid(4, 5):
        with T.sblock("partial"):
            vi = T.axis.spatial(16, i * 4 + j)
            vk = T.axis.reduce(I.Range(2, 10), j + 2)
            vo = T.axis.opaque(16, j)
            T.where(i * 4 + j < 16 and not j == 3)
            T.reads(A[vi, 0:16], A[vi, vk:vk + 4])
            T.writes(B[vi])
            T.sblock_attr({"tile": [4, 4]})
            local = T.sblock_alloc_buffer((4,), "float32", scope="local")
            local[0] = A[vi, vk]
            B[vi] = local[0]
""",
    "vectors": """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32", strides=(1,), align=128)):
    regs = T.alloc_buffer((8,), "float32", scope="local")
    mask: T.boolx8 = T.Ramp(0, 1, 8) < T.Broadcast(5, 8)
    B[T.Ramp(0, 1, 8)] = A.vload([T.Ramp(0, 1, 8)], predicate=mask)
    B.vstore([T.Ramp(8, 1, 8)], T.Broadcast(T.float32(1), 8), predicate=mask)
    regs[0] = T.reduce_add(A[T.Ramp(16, 1, 8)])
    B[0] = T.Shuffle([A[T.Ramp(0, 1, 8)]], [3])
""",
    "scalars": """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "int64"), n: T.int64):
    x: T.float32 = T.exp(A[0]) * T.sigmoid(A[1]) - T.pow(A[2], 2.0)
    k: T.int32 = 3
    A[0] = T.if_then_else(x > 0.0, x, T.Select(k == 3, 0.0 - x, T.float32("nan")))
    A[1] = T.Cast("float32", k // 2 % 2) / x
    B[0] = T.min(T.max(n, T.int64(2)), n * 4) + T.Div(n, T.int64(3))
    B[1] = T.bitwise_and(n, T.int64(255)) + T.shift_left(n, T.int64(2)) + T.popcount(n)
    B[2] = T.Add(n, T.int64(0)) * T.Mul(T.int64(2), T.int64(3))
    A[3] = T.reinterpret("float32", k) + T.fma(x, x, 1.0)
    y = T.float32()
    A[4] = T.Let(y * y, where={y: x + 1.0})
    assert n > T.int64(0), "n is positive"
    assert n < T.int64(100), ("ValueError", "n is small")
    T.evaluate(T.call_packed("report", n, "text"))
    T.evaluate(T.call_extern("int32", "c_function", n))
    if x > 1.0:
        A[5] = x
    else:
        A[6] = x
    if n > T.int64(5) or x < 0.0:
        A[7] = 0.0
""",
    "scalar buffers": """
@T.prim_func(private=True)
def main(a: T.Buffer((), "float64"), b: T.Buffer((), "bool")):
    with T.sblock("scalar"):
        T.reads(a[()])
        T.writes(b[()])
        b[()] = a[()] > T.float64(0.5)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_tensor_program(name):
    check(from_source(PROGRAMS[name]))


def test_module_with_everything():
    @I.ir_module
    class Module:
        I.module_attrs({"version": 2, "name": "m"})
        I.module_global_infos(
            {
                "vdevice": [
                    I.vdevice("llvm"),
                    I.vdevice("cuda", 1, "shared"),
                    I.vdevice("llvm", 1),
                ],
                "dummy": [I.dummy_global_info()],
            }
        )
        external = R.ExternFunc("external")

        @T.prim_func(private=True)
        def copy(a: T.handle, n: T.int64, b: T.handle):
            A = T.match_buffer(a, (n * T.int64(2),), "float32")
            B = T.match_buffer(b, (n * T.int64(2),), "float32")
            for i in range(n * T.int64(2)):
                with T.sblock("copy"):
                    vi = T.axis.remap("S", [i])
                    B[vi] = A[vi]

        @R.function
        def main(
            s: R.Tensor(("n",), "float32"), x: R.Tensor(("n * 2",), "float32", "llvm:1")
        ) -> R.Tensor(("n * 2",), "float32"):
            n = T.int64()
            cls = Module
            y = R.call_tir(
                cls.copy, (x,), out_ty=R.Tensor((n * 2,), "float32"), tir_vars=R.shape([n])
            )
            z = cls.helper(y)
            w = R.to_vdevice(z, "cuda:0")
            return w

        @R.function(private=True)
        def helper(y: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
            return R.exp(y)

    assert Module["main"].params[1].ty.vdevice.vdevice_id == 1
    check(Module)


def test_large_constants_stand_in_the_metadata():
    data = np.arange(100, dtype="float32").reshape(4, 25) / 7
    bb = relax.BlockBuilder()
    with bb.function("main", []):
        half = relax.const(data, "float16")
        brain = relax.const(data, "bfloat16")
        bb.emit_func_output(relax.Tuple([relax.const(data), half, brain, relax.const(data)]))
    mod = bb.get()
    assert "left out" in mod.script()
    check(mod)


def test_loads_of_saved_text_equal_the_program():
    func = from_source(GRAPHS["operators"])
    again = relaxvm.ir.load_json(relaxvm.ir.save_json(func))
    relaxvm.ir.assert_structural_equal(func, again)


N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")
LONELY = relax.Var("x", relax.TensorType([N, M], "float32"))


@pytest.mark.parametrize(
    "node",
    [
        relax.TensorType([N, M + 1], "float16"),
        relax.ShapeType([N, N * 2]),
        relax.TupleType([relax.TensorType([N], "int8"), relax.ShapeType(ndim=2)]),
        LONELY,
        relax.Var("untyped"),
        relax.DataflowVar("d", relax.TensorType([2], "int8")),
        relax.op.add(relax.op.exp(LONELY), LONELY),
        relax.Tuple([LONELY, relax.const([1, 2])]),
        relax.ShapeExpr([N, 3]),
        relax.PrimValue(3),
        N * 2 + M // 3,
        relaxvm.ir.Op.get("relax.add"),
        [LONELY, N],
        "text",
    ],
    ids=lambda node: str(node)[:20],
)
def test_types_and_expressions_are_saved_with_their_free_variables(node):
    again = relaxvm.ir.load_json(relaxvm.ir.save_json(node))
    relaxvm.ir.assert_structural_equal(node, again, map_free_vars=True)


@pytest.mark.parametrize(
    "node, message",
    [
        (N + tirx.Var("n", "int64"), "rename variable 'n'"),
        (tirx.Var("a b", "int64") + 1, "rename variable 'a b'"),
        (relax.BindingBlock([relax.VarBinding(LONELY, LONELY)]), "BindingBlock has no text"),
    ],
)
def test_what_has_no_text_of_its_own_is_not_saved(node, message: str):
    with pytest.raises(ValueError, match=message):
        relaxvm.ir.save_json(node)


def test_names_that_python_cannot_write():
    n = tirx.Var("if", "int64")
    x = relax.Var("x.y/z", relax.TensorType([n], "float32"))
    same = relax.Var("x.y/z", relax.TensorType([n], "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x, same]):
        bb.emit_func_output(bb.emit(relax.op.add(x, same), "0"))
    check(bb.get())


def test_every_operator_sample_round_trips():
    """Calls of all operators that a table of samples describes are tested with the operators."""
    rows = relax.op.build.ROWS
    assert len(rows) > 100
    x = relax.Var("x", relax.TensorType([2, 3], "float32"))
    unary = [r for r in rows.values() if len(r.args) == 1 and r.kinds == [0] and not r.attrs]
    bb = relax.BlockBuilder()
    with bb.function("main", [x], pure=False):
        for row in unary:
            try:
                bb.emit(relax.op.call_operator(row.name, [x]))
            except (TypeError, ValueError):  # the operator wants another type
                continue
        bb.emit_func_output(x)
    assert len(bb.get()["main"].body.blocks[0].bindings) > 25
    check(bb.get())


def test_ten_thousand_bindings():
    x = relax.Var("x", relax.TensorType([4], "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        y = x
        for _ in range(10_000):
            y = bb.emit(relax.op.add(y, x))
        bb.emit_func_output(y)
    check(bb.get())


def test_sizes_may_be_declared_as_type_variables() -> None:
    text = """
M = TypeVar("M")
@R.function(private=True)
def func(x: R.Tensor((M, "M * 2"), "float32")) -> R.Tensor((M, "M * 2"), "float32"):
    return x
"""
    plain = text.replace('M = TypeVar("M")', "").replace("(M,", '("M",')
    relaxvm.ir.assert_structural_equal(
        relaxvm.script.from_source(text), relaxvm.script.from_source(plain)
    )
