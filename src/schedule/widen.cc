// SPDX-License-Identifier: Apache-2.0
// WidenHalves: formulas that compute with float16 or bfloat16 compute with float32.
//
// Machines convert: each operation on halves would widen its operands and round its result.  A
// chain of them rounds once instead, when it is stored; casts that stand in the formulas keep
// rounding.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "schedule/stage.h"

namespace relaxvm::schedule {
namespace {

using ir::Intrin;
using tir::BufferLoad;
using tir::BufferLoadObj;

bool IsHalf(DLDataType type) { return IsFloat(type) && type.bits == 16; }

// `value` as the nearest number that `type` has.
double Rounded(double value, DLDataType type) {
  if (!std::isfinite(value) || value == 0) return value;
  const int digits = IsBFloat(type) ? 8 : 11, least = IsBFloat(type) ? -126 : -14;
  const int exponent = std::max(std::ilogb(value), least) - (digits - 1);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
  const double greatest = IsBFloat(type) ? 0x1.fep127 : 65504;
  return std::abs(rounded) > greatest ? std::copysign(INFINITY, value) : rounded;
}

// Computes element by element; its result has the type of its operands.
bool IsArithmetic(const ir::IntrinObj* e) {
  switch (e->intrin) {
    case Intrin::kReinterpret:
    case Intrin::kReduceAdd:
    case Intrin::kReduceMul:
    case Intrin::kReduceMin:
    case Intrin::kReduceMax: return false;
    default: break;
  }
  for (const Expr& arg : e->args) {
    if (!IsHalf(arg.dtype())) return false;
  }
  return !e->args.empty();
}

class Widener : public tir::StmtMutator {
 public:
  // Temporaries of halves that are kept in float32.
  std::unordered_map<const ffi::Object*, Buffer> kept_wide;

  // The value of a formula of halves, in float32.
  Expr Wide(const Expr& e) {
    const DLDataType wide = Float(32, e.dtype().lanes);
    if (const auto* imm = e.as<ir::FloatImmObj>())
      return ir::ConstFloat(wide, Rounded(imm->value, e.dtype()));
    if (const auto* load = e.as<BufferLoadObj>()) {
      if (auto kept = kept_wide.find(load->buffer.get()); kept != kept_wide.end())
        return BufferLoad(kept->second, MutateAll(load->indices), load->predicate, load->span);
    }
    if (const auto* binary = e.as<ir::BinaryObj>(); binary != nullptr)
      return ir::Make(binary->op, Wide(binary->a), Wide(binary->b), binary->span);
    if (const auto* choice = e.as<ir::SelectObj>()) {
      return ir::Select(Mutate(choice->condition), Wide(choice->true_value),
                        Wide(choice->false_value));
    }
    if (const auto* call = e.as<ir::IntrinObj>()) {
      if (call->intrin == Intrin::kIfThenElse)
        return ir::IfThenElse(Mutate(call->args[0]), Wide(call->args[1]), Wide(call->args[2]));
      if (IsArithmetic(call))
        return ir::CallIntrin(call->intrin, call->args.Map([&](const Expr& a) { return Wide(a); }));
    }
    return ir::Cast(wide, Mutate(e));
  }

  Expr MutateBinary(const ir::Binary& e) override {
    if (!IsHalf(e->a.dtype())) return StmtMutator::MutateBinary(e);
    if (IsHalf(e.dtype())) return ir::Cast(e.dtype(), Wide(e));
    return ir::Make(e->op, Wide(e->a), Wide(e->b), e->span);
  }
  Expr MutateCast(const ir::CastExpr& e) override {
    return IsHalf(e->value.dtype()) && Computes(e->value) ? ir::Cast(e.dtype(), Wide(e->value))
                                                          : StmtMutator::MutateCast(e);
  }
  Expr MutateSelect(const ir::SelectExpr& e) override {
    return IsHalf(e.dtype()) && Computes(e) ? ir::Cast(e.dtype(), Wide(e))
                                            : StmtMutator::MutateSelect(e);
  }
  Expr MutateIntrin(const ir::IntrinExpr& e) override {
    if (IsHalf(e.dtype()) && Computes(e)) return ir::Cast(e.dtype(), Wide(e));
    if (IsHalf(e.dtype()) || !IsArithmetic(e.get())) return StmtMutator::MutateIntrin(e);
    return ir::CallIntrin(e->intrin, e->args.Map([&](const Expr& a) { return Wide(a); }));
  }
  Expr MutateBufferLoad(const BufferLoad& load) override {
    return kept_wide.count(load->buffer.get()) ? ir::Cast(load.dtype(), Wide(load))
                                               : StmtMutator::MutateBufferLoad(load);
  }

