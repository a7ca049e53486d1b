# SPDX-License-Identifier: Apache-2.0
"""Lists of passes for CPUs, and the passes that they begin with."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import pipeline
from relaxvm.relax.backend import DispatchSampling, DispatchSortScan, cpu_generic
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T
from relaxvm.target import Target


@I.ir_module
class Sampling:
    @R.function
    def main(
        prob: R.Tensor(("b", "v"), "float32"),
        u: R.Tensor(("n", 1), "float32"),
        rows: R.Tensor(("n", 1), "int64"),
    ) -> R.Tensor(("n", 1), "int32"):
        n = T.int64()
        with R.dataflow():
            y: R.Tensor((n, 1), "int32") = R.multinomial_from_uniform(prob, u, rows, dtype="int32")
            R.output(y)
        return y


def names(mod):
    return [
        str(b.value.args[0].name_hint)
        if str(b.value.op.name) == "relax.call_tir"
        else str(b.value.op.name)
        for block in mod["main"].body.blocks
        for b in block.bindings
    ]


def run(mod, *arrays):
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    return vm["main"](*[relaxvm.runtime.tensor(a) for a in arrays]).numpy()


def test_sampling_is_a_running_sum_and_a_search():
    result = DispatchSampling()(Sampling)
    assert names(result) == ["relax.cumsum", "get_sample_index"]
    prob = np.array([[0.25, 0.25, 0.5], [0.5, 0, 0.5]], "f4")
    u = np.array([[0.1], [0.25], [0.6], [0.5], [0.99]], "f4")
    rows = np.array([[0], [0], [0], [1], [1]], "int64")
    got = run(result, prob, u, rows)
    np.testing.assert_array_equal(got, [[0], [1], [2], [2], [2]])
    np.testing.assert_array_equal(got, run(Sampling, prob, u, rows))


def test_sampling_stays_for_other_targets():
    with Target("cuda"):
        assert DispatchSampling()(Sampling).same_as(Sampling)


@I.ir_module
class Sorting:
    @R.function
    def main(x: R.Tensor((4, 6), "float32")):
        with R.dataflow():
            a: R.Tensor((4, 6), "float32") = R.sort(x, axis=1)
            b: R.Tensor((4, 6), "float32") = R.cumsum(a, axis=1)
            c: R.Tensor((4, 6), "float32") = R.exp(b)
            R.output(c)
        return c


def test_sorting_and_sums_get_their_programs():
    assert names(DispatchSortScan()(Sorting)) == ["sort", "cumsum", "relax.exp"]


@pytest.mark.parametrize("mod", [Sampling, Sorting])
def test_lists_lead_to_an_executable(mod):
    lists = [
        pipeline.library_dispatch_passes,
        pipeline.legalize_passes,
        pipeline.dataflow_lower_passes,
        pipeline.finalize_passes,
    ]
    lowered = mod
    for make in lists:
        for step in make("llvm"):
            lowered = step(lowered)
    assert relaxvm.ir.structural_equal(lowered, cpu_generic.get_default_pipeline("llvm")(mod))
    rng = np.random.default_rng(0)
    if mod is Sampling:
        args = [np.full((2, 3), 1 / 3, "f4"), rng.random((5, 1), "f4"), np.zeros((5, 1), "int64")]
    else:
        args = [rng.random((4, 6), "f4")]
    np.testing.assert_allclose(run(lowered, *args), run(mod, *args), rtol=1e-5)


def test_there_are_no_lists_for_other_targets():
    with pytest.raises(ValueError, match="no lists of passes for targets of kind 'cuda'"):
        pipeline.legalize_passes("cuda")
