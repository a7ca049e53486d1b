// SPDX-License-Identifier: Apache-2.0
// Attention caches of one sequence on the host.
#include "vm/kv_cache.h"

#include <tvm/ffi/container/array.h>

#include <cstring>

#include "vm/builtins/builtins.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

KVCacheObj* Cache(const Args& args) {
  if (args[0].type_index != KVCacheObj::RuntimeTypeIndex()) args.WrongType(0, "an attention cache");
  return ffi::detail::ObjectUnsafe::RawObjectPtrFromUnowned<KVCacheObj>(args[0].v_obj);
}

int64_t RowBytes(const ffi::Tensor& tensor) {
  return runtime::TensorBytes({tensor.shape().data() + 1, tensor.shape().size() - 1},
                              tensor.dtype());
}

void CopyRows(const ffi::Tensor& from, int64_t first, const ffi::Tensor& to, int64_t at,
              int64_t count) {
  int64_t row = RowBytes(to);
  if (count * row == 0) return;
  std::memcpy(runtime::DataOf(runtime::Raw(to)) + at * row,
              runtime::DataOf(runtime::Raw(from)) + first * row, static_cast<size_t>(count * row));
}

// Rows of the same shape and dtype as those of the cache.
ffi::Tensor Rows(const Args& args, int32_t i, const ffi::Tensor& like) {
  ffi::Tensor rows = args.Tensor(i);
  bool fits = rows.ndim() == like.ndim() && rows.ndim() > 0 && rows.dtype() == like.dtype() &&
              rows.IsContiguous() && runtime::IsHost(rows.device());
  for (int32_t k = 1; fits && k < rows.ndim(); ++k) fits = rows.size(k) == like.size(k);
  if (!fits) {
    Fail(ErrorKind::kValueError, "rows for an attention cache of ",
         DescribeShape(like.shape().data(), like.shape().size()),
         " do not fit: ", DescribeValue(args[i]));
  }
  return rows;
}

void Append(KVCacheObj* cache, const ffi::Tensor& rows) {
  int64_t needed = cache->fill_count + rows.size(0);
  if (needed > cache->data.size(0)) {
    std::vector<int64_t> shape(cache->data.shape().begin(), cache->data.shape().end());
    shape[0] = std::max(needed, 2 * shape[0]);
    ffi::Tensor larger =
        runtime::EmptyHostTensor({shape.data(), shape.size()}, cache->data.dtype());
    CopyRows(cache->data, 0, larger, 0, cache->fill_count);
    cache->data = larger;
  }
  CopyRows(rows, 0, cache->data, cache->fill_count, rows.size(0));
  cache->fill_count = needed;
}

// Rows go round in [num_sinks, window); the first num_sinks stay.
void Override(const Args& args, int64_t window, int64_t num_sinks) {
  KVCacheObj* cache = Cache(args);
  ffi::Tensor rows = Rows(args, 1, cache->data);
  if (num_sinks < 0 || window <= num_sinks || window > cache->data.size(0)) {
    Fail(ErrorKind::kValueError, "a window of ", window, " rows, ", num_sinks,
         " of them sinks, does not fit a cache of ", cache->data.size(0));
  }
  for (int64_t i = 0; i < rows.size(0); ++i) {
    if (cache->position >= window) cache->position = num_sinks;
    CopyRows(rows, i, cache->data, cache->position, 1);
    cache->position += 1;
  }
  cache->fill_count = std::min(cache->fill_count + rows.size(0), window);
}

}  // namespace

// (init_data, reserve_shape, fill_count)
void KVCacheCreate(Args args, ffi::Any* result) {
  auto cache = ffi::make_object<KVCacheObj>();
  cache->data = runtime::EmptyHostTensor(args.Shape(1), args.Tensor(0).dtype());
  ffi::Tensor init = Rows(args, 0, cache->data);
  int64_t count = args.Int(2);
  if (count < 0 || count > init.size(0) || init.size(0) > cache->data.size(0)) {
    Fail(ErrorKind::kValueError, "an attention cache of ", cache->data.size(0),
         " rows cannot begin with ", count, " of ", init.size(0));
  }
  CopyRows(init, 0, cache->data, 0, init.size(0));
  cache->fill_count = cache->position = count;
  *result = ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<KVCache>(
      ffi::ObjectPtr<ffi::Object>(cache));
}

void KVCacheUpdate(Args args, ffi::Any* result) {
  KVCacheObj* cache = Cache(args);
  ffi::Tensor rows = Rows(args, 1, cache->data);
  cache->fill_count = 0;
  Append(cache, rows);
  *result = args.view(0);
}

void KVCacheAppend(Args args, ffi::Any* result) {
  KVCacheObj* cache = Cache(args);
  Append(cache, Rows(args, 1, cache->data));
  *result = args.view(0);
}

void KVCacheWindowOverride(Args args, ffi::Any* result) {
  Override(args, args.Int(2), 0);
  *result = args.view(0);
}

void KVCacheWindowOverrideWithSinks(Args args, ffi::Any* result) {
  Override(args, args.Int(2), args.Int(3));
  *result = args.view(0);
}

// (cache[, shape]): a view of what is filled
void KVCacheView(Args args, ffi::Any* result) {
  KVCacheObj* cache = Cache(args);
  std::vector<int64_t> dims(cache->data.shape().begin(), cache->data.shape().end());
  dims[0] = cache->fill_count;
  int64_t num_bytes = runtime::TensorBytes({dims.data(), dims.size()}, cache->data.dtype());
  if (args.size > 1) {
    ffi::ShapeView shape = args.Shape(1);
    if (runtime::TensorBytes(shape, cache->data.dtype()) != num_bytes) {
      Fail(ErrorKind::kValueError, "an attention cache with ", cache->fill_count,
           " rows cannot be seen as ", DescribeShape(shape.data(), shape.size()));
    }
    dims.assign(shape.begin(), shape.end());
  }
  *result =
      runtime::MakeTensor(runtime::DataOf(runtime::Raw(cache->data)), {dims.data(), dims.size()},
                          cache->data.dtype(), cache->data.device(), cache->data);
}

namespace {

template <typename F>
void ForEachCache(const Args& args, F f) {
  if (args[0].type_index != kTVMFFIArray) args.WrongType(0, "a tuple of attention caches");
  for (const ffi::Any& any : args.view(0).cast<ffi::Array<ffi::Any>>()) {
    if (any.type_index() != KVCacheObj::RuntimeTypeIndex())
      args.WrongType(0, "a tuple of attention caches");
    f(any.cast<KVCache>().operator->());
  }
}

}  // namespace

void KVCacheArrayPopN(Args args, ffi::Any*) {
  int64_t count = args.Int(1);
  ForEachCache(args, [&](KVCacheObj* cache) {
    if (count < 0 || count > cache->fill_count) {
      Fail(ErrorKind::kValueError, "cannot drop ", count, " of ", cache->fill_count, " rows");
    }
    cache->fill_count -= count;
    cache->position = cache->fill_count;
  });
}

void KVCacheArrayClear(Args args, ffi::Any*) {
  ForEachCache(args, [](KVCacheObj* cache) { cache->fill_count = cache->position = 0; });
}

}  // namespace relaxvm::vm::builtins
