// SPDX-License-Identifier: Apache-2.0
// Tensor cells: the header that tvm-ffi defines, the owner, shape and strides, in one recycled
// block.
#include "runtime/tensor.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "support/dtype.h"
#include "support/error.h"

namespace relaxvm::runtime {
namespace ffi = tvm::ffi;
namespace {

// Followed by shape[ndim] and strides[ndim].
class TensorCell : public ffi::TensorObj {
 public:
  ffi::ObjectRef owner;
  int64_t* tail() { return reinterpret_cast<int64_t*>(this + 1); }
};

constexpr int kRecycledDims = 8;
constexpr size_t kRecycledBytes = sizeof(TensorCell) + 2 * kRecycledDims * sizeof(int64_t);
constexpr size_t kMaxFreeCells = 256;

// Cells that this thread freed.  A cell may be freed by another thread than made it: lists are
// bounded, so they only migrate.  Reached through a plain pointer, because frees go on after the
// list of an ending thread is gone.
struct FreeCells {
  std::vector<void*> cells;
  FreeCells() { cells.reserve(kMaxFreeCells); }
  ~FreeCells();
};
thread_local FreeCells* free_cells = nullptr;
thread_local bool thread_ends = false;

FreeCells::~FreeCells() {
  free_cells = nullptr;
  thread_ends = true;
  for (void* cell : cells) std::free(cell);
}

FreeCells* ThreadCells() {
  if (free_cells == nullptr && !thread_ends) {
    thread_local FreeCells owner;
    free_cells = &owner;
  }
  return free_cells;
}

void* AllocCell(int ndim) {
  if (ndim > kRecycledDims)
    return std::malloc(sizeof(TensorCell) + 2 * static_cast<size_t>(ndim) * sizeof(int64_t));
  FreeCells* list = ThreadCells();
  if (list == nullptr || list->cells.empty()) return std::malloc(kRecycledBytes);
  void* cell = list->cells.back();
  list->cells.pop_back();
  return cell;
}

void FreeCell(void* cell, int ndim) {
  FreeCells* list = ndim <= kRecycledDims ? ThreadCells() : nullptr;
  if (list != nullptr && list->cells.size() < kMaxFreeCells) {
    list->cells.push_back(cell);
  } else {
    std::free(cell);
  }
}

// Strong: the tensor is gone.  Weak: its memory may be reused.
void DeleteTensor(void* self, int flags) {
  TensorCell* cell = static_cast<TensorCell*>(self);
  if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) cell->owner.~ObjectRef();
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) FreeCell(cell, cell->ndim);
}

}  // namespace

Storage::Storage(std::shared_ptr<MemoryPool> pool, size_t num_bytes, size_t most_bytes) {
  MemoryBlock block = pool->Alloc(num_bytes);
  data_ = ffi::make_object<StorageObj>(std::move(pool), block, std::max(num_bytes, most_bytes));
}

int64_t TensorBytes(ffi::ShapeView shape, DLDataType dtype) {
  constexpr int64_t kLimit = int64_t{1} << 56;
  int64_t num_elems = 1;
  bool is_empty = false;
  for (int64_t dim : shape) {
    if (dim < 0)
      Fail(ErrorKind::kValueError, "a dimension of a tensor is ", dim,
           "; dimensions start at 0, and an operator's window must fit into its data");
    is_empty |= dim == 0;
  }
  if (is_empty) return 0;
  for (int64_t dim : shape) {
    if (dim > kLimit / num_elems)
      Fail(ErrorKind::kValueError, "a tensor of more than 2^56 elements is too large");
    num_elems *= dim;
  }
  return static_cast<int64_t>(ffi::GetDataSize(static_cast<size_t>(num_elems), dtype));
}

