// SPDX-License-Identifier: Apache-2.0
// Walks each function in order: parameters take registers 0..N-1, every binding a new register.
#include "codegen/vm/vm_codegen.h"

#include <tvm/ffi/container/shape.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/core_ops.h"
#include "bytecode/builder.h"
#include "ir/data_type.h"
#include "ir/prim.h"
#include "tir/stmt.h"

namespace relaxvm::codegen {

namespace ffi = tvm::ffi;

namespace {

using analysis::CoreOp;
using bytecode::Arg;
using bytecode::Builtin;
using ir::CallObj;
using ir::Expr;

class FunctionCodeGen {
 public:
  FunctionCodeGen(const ir::IRModule& mod, bytecode::ExecBuilder* builder)
      : mod_(mod), builder_(builder) {}

  void Run(const std::string& name, const ir::FunctionObj* func) {
    name_ = name;
    std::vector<std::string> param_names;
    for (const ir::Var& param : func->params) {
      registers_[param.get()] = next_register_++;
      param_names.push_back(std::string(param->name));
    }
    builder_->BeginFunction(name, static_cast<int64_t>(func->params.size()), param_names);
    builder_->EmitRet(ToRegister(EmitSeq(func->body)));
    builder_->EndFunction(name);
  }

 private:
  Arg EmitSeq(const ir::SeqExpr& seq) {
    for (const ir::BindingBlock& block : seq->blocks) {
      for (const ir::Binding& binding : block->bindings) EmitBinding(binding);
    }
    return Operand(seq->body);
  }

  void EmitBinding(const ir::Binding& binding) {
    if (binding.as<ir::MatchCastObj>()) NotLowered("match_cast", binding->span);
    const Expr& value = binding->value;
    bool is_void = ir::IsVoidType(binding->var->ty) && value.as<CallObj>();
    int64_t dst = is_void ? bytecode::kVoidRegister : next_register_++;
    registers_[binding->var.get()] = dst;
    EmitValue(value, dst);
  }

  // Evaluates `value` into register `dst`.
  void EmitValue(const Expr& value, int64_t dst) {
    if (const auto* call = value.as<CallObj>()) return EmitCall(call, dst);
    if (const auto* branch = value.as<ir::IfObj>()) return EmitIf(branch, dst);
    if (value.as<ir::MatchObj>()) NotLowered("match", value->span);
    if (const auto* item = value.as<ir::TupleGetItemObj>()) {
      return builder_->EmitCall(Builtin::kTupleGetItem,
                                {Operand(item->tuple_value), Arg::Immediate(item->index)}, dst);
    }
    if (const auto* tuple = value.as<ir::TupleObj>()) return EmitTuple(tuple, dst);
    if (const auto* seq = value.as<ir::SeqExprObj>()) {
      return Copy(EmitSeq(ffi::GetRef<ir::SeqExpr>(seq)), dst);
    }
    Copy(Operand(value), dst);
  }

  void Copy(Arg value, int64_t dst) { builder_->EmitCall(Builtin::kCopy, {value}, dst); }

  Arg ToRegister(Arg value) {
    if (value.kind() == bytecode::ArgKind::kRegister && value.value() != bytecode::kVoidRegister)
      return value;
    int64_t dst = next_register_++;
    Copy(value, dst);
    return Arg::Register(dst);
  }

  void EmitTuple(const ir::TupleObj* tuple, int64_t dst) {
    builder_->EmitCall(Builtin::kMakeTuple, Operands(tuple->fields), dst);
  }

  //   If cond, else        ; cond false: to the else branch
  //   <true branch>
  //   Goto end
  //   else: <false branch>
  //   end:
  void EmitIf(const ir::IfObj* branch, int64_t dst) {
    int64_t cond = next_register_++;
    builder_->EmitCall(Builtin::kReadIfCond, {Operand(branch->cond)}, cond);
    int64_t if_at = builder_->NumInstructions();
    builder_->EmitIf(Arg::Register(cond), 2);
    Copy(EmitSeq(branch->true_branch), dst);
    int64_t goto_at = builder_->NumInstructions();
    builder_->EmitGoto(1);
    builder_->PatchJump(if_at, builder_->NumInstructions() - if_at);
    Copy(EmitSeq(branch->false_branch), dst);
    builder_->PatchJump(goto_at, builder_->NumInstructions() - goto_at);
  }

  // ---- calls
  // ------------------------------------------------------------------------------------------------------------

  void EmitCall(const CallObj* call, int64_t dst) {
    if (call->op.as<ir::OpObj>()) return EmitOp(call, dst);
    if (const auto* global = call->op.as<ir::GlobalVarObj>()) {
      return builder_->EmitCall(FunctionArg(global), Operands(call->args), dst);
    }
    if (const auto* packed = call->op.as<ir::ExternFuncObj>()) {
      return builder_->EmitCall(std::string(packed->global_symbol), Operands(call->args), dst);
    }
    if (call->op.as<ir::VarObj>()) {
      std::vector<Arg> args = {Arg::VM(), Operand(call->op)};
      for (Arg arg : Operands(call->args)) args.push_back(arg);
      return builder_->EmitCall(Builtin::kInvokeClosure, args, dst);
    }
    NotLowered("a call of a local function", call->span);
  }

