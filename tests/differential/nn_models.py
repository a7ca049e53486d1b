# SPDX-License-Identifier: Apache-2.0
"""The same models by TVM's nn and by ours: `nn_models.py tvm|relaxvm` prints what export_tvm makes of them.

A line for each function, parameter list and binding; names, types, operators and attributes as they are.
"""

from __future__ import annotations

import importlib
import re
import sys

LIBRARY = sys.argv[1]
nn = importlib.import_module(f"{LIBRARY}.relax.frontend.nn")
te = importlib.import_module(f"{LIBRARY}.te")
modules = importlib.import_module(f"{LIBRARY}.relax.frontend.nn.modules")


def T(*shape, dtype="float32"):
    return nn.spec.Tensor(list(shape), dtype)


class Operators(nn.Module):
    def forward(self, x, y):
        a = (1.0 + x - 2) * 3 / (y * 2.0 - 0.5) + (3 - x)
        a = a.maximum(x).minimum(y).reshape(4, -1).permute_dims(1, 0).repeat(2, 0)
        parts = nn.split(nn.relu(x), 2, axis=1), nn.chunk(nn.softmax(x), 3, 2), nn.topk(x, 2)
        b = nn.concat([nn.unsqueeze(p, 0) for p in parts[0]], dim=0)
        c = nn.where(nn.less(x, y), nn.gelu(x, "tanh"), nn.silu(y))
        d = nn.take(x, nn.argsort(nn.sum(nn.square(x), [0, 2])), axis=1)
        e = nn.full([2], 3.0), nn.triu(x, 1), nn.cumsum(x, 1), nn.pad(x, [0, 0, 1, 2, 0, 0])
        return a, parts, b, c, d, e, nn.max(x), nn.sort(x, 1), nn.astype(x, "float16"), nn.relu6(x)


class Perceptron(nn.Module):
    def __init__(self) -> None:
        self.linear_1, self.norm = nn.Linear(4, 8), nn.RMSNorm(8, -1)
        self.parts = nn.ModuleList([nn.Linear(8, 8, bias=False), nn.SiLU()])
        self.table, self.scale = nn.Embedding("v", 8), nn.Parameter((8,), "float32")

    def forward(self, x, ids, n):
        y = self.parts(self.norm(self.linear_1(x))) + self.scale
        return y, [self.table(ids), nn.zeros([n])]


class Image(nn.Module):
    def __init__(self) -> None:
        self.first, self.second = nn.Conv2D(3, 8, 3, 2, 1), nn.GroupNorm(2, 8)
        self.third = nn.Conv2D(8, 4, [3, 1], groups=2, bias=False)

    def forward(self, x):
        x = self.third(self.second(self.first(x)))
        return nn.interpolate(x, scale_factor=2.0), nn.interpolate(x, (5, 5), mode="bilinear")


class Diffusion(nn.Module):
    def __init__(self) -> None:
        self.steps, self.embed = modules.Timesteps(8, True), modules.TimestepEmbedding(8, 16)
        self.attend = modules.Attention(16, 12, 2, 8, norm_num_groups=4)
        self.back = nn.ConvTranspose1D(5, 4, 3, 2, 1, 1)

    def forward(self, x, other, step):
        y = self.attend(x, other) + nn.unsqueeze(self.embed(self.steps(step)), 1)
        return self.back(y), nn.scaled_dot_product_attention(*[nn.reshape(y, [2, 5, 2, 8])] * 3, is_causal=True)  # fmt: skip


class Cached(nn.Module):
    def __init__(self) -> None:
        self.layers = nn.ModuleList([nn.LayerNorm(3), nn.LayerNorm(3, elementwise_affine=False)])
        self.cache = nn.KVCache(8, [3])

    def forward(self, x, n):
        self.cache.append(self.layers(x))
        return self.cache.view(n)

    def plain(self, pair):
        return pair[0] + pair[1][0]


class Program(nn.Module):
    def forward(self, x):
        double = lambda a: te.compute(a.shape, lambda *i: a(*i) * 2.0, name="double")
        y = nn.tensor_expr_op(double, "double", [x])
        return nn.op.extern("outside", [y, 1, 2.5, "word"], nn.Tensor.placeholder((2,), "float32"))


class Block(nn.Module):
    define_subroutine = True

    def __init__(self) -> None:
        self.w = nn.Parameter((4, 4))

    def forward(self, x):
        return nn.matmul(x, self.w)


class Blocks(nn.Module):
    def __init__(self) -> None:
        self.a, self.b = Block(), Block()

    def forward(self, x):
        return self.b(self.a(x))


