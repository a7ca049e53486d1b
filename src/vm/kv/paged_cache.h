// SPDX-License-Identifier: Apache-2.0
// The attention cache of many sequences: keys and values in pages, and the attention over them.
//
// Pages of a layer are (pages, 2, key heads, page size, head size), keys before values; with latent
// attention (pages, page size, latent size).  The programs that work on them are given, as compiled
// functions; relaxvm.relax.frontend.nn.llm.kv_cache has them for a CPU.
#pragma once

#include <tvm/ffi/function.h>

#include <optional>
#include <vector>

#include "vm/kv/forward.h"
#include "vm/kv/state.h"

namespace relaxvm::vm::kv {

enum class AttentionKind : uint8_t { kHeads = 0, kLatent = 1, kNone = 2, kHeadsInWindow = 3 };
// Keys are rotated by their position: never, before they are stored, or when they are read.
enum class RopeMode : uint8_t { kNone = 0, kStored = 1, kInline = 2 };

// Each may be left out; using it then is an error that names it.
using Program = std::optional<tvm::ffi::Function>;

struct AttentionPrograms {
  Program append, append_latent, ragged, prefill, decode, prefill_window, decode_window, tree_pages,
      tree_ragged, latent, merge, split_rotary;
};

struct PagedCacheConfig {
  int64_t max_sequences, max_tokens, max_forward_tokens, page_size;
  bool has_windows;      // sequences may have a sliding window
  int64_t layer_window;  // tokens that layers of kHeadsInWindow see; 0: there are none
  int64_t first_layer;   // of `kinds`
  std::vector<AttentionKind> kinds;
  int64_t num_query_heads, num_key_heads, key_size, value_size;
  RopeMode rope;
  double rope_scale, rope_theta;
  DLDataType dtype;
  AttentionPrograms programs;
};

class PagedCacheObj : public KVStateObj {
 public:
  explicit PagedCacheObj(PagedCacheConfig config);

  void Clear() override;
  void AddSequence(int64_t id) override;
  void RemoveSequence(int64_t id) override;
  void ForkSequence(int64_t parent, int64_t child, int64_t position) override;
  void PopN(int64_t id, int64_t count) override;
  void BeginForward(tvm::ffi::ShapeView ids, tvm::ffi::ShapeView lengths,
                    std::optional<tvm::ffi::ShapeView> parents) override;
  void EndForward() override;

  void SetWindow(int64_t id, int64_t window, int64_t num_sinks);
  // Of the last forward of each sequence: keeps the tokens from the root to this one (-1: none).
  void CommitTree(tvm::ffi::ShapeView ids, tvm::ffi::ShapeView leaves);

  // ---- inside of a forward; tensors are (tokens, heads, size), lse (tokens, heads)
  // Stores keys and values of qkv, then attends to all tokens.
  void Attend(int64_t layer, double scale, const tvm::ffi::Tensor& qkv,
              const tvm::ffi::Tensor& out);
  // Attends to what another layer stored in this forward and before.
  void AttendShared(int64_t layer, double scale, const tvm::ffi::Tensor& q,
                    const tvm::ffi::Tensor& k, const tvm::ffi::Tensor& v,
                    const tvm::ffi::Tensor& out);
  // Among the tokens of this forward.
  void AttendSelf(int64_t layer, double scale, const tvm::ffi::Tensor& q, const tvm::ffi::Tensor& k,
                  const tvm::ffi::Tensor& v, const tvm::ffi::Tensor& out,
                  const tvm::ffi::Tensor& lse);
  // To the tokens of earlier forwards; in a decode also to the new one.
  void AttendCached(int64_t layer, double scale, const tvm::ffi::Tensor& q,
                    const tvm::ffi::Tensor& out, const tvm::ffi::Tensor& lse);
  void AppendLatent(int64_t layer, const tvm::ffi::Tensor& rows);
  void Merge(const tvm::ffi::Tensor& out, const tvm::ffi::Tensor& lse,
             const tvm::ffi::Tensor& other, const tvm::ffi::Tensor& other_lse) const;
  tvm::ffi::Tensor Positions() const;

  // Copies of tokens [from, to), as they are stored: (layers, tokens, heads, size) or (layers,
  // tokens, size).
  void CopyOut(int64_t id, int64_t from, int64_t to, const tvm::ffi::Tensor& k,
               const tvm::ffi::Tensor& v);
  void CopyOutLatent(int64_t id, int64_t from, int64_t to, const tvm::ffi::Tensor& rows);

  PageTable& table() { return table_; }

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.PagedKVCache", PagedCacheObj, KVStateObj);

 private:
  struct Scratch {
    int64_t num_tokens = -1;
    tvm::ffi::Tensor q{tvm::ffi::UnsafeInit()}, k{tvm::ffi::UnsafeInit()},
        v{tvm::ffi::UnsafeInit()}, lse{tvm::ffi::UnsafeInit()};
  };
  size_t LayerIndex(int64_t layer) const;
  // The index of a layer with heads, with latent rows, or with either.
  size_t HeadsLayer(int64_t layer) const;
  size_t LatentLayer(int64_t layer) const;
  const Forward& Now() const;
  void DemandNoForward(const char* what) const;
  void DemandChains(tvm::ffi::ShapeView ids, tvm::ffi::ShapeView lengths,
                    tvm::ffi::ShapeView parents);
  void CheckTokens(const char* what, const tvm::ffi::Tensor& tensor, int64_t heads,
                   int64_t size) const;
  void CheckLse(const tvm::ffi::Tensor& lse) const;
  const Scratch& Temporary();
  void Split(const tvm::ffi::Tensor& qkv, const Scratch& parts);
  void AttendPages(size_t index, double scale, const tvm::ffi::Tensor& q,
                   const tvm::ffi::Tensor& out, const tvm::ffi::Tensor& lse);
  void CopyPages(const std::vector<PageCopy>& copies);
  void MoveToken(const Sequence& sequence, int64_t from, int64_t to);
  template <typename Visit>
  void ForEachRow(size_t index, const Sequence& sequence, int64_t token, Visit visit) const;

  PagedCacheConfig config_;
  PageTable table_;
  std::vector<tvm::ffi::Tensor> pages_;  // of each layer; empty tensors for kNone
  std::optional<Forward> forward_;
  std::vector<bool> is_stored_;  // of each layer: keys of this forward are there
  Scratch scratch_;
};

class PagedCache : public KVState {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(PagedCache, KVState, PagedCacheObj);
};

}  // namespace relaxvm::vm::kv
