// SPDX-License-Identifier: Apache-2.0
// Owners of pages, forks, windows and trees.
#include "vm/kv/page_table.h"

#include <unordered_map>

#include "vm/kv/state.h"

namespace relaxvm::vm::kv {

bool Sequence::IsChain() const {
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] != static_cast<int32_t>(i) - 1) return false;
  }
  return true;
}

PageTable::PageTable(int64_t num_pages, int64_t page_size, int64_t max_sequences)
    : page_size_(page_size),
      max_sequences_(max_sequences),
      num_owners_(static_cast<size_t>(num_pages)) {
  Clear();
}

void PageTable::Clear() {
  sequences_.clear();
  std::fill(num_owners_.begin(), num_owners_.end(), 0);
  free_.clear();
  for (size_t page = num_owners_.size(); page > 0; --page) {
    free_.push_back(static_cast<int32_t>(page - 1));
  }
}

Sequence& PageTable::Find(int64_t id) {
  auto at = sequences_.find(id);
  if (at == sequences_.end()) FailUnknown(id);
  return at->second;
}

int64_t PageTable::TotalLength() const {
  int64_t total = 0;
  for (const auto& [id, sequence] : sequences_) total += sequence.length;
  return total;
}

int32_t PageTable::TakePage() {
  RELAXVM_CHECK(!free_.empty()) << "pages were counted before";
  int32_t page = free_.back();
  free_.pop_back();
  num_owners_[static_cast<size_t>(page)] = 1;
  return page;
}

