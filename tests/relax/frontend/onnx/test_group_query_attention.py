# SPDX-License-Identifier: Apache-2.0
"""GroupQueryAttention beside ONNX Runtime: prompts, steps, rows of several lengths, caches with room to spare."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.peer

GROUPS, DEPTH, LONGEST = 2, 16, 32
RNG = np.random.default_rng(3)
f4 = np.float32
CASES = {
    "plain": dict(num_heads=4),
    "rotary": dict(num_heads=4, do_rotary=1),
    "rotary of pairs, packed": dict(num_heads=4, do_rotary=1, rotary_interleaved=1, packed=True),
    "window, cap, scale": dict(num_heads=2, local_window_size=3, softcap=5.0, scale=0.2),
    "bias": dict(num_heads=4, bias=True),
    "sink": dict(num_heads=4, sink=True),
    "smooth": dict(num_heads=4, smooth_softmax=1, packed=True),
}
# Lengths of the rows before, how many tokens come, what the caches have room for.
STEPS = [
    ([0, 0], 5, 0),
    ([4], 1, 4),
    ([6, 2], 1, 6),
    ([3], 4, 3),
    ([5], 1, LONGEST),
    ([0], 7, LONGEST),
]


def _model(num_heads, packed=False, bias=False, sink=False, do_rotary=0, **attributes):
    number, tensors = helper.make_tensor_value_info, {}
    width = (num_heads + 2 * GROUPS if packed else num_heads) * DEPTH
    inputs = [number("q", TensorProto.FLOAT, ["n", "s", width])]
    if not packed:
        inputs += [number(x, TensorProto.FLOAT, ["n", "s", GROUPS * DEPTH]) for x in "kv"]
    inputs += [number(x, TensorProto.FLOAT, ["n", GROUPS, "p", DEPTH]) for x in ("pk", "pv")]
    inputs += [number("last", TensorProto.INT32, ["n"]), number("total", TensorProto.INT32, [])]
    names = ["q", *([""] * 2 if packed else "kv"), "pk", "pv", "last", "total", "", "", "", "", ""]
    if do_rotary:
        tensors |= {
            x: RNG.standard_normal((LONGEST, DEPTH // 2)).astype(f4) for x in ("cos", "sin")
        }
        names[7:9] = "cos", "sin"
    if bias:
        inputs.append(number("bias", TensorProto.FLOAT, [1, num_heads, "s", "t"]))
        names[10] = "bias"
    if sink:
        tensors["sink"] = RNG.standard_normal(num_heads).astype(f4)
        names[11] = "sink"
    attributes |= dict(num_heads=num_heads, kv_num_heads=GROUPS, do_rotary=do_rotary)
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "nk", "nv"], domain="com.microsoft", **attributes
    )
    outputs = [number(x, TensorProto.FLOAT, None) for x in ("y", "nk", "nv")]
    weights = [numpy_helper.from_array(value, name) for name, value in tensors.items()]
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        helper.make_graph([node], "g", inputs, outputs, weights),
        opset_imports=domains,
        ir_version=10,
    )


def _feed(model, before, count, room):
    sizes = {"n": len(before), "s": count, "p": room, "t": max(before) + count}
    feed = {}
    for value in model.graph.input:
        dims = [d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
        feed[value.name] = RNG.standard_normal(dims).astype(f4)
    feed["last"] = np.array(before, np.int32) + count - 1
    feed["total"] = np.array(sizes["t"], np.int32)
    return feed


@pytest.mark.parametrize("name", CASES)
def test_agrees(name, run_model_once):
    import onnxruntime

    model = _model(**CASES[name])
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    ours = run_model_once(model)
    for before, count, room in STEPS:
        feed = _feed(model, before, count, room)
        have, want = ours(feed), peer.run(None, feed)
        np.testing.assert_allclose(have[0], want[0], rtol=1e-3, atol=1e-5)
        for cache, expected in zip(have[1:], want[1:], strict=True):
            assert cache.shape == expected.shape
            for row, length in enumerate(before):  # behind that nothing is said
                np.testing.assert_allclose(
                    cache[row, :, : length + count], expected[row, :, : length + count], rtol=1e-4
                )
