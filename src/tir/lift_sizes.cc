// SPDX-License-Identifier: Apache-2.0
// Shapes, bounds and factors of indices become variables, equal ones the same one.
#include "tir/lift_sizes.h"

#include <algorithm>
#include <string>

#include "tir/functor.h"

namespace relaxvm::tir {
namespace {

// Is all of the program plain loops over memory?
class PlainLoops : public StmtVisitor {
 public:
  bool holds = true;

  void VisitFor(const ForObj* loop) override {
    holds &= loop->kind == ForKind::kSerial || loop->kind == ForKind::kParallel;
    StmtVisitor::VisitFor(loop);
  }
  void VisitType(const ir::Type& type) override {
    const auto* buffer = type.as<BufferTypeObj>();
    holds &= buffer == nullptr || buffer->storage_scope == "global";
    StmtVisitor::VisitType(type);
  }
  void VisitRamp(const ir::RampObj*) override { holds = false; }
  void VisitBroadcast(const ir::BroadcastObj*) override { holds = false; }
  void VisitShuffle(const ir::ShuffleObj*) override { holds = false; }
};

class SizeLifter : public StmtMutator {
 public:
  explicit SizeLifter(std::vector<Var>* names) : names_(names) {}

  std::vector<int64_t> values;

  Expr MutateImm(const Expr& e) override {
    // 0 and 1 say what kind of program this is: a dimension that is broadcast, a step.
    const auto* number = e.as<ir::IntImmObj>();
    if (stays_ || number == nullptr || number->value < 2 || e.dtype() != Int(64)) return e;
    auto known = std::find(values.begin(), values.end(), number->value);
    const auto place = static_cast<size_t>(known - values.begin());
    if (known == values.end()) values.push_back(number->value);
    if (place == names_->size()) names_->push_back(Var("size" + std::to_string(place), Int(64)));
    return (*names_)[place];
  }
  // A division by a constant is a multiplication; one by a variable takes several times as long as
  // moving an element.
  Expr MutateBinary(const ir::Binary& e) override {
    if (e->op != ir::BinaryOp::kFloorDiv && e->op != ir::BinaryOp::kFloorMod &&
        e->op != ir::BinaryOp::kDiv && e->op != ir::BinaryOp::kMod)
      return StmtMutator::MutateBinary(e);
    Expr a = Mutate(e->a);
    Expr b = WithNumbers([&] { return Mutate(e->b); });
    return a.same_as(e->a) && b.same_as(e->b) ? Expr(e) : ir::Binary(e->op, a, b, e->span);
  }
  // Some arguments must be numbers.
  Expr MutateIntrin(const ir::IntrinExpr& e) override {
    return WithNumbers([&] { return StmtMutator::MutateIntrin(e); });
  }

 private:
  template <typename Rewrite>
  Expr WithNumbers(const Rewrite& rewrite) {
    const bool outer = std::exchange(stays_, true);
    Expr result = rewrite();
    stays_ = outer;
    return result;
  }

  std::vector<Var>* names_;
  bool stays_ = false;
};

}  // namespace

LiftedSizes LiftSizes(const PrimFunc& program, std::vector<Var>* names) {
  PlainLoops plain;
  plain.Visit(program);
  if (!plain.holds) return {program, {}};
  SizeLifter lifter(names);
  auto lifted = lifter.Mutate(program).as<PrimFunc>().value();
  if (lifter.values.empty()) return {program, {}};
  ffi::Array<Var> params(names->begin(),
                         names->begin() + static_cast<int64_t>(lifter.values.size()));
  for (const Var& param : lifted->params) params.push_back(param);
  return {PrimFunc(params, lifted->body, lifted->attrs, lifted->span), std::move(lifter.values)};
}

}  // namespace relaxvm::tir
