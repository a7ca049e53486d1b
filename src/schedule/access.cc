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

// Does `var` occur outside of the offsets of loads?
class UseOutsideLoads : public tir::StmtVisitor {
 public:
  explicit UseOutsideLoads(const Var& var) : var_(var) {}
  bool found = false;
  void VisitBufferLoad(const BufferLoadObj*) override {}
  void VisitVar(const ir::VarObj* v) override { found = found || v == var_.get(); }

 private:
  const Var& var_;
};

// i * n + j  ->  r   in every access, when i's step is always n times j's.
bool CanMerge(const Stage& stage, const Axis& outer, const Axis& inner, arith::Analyzer* analyzer) {
  for (const Axis* axis : {&outer, &inner}) {
    UseOutsideLoads use(axis->var);
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
    auto linear = LinearOffset::Of(offset, {outer, inner});
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
  stage->value = tir::Substitute(stage->value, map);
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

bool UsesAny(const Expr& e, const std::vector<Axis>& axes) {
  std::unordered_set<const ffi::Object*> vars;
  for (const Axis& axis : axes) vars.insert(axis.var.get());
  bool found = false;
  tir::PostOrderVisit(tir::Evaluate(e),
                      [&](const ffi::ObjectRef& node) { found = found || vars.count(node.get()); });
  return found;
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

void CollapseAxes(Stage* stage, arith::Analyzer* analyzer) {
  if (stage->IsOpaque()) return;
  CollapseList(stage, &stage->spatial, analyzer);
  CollapseList(stage, &stage->reduce, analyzer);
}

}  // namespace relaxvm::schedule
