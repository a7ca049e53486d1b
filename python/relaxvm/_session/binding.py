# SPDX-License-Identifier: Apache-2.0
"""IOBinding: the inputs of a session's runs, and where their outputs go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..inference_errors import InvalidArgument
from .ort_values import (
    OrtValue,
    array_of,
    at_address,
    check_device,
    contiguous,
    dtype_of,
    write,
)


class IOBinding:
    """What `run_with_iobinding` reads and writes: all of it lies in the memory of the CPU.

    Inputs are read when the session runs; an output without memory of its own gets new memory with
    each run.  A bound address must stay valid until it is bound anew or cleared.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._input_names = [
            a.name for a in (*session.get_inputs(), *session.get_overridable_initializers())
        ]
        self._output_names = [a.name for a in session.get_outputs()]
        self._feed: dict[str, Any] = {}
        self._targets: dict[str, Any] = {}  # an array or OrtValue to write to, None for new memory
        self._results: dict[str, OrtValue] = {}

    # ---- inputs

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an array, whose elements are read when the session runs."""
        self._bind_input(name, contiguous(np.asarray(arr_on_cpu)))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Binds the elements at an address."""
        check_device(device_type)
        self._bind_input(name, at_address(buffer_ptr, shape, dtype_of(element_type)))

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        self._bind_input(name, array_of(ortvalue), owner=ortvalue)

    def _bind_input(self, name: str, value: Any, owner: Any = None) -> None:
        if name not in self._input_names:
            raise InvalidArgument(
                f"there is no input called '{name}'; the inputs are {self._input_names}"
            )
        self._feed[name] = (value, owner)

    # ---- outputs

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Asks for an output, in new memory or at an address."""
        check_device(device_type)
        if buffer_ptr is None:
            self._bind_output(name, None)
        elif element_type is None or shape is None:
            raise InvalidArgument("memory for an output needs its element_type and shape")
        else:
            self._bind_output(name, at_address(buffer_ptr, shape, dtype_of(element_type)))

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Asks for an output in the memory of a tensor that has its shape."""
        array_of(ortvalue)
        self._bind_output(name, ortvalue)

    def _bind_output(self, name: str, target: Any) -> None:
        if name not in self._output_names:
            raise InvalidArgument(
                f"there is no output called '{name}'; the outputs are {self._output_names}"
            )
        self._targets[name] = target

    # ---- running

    def run(self, session: Any, run_options: Any) -> None:
        """Runs the session that this belongs to; its outputs are here afterwards."""
        if session is not self._session:
            raise InvalidArgument("an IOBinding belongs to the session that made it")
        if not self._targets:
            raise InvalidArgument("no output is bound; bind_output(name) asks for one")
        names = list(self._targets)
        feed = {name: value for name, (value, _) in self._feed.items()}
        results = session.run(names, feed, run_options)
        self._results = {n: self._placed(n, r) for n, r in zip(names, results, strict=True)}

    def _placed(self, name: str, result: Any) -> OrtValue:
        target = self._targets[name]
        if target is None:
            return OrtValue(result)
        place = target if isinstance(target, np.ndarray) else array_of(target)
        write(place, result, f"output '{name}'")
        return OrtValue(place) if isinstance(target, np.ndarray) else target

    # ---- results

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return list(self._results.values())

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run, as arrays of their own."""
        values = [array_of(value) for value in self._results.values()]
        return [v.copy() if isinstance(v, np.ndarray) else v for v in values]

    def synchronize_inputs(self) -> None:
        """Nothing waits: all values lie on the CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing waits: all values lie on the CPU."""

    def clear_binding_inputs(self) -> None:
        self._feed.clear()

    def clear_binding_outputs(self) -> None:
        self._targets.clear()
        self._results.clear()
