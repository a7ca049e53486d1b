// SPDX-License-Identifier: Apache-2.0
// Questions about whole functions, modules and tensor programs for Python: analysis/.
#include <tvm/ffi/reflection/registry.h>

#include "analysis/dataflow_values.h"
#include "analysis/layout_suggestions.h"
#include "analysis/module_facts.h"
#include "analysis/program_kind.h"
#include "analysis/well_formed.h"
#include "api/register.h"
#include "ops/op_def.h"
#include "passes/canonical/bind.h"
#include "pipeline/inplace_call.h"

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

Array<int64_t> Numbers(const std::set<int>& set) {
  Array<int64_t> out;
  for (int number : set) out.push_back(number);
  return out;
}

// [[variable, first, last], ...]
Array<Array<ffi::Any>> LiveRanges(const ir::BindingBlock& block) {
  const analysis::LiveRanges ranges = analysis::FindLiveRanges(block);
  Array<Array<ffi::Any>> out;
  for (const ir::Var& v : ranges.vars) {
    const analysis::LiveRange range = ranges.of.at(v.get());
    out.push_back({v, range.start, range.end});
  }
  return out;
}

// [[[variable, numbers], ...], [[number of a tuple, numbers of each field], ...]]
Array<Array<Array<ffi::Any>>> Memory(const ir::BindingBlock& block, const Array<ir::Var>& params) {
  const analysis::MemoryOfValues memory = analysis::FindMemory(block, params);
  Array<Array<ffi::Any>> vars, tuples;
  for (const ir::Var& v : memory.vars) vars.push_back({v, Numbers(memory.of.at(v.get()))});
  for (const auto& [number, fields] : memory.fields) {
    Array<Array<int64_t>> rows;
    for (const analysis::MemorySet& field : fields) rows.push_back(Numbers(field));
    tuples.push_back({number, rows});
  }
  return {vars, tuples};
}

// Calls by size and by shape: [[binding, arguments], ...] of each.
Array<Array<Array<ffi::Any>>> InplaceCalls(const ir::BindingBlock& block,
                                           const Array<ir::Var>& params) {
  const auto facts = ops::MakeTypeContext();
  const analysis::InplaceCalls found = analysis::FindInplaceCalls(block, params, *facts);
  auto rows = [](const std::vector<analysis::InplaceCall>& calls) {
    Array<Array<ffi::Any>> out;
    for (const auto& call : calls) out.push_back({call.binding, Numbers(call.args)});
    return out;
  };
  return {rows(found.same_size), rows(found.same_shape)};
}

// [[block, [[block or buffer, map], ...]], ...]
Array<Array<ffi::Any>> LayoutSuggestions(const tir::PrimFunc& program,
                                         const Array<tir::IndexMap>& results) {
  Array<Array<ffi::Any>> out;
  for (const auto& suggestion : analysis::SuggestLayouts(program, results)) {
    Array<Array<ffi::Any>> maps = {{suggestion.block, suggestion.map}};
    for (const auto& [buffer, map] : suggestion.buffers) maps.push_back({buffer, map});
    out.push_back({suggestion.block, maps});
  }
  return out;
}

Array<ffi::Any> InplaceCall(const ir::IRModule& mod, const ir::Call& call, int64_t arg) {
  auto [made, module] = pipeline::MakeInplaceCall(mod, call, arg);
  return {made, module};
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
      .def("relaxvm.analysis.dataflow_live_ranges", LiveRanges)
      .def("relaxvm.analysis.dataflow_memory", Memory)
      .def("relaxvm.analysis.dataflow_inplace_calls", InplaceCalls)
      .def("relaxvm.analysis.inplace_call", InplaceCall)
      .def("relaxvm.analysis.suggest_layouts", LayoutSuggestions)
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
