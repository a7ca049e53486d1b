// SPDX-License-Identifier: Apache-2.0
// Calls of the attention programs inside of a forward.
#include <cstring>

#include "runtime/tensor.h"
#include "vm/describe.h"
#include "vm/kv/paged_cache.h"

namespace relaxvm::vm::kv {
namespace ffi = tvm::ffi;
namespace {

const ffi::Function& Need(const Program& program, const char* what) {
  if (!program) {
    Fail(ErrorKind::kValueError, "this KV cache was made without the program for ", what);
  }
  return *program;
}

ffi::Tensor Empty(std::initializer_list<int64_t> dims, DLDataType dtype) {
  return runtime::EmptyHostTensor({dims.begin(), dims.size()}, dtype);
}

constexpr DLDataType kFloat32{kDLFloat, 32, 1};

}  // namespace

size_t PagedCacheObj::LayerIndex(int64_t layer) const {
  const int64_t index = layer - config_.first_layer;
  if (index < 0 || index >= static_cast<int64_t>(config_.kinds.size())) {
    Fail(ErrorKind::kIndexError, "the KV cache has layers ", config_.first_layer, " to ",
         config_.first_layer + static_cast<int64_t>(config_.kinds.size()) - 1, ", not ", layer);
  }
  return static_cast<size_t>(index);
}

size_t PagedCacheObj::HeadsLayer(int64_t layer) const {
  const size_t index = LayerIndex(layer);
  const AttentionKind kind = config_.kinds[index];
  if (kind != AttentionKind::kHeads && kind != AttentionKind::kHeadsInWindow) {
    Fail(ErrorKind::kValueError, "layer ", layer, " has no keys and values of heads");
  }
  return index;
}

size_t PagedCacheObj::LatentLayer(int64_t layer) const {
  const size_t index = LayerIndex(layer);
  if (config_.kinds[index] != AttentionKind::kLatent) {
    Fail(ErrorKind::kValueError, "layer ", layer, " has no latent attention");
  }
  return index;
}

void PagedCacheObj::CheckTokens(const char* what, const ffi::Tensor& tensor, int64_t heads,
                                int64_t size) const {
  const int64_t num_tokens = Now().num_tokens;
  if (tensor.ndim() == 3 && tensor.size(0) == num_tokens && tensor.size(1) == heads &&
      tensor.size(2) == size && tensor.dtype() == config_.dtype &&
      runtime::IsHost(tensor.device())) {
    return;
  }
  Fail(ErrorKind::kValueError, what, " of this forward is a tensor (", num_tokens, ", ", heads,
       ", ", size, ") of ", std::string(ffi::DLDataTypeToString(config_.dtype)), ", given ",
       DescribeShape(tensor.shape().data(), tensor.shape().size()), " of ",
       std::string(ffi::DLDataTypeToString(tensor.dtype())));
}

void PagedCacheObj::CheckLse(const ffi::Tensor& lse) const {
  if (lse.ndim() == 2 && lse.size(0) == Now().num_tokens &&
      lse.size(1) == config_.num_query_heads && lse.dtype() == kFloat32) {
    return;
  }
  Fail(ErrorKind::kValueError, "lse of this forward is a float32 tensor (", Now().num_tokens, ", ",
       config_.num_query_heads, "), given ", DescribeShape(lse.shape().data(), lse.shape().size()));
}

const PagedCacheObj::Scratch& PagedCacheObj::Temporary() {
  const int64_t n = Now().num_tokens;
  if (scratch_.num_tokens != n) {
    scratch_.q = Empty({n, config_.num_query_heads, config_.key_size}, config_.dtype);
    scratch_.k = Empty({n, config_.num_key_heads, config_.key_size}, config_.dtype);
    scratch_.v = Empty({n, config_.num_key_heads, config_.key_size}, config_.dtype);
    scratch_.lse = Empty({n, config_.num_query_heads}, kFloat32);
    scratch_.num_tokens = n;
  }
  return scratch_;
}

void PagedCacheObj::Split(const ffi::Tensor& qkv, const Scratch& parts) {
  const int64_t rotates = config_.rope == RopeMode::kStored ? 1 : 0;
  Need(config_.programs.split_rotary, "splitting queries, keys and values")(
      qkv, Now().positions, parts.q, parts.k, parts.v, rotates);
}

void PagedCacheObj::AttendPages(size_t index, double scale, const ffi::Tensor& q,
                                const ffi::Tensor& out, const ffi::Tensor& lse) {
  const Forward& now = Now();
  const AttentionPrograms& programs = config_.programs;
  const ffi::Tensor& pages = pages_[index];
  const int64_t rotates = config_.rope == RopeMode::kInline ? 1 : 0;
  if (now.is_tree) {
    const PageLists& keys = now.all;
    Need(programs.tree_pages, "attention of trees")(
        q, now.query_indptr, pages, keys.indptr, keys.values, keys.length, keys.offset,
        now.positions, out, lse, rotates, config_.rope_scale, config_.rope_theta, scale,
        now.tree_indptr, now.tree_order);
    return;
  }
  const bool in_window = config_.kinds[index] == AttentionKind::kHeadsInWindow;
  const PageLists& keys = in_window ? now.in_window : now.all;
  const bool has_holes = in_window || config_.has_windows;
  if (now.is_decode) {
    const ffi::Function& decode = has_holes ? Need(programs.decode_window, "decoding in a window")
                                            : Need(programs.decode, "decoding");
    decode(q, pages, keys.indptr, keys.values, keys.length, keys.offset, now.positions, out, lse,
           rotates, config_.rope_scale, config_.rope_theta, scale);
    return;
  }
  constexpr int64_t kCausal = 1;
  const ffi::Function& prefill = has_holes ? Need(programs.prefill_window, "prefill in a window")
                                           : Need(programs.prefill, "prefill");
  prefill(q, now.query_indptr, pages, keys.indptr, keys.values, keys.length, keys.offset,
          now.positions, out, lse, kCausal, rotates, config_.rope_scale, config_.rope_theta, scale);
}

void PagedCacheObj::Attend(int64_t layer, double scale, const ffi::Tensor& qkv,
                           const ffi::Tensor& out) {
  const size_t index = HeadsLayer(layer);
  CheckTokens("qkv", qkv, config_.num_query_heads + 2 * config_.num_key_heads, config_.key_size);
  CheckTokens("the output", out, config_.num_query_heads, config_.key_size);
  const Scratch& parts = Temporary();
  Split(qkv, parts);
  Need(config_.programs.append, "storing keys and values")(pages_[index], parts.k, parts.v,
                                                           Now().slots);
  is_stored_[index] = true;
  AttendPages(index, scale, parts.q, out, parts.lse);
}

void PagedCacheObj::AttendShared(int64_t layer, double scale, const ffi::Tensor& q,
                                 const ffi::Tensor& k, const ffi::Tensor& v,
                                 const ffi::Tensor& out) {
  const size_t index = HeadsLayer(layer);
  CheckTokens("q", q, config_.num_query_heads, config_.key_size);
  CheckTokens("k", k, config_.num_key_heads, config_.key_size);
  CheckTokens("v", v, config_.num_key_heads, config_.key_size);
  CheckTokens("the output", out, config_.num_query_heads, config_.key_size);
  if (!is_stored_[index]) {
    Fail(ErrorKind::kRuntimeError, "layer ", layer,
         " has not stored its keys in this forward; its own attention comes first");
  }
  const Scratch& parts = Temporary();
  if (config_.rope != RopeMode::kStored) {
    AttendPages(index, scale, q, out, parts.lse);
    return;
  }
  // The program that rotates takes queries, keys and values in one tensor.
  const int64_t n = Now().num_tokens;
  const int64_t num_heads = config_.num_query_heads + 2 * config_.num_key_heads;
  ffi::Tensor qkv = Empty({n, num_heads, config_.key_size}, config_.dtype);
  const int64_t head_bytes = runtime::TensorBytes({&config_.key_size, 1}, config_.dtype);
  int64_t first_head = 0;
  for (const ffi::Tensor& part : {q, k, v}) {
    if (!part.IsContiguous()) Fail(ErrorKind::kValueError, "q, k and v are dense tensors");
    const int64_t row_bytes = part.size(1) * head_bytes;
    for (int64_t token = 0; token < n; ++token) {
      std::memcpy(
          runtime::DataOf(runtime::Raw(qkv)) + (token * num_heads + first_head) * head_bytes,
          runtime::DataOf(runtime::Raw(part)) + token * row_bytes, static_cast<size_t>(row_bytes));
    }
    first_head += part.size(1);
  }
  Split(qkv, parts);
  AttendPages(index, scale, parts.q, out, parts.lse);
}

void PagedCacheObj::AttendSelf(int64_t layer, double scale, const ffi::Tensor& q,
                               const ffi::Tensor& k, const ffi::Tensor& v, const ffi::Tensor& out,
                               const ffi::Tensor& lse) {
  const size_t index = LayerIndex(layer);
  if (q.ndim() != 3 || out.ndim() != 3) {
    Fail(ErrorKind::kValueError, "queries and outputs have three dimensions, given ", q.ndim(),
         " and ", out.ndim());
  }
  const int64_t value_size =
      config_.kinds[index] == AttentionKind::kLatent ? out.size(2) : config_.key_size;
  // Latent attention of a prompt works on keys and values of as many heads as queries.
  const int64_t key_heads = config_.kinds[index] == AttentionKind::kLatent ? config_.num_query_heads
                                                                           : config_.num_key_heads;
  const int64_t key_size =
      config_.kinds[index] == AttentionKind::kLatent ? q.size(2) : config_.key_size;
  CheckTokens("q", q, config_.num_query_heads, key_size);
  CheckTokens("k", k, key_heads, key_size);
  CheckTokens("v", v, key_heads, value_size);
  CheckTokens("the output", out, config_.num_query_heads, value_size);
  CheckLse(lse);
  const Forward& now = Now();
  const int64_t rotates = config_.rope == RopeMode::kInline ? 1 : 0;
  if (now.is_tree) {
    if (!now.is_whole_tree) {
      Fail(ErrorKind::kValueError,
           "self attention covers trees that begin in this forward; an earlier one is not "
           "committed");
    }
    Need(config_.programs.tree_ragged, "self attention of trees")(
        q, now.query_indptr, k, v, now.query_indptr, now.positions, now.tree_indptr, now.tree_order,
        out, lse, rotates, config_.rope_scale, config_.rope_theta, scale);
    return;
  }
  constexpr int64_t kCausal = 1;
  Need(config_.programs.ragged, "self attention")(
      q, now.query_indptr, k, v, now.query_indptr, now.positions, now.first, out, lse, kCausal,
      rotates, config_.rope_scale, config_.rope_theta, scale);
}

void PagedCacheObj::AttendCached(int64_t layer, double scale, const ffi::Tensor& q,
                                 const ffi::Tensor& out, const ffi::Tensor& lse) {
  const size_t index = LayerIndex(layer);
  const Forward& now = Now();
  const PageLists& keys = now.before;
  constexpr int64_t kAllKeys = 0;
  CheckTokens("q", q, config_.num_query_heads, config_.key_size);
  CheckLse(lse);
  if (config_.kinds[index] == AttentionKind::kLatent) {
    CheckTokens("the output", out, config_.num_query_heads, config_.value_size);
    Need(config_.programs.latent, "latent attention")(q, now.query_indptr, pages_[index],
                                                      keys.indptr, keys.values, keys.length, out,
                                                      lse, kAllKeys, scale);
    return;
  }
  HeadsLayer(layer);
  if (config_.kinds[index] == AttentionKind::kHeadsInWindow) {
    Fail(ErrorKind::kValueError, "layer ", layer,
         " sees a window of tokens; cross attention sees all of them");
  }
  CheckTokens("the output", out, config_.num_query_heads, config_.key_size);
  const int64_t rotates = config_.rope == RopeMode::kInline ? 1 : 0;
  const Program& prefill =
      config_.has_windows ? config_.programs.prefill_window : config_.programs.prefill;
  Need(prefill, "prefill")(q, now.query_indptr, pages_[index], keys.indptr, keys.values,
                           keys.length, keys.offset, now.positions, out, lse, kAllKeys, rotates,
                           config_.rope_scale, config_.rope_theta, scale);
}

void PagedCacheObj::AppendLatent(int64_t layer, const ffi::Tensor& rows) {
  const size_t index = LatentLayer(layer);
  const int64_t num_tokens = Now().num_tokens;
  if (rows.ndim() != 2 || rows.size(0) != num_tokens || rows.size(1) != config_.key_size ||
      rows.dtype() != config_.dtype) {
    Fail(ErrorKind::kValueError, "latent rows of this forward are a tensor (", num_tokens, ", ",
         config_.key_size, "), given ", DescribeShape(rows.shape().data(), rows.shape().size()));
  }
  Need(config_.programs.append_latent, "storing latent rows")(pages_[index], rows, Now().slots);
  is_stored_[index] = true;
}

void PagedCacheObj::Merge(const ffi::Tensor& out, const ffi::Tensor& lse, const ffi::Tensor& other,
                          const ffi::Tensor& other_lse) const {
  CheckLse(lse);
  CheckLse(other_lse);
  if (out.ndim() != 3) {
    Fail(ErrorKind::kValueError, "outputs of attention have three dimensions, given ", out.ndim());
  }
  CheckTokens("the output", out, config_.num_query_heads, out.size(2));
  CheckTokens("the other output", other, config_.num_query_heads, out.size(2));
  Need(config_.programs.merge, "merging outputs")(out, lse, other, other_lse);
}

ffi::Tensor PagedCacheObj::Positions() const { return Now().positions; }

}  // namespace relaxvm::vm::kv
