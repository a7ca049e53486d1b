// SPDX-License-Identifier: Apache-2.0
// Short descriptions of values.
#include "vm/describe.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/string.h>

#include "runtime/device.h"
#include "support/dtype.h"
#include "vm/adt.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;

std::string DescribeShape(const int64_t* dims, size_t ndim) {
  std::string text = "(";
  for (size_t i = 0; i < ndim; ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + (ndim == 1 ? ",)" : ")");
}

std::string DescribeValue(const TVMFFIAny& value) {
  ffi::AnyView view = ffi::AnyView::CopyFromTVMFFIAny(value);
  switch (value.type_index) {
    case kTVMFFINone: return "None";
    case kTVMFFIInt: return "an integer " + std::to_string(value.v_int64);
    case kTVMFFIBool: return value.v_int64 ? "the bool True" : "the bool False";
    case kTVMFFIFloat: return "a float " + std::to_string(value.v_float64);
    case kTVMFFIDataType: return "the dtype " + DTypeName(value.v_dtype);
    case kTVMFFIDevice: return "the device " + runtime::DeviceName(value.v_device);
    case kTVMFFISmallStr:
    case kTVMFFIStr: return "the string '" + std::string(view.cast<ffi::String>()) + "'";
    case kTVMFFIFunction: return "a function";
    case kTVMFFIShape: {
      ffi::Shape shape = view.cast<ffi::Shape>();
      return "a shape " + DescribeShape(shape.data(), shape.size());
    }
    case kTVMFFITensor: {
      ffi::Tensor tensor = view.cast<ffi::Tensor>();
      std::string text = "a tensor " + DescribeShape(tensor.shape().data(), tensor.shape().size()) +
                         " " + DTypeName(tensor.dtype());
      return tensor.device().device_type == kDLCPU
                 ? text
                 : text + " on " + runtime::DeviceName(tensor.device());
    }
    case kTVMFFIArray:
      return "a tuple of " + std::to_string(view.cast<ffi::Array<ffi::Any>>().size());
    default: break;
  }
  if (value.type_index == ADTObj::RuntimeTypeIndex()) {
    const auto* adt = static_cast<const ADTObj*>(
        ffi::detail::ObjectUnsafe::RawObjectPtrFromUnowned<ffi::Object>(value.v_obj));
    return "a value of a data type, tag " + std::to_string(adt->tag) + " with " +
           std::to_string(adt->fields.size()) + " fields";
  }
  return "a " + view.GetTypeKey();
}

}  // namespace relaxvm::vm
