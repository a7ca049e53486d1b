# SPDX-License-Identifier: Apache-2.0
"""Random models beside ONNX Runtime.  RANDOM_GRAPHS="FIRST:LAST" in the environment runs other seeds."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from random_blocks import network_of
from random_graphs import STEPS, feeds_of, model_of
from random_steps import FEEDS, WIDE
from random_types import OPSETS, TYPED

pytestmark = pytest.mark.peer

ONCE_WRONG = [710488]  # formulas around planes that become pixels
FIRST, LAST = map(int, os.environ.get("RANDOM_GRAPHS", "0:16").split(":"))


def close(ours: np.ndarray, peer: np.ndarray) -> bool:
    """Up to rounding; a few elements may lie on the other side of a jump."""
    if ours.shape != peer.shape:
        return False
    finite = np.isfinite(peer)
    scale = 1e-3 + np.abs(peer[finite]).max(initial=0)
    off = ~np.isclose(ours, peer, rtol=1e-3, atol=1e-4 * scale, equal_nan=True)
    return bool(off.sum() <= 0.01 * off.size)


def compare(model, feeds, run_model_once, peer_optimizes: bool = True) -> None:
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as REFUSED

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not peer_optimizes:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    ours = run_model_once(model)
    for feed in feeds:
        try:
            wanted = peer.run(None, feed)
        except (REFUSED.Fail, REFUSED.InvalidArgument, REFUSED.RuntimeException):
            continue  # sizes that this model does not allow
        for name, mine, theirs in zip(model.graph.output, ours(feed), wanted, strict=True):
            assert close(mine, theirs), f"output {name.name}, {theirs.shape}"


@pytest.mark.parametrize("seed", sorted({*range(FIRST, LAST), *ONCE_WRONG}))
def test_model(seed, run_model_once):
    model, inputs = model_of(seed)
    compare(model, feeds_of(seed, inputs), run_model_once)


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_model_of_more_steps(seed, run_model_once):
    """Some seeds end ONNX Runtime itself, where a size is 0; none of those that run by default."""
    model, inputs = model_of(seed, 10, WIDE)
    compare(model, feeds_of(seed, inputs, FEEDS), run_model_once)


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_model_of_other_types(seed, run_model_once):
    """Half of the steps are of other element types; the opset goes round with the seed."""
    steps = TYPED * (len(STEPS) // len(TYPED) + 1) + STEPS
    model, inputs = model_of(seed, 10, steps, OPSETS[seed % len(OPSETS)])
    compare(model, feeds_of(seed, inputs, FEEDS), run_model_once)


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_network(seed, run_model_once):
    """ONNX Runtime's optimized form of what is quantized twice is not the model's."""
    model, feeds = network_of(seed)
    compare(model, feeds, run_model_once, peer_optimizes=False)
