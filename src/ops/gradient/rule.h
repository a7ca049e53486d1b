// SPDX-License-Identifier: Apache-2.0
// How the gradient of an operator's result becomes the gradients of its arguments.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/block_builder.h"
#include "ops/op_def.h"

namespace relaxvm::ops {

// What a rule sees.  Steps that it needs are bound by Step(); what it returns is bound by the
// caller, so the last step of a gradient is made by Make().
class GradientCall {
 public:
  // `out`: the result's variable; `grad`: the gradient of it, of the same type.
  GradientCall(ir::BlockBuilder& builder, Expr out, Call call, Expr grad)
      : out(std::move(out)), call(std::move(call)), grad(std::move(grad)), builder_(builder) {}

  const Expr out;
  const Call call;
  const Expr grad;

  Expr arg(size_t i) const { return call->args[i]; }
  using AttrMap = ffi::Map<ffi::String, ffi::Any>;
  Expr Make(const char* op, ffi::Array<Expr> args, const AttrMap& attrs = {}) const;
  Expr Step(const char* op, ffi::Array<Expr> args, const AttrMap& attrs = {}) const;
  Expr Step(const Expr& value) const { return builder_.Emit(value); }
  // A constant of an argument's element type.
  Expr Number(double value, size_t like = 0) const;

  const ir::TensorTypeObj* Tensor(size_t i) const;  // the type of an argument; error when no tensor
  int64_t Rank(size_t i) const;                     // error when unknown
  Dims Shape(size_t i) const;                       // error when unknown
  // `grad` summed over what broadcasting repeated: of argument i's shape.
  Expr Fit(Expr grad, size_t i) const;
  // The product of dimensions as a number of argument i's element type.
  Expr Count(const Dims& dims, size_t i) const;
  // The value of an attribute that may be None.
  template <typename T>
  std::optional<T> MaybeAttr(const char* name) const {
    return AttrOf<std::optional<T>>(call, name);
  }
  ir::BlockBuilder& builder() const { return builder_; }

 private:
  [[noreturn]] void FailUnknown(size_t i, const char* what) const;
  ir::BlockBuilder& builder_;
};

// For each argument its gradient; null where none is defined (indices, conditions, shapes).  Of an
// argument that is a tuple, a tuple.
using GradientRule = Exprs (*)(const GradientCall& g);
struct GradientRow {
  const char* op;  // without "relax."
  GradientRule rule;
};

// Null when the operator has no rule.
GradientRule FindGradientRule(const ir::OpObj* op);

// What a rule from outside gives: bindings, then for each argument its gradient or null; the module
// has the functions that both name.
struct OutsideGradient {
  ir::BindingBlock block;
  Exprs grads;
  ir::IRModule mod;
};
using OutsideGradientRule = std::function<OutsideGradient(
    const Expr& out, const Call& call, const Expr& grad, const ir::IRModule& mod)>;

// A rule that Gradient asks before its own, for any operator; an empty one takes it away.
void SetOutsideGradient(const std::string& op, OutsideGradientRule rule);
// Empty when there is none.
OutsideGradientRule FindOutsideGradient(const std::string& op);

// The families, one file each.
std::vector<GradientRow> ActivationGradients();
std::vector<GradientRow> ElementwiseGradients();
std::vector<GradientRow> MoveGradients();
std::vector<GradientRow> NeuralGradients();
std::vector<GradientRow> NormGradients();
std::vector<GradientRow> ReductionGradients();
std::vector<GradientRow> ShapeGradients();
std::vector<GradientRow> WindowGradients();

}  // namespace relaxvm::ops
