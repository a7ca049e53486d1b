# SPDX-License-Identifier: Apache-2.0
"""SetupTrainer: makes of a model the module of a training step."""

from __future__ import annotations

from typing import Any

from ...ir.expr import IntImm
from ...ir.module import IRModule
from ...ir.type import TupleType
from .. import transform
from ..expr import Function
from ..transform import module_pass
from ..type import TensorType
from .loss import Loss
from .optimizer import Optimizer

_passes: Any = transform  # its factories are made from the table of passes

BACKBONE = "backbone"
BACKBONE_LOSS = "backbone_loss"
ADJOINT = "backbone_loss_adjoint"
OPTIMIZER = "optimizer"


def _reject(why: str) -> ValueError:
    return ValueError(f"SetupTrainer: {why}")


def _number(mod: IRModule, key: str) -> int:
    value = mod.get_attr(key)
    if isinstance(value, IntImm):
        value = value.value
    if not isinstance(value, int):
        raise _reject(f'the module needs an integer attribute "{key}"')
    return int(value)


def _check_backbone(mod: IRModule) -> tuple[int, int, int]:
    """How many inputs, parameters and states the backbone has."""
    num_params, num_states = _number(mod, "param_num"), _number(mod, "state_num")
    backbone = mod[BACKBONE] if BACKBONE in mod else None
    if not isinstance(backbone, Function):
        raise _reject(f'the module needs a Relax function called "{BACKBONE}"')
    if num_params < 1 or num_states < 0:
        raise _reject(f"param_num is {num_params} and state_num {num_states}: nothing to train")
    num_inputs = len(backbone.params) - num_params - num_states
    if num_inputs < 0:
        raise _reject(
            f"the backbone has {len(backbone.params)} parameters, but param_num and state_num add up to "
            f"{num_params + num_states}"
        )
    if num_states:
        result = backbone.ret_ty
        given = len(result.fields) if isinstance(result, TupleType) else 1
        if given <= num_states:
            raise _reject(
                "a backbone with states gives a tuple of its results and the new states, which is longer "
                f"than state_num, {num_states}; it gives {given} value(s)"
            )
    return num_inputs, num_params, num_states


@module_pass(opt_level=0, name="SetupTrainer")
class SetupTrainer:
    """A pass that makes of a model the module of a training step.

    The module has a function `backbone(inputs..., params..., states...)` of one dataflow block, which gives
    the prediction, or a tuple of it and the new states, and the attributes `param_num` and `state_num`. Added
    are `backbone_loss(inputs..., params..., states..., targets...)`, which gives the loss and the new states,
    `backbone_loss_adjoint`, which gives these and the gradients by the parameters, and `optimizer`, the step of
    the optimizer; also the attributes `input_num` and `optim_state`, the states to begin with. The
    optimizer is initialized with the parameters. In the backbone, which predicts, batch_norm uses its
    moving statistics; in the loss those of the batch.

    loss: takes the prediction and `targets`; optimizer: takes the parameters; loss_args: the types of all
    arguments of the loss; legalize: whether operators become tensor programs. Raises ValueError for a module of
    another form."""

    BACKBONE_FUNC = BACKBONE
    BACKBONE_LOSS_FUNC = BACKBONE_LOSS
    ADJOINT_FUNC = ADJOINT
    OPTIMIZER_FUNC = OPTIMIZER

    def __init__(
        self, loss: Loss, optimizer: Optimizer, loss_args: list[TensorType], legalize: bool = True
    ) -> None:
        self._loss, self._optimizer = loss, optimizer
        self._loss_args, self._legalize = list(loss_args), legalize

    def transform_module(self, mod: IRModule, ctx: Any) -> IRModule:
        num_inputs, num_params, _ = _check_backbone(mod)
        function = self._loss(*self._loss_args)
        append = _passes.AppendLoss(
            BACKBONE, function, self._loss.num_backbone_outputs, BACKBONE_LOSS
        )
        mod = append(mod)
        mod = _passes.DecomposeOpsForInference(BACKBONE)(mod)
        mod = _passes.DecomposeOpsForTraining(BACKBONE_LOSS)(mod)
        params = list(mod[BACKBONE_LOSS].params)[num_inputs : num_inputs + num_params]
        mod = _passes.Gradient(BACKBONE_LOSS, require_grads=params)(mod)
        self._optimizer.init(params)
        step = self._optimizer.get_function()
        mod = mod.with_attrs(
            {
                **dict(mod.attrs or {}),
                "input_num": num_inputs,
                "optim_state": list(self._optimizer.state),
            }
        )
        mod[OPTIMIZER] = step.with_attr("global_symbol", OPTIMIZER)
        return _passes.LegalizeOps()(mod) if self._legalize else mod
