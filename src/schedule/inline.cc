// SPDX-License-Identifier: Apache-2.0
// InlineStages: temporaries whose formula can stand in their users disappear; InlineLoads: those
// that only move data.
#include <unordered_map>
#include <unordered_set>

#include "schedule/access.h"
#include "schedule/stage.h"

namespace relaxvm::schedule {
namespace {

using ir::BinaryObj;
using ir::BinaryOp;
using tir::BufferLoad;
using tir::BufferLoadObj;

constexpr int kCheap = 6;
// What only moves data may stand in several users up to this cost: a chain of gathers whose places
// are read several times each would otherwise grow by that factor at every link.
constexpr int kCheapToMove = 32;

// Moves data without computing: a load, or one of several chosen by position, or padding.
bool OnlyMovesData(const Expr& e) {
  if (e.as<BufferLoadObj>() || e.as<ir::IntImmObj>() || e.as<ir::FloatImmObj>()) return true;
  if (const auto* s = e.as<ir::SelectObj>())
    return OnlyMovesData(s->true_value) && OnlyMovesData(s->false_value);
  if (const auto* i = e.as<ir::IntrinObj>(); i != nullptr && i->intrin == ir::Intrin::kIfThenElse) {
    return OnlyMovesData(i->args[1]) && OnlyMovesData(i->args[2]);
  }
  return false;
}

// out[axes...]: each axis once, in order, over the whole buffer.
bool StoresEveryElementInOrder(const Stage& s, arith::Analyzer* analyzer) {
  if (s.indices.size() != s.spatial.size()) return false;
  for (size_t i = 0; i < s.indices.size(); ++i) {
    if (!s.indices[i].same_as(s.spatial[i].var)) return false;
    if (!analyzer->ProveEqual(s.spatial[i].extent, s.out->shape()[i])) return false;
  }
  return true;
}

int CountLoads(const Expr& e, const Var& buffer) {
  int count = 0;
  tir::PostOrderVisit(tir::Evaluate(e), [&](const ffi::ObjectRef& node) {
    const auto* load = node.as<BufferLoadObj>();
    count += load != nullptr && load->buffer.same_as(buffer);
  });
  return count;
}

class LoadInliner : public tir::StmtMutator {
 public:
  explicit LoadInliner(const Stage& producer) : producer_(producer) {}
  Expr MutateBufferLoad(const BufferLoad& load) override {
    if (!load->buffer.same_as(*producer_.out)) return StmtMutator::MutateBufferLoad(load);
    ffi::Map<Var, Expr> map;
    for (size_t i = 0; i < producer_.spatial.size(); ++i)
      map.Set(producer_.spatial[i].var, Mutate(load->indices[i]));
    return tir::Substitute(producer_.value, map);
  }

 private:
  const Stage& producer_;
};

class Inliner {
 public:
  Inliner(Program program, bool only_loads)
      : program_(std::move(program)), only_loads_(only_loads) {
    for (const Buffer& b : program_.temps) temps_.insert(b.get());
  }

