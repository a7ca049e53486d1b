// SPDX-License-Identifier: Apache-2.0
// Fills the arrays of a forward.
#include "vm/kv/forward.h"

#include <algorithm>

#include "runtime/tensor.h"

namespace relaxvm::vm::kv {
namespace ffi = tvm::ffi;
namespace {

ffi::Tensor Int32Tensor(const std::vector<int32_t>& values, std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  ffi::Tensor tensor = runtime::EmptyHostTensor({shape.data(), shape.size()}, {kDLInt, 32, 1});
  std::copy(values.begin(), values.end(), static_cast<int32_t*>(tensor.data_ptr()));
  return tensor;
}

// Tokens [from, to) of a sequence.
struct Keys {
  const Sequence* sequence;
  int64_t from, to;
};

PageLists ListPages(const std::vector<Keys>& batch, int64_t page_size, bool has_holes) {
  std::vector<int32_t> indptr = {0}, values, offset;
  std::vector<int32_t> rows[3];
  for (const Keys& keys : batch) {
    const Sequence& s = *keys.sequence;
    int64_t last_slots = 0, resume = 0, before_hole = 0;
    if (keys.from < keys.to) {
      // Without a hole, keys that do not begin a page are one: no tokens before it.
      const int64_t first_page = keys.from > 0 ? s.Slot(keys.from) / page_size : 0;
      const int64_t last_page = s.Slot(keys.to - 1) / page_size;
      last_slots = s.Slot(keys.to - 1) % page_size + 1;
      if (keys.from > 0) {
        resume = s.Slot(keys.from) - first_page * page_size;
      } else if (s.hole > 0 && keys.to > s.hole_at) {
        resume = s.hole_at + s.hole;
        before_hole = s.hole_at;
      }
      values.insert(values.end(), s.pages.begin() + first_page, s.pages.begin() + last_page + 1);
    }
    indptr.push_back(static_cast<int32_t>(values.size()));
    offset.push_back(static_cast<int32_t>(keys.from));
    rows[0].push_back(static_cast<int32_t>(last_slots));
    rows[1].push_back(static_cast<int32_t>(resume));
    rows[2].push_back(static_cast<int32_t>(before_hole));
  }
  PageLists lists;
  const auto size = static_cast<int64_t>(batch.size());
  lists.indptr = Int32Tensor(indptr);
  lists.values = Int32Tensor(values);
  lists.offset = Int32Tensor(offset);
  if (has_holes) {
    rows[0].insert(rows[0].end(), rows[1].begin(), rows[1].end());
    rows[0].insert(rows[0].end(), rows[2].begin(), rows[2].end());
    lists.length = Int32Tensor(rows[0], {3, size});
  } else {
    lists.length = Int32Tensor(rows[0]);
  }
  return lists;
}

// When a walk through the forest enters and leaves each node.
void AppendOrder(const std::vector<int32_t>& parents, std::vector<int32_t>* order) {
  const size_t count = parents.size();
  std::vector<int32_t> size(count, 1), next(count);
  for (size_t i = count; i-- > 0;) {
    if (parents[i] >= 0) size[static_cast<size_t>(parents[i])] += size[i];
  }
  int32_t next_root = 0;
  for (size_t i = 0; i < count; ++i) {
    int32_t* cursor = parents[i] < 0 ? &next_root : &next[static_cast<size_t>(parents[i])];
    const int32_t enter = *cursor;
    *cursor += size[i];
    next[i] = enter + 1;
    order->push_back(enter);
    order->push_back(enter + size[i]);
  }
}

void FillTrees(PageTable* table, Forward* forward) {
  std::vector<int32_t> indptr = {0}, order;
  for (const Append& append : forward->appends) {
    const Sequence& s = table->Find(append.id);
    AppendOrder(s.parents, &order);
    indptr.push_back(static_cast<int32_t>(order.size() / 2));
    if (static_cast<int64_t>(s.parents.size()) != append.length) forward->is_whole_tree = false;
  }
  const auto num_nodes = static_cast<int64_t>(order.size() / 2);
  forward->tree_indptr = Int32Tensor(indptr);
  forward->tree_order = Int32Tensor(order, {num_nodes, 2});
}

}  // namespace

Forward MakeForward(PageTable* table, std::vector<Append> appends, const ForwardOptions& options) {
  Forward forward;
  forward.appends = std::move(appends);
  forward.is_decode = true;
  const int64_t page_size = table->page_size();
  std::vector<int32_t> indptr = {0}, positions, slots, first;
  std::vector<Keys> all, before, in_window;
  for (const Append& append : forward.appends) {
    const Sequence& s = table->Find(append.id);
    const int64_t start = s.length - append.length;
    for (int64_t i = start; i < s.length; ++i) {
      const int64_t node = i - s.TreeStart();
      const int64_t position =
          s.parents.empty() ? i : s.TreeStart() + s.depths[static_cast<size_t>(node)];
      positions.push_back(static_cast<int32_t>(position));
      const int64_t slot = s.Slot(i);
      slots.push_back(static_cast<int32_t>(
          s.pages[static_cast<size_t>(slot / page_size)] * page_size + slot % page_size));
    }
    indptr.push_back(static_cast<int32_t>(slots.size()));
    first.push_back(static_cast<int32_t>(start));
    all.push_back({&s, 0, s.length});
    before.push_back({&s, 0, start});
    // The first new token sees layer_window tokens, itself among them.
    in_window.push_back({&s, std::max<int64_t>(start + 1 - options.layer_window, 0), s.length});
    forward.is_decode &= append.length == 1;
    forward.is_tree |= !s.IsChain();
  }
  forward.is_decode &= !forward.is_tree;
  forward.num_tokens = static_cast<int64_t>(slots.size());
  forward.query_indptr = Int32Tensor(indptr);
  forward.positions = Int32Tensor(positions);
  forward.slots = Int32Tensor(slots);
  forward.first = Int32Tensor(first);
  forward.all = ListPages(all, page_size, options.has_holes);
  forward.before =
      forward.is_decode ? forward.all : ListPages(before, page_size, options.has_holes);
  if (options.layer_window > 0) forward.in_window = ListPages(in_window, page_size, true);
  if (forward.is_tree) FillTrees(table, &forward);
  return forward;
}

}  // namespace relaxvm::vm::kv
