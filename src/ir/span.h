// SPDX-License-Identifier: Apache-2.0
// Where a piece of a program was written: file, line and column, or the node of a model that it
// came from.
#pragma once

#include <tvm/ffi/object.h>
#include <tvm/ffi/string.h>

#include "support/error.h"

namespace relaxvm::ir {

namespace ffi = tvm::ffi;

class SpanObj : public ffi::Object {
 public:
  ffi::String source_name;  // file name, or a description such as "node 'conv_1' (Conv)"
  int64_t line = 0;         // from 1; 0 is unknown
  int64_t column = 0;
  int64_t end_line = 0;
  int64_t end_column = 0;

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.Span", SpanObj, ffi::Object);
};

// Nullable: null is "unknown".
class Span : public ffi::ObjectRef {
 public:
  Span(ffi::String source_name, int64_t line, int64_t column, int64_t end_line = 0,
       int64_t end_column = 0);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Span, ffi::ObjectRef, SpanObj);

  SourcePlace Place() const;
};

}  // namespace relaxvm::ir
