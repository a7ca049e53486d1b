// SPDX-License-Identifier: Apache-2.0
// EliminateCommonSubexpr: a binding whose value was bound before becomes an alias of the earlier
// variable. Stage: any.  Keeps: effects, fresh objects (allocations, in-place calls).  Options:
// call_only, look at calls only.
#include <unordered_map>

#include "analysis/calls.h"
#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

// Values that are bound, in the scopes that see them.
class KnownValues {
 public:
  // A value that only a MatchCast to the same type equals carries that type.
  struct Entry {
    Expr value;
    ir::Type cast;  // null for a plain binding
    Var var;
    int64_t epoch = -1;  // set when it is added
  };

  ffi::Optional<Var> Find(uint64_t hash, const Expr& value, const ir::Type& cast) const {
    auto [begin, end] = entries_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      const Entry& e = it->second;
      if (e.epoch == epoch_ && e.cast.defined() == cast.defined() &&
          ir::StructuralEqual(e.value, value) &&
          (!cast.defined() || ir::StructuralEqual(e.cast, cast))) {
        return e.var;
      }
    }
    return std::nullopt;
  }
  void Add(uint64_t hash, Entry entry) {
    if (entry.epoch < 0) entry.epoch = epoch_;
    added_.push_back(entries_.emplace(hash, std::move(entry)));
  }

  // From here on tensors may hold other numbers: what was computed from them is not known any more.
  void BeginEpoch() { ++epoch_; }
  int64_t epoch() const { return epoch_; }

  size_t Mark() const { return added_.size(); }
  void Forget(size_t mark) {
    for (; added_.size() > mark; added_.pop_back()) entries_.erase(added_.back());
  }
  // Forgets variables that are visible only inside the dataflow block that was entered at `mark`.
  void LeaveDataflow(size_t mark) {
    size_t kept = mark;
    for (size_t i = mark; i < added_.size(); ++i) {
      if (added_[i]->second.var.as<ir::DataflowVarObj>()) {
        entries_.erase(added_[i]);
      } else {
        added_[kept++] = added_[i];
      }
    }
    added_.resize(kept);
  }

 private:
  using Map = std::unordered_multimap<uint64_t, Entry>;
  Map entries_;
  std::vector<Map::iterator> added_;
  int64_t epoch_ = 0;
};

class Eliminator : public ir::Mutator {
 public:
  explicit Eliminator(bool call_only) : call_only_(call_only) {}

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    if (!block.as<ir::DataflowBlockObj>()) return ir::Mutator::MutateBlock(block);
    size_t mark = known_.Mark();
    auto outer_inside = std::exchange(inside_, {});
    auto outer_exported = std::exchange(exported_, {});
    ir::BindingBlock out = ir::Mutator::MutateBlock(block);
    known_.LeaveDataflow(mark);
    // Outside, a variable that is visible there stands for the values that inner ones stood for.
    for (auto& [hash, entry] : exported_) known_.Add(hash, std::move(entry));
    inside_ = std::move(outer_inside);
    exported_ = std::move(outer_exported);
    return out;
  }

  // What a branch or a local function binds ends with it.
  Expr MutateSeq(const ir::SeqExpr& seq) override {
    size_t mark = known_.Mark();
    Expr out = ir::Mutator::MutateSeq(seq);
    known_.Forget(mark);
    return out;
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    ffi::Array<ir::Binding> rewritten;
    ir::Mutator::MutateBinding(binding, &rewritten);
    RELAXVM_CHECK(rewritten.size() == 1);
    const ir::Binding& now = rewritten[0];
    ir::Type cast = now.as<ir::MatchCastObj>() ? now.as<ir::MatchCastObj>()->ty : ir::Type();
    if (analysis::HasEffect(now->value) || analysis::OverwritesArguments(now->value))
      known_.BeginEpoch();
    if (!MayShare(now->value, cast)) {
      out->push_back(now);
      return;
    }
    uint64_t hash = ir::StructuralHash(now->value);
    ffi::Optional<Var> earlier = known_.Find(hash, now->value, cast);
    if (!earlier || !SameType((*earlier)->ty, now->var->ty)) {
      known_.Add(hash, {now->value, cast, now->var});
      out->push_back(now);
      return;
    }
    out->push_back(ir::VarBinding(now->var, *earlier, now->span));
    bool leaves_block = !now->var.as<ir::DataflowVarObj>() && (*earlier).as<ir::DataflowVarObj>();
    if (leaves_block) {
      exported_.emplace_back(hash, KnownValues::Entry{now->value, cast, now->var, known_.epoch()});
      // Inside the block the earlier one serves; outside only this one is visible.
      inside_.Set(binding->var, *earlier);
    } else {
      Replace(binding->var, *earlier);
    }
  }

  Expr MutateVar(const Var& v) override {
    if (auto it = inside_.find(v); it != inside_.end()) return (*it).second;
    return ir::Mutator::MutateVar(v);
  }

 private:
  bool MayShare(const Expr& value, const ir::Type& cast) const {
    if (analysis::HasEffect(value) || analysis::GivesNewObject(value)) return false;
    if (value.as<ir::CallObj>()) return true;
    // Only a cast that checks without binding new sizes says the same twice; structural equality
    // sees to that.
    if (cast.defined()) return !call_only_;
    return !call_only_ && (value.as<ir::TupleObj>() || value.as<ir::TupleGetItemObj>());
  }

  static bool SameType(const ir::Type& a, const ir::Type& b) {
    return a.same_as(b) || ir::StructuralEqual(a, b);
  }

  bool call_only_;
  KnownValues known_;
  ffi::Map<Var, Expr> inside_;  // for uses inside the dataflow block that is being rewritten
  std::vector<std::pair<uint64_t, KnownValues::Entry>> exported_;
};

}  // namespace

IRModule EliminateCommonSubexpr(IRModule mod, const PassContext& context) {
  bool call_only = context.Option<bool>("call_only");
  return ir::MutateFunctions(std::move(mod), [&](const ir::GlobalVar&, const ir::Function& f) {
    return Eliminator(call_only).Mutate(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
