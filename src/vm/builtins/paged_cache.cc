// SPDX-License-Identifier: Apache-2.0
// The paged attention cache as builtins.
#include "vm/kv/paged_cache.h"

#include <tvm/ffi/container/array.h>

#include "vm/builtins/builtins.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

kv::PagedCacheObj* Cache(const Args& args) {
  auto cache = args.view(0).try_cast<kv::PagedCache>();
  if (!cache || !cache->defined()) args.WrongType(0, "a paged KV cache");
  return const_cast<kv::PagedCacheObj*>(cache->get());  // the caller's slot keeps it alive
}

double Number(const Args& args, int32_t i) {
  auto number = args.view(i).try_cast<double>();
  if (!number) args.WrongType(i, "a number");
  return *number;
}

// A function, or None.
kv::Program ProgramAt(const Args& args, int32_t i) {
  if (args[i].type_index == kTVMFFINone) return std::nullopt;
  auto function = args.view(i).try_cast<ffi::Function>();
  if (!function) args.WrongType(i, "a function or None");
  return *function;
}

// ["tirx", function], or [] for none.  Other kinds are libraries of GPUs.
kv::Program AttentionAt(const Args& args, int32_t i) {
  auto list = args.view(i).try_cast<ffi::Array<ffi::Any>>();
  if (!list) args.WrongType(i, "an array: [\"tirx\", function] or []");
  if (list->empty()) return std::nullopt;
  auto kind = (*list)[0].try_cast<ffi::String>();
  auto function = list->size() == 2 ? (*list)[1].try_cast<ffi::Function>() : std::nullopt;
  if (!kind || !function || (*kind != "tirx" && *kind != "tir")) {
    Fail(ErrorKind::kValueError, "argument ", i,
         " of paged_attention_kv_cache_create is [\"tirx\", function] or []; other kinds of "
         "attention need a GPU");
  }
  return *function;
}

kv::Program MergeAt(const Args& args, int32_t i) {
  auto list = args.view(i).try_cast<ffi::Array<ffi::Function>>();
  if (!list) args.WrongType(i, "an array of functions");
  if (list->empty()) return std::nullopt;
  return (*list)[0];
}

std::vector<kv::AttentionKind> KindsAt(const Args& args, ffi::ShapeView layers) {
  if (layers.size() != 2 || layers[0] < 0 || layers[1] <= layers[0]) {
    Fail(ErrorKind::kValueError, "the layers of a KV cache are [first, end), given ",
         DescribeShape(layers.data(), layers.size()),
         "; a model in several stages has a cache each");
  }
  ffi::ShapeView given = args.Shape(6);
  if (static_cast<int64_t>(given.size()) < layers[1]) {
    Fail(ErrorKind::kValueError, "there are ", given.size(),
         " kinds of attention for layers up to ", layers[1] - 1);
  }
  std::vector<kv::AttentionKind> kinds;
  for (int64_t layer = layers[0]; layer < layers[1]; ++layer) {
    const int64_t kind = given[static_cast<size_t>(layer)];
    if (kind < 0 || kind > 3) {
      Fail(ErrorKind::kValueError, "attention of layer ", layer,
           " is of kind 0 (heads), 1 (latent), 2 (none) or 3 (heads, in a window), not ", kind);
    }
    kinds.push_back(static_cast<kv::AttentionKind>(kind));
  }
  return kinds;
}

[[noreturn]] void FailTransfer() {
  Fail(ErrorKind::kNotImplementedError,
       "a KV cache sends its pages to other machines between GPUs only; this one lies on a CPU");
}

}  // namespace

// As the signature says.  The last three programs copy inside of the cache: on a CPU it does so
// itself.
void PagedKVCacheCreate(Args args, ffi::Any* result) {
  ffi::ShapeView sizes = args.Shape(0);
  if (sizes.size() != 5 && sizes.size() != 6) {
    Fail(ErrorKind::kValueError,
         "a KV cache has 5 or 6 sizes: sequences, tokens, tokens of a forward, tokens of a page, "
         "whether sequences have windows, the window of layers; given ",
         sizes.size());
  }
  if (args.Int(7) != 0) FailTransfer();
  const int64_t rope = args.Int(8);
  if (rope < 0 || rope > 2) {
    Fail(ErrorKind::kValueError, "a rope mode is 0 (none), 1 (normal) or 2 (inline), not ", rope);
  }
  if (args[11].type_index != kTVMFFINone) {
    Fail(ErrorKind::kNotImplementedError,
         "factors of an extended rope are not supported; give scaling that split_rotary computes");
  }
  const DLTensor& like = args.TensorView(12);
  if (!runtime::IsHost(like.device)) {
    Fail(ErrorKind::kNotImplementedError, "a KV cache lies on the CPU; the tensor given does not");
  }
  ffi::ShapeView layers = args.Shape(1);
  kv::PagedCacheConfig config{};
  config.max_sequences = sizes[0];
  config.max_tokens = sizes[1];
  config.max_forward_tokens = sizes[2];
  config.page_size = sizes[3];
  config.has_windows = sizes[4] != 0;
  config.kinds = KindsAt(args, layers);
  config.first_layer = layers[0];
  const auto& kinds = config.kinds;
  const bool has_layer_windows =
      std::find(kinds.begin(), kinds.end(), kv::AttentionKind::kHeadsInWindow) != kinds.end();
  config.layer_window = has_layer_windows && sizes.size() == 6 ? sizes[5] : 0;
  if (config.has_windows && has_layer_windows) {
    Fail(ErrorKind::kNotImplementedError,
         "windows of sequences and windows of layers are not supported in one KV cache");
  }
  config.num_query_heads = args.Int(2);
  config.num_key_heads = args.Int(3);
  config.key_size = args.Int(4);
  config.value_size = args.Int(5);
  // In a window, positions count the tokens that are kept: they are known when keys are read.
  config.rope =
      rope == 1 && config.has_windows ? kv::RopeMode::kInline : static_cast<kv::RopeMode>(rope);
  config.rope_scale = Number(args, 9);
  config.rope_theta = Number(args, 10);
  config.dtype = like.dtype;
  config.programs = {
      ProgramAt(args, 13),   ProgramAt(args, 14),   AttentionAt(args, 15), AttentionAt(args, 16),
      AttentionAt(args, 17), AttentionAt(args, 18), AttentionAt(args, 19), AttentionAt(args, 20),
      AttentionAt(args, 21), AttentionAt(args, 22), MergeAt(args, 23),     ProgramAt(args, 24),
  };
  for (int32_t i = 25; i < 28; ++i) ProgramAt(args, i);
  *result = ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<kv::PagedCache>(
      ffi::ObjectPtr<ffi::Object>(ffi::make_object<kv::PagedCacheObj>(std::move(config))));
}

