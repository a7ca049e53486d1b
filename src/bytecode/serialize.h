// SPDX-License-Identifier: Apache-2.0
// Executables as bytes, in TVM's format ("0.14"), followed by a section of our own: ABI version and
// checksum.  TVM ignores what follows its sections.  And the container that puts an executable and
// its library into one .so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bytecode/executable.h"

namespace relaxvm::bytecode {

inline constexpr uint64_t kExecutableMagicV1 =
    0xD225DE2F4214151D;  // without memory scopes; read, never written
inline constexpr uint64_t kExecutableMagic = 0xD225DE2F4214151E;
inline constexpr const char* kExecutableVersion = "0.14";
inline constexpr uint64_t kTensorMagic = 0xDD5E40F096B4A13F;
inline constexpr uint64_t kOwnSectionMagic = 0x314D5658414C4552;  // "RELAXVM1"
inline constexpr const char* kExecutableKind = "relax.VMExecutable";
inline constexpr const char* kLibraryBinSymbol = "__tvm_ffi__library_bin";

std::string Serialize(const ExecutableData& data);

// Reads and checks framing and checksum; the result still has to pass Verify.  `what` names the
// source in errors. Allocates no more than a small multiple of the input.
ExecutableData Deserialize(std::string_view bytes, const std::string& what);

// One module of the import tree in a library file.  `bytes` is empty for "_lib", the library
// itself.
struct ContainerItem {
  std::string kind;
  std::string bytes;
  std::vector<uint64_t> children;  // places of the imported modules
};

// What the symbol __tvm_ffi__library_bin holds: u64 length and the import tree; item 0 is the root.
std::string PackContainer(const std::vector<ContainerItem>& items);
// `bytes` starts at the symbol and may be longer than the container.
std::vector<ContainerItem> UnpackContainer(std::string_view bytes, const std::string& what);
// The container of an executable whose kernels are the library it is linked into.
std::string PackExecutable(const ExecutableData& data);

}  // namespace relaxvm::bytecode
