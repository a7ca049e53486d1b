// SPDX-License-Identifier: Apache-2.0
// The table of passes for Python.
#include <tvm/ffi/reflection/registry.h>

#include <string>
#include <unordered_map>

#include "api/register.h"
#include "passes/canonical/bind.h"
#include "passes/canonical/inline.h"
#include "passes/pass.h"
#include "pipeline/build.h"

namespace relaxvm::api {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

namespace {

struct Row {
  const char* options;
  const char* doc;
  passes::PassFn run;
};

const std::unordered_map<std::string, Row>& Table() {
  static const std::unordered_map<std::string, Row> rows = {
#define PASS(name, options, doc) {#name, {options, doc, &passes::name}},
#include "passes/pass_list.def"
#undef PASS
  };
  return rows;
}

// The functions that Python's register_te_gradient registers: (grad, [args], options) -> [program,
// [arguments], type of the result, [sizes]].
passes::ProgramGradient FindGradient(const ffi::String& name,
                                     const ffi::Map<ffi::String, ffi::Any>& options,
                                     const ir::Expr& grad, const ffi::Array<ir::Expr>& args) {
  auto gradient = ffi::Function::GetGlobal("relaxvm.relax.te_gradient." + std::string(name));
  if (!gradient.has_value()) {
    Fail(ErrorKind::kValueError, "Gradient: no gradient is registered under the name \"", name,
         "\"; register one with relax.training.utils.register_te_gradient");
  }
  const auto parts = (*gradient)(grad, args, options).cast<ffi::Array<ffi::Any>>();
  return {parts[0].cast<tir::PrimFunc>(), parts[1].cast<ffi::Array<ir::Expr>>(),
          parts[2].cast<ir::Type>(), parts[3].cast<ffi::Array<ir::Expr>>()};
}

ir::IRModule RunPass(ffi::String name, ir::IRModule mod, ffi::Map<ffi::String, ffi::Any> options,
                     ffi::Map<ffi::String, ffi::Any> config, ffi::String target) {
  auto it = Table().find(std::string(name));
  if (it == Table().end()) Fail(ErrorKind::kValueError, "there is no pass called ", name);
  passes::PassContext context;
  context.options = std::move(options);
  context.config = std::move(config);
  context.target = std::string(target);
  context.evaluate = pipeline::MakeEvaluate(context.target);
  context.program_gradient = FindGradient;
  return it->second.run(std::move(mod), context);
}

ffi::String NameOf(const ir::Function& f) {
  return ir::GetAttr<ffi::String>(f->attrs, ir::attr::kGlobalSymbol, "main");
}

}  // namespace

void RegisterPasses() {
  refl::GlobalDef()
      // [[name, options as a Python signature, doc]...]
      .def("relaxvm.transform.List",
           [] {
             ffi::Array<ffi::Array<ffi::String>> rows;
#define PASS(name, options, doc) rows.push_back({#name, options, doc});
#include "passes/pass_list.def"
#undef PASS
             return rows;
           })
      .def("relaxvm.relax.BindParams",
           [](ir::Function f, ffi::Map<ffi::Any, ffi::Any> params) {
             return passes::BindFunctionParams(f, params, NameOf(f));
           })
      .def("relaxvm.relax.BindSymbolicVars",
           [](ir::Function f, ffi::Map<ffi::Any, ffi::Any> sizes) {
             return passes::BindFunctionSizes(f, sizes, NameOf(f));
           })
      .def("relaxvm.relax.InlineFunctions",
           [](ir::Function f, ffi::Map<ffi::String, ir::Function> functions) {
             passes::FunctionsByName table;
             for (const auto& [name, func] : functions) table.emplace(std::string(name), func);
             return passes::InlineFunctions(f, table);
           })
      .def("relaxvm.relax.CopyWithFreshVars", passes::CopyWithFreshVars)
      .def("relaxvm.transform.Run", RunPass);
}

}  // namespace relaxvm::api
