# SPDX-License-Identifier: Apache-2.0
"""Local functions: their nodes are written for the opsets that the function imports."""

import numpy as np
import pytest
from onnx import parser

HEAD = '<ir_version: 10, opset_import: ["" : 21, "loc" : 1]> g (float[n, 4] x) => (float[n, a] y) { y = loc.f(x) }\n'
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def run(text: str) -> np.ndarray:
    from relaxvm.inference import InferenceSession

    model = parser.parse_model(HEAD + text).SerializeToString()
    return InferenceSession(model, cache_dir="").run(None, {"x": X})[0]


def test_a_function_of_an_older_opset():
    # ReduceSum has its axes as an attribute, Softmax flattens what follows its axis.
    have = run("""<domain: "loc", opset_import: ["" : 11]> f (x) => (z) {
        two = Constant<value_ints = [0, 2, 2]>()  w = Reshape(x, two)  y = Softmax<axis = 1>(w)
        rows = Constant<value_ints = [0, 4]>()  p = Reshape(y, rows)
        t = ReduceSum<axes = [1], keepdims = 1>(x)  z = Add(p, t)
    }""")
    e = np.exp(X - X.max(1, keepdims=True))
    want = e / e.sum(1, keepdims=True) + X.sum(1, keepdims=True)
    np.testing.assert_allclose(have, want, rtol=1e-5)


def test_functions_of_functions_and_branches_have_opsets_of_their_own():
    have = run("""<domain: "loc", opset_import: ["" : 13, "loc" : 1]> f (x) => (z) {
        one = Constant<value_ints = [1]>()  y = loc.h(x)  s = Squeeze(y, one)  z = Unsqueeze(s, one)
    }
    <domain: "loc", opset_import: ["" : 11]> h (x) => (z) {
        m = ReduceMax<keepdims = 0>(x)  k = Constant<value_float = 0.0>()  c = Greater(m, k)
        z = If(c) <
            then_branch = a () => (float[n, 1] p) { p = ReduceSum<axes = [1]>(x) },
            else_branch = b () => (float[n, 1] q) { q = ReduceMax<axes = [1]>(x) }
        >
    }""")
    np.testing.assert_allclose(have, X.sum(1, keepdims=True), rtol=1e-5)


def test_a_domain_that_the_function_alone_imports():
    have = run("""<domain: "loc", opset_import: ["" : 21, "com.microsoft" : 1]> f (x) => (z) {
        z = com.microsoft.QuickGelu<alpha = 1.0>(x)
    }""")
    np.testing.assert_allclose(have, X / (1 + np.exp(-X)), rtol=1e-5)


def test_an_operator_that_the_functions_opset_lacks_is_refused():
    from relaxvm.inference import NotImplemented as Refused

    with pytest.raises(Refused, match=r"Mish \(opset 11\)"):
        run('<domain: "loc", opset_import: ["" : 11]> f (x) => (z) { z = Mish(x) }')
