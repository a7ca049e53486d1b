# SPDX-License-Identifier: Apache-2.0
"""Trainer: runs a training module, and keeps its parameters and states from step to step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import runtime
from ...ir.expr import IntImm, Var
from ...ir.module import IRModule
from ..expr import ShapeExpr
from .setup_trainer import ADJOINT, BACKBONE, BACKBONE_LOSS, OPTIMIZER

Values = Sequence[Any] | Mapping[str, Any]  # arrays or tensors, in order or by name


def _shape(var: Var) -> list[int]:
    shape = var.ty.shape
    if not isinstance(shape, ShapeExpr) or not all(isinstance(d, IntImm) for d in shape.values):
        raise ValueError(f"{var.name} is {var.ty}: give it a value, its shape is not known")
    return [int(d) for d in shape.values]


class _Store:
    """The values of some parameters of the backbone."""

    def __init__(self, what: str, variables: Sequence[Var], device: Any) -> None:
        self.what, self.variables, self.device = what, list(variables), device
        self.values: list[Any] = [None] * len(self.variables)

    def fill(self, make: Any) -> None:
        """Sets each to `make(shape)`."""
        for i, var in enumerate(self.variables):
            value = runtime.empty(_shape(var), str(var.ty.dtype), self.device)
            self.values[i] = value.copyfrom(make(_shape(var)))

    def _check(self, var: Var, value: Any) -> Any:
        given = runtime.tensor(value, self.device)
        want = str(var.ty.dtype)
        if str(given.dtype) != want:
            raise ValueError(f"{self.what} {var.name} must be of {want}, not {given.dtype}")
        dims = var.ty.shape.values if isinstance(var.ty.shape, ShapeExpr) else None
        fits = dims is None or (
            len(dims) == len(given.shape)
            and all(not isinstance(d, IntImm) or int(d) == g for d, g in zip(dims, given.shape))
        )
        if not fits:
            raise ValueError(
                f"{self.what} {var.name} must be {var.ty}, not of shape {list(given.shape)}"
            )
        return given

    def load(self, values: Values) -> None:
        """Takes values in order, or some by name."""
        names = [str(v.name) for v in self.variables]
        if isinstance(values, Mapping):
            for name in values:
                if name not in names:
                    raise ValueError(
                        f"there is no {self.what} {name!r}; there are: {', '.join(names)}"
                    )
            at = {names.index(name): value for name, value in values.items()}
        else:
            if len(values) != len(names):
                raise ValueError(
                    f"{len(values)} values are given for {len(names)} {self.what}s; all must be given"
                )
            at = dict(enumerate(values))
        checked = {i: self._check(self.variables[i], value) for i, value in at.items()}
        for i, value in checked.items():
            self.values[i] = value

    def export(self) -> dict[str, Any]:
        return {str(v.name): value for v, value in zip(self.variables, self.values)}

    def all(self) -> list[Any]:
        for var, value in zip(self.variables, self.values):
            if value is None:
                raise RuntimeError(
                    f"{self.what} {var.name} has no value yet; load or initialize the {self.what}s first"
                )
        return self.values


def _xavier(shape: list[int]) -> np.ndarray:
    """Uniform between -b and b, b = sqrt(6 / (inputs + outputs)) of a weight [outputs, inputs, window...]."""
    window = math.prod(shape[2:])
    bound = math.sqrt(6.0 / max(sum(shape[:2]) * window, 1))
    return np.random.uniform(-bound, bound, shape)


class Trainer:
    """Runs what SetupTrainer made: `update` is a step of training, `predict` asks the model.

    train_mod: the module that SetupTrainer gave; vm: the machine of that module's executable;
    device: where values are kept; zero_init_param_state: whether parameters and states are 0 to begin with."""

    BACKBONE_FUNC = BACKBONE
    BACKBONE_LOSS_FUNC = BACKBONE_LOSS
    ADJOINT_FUNC = ADJOINT
    OPTIMIZER_FUNC = OPTIMIZER

    def __init__(
        self,
        train_mod: IRModule,
        vm: runtime.VirtualMachine,
        device: runtime.Device,
        zero_init_param_state: bool = True,
    ) -> None:
        for key in ("input_num", "param_num", "state_num", "optim_state"):
            if train_mod.get_attr(key) is None:
                raise ValueError(
                    f'Trainer: the module has no attribute "{key}"; run SetupTrainer on it first'
                )
        self.mod, self.vm, self.device = train_mod.without_attr("optim_state"), vm, device
        self._optim_state = [runtime.tensor(s, device) for s in train_mod.get_attr("optim_state")]
        self._input_num = int(train_mod.get_attr("input_num"))
        first_state = self._input_num + int(train_mod.get_attr("param_num"))
        params = list(train_mod[BACKBONE].params)
        self._params = _Store("parameter", params[self._input_num : first_state], device)
        self._states = _Store("state", params[first_state:], device)
        if zero_init_param_state:
            self.zero_init_params()
            self.zero_init_states()

    # ---- values

    def xaiver_uniform_init_params(self) -> None:
        """Sets parameters to random numbers of numpy.random (Xavier's uniform distribution)."""
        self._params.fill(_xavier)

    def zero_init_params(self) -> None:
        """Sets all parameters to 0."""
        self._params.fill(np.zeros)

    def zero_init_states(self) -> None:
        """Sets all states of the model to 0."""
        self._states.fill(np.zeros)

    def load_params(self, params: Values) -> None:
        """Takes values of all parameters in order, or of some by name.

        Raises ValueError for another number of values, an unknown name, another shape or element type."""
        self._params.load(params)

    def load_states(self, states: Values) -> None:
        """Takes values of all states of the model in order, or of some by name; errors as load_params."""
        self._states.load(states)

    def export_params(self) -> dict[str, Any]:
        """The parameters by name; None for one without a value."""
        return self._params.export()

    def export_states(self) -> dict[str, Any]:
        """The states of the model by name; None for one without a value."""
        return self._states.export()

    # ---- running

    def _inputs(self, given: Sequence[Any]) -> list[Any]:
        if len(given) != self._input_num:
            raise ValueError(
                f"the model takes {self._input_num} input(s), but {len(given)} are given"
            )
        return [runtime.tensor(value, self.device) for value in given]

    def predict(self, *input_instances: Any) -> Any:
        """What the model gives for these inputs (arrays or tensors), without its states.

        Raises ValueError for another number of inputs, RuntimeError when a parameter has no value."""
        args = [*self._inputs(input_instances), *self._params.all(), *self._states.all()]
        result = self.vm[BACKBONE](*args)
        if not self._states.variables:
            return result
        results = list(result)[: -len(self._states.variables)]
        return results[0] if len(results) == 1 else tuple(results)

    def update(self, input_instances: Any, targets: Any) -> Any:
        """One step: computes the loss, its gradients and the new parameters and states; gives the loss.

        input_instances, targets: an array or tensor, or a list of them. Errors as predict."""
        inputs = _listed(input_instances)
        args = [*self._inputs(inputs), *self._params.all(), *self._states.all()]
        args += [runtime.tensor(value, self.device) for value in _listed(targets)]
        loss, grads = self.vm[ADJOINT](*args)
        if self._states.variables:
            loss, *states = loss
            self._states.values = list(states)
        params, optim_state = self.vm[OPTIMIZER](
            tuple(self._params.values), tuple(grads), tuple(self._optim_state)
        )
        self._params.values, self._optim_state = list(params), list(optim_state)
        return loss


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]
