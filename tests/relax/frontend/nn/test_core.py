# SPDX-License-Identifier: Apache-2.0
"""Tensors, parameters, modules and containers before anything is exported."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import relax, tirx
from relaxvm.relax.frontend import nn


class Model(nn.Module):
    def __init__(self) -> None:
        self.fc = nn.Linear(4, 3)
        self.parts = nn.ModuleList([nn.Linear(3, 3, bias=False), nn.ReLU()])
        self.named = nn.ModuleDict({"q": nn.RMSNorm(3, -1, bias=False)})
        self.list = nn.ParameterList([nn.Parameter((3,))])
        self.dict = nn.ParameterDict({"z": nn.Parameter((3,), "float16")})
        self.w = nn.Parameter(("k", 3))
        self.dtype = "float32"

    def forward(self, x):
        return self.parts(self.fc(x))


PATHS = ["fc.weight", "fc.bias", "parts.0.weight", "named.q.weight", "list.0", "dict.z", "w"]


def test_parameters_have_paths_in_the_order_of_attributes():
    model = Model()
    assert [n for n, _ in model.named_parameters()] == list(model.state_dict()) == PATHS
    assert list(model.state_dict(prefix="a.")) == ["a." + p for p in PATHS]
    assert len(list(model.parameters())) == len(PATHS)


def test_to_changes_all_parameters():
    model = Model()
    model.to("float16")
    assert {str(p.dtype) for p in model.parameters()} == {"float16"} and model.dtype == "float16"


def test_tensor_knows_shape_and_type():
    n = tirx.Var("n", "int64")
    x = nn.Tensor.placeholder((2, n * 2, "m"), "float16")
    assert (x.ndim, x.dtype, str(x)) == (3, "float16", 'Tensor([2, n * 2, m], "float16")')
    assert nn.Tensor.from_const([1, 2]).dtype == "int32"
    assert nn.Tensor.from_scalar(1, "float16").shape == []
    assert nn.Tensor.from_ty(relax.TensorType([2], "int8")).dtype == "int8"


def test_parameter_takes_values_of_its_shape_and_type_only():
    parameter = nn.Parameter((2, "n"))
    parameter.data = np.ones((2, 5), "float32")
    assert parameter.data.numpy().tolist() == [[1] * 5] * 2
    with pytest.raises(ValueError, match=r"has shape \[2, n\], the value \[3, 5\]"):
        parameter.data = np.ones((3, 5), "float32")
    with pytest.raises(ValueError, match="holds float32, the value float64"):
        parameter.data = np.ones((2, 5))
    with pytest.raises(TypeError, match="array or a DLPack tensor"):
        parameter.data = "x"
    with pytest.raises(ValueError, match="convert the value"):
        parameter.to("float16")
    parameter.data = None
    parameter.to("float16")
    assert parameter.dtype == "float16"


def test_sizes_that_cannot_be_are_errors():
    with pytest.raises(ValueError, match="negative size"):
        nn.Parameter((-1,))
    with pytest.raises(TypeError, match="a size is"):
        nn.Parameter((2.5,))
    with pytest.raises(TypeError, match="sizes are int64"):
        nn.Parameter((tirx.Var("n", "int32"),))


def test_tensor_of_unknown_shape_is_an_error():
    with pytest.raises(TypeError, match="known shape"):
        nn.Tensor.from_ty(relax.TensorType(ndim=2, dtype="float32"))


def test_default_type_of_parameters():
    nn.core.set_default_dtype("float16")
    try:
        assert nn.Parameter((1,)).dtype == nn.get_default_dtype() == "float16"
    finally:
        nn.core.set_default_dtype("float32")


def test_state_is_taken_over_by_name():
    source, target = nn.Linear(2, 3), nn.Linear(2, 3)
    with pytest.raises(ValueError, match="weight has no value"):
        target.load_state_dict(source.state_dict())
    for parameter in source.parameters():
        parameter.data = np.ones([int(s) for s in parameter.shape], "float32")
    assert target.load_state_dict(source.state_dict()) == ([], [])
    assert target.bias.data.numpy().tolist() == [1, 1, 1]
    other = {"bias": source.bias, "scale": source.bias}
    assert target.load_state_dict(other, strict=False) == (["weight"], ["scale"])
    with pytest.raises(KeyError, match=r"missing parameters: \['weight'\]"):
        target.load_state_dict(other)


def test_lists_and_dicts_behave_like_lists_and_dicts():
    parts = nn.ModuleList([nn.ReLU()])
    parts.append(nn.SiLU())
    parts[0] = nn.GELU()
    assert [type(m).__name__ for m in parts] == ["GELU", "SiLU"] and len(parts) == 2
    named = nn.ModuleDict({"a": nn.ReLU()})
    named["b"] = nn.SiLU()
    assert list(named.keys()) == ["a", "b"] and "b" in named and named.get("c") is None
    assert [type(m).__name__ for m in named] == ["ReLU", "SiLU"]
    named.update({"c": nn.GELU()})
    assert len(named) == 3 and named.pop("c") and [k for k, _ in named.items()] == ["a", "b"]
    named.clear()
    assert not list(named.values())
    parameters = nn.ParameterList([nn.Parameter((1,))])
    parameters.extend([nn.Parameter((2,))])
    assert [p.shape for p in parameters] == [[1], [2]]
    by_name = nn.ParameterDict({"a": nn.Parameter((1,))})
    assert list(by_name) == ["a"]


def test_containers_of_parameters_hold_nothing_else():
    with pytest.raises(TypeError, match="ParameterList holds nn.Parameter, not Linear"):
        nn.ParameterList([nn.Linear(1, 1)])
    with pytest.raises(TypeError, match="ParameterDict holds nn.Parameter, not int"):
        nn.ParameterDict({"a": 3})
    with pytest.raises(TypeError, match="a key of ParameterDict is a string, not int"):
        nn.ParameterDict({1: nn.Parameter((1,))})


def test_module_without_forward_cannot_be_called():
    with pytest.raises(NotImplementedError, match="Module has no method forward"):
        nn.Module()(1)


class Quantize(nn.Mutator):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def visit_module(self, name, node):
        self.seen.append(name)
        if isinstance(node, nn.Linear):
            return nn.ReLU()
        return self.visit(name, node)

    def visit_param(self, name, node):
        self.seen.append(name)
        return node


def test_mutator_replaces_parts_and_sees_paths():
    model, mutator = Model(), Quantize()
    assert mutator.visit("", model) is model
    assert mutator.seen == ["fc", "parts.0", "parts.1", "named.q", "named.q.weight", "list.0", "dict.z", "w"]  # fmt: skip
    assert [type(m).__name__ for m in (model.fc, *model.parts)] == ["ReLU"] * 3
