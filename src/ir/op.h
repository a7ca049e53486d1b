// SPDX-License-Identifier: Apache-2.0
// An operator as the graph language sees it.  ops/ makes one for each record; rules that need more
// than the language (arithmetic facts) reach it through TypeContext.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/module.h"

namespace relaxvm::ir {

// What an operator does besides computing its result.
enum class Effect : uint8_t {
  kPure,       // nothing: may be merged, moved, removed, evaluated at compile time
  kAllocates,  // pure, but every call gives a new object: may be removed, not merged
  kImpure,     // keeps its place and its number of calls
};

// Facts that type rules may ask for.  Implemented over arith::Analyzer (ops/type_context.h).
class TypeContext {
 public:
  virtual ~TypeContext() = default;
  virtual Expr Simplify(const Expr& e) = 0;
  virtual bool ProveEqual(const Expr& a, const Expr& b) = 0;
  // Is the bool expression true for every value of its variables (dimensions are at least 0)?
  virtual bool Prove(const Expr& condition) = 0;
};

class OpObj;
using TypeRule = std::function<Type(const class Call&, TypeContext&)>;
// Checks and completes a call right after it was built (call_tir: arguments as a tuple).
using NormalizeRule = std::function<Call(const Call&)>;

class OpObj : public ExprObj {
 public:
  ffi::String name;  // "relax.nn.softmax"
  ffi::String description;
  int64_t num_inputs = 0;  // -1: any number
  Effect effect = Effect::kPure;
  TypeRule type_rule;
  NormalizeRule normalize;       // may be empty
  const void* record = nullptr;  // the OpDef, for ops/

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindUniqueInstance;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.Op", OpObj, ExprObj);
};
class Op : public Expr {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Op, Expr, OpObj);
};

// The record of the operator that `call` calls; null when it calls something else.
inline const OpObj* CalledOp(const CallObj* call) { return call->op.as<OpObj>(); }

}  // namespace relaxvm::ir
