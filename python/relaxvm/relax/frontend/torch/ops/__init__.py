# SPDX-License-Identifier: Apache-2.0
"""The operators, one file per family; importing a file registers its operators."""

import importlib
import pkgutil


def load() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
