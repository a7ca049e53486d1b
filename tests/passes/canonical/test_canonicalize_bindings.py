# SPDX-License-Identifier: Apache-2.0
"""CanonicalizeBindings: one name for each value."""

from pass_check import check_pass

from relaxvm.relax.transform import CanonicalizeBindings


def test_aliases_disappear():
    check_pass(
        CanonicalizeBindings(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            y = x
            z = y
            w = R.add(y, z)
            return w
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            w = R.add(x, x)
            return w
        """,
    )


def test_output_of_a_block_takes_the_definition():
    check_pass(
        CanonicalizeBindings(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, a)
                gv = b
                R.output(gv)
            return gv
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                gv = R.add(a, a)
                R.output(gv)
            return gv
        """,
    )


def test_items_of_a_known_tuple_are_its_fields():
    check_pass(
        CanonicalizeBindings(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
            t = (x, y)
            a = t[0]
            b = t[1]
            return R.add(a, b)
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
            t = (x, y)
            return R.add(x, y)
        """,
    )


def test_cast_to_the_type_that_is_known_goes():
    check_pass(
        CanonicalizeBindings(),
        before="""
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            n = T.int64()
            y = R.match_cast(x, R.Tensor((n, 4), "float32"))
            return R.exp(y)
        """,
        after="""
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            return R.exp(x)
        """,
    )


def test_second_name_of_a_size_goes():
    check_pass(
        CanonicalizeBindings(),
        before="""
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor((), "float32"):
            m = T.int64()
            y = R.match_cast(x, R.Tensor((m,), "float32"))
            z: R.Tensor((m,), "float32") = R.exp(y)
            return R.sum(z)
        """,
        after="""
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor((), "float32"):
            n = T.int64()
            z: R.Tensor((n,), "float32") = R.exp(x)
            return R.sum(z)
        """,
    )


def test_types_follow_when_sizes_become_one():
    check_pass(
        CanonicalizeBindings(),
        before="""
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            m = T.int64()
            y = R.match_cast(x, R.Tensor((m,), "float32"))
            z = R.add(x, y)
            return R.exp(z)
        """,
        after="""
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            z: R.Tensor((n,), "float32") = R.add(x, x)
            return R.exp(z)
        """,
    )


def test_item_of_a_known_tuple_that_leaves_its_block_takes_the_name():
    check_pass(
        CanonicalizeBindings(),
        before="""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                pair = (a, x)
                b = pair[0]
                out = b
                R.output(out)
            return out
        """,
        after="""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                out = R.exp(x)
                pair = (out, x)
                R.output(out)
            return out
        """,
    )


def test_name_of_a_long_size_stays():
    dims = [f"n{i}" for i in range(70)]
    params = ", ".join(f'x{i}: R.Tensor(("{n}",), "float32")' for i, n in enumerate(dims))
    check_pass(
        CanonicalizeBindings(),
        before=f"""
        @R.function
        def main({params}):
            size = T.int64()
            y = R.concat(({", ".join(f"x{i}" for i in range(70))}), axis=0)
            z = R.match_cast(y, R.Tensor((size,), "float32"))
            return R.exp(z)
        """,
    )


def test_cast_that_must_be_checked_stays():
    check_pass(
        CanonicalizeBindings(),
        before="""
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
            n = T.int64()
            z = R.match_cast(y, R.Tensor((n,), "float32"))
            return R.add(x, z)
        """,
    )