void PageTable::DropPage(int32_t page) {
  if (--num_owners_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

void PageTable::Add(int64_t id) {
  if (sequences_.contains(id)) FailTaken(id);
  if (static_cast<int64_t>(sequences_.size()) >= max_sequences_) {
    Fail(ErrorKind::kRuntimeError, "the KV cache is full: it has room for ", max_sequences_,
         " sequences");
  }
  sequences_.emplace(id, Sequence{});
}

void PageTable::Remove(int64_t id) {
  for (int32_t page : Find(id).pages) DropPage(page);
  sequences_.erase(id);
}

void PageTable::Shorten(Sequence* sequence, int64_t length) {
  sequence->length = length;
  if (length <= sequence->hole_at) sequence->hole_at = sequence->hole = 0;
  const auto num_pages = static_cast<size_t>(PagesFor(sequence->NumSlots()));
  while (sequence->pages.size() > num_pages) {
    DropPage(sequence->pages.back());
    sequence->pages.pop_back();
  }
}

void PageTable::Fork(int64_t parent, int64_t child, int64_t position) {
  const Sequence& from = Find(parent);
  if (!from.parents.empty()) {
    Fail(ErrorKind::kRuntimeError, "sequence ", parent,
         " ends in a tree; commit it before the sequence is forked");
  }
  const int64_t length = position == -1 ? from.length : position;
  if (length < 0 || length > from.length) {
    Fail(ErrorKind::kValueError, "sequence ", parent, " has ", from.length,
         " tokens; it cannot be forked at ", position);
  }
  Add(child);
  Sequence& to = Find(child);
  to.pages = from.pages;
  to.hole_at = from.hole_at;
  to.hole = from.hole;
  for (int32_t page : to.pages) ++num_owners_[static_cast<size_t>(page)];
  Shorten(&to, length);
}

void PageTable::PopN(int64_t id, int64_t count) {
  Sequence& sequence = Find(id);
  if (count < 0 || count > sequence.length) {
    Fail(ErrorKind::kValueError, "sequence ", id, " has ", sequence.length,
         " tokens; it cannot lose ", count);
  }
  if (sequence.hole > 0 && count > sequence.length - sequence.hole_at) {
    Fail(ErrorKind::kValueError, "sequence ", id, " keeps its first ", sequence.hole_at,
         " tokens and its last ", sequence.length - sequence.hole_at, "; it cannot lose ", count,
         ", the window forgot what was before");
  }
  const auto tree_size = static_cast<int64_t>(sequence.parents.size());
  const auto left = static_cast<size_t>(std::max<int64_t>(tree_size - count, 0));
  sequence.parents.resize(left);
  sequence.depths.resize(left);
  sequence.last_append = std::max<int64_t>(sequence.last_append - count, 0);
  Shorten(&sequence, sequence.length - count);
}

void PageTable::SetWindow(int64_t id, int64_t window, int64_t num_sinks) {
  Sequence& sequence = Find(id);
  if (num_sinks < 0 || window <= num_sinks) {
    Fail(ErrorKind::kValueError, "a window of ", window, " tokens has no room for ", num_sinks,
         " sinks and a token");
  }
  if (sequence.window != 0 || (sequence.hole > 0 && sequence.hole_at != num_sinks)) {
    Fail(ErrorKind::kValueError, "sequence ", id,
         " has a sliding window, or lost tokens to one, already");
  }
  sequence.window = window;
  sequence.num_sinks = num_sinks;
}

void PageTable::Slide(int64_t id) {
  Sequence& sequence = Find(id);
  const int64_t excess = sequence.length - sequence.window;
  if (sequence.window == 0 || excess <= 0) return;
  sequence.hole_at = sequence.num_sinks;
  sequence.hole += excess;
  sequence.length -= excess;
  // Pages that lie in the hole as a whole.
  const int64_t first = PagesFor(sequence.hole_at);
  const int64_t last = (sequence.hole_at + sequence.hole) / page_size_;
  if (first >= last) return;
  auto begin = sequence.pages.begin();
  for (auto page = begin + first; page != begin + last; ++page) DropPage(*page);
  sequence.pages.erase(begin + first, begin + last);
  sequence.hole -= (last - first) * page_size_;
}

bool PageTable::SharesLastPage(const Sequence& sequence) const {
  return sequence.NumSlots() % page_size_ != 0 &&
         num_owners_[static_cast<size_t>(sequence.pages.back())] > 1;
}

int64_t PageTable::CountNewPages(std::span<const Append> appends) {
  std::unordered_map<int32_t, int32_t> given_up;  // owners that a shared last page loses
  int64_t count = 0;
  for (const Append& append : appends) {
    const Sequence& sequence = Find(append.id);
    const int64_t num_slots = sequence.Slot(sequence.length + append.length - 1) + 1;
    count += PagesFor(num_slots) - static_cast<int64_t>(sequence.pages.size());
    if (!SharesLastPage(sequence)) continue;
    const int32_t page = sequence.pages.back();
    if (num_owners_[static_cast<size_t>(page)] - given_up[page] > 1) {
      ++given_up[page];
      ++count;
    }
  }
  return count;
}

void PageTable::GrowTree(Sequence* sequence, int64_t id, std::span<const int64_t> parents) const {
  for (int64_t parent : parents) {
    const auto node = static_cast<int64_t>(sequence->parents.size());
    if (parent < -1 || parent >= node) {
      Fail(ErrorKind::kValueError, "node ", node, " of the tree of sequence ", id,
           " cannot have the parent ", parent, "; parents come before their children");
    }
    const int32_t depth = parent < 0 ? 0 : sequence->depths[static_cast<size_t>(parent)] + 1;
    sequence->parents.push_back(static_cast<int32_t>(parent));
    sequence->depths.push_back(depth);
  }
}

std::vector<PageCopy> PageTable::Reserve(std::span<const Append> appends,
                                         std::span<const int64_t> parents) {
  const int64_t needed = CountNewPages(appends);
  if (needed > num_free_pages()) {
    Fail(ErrorKind::kRuntimeError, "the KV cache is full: ", needed, " more pages of ", page_size_,
         " tokens are needed, ", num_free_pages(), " are free");
  }
  std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>> trees;
  size_t first = 0;
  for (const Append& append : appends) {
    const Sequence& sequence = Find(append.id);
    if (parents.empty() && !sequence.parents.empty()) {
      Fail(ErrorKind::kRuntimeError, "sequence ", append.id,
           " ends in a tree; commit it before tokens follow");
    }
    if (parents.empty()) continue;
    Sequence grown;
    grown.parents = sequence.parents;
    grown.depths = sequence.depths;
    GrowTree(&grown, append.id, parents.subspan(first, static_cast<size_t>(append.length)));
    first += static_cast<size_t>(append.length);
    trees.emplace_back(std::move(grown.parents), std::move(grown.depths));
  }
  // Nothing fails from here on.
  std::vector<PageCopy> copies;
  for (size_t i = 0; i < appends.size(); ++i) {
    Sequence& sequence = Find(appends[i].id);
    if (!trees.empty()) std::tie(sequence.parents, sequence.depths) = std::move(trees[i]);
    if (SharesLastPage(sequence)) {
      const int32_t shared = sequence.pages.back();
      sequence.pages.back() = TakePage();
      DropPage(shared);
      copies.push_back({shared, sequence.pages.back()});
    }
    sequence.length += appends[i].length;
    sequence.last_append = appends[i].length;
    const auto num_pages = static_cast<size_t>(PagesFor(sequence.NumSlots()));
    while (sequence.pages.size() < num_pages) sequence.pages.push_back(TakePage());
  }
  return copies;
}

}  // namespace relaxvm::vm::kv
