// SPDX-License-Identifier: Apache-2.0
// Builds functions in normal form: every argument is a leaf (variable, constant, immediate, shape),
// every value has a type.  Emitting an expression binds it, infers its type and returns the
// variable.
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "ir/op.h"
#include "ir/visitor.h"

namespace relaxvm::ir {

class BlockBuilder {
 public:
  // `context` answers the questions of type rules and outlives the builder.
  explicit BlockBuilder(TypeContext* context, IRModule mod = IRModule());
  ~BlockBuilder();

  // ---- blocks: BeginBlock(...); Emit...; EndBlock()
  void BeginBlock(bool dataflow);
  BindingBlock EndBlock();
  bool InDataflow() const;

  // Binds `value`; a DataflowVar inside a dataflow block.  Types of `value` are inferred.
  Var Emit(Expr value, ffi::String name_hint = "");
  // Binds `value` to a variable that is visible outside the dataflow block.
  Var EmitOutput(Expr value, ffi::String name_hint = "");
  Var EmitMatchCast(Expr value, Type ty, ffi::String name_hint = "");
  // Adds a binding as it is; its value must already be normal.
  void EmitBinding(Binding binding);

  // `e` in normal form: nested parts are emitted into the current block; the result has a type.
  Expr Normalize(Expr e);
  // `e` as an argument: a leaf, bound first when it is not one.
  Expr NormalizeArgument(Expr e);
  // The type that the rules give `e`, whose parts have types.
  Type InferType(const Expr& e);

  // ---- module
  GlobalVar AddFunction(BaseFunc func, ffi::String name_hint);  // equal functions are added once
  void UpdateFunction(const GlobalVar& var, BaseFunc func);
  const IRModule& module() const { return mod_; }
  ffi::String UniqueName(ffi::String hint);
  // The value bound to `var` by this builder; null when unknown.
  Expr LookupBinding(const Var& var) const;
  TypeContext* context() const { return context_; }

 private:
  struct Block {
    bool dataflow;
    ffi::Array<Binding> bindings;
  };
  Var EmitAs(bool output, Expr value, ffi::String name_hint);
  Expr NormalizeCall(const Call& call);
  Expr NormalizeIf(const If& e);
  Expr NormalizeMatch(const Match& e);
  Expr NormalizeFunction(const Function& f);
  SeqExpr NormalizeScope(const Expr& e);
  TypeContext* context_;
  IRModule mod_;
  std::vector<Block> blocks_;
  std::unordered_map<const ffi::Object*, Expr> bound_;
  std::unordered_map<std::string, int> names_;
  std::unordered_map<uint64_t, std::vector<GlobalVar>>
      by_hash_;  // functions added, by structural hash
};

// The least type that both `a` and `b` are: what an If gives.
Type LeastCommonType(const Type& a, const Type& b, TypeContext& context);
// Forgets what refers to symbolic variables outside `visible` (a function's result seen by its
// caller).
Type EraseToVisible(const Type& type, const std::function<bool(const Var&)>& visible);
// How well `value` fits `expected`: surely not / only with a run-time check / surely.
enum class TypeFit { kNever, kCheck, kAlways };
TypeFit FitsType(const Type& expected, const Type& value, TypeContext& context);
// Result of calling a function of type `func` with `args`: binds its symbolic variables from the
// arguments' types.
Type CallResultType(const FuncType& func, const Call& call, TypeContext& context);
// Result of calling `constructor`: its type parameters follow from the arguments' types.
Type ConstructorResultType(const Constructor& constructor, const Call& call, TypeContext& context);
// The type of a value that is given, not computed: constants, shapes, tuples.
Type TypeOfConstant(const ffi::Tensor& data);

}  // namespace relaxvm::ir
