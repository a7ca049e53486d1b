// SPDX-License-Identifier: Apache-2.0
// Questions about whole functions, modules and tensor programs for Python: analysis/.
#include <tvm/ffi/reflection/registry.h>

#include "analysis/module_facts.h"
#include "analysis/program_kind.h"
#include "analysis/well_formed.h"
#include "api/register.h"
#include "passes/canonical/bind.h"

namespace relaxvm::api {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;
using ffi::Array;
using ffi::String;

namespace {

// The broken rules as one text; None when all are kept.
ffi::Optional<String> IllFormed(const ir::IRModule& mod) {
  std::string text;
  for (const analysis::Finding& f : analysis::CheckWellFormed(mod)) {
    text += (text.empty() ? "" : "\n  ") + f.message + " [" + f.rule + "]";
  }
  if (text.empty()) return std::nullopt;
  return String(text);
}

Array<Array<ir::GlobalVar>> Recursion(const ir::IRModule& mod) {
  Array<Array<ir::GlobalVar>> out;
  for (const auto& group : analysis::FindRecursion(mod))
    out.push_back({group.begin(), group.end()});
  return out;
}

}  // namespace

void RegisterProgramAnalysis() {
  refl::GlobalDef()
      .def("relaxvm.analysis.ill_formed", IllFormed)
      .def("relaxvm.analysis.has_reshape_pattern", analysis::HasReshapePattern)
      .def("relaxvm.analysis.fusion_kind",
           [](tir::PrimFunc program) { return static_cast<int64_t>(analysis::KindOf(program)); })
      .def("relaxvm.analysis.computable_at_compile_time", analysis::ComputableAtCompileTime)
      .def("relaxvm.analysis.detect_recursion", Recursion)
      .def("relaxvm.analysis.estimate_memory_usage", analysis::DescribeMemoryUse)
      .def("relaxvm.relax.Function_BindParams",
           [](ir::Function f, ffi::Map<ffi::Any, ffi::Any> params) {
             return passes::BindFunctionParams(
                 f, params, ir::GetAttr<String>(f->attrs, ir::attr::kGlobalSymbol, ""));
           })
      .def("relaxvm.relax.Function_BindSymbolicVars",
           [](ir::Function f, ffi::Map<ffi::Any, ffi::Any> sizes) {
             return passes::BindFunctionSizes(
                 f, sizes, ir::GetAttr<String>(f->attrs, ir::attr::kGlobalSymbol, ""));
           });
}

}  // namespace relaxvm::api
