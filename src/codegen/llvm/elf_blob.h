// SPDX-License-Identifier: Apache-2.0
// A relocatable ELF object that holds bytes under one symbol, written without going through an
// assembler: hundreds of megabytes cost one write.
#pragma once

#include <string>

namespace relaxvm::codegen {

// `elf_machine`: EM_X86_64 (62) or EM_AARCH64 (183).  Gives the reason when the file cannot be
// written, else "".
std::string WriteBlobObject(const std::string& path, const std::string& symbol,
                            const std::string& bytes, int elf_machine);

}  // namespace relaxvm::codegen
