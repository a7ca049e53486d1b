# SPDX-License-Identifier: Apache-2.0
"""What export_tvm makes of methods: inputs, parameters, state, results."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import ir, relax, tirx
from relaxvm.relax.frontend import nn
from relaxvm.script import from_source

from .conftest import machine_of, to_machine


class Dense(nn.Module):
    def __init__(self) -> None:
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x)

    def rows(self, x, n):
        return nn.zeros([n]), [x, (x,)]


X = nn.spec.Tensor(["b", 4], "float32")


def exported(module, spec, **options):
    return module.export_tvm(spec, **options)[0]


def same(module, text: str) -> None:
    head = "@I.ir_module\nclass Module:\n"
    lines = text.strip("\n").splitlines()
    ir.assert_structural_equal(module, from_source(head + "\n".join("    " + t for t in lines)))


def test_parameters_are_arguments_after_inputs():
    mod, params = Dense().export_tvm({"forward": {"x": X}})
    assert [n for n, _ in params] == ["fc.weight", "fc.bias"]
    assert [p.name for p in mod["forward"].params] == ["x", "fc.weight", "fc.bias"]
    text = '''
@R.function
def forward(x: R.Tensor(("b", 4), "float32"), w: R.Tensor((3, 4), "float32"), c: R.Tensor((3,), "float32")) -> R.Tensor(("b", 3), "float32"):
    b = T.int64()
    R.func_attr({"num_input": 1})
    with R.dataflow():
        t = R.permute_dims(w)
        product = R.matmul(x, t)
        total = R.add(product, c)
        gv = total
        R.output(gv)
    return gv'''  # fmt: skip
    same(mod, text)


def test_parameters_as_one_tuple():
    spec = {"forward": {"x": X, "$": {"param_mode": "packed", "effect_mode": "packed"}}}
    function = exported(Dense(), spec, debug=True)["forward"]
    assert [p.name for p in function.params] == ["x", "packed_effects", "packed_params"]
    assert function.attrs["num_input"] == 2
    names = [b.var.name for b in function.body.blocks[0].bindings]
    assert names[:3] == ["_io1", "fc_weight", "fc_bias"]


def test_parameters_that_are_left_out_cannot_be_used():
    spec = {"forward": {"x": X, "$": {"param_mode": "none"}}}
    with pytest.raises(ValueError, match="forward uses fc.weight, fc.bias, which it does not get"):
        Dense().export_tvm(spec)
    spec = {"rows": {"x": X, "n": int, "$": {"param_mode": "none"}}}
    assert len(exported(Dense(), spec)["rows"].params) == 2


def test_integers_are_symbolic_sizes_and_results_nest():
    mod = exported(Dense(), {"rows": {"x": nn.spec.Tensor(["n", 2], "float32"), "n": "int"}})
    function = mod["rows"]
    size = function.params[0].ty.shape.values[0]
    assert function.params[1].ty.values[0].same_as(size)
    zeros, nested = function.ret_ty.fields
    assert zeros.shape.values[0].same_as(size) and len(nested.fields[1].fields) == 1
    machine, x = machine_of(mod), np.ones((5, 2), "float32")
    weights = np.zeros((3, 4), "float32"), np.zeros(3, "float32")
    result = machine["rows"](*to_machine((x, 5, *weights)))
    assert result[0].shape == (5,) and result[1][1][0].numpy().sum() == 10


def test_tuples_of_arguments_are_taken_apart():
    class Sum(nn.Module):
        def forward(self, xs):
            assert isinstance(xs, list) and isinstance(xs[1], tuple)
            return xs[0] + xs[1][0]

    spec = {"xs": [X, nn.spec.Tuple("inner", (X,))]}
    function = exported(Sum(), {"forward": spec})["forward"]
    assert [b.var.name for b in function.body.blocks[0].bindings][:3] == ["xs_0", "xs_1", "xs_1_0"]


def test_symbolic_sizes_of_parameters_are_one_for_each_name():
    mod = exported(nn.Linear("i", "o"), {"forward": {"x": nn.spec.Tensor([2, "i"], "float32")}})
    x, weight, bias = mod["forward"].params
    assert weight.ty.shape.values[0].same_as(bias.ty.shape.values[0])
    assert not weight.ty.shape.values[1].same_as(x.ty.shape.values[1])


def test_sizes_may_be_expressions_and_are_renewed_for_each_method():
    n = tirx.Var("n", "int64")

    class Model(nn.Module):
        def __init__(self):
            self.w = nn.Parameter((n * 2, "n"))

        def forward(self, x):
            return x, self.w

        def second(self, x):
            return nn.zeros(self.w.shape)

    spec = {"x": nn.spec.Tensor([n], "float32")}
    module = Model()
    mod = exported(module, {"forward": spec, "second": spec})
    first, second = (mod[name].params[1].ty.shape.values[1] for name in ("forward", "second"))
    assert not first.same_as(second) and module.w.shape[1].name == "n"
    relaxvm.compile(mod)


def test_values_of_one_method_cannot_be_used_in_another():
    class Leak(nn.Module):
        def forward(self, x):
            self.kept = x
            return x

        def second(self, y):
            return y, self.kept

    spec = {"forward": {"x": X}, "second": {"y": X}}
    with pytest.raises(ValueError, match="second uses x"):
        Leak().export_tvm(spec)


def test_arguments_with_defaults_may_be_left_out():
    class Scale(nn.Module):
        def forward(self, x, by=2.0, *, to=None):
            return x * by if to is None else to

    assert len(exported(Scale(), {"forward": {"x": X}})["forward"].params) == 1
    assert len(exported(Scale(), {"forward": {"x": X, "to": X}})["forward"].params) == 2


def test_objects_keep_their_class():
    class Cache(nn.Object):
        def length(self):
            return nn.extern("length", [self], nn.Tensor.placeholder((1,), "int64"))

    class Model(nn.Module):
        def forward(self, cache: Cache):
            return cache.length(), cache

        def create(self, n):
            call = relax.op.call_pure_packed("make", relax.ShapeExpr([n]), ty_args=relax.AnyType())
            return Cache(_expr=call, _name="cache")

    mod = exported(Model(), {"forward": {"cache": nn.spec.Object(Cache)}, "create": {"n": int}})
    assert isinstance(mod["forward"].params[0].ty, relax.AnyType)
    assert [b.var.name for b in mod["create"].body.blocks[0].bindings] == ["cache", "gv1"]


# ---- state


class Cached(nn.Module):
    def __init__(self) -> None:
        self.part = nn.ModuleList([nn.ReLU()])
        self.cache = nn.KVCache(2, [3])

    def forward(self, x, n):
        self.cache.append(self.part(x))
        return self.cache.view(n)


CACHED = {"forward": {"x": nn.spec.Tensor([1, 3], "float32"), "n": int}}


def test_cache_grows_from_call_to_call():
    mod = exported(Cached(), CACHED)
    assert [p.name for p in mod["forward"].params] == ["x", "n", "cache"]
    machine = machine_of(mod)
    state = machine["_initialize_effect"]()
    for count in range(1, 6):
        row = np.full((1, 3), count, "float32")
        result, state = machine["forward"](*to_machine((row, count)), *state)
    assert result.numpy()[:, 0].tolist() == [1, 2, 3, 4, 5]


def test_cache_needs_its_state_and_its_type():
    spec = {"forward": {**CACHED["forward"], "$": {"effect_mode": "none"}}}
    with pytest.raises(RuntimeError, match='effect_mode "none"'):
        Cached().export_tvm(spec)
    module = Cached()
    module.to("float16")
    with pytest.raises(TypeError, match="the cache holds float16, the new rows are float32"):
        module.export_tvm(CACHED)


class Printing(nn.Module):
    def forward(self, x):
        nn.print_(x)
        nn.op.debug_func("test.nn.seen", x, 3, "word", 2.5)
        return x + 1


def test_debug_functions_run_in_order(capfd):
    seen = []
    relaxvm.register_global_func("test.nn.seen", lambda *a: seen.append(a), override=True)
    mod = exported(Printing(), {"forward": {"x": nn.spec.Tensor([2], "float32")}}, debug=True)
    machine = machine_of(mod)
    (state,) = machine["_initialize_effect"]()
    result, _ = machine["forward"](to_machine(np.array([1, 2], "float32")), state)
    assert result.numpy().tolist() == [2, 3]
    line, x, *rest = seen[0]
    assert "test_export.py:" in line and x.numpy().tolist() == [1, 2] and rest == [3, "word", 2.5]
    assert "test_export.py:" in capfd.readouterr().out


# ---- mistakes

WRONG = {
    "spec of module": (3, "a module is specified by a dict"),
    "spec of method": ({"forward": 3}, "Dense.forward is specified by a dict"),
    "missing argument": ({"rows": {"n": int}}, "the spec of Dense.rows has no argument x"),
    "unknown argument": ({"forward": {"x": X, "y": X}}, "Dense.forward has no argument y"),
    "spec of argument": ({"forward": {"x": "float"}}, "argument x is specified by int"),
    "mode": ({"forward": {"x": X, "$": {"param_mode": "all"}}}, "param_mode is one of plain"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_spec_is_named(name):
    spec, words = WRONG[name]
    with pytest.raises((TypeError, ValueError), match=words):
        Dense().export_tvm(spec)


def test_wrong_result_is_named():
    class Wrong(nn.Module):
        def forward(self, x):
            return {"x": x}

    with pytest.raises(TypeError, match="forward returns dict"):
        Wrong().export_tvm({"forward": {"x": X}})


def test_specs_describe_themselves():
    spec = nn.spec.ModuleSpec.from_raw({"rows": {"x": X, "n": int}}, Dense())
    assert repr(spec) == "ModuleSpec:\n  rows(x: Tensor([b, 4], 'float32'), n: int)"
    assert repr(spec.method_specs[0]).startswith("MethodSpec(x: ")
    example = nn.spec.MethodSpec.from_torch([np.zeros((2, 4), "float32"), 3], Dense().rows)
    assert repr(example) == "MethodSpec(x: Tensor([2, 4], 'float32'), n: int)"
