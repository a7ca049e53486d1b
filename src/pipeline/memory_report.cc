// SPDX-License-Identifier: Apache-2.0
// Goes through a function in order, as the VM would, with sizes instead of tensors.
#include "pipeline/memory_report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "analysis/core_ops.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/memory/destination.h"

namespace relaxvm::pipeline {
namespace {

namespace ffi = tvm::ffi;
using analysis::CoreOp;
using ir::CallObj;
using ir::Expr;
using ir::Var;

struct Tensor {
  const ffi::Object* storage;
  int64_t offset;
  int64_t bytes;
};

class Walker {
 public:
  explicit Walker(const std::unordered_map<std::string, int64_t>& sizes) : given_(sizes) {}

  MemoryReport Run(const ir::FunctionObj* func) {
    WalkSeq(func->body);
    return report_;
  }

 private:
  using State =
      std::pair<std::map<const ffi::Object*, int64_t>, std::map<const ffi::Object*, Tensor>>;

  void WalkSeq(const ir::SeqExpr& seq) {
    for (const ir::BindingBlock& block : seq->blocks) {
      for (const ir::Binding& binding : block->bindings) {
        WalkBinding(binding);
        Count();
      }
    }
  }

  void WalkBinding(const ir::Binding& binding) {
    const ffi::Object* var = binding->var.get();
    const Expr& value = binding->value;
    if (const auto* branch = value.as<ir::IfObj>()) {
      State before = {storages_, tensors_};
      WalkSeq(branch->true_branch);
      std::tie(storages_, tensors_) = before;
      WalkSeq(branch->false_branch);
      std::tie(storages_, tensors_) = before;
      return;
    }
    const auto* call = value.as<CallObj>();
    switch (call ? analysis::CoreOpOf(call) : CoreOp::kNone) {
      case CoreOp::kAllocStorage:
        storages_[var] = ValueOf(call->args[0].as<ir::ShapeExprObj>()->values[0]);
        ++report_.num_storages;
        return;
      case CoreOp::kAllocTensor: {
        const auto* shape = call->args[2].as<ir::ShapeExprObj>();
        DLDataType dtype = call->args[3].as<ir::DataTypeImmObj>()->value;
        tensors_[var] = {call->args[0].get(), ValueOf(call->args[1]),
                         ValueOf(passes::BytesOf(shape->values, dtype))};
        held_[call->args[0].get()] = storages_[call->args[0].get()];
        ++report_.num_tensors;
        return;
      }
      case CoreOp::kKillStorage: storages_.erase(call->args[0].get()); return;
      case CoreOp::kKillTensor:
      case CoreOp::kVmKillObject:
        tensors_.erase(call->args[0].get());
        storages_.erase(call->args[0].get());
        return;
      case CoreOp::kReshape:
      case CoreOp::kView: CopyTensor(call->args[0], var); return;
      default: break;
    }
    if (value.as<ir::VarObj>()) CopyTensor(value, var);
    if (ir::IsPrim(binding->var) && !call)
      numbers_.Set(binding->var, ir::IntImm(Int(64), ValueOf(value)));
  }

  void CopyTensor(const Expr& from, const ffi::Object* to) {
    auto it = tensors_.find(from.get());
    if (it != tensors_.end()) tensors_[to] = it->second;
  }

  void Count() {
    int64_t alive = 0, reserved = 0;
    std::map<const ffi::Object*, int64_t> held = storages_;
    std::map<std::pair<const ffi::Object*, int64_t>, int64_t> places;
    for (const auto& [var, tensor] : tensors_) {
      held[tensor.storage] = held_[tensor.storage];
      int64_t& bytes = places[{tensor.storage, tensor.offset}];
      bytes = std::max(bytes, tensor.bytes);
    }
    for (const auto& [place, bytes] : places) alive += bytes;
    for (const auto& [storage, bytes] : held) reserved += bytes;
    report_.most_alive_bytes = std::max(report_.most_alive_bytes, alive);
    report_.planned_peak_bytes = std::max(report_.planned_peak_bytes, reserved);
  }

  int64_t ValueOf(const Expr& e) {
    for (const Var& var : ir::FreeVars(e)) {
      if (numbers_.count(var)) continue;
      auto it = given_.find(var->name);
      if (it == given_.end()) {
        Fail(ErrorKind::kValueError, "the memory plan depends on the size '",
             std::string(var->name), "'; give its value");
      }
      numbers_.Set(var, ir::IntImm(var.dtype(), it->second));
    }
    auto value = ir::AsInt(ir::Substitute(e, numbers_));
    RELAXVM_CHECK(value.has_value()) << "a size is not a number once its variables are";
    return value.value();
  }

  const std::unordered_map<std::string, int64_t>& given_;
  ffi::Map<Var, Expr> numbers_;
  std::map<const ffi::Object*, int64_t> storages_;  // whose variable is alive
  std::map<const ffi::Object*, int64_t> held_;      // sizes of all that tensors lie in
  std::map<const ffi::Object*, Tensor> tensors_;
  MemoryReport report_;
};

}  // namespace

MemoryReport ReportMemory(const ir::IRModule& mod, const std::string& function,
                          const std::unordered_map<std::string, int64_t>& sizes) {
  ir::BaseFunc func = mod->Lookup(function);
  const auto* relax = func.as<ir::FunctionObj>();
  if (relax == nullptr)
    Fail(ErrorKind::kTypeError, "'", function,
         "' is a tensor program; memory is planned for Relax functions");
  return Walker(sizes).Run(relax);
}

}  // namespace relaxvm::pipeline
