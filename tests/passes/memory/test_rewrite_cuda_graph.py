# SPDX-License-Identifier: Apache-2.0
"""RewriteCUDAGraph: storages are reserved once, kernels on them are recorded."""

from pass_check import check_pass, module

import relaxvm
from relaxvm.relax.transform import RewriteCUDAGraph

PROGRAM = """
    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        R.func_attr({"relax.force_pure": True})
        s: R.Any = R.memory.alloc_storage(R.shape([32]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        a: R.Tensor((8,), "float32") = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([8]), R.dtype("float32"))
        _1: R.Tuple() = R.call_packed("copy", x, a, ty_args=(R.Tuple(),))
        t: R.Any = R.memory.alloc_storage(R.shape([32]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        b: R.Tensor((8,), "float32") = R.memory.alloc_tensor(t, R.prim_value(0), R.shape([8]), R.dtype("float32"))
        _2: R.Tuple() = R.call_packed("copy", a, b, ty_args=(R.Tuple(),))
        c: R.Tensor((8,), "float32") = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
        _3: R.Tuple() = R.call_packed("copy", b, c, ty_args=(R.Tuple(),))
        return c
    """


def rewritten(program: str) -> relaxvm.IRModule:
    with relaxvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        return RewriteCUDAGraph()(module(program))


def test_nothing_happens_unless_it_is_asked_for():
    check_pass(RewriteCUDAGraph(), before=PROGRAM)


def test_kernel_on_static_memory_is_recorded():
    made = rewritten(PROGRAM)
    assert sorted(v.name_hint for v in made.get_global_vars()) == [
        "cuda_graph_alloc",
        "main",
        "main_cuda_graph_capture",
    ]
    assert len(made["cuda_graph_alloc"].ret_ty.fields) == 2
    capture = made["main_cuda_graph_capture"]
    assert [p.name for p in capture.params] == ["a", "b"]
    assert capture.script().count("call_packed") == 1
    assert made["main"].script().count("run_or_capture") == 1


def test_what_reads_an_input_is_not_recorded():
    text = rewritten(PROGRAM)["main"].script()
    assert text.index('"copy", x') < text.index("run_or_capture")


def test_functions_share_storages():
    other = PROGRAM.replace("def main", "def second").replace("[32]", "[64]")
    made = rewritten(PROGRAM + other)
    assert len(made["cuda_graph_alloc"].ret_ty.fields) == 2
    assert made["cuda_graph_alloc"].script().count("R.shape([64])") == 2
