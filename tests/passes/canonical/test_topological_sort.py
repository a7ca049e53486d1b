# SPDX-License-Identifier: Apache-2.0
"""TopologicalSort: four orders of one graph."""

import pytest
from pass_check import check_pass

from relaxvm.relax.transform import TopologicalSort

LINES = {
    "b1": "b1 = R.add(a, R.const(1, 'float32'))",
    "b2": "b2 = R.add(b1, R.const(2, 'float32'))",
    "c1": "c1 = R.add(a, R.const(3, 'float32'))",
    "c2": "c2 = R.add(c1, R.const(4, 'float32'))",
    "d": "d = R.add(b2, c2)",
}


def program(order: str, output: str = "d") -> str:
    lines = "\n".join("        " + LINES[name] for name in order.split())
    return (
        "@R.function\ndef main(a: R.Tensor((2,), 'float32')):\n    with R.dataflow():\n"
        f"{lines}\n        R.output({output})\n    return {output}\n"
    )


CASES = [
    ("depth-first", "from-inputs", "b1 c1 b2 c2 d", "b1 b2 c1 c2 d"),
    ("depth-first", "from-inputs", "c1 b1 b2 c2 d", "c1 c2 b1 b2 d"),
    ("breadth-first", "from-inputs", "b1 b2 c1 c2 d", "b1 c1 b2 c2 d"),
    ("depth-first", "from-outputs", "b1 c1 b2 c2 d", "b1 b2 c1 c2 d"),
    ("breadth-first", "from-outputs", "b1 b2 c1 c2 d", "c1 b1 c2 b2 d"),
]


def test_results_are_gone_back_from_in_the_order_in_which_they_are_returned():
    script = """
    @R.function
    def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        with R.dataflow():
            {}
            R.output(a, b)
        return (a, b)
    """
    a, b = "a = R.exp(x)", "b = R.exp(y)"
    gap = "\n            "
    check_pass(
        TopologicalSort(direction="from-outputs"),
        script.format(gap.join([b, a])),
        script.format(gap.join([a, b])),
    )


def test_parameters_become_known_one_after_another():
    script = """
    @R.function
    def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            {}
            R.output(b, d)
        return (b, d)
    """
    b, d = "b = R.add(a, y)", "d = R.sin(x)"
    gap = "\n            "
    check_pass(TopologicalSort(), script.format(gap.join([b, d])), script.format(gap.join([d, b])))


@pytest.mark.parametrize("order, direction, before, after", CASES)
def test_order(order, direction, before, after):
    check_pass(TopologicalSort(order=order, direction=direction), program(before), program(after))


def test_default_is_depth_first_from_inputs():
    check_pass(TopologicalSort(), program("b1 c1 b2 c2 d"), program("b1 b2 c1 c2 d"))


def test_a_sorted_block_stays():
    check_pass(TopologicalSort(), program("b1 b2 c1 c2 d"))


def test_what_is_dead_comes_early_or_late():
    """Without users it is an input and an output at once."""
    before = program("c1 b1 b2", "b2")
    check_pass(TopologicalSort(direction="from-outputs"), before)
    check_pass(TopologicalSort(direction="from-inputs"), before)


def test_a_size_is_defined_before_it_is_used():
    check_pass(
        TopologicalSort(order="breadth-first"),
        before="""
        @R.function
        def main(x: R.Tensor(ndim=1, dtype="float32")):
            with R.dataflow():
                n = T.int64()
                y = R.match_cast(x, R.Tensor((n,), "float32"))
                z = R.zeros(R.shape([n]), "float32")
                w = R.add(y, z)
                R.output(w)
            return w
        """,
    )


@pytest.mark.parametrize("options", [{"order": "random"}, {"direction": "sideways"}])
def test_an_unknown_word_is_an_error(options):
    (name, value), *_ = options.items()
    with pytest.raises(ValueError, match=f"TopologicalSort: {name} is '{value}'; use"):
        check_pass(TopologicalSort(**options), program("b1 b2", "b2"))
