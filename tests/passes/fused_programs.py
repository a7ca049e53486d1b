# SPDX-License-Identifier: Apache-2.0
"""Tensor programs that the texts of these tests call."""

ADD_ONE = """
@T.prim_func(private=True, s_tir=True)
def add_one(x: T.Buffer((T.int64(4),), "float32"), y: T.Buffer((T.int64(4),), "float32")):
    T.func_attr({"op_pattern": 0, "tirx.noalias": True})
    for i in range(T.int64(4)):
        with T.sblock("add_one"):
            vi = T.axis.spatial(T.int64(4), i)
            y[vi] = x[vi] + T.float32(1)
"""

TWICE = """
@T.prim_func(private=True, s_tir=True)
def twice(x: T.Buffer((T.int64(4),), "float32"), y: T.Buffer((T.int64(4),), "float32")):
    T.func_attr({"op_pattern": 0, "tirx.noalias": True})
    for i in range(T.int64(4)):
        with T.sblock("twice"):
            vi = T.axis.spatial(T.int64(4), i)
            y[vi] = x[vi] * T.float32(2)
"""

RESHAPE = """
@T.prim_func(private=True, s_tir=True)
def reshape(x: T.Buffer((T.int64(4),), "float32"), y: T.Buffer((T.int64(2), T.int64(2)), "float32")):
    for i, j in T.grid(T.int64(2), T.int64(2)):
        with T.sblock("reshape"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi * T.int64(2) + vj]
"""
