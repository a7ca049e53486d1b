# SPDX-License-Identifier: Apache-2.0
"""CombineParallelMatmul: products of one value with several matrices become one."""

import numpy as np
from pass_check import check_pass

import relaxvm
from relaxvm import relax
from relaxvm.relax.transform import CombineParallelMatmul
from relaxvm.script import ir as I
from relaxvm.script import relax as R

PARAMS = 'x: R.Tensor(("n", 8), "float32"), v: R.Tensor((8, 3), "float32"), w: R.Tensor((8, 5), "float32")'


def function(params: str, body: str) -> str:
    lines = "\n".join(f"            {line.strip()}" for line in body.strip().splitlines())
    return f"""
    @R.function
    def main({params}):
        n = T.int64()
        with R.dataflow():
{lines}
            R.output(out)
        return out
    """


def test_matrices_stand_side_by_side():
    check_pass(
        CombineParallelMatmul(),
        before=function(PARAMS, "a = R.matmul(x, v)\n b = R.matmul(x, w)\n out = (b, a)"),
        after=function(
            PARAMS,
            """
            m = R.concat((v, w), axis=1)
            y = R.matmul(x, m, out_dtype="float32")
            parts = R.split(y, indices_or_sections=[3], axis=1)
            a = parts[0]
            b = parts[1]
            out = (b, a)
            """,
        ),
    )


def test_bias_and_activation_come_along():
    params = PARAMS + ', p: R.Tensor((3,), "float32"), q: R.Tensor((5,), "float32")'
    check_pass(
        CombineParallelMatmul(),
        before=function(
            params,
            """
            a = R.matmul(x, v)
            a1 = R.add(a, p)
            a2 = R.nn.relu(a1)
            b = R.matmul(x, w)
            b1 = R.add(b, q)
            b2 = R.nn.relu(b1)
            out = (a2, b2)
            """,
        ),
        after=function(
            params,
            """
            m = R.concat((v, w), axis=1)
            y = R.matmul(x, m, out_dtype="float32")
            bias = R.concat((p, q), axis=0)
            y1 = R.add(y, bias)
            y2 = R.nn.relu(y1)
            parts = R.split(y2, indices_or_sections=[3], axis=1)
            a2 = parts[0]
            b2 = parts[1]
            out = (a2, b2)
            """,
        ),
    )


def test_different_ends_stay_apart():
    body = "a = R.matmul(x, v)\n a1 = R.nn.relu(a)\n b = R.matmul(x, w)\n out = (a1, b)"
    check_pass(CombineParallelMatmul(), before=function(PARAMS, body))


def test_matrix_that_is_made_later_stays_apart():
    body = "a = R.matmul(x, v)\n w1 = R.exp(w)\n b = R.matmul(x, w1)\n out = (a, b)"
    check_pass(CombineParallelMatmul(), before=function(PARAMS, body))


def test_matrix_made_of_the_other_product_stays_apart():
    params = 'x: R.Tensor((8, 8), "float32"), v: R.Tensor((8, 8), "float32"), n1: R.Shape(["n"])'
    body = "a = R.matmul(x, v)\n b = R.matmul(x, a)\n out = (a, b)"
    check_pass(CombineParallelMatmul(), before=function(params, body))


def test_check_may_refuse():
    seen = []

    def check(x, matrices, biases, bindings):
        seen.append((x.name, [m.name for m in matrices], biases, len(bindings)))
        return False

    body = "a = R.matmul(x, v)\n b = R.matmul(x, w)\n out = (a, b)"
    check_pass(CombineParallelMatmul(check), before=function(PARAMS, body))
    assert seen == [("x", ["v", "w"], None, 3)]


def test_result_is_the_same():
    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((2, 4, 8), "float32"),
            u: R.Tensor((8, 3), "float32"),
            v: R.Tensor((8, 1), "float32"),
            w: R.Tensor((8, 5), "float32"),
        ):
            with R.dataflow():
                a = R.matmul(x, u)
                e = R.exp(a)
                b = R.matmul(x, v)
                c = R.matmul(x, w)
                out = (e, b, c)
                R.output(out)
            return out

    rng = np.random.default_rng(0)
    shapes = (2, 4, 8), (8, 3), (8, 1), (8, 5)
    arrays = [rng.standard_normal(s, dtype="f4") for s in shapes]
    combined = CombineParallelMatmul()(Module)
    assert combined["main"].script().count("R.matmul(") == 1

    def run(module):
        vm = relax.VirtualMachine(relaxvm.compile(module), relaxvm.cpu())
        return [r.numpy() for r in vm["main"](*map(relaxvm.runtime.tensor, arrays))]

    for have, want in zip(run(combined), run(Module), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
