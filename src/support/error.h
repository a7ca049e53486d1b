// SPDX-License-Identifier: Apache-2.0
// The three kinds of errors: Fail (the user's program is wrong), RELAXVM_CHECK (we are wrong,
// always on), RELAXVM_DCHECK (we are wrong, debug builds only).
#pragma once

#include <tvm/ffi/error.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>

namespace relaxvm {

// A place in a script or a graph; `line` and `column` count from 1, 0 means unknown.
struct SourcePlace {
  std::string file;  // file name, or what stands for it ("node 'conv_1'")
  int line = 0;
  int column = 0;
};

// What kind of Python exception an error becomes.
enum class ErrorKind : uint8_t {
  kTypeError,
  kValueError,
  kRuntimeError,
  kIndexError,
  kKeyError,
  kNotImplementedError,
  kAttribute  // an attribute is wrong: relaxvm.error.AttributeValueError
};

// "file:line:column: message"
std::string FormatError(const SourcePlace& place, const std::string& message);

[[noreturn]] void ThrowError(ErrorKind kind, const SourcePlace& place, const std::string& message);

// Reports a user's mistake: `parts` are streamed one after another.  Says where, what, and what to
// do.
template <typename... Parts>
[[noreturn]] void Fail(ErrorKind kind, const SourcePlace& place, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  ThrowError(kind, place, text.str());
}
template <typename... Parts>
[[noreturn]] void Fail(ErrorKind kind, const Parts&... parts) {
  Fail(kind, SourcePlace{}, parts...);
}

}  // namespace relaxvm

// Broken invariants of our own: throws InternalError with file and line.
#define RELAXVM_CHECK(condition) \
  if (!(condition)) TVM_FFI_THROW(InternalError) << "check failed: " #condition " "
#define RELAXVM_UNREACHABLE()                      \
  do {                                             \
    TVM_FFI_THROW(InternalError) << "unreachable"; \
    __builtin_unreachable();                       \
  } while (false)

#ifdef NDEBUG
#define RELAXVM_DCHECK(condition) \
  if (false) RELAXVM_CHECK(condition)
#else
#define RELAXVM_DCHECK(condition) RELAXVM_CHECK(condition)
#endif
