// SPDX-License-Identifier: Apache-2.0
// Little-endian reading and writing of binary files.  The reader is bounds-checked: every count is
// compared with the bytes that are left before anything is allocated.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "support/error.h"

namespace relaxvm {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

class ByteWriter {
 public:
  template <typename T>
  void Write(T value) {
    static_assert(std::is_arithmetic_v<T>);
    WriteRaw(&value, sizeof(T));
  }
  void WriteRaw(const void* data, size_t num_bytes) {
    if (num_bytes > 0) bytes_.append(static_cast<const char*>(data), num_bytes);
  }
  // u64 length, then the bytes
  void WriteString(std::string_view text) {
    Write<uint64_t>(text.size());
    WriteRaw(text.data(), text.size());
  }
  template <typename T>
  void WriteVector(const std::vector<T>& values) {
    Write<uint64_t>(values.size());
    WriteRaw(values.data(), values.size() * sizeof(T));
  }
  // Room for what will be written: a string that grows by doubling needs three times its size.
  void Reserve(size_t num_bytes) { bytes_.reserve(num_bytes); }
  // Overwrites what was written at `position`.
  template <typename T>
  void Patch(size_t position, T value) {
    static_assert(std::is_arithmetic_v<T>);
    RELAXVM_CHECK(position + sizeof(T) <= bytes_.size());
    std::memcpy(bytes_.data() + position, &value, sizeof(T));
  }
  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  // `what` names the file or section in errors.
  ByteReader(std::string_view bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {}

  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }

  template <typename T>
  T Read(const char* field) {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    std::memcpy(&value, Take(sizeof(T), field).data(), sizeof(T));
    return value;
  }
  // What Read would give; 0 when there are not enough bytes.
  template <typename T>
  T Peek() const {
    T value = 0;
    if (left() >= sizeof(T)) std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    return value;
  }
  std::string_view Take(uint64_t num_bytes, const char* field) {
    if (num_bytes > left()) {
      Damaged(field, ": needs " + std::to_string(num_bytes) + " bytes, but " +
                         std::to_string(left()) + " are left");
    }
    std::string_view result = bytes_.substr(position_, num_bytes);
    position_ += num_bytes;
    return result;
  }
  // A count of elements that take at least `min_bytes_each`.
  uint64_t ReadCount(size_t min_bytes_each, const char* field) {
    uint64_t count = Read<uint64_t>(field);
    if (count > left() / min_bytes_each) {
      Damaged(field, ": counts " + std::to_string(count) + ", but only " + std::to_string(left()) +
                         " bytes are left");
    }
    return count;
  }
  std::string_view ReadString(const char* field) { return Take(Read<uint64_t>(field), field); }
  template <typename T>
  std::vector<T> ReadVector(const char* field) {
    uint64_t count = ReadCount(sizeof(T), field);
    auto* first = reinterpret_cast<const Unaligned<T>*>(Take(count * sizeof(T), field).data());
    return std::vector<T>(first, first + count);
  }
  [[noreturn]] void Damaged(const char* field, const std::string& reason) const {
    Fail(ErrorKind::kValueError, what_, " is damaged at byte ", position_, ": ", field, reason,
         "; export or download it again");
  }

 private:
  // A value anywhere in the bytes; a vector of them is filled without being zeroed first.
  template <typename T>
  struct __attribute__((packed, may_alias)) Unaligned {
    T value;
    operator T() const { return value; }  // NOLINT: as if it were one
  };

  std::string_view bytes_;
  std::string what_;
  size_t position_ = 0;
};

}  // namespace relaxvm
