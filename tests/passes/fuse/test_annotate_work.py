# SPDX-License-Identifier: Apache-2.0
"""AnnotateWork: operations and bytes of a tensor program, in postfix notation over its sizes."""

import pytest
from pass_check import module

from relaxvm.relax.transform import AnnotateWork

PROGRAMS = {
    # name: parameters (name, shape, dtype), body, work
    "elementwise": (
        [("a", "(n, 4)", "float32"), ("b", "(n, 4)", "float32")],
        """
        for i, j in T.grid(n, 4):
            b[i, j] = T.exp(a[i, j]) * T.float32(2)
        """,
        "t0.0 8 *|n0 t0.0 4 * min 4 * n1 t0.0 4 * min 4 * +",
    ),
    "matmul": (
        [("a", "(n, k)", "float32"), ("b", "(k, 8)", "float32"), ("c", "(n, 8)", "float32")],
        """
        for i, j, l in T.grid(n, 8, k):
            with T.sblock("c"):
                vi, vj, vl = T.axis.remap("SSR", [i, j, l])
                with T.init():
                    c[vi, vj] = T.float32(0)
                c[vi, vj] = c[vi, vj] + a[vi, vl] * b[vl, vj]
        """,
        "t0.0 t0.1 * 16 *|n0 t0.0 t0.1 * 8 * min 4 * n1 t0.0 t0.1 * 8 * min 4 * + "
        "n2 t0.0 t0.1 * 8 * min 4 * +",
    ),
    "gather": (
        [("a", "(n,)", "float16"), ("index", "(k,)", "int64"), ("b", "(k,)", "float16")],
        """
        for i in range(k):
            b[i] = a[index[i]]
        """,
        "0|n0 t1.0 1 * min 2 * n1 t1.0 1 * min 8 * + n2 t1.0 1 * min 2 * +",
    ),
    "one_of_two": (
        [("a", "(n,)", "float32"), ("b", "(n,)", "float32")],
        """
        if n == 1:
            b[0] = a[0] * T.float32(2)
        else:
            for i in range(n):
                b[i] = T.exp(a[i])
        """,
        "1 t0.0 1 * +|n0 1 t0.0 1 * + min 4 * n1 1 t0.0 1 * + min 4 * +",
    ),
    "says_itself": (
        [("a", "(n,)", "float32"), ("b", "(n,)", "float32")],
        """
        m: T.let[T.int64] = (n + 3) // 4
        for i in T.serial(m, annotations={"operations": n * 2}):
            if i % 2 == 0:
                b[i] = a[i] * T.float32(2)
        """,
        "t0.0 2 * 1 *|n0 t0.0 3 + 4 / 1 * min 4 * n1 t0.0 3 + 4 / 1 * min 4 * +",
    ),
    "bytes": (
        [("a", "(n, 8)", "uint8"), ("b", "(8,)", "int8"), ("c", "(n,)", "int32")],
        """
        for i in range(n):
            for l in range(8):
                c[i] = c[i] + (T.cast(a[i, l], "int32") - 3) * T.cast(b[l], "int32")
        """,
        "t0.0 24 *|n0 t0.0 8 * min 1 * n1 t0.0 8 * min 1 * + n2 t0.0 8 * min 4 * +|int8",
    ),
    "bfloat16": (
        [("a", "(n,)", "bfloat16"), ("b", "(n,)", "bfloat16"), ("c", "(1,)", "float32")],
        """
        for i in range(n):
            c[0] = c[0] + T.cast(a[i], "float32") * T.cast(b[i], "float32")
        """,
        "t0.0 2 *|n0 t0.0 1 * min 2 * n1 t0.0 1 * min 2 * + n2 t0.0 1 * min 4 * +|bfloat16",
    ),
    "depends_on_data": (
        [("a", "(n,)", "int64"), ("b", "(n,)", "int64")],
        """
        for i in range(n):
            for j in range(a[i]):
                b[i] = b[i] + a[j]
        """,
        "|n0 8 * n1 8 * +",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_work_is_written_down(name):
    params, body, work = PROGRAMS[name]
    lines = [f"def f({', '.join(f'var_{p}: T.handle' for p, _, _ in params)}):"]
    lines += ["    n = T.int64()", "    k = T.int64()"]
    lines += [
        f'    {p} = T.match_buffer(var_{p}, {shape}, "{dtype}")' for p, shape, dtype in params
    ]
    lines += [line[4:] for line in body.splitlines()]
    given = module("\n".join(["@T.prim_func", *lines]))
    assert AnnotateWork()(given)["f"].attrs["relaxvm.work"] == work


def test_sizes_may_be_scalar_parameters():
    given = module(
        """
        @T.prim_func
        def f(a: T.Buffer((8,), "float32"), s: T.int64):
            for i in range(s):
                a[i] = T.float32(1) + T.float32(2) * T.cast(i, "float32")
        """
    )
    assert AnnotateWork()(given)["f"].attrs["relaxvm.work"] == "s0 2 *|n0 s0 1 * min 4 *"


def test_what_is_written_down_stays():
    given = module(
        """
@T.prim_func
def f(a: T.Buffer((8,), "float32")):
    T.func_attr({"relaxvm.work": "1|2"})
    for i in range(8):
        a[i] = T.float32(1)
"""
    )
    assert AnnotateWork()(given).same_as(given)
