# SPDX-License-Identifier: Apache-2.0
"""SessionOptions: what a session may be told, under ONNX Runtime's names."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("relaxvm.inference")

_FOLDER_OF_WEIGHTS = "session.model_external_initializers_file_folder_path"


class SessionOptions:
    """Options of a session.  The number of threads and the folder of external weights are read.

    What the others choose (arenas, graph optimisations, order of execution) this library decides.
    """

    def __init__(self) -> None:
        self.intra_op_num_threads = 0  # 0: as many as the machine allows
        self.inter_op_num_threads = 0
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_profiling = False
        self.execution_mode: Any = None
        self.execution_order: Any = None
        self.graph_optimization_level: Any = None
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.optimized_model_filepath = ""
        self.profile_file_prefix = ""
        self.use_deterministic_compute = False
        self._entries: dict[str, str] = {}

    def add_session_config_entry(self, name: str, value: str) -> None:
        self._entries[str(name)] = str(value)

    def get_session_config_entry(self, name: str) -> str:
        """The value of an entry; raises RuntimeError when there is none."""
        if name not in self._entries:
            raise RuntimeError(f"there is no session config entry '{name}'")
        return self._entries[name]

    def has_session_config_entry(self, name: str) -> bool:
        return name in self._entries

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Nothing to do: a model runs at every size."""

    def add_free_dimension_override_by_denotation(self, name: str, size: int) -> None:
        """Nothing to do: a model runs at every size."""


def folder_of_weights(options: Any) -> str | None:
    """Where the external weights of a model that is given as bytes lie; None when nobody says."""
    try:
        return options.get_session_config_entry(_FOLDER_OF_WEIGHTS) or None
    except (AttributeError, RuntimeError):
        return None


def warn_of_ignored(options: Any) -> None:
    """Says which wishes for files are not fulfilled."""
    for name in ("enable_profiling", "optimized_model_filepath"):
        if getattr(options, name, None):
            logger.warning("the session option %s has no effect", name)
