# SPDX-License-Identifier: Apache-2.0
"""A wrong script gives one error: file, line and column, what is wrong, what to do."""

import pytest

from relaxvm.error import DiagnosticError
from relaxvm.script import from_source
from relaxvm.script import relax as R

HEAD = '@R.function\ndef main(x: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool")):\n'

# name -> (statements, line and column of the error, part of the message)
GRAPH_ERRORS = {
    "undefined name": ("    return R.add(x, z)", "3:21", "name 'z' is not defined"),
    "unknown operator": ("    return R.ad(x, x)", "3:12", "has no attribute 'ad'"),
    "too few arguments": ("    return R.add(x)", "3:12", "takes (x1, x2)"),
    "unknown attribute": (
        "    return R.nn.softmax(x, axes=1)",
        "3:12",
        "unexpected keyword argument 'axes'",
    ),
    "wrong axis": ("    y = R.nn.softmax(x, axis=5)\n    return y", "3:5", "axis"),
    "shapes do not broadcast": (
        '    y = R.add(x, R.const([1.0, 2.0, 3.0], "float32"))\n    return y',
        "3:5",
        "add",
    ),
    "annotation contradicts": (
        '    y: R.Tensor((3, 4), "int32") = R.add(x, x)\n    return y',
        "3:5",
        "the annotation says",
    ),
    "value is not used": ("    R.add(x, x)\n    return x", "3:5", "is not used"),
    "two targets": ("    a = b = R.add(x, x)\n    return a", "3:5", "two assignments"),
    "output is not assigned": (
        "    with R.dataflow():\n        y = R.add(x, x)\n        R.output(w)\n    return y",
        "5:9",
        "does not assign w",
    ),
    "dataflow variable outside": (
        "    with R.dataflow():\n        y = R.add(x, x)\n        z = R.add(y, y)\n        R.output(z)\n    return y",
        "7:12",
        "name 'y' is not defined",
    ),
    "if in dataflow": (
        "    with R.dataflow():\n        if c:\n            y = x\n        else:\n            y = x\n"
        "        R.output(y)\n    return y",
        "4:9",
        "no control flow",
    ),
    "branches differ": (
        "    if c:\n        y = R.add(x, x)\n    else:\n        z = R.add(x, x)\n    return y",
        "3:5",
        "different names",
    ),
    "no else": ("    if c:\n        y = R.add(x, x)\n    return y", "3:5", "needs an `else`"),
    "loop": ("    for i in range(3):\n        y = x\n    return x", "3:5", "has no meaning"),
    "return in a branch": (
        "    if c:\n        return x\n    else:\n        y = x\n    return y",
        "4:9",
        "a branch ends by assigning",
    ),
    "tuple index": ("    y = (x, x)\n    z = y[2]\n    return z", "4:9", "no field 2"),
    "tensor index": ("    y = x[0]\n    return y", "3:9", "no tuple"),
    "not a type": ("    y: 3 = R.add(x, x)\n    return y", "3:8", "expected a type"),
    "impossible cast": (
        "    y = R.match_cast(x, R.Shape([2]))\n    return y",
        "3:5",
        "can never have",
    ),
    "after return": ("    return x\n    return x", "4:5", "nothing after"),
}


@pytest.mark.parametrize("name", GRAPH_ERRORS)
def test_graph_error(name):
    body, place, message = GRAPH_ERRORS[name]
    with pytest.raises(DiagnosticError) as caught:
        from_source(HEAD + body + "\n")
    assert str(caught.value).startswith(f"<script>:{place}: "), str(caught.value)
    assert message in str(caught.value).splitlines()[0]


SIGNATURE_ERRORS = {
    "no type": ("@R.function\ndef f(x):\n    return x", "2:7", "parameter x needs a type"),
    "dimension is never given": (
        '@R.function\ndef f(x: R.Tensor(("m + 1",), "float32")):\n    return x',
        "2:10",
        "'m' is not defined",
    ),
    "scalar after its use": (
        '@R.function\ndef f(x: R.Tensor(("n",)), n: R.Prim("int64")):\n    return x',
        "2:28",
        "earlier parameter",
    ),
    "dimension of another width": (
        '@R.function\ndef f(n: R.Prim("int32"), x: R.Tensor(("n",))):\n    return x',
        "2:30",
        "dimensions are int64",
    ),
    "default value": ("@R.function\ndef f(x: R.Any = 1):\n    return x", "2:1", "no defaults"),
    "exported and private": (
        '@R.function(private=True)\ndef f(x: R.Any):\n    R.func_attr({"global_symbol": "f"})\n    return x',
        "2:1",
        "private",
    ),
    "two functions of a name": (
        "@I.ir_module\nclass M:\n    @R.function\n    def f(x: R.Any):\n        return x\n"
        "    @R.function\n    def f(x: R.Any):\n        return x",
        "7:5",
        "two functions called f",
    ),
    "unknown function": (
        "@I.ir_module\nclass M:\n    @R.function\n    def f(x: R.Any):\n        return M.g(x)",
        "5:16",
        "no function g",
    ),
    "no decorator": (
        "@I.ir_module\nclass M:\n    def f(x):\n        return x",
        "3:5",
        "put @R.function",
    ),
    "nothing": ("x = 1", "1:1", "nothing to parse"),
    "syntax": ("@R.function\ndef f(x: R.Any:\n    return x", "2:", ""),
}


