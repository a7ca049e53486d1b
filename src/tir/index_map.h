// SPDX-License-Identifier: Apache-2.0
// Where each element of a tensor goes when it is stored in another layout:
//   (i0, i1) -> (i0 // 4, i1, i0 % 4)
#pragma once

#include <optional>

#include "ir/prim.h"

namespace relaxvm::arith {
class Analyzer;
}

namespace relaxvm::tir {

namespace ffi = tvm::ffi;

using ir::Expr;
using ir::Var;

class IndexMapObj : public ffi::Object {
 public:
  ffi::Array<Var> initial_indices;
  ffi::Array<Expr> final_indices;
  ffi::ObjectRef inverse_index_map;  // an IndexMap that was given for the way back; may be null
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.IndexMap", IndexMapObj, ffi::Object);
};
class IndexMap : public ffi::ObjectRef {
 public:
  IndexMap(ffi::Array<Var> initial_indices, ffi::Array<Expr> final_indices,
           ffi::ObjectRef inverse_index_map = ffi::ObjectRef());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(IndexMap, ffi::ObjectRef, IndexMapObj);

  // The place of the element at `indices`; as many as there are initial indices.
  ffi::Array<Expr> MapIndices(const ffi::Array<Expr>& indices, arith::Analyzer* analyzer) const;
};

// A map over a tensor of known extents, and its way back, in int64.
struct MappedShape {
  ffi::Array<Expr> extents;  // of the tensor in the other layout
  ffi::Array<Var> indices;   // of an element of it
  ffi::Array<Expr> origin;   // where that element comes from
  Expr is_padding;           // of `indices`, bool: nothing comes from there
};
// Maps that divide indices into digits (//, %) and join digits to indices (sums of multiples) have
// a way back; absent for others, and where two elements would meet in one place.
std::optional<MappedShape> MapShape(const IndexMap& map, const ffi::Array<Expr>& extents,
                                    arith::Analyzer* analyzer);

// Do both maps send every element to the same place?
bool SameMap(const IndexMap& a, const IndexMap& b, arith::Analyzer* analyzer);

}  // namespace relaxvm::tir
