// SPDX-License-Identifier: Apache-2.0
// Shared libraries as files: checked by reading before the dynamic loader sees them, then opened.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "support/api.h"

namespace relaxvm::runtime {

// The bytes of a file, mapped.
class MappedFile {
 public:
  enum class Mode : uint8_t {
    kReadOnly,
    kCopyOnWrite,  // a write changes the page of this process alone
  };
  explicit MappedFile(const std::string& path, Mode mode = Mode::kReadOnly);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// Throws ValueError unless the file is a whole ELF shared library for this machine; when it was
// sealed, its checksum must agree, and the result is true.  Executes nothing of it.
bool CheckSharedLibrary(const std::string& path);
// Appends length and checksum to a library file, behind everything that the loader reads.  Replaces
// an old seal.
RELAXVM_API void SealSharedLibrary(const std::string& path);

// The checksum that SealSharedLibrary wrote; 0 when there is none.
RELAXVM_API uint64_t SealOfSharedLibrary(const std::string& path);

// An open library.  Opening runs its initialisers: native code that the caller trusts.
class SharedLibrary {
 public:
  explicit SharedLibrary(const std::string& path);
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  // Null when there is none.
  void* Symbol(const std::string& name) const;
  // Bytes of a symbol's object as the library file states them; empty when there is none.
  std::string_view SymbolBytes(const std::string& name) const;
  const std::string& path() const { return path_; }
  // A checksum of the whole file was there, and agreed.
  bool is_sealed() const { return is_sealed_; }

 private:
  void* handle_ = nullptr;
  std::string path_;
  bool is_sealed_ = false;
};

}  // namespace relaxvm::runtime
