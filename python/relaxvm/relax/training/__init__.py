# SPDX-License-Identifier: Apache-2.0
"""Training: losses, optimizers, the module of a training step, and what runs it."""

from . import loss, optimizer, utils
from .setup_trainer import SetupTrainer
from .trainer import Trainer
from .utils import AppendLoss

__all__ = ["AppendLoss", "SetupTrainer", "Trainer", "loss", "optimizer", "utils"]