ffi::Tensor MakeTensor(void* data, ffi::ShapeView shape, DLDataType dtype, DLDevice device,
                       ffi::ObjectRef owner) {
  int ndim = static_cast<int>(shape.size());
  void* memory = AllocCell(ndim);
  if (memory == nullptr) Fail(ErrorKind::kRuntimeError, "out of memory");
  TensorCell* cell = new (memory) TensorCell;
  cell->owner = std::move(owner);
  cell->data = data;
  cell->device = device;
  cell->ndim = ndim;
  cell->dtype = dtype;
  cell->shape = cell->tail();
  cell->strides = cell->tail() + ndim;
  cell->byte_offset = 0;
  int64_t stride = 1;
  for (int i = ndim; i-- > 0;) {
    cell->shape[i] = shape[i];
    cell->strides[i] = stride;
    stride *= shape[i];
  }
  TVMFFIObject* header = ffi::detail::ObjectUnsafe::GetHeader(cell);
  header->combined_ref_count = ffi::detail::kCombinedRefCountBothOne;
  header->type_index = kTVMFFITensor;
  header->__padding = 0;
  header->deleter = DeleteTensor;
  return ffi::Tensor(ffi::detail::ObjectUnsafe::ObjectPtrFromOwned<ffi::TensorObj>(header));
}

ffi::Tensor AllocTensor(const Storage& storage, int64_t byte_offset, ffi::ShapeView shape,
                        DLDataType dtype) {
  int64_t num_bytes = TensorBytes(shape, dtype);
  int64_t capacity = static_cast<int64_t>(storage->num_bytes());
  if (byte_offset < 0 || byte_offset > capacity || num_bytes > capacity - byte_offset) {
    Fail(ErrorKind::kValueError, "a tensor of ", num_bytes, " bytes at offset ", byte_offset,
         " does not fit into a storage of ", capacity, " bytes");
  }
  return MakeTensor(static_cast<char*>(storage->data()) + byte_offset, shape, dtype,
                    storage->device(), storage);
}

ffi::Tensor EmptyTensor(const std::shared_ptr<MemoryPool>& pool, ffi::ShapeView shape,
                        DLDataType dtype) {
  return AllocTensor(Storage(pool, static_cast<size_t>(TensorBytes(shape, dtype))), 0, shape,
                     dtype);
}

ffi::Tensor EmptyHostTensor(ffi::ShapeView shape, DLDataType dtype) {
  static const auto* pool = new std::shared_ptr<MemoryPool>(
      MemoryPool::Create(DLDevice{kDLCPU, 0}, AllocatorKind::kNaive));
  return EmptyTensor(*pool, shape, dtype);
}

bool IsHost(DLDevice device) { return device.device_type == kDLCPU; }

namespace {

// A tensor may say that it is on a device and have memory of another one.
void CheckMemory(const DLTensor& tensor) {
  DeviceApi* api = GetDeviceApi(tensor.device);
  if (api->Owns(tensor.device.device_id, DataOf(tensor), ffi::GetDataSize(tensor))) return;
  Fail(ErrorKind::kValueError, "a tensor says that it is on ", DeviceName(tensor.device),
       ", but its memory is not; allocate it there, or copy it");
}

}  // namespace

void CopyTensor(const DLTensor& from, const DLTensor& to) {
  bool same_shape =
      from.ndim == to.ndim && std::memcmp(from.shape, to.shape, from.ndim * sizeof(int64_t)) == 0;
  if (!same_shape || !(from.dtype == to.dtype)) {
    Fail(ErrorKind::kValueError, "a copy needs tensors of equal shape and dtype");
  }
  if (!ffi::IsContiguous(from) || !ffi::IsContiguous(to)) {
    Fail(ErrorKind::kValueError, "a copy between devices needs contiguous tensors");
  }
  if (!IsHost(from.device) && !IsHost(to.device) && !SameDevice(from.device, to.device)) {
    ffi::Tensor host = EmptyHostTensor({from.shape, static_cast<size_t>(from.ndim)}, from.dtype);
    CopyTensor(from, Raw(host));
    CopyTensor(Raw(host), to);
    return;
  }
  CheckMemory(from);
  CheckMemory(to);
  DLDevice device = IsHost(from.device) ? to.device : from.device;
  DeviceApi* api = GetDeviceApi(device);
  api->Copy(device.device_id, DataOf(from), DataOf(to), ffi::GetDataSize(from), nullptr);
  if (IsHost(to.device)) api->Synchronize(device.device_id, nullptr);
}

}  // namespace relaxvm::runtime
