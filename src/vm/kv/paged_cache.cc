// SPDX-License-Identifier: Apache-2.0
// Pages of a cache: made, copied, moved, read; the bracket of a forward.
#include "vm/kv/paged_cache.h"

#include <cstring>

#include "runtime/tensor.h"
#include "vm/describe.h"

namespace relaxvm::vm::kv {
namespace ffi = tvm::ffi;
namespace {

int64_t NumPages(const PagedCacheConfig& config) {
  const int64_t sizes[] = {config.max_sequences,   config.max_tokens,    config.max_forward_tokens,
                           config.page_size,       config.num_key_heads, config.key_size,
                           config.num_query_heads, config.value_size};
  for (int64_t size : sizes) {
    if (size < 1 || size > INT32_MAX / 2) {
      Fail(ErrorKind::kValueError, "sizes of a KV cache are positive and below 2^30, one is ",
           size);
    }
  }
  if (config.num_query_heads % config.num_key_heads != 0) {
    Fail(ErrorKind::kValueError, config.num_query_heads, " query heads cannot share ",
         config.num_key_heads, " key heads evenly");
  }
  // One more, so that a full cache can fork a page that is filled in part.
  const int64_t num_pages = (config.max_tokens + config.page_size - 1) / config.page_size + 1;
  if (num_pages * config.page_size > INT32_MAX) {
    Fail(ErrorKind::kValueError, "a KV cache has fewer than 2^31 slots, asked for ",
         num_pages * config.page_size);
  }
  return num_pages;
}

bool HasShape(const ffi::Tensor& tensor, std::initializer_list<int64_t> dims) {
  return std::equal(dims.begin(), dims.end(), tensor.shape().begin(), tensor.shape().end());
}

}  // namespace

PagedCacheObj::PagedCacheObj(PagedCacheConfig config)
    : config_(std::move(config)),
      table_(NumPages(config_), config_.page_size, config_.max_sequences) {
  const int64_t num_pages = table_.num_free_pages();
  for (AttentionKind kind : config_.kinds) {
    std::vector<int64_t> shape;
    switch (kind) {
      case AttentionKind::kHeads:
      case AttentionKind::kHeadsInWindow:
        shape = {num_pages, 2, config_.num_key_heads, config_.page_size, config_.key_size};
        break;
      case AttentionKind::kLatent: shape = {num_pages, config_.page_size, config_.key_size}; break;
      case AttentionKind::kNone: shape = {0}; break;
    }
    if (kind == AttentionKind::kHeadsInWindow && config_.layer_window < 1) {
      Fail(ErrorKind::kValueError,
           "a layer with a window needs its size: the sixth number of the cache's sizes");
    }
    pages_.push_back(runtime::EmptyHostTensor({shape.data(), shape.size()}, config_.dtype));
  }
}

void PagedCacheObj::DemandNoForward(const char* what) const {
  if (forward_) {
    Fail(ErrorKind::kRuntimeError, what, " is not possible between begin_forward and end_forward");
  }
}

const Forward& PagedCacheObj::Now() const {
  if (!forward_) Fail(ErrorKind::kRuntimeError, "this needs begin_forward before it");
  return *forward_;
}

void PagedCacheObj::Clear() {
  table_.Clear();
  forward_.reset();
}

void PagedCacheObj::AddSequence(int64_t id) {
  DemandNoForward("adding a sequence");
  table_.Add(id);
}

void PagedCacheObj::RemoveSequence(int64_t id) {
  DemandNoForward("removing a sequence");
  table_.Remove(id);
}

void PagedCacheObj::ForkSequence(int64_t parent, int64_t child, int64_t position) {
  DemandNoForward("forking a sequence");
  table_.Fork(parent, child, position);
}

void PagedCacheObj::PopN(int64_t id, int64_t count) {
  DemandNoForward("dropping tokens");
  table_.PopN(id, count);
}

void PagedCacheObj::SetWindow(int64_t id, int64_t window, int64_t num_sinks) {
  DemandNoForward("setting a window");
  if (!config_.has_windows) {
    Fail(ErrorKind::kValueError, "this KV cache was made without sliding windows");
  }
  table_.SetWindow(id, window, num_sinks);
}

void PagedCacheObj::DemandChains(ffi::ShapeView ids, ffi::ShapeView lengths,
                                 ffi::ShapeView parents) {
  const char* reason = config_.rope == RopeMode::kInline ? "keys that are rotated when read"
                       : config_.has_windows             ? "sliding windows"
                       : config_.layer_window > 0        ? "layers with a window"
                                                         : nullptr;
  if (reason == nullptr) return;
  size_t at = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    auto node = static_cast<int64_t>(table_.Find(ids[i]).parents.size());
    for (int64_t k = 0; k < lengths[i]; ++k, ++node, ++at) {
      if (parents[at] == node - 1) continue;
      Fail(ErrorKind::kValueError, "a KV cache with ", reason, " takes no trees of tokens");
    }
  }
}