  void EmitOp(const CallObj* call, int64_t dst) {
    switch (analysis::CoreOpOf(call)) {
      case CoreOp::kVmAllocStorage: {  // size, dtype, device, scope -> vm, size, device, dtype,
                                       // scope
        auto arg = [&](size_t i) { return Operand(call->args[i]); };
        return builder_->EmitCall(Builtin::kAllocStorage,
                                  {Arg::VM(), arg(0), arg(1), arg(2), arg(3)}, dst);
      }
      case CoreOp::kVmAllocTensor: {  // storage, offset, shape, dtype, device
        std::vector<Arg> args;
        for (size_t i = 0; i < 4; ++i) args.push_back(Operand(call->args[i]));
        const auto* type = call->ty.as<ir::TensorTypeObj>();
        if (type && type->vdevice.has_value() && type->vdevice.value()->memory_scope != "global") {
          args.push_back(builder_->ConvertConstant(type->vdevice.value()->memory_scope));
        }
        return builder_->EmitCall(Builtin::kAllocTensor, args, dst);
      }
      case CoreOp::kVmKillObject: {
        Arg killed = Operand(call->args[0]);
        RELAXVM_CHECK(killed.kind() == bytecode::ArgKind::kRegister)
            << "kill_object takes a variable";
        return builder_->EmitCall(Builtin::kNullValue, {}, killed.value());
      }
      case CoreOp::kCallBuiltinWithCtx: {
        std::vector<Arg> args = {Arg::VM()};
        const auto* fields = call->args[1].as<ir::TupleObj>();
        RELAXVM_CHECK(fields != nullptr) << "call_builtin_with_ctx takes a tuple of arguments";
        for (Arg arg : Operands(fields->fields)) args.push_back(arg);
        return builder_->EmitCall(std::string(call->args[0].as<ir::ExternFuncObj>()->global_symbol),
                                  args, dst);
      }
      case CoreOp::kNullValue: return Copy(Arg::Void(), dst);
      default: NotLowered(std::string(call->op.as<ir::OpObj>()->name), call->span);
    }
  }

  [[noreturn]] void NotLowered(const std::string& what, const ir::Span& span) const {
    Fail(ErrorKind::kValueError, span.Place(), "function '", name_, "': ", what,
         " cannot become bytecode; run the default pipeline, or the passes up to VMShapeLower, "
         "first");
  }

  // ---- operands
  // ---------------------------------------------------------------------------------------------------------

  std::vector<Arg> Operands(const ffi::Array<Expr>& exprs) {
    std::vector<Arg> args;
    args.reserve(exprs.size());
    for (const Expr& e : exprs) args.push_back(Operand(e));
    return args;
  }

  Arg FunctionArg(const ir::GlobalVarObj* global) {
    ir::GlobalVar var = ffi::GetRef<ir::GlobalVar>(global);
    return builder_->GetFunction(SymbolOf(var, mod_->Lookup(var)));
  }

  Arg Operand(const Expr& e) {
    if (e.as<ir::VarObj>()) {
      auto it = registers_.find(e.get());
      if (it == registers_.end()) {
        NotLowered("the variable '" + std::string(e.as<ir::VarObj>()->name) +
                       "', which nothing here binds,",
                   e->span);
      }
      return Arg::Register(it->second);
    }
    if (const auto* i = e.as<ir::IntImmObj>()) return builder_->ConvertConstant(i->value);
    if (const auto* f = e.as<ir::FloatImmObj>()) return builder_->ConvertConstant(f->value);
    if (const auto* s = e.as<ir::StringImmObj>()) return builder_->ConvertConstant(s->value);
    if (const auto* t = e.as<ir::DataTypeImmObj>()) return builder_->ConvertConstant(t->value);
    if (const auto* c = e.as<ir::ConstantObj>()) return ConstantArg(c);
    if (const auto* s = e.as<ir::ShapeExprObj>()) return ShapeArg(s);
    if (const auto* g = e.as<ir::GlobalVarObj>()) return FunctionArg(g);
    if (const auto* x = e.as<ir::ExternFuncObj>())
      return builder_->GetFunction(std::string(x->global_symbol));
    if (analysis::CoreOpOfValue(e) == CoreOp::kNullValue) return Arg::Void();
    int64_t dst = next_register_++;
    EmitValue(e, dst);
    return Arg::Register(dst);
  }

  Arg ConstantArg(const ir::ConstantObj* constant) {
    Arg arg = builder_->ConvertConstant(constant->data);
    const auto* type = constant->ty.as<ir::TensorTypeObj>();
    if (type && type->vdevice.has_value())
      builder_->SetMemoryScope(arg, type->vdevice.value()->memory_scope);
    return arg;
  }

  Arg ShapeArg(const ir::ShapeExprObj* shape) {
    std::vector<int64_t> dims;
    for (const Expr& dim : shape->values) {
      auto value = ir::AsInt(dim);
      if (!value.has_value()) NotLowered("a shape with symbolic sizes", shape->span);
      dims.push_back(value.value());
    }
    return builder_->ConvertConstant(ffi::Shape(dims));
  }

  const ir::IRModule& mod_;
  bytecode::ExecBuilder* builder_;
  std::string name_;
  std::unordered_map<const ffi::Object*, int64_t> registers_;
  int64_t next_register_ = 0;
};

}  // namespace

std::string SymbolOf(const ir::GlobalVar& var, const ir::BaseFunc& func) {
  if (const auto* packed = func.as<ir::ExternFuncObj>()) return packed->global_symbol;
  return std::string(
      ir::GetAttr<ffi::String>(func->attrs, ir::attr::kGlobalSymbol, var->name_hint));
}

bytecode::ExecutableData VMCodeGen(const ir::IRModule& mod) {
  bytecode::ExecBuilder builder;
  for (const auto& [var, func] : mod->functions) {
    if (func.as<ir::FunctionObj>())
      builder.DeclareFunction(SymbolOf(var, func), bytecode::FuncKind::kVMFunc);
  }
  for (const auto& [var, func] : mod->functions) {
    if (const auto* function = func.as<ir::FunctionObj>()) {
      FunctionCodeGen(mod, &builder).Run(SymbolOf(var, func), function);
    }
  }
  return builder.Get();
}

}  // namespace relaxvm::codegen
