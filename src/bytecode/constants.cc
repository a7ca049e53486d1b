// SPDX-License-Identifier: Apache-2.0
// Kinds of constants: check, hash, compare, describe.
#include "bytecode/constants.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/string.h>

#include <cstring>
#include <string_view>

#include "support/dtype.h"
#include "support/error.h"
#include "support/hash.h"

namespace relaxvm::bytecode {
namespace ffi = tvm::ffi;
namespace {

std::string_view TextOf(const ffi::String& text) { return {text.data(), text.size()}; }

const char* DataOf(const ffi::Tensor& tensor) {
  return static_cast<const char*>(tensor.data_ptr()) + tensor.byte_offset();
}

size_t NumBytes(const ffi::Tensor& tensor) {
  return static_cast<size_t>(SizeInBytes(tensor.dtype(), tensor.numel()));
}

std::string Join(ffi::ShapeView shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

bool SameShape(ffi::ShapeView a, ffi::ShapeView b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(int64_t)) == 0;
}

}  // namespace

void CheckConstant(const ffi::Any& value) {
  switch (value.type_index()) {
    case kTVMFFIInt:
    case kTVMFFIBool:
    case kTVMFFIFloat:
    case kTVMFFIDataType:
    case kTVMFFISmallStr:
    case kTVMFFIStr:
    case kTVMFFIShape: return;
    case kTVMFFITensor: {
      auto tensor = value.cast<ffi::Tensor>();
      if (tensor.device().device_type != kDLCPU)
        Fail(ErrorKind::kTypeError, "a constant tensor must be on the CPU");
      if (!tensor.IsContiguous())
        Fail(ErrorKind::kTypeError, "a constant tensor must be contiguous");
      return;
    }
    default:
      Fail(ErrorKind::kTypeError, "a ", value.GetTypeKey(),
           " cannot be a constant; use a tensor, shape, string, integer, float or dtype");
  }
}

uint64_t HashConstant(const ffi::Any& value) {
  uint64_t seed = static_cast<uint64_t>(value.type_index() == kTVMFFIStr ? kTVMFFISmallStr
                                                                         : value.type_index());
  if (auto tensor = value.as<ffi::Tensor>()) {
    DLDataType dtype = tensor->dtype();
    seed = HashBytes(&dtype, sizeof(dtype), seed);
    seed = HashBytes(tensor->shape().data(), tensor->shape().size() * sizeof(int64_t), seed);
    return HashBytes(DataOf(*tensor), NumBytes(*tensor), seed);
  }
  if (auto shape = value.as<ffi::Shape>())
    return HashBytes(shape->data(), shape->size() * sizeof(int64_t), seed);
  if (auto text = value.as<ffi::String>()) return HashBytes(TextOf(*text), seed);
  TVMFFIAny raw = ffi::AnyView(value).CopyToTVMFFIAny();
  return HashBytes(&raw.v_int64, sizeof(raw.v_int64), seed);
}

bool ConstantsEqual(const ffi::Any& a, const ffi::Any& b) {
  if (auto x = a.as<ffi::Tensor>()) {
    auto y = b.as<ffi::Tensor>();
    return y && x->dtype() == y->dtype() && SameShape(x->shape(), y->shape()) &&
           (DataOf(*x) == DataOf(*y) || std::memcmp(DataOf(*x), DataOf(*y), NumBytes(*x)) == 0);
  }
  if (auto x = a.as<ffi::Shape>()) {
    auto y = b.as<ffi::Shape>();
    return y && SameShape({x->data(), x->size()}, {y->data(), y->size()});
  }
  if (auto x = a.as<ffi::String>()) {
    auto y = b.as<ffi::String>();
    return y && *x == *y;
  }
  return a.type_index() == b.type_index() &&
         ffi::AnyView(a).CopyToTVMFFIAny().v_int64 == ffi::AnyView(b).CopyToTVMFFIAny().v_int64;
}

std::string DescribeConstant(const ffi::Any& value) {
  if (auto tensor = value.as<ffi::Tensor>())
    return "Tensor" + Join(tensor->shape()) + " " + DTypeName(tensor->dtype());
  if (auto shape = value.as<ffi::Shape>()) return "Shape" + Join({shape->data(), shape->size()});
  if (auto text = value.as<ffi::String>()) return "'" + std::string(*text) + "'";
  if (auto dtype = value.as<DLDataType>()) return DTypeName(*dtype);
  if (auto number = value.as<double>()) return std::to_string(*number);
  if (auto integer = value.as<int64_t>()) return std::to_string(*integer);
  return value.GetTypeKey();
}

}  // namespace relaxvm::bytecode