void PagedCacheObj::BeginForward(ffi::ShapeView ids, ffi::ShapeView lengths,
                                 std::optional<ffi::ShapeView> parents) {
  DemandNoForward("another begin_forward");
  CheckBatch(ids, lengths);
  std::vector<Append> appends;
  int64_t num_tokens = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    table_.Find(ids[i]);
    appends.push_back({ids[i], lengths[i]});
    if (lengths[i] > config_.max_forward_tokens - num_tokens) {
      Fail(ErrorKind::kValueError, "a forward of this KV cache takes at most ",
           config_.max_forward_tokens, " tokens; give a longer prompt in parts");
    }
    num_tokens += lengths[i];
  }
  std::span<const int64_t> tree;
  if (parents) {
    if (static_cast<int64_t>(parents->size()) != num_tokens) {
      Fail(ErrorKind::kValueError, "there are ", num_tokens, " tokens and ", parents->size(),
           " parents; each token needs one (-1: none)");
    }
    DemandChains(ids, lengths, *parents);
    tree = {parents->data(), parents->size()};
  }
  CopyPages(table_.Reserve(appends, tree));
  forward_ = MakeForward(&table_, std::move(appends), {config_.has_windows, config_.layer_window});
  is_stored_.assign(config_.kinds.size(), false);
}

void PagedCacheObj::EndForward() {
  Now();
  for (const Append& append : forward_->appends) table_.Slide(append.id);
  forward_.reset();
}

void PagedCacheObj::CopyPages(const std::vector<PageCopy>& copies) {
  for (const ffi::Tensor& pages : pages_) {
    if (pages.numel() == 0) continue;
    const int64_t bytes =
        runtime::TensorBytes({pages.shape().data() + 1, pages.shape().size() - 1}, config_.dtype);
    char* data = runtime::DataOf(runtime::Raw(pages));
    for (const PageCopy& copy : copies) {
      std::memcpy(data + copy.to * bytes, data + copy.from * bytes, static_cast<size_t>(bytes));
    }
  }
}

// Calls visit(row, bytes, address) for the rows of a token: keys of each head, then values; or one.
template <typename Visit>
void PagedCacheObj::ForEachRow(size_t index, const Sequence& sequence, int64_t token,
                               Visit visit) const {
  const bool is_latent = config_.kinds[index] == AttentionKind::kLatent;
  const int64_t num_rows = is_latent ? 1 : 2 * config_.num_key_heads;
  const int64_t bytes = runtime::TensorBytes({&config_.key_size, 1}, config_.dtype);
  const int64_t slot = sequence.Slot(token);
  const int64_t page = sequence.pages[static_cast<size_t>(slot / config_.page_size)];
  char* data = runtime::DataOf(runtime::Raw(pages_[index]));
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t at = (page * num_rows + row) * config_.page_size + slot % config_.page_size;
    visit(row, static_cast<size_t>(bytes), data + at * bytes);
  }
}

void PagedCacheObj::MoveToken(const Sequence& sequence, int64_t from, int64_t to) {
  if (from == to) return;
  std::vector<char*> targets;
  for (size_t index = 0; index < config_.kinds.size(); ++index) {
    if (config_.kinds[index] == AttentionKind::kNone) continue;
    targets.clear();
    ForEachRow(index, sequence, to,
               [&](int64_t, size_t, char* address) { targets.push_back(address); });
    ForEachRow(index, sequence, from, [&](int64_t row, size_t bytes, const char* address) {
      std::memcpy(targets[static_cast<size_t>(row)], address, bytes);
    });
  }
}

