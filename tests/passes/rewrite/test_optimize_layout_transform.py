# SPDX-License-Identifier: Apache-2.0
"""OptimizeLayoutTransform: a change of layout that undoes the one before it disappears."""

from pass_check import check_pass

from relaxvm.relax.transform import OptimizeLayoutTransform


def test_way_there_and_back():
    check_pass(
        OptimizeLayoutTransform(),
        before="""
        @R.function
        def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            with R.dataflow():
                a: R.Tensor((4, 4), "float32") = R.layout_transform(x, index_map=lambda i: (i // 4, i % 4))
                b: R.Tensor((16,), "float32") = R.layout_transform(a, index_map=lambda i, j: (i * 4 + j,))
                c: R.Tensor((16,), "float32") = R.exp(b)
                R.output(c)
            return c
        """,
        after="""
        @R.function
        def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            with R.dataflow():
                c: R.Tensor((16,), "float32") = R.exp(x)
                R.output(c)
            return c
        """,
    )


def test_another_way_back_stays():
    check_pass(
        OptimizeLayoutTransform(),
        before="""
        @R.function
        def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            with R.dataflow():
                a: R.Tensor((4, 4), "float32") = R.layout_transform(x, index_map=lambda i: (i // 4, i % 4))
                b: R.Tensor((16,), "float32") = R.layout_transform(a, index_map=lambda i, j: (j * 4 + i,))
                R.output(b)
            return b
        """,
    )


def test_padding_stays():
    check_pass(
        OptimizeLayoutTransform(),
        before="""
        @R.function
        def main(x: R.Tensor((14,), "float32")) -> R.Tensor((16,), "float32"):
            with R.dataflow():
                a: R.Tensor((4, 4), "float32") = R.layout_transform(x, index_map=lambda i: (i // 4, i % 4))
                b: R.Tensor((16,), "float32") = R.layout_transform(a, index_map=lambda i, j: (i * 4 + j,))
                R.output(b)
            return b
        """,
    )


_PAD = """
        @T.prim_func(private=True)
        def remove_pad(x: T.Buffer((16,), "float32"), y: T.Buffer((14,), "float32")):
            T.func_attr({"operator_name": "remove_pad"})
            for i in range(14):
                with T.sblock("y"):
                    v = T.axis.spatial(14, i)
                    y[v] = x[v]

        @R.function
        def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            with R.dataflow():
                a: R.Tensor((14,), "float32") = R.call_tir(Module.remove_pad, (x,), out_ty=R.Tensor((14,), "float32"))
                b: R.Tensor((16,), "float32") = R.layout_transform(a, index_map=lambda i: (i % 16,){pad})
                R.output(b)
            return b
"""


def test_padding_taken_off_and_put_on_again_with_a_value():
    check_pass(OptimizeLayoutTransform(), before=_PAD.replace("{pad}", ", pad_value=1"))
