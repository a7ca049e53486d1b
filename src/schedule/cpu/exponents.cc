// SPDX-License-Identifier: Apache-2.0
// KnowExponents: exp(x - m), where m is the greatest of the x, needs no care for large arguments.
#include <algorithm>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoadObj;

// `e` without a cast to a type that has all of its values.
Expr BeforeWidening(const Expr& e) {
  const auto* cast = e.as<ir::CastObj>();
  const bool widens = cast != nullptr && IsFloat(cast->value.dtype()) && IsFloat(e.dtype()) &&
                      SizeInBytes(cast->value.dtype()) < SizeInBytes(e.dtype());
  return widens ? cast->value : e;
}

class Knower : public tir::StmtMutator {
 public:
  Knower(const Program& program, const Stage& stage) : program_(program), stage_(stage) {}

  Expr MutateIntrin(const ir::IntrinExpr& call) override {
    Expr result = tir::StmtMutator::MutateIntrin(call);
    const auto* exp = result.as<ir::IntrinObj>();
    if (exp == nullptr || exp->intrin != ir::Intrin::kExp) return result;
    const auto* difference = exp->args[0].as<ir::BinaryObj>();
    if (difference == nullptr || difference->op != ir::BinaryOp::kSub ||
        !IsOneOfThose(difference->a, difference->b))
      return result;
    return ir::CallIntrin(ir::Intrin::kExpOfNegative, {exp->args[0]});
  }

 private:
  // Is `greatest` the maximum of values that `value` is one of?
  bool IsOneOfThose(const Expr& value, const Expr& greatest) {
    const Expr plain = BeforeWidening(greatest);
    const auto* load = plain.as<BufferLoadObj>();
    if (load == nullptr || load->predicate.defined()) return false;
    const Stage* maximum = nullptr;
    for (const Stage& s : program_.stages) {
      if (!s.out.has_value() || !load->buffer.same_as(*s.out)) continue;
      if (maximum != nullptr) return false;
      maximum = &s;
    }
    if (maximum == nullptr || maximum->combine != Combine::kMax || maximum->reduce.size() != 1 ||
        maximum->finish.defined() || maximum->indices.size() != load->indices.size() ||
        IsWrittenSince(*maximum, value))
      return false;
    ffi::Map<Var, Expr> map;
    for (size_t i = 0; i < maximum->indices.size(); ++i) {
      const auto var = maximum->indices[i].as<Var>();
      if (!var.has_value()) return false;
      map.Set(*var, load->indices[i]);
    }
    const Axis& along = maximum->reduce[0];
    std::vector<Axis> axes = stage_.spatial;
    axes.insert(axes.end(), stage_.reduce.begin(), stage_.reduce.end());
    return std::any_of(axes.begin(), axes.end(), [&](const Axis& axis) {
      if (!analyzer_.ProveEqual(axis.extent, along.extent)) return false;
      map.Set(along.var, axis.var);
      const Expr one = tir::Substitute(maximum->value, map);
      return AreSameLoads(one, value) || AreSameLoads(one, BeforeWidening(value));
    });
  }

  // Are these perhaps other values by now than those that `maximum` read?
  bool IsWrittenSince(const Stage& maximum, const Expr& value) const {
    const auto* load = BeforeWidening(value).as<BufferLoadObj>();
    if (load == nullptr || &maximum >= &stage_) return true;
    return std::any_of(&maximum + 1, &stage_, [&](const Stage& s) {
      return s.IsOpaque() || (s.out.has_value() && load->buffer.same_as(*s.out));
    });
  }

  bool AreSameLoads(const Expr& a, const Expr& b) {
    const auto *x = a.as<BufferLoadObj>(), *y = b.as<BufferLoadObj>();
    if (x == nullptr || y == nullptr || !x->buffer.same_as(y->buffer) || x->predicate.defined() ||
        y->predicate.defined())
      return false;
    for (size_t i = 0; i < x->indices.size(); ++i) {
      if (!analyzer_.ProveEqual(x->indices[static_cast<int64_t>(i)],
                                y->indices[static_cast<int64_t>(i)]))
        return false;
    }
    return true;
  }

  const Program& program_;
  const Stage& stage_;
  arith::Analyzer analyzer_;
};

}  // namespace

Program KnowExponents(Program program) {
  std::vector<Expr> values;
  for (const Stage& stage : program.stages)
    values.push_back(stage.IsOpaque() ? Expr() : Knower(program, stage).Mutate(stage.value));
  for (size_t i = 0; i < values.size(); ++i) program.stages[i].value = values[i];
  return program;
}

}  // namespace relaxvm::schedule::cpu
