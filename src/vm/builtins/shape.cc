// SPDX-License-Identifier: Apache-2.0
// Symbolic shapes: the heap, matching and making shapes.
#include <cstring>

#include "support/dtype.h"
#include "vm/builtins/builtins.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
using bytecode::MakeCode;
using bytecode::MatchCode;
namespace {

constexpr int64_t kMaxHeapSlots = int64_t{1} << 20;

// The integers of a heap tensor; null for the void register, which calls without symbolic sizes
// pass.
struct Heap {
  int64_t* slots = nullptr;
  int64_t size = 0;

  Heap(const Args& args, int32_t i) {
    if (args[i].type_index == kTVMFFINone) return;
    const DLTensor& tensor = args.TensorView(i);
    bool is_heap = tensor.ndim == 1 && tensor.dtype.code == kDLInt && tensor.dtype.bits == 64 &&
                   tensor.dtype.lanes == 1 && runtime::IsHost(tensor.device) &&
                   ffi::IsContiguous(tensor);
    if (!is_heap)
      Fail(ErrorKind::kTypeError, "a shape heap must be a one-dimensional int64 tensor on the CPU");
    slots = reinterpret_cast<int64_t*>(runtime::DataOf(tensor));
    size = tensor.shape[0];
  }
  int64_t& operator[](int64_t slot) const {
    if (slot < 0 || slot >= size) {
      Fail(ErrorKind::kIndexError, "slot ", slot, " is outside of a shape heap of ", size);
    }
    return slots[slot];
  }
};

std::string Context(const Args& args, int32_t i) {
  return args[i].type_index == kTVMFFINone ? std::string() : args.String(i) + " ";
}

void Match(int64_t value, const Heap& heap, int64_t code, int64_t reg, const Args& args,
           int32_t err_ctx, const char* what, int64_t dim) {
  auto expect = [&](int64_t expected) {
    if (value == expected) return;
    std::string place = dim < 0 ? "" : ", dimension " + std::to_string(dim);
    Fail(ErrorKind::kRuntimeError, Context(args, err_ctx), "match_cast error: ", what, place,
         " expected to be ", expected, ", but it is ", value);
  };
  switch (static_cast<MatchCode>(code)) {
    case MatchCode::kAssertEqualToImm: expect(reg); return;
    case MatchCode::kStoreToHeap: heap[reg] = value; return;
    case MatchCode::kNoOp: return;
    case MatchCode::kAssertEqualToLoad: expect(heap[reg]); return;
  }
  Fail(ErrorKind::kValueError, "unknown match code ", code);
}

int64_t Make(const Heap& heap, int64_t code, int64_t reg) {
  switch (static_cast<MakeCode>(code)) {
    case MakeCode::kUseImm: return reg;
    case MakeCode::kLoadShape: return heap[reg];
  }
  Fail(ErrorKind::kValueError, "unknown make code ", code);
}

}  // namespace

void AllocShapeHeap(Args args, ffi::Any* result) {
  int64_t size = args.Int(1);
  if (size < 0 || size > kMaxHeapSlots)
    Fail(ErrorKind::kValueError, "a shape heap cannot have ", size, " slots");
  ffi::Tensor heap = runtime::EmptyTensor(args.context->vm->pool(-1), {size}, Int(64));
  std::memset(heap.data_ptr(), 0, static_cast<size_t>(size) * sizeof(int64_t));
  *result = std::move(heap);
}

void MatchPrimValue(Args args, ffi::Any*) {
  Match(args.Int(0), Heap(args, 1), args.Int(2), args.Int(3), args, 4, "value", -1);
}

