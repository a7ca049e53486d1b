# SPDX-License-Identifier: Apache-2.0
"""The virtual machine under the name that Relax users know."""

from relaxvm.runtime.executable import VMExecutable
from relaxvm.runtime.vm import VirtualMachine, VMInstrumentReturnKind

__all__ = ["VMExecutable", "VMInstrumentReturnKind", "VirtualMachine"]
