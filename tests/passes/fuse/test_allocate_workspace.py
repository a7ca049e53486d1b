# SPDX-License-Identifier: Apache-2.0
"""AllocateWorkspace: scratch memory for functions of external code generators."""

from pass_check import check_pass

from relaxvm.relax.transform import AllocateWorkspace

T4 = 'R.Tensor((4,), "float32")'


def given(size: int, name: str, other: str = "") -> str:
    """A function of a code generator that asks for `size` bytes, as MergeCompositeFunctions makes it."""
    return f"""
    @R.function
    def {name}(x: {T4}) -> {T4}:
        R.func_attr({{"Codegen": "ext", "WorkspaceSize": {size}, "global_symbol": "{name}"}})

        @R.function
        def local(x1: {T4}) -> {T4}:
            R.func_attr({{"Composite": "ext.exp", "WorkspaceSize": {size}}})
            y: {T4} = R.exp(x1)
            return y

        {other}
        z: {T4} = local(x)
        return z
    """


def wanted(size: int, name: str) -> str:
    return f"""
    @R.function
    def {name}(x: {T4}, workspace: R.Tensor(({size},), "uint8")) -> {T4}:
        R.func_attr({{"Codegen": "ext", "global_symbol": "{name}"}})

        @R.function
        def local(x1: {T4}, workspace1: R.Tensor(({size},), "uint8")) -> {T4}:
            R.func_attr({{"Composite": "ext.exp"}})
            y: {T4} = R.exp(x1)
            return y

        z: {T4} = local(x, workspace)
        return z
    """


def allocation(size: int) -> str:
    return f"""R.builtin.alloc_tensor(R.shape([{size}]), R.dtype("uint8"), R.prim_value(0))"""


def test_caller_allocates_once_as_much_as_the_greediest_needs():
    main = f"""
    @R.function
    def main(x: {T4}) -> {T4}:
        cls = Module
        with R.dataflow():
            {{first}}
            a: {T4} = cls.f{{new}}(x{{more}})
            b: {T4} = cls.g{{new}}(a{{more}})
            R.output(b)
        return b
    """
    first = f'workspace: R.Tensor((64,), "uint8") = {allocation(64)}'
    check_pass(
        AllocateWorkspace(),
        before=given(16, "f") + given(64, "g") + main.format(first="", new="", more=""),
        after=wanted(64, "f1")
        + wanted(64, "g1")
        + main.format(first=first, new="1", more=", workspace"),
    )


def test_calls_in_several_blocks_share_a_plain_variable():
    main = f"""
    @R.function
    def main(x: {T4}) -> {T4}:
        cls = Module
        {{first}}
        with R.dataflow():
            a: {T4} = cls.f{{new}}(x{{more}})
            R.output(a)
        b: {T4} = cls.f{{new}}(a{{more}})
        return b
    """
    first = f'workspace: R.Tensor((8,), "uint8") = {allocation(8)}'
    check_pass(
        AllocateWorkspace(),
        before=given(8, "f") + main.format(first="", new="", more=""),
        after=wanted(8, "f1") + main.format(first=first, new="1", more=", workspace"),
    )


def test_module_without_such_functions_stays():
    check_pass(
        AllocateWorkspace(),
        before=f"""
        @R.function
        def main(x: {T4}) -> {T4}:
            y: {T4} = R.exp(x)
            return y
        """,
    )