// (value, heap, n, (code, reg) * n, err_ctx)
void MatchShape(Args args, ffi::Any*) {
  int32_t err_ctx = args.size - 1;
  int64_t ndim = args.Int(2);
  if (ndim < 0 || args.size != 4 + 2 * ndim)
    Fail(ErrorKind::kValueError, "match_shape: wrong number of codes");
  const int64_t* dims = nullptr;
  int64_t found = 0;
  if (args[0].type_index == kTVMFFIShape) {
    ffi::ShapeView shape = args.Shape(0);
    dims = shape.data();
    found = static_cast<int64_t>(shape.size());
  } else if (args[0].type_index == kTVMFFITensor || args[0].type_index == kTVMFFIDLTensorPtr) {
    const DLTensor& tensor = args.TensorView(0);
    dims = tensor.shape;
    found = tensor.ndim;
  } else {
    Fail(ErrorKind::kTypeError, Context(args, err_ctx), "expected a tensor or a shape, it is ",
         DescribeValue(args[0]));
  }
  if (found != ndim) {
    Fail(ErrorKind::kRuntimeError, Context(args, err_ctx), "match_cast error: expected ", ndim,
         " dimensions, but ", DescribeShape(dims, static_cast<size_t>(found)), " has ", found);
  }
  Heap heap(args, 1);
  for (int32_t i = 0; i < ndim; ++i) {
    Match(dims[i], heap, args.Int(3 + 2 * i), args.Int(4 + 2 * i), args, err_ctx, "shape", i);
  }
}

void MakePrimValue(Args args, ffi::Any* result) {
  *result = Make(Heap(args, 0), args.Int(1), args.Int(2));
}

void MakeShape(Args args, ffi::Any* result) {
  int64_t ndim = args.Int(1);
  if (ndim < 0 || args.size != 2 + 2 * ndim)
    Fail(ErrorKind::kValueError, "make_shape: wrong number of codes");
  Heap heap(args, 0);
  int64_t* dims = nullptr;
  auto shape = ffi::detail::MakeEmptyShape(static_cast<size_t>(ndim), &dims);
  for (int32_t i = 0; i < ndim; ++i) dims[i] = Make(heap, args.Int(2 + 2 * i), args.Int(3 + 2 * i));
  *result = ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<ffi::Shape>(
      ffi::ObjectPtr<ffi::Object>(shape));
}

void ShapeOf(Args args, ffi::Any* result) {
  const DLTensor& tensor = args.TensorView(0);
  int64_t* dims = nullptr;
  auto shape = ffi::detail::MakeEmptyShape(static_cast<size_t>(tensor.ndim), &dims);
  std::copy(tensor.shape, tensor.shape + tensor.ndim, dims);
  *result = ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<ffi::Shape>(
      ffi::ObjectPtr<ffi::Object>(shape));
}

void TensorToShape(Args args, ffi::Any* result) {
  ffi::Tensor tensor = args.Tensor(0);
  DLDataType dtype = tensor.dtype();
  bool is_integer = (IsInt(dtype) || IsUInt(dtype)) && dtype.lanes == 1 &&
                    (dtype.bits == 8 || dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64);
  if (tensor.ndim() != 1 || !is_integer) {
    Fail(ErrorKind::kTypeError, "tensor_to_shape needs a one-dimensional integer tensor, it is ",
         DescribeValue(args[0]));
  }
  if (!runtime::IsHost(tensor.device())) {
    ffi::Tensor host = runtime::EmptyHostTensor(tensor.shape(), dtype);
    runtime::CopyTensor(runtime::Raw(tensor), runtime::Raw(host));
    tensor = host;
  }
  const char* data = runtime::DataOf(runtime::Raw(tensor));
  size_t item = dtype.bits / 8;
  int64_t stride = tensor.size(0) > 1 ? tensor.stride(0) : 1;
  std::vector<int64_t> dims(static_cast<size_t>(tensor.size(0)));
  for (size_t i = 0; i < dims.size(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, data + static_cast<int64_t>(i) * stride * static_cast<int64_t>(item), item);
    int unused = 64 - dtype.bits;
    dims[i] =
        IsInt(dtype) ? static_cast<int64_t>(bits << unused) >> unused : static_cast<int64_t>(bits);
  }
  *result = ffi::Shape(std::move(dims));
}

void ShapeToTensor(Args args, ffi::Any* result) {
  ffi::ShapeView shape = args.Shape(0);
  ffi::Tensor tensor = runtime::EmptyHostTensor({static_cast<int64_t>(shape.size())}, Int(64));
  if (!shape.empty()) std::memcpy(tensor.data_ptr(), shape.data(), shape.size() * sizeof(int64_t));
  *result = std::move(tensor);
}

}  // namespace relaxvm::vm::builtins
