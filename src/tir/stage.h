// SPDX-License-Identifier: Apache-2.0
// What a tensor that is no placeholder is made by.  Built by tensor.cc, turned into blocks by
// create_prim_func.cc.
#pragma once

#include "tir/tensor.h"

namespace relaxvm::tir {

enum class StageKind : uint8_t { kCompute, kReduce, kOpaque };

class StageObj : public ffi::Object {
 public:
  StageKind kind = StageKind::kCompute;
  ffi::String name;
  std::vector<Tensor> outputs;  // without their `stage`: names, shapes and dtypes

  // kCompute, kReduce: out[axes] = values, combined over reduce_axes
  ffi::Array<Var> axes;
  ffi::Array<Var> reduce_axes;
  ffi::Array<Expr> reduce_extents;
  std::vector<Expr> values;
  ffi::Optional<Reducer> reducer;

  // kOpaque
  std::vector<Tensor> inputs;
  OpaqueBody body;

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.te.Stage", StageObj, ffi::Object);
};

}  // namespace relaxvm::tir