PACKED = {"param_mode": "packed", "effect_mode": "packed"}
PAIR = [T("n", 3), (T("n", 3),)]
MODELS = {
    "operators": (Operators(), {"forward": {"x": T("n", 4, 6), "y": T(4, 6)}}, {}),
    "perceptron": (Perceptron(), {"forward": {"x": T(1, "b", 4), "ids": T(2, 3, dtype="int32"), "n": int}}, {}),
    "perceptron, packed": (Perceptron(), {"forward": {"x": T(1, "b", 4), "ids": T(5, dtype="int32"), "n": int, "$": PACKED}}, {"debug": True}),
    "image": (Image(), {"forward": {"x": T(1, 3, 8, 8)}}, {}),
    "diffusion": (Diffusion(), {"forward": {"x": T(2, 5, 16), "other": T(2, 7, 12), "step": T(2)}}, {}),
    "cached": (Cached(), {"forward": {"x": T(1, 3), "n": int}, "plain": {"pair": PAIR}}, {"debug": True}),
    "program": (Program(), {"forward": {"x": T("n", 4)}}, {}),
    "blocks": (Blocks(), {"forward": {"x": T("n", 4)}}, {}),
}  # fmt: skip


def size(value) -> str:
    return re.sub(r"T\.int64\((-?\d+)\)", r"\1", str(value))


def sizes(values) -> str:
    return f"[{', '.join(map(size, values))}]"


def type_text(ty) -> str:
    kind = type(ty).__name__
    if kind == "TensorType":
        return f"{getattr(ty.dtype, 'dtype', ty.dtype)}{sizes(ty.shape.values)}"
    if kind == "TupleType":
        return f"({', '.join(map(type_text, ty.fields))})"
    return f"shape{sizes(ty.values)}" if kind == "ShapeType" else "any"


def attribute(value) -> str:
    if isinstance(value, (str, bool, int, float)) or value is None:
        return str(value)
    if hasattr(value, "__iter__"):
        return f"[{', '.join(map(attribute, value))}]"
    return str(getattr(value, "value", value))


def attributes(attrs) -> str:
    if attrs is None:
        return ""
    if hasattr(attrs, "keys"):
        found = {k: attrs[k] for k in attrs.keys()}
    else:
        names = [n for n in dir(attrs) if n[0] != "_" and n not in ("id_", "handle", "span")]
        found = {n: getattr(attrs, n) for n in names if not callable(getattr(attrs, n))}
    for ours in ("antialias", "scales"):  # of image.resize2d: TVM has neither
        if not found.get(ours):
            found.pop(ours, None)
    texts = {k: attribute(v) for k, v in sorted(found.items())}
    return " ".join(f"{k}={v}" for k, v in texts.items() if v not in ("None", ""))


def value_text(value) -> str:
    kind = type(value).__name__
    if kind == "Call":
        op = value.op
        name = getattr(op, "name", None) or getattr(op, "name_hint", None) or op.global_symbol
        given = ", ".join(map(value_text, value.args))
        types = ", ".join(map(type_text, value.ty_args or []))
        return f"{name.removeprefix('relax.')}({given}) {attributes(value.attrs)} {types}".strip()
    if kind in ("Constant", "GenericConst"):
        array = (value.data if hasattr(value, "data") else value.value).numpy()
        return f"{array.dtype}{list(array.shape)} {array.ravel()[:4].tolist()}"
    if kind == "Tuple":
        return f"({', '.join(map(value_text, value.fields))})"
    if kind == "TupleGetItem":
        return f"{value_text(value.tuple_value)}[{value.index}]"
    if kind == "ShapeExpr":
        return sizes(value.values)
    for field in ("name", "name_hint", "global_symbol", "value"):
        if hasattr(value, field):
            return str(getattr(value, field))
    return size(value)


def describe(mod) -> None:
    for var, function in sorted(mod.functions.items(), key=lambda item: item[0].name_hint):
        if type(function).__name__ != "Function":
            print(f" program {var.name_hint} {len(function.params)}")
            continue
        print(f" function {var.name_hint}: {attributes(function.attrs)}")
        params = (f"{p.name} {type_text(p.ty)}" for p in function.params)
        print(f"  ({', '.join(params)}) -> {type_text(function.ret_ty)}")
        for block in function.body.blocks:
            for b in block.bindings:
                print(f"  {b.var.name} {type_text(b.var.ty)} = {value_text(b.value)}")


if __name__ == "__main__":
    for name, (model, spec, options) in MODELS.items():
        mod, params = model.export_tvm(spec, **options)
        print(name, [(n, str(p.dtype)) for n, p in params])
        describe(mod)
