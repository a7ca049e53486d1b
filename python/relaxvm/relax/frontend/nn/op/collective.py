# SPDX-License-Identifier: Apache-2.0
"""Operators between processes, which this runtime does not have."""

from __future__ import annotations

from typing import NoReturn

from ..tensor import Tensor


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"{name}: a compiled model runs in one process here; build the model with one worker (tensor_parallel_shards=1)"
    )


def ccl_allreduce(
    x: Tensor, op_type: str = "sum", in_group: bool = True, name: str = "ccl_allreduce"
) -> Tensor:
    """Refused: there is one worker."""
    _refuse("ccl_allreduce")


def ccl_allgather(x: Tensor, num_workers: int, name: str = "ccl_allgather") -> Tensor:
    """Refused: there is one worker."""
    _refuse("ccl_allgather")


def ccl_broadcast_from_worker0(x: Tensor, name: str = "broadcast_from_worker") -> Tensor:
    """Refused: there is one worker."""
    _refuse("ccl_broadcast_from_worker0")
