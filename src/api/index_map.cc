// SPDX-License-Identifier: Apache-2.0
// Index maps for Python.
#include "tir/index_map.h"

#include <tvm/ffi/reflection/registry.h>

#include "api/convert.h"
#include "api/register.h"
#include "arith/analyzer.h"

namespace relaxvm::api {
namespace {

namespace refl = tvm::ffi::reflection;
using Flag = refl::AttachFieldFlag;
using ffi::Any;
using ffi::Array;
using ir::Expr;
using tir::IndexMap;

void CheckRank(const IndexMap& map, size_t given, const char* what) {
  const size_t rank = map->initial_indices.size();
  if (given != rank)
    Fail(ErrorKind::kValueError, "the index map takes ", rank, " ", what, ", got ", given);
}

tir::MappedShape Mapped(const IndexMap& map, const Array<Expr>& extents) {
  CheckRank(map, extents.size(), "extents");
  arith::Analyzer analyzer;
  auto mapped = tir::MapShape(map, extents, &analyzer);
  if (!mapped)
    Fail(ErrorKind::kValueError,
         "the index map has no way back; every index must be used once, cut by // and % and joined "
         "as a * n + b");
  return *std::move(mapped);
}

}  // namespace

void RegisterIndexMaps() {
  refl::ObjectDef<tir::IndexMapObj>(refl::init(false))
      .def_ro("initial_indices", &tir::IndexMapObj::initial_indices, Flag::SEqHashDefSimple())
      .def_ro("final_indices", &tir::IndexMapObj::final_indices)
      .def_ro("inverse_index_map", &tir::IndexMapObj::inverse_index_map, Flag::SEqHashIgnore());
  refl::GlobalDef()
      .def("relaxvm.tirx.IndexMap",
           [](Array<ir::Var> initial, Array<Any> final, ffi::ObjectRef inverse) {
             const DLDataType dtype = initial.empty() ? Int(64) : initial[0].dtype();
             return IndexMap(initial, ToScalars(final, dtype), inverse);
           })
      .def("relaxvm.tirx.IndexMapIndices",
           [](IndexMap map, Array<Any> indices) {
             CheckRank(map, indices.size(), "indices");
             arith::Analyzer analyzer;
             return map.MapIndices(ToScalars(indices), &analyzer);
           })
      // Extents, indices, where they come from, whether nothing comes from there.
      .def("relaxvm.tirx.IndexMapShape",
           [](IndexMap map, Array<Any> extents) {
             tir::MappedShape mapped = Mapped(map, ToScalars(extents));
             return Array<Any>{mapped.extents, mapped.indices, mapped.origin, mapped.is_padding};
           })
      .def("relaxvm.tirx.IndexMapSame", [](IndexMap a, IndexMap b) {
        arith::Analyzer analyzer;
        return tir::SameMap(a, b, &analyzer);
      });
}

}  // namespace relaxvm::api