  // Is there more to a formula of halves than choosing what to move?
  bool Computes(const Expr& e) const {
    if (const auto* choice = e.as<ir::SelectObj>())
      return Computes(choice->true_value) || Computes(choice->false_value);
    if (const auto* load = e.as<BufferLoadObj>()) return kept_wide.count(load->buffer.get()) > 0;
    if (const auto* call = e.as<ir::IntrinObj>()) {
      if (call->intrin == Intrin::kIfThenElse)
        return Computes(call->args[1]) || Computes(call->args[2]);
      return IsArithmetic(call);
    }
    return e.as<ir::BinaryObj>() != nullptr;
  }
};

}  // namespace

Program WidenHalves(Program program) {
  Widener widener;
  auto is_opaque_use = [&](const Var& buffer) {
    for (const Stage& stage : program.stages) {
      if (!stage.IsOpaque()) continue;
      for (const Var& read : ReadsOf(stage)) {
        if (read.same_as(buffer)) return true;
      }
      if (Writes(stage, buffer)) return true;
    }
    return false;
  };
  auto is_choice = [](const Stage& stage) {
    return !stage.IsOpaque() && IsHalf(stage.value.dtype()) &&
           (stage.combine == Combine::kMin || stage.combine == Combine::kMax);
  };
  // What is moved to where several sums find it (padded data) is widened on its way.
  auto moves_to_sums = [&](const Buffer& temp) {
    bool moves = false, sums = false;
    for (const Stage& stage : program.stages) {
      if (stage.IsOpaque()) continue;
      if (stage.out->same_as(temp)) {
        if (stage.combine != Combine::kNone || widener.Computes(stage.value)) return false;
        moves = true;
      } else if (stage.combine != Combine::kNone) {
        for (const Var& read : ReadsOf(stage)) sums = sums || read.same_as(temp);
      }
    }
    return moves && sums;
  };
  for (Buffer& temp : program.temps) {
    // Pairs of bfloat16 may have an instruction.
    bool wide = temp.elem_dtype() == Float(16) && moves_to_sums(temp);
    for (const Stage& stage : program.stages)
      wide = wide || (is_choice(stage) && stage.out->same_as(temp));
    if (!wide || is_opaque_use(temp)) continue;
    const Buffer kept(temp->name, temp.shape(), Float(32), temp.type()->storage_scope);
    widener.kept_wide.emplace(temp.get(), kept);
    temp = kept;
  }
  for (Stage& stage : program.stages) {
    if (stage.IsOpaque()) continue;
    const auto kept = widener.kept_wide.find(stage.out->get());
    if (is_choice(stage)) {
      const DLDataType type = stage.value.dtype();
      stage.value = widener.Wide(stage.value);
      stage.identity = widener.Wide(stage.identity);
      if (kept == widener.kept_wide.end()) {
        stage.reduced = Var("reduced", Float(32));
        stage.finish = ir::Cast(type, stage.reduced);
      }
    } else if (kept != widener.kept_wide.end()) {
      stage.value = widener.Wide(stage.value);
    } else {
      stage.value = widener.Mutate(stage.value);
    }
    if (kept != widener.kept_wide.end()) stage.out = kept->second;
  }
  return program;
}

}  // namespace relaxvm::schedule