  Program Run() {
    for (size_t i = 0; i < program_.stages.size();) {
      if (TryInline(i))
        program_.stages.erase(program_.stages.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
    }
    std::vector<Buffer> kept;
    for (const Buffer& b : program_.temps) {
      for (const Stage& s : program_.stages) {
        if (Writes(s, b)) {
          kept.push_back(b);
          break;
        }
      }
    }
    program_.temps = std::move(kept);
    return std::move(program_);
  }

 private:
  // Puts stage `at` into its users; true when it is gone.
  bool TryInline(size_t at) {
    const Stage producer = program_.stages[at];
    if (producer.IsOpaque() || producer.combine != Combine::kNone ||
        !temps_.count(producer.out->get()))
      return false;
    if (only_loads_ && !producer.value.as<BufferLoadObj>()) return false;
    if (!StoresEveryElementInOrder(producer, &analyzer_)) return false;
    int uses = 0;
    std::vector<size_t> users;
    for (size_t i = 0; i < program_.stages.size(); ++i) {
      const Stage& s = program_.stages[i];
      if (i == at) continue;
      if (Writes(s, *producer.out)) return false;
      if (s.IsOpaque()) {
        for (const Var& read : ReadsOf(s)) {
          if (read.same_as(*producer.out)) return false;
        }
        continue;
      }
      const int loads = CountLoads(s.value, *producer.out);
      if (loads == 0) continue;
      // A grouped convolution is a contraction once its channels are split by group.
      if (!producer.value.as<BufferLoadObj>() && IsContraction(SplitAxes(s, &analyzer_)))
        return false;
      uses += loads;
      users.push_back(i);
    }
    const int cost = CostOf(producer.value);
    const bool moves = OnlyMovesData(producer.value);
    if (uses > 1 && cost > (moves ? kCheapToMove : kCheap)) return false;
    const bool cheap = moves || cost <= kCheap;
    // A formula read over and over along an axis it does not have is computed over and over.
    if (!cheap) {
      for (size_t user : users) {
        if (program_.stages[user].spatial.size() + program_.stages[user].reduce.size() >
            producer.spatial.size())
          return false;
      }
    }
    LoadInliner inliner(producer);
    for (size_t user : users)
      program_.stages[user].value = inliner.Mutate(program_.stages[user].value);
    return true;
  }

  Program program_;
  bool only_loads_;
  arith::Analyzer analyzer_;
  std::unordered_set<const ffi::Object*> temps_;
};

}  // namespace

int CostOf(const Expr& e) {
  int cost = 0;
  tir::PostOrderVisit(tir::Evaluate(e), [&](const ffi::ObjectRef& node) {
    if (const auto* binary = node.as<BinaryObj>()) {
      if (!IsFloat(binary->a.dtype())) return;  // index arithmetic
      cost += binary->op == BinaryOp::kDiv || binary->op == BinaryOp::kMod ? 6 : 1;
    } else if (const auto* intrin = node.as<ir::IntrinObj>()) {
      switch (intrin->intrin) {
        case ir::Intrin::kNot:
        case ir::Intrin::kNeg:
        case ir::Intrin::kAbs:
        case ir::Intrin::kIfThenElse:
        case ir::Intrin::kLikely:
        case ir::Intrin::kReinterpret: cost += 1; break;
        case ir::Intrin::kFma: cost += 2; break;
        default: cost += 20; break;  // polynomials, square roots
      }
    } else if (node.as<BufferLoadObj>()) {
      cost += 1;
    }
  });
  return cost;
}

Program InlineStages(Program program) { return Inliner(std::move(program), false).Run(); }
Program InlineLoads(Program program) { return Inliner(std::move(program), true).Run(); }

std::optional<GuardedProduct> ProductOf(const Expr& value) {
  auto is_zero = [](const Expr& e) {
    const auto* number = e.as<ir::FloatImmObj>();
    return ir::IsIntValue(e, 0) || (number != nullptr && number->value == 0);
  };
  const Expr& whole = StripCasts(value);
  const auto* choice = whole.as<ir::IntrinObj>();
  const bool guarded = choice != nullptr && choice->intrin == ir::Intrin::kIfThenElse &&
                       is_zero(StripCasts(choice->args[2]));
  const auto* times = (guarded ? StripCasts(choice->args[1]) : whole).as<BinaryObj>();
  if (times == nullptr || times->op != BinaryOp::kMul) return std::nullopt;
  return GuardedProduct{times->a, times->b, guarded ? choice->args[0] : Expr()};
}

bool IsContraction(const Stage& stage) {
  if (stage.IsOpaque() || stage.combine != Combine::kSum || stage.reduce.empty()) return false;
  const std::optional<GuardedProduct> product = ProductOf(stage.value);
  if (!product.has_value()) return false;
  bool left_only = false, right_only = false, shared = false;
  bool asks_left = false, asks_right = false;  // the guard, for rows or columns
  for (const Axis& axis : stage.spatial) {
    const bool left = UsesVar(product->a, axis.var), right = UsesVar(product->b, axis.var);
    left_only = left_only || (left && !right);
    right_only = right_only || (right && !left);
    if (!product->guard.defined() || !UsesVar(product->guard, axis.var)) continue;
    asks_left = asks_left || !right;
    asks_right = asks_right || !left;
  }
  if (asks_left && asks_right) return false;
  for (const Axis& axis : stage.reduce)
    shared = shared || (UsesVar(product->a, axis.var) && UsesVar(product->b, axis.var));
  return left_only && right_only && shared;
}

}  // namespace relaxvm::schedule