// (cache, layer, scale, qkv, out)
void PagedAttend(Args args, ffi::Any*) {
  kv::Use use(Cache(args));
  Cache(args)->Attend(args.Int(1), Number(args, 2), args.Tensor(3), args.Tensor(4));
}

// (cache, layer, scale, q, k, v, out)
void PagedAttendShared(Args args, ffi::Any*) {
  kv::Use use(Cache(args));
  Cache(args)->AttendShared(args.Int(1), Number(args, 2), args.Tensor(3), args.Tensor(4),
                            args.Tensor(5), args.Tensor(6));
}

// (cache, layer, scale, q, k, v, out, lse)
void PagedAttendSelf(Args args, ffi::Any*) {
  kv::Use use(Cache(args));
  Cache(args)->AttendSelf(args.Int(1), Number(args, 2), args.Tensor(3), args.Tensor(4),
                          args.Tensor(5), args.Tensor(6), args.Tensor(7));
}

// (cache, layer, scale, q, out, lse)
void PagedAttendCached(Args args, ffi::Any*) {
  kv::Use use(Cache(args));
  Cache(args)->AttendCached(args.Int(1), Number(args, 2), args.Tensor(3), args.Tensor(4),
                            args.Tensor(5));
}

// (cache, layer, rows)
void PagedAppendLatent(Args args, ffi::Any* result) {
  kv::Use use(Cache(args));
  Cache(args)->AppendLatent(args.Int(1), args.Tensor(2));
  *result = args.view(0);
}

// (cache, out, lse, other, other_lse)
void PagedMerge(Args args, ffi::Any* result) {
  kv::Use use(Cache(args));
  Cache(args)->Merge(args.Tensor(1), args.Tensor(2), args.Tensor(3), args.Tensor(4));
  *result = ffi::Array<ffi::Any>{args.view(1), args.view(2)};
}

void PagedPositions(Args args, ffi::Any* result) {
  kv::Use use(Cache(args));
  *result = Cache(args)->Positions();
}

void PagedNumFreePages(Args args, ffi::Any* result) {
  kv::Use use(Cache(args));
  *result = Cache(args)->table().num_free_pages();
}

void PagedTotalLength(Args args, ffi::Any* result) {
  kv::Use use(Cache(args));
  *result = Cache(args)->table().TotalLength();
}

// (cache, sequence)
void PagedSequenceLength(Args args, ffi::Any* result) {
  kv::Use use(Cache(args));
  *result = Cache(args)->table().Find(args.Int(1)).length;
}

void PagedEmpty(Args args, ffi::Any* result) {
  kv::Use use(Cache(args));
  *result = Cache(args)->table().IsEmpty();
}

// (cache, sequence, window, sinks)
void PagedSetWindow(Args args, ffi::Any*) {
  kv::Use use(Cache(args));
  Cache(args)->SetWindow(args.Int(1), args.Int(2), args.Int(3));
}

// (cache, sequences, leaves)
void PagedCommitTree(Args args, ffi::Any*) {
  kv::Use use(Cache(args));
  Cache(args)->CommitTree(args.Shape(1), args.Shape(2));
}

// (cache, sequence, start, end, k, v)
void PagedDebugGetKV(Args args, ffi::Any*) {
  kv::Use use(Cache(args));
  Cache(args)->CopyOut(args.Int(1), args.Int(2), args.Int(3), args.Tensor(4), args.Tensor(5));
}

// (cache, sequence, start, end, rows)
void PagedDebugGetKVMla(Args args, ffi::Any*) {
  kv::Use use(Cache(args));
  Cache(args)->CopyOutLatent(args.Int(1), args.Int(2), args.Int(3), args.Tensor(4));
}

void PagedPrepareReceive(Args args, ffi::Any*) {
  Cache(args);
  FailTransfer();
}

void PagedMarkSend(Args args, ffi::Any*) {
  Cache(args);
  FailTransfer();
}

}  // namespace relaxvm::vm::builtins
