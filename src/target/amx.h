// SPDX-License-Identifier: Apache-2.0
// AMX's registers, which hold tiles of matrices: Intel 64 and IA-32 Architectures Software
// Developer's Manual, volume 1, chapter 18.
#pragma once

namespace relaxvm::target {

// May this process use them?  Linux grants them to a process that asks (arch_prctl,
// ARCH_REQ_XCOMP_PERM), and to the threads and children that it has from then on.
bool AskForAmx();

}  // namespace relaxvm::target
