# SPDX-License-Identifier: Apache-2.0
"""Models with fields that are wrong: refused with an error of a session that names a place, or run.

DAMAGED_MODELS="FIRST:LAST" in the environment takes other seeds.
"""

import os
import random

import numpy as np
import onnx
import pytest

from relaxvm.inference import Fail, InferenceError, InferenceSession
from relaxvm.relax.frontend.onnx import OnnxError, from_onnx

FIRST, LAST = map(int, os.environ.get("DAMAGED_MODELS", "0:40").split(":"))
INTEGERS = [-1, 0, 1, 2, 3, 7, 16, 1000, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)]
REALS = [0.0, -1.0, 1e30, float("nan"), float("inf"), 0.5]
TEXTS = ["", "a" * 300, "x y", "Add", "x", "y", "-1", "ai.onnx"]

IMAGES = (
    "g (float[n,3,h,w] x) => (float[n,4] y) {"
    " a = Conv<kernel_shape=[3,3],pads=[1,1,1,1],strides=[2,2],dilations=[1,1],group=1>(x, w, b)"
    " c = MaxPool<kernel_shape=[2,2],strides=[1,1],ceil_mode=1>(a) d = LRN<size=3>(c)"
    " e = GlobalAveragePool(d) f = Flatten<axis=1>(e) y = Gemm<transB=1,alpha=0.5>(f, v, b) }"
)
SHAPES = (
    "g (float[n,s,8] x, int64[n,s] i, bool[s,s] m) => (float[n,s,8] y, float[n,s,t] p) {"
    " e = Gather(k, i) h = Add(x, e) s = Shape(h) t = Reshape(h, s) u = Transpose<perm=[0,2,1]>(t)"
    " v = MatMul(h, u) l = Constant<value_float=-9.0>() o = Where(m, v, l) p = Softmax<axis=-1>(o)"
    " y = MatMul(p, h) }"
)
LOOPS = (
    "g (float[n] x, int64 k) => (float[n] y, float[k,n] z) {"
    " t = Constant<value = bool {1}>()"
    " y, z = Loop<body = b (int64 i, bool c, float[n] s) => (bool d, float[n] r, float[n] o)"
    " { d = Identity(c) f = Cast<to=1>(i) a = Add(s, f) r = Mul(a, x) o = Identity(r) }>(k, t, x) }"
)
LAYERS = (
    "g (float[t,n,4] x, int32[n] l) => (float[t,2,n,3] y) {"
    ' y = LSTM<hidden_size=3,direction="bidirectional",clip=3.0,activations='
    '["Sigmoid","Tanh","Tanh","Sigmoid","Tanh","Tanh"]>(x, w, r, , l) }'
)


@pytest.fixture
def models(make_model):
    ones = lambda *shape: np.ones(shape, "f4")
    return [
        make_model(IMAGES, 21, {"w": ones(4, 3, 3, 3), "b": ones(4), "v": ones(4, 4)}),
        make_model(SHAPES, 21, {"k": ones(10, 8)}),
        make_model(LOOPS),
        make_model(LAYERS, 21, {"w": ones(2, 12, 4), "r": ones(2, 12, 3)}),
    ]


def spots(message):
    """Every field that is set, as (message, field, index), the last None where there is one value."""
    for field, value in message.ListFields():
        several = not hasattr(value, "DESCRIPTOR") and hasattr(value, "append")
        several = several or type(value).__name__.startswith("Repeated")
        for i in range(len(value)) if several else [None]:
            yield message, field, i
            if field.message_type:
                yield from spots(value if i is None else value[i])


def wrong_value(field, rng):
    kind = field.cpp_type
    if kind in (field.CPPTYPE_INT64, field.CPPTYPE_INT32, field.CPPTYPE_ENUM):
        value = rng.choice(INTEGERS)
        return value if kind == field.CPPTYPE_INT64 else max(min(value, 2**31 - 1), -(2**31))
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice(REALS)
    text = rng.choice(TEXTS)
    return text.encode() if field.type == field.TYPE_BYTES else text


def damaged(models, seed):
    rng = random.Random(seed)
    model = onnx.ModelProto()
    model.CopyFrom(rng.choice(models))
    message, field, i = rng.choice(list(spots(model)))
    try:
        if i is None:
            removed = field.message_type or rng.random() < 0.3
            if removed:
                message.ClearField(field.name)
            else:
                setattr(message, field.name, wrong_value(field, rng))
        elif rng.random() < 0.3 or field.message_type:
            several = getattr(message, field.name)
            if rng.random() < 0.5:
                several.append(several[i])
            else:
                del several[i]
        else:
            getattr(message, field.name)[i] = wrong_value(field, rng)
    except ValueError:  # an enumeration without this number: as it was
        pass
    return model.SerializeToString()


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_import_of_a_wrong_field(seed, models):
    for each in range(seed * 20, seed * 20 + 20):
        try:
            from_onnx(damaged(models, each))
        except OnnxError as e:
            assert "'" in str(e) or str(e).startswith("the model: "), f"{each}: {e}"


@pytest.mark.parametrize("seed", range(FIRST, LAST, 4))
def test_run_of_a_wrong_field(seed, models):
    """Sizes of 2 for all that is open."""
    try:
        session = InferenceSession(damaged(models, seed), cache_dir="")
        feed = {
            i.name: np.ones(
                [d if isinstance(d, int) else 2 for d in i.shape],
                {"tensor(float)": "f4", "tensor(bool)": "?", "tensor(int32)": "i4"}.get(
                    i.type, "i8"
                ),
            )
            for i in session.get_inputs()
            if all(not isinstance(d, int) or d < 100 for d in i.shape)
        }
        session.run(None, feed)
    except Fail as e:
        assert len(str(e)) > 20, e
    except InferenceError:
        pass
