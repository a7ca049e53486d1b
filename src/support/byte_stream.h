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

// Collects bytes; what is large may be borrowed, and is copied by whoever uses the pieces.
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
  // `bytes` stay where they are, and must until the last use of this.
  void Borrow(std::string_view bytes) {
    borrowed_.push_back({bytes_.size(), bytes});
    borrowed_bytes_ += bytes.size();
  }
  void Append(const ByteWriter& other) {
    for (const Borrowed& it : other.borrowed_)
      borrowed_.push_back({bytes_.size() + it.position, it.bytes});
    borrowed_bytes_ += other.borrowed_bytes_;
    bytes_ += other.bytes_;
  }

  size_t size() const { return bytes_.size() + borrowed_bytes_; }
  // In order; valid until more is written.
  std::vector<std::string_view> Pieces() const {
    std::vector<std::string_view> pieces;
    size_t at = 0;
    auto own_until = [&](size_t end) {
      if (end > at) pieces.push_back(std::string_view(bytes_).substr(at, end - at));
      at = end;
    };
    for (const Borrowed& it : borrowed_) {
      own_until(it.position);
      pieces.push_back(it.bytes);
    }
    own_until(bytes_.size());
    return pieces;
  }
  std::string Join() const {
    std::string all;
    all.reserve(size());
    for (std::string_view piece : Pieces()) all += piece;
    return all;
  }

 private:
  struct Borrowed {
    size_t position;  // in `bytes_`: what is written later follows
    std::string_view bytes;
  };
  std::string bytes_;
  std::vector<Borrowed> borrowed_;
  size_t borrowed_bytes_ = 0;
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
