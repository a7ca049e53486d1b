// SPDX-License-Identifier: Apache-2.0
// One mapping, used from its start.
#include "runtime/constant_arena.h"

#include <algorithm>
#include <cstring>

#include "runtime/platform/memory.h"
#include "runtime/tensor.h"
#include "support/error.h"
#include "support/in_parallel.h"

namespace relaxvm::runtime {
namespace ffi = tvm::ffi;
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPieceBytes = size_t{4} << 20;  // what a thread copies at a time
constexpr size_t kPiecesInMemory = 16;           // of the file

}  // namespace

ConstantArenaObj::ConstantArenaObj(size_t most_bytes)
    : num_bytes_(most_bytes + most_bytes / 8),  // what alignment adds to small constants
      data_(static_cast<char*>(AlignedAlloc(num_bytes_, kAlignment))) {
  if (data_ == nullptr)
    Fail(ErrorKind::kRuntimeError, "out of memory for constants of ", num_bytes_, " bytes");
}

ConstantArenaObj::~ConstantArenaObj() { AlignedFree(data_, num_bytes_); }

char* ConstantArenaObj::Alloc(size_t num_bytes) {
  const size_t size = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (num_bytes > num_bytes_ || size > num_bytes_ - used_bytes_) return nullptr;
  char* data = data_ + used_bytes_;
  used_bytes_ += size;
  return data;
}

ffi::Tensor AllocConstant(const ffi::ObjectPtr<ConstantArenaObj>& arena, ffi::ShapeView shape,
                          DLDataType dtype, size_t num_bytes) {
  char* data = arena->Alloc(std::max<size_t>(num_bytes, 1));
  if (data == nullptr) return EmptyHostTensor(shape, dtype);
  return MakeTensor(data, shape, dtype, DLDevice{kDLCPU, 0}, ffi::ObjectRef(arena));
}

void CopyConstants(const std::vector<ConstantCopy>& copies, const FilePages& pages,
                   int num_threads) {
  // Neighbours that together make a piece; a constant may fill several.
  std::vector<std::vector<ConstantCopy>> pieces;
  size_t room = 0;
  for (ConstantCopy copy : copies) {
    while (!copy.from.empty()) {
      if (room == 0) {
        pieces.emplace_back();
        room = kPieceBytes;
      }
      const std::string_view part = copy.from.substr(0, room);
      pieces.back().push_back({copy.to, part});
      room -= part.size();
      copy.to += part.size();
      copy.from.remove_prefix(part.size());
    }
  }
  for (size_t first = 0; first < pieces.size(); first += kPiecesInMemory) {
    InParallel(num_threads, std::min(kPiecesInMemory, pieces.size() - first), [&](size_t i) {
      for (const ConstantCopy& copy : pieces[first + i])
        std::memcpy(copy.to, copy.from.data(), copy.from.size());
    });
    pages.Discard();
  }
}

}  // namespace relaxvm::runtime
