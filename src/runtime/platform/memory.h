// SPDX-License-Identifier: Apache-2.0
// Host memory from the system.
#pragma once

#include <cstddef>
#include <string_view>

#include "support/api.h"

namespace relaxvm::runtime {

// Aligned to `alignment`, a power of two up to 2 MiB.  Null when the system has no more.
void* AlignedAlloc(size_t num_bytes, size_t alignment);
void AlignedFree(void* data, size_t num_bytes);

// Address space whose pages are backed when first touched.  Null when the system refuses.
void* ReservePages(size_t num_bytes);
void ReleasePages(void* data, size_t num_bytes);
// What lies in whole pages of the range is lost: they are backed anew when touched.
void DiscardPages(void* data, size_t num_bytes);

// A range of a mapped file that is read once: its pages leave memory at the end of the scope, and
// are read again from the file if they must.
class FilePages {
 public:
  explicit FilePages(std::string_view bytes) : bytes_(bytes) {}
  ~FilePages() { Discard(); }
  FilePages(const FilePages&) = delete;
  FilePages& operator=(const FilePages&) = delete;
  // The same for what was read so far.
  void Discard() const;

 private:
  std::string_view bytes_;
};

// Gives back what a finished piece of work left behind: free heap memory, and the pages of code of
// the library that `code` points into (they are read again from its file when they run again).
RELAXVM_API void ReleaseAfterWork(const void* code);

}  // namespace relaxvm::runtime