void PagedCacheObj::CommitTree(ffi::ShapeView ids, ffi::ShapeView leaves) {
  DemandNoForward("committing a tree");
  if (ids.size() != leaves.size()) {
    Fail(ErrorKind::kValueError, "there are ", ids.size(), " sequences and ", leaves.size(),
         " accepted leaves; each needs one (-1: none)");
  }
  std::vector<std::vector<int64_t>> paths;  // from the leaf to the root
  for (size_t i = 0; i < ids.size(); ++i) {
    const Sequence& sequence = table_.Find(ids[i]);
    if (sequence.parents.empty()) {
      Fail(ErrorKind::kValueError, "sequence ", ids[i], " does not end in a tree");
    }
    if (leaves[i] < -1 || leaves[i] >= sequence.last_append) {
      Fail(ErrorKind::kIndexError, "sequence ", ids[i], " has no leaf ", leaves[i],
           ": its last forward appended ", sequence.last_append, " tokens");
    }
    std::vector<int64_t>& path = paths.emplace_back();
    for (int64_t node = leaves[i]; node != -1; node = sequence.parents[static_cast<size_t>(node)]) {
      path.push_back(node);
    }
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    Sequence& sequence = table_.Find(ids[i]);
    if (sequence.parents.empty()) continue;  // the id stands twice: done
    const int64_t start = sequence.length - sequence.last_append;
    const auto kept = static_cast<int64_t>(paths[i].size());
    // Nodes come after their parents, so no token is overwritten before it is read.
    for (int64_t k = 0; k < kept; ++k) {
      MoveToken(sequence, start + paths[i][static_cast<size_t>(kept - 1 - k)], start + k);
    }
    const int64_t dropped = sequence.last_append - kept;
    sequence.parents.clear();
    sequence.depths.clear();
    table_.PopN(ids[i], dropped);
  }
}

void PagedCacheObj::CopyOut(int64_t id, int64_t from, int64_t to, const ffi::Tensor& k,
                            const ffi::Tensor& v) {
  const Sequence& sequence = table_.Find(id);
  const auto num_layers = static_cast<int64_t>(config_.kinds.size());
  if (from < 0 || from > to || to > sequence.length) {
    Fail(ErrorKind::kIndexError, "sequence ", id, " has ", sequence.length,
         " tokens; there are none from ", from, " to ", to);
  }
  for (const ffi::Tensor& out : {k, v}) {
    if (!HasShape(out, {num_layers, to - from, config_.num_key_heads, config_.key_size}) ||
        out.dtype() != config_.dtype || !out.IsContiguous() || !runtime::IsHost(out.device())) {
      Fail(ErrorKind::kValueError, "keys and values are copied to dense tensors (", num_layers,
           ", ", to - from, ", ", config_.num_key_heads, ", ", config_.key_size,
           ") of the cache's dtype, given ", DescribeShape(out.shape().data(), out.shape().size()));
    }
  }
  char* targets[] = {runtime::DataOf(runtime::Raw(k)), runtime::DataOf(runtime::Raw(v))};
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    HeadsLayer(layer + config_.first_layer);
    for (int64_t token = from; token < to; ++token) {
      ForEachRow(
          static_cast<size_t>(layer), sequence, token,
          [&](int64_t row, size_t bytes, const char* address) {
            const int64_t head = row % config_.num_key_heads;
            const int64_t at = (layer * (to - from) + token - from) * config_.num_key_heads + head;
            std::memcpy(targets[row / config_.num_key_heads] + static_cast<size_t>(at) * bytes,
                        address, bytes);
          });
    }
  }
}

void PagedCacheObj::CopyOutLatent(int64_t id, int64_t from, int64_t to, const ffi::Tensor& rows) {
  const Sequence& sequence = table_.Find(id);
  const auto num_layers = static_cast<int64_t>(config_.kinds.size());
  if (from < 0 || from > to || to > sequence.length) {
    Fail(ErrorKind::kIndexError, "sequence ", id, " has ", sequence.length,
         " tokens; there are none from ", from, " to ", to);
  }
  if (!HasShape(rows, {num_layers, to - from, config_.key_size}) || rows.dtype() != config_.dtype ||
      !rows.IsContiguous() || !runtime::IsHost(rows.device())) {
    Fail(ErrorKind::kValueError, "latent rows are copied to a dense tensor (", num_layers, ", ",
         to - from, ", ", config_.key_size, ") of the cache's dtype, given ",
         DescribeShape(rows.shape().data(), rows.shape().size()));
  }
  char* target = runtime::DataOf(runtime::Raw(rows));
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const size_t index = LatentLayer(layer + config_.first_layer);
    for (int64_t token = from; token < to; ++token) {
      ForEachRow(index, sequence, token, [&](int64_t, size_t bytes, const char* address) {
        std::memcpy(target, address, bytes);
        target += bytes;
      });
    }
  }
}

}  // namespace relaxvm::vm::kv
