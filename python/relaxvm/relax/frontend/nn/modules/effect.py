# SPDX-License-Identifier: Apache-2.0
"""State of models: the order of prints, and a growing cache."""

from __future__ import annotations

from collections.abc import Sequence

from relaxvm import relax
from relaxvm.ir.expr import Expr, Var
from relaxvm.relax.block_builder import BlockBuilder
from relaxvm.relax.expr import ShapeExpr
from relaxvm.relax.type import AnyType, TensorType

from ..tensor import Effect, Tensor, bind, get_default_dtype


class _Single(Effect):
    """State in one object."""

    _state: Var | None = None

    def create(self, name_hint: str) -> list[Var]:
        return [Var(name_hint, AnyType())]

    def set_state(self, state_vars: list[Var]) -> None:
        (self._state,) = state_vars

    def finalize(self) -> list[Var]:
        state, self._state = self._state, None
        return [] if state is None else [state]

    def current(self) -> Var:
        """The variable of the state; RuntimeError where a method has none."""
        if self._state is None:
            raise RuntimeError(
                f'{type(self).__name__} has no state here: the method is exported with effect_mode "none", or runs'
                " outside of export_tvm"
            )
        return self._state


class IOEffect(_Single):
    """Keeps prints and other calls that are seen from outside in their order."""

    @property
    def effect(self) -> Var | None:
        return self._state

    @effect.setter
    def effect(self, state: Var | None) -> None:
        self._state = state

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        return [bind(relax.op.null_value(), f"{name_hint}.io")]

    def create(self, name_hint: str) -> list[Var]:
        return super().create(f"{name_hint}.io")


class KVCache(_Single):
    """Rows of shape `unit_shape` one after another; grows when more than `init_seq_len` are appended."""

    def __init__(
        self, init_seq_len: int, unit_shape: Sequence[int], dtype: str | None = None
    ) -> None:
        self.init_seq_len = init_seq_len
        self.unit_shape = [int(size) for size in unit_shape]
        self.dtype = get_default_dtype() if dtype is None else dtype

    @property
    def cache(self) -> Var | None:
        return self._state

    @cache.setter
    def cache(self, state: Var | None) -> None:
        self._state = state

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        shape = ShapeExpr([self.init_seq_len, *self.unit_shape])
        room = bind(relax.op.zeros(shape, self.dtype))
        create = relax.op.call_pure_packed(
            "vm.builtin.attention_kv_cache_create", room, shape, 0, ty_args=AnyType()
        )
        return [bind(create, name_hint)]

    def to(self, dtype: str | None = None) -> None:
        if dtype is not None:
            self.dtype = dtype

    def view(self, seq_len: int | Expr) -> Tensor:
        """The first `seq_len` rows, which must be all that are filled: (seq_len, *unit_shape)."""
        shape = [seq_len, *self.unit_shape]
        call = relax.op.call_pure_packed(
            "vm.builtin.attention_kv_cache_view",
            self.current(),
            ShapeExpr(shape),
            ty_args=TensorType(shape, self.dtype),
        )
        return Tensor(_expr=bind(call))

    def append(self, new_element: Tensor) -> None:
        """Appends rows (n, *unit_shape) of the cache's element type."""
        if str(new_element.dtype) != str(self.dtype):
            raise TypeError(f"the cache holds {self.dtype}, the new rows are {new_element.dtype}")
        call = relax.op.call_inplace_packed(
            "vm.builtin.attention_kv_cache_append",
            self.current(),
            new_element._expr,
            inplace_indices=[0],
            ty_args=AnyType(),
        )
        self._state = bind(call)
