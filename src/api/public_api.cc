// SPDX-License-Identifier: Apache-2.0
// include/relaxvm/compile.h.
#include <map>
#include <utility>

#include "ir/block_builder.h"
#include "ir/module.h"
#include "ir/prim.h"
#include "ops/op_def.h"
#include "pipeline/build.h"
#include "pipeline/export.h"
#include "relaxvm/compile.h"
#include "support/api.h"
#include "support/error.h"

extern "C" RELAXVM_API int relaxvm_init();

namespace relaxvm {
namespace ffi = tvm::ffi;
namespace {

// The types and operators of the compiler, once for the process.
void Initialize() {
  if (relaxvm_init() != 0)
    Fail(ErrorKind::kRuntimeError, "the compiler library could not register itself");
}

}  // namespace

Module::Module(ffi::ObjectRef module) : module_(std::move(module)) {
  if (!module_.as<ir::IRModuleObj>())
    Fail(ErrorKind::kTypeError, "a Module is made from an IRModule, not from ",
         module_.defined() ? module_->GetTypeKey() : std::string("null"));
}

std::string Module::AsText() const {
  return pipeline::ModuleText(ffi::GetRef<ir::IRModule>(module_.as<ir::IRModuleObj>()));
}

struct FunctionBuilder::State {
  std::string name;
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  ir::BlockBuilder builder{facts.get()};
  ffi::Array<ir::Var> params;
  std::map<std::string, ir::Var> sizes;
  bool is_finished = false;
};

namespace {

ir::Expr ExprOf(const Value& value) {
  auto expr = value.expr().as<ir::Expr>();
  if (!expr) Fail(ErrorKind::kTypeError, "a value of a function must come from its builder");
  return *expr;
}

ffi::Array<ir::Expr> ExprsOf(const std::vector<Value>& values) {
  ffi::Array<ir::Expr> exprs;
  for (const Value& value : values) exprs.push_back(ExprOf(value));
  return exprs;
}

}  // namespace

FunctionBuilder::FunctionBuilder(const std::string& name) {
  Initialize();
  state_ = std::make_shared<State>();
  state_->name = name;
  state_->builder.BeginBlock(/*dataflow=*/true);
}

Value FunctionBuilder::Input(const std::string& name, const std::vector<Dim>& shape,
                             DLDataType dtype) {
  ffi::Array<ir::Expr> dims;
  for (const Dim& dim : shape) {
    if (dim.name.empty()) {
      if (dim.value < 0) Fail(ErrorKind::kValueError, "input ", name, ": a size is negative");
      dims.push_back(ir::IntImm(Int(64), dim.value));
    } else {
      dims.push_back(state_->sizes.try_emplace(dim.name, dim.name, Int(64)).first->second);
    }
  }
  ir::Var param(name, ir::TensorType(dims, dtype));
  state_->params.push_back(param);
  return Value(param);
}

Value FunctionBuilder::Constant(const ffi::Tensor& values) { return Value(ir::Constant(values)); }

Value FunctionBuilder::Call(const std::string& op, const std::vector<Value>& args,
                            const ffi::Map<ffi::String, ffi::Any>& attrs) {
  return Value(state_->builder.Emit(ops::MakeCall(op, ExprsOf(args), attrs)));
}

Value FunctionBuilder::Tuple(const std::vector<Value>& fields) {
  return Value(state_->builder.Emit(ir::Tuple(ExprsOf(fields))));
}

Module FunctionBuilder::Finish(const Value& result) {
  if (std::exchange(state_->is_finished, true))
    Fail(ErrorKind::kRuntimeError, "function ", state_->name, " is finished already");
  ir::BlockBuilder& builder = state_->builder;
  ir::Var output = builder.EmitOutput(ExprOf(result));
  ir::SeqExpr body({builder.EndBlock()}, output);
  body->ty = output->ty;
  ir::IRModule module{ffi::Map<ir::GlobalVar, ir::BaseFunc>()};
  module.Update(state_->name, ir::WithAttr(ir::Function(state_->params, body, output->ty),
                                           ir::attr::kGlobalSymbol, ffi::String(state_->name)));
  return Module(module);
}

Executable Compile(const Module& module, const CompileOptions& options) {
  Initialize();
  pipeline::BuildOptions build;
  build.exec_mode = options.exec_mode;
  build.num_threads = options.num_threads;
  build.run.target = options.target;
  pipeline::BuildResult result =
      pipeline::Build(ffi::GetRef<ir::IRModule>(module.object().as<ir::IRModuleObj>()), build);
  return Executable(result.executable.value());
}

void ExportLibrary(const Executable& executable, const std::string& path,
                   const ExportOptions& options) {
  pipeline::ExportLibrary(
      executable.module(), path,
      options.for_tvm ? pipeline::Interchange::kTvm : pipeline::Interchange::kNone);
}

}  // namespace relaxvm
