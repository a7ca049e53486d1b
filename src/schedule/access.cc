// SPDX-License-Identifier: Apache-2.0
// Flat offsets, linear forms, and collapsing of axes.
#include "schedule/access.h"

#include <unordered_set>

namespace relaxvm::schedule {
namespace {

using ir::BinaryObj;
using ir::BinaryOp;
using tir::BufferLoad;
using tir::BufferLoadObj;

class Flattener : public tir::StmtMutator {
 public:
  explicit Flattener(arith::Analyzer* analyzer) : analyzer_(analyzer) {}
  Expr MutateBufferLoad(const BufferLoad& load) override {
    ffi::Array<Expr> indices = MutateAll(load->indices);
    Expr offset = analyzer_->Simplify(FlatOffset(Buffer(load->buffer), indices));
    return BufferLoad(load->buffer, {offset}, load->predicate, load->span);
  }

 private:
  arith::Analyzer* analyzer_;
};

// Every load of a formula.
std::vector<const BufferLoadObj*> LoadsOf(const Expr& value) {
  std::vector<const BufferLoadObj*> loads;
  tir::PostOrderVisit(tir::Evaluate(value), [&](const ffi::ObjectRef& node) {
    if (const auto* load = node.as<BufferLoadObj>()) loads.push_back(load);
  });
  return loads;
}

// Does `var` occur outside of the offsets of loads?  Comparisons with something that does not
// depend on the stage's axes can be passed over: a range of rows is a range of elements as well.
class UseOutsideLoads : public tir::StmtVisitor {
 public:
  UseOutsideLoads(const Var& var, const std::vector<Axis>* axes) : var_(var), axes_(axes) {}
  bool found = false;
  void VisitBufferLoad(const BufferLoadObj*) override {}
  void VisitVar(const ir::VarObj* v) override { found = found || v == var_.get(); }
  void VisitBinary(const BinaryObj* b) override {
    if (axes_ != nullptr && IsRange(b, var_, *axes_)) return;
    StmtVisitor::VisitBinary(b);
  }
  // var >= e  or  var < e
  static bool IsRange(const BinaryObj* b, const Var& var, const std::vector<Axis>& axes) {
    return (b->op == BinaryOp::kGE || b->op == BinaryOp::kLT) && b->a.same_as(var) &&
           !UsesAny(b->b, axes);
  }

 private:
  const Var& var_;
  const std::vector<Axis>* axes_;
};

// i >= e  ->  r >= e * n,   i < e  ->  r < e * n   for r = i * n + j
class RangeScaler : public tir::StmtMutator {
 public:
  RangeScaler(const Var& outer, const Axis& merged, Expr n, const std::vector<Axis>& axes)
      : outer_(outer), merged_(merged), n_(std::move(n)), axes_(axes) {}
  Expr MutateBinary(const ir::Binary& b) override {
    if (!UseOutsideLoads::IsRange(b.get(), outer_, axes_)) return StmtMutator::MutateBinary(b);
    return ir::Make(b->op, merged_.var, b->b * n_);
  }