@pytest.mark.parametrize("name", SIGNATURE_ERRORS)
def test_signature_error(name):
    text, place, message = SIGNATURE_ERRORS[name]
    with pytest.raises(DiagnosticError) as caught:
        from_source(text)
    assert str(caught.value).startswith(f"<script>:{place}"), str(caught.value)
    assert message in str(caught.value)


PROGRAM_HEAD = '@T.prim_func\ndef main(A: T.Buffer((16, 16), "float32"), n: T.int64):\n'
PROGRAM_ERRORS = {
    "too few indices": ("    A[0] = 1.0", "3:5", "2 dimensions and is indexed with 1"),
    "undefined": ("    A[0, i] = 1.0", "3:10", "name 'i' is not defined"),
    "mixed dtypes": ("    A[0, 0] = A[0, 1] + n", "3:15", "cast one of them"),
    "axis outside of a block": ("    vi = T.axis.spatial(16, 0)", "3:5", "belong into a block"),
    "remap of no loop": (
        '    with T.sblock("b"):\n        vi = T.axis.remap("S", [n])\n        A[vi, vi] = 0.0',
        "4:9",
        "enclosing loops",
    ),
    "wrong axis kinds": (
        '    for i in range(4):\n        with T.sblock("b"):\n            vi = T.axis.remap("SS", [i])',
        "5:18",
        "names 2 axes",
    ),
    "loop over a list": ("    for i in [1, 2]:\n        A[0, i] = 1.0", "3:14", "loops run over"),
    "integer division": ("    A[0, n / 2] = 1.0", "3:10", "use //"),
    "chained comparison": ("    if 0 < n < 4:\n        A[0, 0] = 1.0", "3:8", "cannot be chained"),
    "function arguments": ("    A[0, 0] = T.exp(A[0, 0], A[0, 1])", "3:15", "exp takes 1 argument"),
    "result": ("    return A", "3:5", "returns a scalar or nothing"),
    "two types of results": (
        "    if n > 2:\n        return n\n    return A[0, 0]",
        "5:5",
        "returns int64, but this value is of float32",
    ),
}


@pytest.mark.parametrize("name", PROGRAM_ERRORS)
def test_program_error(name):
    body, place, message = PROGRAM_ERRORS[name]
    with pytest.raises(DiagnosticError) as caught:
        from_source(PROGRAM_HEAD + body + "\n")
    assert str(caught.value).startswith(f"<script>:{place}: "), str(caught.value)
    assert message in str(caught.value).splitlines()[0]


def test_decorated_function_names_its_file():
    with pytest.raises(DiagnosticError, match=r"test_parser_errors\.py:\d+:\d+: name 'missing'"):

        @R.function
        def f(x: R.Tensor((2,), "float32")):
            return R.add(x, missing)


IMPURE = (
    HEAD
    + """    y = R.call_packed("f", x, ty_args=R.Tensor((4,), "float32"))
    return y
"""
)


def test_a_program_that_is_not_well_formed_is_an_error_where_it_is_written() -> None:
    with pytest.raises(DiagnosticError, match="2:1: .* has an effect, .* check_well_formed=False"):
        from_source(IMPURE)
    with pytest.raises(DiagnosticError, match="has an effect"):
        R.function(impure)


def test_the_check_can_be_left_out() -> None:
    assert from_source(IMPURE, check_well_formed=False).is_pure
    marked = IMPURE.replace("@R.function", "@R.function(check_well_formed=False)")
    assert from_source(marked).is_pure
    assert R.function(impure, check_well_formed=False).is_pure


def test_the_check_of_a_module_can_be_left_out() -> None:
    body = IMPURE.replace("\n", "\n    ")
    with pytest.raises(DiagnosticError, match="2:1: .* has an effect"):
        from_source(f"@I.ir_module\nclass Module:\n    {body}")
    mod = from_source(f"@I.ir_module(check_well_formed=False)\nclass Module:\n    {body}")
    assert mod["main"].is_pure


def impure(x: R.Tensor((4,), "float32")):
    y = R.call_packed("f", x, ty_args=R.Tensor((4,), "float32"))
    return y
