# SPDX-License-Identifier: Apache-2.0
"""ToMixedPrecision: contractions take half floats."""

from pass_check import check_pass, module

from relaxvm.relax.transform import ToMixedPrecision


def test_contraction_takes_halves_and_gives_what_is_asked():
    check_pass(
        ToMixedPrecision(),
        before="""
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                y: R.Tensor((2, 4), "float32") = R.matmul(x, w, out_dtype="float32")
                R.output(y)
            return y
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                a: R.Tensor((2, 3), "float16") = R.astype(x, dtype="float16")
                b: R.Tensor((3, 4), "float16") = R.astype(w, dtype="float16")
                y: R.Tensor((2, 4), "float32") = R.matmul(a, b, out_dtype="float32")
                R.output(y)
            return y
        """,
    )


def test_what_follows_stays_in_halves():
    made = ToMixedPrecision("float16")(
        module(
            """
            @R.function
            def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")) -> R.Tensor((2, 4), "float32"):
                with R.dataflow():
                    y: R.Tensor((2, 4), "float32") = R.matmul(x, w)
                    z: R.Tensor((2, 4), "float32") = R.nn.relu(y)
                    s: R.Tensor((2, 4), "float32") = R.nn.softmax(z)
                    R.output(s)
                return s
            """
        )
    )
    bindings = {b.var.name: b.var.ty for b in made["main"].body.blocks[0].bindings}
    assert str(bindings["z"].dtype) == "float16"
    assert str(bindings["s"].dtype) == "float32"


def test_large_constant_keeps_its_reader_single():
    made = ToMixedPrecision("float16")(
        module(
            """
            @R.function
            def main(x: R.Tensor((2, 2), "float32"), w: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
                with R.dataflow():
                    y: R.Tensor((2, 2), "float32") = R.matmul(x, w)
                    z: R.Tensor((2, 2), "float32") = R.add(y, R.const([70000.0, 1.0], "float32"))
                    u: R.Tensor((2, 2), "float32") = R.nn.relu(z)
                    R.output(u)
                return u
            """
        )
    )
    bindings = {b.var.name: b.var.ty for b in made["main"].body.blocks[0].bindings}
    assert str(bindings["z"].dtype) == "float32"


def test_program_without_contractions_stays():
    check_pass(
        ToMixedPrecision(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                y: R.Tensor((2,), "float32") = R.nn.relu(x)
                R.output(y)
            return y
        """,
    )
