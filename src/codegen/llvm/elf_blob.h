// SPDX-License-Identifier: Apache-2.0
// Bytes under a symbol of an ELF file, without an assembler, and in a shared library without the
// linker either, which would copy hundreds of megabytes.  Pieces are bytes in order; functions give
// the reason when a file cannot be written, else "".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace relaxvm::codegen {

using Pieces = std::vector<std::string_view>;

// A relocatable object that holds them.  `elf_machine`: EM_X86_64 (62) or EM_AARCH64 (183).
std::string WriteBlobObject(const std::string& path, const std::string& symbol,
                            const Pieces& pieces, int elf_machine);

// A relocatable object that has a note at the symbol: what is linked with it awaits AppendBlob.
std::string WriteBlobNote(const std::string& path, const std::string& symbol, const Pieces& pieces,
                          int elf_machine);
// Writes the shared library `linked` to `path` with the bytes in a segment of their own, which
// takes the place of the note's.
std::string AppendBlob(const std::string& linked, const std::string& symbol, const Pieces& pieces,
                       const std::string& path);

}  // namespace relaxvm::codegen