 private:
  const Var& outer_;
  const Axis& merged_;
  Expr n_;
  const std::vector<Axis>& axes_;
};

// An offset with what it finds in memory as something that is given: loads are accesses of their
// own.
class LoadsGiven : public tir::StmtMutator {
 public:
  Expr MutateBufferLoad(const BufferLoad& load) override { return Var("given", load.dtype()); }
};

// i * n + j  ->  r   in every access, when i's step is always n times j's.
bool CanMerge(const Stage& stage, const Axis& outer, const Axis& inner, arith::Analyzer* analyzer) {
  for (const Axis* axis : {&outer, &inner}) {
    UseOutsideLoads use(axis->var, axis == &outer ? &stage.spatial : nullptr);
    use.Visit(stage.value);
    use.Visit(stage.finish);
    if (use.found) return false;
  }
  std::vector<Expr> offsets = {stage.indices[0]};
  for (const BufferLoadObj* load : LoadsOf(stage.value)) offsets.push_back(load->indices[0]);
  if (stage.finish.defined()) {
    for (const BufferLoadObj* load : LoadsOf(stage.finish)) offsets.push_back(load->indices[0]);
  }
  for (const Expr& offset : offsets) {
    auto linear = LinearOffset::Of(LoadsGiven().Mutate(offset), {outer, inner});
    if (!linear.has_value()) return false;
    if (!analyzer->ProveEqual(linear->Coeff(outer.var), linear->Coeff(inner.var) * inner.extent))
      return false;
  }
  return true;
}

Axis Merge(Stage* stage, const Axis& outer, const Axis& inner, arith::Analyzer* analyzer) {
  Axis merged{Var(outer.var->name + std::string("_") + std::string(inner.var->name), Int(64)),
              outer.extent * inner.extent};
  merged.extent = analyzer->Simplify(merged.extent);
  ffi::Map<Var, Expr> map;
  map.Set(outer.var, 0);
  map.Set(inner.var, merged.var);
  RangeScaler scaler(outer.var, merged, inner.extent, stage->spatial);
  stage->value = tir::Substitute(scaler.Mutate(stage->value), map);
  if (stage->finish.defined()) stage->finish = scaler.Mutate(stage->finish);
  if (stage->finish.defined()) stage->finish = tir::Substitute(stage->finish, map);
  stage->indices = {analyzer->Simplify(tir::Substitute(stage->indices[0], map))};
  return merged;
}

void CollapseList(Stage* stage, std::vector<Axis>* axes, arith::Analyzer* analyzer) {
  for (size_t i = axes->size(); i-- > 1;) {
    const Axis outer = (*axes)[i - 1], inner = (*axes)[i];
    if (!CanMerge(*stage, outer, inner, analyzer)) continue;
    (*axes)[i - 1] = Merge(stage, outer, inner, analyzer);
    axes->erase(axes->begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace

Expr FlatOffset(const Buffer& buffer, const ffi::Array<Expr>& indices) {
  const ffi::Array<Expr>& shape = buffer.shape();
  if (indices.size() != shape.size()) {  // flat already
    RELAXVM_CHECK(indices.size() == 1);
    return indices[0];
  }
  Expr offset = 0;
  for (size_t i = 0; i < shape.size(); ++i) offset = offset * shape[i] + indices[i];
  return offset;
}

Stage FlattenStage(const Stage& stage, arith::Analyzer* analyzer) {
  Stage flat = stage;
  if (stage.IsOpaque()) return flat;
  // What a batch that was broadcast and reshaped leaves, such as (65536 i + 64 j + k) % 393216, has
  // a modulus of the outer axis alone.
  const arith::Analyzer::Scope scope(analyzer);
  for (const auto* axes : {&stage.spatial, &stage.reduce}) {
    for (const Axis& axis : *axes) {
      if (!ir::IsIntValue(axis.extent, 1)) analyzer->Bind(axis.var, 0, axis.extent);
    }
  }
  flat.value = Flattener(analyzer).Mutate(stage.value);
  if (stage.finish.defined()) flat.finish = Flattener(analyzer).Mutate(stage.finish);
  flat.indices = {analyzer->Simplify(FlatOffset(*stage.out, stage.indices))};
  return flat;
}

bool UsesVar(const Expr& e, const Var& var) {
  bool found = false;
  tir::PostOrderVisit(tir::Evaluate(e),
                      [&](const ffi::ObjectRef& node) { found = found || node.same_as(var); });
  return found;
}

Expr AtLeastZero(const Expr& condition) {
  const auto* compare = condition.as<BinaryObj>();
  if (compare == nullptr || !IsInt(compare->a.dtype())) return Expr();
  switch (compare->op) {
    case BinaryOp::kLT: return compare->b - compare->a - 1;
    case BinaryOp::kLE: return compare->b - compare->a;
    case BinaryOp::kGT: return compare->a - compare->b - 1;
    case BinaryOp::kGE: return compare->a - compare->b;
    default: return Expr();
  }
}

bool WalksAlong(const Expr& index, const Axis& axis) {
  const auto linear = LinearOffset::Of(index, {axis});
  if (!linear.has_value()) return false;
  const Expr step = linear->Coeff(axis.var);
  return ir::IsIntValue(step.as<ir::IntImmObj>() ? step : arith::Analyzer().Simplify(step), 1);
}

bool UsesAny(const Expr& e, const std::vector<Axis>& axes) {
  std::unordered_set<const ffi::Object*> vars;
  for (const Axis& axis : axes) vars.insert(axis.var.get());
  bool found = false;
  tir::PostOrderVisit(tir::Evaluate(e),
                      [&](const ffi::ObjectRef& node) { found = found || vars.count(node.get()); });
  return found;
}

namespace {

// The c of  var // c  or  var % c  in `e`; 0 when there is none, or when there are several.
int64_t DivisorOf(const Expr& e, const Var& var) {
  int64_t divisor = 0;
  tir::PostOrderVisit(tir::Evaluate(e), [&](const ffi::ObjectRef& node) {
    const auto* binary = node.as<BinaryObj>();
    if (binary == nullptr || !binary->a.same_as(var)) return;
    if (binary->op != BinaryOp::kFloorDiv && binary->op != BinaryOp::kFloorMod) return;
    const int64_t c = ir::AsInt(binary->b).value_or(0);
    divisor = divisor == 0 || divisor == c ? c : -1;
  });
  return std::max<int64_t>(divisor, 0);
}

// Index arithmetic of every load and comparison, simplified.
class IndexSimplifier : public tir::StmtMutator {
 public:
  explicit IndexSimplifier(arith::Analyzer* analyzer) : analyzer_(analyzer) {}
  Expr MutateBufferLoad(const BufferLoad& load) override {
    ffi::Array<Expr> indices =
        MutateAll(load->indices).Map([this](const Expr& e) { return analyzer_->Simplify(e); });
    return BufferLoad(load->buffer, indices, load->predicate, load->span);
  }
  Expr MutateBinary(const ir::Binary& b) override {
    const bool compares = IsBool(b.dtype()) && IsInt(b->a.dtype());
    return compares ? analyzer_->Simplify(b) : StmtMutator::MutateBinary(b);
  }

 private:
  arith::Analyzer* analyzer_;
};

}  // namespace

Expr SimplifyOffsets(const Expr& e, arith::Analyzer* analyzer) {
  return IndexSimplifier(analyzer).Mutate(e);
}

Stage SimplifyOffsets(const Stage& stage, arith::Analyzer* analyzer) {
  IndexSimplifier simplifier(analyzer);
  Stage simple = stage;
  simple.value = simplifier.Mutate(stage.value);
  if (stage.finish.defined()) simple.finish = simplifier.Mutate(stage.finish);
  simple.indices = stage.indices.Map([&](const Expr& e) { return analyzer->Simplify(e); });
  if (stage.before != nullptr)
    simple.before = std::make_shared<const Stage>(SimplifyOffsets(*stage.before, analyzer));
  return simple;
}

Stage SplitAxes(const Stage& stage, arith::Analyzer* analyzer, int64_t least) {
  if (stage.IsOpaque()) return stage;
  std::vector<Axis> axes;
  ffi::Map<Var, Expr> map;
  for (const Axis& axis : stage.spatial) {
    const int64_t c = DivisorOf(stage.value, axis.var);
    if (c < least || !analyzer->ProveEqual(ir::FloorMod(axis.extent, c), 0)) {
      axes.push_back(axis);
      continue;
    }
    Axis high{Var(axis.var->name, Int(64)), analyzer->Simplify(ir::FloorDiv(axis.extent, c))};
    Axis low{Var(axis.var->name, Int(64)), Expr(c)};
    analyzer->Bind(high.var, 0, high.extent);
    analyzer->Bind(low.var, 0, low.extent);
    map.Set(axis.var, high.var * Expr(c) + low.var);
    axes.push_back(high);
    axes.push_back(low);
  }
  if (map.empty()) return stage;
  // All at once: simplified, an axis that is not split yet would lose the form that it is known by.
  Stage split = SimplifyOffsets(Substituted(stage, map), analyzer);
  split.spatial = axes;
  return split;
}

std::optional<LinearOffset> LinearOffset::Of(const Expr& e, const std::vector<Axis>& axes) {
  std::unordered_map<const ffi::Object*, size_t> index;
  for (size_t i = 0; i < axes.size(); ++i) index.emplace(axes[i].var.get(), i);
  LinearOffset result;
  if (!result.Add(e, 1, index)) return std::nullopt;
  return result;
}

bool LinearOffset::Add(const Expr& e, const Expr& factor,
                       const std::unordered_map<const ffi::Object*, size_t>& axes) {
  if (axes.count(e.get())) {
    auto [it, fresh] = coeff_.emplace(e.get(), factor);
    if (!fresh) it->second = it->second + factor;
    return true;
  }
  bool uses = false;
  tir::PostOrderVisit(tir::Evaluate(e),
                      [&](const ffi::ObjectRef& node) { uses = uses || axes.count(node.get()); });
  if (!uses) {
    rest_ = rest_ + e * factor;
    return true;
  }
  if (const auto* cast = e.as<ir::CastObj>()) {  // index arithmetic does not overflow
    return IsInt(e.dtype()) && IsInt(cast->value.dtype()) && Add(cast->value, factor, axes);
  }
  const auto* binary = e.as<BinaryObj>();
  if (binary == nullptr) return false;
  auto free_of_axes = [&](const Expr& side) {
    bool used = false;
    tir::PostOrderVisit(tir::Evaluate(side),
                        [&](const ffi::ObjectRef& node) { used = used || axes.count(node.get()); });
    return !used;
  };
  if (binary->op == BinaryOp::kAdd)
    return Add(binary->a, factor, axes) && Add(binary->b, factor, axes);
  if (binary->op == BinaryOp::kSub)
    return Add(binary->a, factor, axes) && Add(binary->b, Expr(0) - factor, axes);
  if (binary->op == BinaryOp::kMul) {
    if (free_of_axes(binary->b)) return Add(binary->a, factor * binary->b, axes);
    if (free_of_axes(binary->a)) return Add(binary->b, factor * binary->a, axes);
  }
  return false;
}

Expr LinearOffset::Coeff(const Var& axis) const {
  auto it = coeff_.find(axis.get());
  return it == coeff_.end() ? Expr(0) : it->second;
}

bool ReadsAlong(const Stage& flat, const Var& axis) {
  std::vector<Axis> axes = flat.spatial;
  axes.insert(axes.end(), flat.reduce.begin(), flat.reduce.end());
  for (const BufferLoadObj* load : LoadsOf(flat.value)) {
    auto linear = LinearOffset::Of(load->indices[0], axes);
    if (linear.has_value() && ir::IsIntValue(linear->Coeff(axis), 1)) return true;
  }
  return false;
}

void CollapseAxes(Stage* stage, arith::Analyzer* analyzer) {
  if (stage->IsOpaque()) return;
  CollapseList(stage, &stage->spatial, analyzer);
  CollapseList(stage, &stage->reduce, analyzer);
}

}  // namespace relaxvm::schedule
