// SPDX-License-Identifier: Apache-2.0
// Which pages hold the tokens of which sequence.  Numbers only: the keys and values are the
// cache's.
//
// A page has room for `page_size` tokens.  Forks share pages, counted; a page with other owners is
// copied before tokens are written to it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace relaxvm::vm::kv {

// Token i lies in slot Slot(i), which is slot Slot(i) % page_size of pages[Slot(i) / page_size].
struct Sequence {
  std::vector<int32_t> pages;
  int64_t length = 0;  // tokens that are kept
  // What a sliding window forgot: slots [hole_at, hole_at + hole) hold no token.
  int64_t hole_at = 0, hole = 0;
  int64_t window = 0, num_sinks = 0;  // 0: no window
  // The last parents.size() tokens are a forest until it is committed: the index of each one's
  // parent in it (-1: none), and its distance from a root.
  std::vector<int32_t> parents, depths;
  int64_t last_append = 0;  // tokens that the last forward appended

  int64_t Slot(int64_t token) const { return token < hole_at ? token : token + hole; }
  int64_t NumSlots() const { return length == 0 ? 0 : Slot(length - 1) + 1; }
  int64_t TreeStart() const { return length - static_cast<int64_t>(parents.size()); }
  // Whether every token of the tree follows the one before it.
  bool IsChain() const;
};

struct PageCopy {
  int32_t from, to;
};
struct Append {
  int64_t id, length;
};

class PageTable {
 public:
  PageTable(int64_t num_pages, int64_t page_size, int64_t max_sequences);

  void Clear();
  void Add(int64_t id);
  void Remove(int64_t id);
  // The child shares pages, but has no window and no tree.
  void Fork(int64_t parent, int64_t child, int64_t position);
  void PopN(int64_t id, int64_t count);
  void SetWindow(int64_t id, int64_t window, int64_t num_sinks);
  // Makes room for tokens of several sequences, or throws RuntimeError and changes nothing.  The
  // caller copies these pages before writing.  `parents` is empty, or has one entry a token.
  std::vector<PageCopy> Reserve(std::span<const Append> appends, std::span<const int64_t> parents);
  // Forgets what lies between the sinks and the window of a sequence.
  void Slide(int64_t id);

  Sequence& Find(int64_t id);
  bool IsEmpty() const { return sequences_.empty(); }
  int64_t page_size() const { return page_size_; }
  int64_t num_free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t TotalLength() const;

 private:
  int64_t PagesFor(int64_t num_slots) const { return (num_slots + page_size_ - 1) / page_size_; }
  bool SharesLastPage(const Sequence& sequence) const;
  int64_t CountNewPages(std::span<const Append> appends);
  void GrowTree(Sequence* sequence, int64_t id, std::span<const int64_t> parents) const;
  int32_t TakePage();
  void DropPage(int32_t page);
  void Shorten(Sequence* sequence, int64_t length);

  int64_t page_size_, max_sequences_;
  std::vector<int32_t> num_owners_;  // of each page
  std::vector<int32_t> free_;
  std::map<int64_t, Sequence> sequences_;
};

}  // namespace relaxvm::vm::kv
