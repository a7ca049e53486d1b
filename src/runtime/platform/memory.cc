// SPDX-License-Identifier: Apache-2.0
// Large blocks come from mmap, so that freeing them returns the pages, with huge pages where the
// system grants them.
#include "runtime/platform/memory.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

namespace relaxvm::runtime {
namespace {

// From here on memory is mapped on its own: it goes back when freed, whatever the heap looks like.
constexpr size_t kMapThreshold = size_t{1} << 18;
constexpr size_t kHugeThreshold = size_t{1} << 22;  // worth huge pages
constexpr size_t kHugePage = size_t{1} << 21;

constexpr size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

void* AlignedAlloc(size_t num_bytes, size_t alignment) {
  if (num_bytes > SIZE_MAX / 2) return nullptr;
  if (num_bytes < kMapThreshold) {
    return std::aligned_alloc(alignment, RoundUp(num_bytes == 0 ? 1 : num_bytes, alignment));
  }
  if (num_bytes < kHugeThreshold && alignment <= 4096) {
    void* data = mmap(nullptr, RoundUp(num_bytes, 4096), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? nullptr : data;
  }
  // Over-reserve to align to a huge page or more, then give the ends back.
  const size_t size = RoundUp(num_bytes, 4096),
               unit = alignment > kHugePage ? alignment : kHugePage;
  char* start = static_cast<char*>(ReservePages(size + unit));
  if (start == nullptr) return nullptr;
  char* aligned = reinterpret_cast<char*>(RoundUp(reinterpret_cast<uintptr_t>(start), unit));
  if (aligned > start) munmap(start, static_cast<size_t>(aligned - start));
  size_t tail = unit - static_cast<size_t>(aligned - start);
  if (tail > 0) munmap(aligned + size, tail);
#ifdef MADV_HUGEPAGE
  madvise(aligned, size, MADV_HUGEPAGE);
#endif
  return aligned;
}

void AlignedFree(void* data, size_t num_bytes) {
  if (data == nullptr) return;
  if (num_bytes >= kMapThreshold) {
    munmap(data, RoundUp(num_bytes, 4096));
  } else {
    std::free(data);
  }
}

void* ReservePages(size_t num_bytes) {
  void* data = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

void ReleasePages(void* data, size_t num_bytes) {
  if (data != nullptr) munmap(data, num_bytes);
}

void DiscardPages(void* data, size_t num_bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = RoundUp(begin, 4096), last = (begin + num_bytes) / 4096 * 4096;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void FilePages::Discard() const { DiscardPages(const_cast<char*>(bytes_.data()), bytes_.size()); }

namespace {

// Drops the pages of every executable segment of the library that holds `code`: they are private
// and never written.
int DropCodePages(dl_phdr_info* info, size_t, void* code) {
  const uintptr_t target = reinterpret_cast<uintptr_t>(code);
  bool found = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    found =
        found || (segment.p_type == PT_LOAD && target >= begin && target < begin + segment.p_memsz);
  }
  if (!found) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X) || (segment.p_flags & PF_W))
      continue;
    DiscardPages(reinterpret_cast<void*>(info->dlpi_addr + segment.p_vaddr), segment.p_filesz);
  }
  return 1;
}

}  // namespace

void ReleaseAfterWork(const void* code) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  dl_iterate_phdr(DropCodePages, const_cast<void*>(code));
}

}  // namespace relaxvm::runtime
