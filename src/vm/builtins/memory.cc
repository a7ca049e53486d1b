// SPDX-License-Identifier: Apache-2.0
// Storage, tensors in it, views, copies between devices.
#include "runtime/device.h"
#include "support/dtype.h"
#include "vm/builtins/builtins.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

void CheckScope(const Args& args, int32_t i) {
  if (args.size <= i || args[i].type_index == kTVMFFINone) return;
  std::string scope = args.String(i);
  if (scope != "global" && !scope.empty()) {
    Fail(ErrorKind::kNotImplementedError, "memory scope '", scope,
         "' does not exist on this device; use 'global'");
  }
}

// A view of `tensor` at `byte_offset` from its start.
ffi::Tensor View(const ffi::Tensor& tensor, ffi::ShapeView shape, DLDataType dtype,
                 int64_t byte_offset) {
  if (!tensor.IsContiguous()) Fail(ErrorKind::kValueError, "a view needs a contiguous tensor");
  int64_t available = static_cast<int64_t>(ffi::GetDataSize(runtime::Raw(tensor)));
  int64_t needed = runtime::TensorBytes(shape, dtype);
  if (byte_offset < 0 || byte_offset > available || needed > available - byte_offset) {
    Fail(ErrorKind::kValueError, "a view of ", needed, " bytes at offset ", byte_offset,
         " does not fit into a tensor of ", available, " bytes");
  }
  return runtime::MakeTensor(runtime::DataOf(runtime::Raw(tensor)) + byte_offset, shape, dtype,
                             tensor.device(), tensor);
}

}  // namespace

// (vm, size, device, dtype, scope).  TVM's planner counts bytes, its users elements of `dtype`, and
// TVM reserves for the latter: here the storage has the bytes, and grows when the first tensor in
// it needs the elements.
void AllocStorage(Args args, ffi::Any* result) {
  ffi::ShapeView size = args.Shape(1);
  DLDataType dtype = args.DType(3);
  CheckScope(args, 4);
  if (size.size() != 1) Fail(ErrorKind::kValueError, "the size of a storage is one number");
  constexpr int64_t kMost = int64_t{1} << 48;
  if (size[0] < 0) {
    Fail(ErrorKind::kValueError, "tensors of this run would need ", size[0],
         " bytes; an input is smaller than the window of an operator, or than what it cuts off");
  }
  if (size[0] > kMost) {
    Fail(ErrorKind::kValueError, "a storage cannot have ", size[0], " bytes; 2^48 are the most");
  }
  int64_t most = IsVoid(dtype) ? size[0] : SizeInBytes(ElementOf(dtype), size[0]);
  *result = runtime::Storage(args.context->vm->pool(args.Int(2)), static_cast<size_t>(size[0]),
                             static_cast<size_t>(most));
}

// (storage, offset, shape, dtype[, scope]).  Counts one reference, that of the tensor.
void AllocTensor(Args args, ffi::Any* result) {
  if (args[0].type_index != runtime::StorageObj::RuntimeTypeIndex()) args.WrongType(0, "a storage");
  auto* storage =
      ffi::detail::ObjectUnsafe::RawObjectPtrFromUnowned<runtime::StorageObj>(args[0].v_obj);
  CheckScope(args, 4);
  int64_t offset = args.Int(1);
  ffi::ShapeView shape = args.Shape(2);
  DLDataType dtype = args.DType(3);
  int64_t num_bytes = runtime::TensorBytes(shape, dtype);
  int64_t capacity = static_cast<int64_t>(storage->num_bytes());
  int64_t most = static_cast<int64_t>(storage->most_bytes());
  bool is_empty = static_cast<uint32_t>(args[0].v_obj->combined_ref_count) == 1;
  bool needs_more = offset >= 0 && num_bytes > capacity - offset && num_bytes <= most - offset;
  if (needs_more && is_empty) {
    storage->Grow();
    capacity = most;
  }
  if (offset < 0 || offset > capacity || num_bytes > capacity - offset) {
    Fail(ErrorKind::kValueError, "a tensor ", DescribeShape(shape.data(), shape.size()), " ",
         DTypeName(dtype), " of ", num_bytes, " bytes at offset ", offset,
         " does not fit into a storage of ", capacity, " bytes");
  }
  *result = runtime::MakeTensor(
      static_cast<char*>(storage->data()) + offset, shape, dtype, storage->device(),
      ffi::ObjectRef(ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<ffi::Object>(args[0].v_obj)));
}

void NullValue(Args, ffi::Any*) {}

void Copy(Args args, ffi::Any* result) { *result = args.view(0); }

void Reshape(Args args, ffi::Any* result) {
  ffi::Tensor tensor = args.Tensor(0);
  ffi::ShapeView asked = args.Shape(1);
  std::vector<int64_t> dims(asked.begin(), asked.end());
  int64_t known = 1;
  int64_t* free_dim = nullptr;
  for (int64_t& dim : dims) {
    if (dim == -1 && free_dim == nullptr) {
      free_dim = &dim;
    } else if (dim < 0 || (dim > 0 && known > (int64_t{1} << 60) / dim)) {
      Fail(ErrorKind::kValueError, "cannot reshape to ", DescribeShape(asked.data(), asked.size()));
    } else {
      known *= dim;
    }
  }
  int64_t num_elems = tensor.numel();
  if (free_dim != nullptr && known > 0) *free_dim = num_elems / known;
  if (free_dim != nullptr ? known <= 0 || *free_dim * known != num_elems : known != num_elems) {
    Fail(ErrorKind::kValueError, "cannot reshape ", DescribeValue(args[0]), " to ",
         DescribeShape(asked.data(), asked.size()), ": the numbers of elements differ");
  }
  *result = View(tensor, {dims.data(), dims.size()}, tensor.dtype(), 0);
}

// (tensor, device_type, device_id[, scope])
void ToDevice(Args args, ffi::Any* result) {
  ffi::Tensor tensor = args.Tensor(0);
  CheckScope(args, 3);
  DLDevice device{static_cast<DLDeviceType>(args.Int(1)), static_cast<int32_t>(args.Int(2))};
  if (runtime::SameDevice(tensor.device(), device)) {
    *result = std::move(tensor);
    return;
  }
  runtime::GetDeviceApi(device);  // refuses what does not exist
  VirtualMachine* vm = args.context->vm;
  if (auto constant = vm != nullptr ? vm->ConstantOn(tensor, device) : std::nullopt) {
    *result = std::move(*constant);
    return;
  }
  std::shared_ptr<runtime::MemoryPool> pool = vm != nullptr ? vm->PoolOf(device) : nullptr;
  if (pool == nullptr) pool = runtime::MemoryPool::Create(device, runtime::AllocatorKind::kNaive);
  ffi::Tensor copy = runtime::EmptyTensor(pool, tensor.shape(), tensor.dtype());
  runtime::CopyTensor(runtime::Raw(tensor), runtime::Raw(copy));
  *result = std::move(copy);
}

void EnsureZeroOffset(Args args, ffi::Any* result) {
  ffi::Tensor tensor = args.Tensor(0);
  if (tensor.byte_offset() != 0) tensor = View(tensor, tensor.shape(), tensor.dtype(), 0);
  *result = std::move(tensor);
}

// (tensor, shape, dtype, relative byte offset)
void CreateView(Args args, ffi::Any* result) {
  *result = View(args.Tensor(0), args.Shape(1), args.DType(2), args.Int(3));
}

void MemoryManagerClear(Args, ffi::Any*) { runtime::TrimAllPools(); }

}  // namespace relaxvm::vm::builtins
