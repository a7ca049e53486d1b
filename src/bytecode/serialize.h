// SPDX-License-Identifier: Apache-2.0
// Executables as bytes, in TVM's format ("0.14"), followed by a section of our own: ABI version and
// checksum.  TVM ignores what follows its sections.  And the container that puts an executable and
// its library into one .so.
#pragma once

#include <tvm/ffi/container/tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bytecode/executable.h"
#include "support/byte_stream.h"

namespace relaxvm::bytecode {

inline constexpr uint64_t kExecutableMagicV1 =
    0xD225DE2F4214151D;  // without memory scopes; read, never written
inline constexpr uint64_t kExecutableMagic = 0xD225DE2F4214151E;
inline constexpr const char* kExecutableVersion = "0.14";
inline constexpr uint64_t kTensorMagic = 0xDD5E40F096B4A13F;
inline constexpr uint64_t kOwnSectionMagic = 0x314D5658414C4552;  // "RELAXVM1"
inline constexpr const char* kExecutableKind = "relax.VMExecutable";
inline constexpr const char* kLibraryBinSymbol = "__tvm_ffi__library_bin";

// Borrows large constants from `data`, as do the two below.
ByteWriter Serialize(const ExecutableData& data);

// What a file says of the files that belong to it and lie beside it; an empty name: there is none.
struct Parts {
  std::string weights;         // file name, without folders
  uint64_t weights_bytes = 0;  // length and hash of the file
  uint64_t weights_hash = 0;
  std::string kernels;
  uint64_t kernels_hash = 0;  // what its seal says
};

inline constexpr uint64_t kWeightsHeaderBytes = 64;
inline constexpr uint64_t kWeightsAlignment = 64;

// Where the elements of a constant lie in a weights file.
struct WeightsPlace {
  int64_t constant;
  uint64_t offset;
  uint64_t num_bytes;
};
// The constants that go into a weights file, in order: tensors that are large, or that the format
// above cannot hold.
std::vector<WeightsPlace> PlanWeights(const ExecutableData& data);
// Bytes of the whole weights file.
uint64_t WeightsFileBytes(const std::vector<WeightsPlace>& places);

// As Serialize, with the constants at `places` left to the weights file.  TVM cannot read it.
ByteWriter SerializeApart(const ExecutableData& data, const std::vector<WeightsPlace>& places,
                          const Parts& parts);

// Gives the tensor whose elements lie at `offset` of the weights file.
using WeightsReader =
    std::function<tvm::ffi::Tensor(tvm::ffi::ShapeView shape, DLDataType dtype, uint64_t offset)>;
// Opens the weights file; called when a file has constants apart.
using WeightsOpener = std::function<WeightsReader(const Parts&)>;

// Gives the host tensor whose elements `data` has; they may be copied any time before the bytes
// that are read go away.
using ConstantReader = std::function<tvm::ffi::Tensor(tvm::ffi::ShapeView shape, DLDataType dtype,
                                                      std::string_view data)>;

// Reads and checks framing and checksum; the result still has to pass Verify.  `what` names the
// source in errors. Allocates no more than a small multiple of the input.
ExecutableData Deserialize(std::string_view bytes, const std::string& what);
// The same for files with parts; sets `parts`.  `read` (null: copies to the heap) makes the tensors
// whose elements are in `bytes`.
ExecutableData Deserialize(std::string_view bytes, const std::string& what,
                           const WeightsOpener& open_weights, Parts* parts,
                           const ConstantReader& read = nullptr, bool is_checked = false);
// `is_checked`: a checksum around `bytes` agreed, so that their own is not computed.
ExecutableData Deserialize(std::string_view bytes, const std::string& what,
                           const ConstantReader& read, bool is_checked = false);

// One module of the import tree in a library file.  `bytes` is empty for "_lib", the library
// itself, and borrowed.
struct ContainerItem {
  std::string kind;
  std::string_view bytes;
  std::vector<uint64_t> children;  // places of the imported modules
};

// What the symbol __tvm_ffi__library_bin holds: u64 length and the import tree; item 0 is the root.
std::string PackContainer(const std::vector<ContainerItem>& items);
// `bytes` starts at the symbol and may be longer than the container; the items point into it.
std::vector<ContainerItem> UnpackContainer(std::string_view bytes, const std::string& what);
// The container of an executable whose kernels are the library it is linked into.
ByteWriter PackExecutable(const ExecutableData& data);

}  // namespace relaxvm::bytecode
