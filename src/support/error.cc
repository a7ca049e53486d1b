// SPDX-License-Identifier: Apache-2.0
// Formats and throws user errors as tvm-ffi errors, which arrive in Python as the class of the same
// name.
#include "support/error.h"

namespace relaxvm {

std::string FormatError(const SourcePlace& place, const std::string& message) {
  if (place.file.empty()) return message;
  std::string where = place.file;
  if (place.line > 0) where += ":" + std::to_string(place.line);
  if (place.line > 0 && place.column > 0) where += ":" + std::to_string(place.column);
  return where + ": " + message;
}

void ThrowError(ErrorKind kind, const SourcePlace& place, const std::string& message) {
  const char* name = nullptr;
  switch (kind) {
    case ErrorKind::kTypeError: name = "TypeError"; break;
    case ErrorKind::kValueError: name = "ValueError"; break;
    case ErrorKind::kRuntimeError: name = "RuntimeError"; break;
    case ErrorKind::kIndexError: name = "IndexError"; break;
    case ErrorKind::kKeyError: name = "KeyError"; break;
    case ErrorKind::kNotImplementedError: name = "NotImplementedError"; break;
    case ErrorKind::kAttribute: name = "AttributeValueError"; break;
  }
  throw tvm::ffi::Error(name, FormatError(place, message), "");
}

}  // namespace relaxvm
