// SPDX-License-Identifier: Apache-2.0
// Names of element types, as tvm-ffi spells them.
#include "support/dtype.h"

#include "support/error.h"

namespace relaxvm {

std::string DTypeName(DLDataType t) {
  if (IsVoid(t)) return "void";
  return tvm::ffi::DLDataTypeToString(t);
}

DLDataType ParseDType(const std::string& text) {
  if (text.empty() || text == "void") return Void();
  DLDataType result;
  TVMFFIByteArray bytes{text.data(), text.size()};
  if (TVMFFIDataTypeFromString(&bytes, &result) != 0) {
    tvm::ffi::details::MoveFromSafeCallRaised();
    Fail(ErrorKind::kValueError, "unknown dtype '", text,
         "'; write one like float32, int64, bool, bfloat16 or float32x4");
  }
  return result;
}

}  // namespace relaxvm
