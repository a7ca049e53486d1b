# SPDX-License-Identifier: Apache-2.0
"""GridSample as deformable attention has it: many channels, and places along short axes."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from relaxvm.relax.frontend.onnx import from_onnx


def model_of(x, grid, **attributes) -> bytes:
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", [info("x", x), info("grid", grid)], [info("y", None)])
    domains = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=domains, ir_version=9).SerializeToString()


def work(channels: int) -> float:
    """Floating-point operations for each channel of each place."""
    import relaxvm
    from relaxvm import runtime

    module = from_onnx(model_of([2, channels, 8, 9], [2, 30, 4, 2]))
    vm = relaxvm.VirtualMachine(relaxvm.compile(module), relaxvm.cpu())
    shapes = (2, channels, 8, 9), (2, 30, 4, 2)
    profile = vm.profile("main", *[runtime.tensor(np.zeros(s, np.float32)) for s in shapes])
    flop = sum(row.flop for row in profile.rows() if row.kind == "kernel" and row.flop)
    return flop / (2 * channels * 120)


def test_places_are_computed_once_for_all_channels():
    assert work(64) < work(1) / 2


@pytest.mark.peer
@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_many_channels_and_short_axes(mode, padding_mode, align_corners):
    import onnxruntime

    from relaxvm.inference import InferenceSession

    attributes = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    model = model_of(["n", "c", "h", "w"], ["n", "p", "q", 2], **attributes)
    peer, ours = onnxruntime.InferenceSession(model), InferenceSession(model, cache_dir="")
    rng = np.random.default_rng(0)
    for n, c, size, places in [(2, 32, (5, 7), (11, 4)), (1, 3, (6, 4), (1, 2))]:
        x = rng.standard_normal((n, c, *size)).astype(np.float32)
        grid = rng.uniform(-1.4, 1.4, (n, *places, 2)).astype(np.float32)
        feed = {"x": x, "grid": grid}
        have, want = ours.run(None, feed)[0], peer.run(None, feed)[0]
        np.testing.assert_allclose(have, want, rtol=1e-3, atol=2e-5)


def test_what_lies_outside_is_not_read():
    """An infinity at the edge times a weight of zero would be NaN."""
    from relaxvm.inference import InferenceSession

    x = np.full((1, 8, 2, 2), np.inf, np.float32)
    grid = np.full((1, 3, 1, 2), 5.0, np.float32)
    ours = InferenceSession(model_of(x.shape, grid.shape), cache_dir="")
    assert ours.run(None, {"x": x, "grid": grid})[0].tolist() == np.zeros((1, 8, 3, 1)).tolist()
