// SPDX-License-Identifier: Apache-2.0
// Writes, checks and maps weights files.
#include "runtime/weights_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/tensor.h"
#include "support/error.h"
#include "support/hash.h"

namespace relaxvm::runtime {
namespace ffi = tvm::ffi;
namespace {

constexpr uint64_t kMagic = 0x5448474945575852;  // "RXWEIGHT"
constexpr uint32_t kVersion = 1;
// The hash of a file is that of its blocks, each seeded with the one before.
constexpr size_t kBlockBytes = size_t{4} << 20;
constexpr size_t kHoleBytes = size_t{1} << 20;

// Hashes a stream of bytes by blocks.
class BlockHash {
 public:
  void Add(const char* data, uint64_t num_bytes) {
    while (num_bytes > 0) {
      size_t take = static_cast<size_t>(std::min<uint64_t>(num_bytes, kBlockBytes - block_.size()));
      if (block_.empty() && take == kBlockBytes) {
        hash_ = HashBytes(data, take, hash_);
      } else {
        block_.append(data, take);
        if (block_.size() == kBlockBytes) Flush();
      }
      data += take;
      num_bytes -= take;
    }
  }
  uint64_t Finish() {
    if (!block_.empty()) Flush();
    return hash_;
  }

 private:
  void Flush() {
    hash_ = HashBytes(block_, hash_);
    block_.clear();
  }
  uint64_t hash_ = 0;
  std::string block_;
};

std::string Header(uint64_t num_bytes, uint64_t hash) {
  const uint64_t fields[] = {kMagic, kVersion | uint64_t{kWeightsAlignment} << 32, num_bytes, hash};
  std::string bytes(kWeightsHeaderBytes, '\0');
  std::memcpy(bytes.data(), fields, sizeof(fields));
  return bytes;
}

[[noreturn]] void Refuse(const std::string& path, const std::string& reason) {
  Fail(ErrorKind::kValueError, path, ": ", reason, "; save or download the model again");
}

bool IsZero(const char* data, size_t num_bytes) {
  return data[0] == 0 && std::memcmp(data, data + 1, num_bytes - 1) == 0;
}

// Through a buffer: hashing a mapping would count all of it as this process's memory.
uint64_t HashContent(std::ifstream* file) {
  BlockHash hash;
  std::string buffer(kBlockBytes, '\0');
  while (file->read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file->gcount() > 0)
    hash.Add(buffer.data(), static_cast<uint64_t>(file->gcount()));
  return hash.Finish();
}

}  // namespace

WeightsFile WeightsFile::Open(const std::string& path, uint64_t num_bytes, uint64_t hash,
                              bool verify_content) {
  {
    std::ifstream file(path, std::ios::binary);
    if (!file) Fail(ErrorKind::kRuntimeError, "cannot open the weights file ", path);
    std::string header(kWeightsHeaderBytes, '\0');
    uint64_t magic = 0;
    if (file.read(header.data(), kWeightsHeaderBytes))
      std::memcpy(&magic, header.data(), sizeof(magic));
    if (magic != kMagic) Refuse(path, "is no weights file");
    if (header != Header(num_bytes, hash)) Refuse(path, "belongs to another model, or is damaged");
    file.seekg(0, std::ios::end);
    if (static_cast<uint64_t>(file.tellg()) != num_bytes)
      Refuse(path, "is truncated, or is longer than it says");
    if (verify_content) {
      file.seekg(kWeightsHeaderBytes);
      if (HashContent(&file) != hash) Refuse(path, "is damaged (its checksum does not agree)");
    }
  }
  return WeightsFile(ffi::make_object<WeightsFileObj>(path));
}

ffi::Tensor WeightsFile::At(uint64_t offset, ffi::ShapeView shape, DLDataType dtype) const {
  return MakeTensor(get()->data() + offset, shape, dtype, DLDevice{kDLCPU, 0}, *this);
}

uint64_t WriteWeightsFile(const std::string& path, uint64_t num_bytes,
                          const std::vector<WeightsPiece>& pieces) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out | std::ios::trunc);
  BlockHash hash;
  uint64_t at = kWeightsHeaderBytes;
  auto put = [&](const char* data, uint64_t size) {
    hash.Add(data, size);
    at += size;
    // Long runs of zeros become holes.
    for (uint64_t take; size > 0; data += take, size -= take) {
      take = std::min<uint64_t>(size, kHoleBytes);
      if (take == kHoleBytes && IsZero(data, take)) {
        file.seekp(static_cast<std::streamoff>(take), std::ios::cur);
      } else {
        file.write(data, static_cast<std::streamsize>(take));
      }
    }
  };
  file.write(Header(0, 0).data(), kWeightsHeaderBytes);
  const std::string zeros(kWeightsAlignment, '\0');
  auto pad_to = [&](uint64_t end) {
    while (at < end) put(zeros.data(), std::min<uint64_t>(end - at, zeros.size()));
  };
  for (const WeightsPiece& piece : pieces) {
    RELAXVM_CHECK(piece.offset >= at && piece.offset <= num_bytes) << "pieces must ascend";
    pad_to(piece.offset);
    put(piece.data, piece.num_bytes);
  }
  pad_to(num_bytes);
  uint64_t result = hash.Finish();
  file.seekp(0);
  file.write(Header(num_bytes, result).data(), kWeightsHeaderBytes);
  file.close();
  std::error_code error;
  if (file) std::filesystem::resize_file(path, num_bytes, error);  // it may end in a hole
  if (!file || error) Fail(ErrorKind::kRuntimeError, "cannot write ", path);
  return result;
}

}  // namespace relaxvm::runtime
