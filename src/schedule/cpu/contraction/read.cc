// SPDX-License-Identifier: Apache-2.0
// From a stage to a Contraction: which axis goes along the lanes, which along a tile's rows.
#include <algorithm>
#include <set>

#include "schedule/cpu/contraction/contraction.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoad;
using tir::BufferLoadObj;

// Groups go side by side where the left sides of a vector's columns take no more vectors than this.
constexpr int64_t kMostDepth = 2;

// An axis of unknown length counts as this many rows: often it is a batch of one.  One that windows
// pass along is the height or the width of a picture.
constexpr int64_t kRowsOfUnknown = 2;
constexpr int64_t kPlacesOfUnknown = 32;

bool IsZero(const Expr& e) { return ir::IsIntValue(e, 0); }

// Is `e` axis // c (or axis % c) with a constant c?  Gives c.
int64_t DividesAxis(const Expr& e, ir::BinaryOp op, const Var& axis) {
  const auto* binary = e.as<ir::BinaryObj>();
  if (binary == nullptr || binary->op != op || !binary->a.same_as(axis)) return 0;
  return ir::AsInt(binary->b).value_or(0);
}

class Reader {
 public:
  Reader(const Machine& machine, arith::Analyzer* analyzer)
      : machine_(machine), analyzer_(analyzer) {}

  std::optional<Contraction> Read(const Stage& stage) {
    if (!StartsAtZero(stage)) return std::nullopt;
    c_.acc = stage.value.dtype();
    c_.stage = stage;
    FindGroups();
    FindPanels();
    const std::optional<Var> in_panels =
        c_.panel_width > 0 ? std::optional<Var>(c_.vector.var) : std::nullopt;
    FindWindows();
    c_.stage = FlattenStage(c_.stage, analyzer_);
    OrderReduction();
    CollapseAxes(&c_.stage, analyzer_);
    const GuardedProduct product = *ProductOf(c_.stage.value);
    c_.a = product.a;
    c_.b = product.b;
    c_.guard = product.guard;
    if (c_.LoadOf(c_.a) == nullptr || c_.LoadOf(c_.b) == nullptr) return std::nullopt;
    FixPhases();
    if (!Classify(in_panels)) return std::nullopt;
    if (c_.group > 1 && !GroupsAreNeighbours()) return std::nullopt;
    c_.a_is_signed = IsInt(StripCasts(c_.a).dtype());
    c_.b_is_signed = IsInt(StripCasts(c_.b).dtype());
    c_.dot_signed = machine_.dot_signed;
    if (c_.group == 1) FormGroups();
    PutSideBySide();
    c_.by_halves = machine_.dot_by_halves && !c_.side_by_side.has_value();
    FindNotes();
    return std::move(c_);
  }

 private:
  static bool StartsAtZero(const Stage& stage) {
    if (ir::IsIntValue(stage.identity, 0)) return true;
    const auto* zero = stage.identity.as<ir::FloatImmObj>();
    return zero != nullptr && zero->value == 0;
  }

  // Axes that windows pass along: places of theirs read in part what others read.
  void FindWindows() {
    const GuardedProduct times = *ProductOf(c_.stage.value);
    for (const Expr& operand : {times.a, times.b}) {
      const auto* load = c_.LoadOf(operand);
      if (load == nullptr) continue;
      for (const Expr& index : load->indices) {
        const auto places = LinearOffset::Of(index, c_.AllAxes());
        if (!places.has_value()) continue;
        int64_t reach = 0;
        for (const Axis& axis : c_.stage.reduce) {
          const int64_t step = ir::AsInt(places->Coeff(axis.var)).value_or(0);
          reach = std::max(reach, step * (ir::AsInt(axis.extent).value_or(1) - 1));
        }
        for (const Axis& axis : c_.stage.spatial) {
          const int64_t step = ir::AsInt(places->Coeff(axis.var)).value_or(0);
          if (step > 0 && step <= reach) in_windows_.insert(axis.var.get());
        }
      }
    }
  }

  void FindNotes() {
    const std::optional<PairNotes>& notes = c_.stage.notes;
    if (!notes.has_value() || !c_.by_halves || c_.group != 4 || c_.a_is_signed || !c_.b_is_signed ||
        c_.stage.reduce.empty())
      return;
    if (ir::IsIntValue(c_.stage.reduce.back().extent, notes->groups)) c_.notes = notes;
  }

  // An operand at [..., k // g, ..., k % g] has groups of g neighbours along an axis of the sum:
  // from here on that axis counts groups.
  void FindGroups() {
    if (c_.acc.bits != 32) return;
    const GuardedProduct times = *ProductOf(c_.stage.value);
    const int64_t size = GroupOf(machine_, times.a, times.b, c_.acc);
    if (size < 2) return;
    for (const Expr& operand : {times.a, times.b}) {
      const auto* load = c_.LoadOf(operand);
      if (load == nullptr || load->indices.size() < 2) continue;
      for (Axis& axis : c_.stage.reduce) {
        ffi::Array<Expr> indices = load->indices;
        if (DividesAxis(indices.back(), ir::BinaryOp::kFloorMod, axis.var) != size) continue;
        int found = 0;
        Axis groups{Var(axis.var->name, Int(64)),
                    analyzer_->Simplify(ir::FloorDiv(axis.extent, size))};
        for (size_t i = 0; i + 1 < indices.size(); ++i) {
          if (DividesAxis(indices[i], ir::BinaryOp::kFloorDiv, axis.var) != size) continue;
          indices.Set(static_cast<int64_t>(i), groups.var);
          ++found;
        }
        if (found != 1 || !analyzer_->ProveEqual(ir::FloorMod(axis.extent, size), 0)) continue;
        if (ir::IsIntValue(groups.extent, 1)) {  // no step from group to group shows what is next
          const auto* other = c_.LoadOf(operand.same_as(times.a) ? times.b : times.a);
          if (other == nullptr || other->indices.empty()) continue;
          const auto step = LinearOffset::Of(other->indices.back(), {axis});
          if (!step.has_value() || !ir::IsIntValue(step->Coeff(axis.var), 1)) continue;
          is_one_group_ = true;
        }
        indices.Set(static_cast<int64_t>(indices.size()) - 1, Expr(0));
        ReplaceLoad(load, BufferLoad(load->buffer, indices, load->predicate, load->span));
        StartGroups(&axis, groups, size);
        return;
      }
    }
  }

  void StartGroups(Axis* axis, const Axis& groups, int64_t size) {
    analyzer_->Bind(groups.var, 0, groups.extent);
    ffi::Map<Var, Expr> map;
    map.Set(axis->var, groups.var * Expr(size));
    c_.stage.value = tir::Substitute(c_.stage.value, map);
    *axis = groups;
    c_.group = size;
  }

  // A load at [..., j // w, ..., j % w] reads panels of width w: the two indices become variables
  // of their own, so that what is left is linear.
  void FindPanels() {
    const GuardedProduct times = *ProductOf(c_.stage.value);
    for (const Expr& operand : {times.a, times.b}) {
      const auto* load = c_.LoadOf(operand);
      if (load == nullptr || load->indices.empty()) continue;
      for (const Axis& axis : c_.stage.spatial) {
        // Behind the column there is the place in a group.
        const size_t back = c_.group > 1 ? 2 : 1;
        if (load->indices.size() < back) continue;
        const auto at = static_cast<int64_t>(load->indices.size() - back);
        const int64_t width = DividesAxis(load->indices[at], ir::BinaryOp::kFloorMod, axis.var);
        if (width < 1) continue;
        ffi::Array<Expr> indices = load->indices;
        int found = 0;
        for (int64_t i = 0; i < at; ++i) {
          if (DividesAxis(indices[i], ir::BinaryOp::kFloorDiv, axis.var) != width) continue;
          indices.Set(i, c_.panel);
          ++found;
        }
        if (found != 1) continue;
        indices.Set(at, c_.column);
        c_.vector = axis;
        c_.panel_width = width;
        ReplaceLoad(load, BufferLoad(load->buffer, indices, load->predicate, load->span));
        return;
      }
    }
  }

  void ReplaceLoad(const BufferLoadObj* from, const Expr& to) {
    class Replacer : public tir::StmtMutator {
     public:
      Replacer(const BufferLoadObj* from, const Expr& to) : from_(from), to_(to) {}
      Expr MutateBufferLoad(const BufferLoad& load) override {
        return load.get() == from_ ? to_ : load;
      }

     private:
      const BufferLoadObj* from_;
      const Expr& to_;
    };
    c_.stage.value = Replacer(from, to).Mutate(c_.stage.value);
  }

  // Puts the axis with the shortest steps through memory last: what stands next to each other is
  // read one after the other.
  void OrderReduction() {
    std::vector<const BufferLoadObj*> loads;
    tir::PostOrderVisit(tir::Evaluate(c_.stage.value), [&](const ffi::ObjectRef& node) {
      if (const auto* load = node.as<BufferLoadObj>()) loads.push_back(load);
    });
    auto step = [&](const Axis& axis) {
      int64_t sum = 0;
      for (const BufferLoadObj* load : loads) {
        auto linear = LinearOffset::Of(load->indices[0], {axis});
        if (!linear.has_value()) continue;
        ffi::Map<Var, Expr> sizes;
        Expr coeff = linear->Coeff(axis.var);
        for (const Var& v : ir::FreeVars(coeff)) sizes.Set(v, 64);
        sum += std::min<int64_t>(
            ir::AsInt(analyzer_->Simplify(ir::Substitute(coeff, sizes))).value_or(0),
            int64_t{1} << 40);
      }
      return sum;
    };
    std::stable_sort(c_.stage.reduce.begin(), c_.stage.reduce.end(),
                     [&](const Axis& a, const Axis& b) { return step(a) > step(b); });
  }

  // Axes of constant length that an operand walks in steps of its own, as the phases of a
  // transposed convolution, and those of both that the guard asks for, are fixed while a matrix is
  // computed.
  void FixPhases() {
    auto& spatial = c_.stage.spatial;
    for (size_t i = spatial.size(); i-- > 0;) {
      const Axis axis = spatial[i];
      bool fixed = c_.guard.defined() && UsesVar(c_.guard, axis.var) && UsesVar(c_.a, axis.var) &&
                   UsesVar(c_.b, axis.var);
      for (const Expr& operand : {c_.a, c_.b})
        fixed = fixed || !LinearOffset::Of(c_.LoadOf(operand)->indices[0], {axis}).has_value();
      if (!fixed || !ir::AsInt(axis.extent).has_value()) continue;
      c_.batch.insert(c_.batch.begin(), axis);
      spatial.erase(spatial.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  bool Classify(const std::optional<Var>& in_panels) {
    auto a = LinearOffset::Of(c_.LoadOf(c_.a)->indices[0], c_.AllAxes());
    auto b = LinearOffset::Of(c_.LoadOf(c_.b)->indices[0], c_.AllAxes());
    auto out = LinearOffset::Of(c_.stage.indices[0], c_.AllAxes());
    if (!a.has_value() || !b.has_value() || !out.has_value()) return false;
    auto in = [](const LinearOffset& offset, const Axis& axis) {
      return !IsZero(offset.Coeff(axis.var));
    };
    if (in_panels.has_value()) {
      if (UsesVar(c_.a, c_.column)) {
        std::swap(c_.a, c_.b);
        std::swap(a, b);
      }
      if (!ir::IsIntValue(out->Coeff(*in_panels), 1)) return false;
      if (in(*a, c_.vector)) return false;
      bool still_there = false;
      for (const Axis& axis : c_.stage.spatial)
        still_there = still_there || axis.var.same_as(*in_panels);
      if (!still_there || c_.panel_width % machine_.Lanes(SizeInBytes(c_.acc)) != 0) return false;
    } else {
      const Axis* vector = nullptr;
      for (const Axis& axis : c_.stage.spatial) {
        if (!ir::IsIntValue(out->Coeff(axis.var), 1) || in(*a, axis) == in(*b, axis)) continue;
        // One column says nothing: another axis of the same operand may fill registers.
        const bool single =
            vector != nullptr && ir::IsIntValue(axis.extent, 1) && in(*a, axis) == in(*a, *vector);
        if (!single) vector = &axis;
      }
      if (vector == nullptr) return false;
      if (in(*a, *vector)) {
        std::swap(c_.a, c_.b);
        std::swap(a, b);
      }
      c_.vector = *vector;
    }
    if (c_.guard.defined() && UsesVar(c_.guard, c_.vector.var)) return false;
    std::vector<Axis> left;
    for (const Axis& axis : c_.stage.spatial) {
      if (axis.var.same_as(c_.vector.var)) continue;
      (in(*b, axis) ? (in(*a, axis) ? c_.batch : c_.outer_b) : left).push_back(axis);
    }
    // The tile's rows: the longest A-only axis, the innermost of equals; not one that the
    // guard asks for in a way of its own.
    auto can_be_row = [&](const Axis& axis) {
      return !c_.guard.defined() || !UsesVar(c_.guard, axis.var) ||
             RowRanges::Of(c_, axis).has_value();
    };
    size_t best = left.size();
    auto length = [&](size_t i) {
      if (const auto known = ir::AsInt(left[i].extent)) return *known;
      return in_windows_.count(left[i].var.get()) != 0 ? kPlacesOfUnknown : kRowsOfUnknown;
    };
    for (size_t i = left.size(); i-- > 0;) {
      if (!can_be_row(left[i])) continue;
      if (best == left.size() || (length(i) > length(best) && length(best) < 16)) best = i;
    }
    if (best == left.size()) return false;
    c_.row = left[best];
    c_.walks_windows = in_windows_.count(c_.row.var.get()) != 0;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
    c_.outer_a = left;
    FindOtherRow(*a, *out);
    return true;
  }

  // Of two axes of unknown lengths that A and the result have in opposite orders (a batch of
  // sequences becomes a sequence of batches) either may be the batch, which often is one.
  void FindOtherRow(const LinearOffset& a, const LinearOffset& out) {
    if (c_.guard.defined() || ir::AsInt(c_.row.extent).has_value()) return;
    auto step = [&](const LinearOffset& offset, const Axis& axis) {
      ffi::Map<Var, Expr> sizes;
      const Expr coeff = offset.Coeff(axis.var);
      for (const Var& v : ir::FreeVars(coeff)) sizes.Set(v, 64);
      return ir::AsInt(analyzer_->Simplify(ir::Substitute(coeff, sizes))).value_or(0);
    };
    for (const Axis& axis : c_.outer_a) {
      if (ir::AsInt(axis.extent).has_value() || step(a, axis) >= step(a, c_.row) ||
          step(out, axis) <= step(out, c_.row))
        continue;
      c_.other_row = axis;
      return;
    }
  }

  // Are a group's elements next to each other in A, and the columns' groups in B?
  bool GroupsAreNeighbours() const {
    auto a = LinearOffset::Of(c_.LoadOf(c_.a)->indices[0], c_.AllAxes());
    auto b = LinearOffset::Of(c_.LoadOf(c_.b)->indices[0], c_.AllAxes());
    if (c_.stage.reduce.empty()) return false;
    const Expr column = c_.panel_width > 0 ? ColumnStep() : b->Coeff(c_.vector.var);
    return (is_one_group_ || ir::IsIntValue(a->Coeff(c_.stage.reduce.back().var), c_.group)) &&
           ir::IsIntValue(column, c_.group);
  }
  Expr ColumnStep() const {
    auto b = LinearOffset::Of(c_.LoadOf(c_.b)->indices[0], {{c_.column, Expr(c_.panel_width)}});
    return b.has_value() ? b->Coeff(c_.column) : Expr(0);
  }

  // Groups in A alone: B has to be packed by them.
  void FormGroups() {
    const int64_t size = GroupOf(machine_, c_.a, c_.b, c_.acc);
    if (size < 2 || c_.panel_width > 0 || c_.stage.reduce.empty()) return;
    Axis& inner = c_.stage.reduce.back();
    auto a = LinearOffset::Of(c_.LoadOf(c_.a)->indices[0], c_.AllAxes());
    if (!ir::IsIntValue(a->Coeff(inner.var), 1)) return;
    const bool divides = analyzer_->ProveEqual(ir::FloorMod(inner.extent, size), 0);
    const bool is_known = ir::AsInt(inner.extent).has_value();
    if (divides || (!is_known && c_.stage.reduce.size() == 1)) c_.group_if_packed = size;
  }

  // Groups too narrow for a vector, whose columns are neighbours in B and C: one vector axis over
  // all of them.
  void PutSideBySide() {
    const auto columns = ir::AsInt(c_.vector.extent);
    const int64_t lanes = machine_.Lanes(std::max<int64_t>(SizeInBytes(c_.acc), 1));
    if (c_.group_if_packed > 1 || c_.panel_width > 0 || c_.stage.reduce.empty() ||
        (c_.guard.defined() && UsesVar(c_.guard, c_.stage.reduce.back().var)) ||
        columns.value_or(0) == 0 || columns.value() * 2 > lanes || lanes % columns.value() != 0)
      return;
    if (c_.group > 1 && c_.NeedsCorrection()) return;
    for (const Expr& operand : {c_.a, c_.b}) {
      if (c_.group == 1 && (operand.as<BufferLoadObj>() == nullptr || operand.dtype() != c_.acc))
        return;
    }
    const int64_t unit = c_.group;  // elements of A and B for each step of k
    auto a = LinearOffset::Of(c_.LoadOf(c_.a)->indices[0], c_.AllAxes());
    auto b = LinearOffset::Of(c_.LoadOf(c_.b)->indices[0], c_.AllAxes());
    auto out = LinearOffset::Of(c_.stage.indices[0], c_.AllAxes());
    const Axis& inner = c_.stage.reduce.back();
    const auto depth = ir::AsInt(inner.extent);
    if (depth.value_or(0) == 0 || depth.value() > kMostDepth * columns.value() ||
        !(depth.value() == 1 || ir::IsIntValue(a->Coeff(inner.var), unit)) ||
        !ir::IsIntValue(b->Coeff(c_.vector.var), unit))
      return;
    for (size_t i = 0; i < c_.batch.size(); ++i) {
      const Axis group = c_.batch[i];
      if (!ir::IsIntValue(a->Coeff(group.var), depth.value() * unit) ||
          !ir::IsIntValue(b->Coeff(group.var), columns.value() * unit) ||
          !ir::IsIntValue(out->Coeff(group.var), columns.value()))
        continue;
      const Axis all{Var(c_.vector.var->name, Int(64)),
                     analyzer_->Simplify(group.extent * c_.vector.extent)};
      ffi::Map<Var, Expr> map;
      map.Set(c_.vector.var, all.var - group.var * Expr(columns.value()));
      const Expr right = SimplifyOffsets(tir::Substitute(c_.b, map), analyzer_),
                 to = analyzer_->Simplify(tir::Substitute(c_.stage.indices[0], map));
      const Expr finish = c_.stage.finish.defined()
                              ? SimplifyOffsets(tir::Substitute(c_.stage.finish, map), analyzer_)
                              : c_.stage.finish;
      if (UsesVar(right, group.var) || UsesVar(to, group.var) ||
          (finish.defined() && UsesVar(finish, group.var)))
        continue;
      c_.b = right;
      c_.stage.indices = {to};
      c_.stage.finish = finish;
      for (size_t d = c_.stage.spatial.size(); d-- > 0;) {
        Axis& axis = c_.stage.spatial[d];
        if (axis.var.same_as(c_.vector.var)) axis = all;
        if (axis.var.same_as(group.var))
          c_.stage.spatial.erase(c_.stage.spatial.begin() + static_cast<std::ptrdiff_t>(d));
      }
      c_.batch.erase(c_.batch.begin() + static_cast<std::ptrdiff_t>(i));
      c_.vector = all;
      c_.side_by_side = Contraction::SideBySide{group.var, columns.value(), depth.value()};
      return;
    }
  }

  const Machine& machine_;
  arith::Analyzer* analyzer_;
  Contraction c_;
  bool is_one_group_ = false;  // neighbours in A, and all of their axis
  std::set<const ir::VarObj*> in_windows_;
};

}  // namespace

int64_t GroupOf(const Machine& machine, const Expr& a, const Expr& b, DLDataType acc) {
  auto element = [&](const Expr& operand) {
    const auto* cast = operand.as<ir::CastObj>();
    return cast != nullptr && cast->value.as<BufferLoadObj>() ? cast->value.dtype() : acc;
  };
  const DLDataType x = element(a), y = element(b);
  if (machine.dot_bf16 && acc == Float(32) && IsBFloat(x) && IsBFloat(y)) return 2;
  const bool bytes = IsInteger(x) && IsInteger(y) && x.bits == 8 && y.bits == 8;
  // Of two unsigned sides none can be the signed one.
  if (machine.dot_int8 && acc == Int(32) && bytes && (IsInt(x) || IsInt(y))) return 4;
  return 1;
}

std::optional<Contraction> ReadContraction(const Stage& stage, const Machine& machine,
                                           arith::Analyzer* analyzer) {
  return Reader(machine, analyzer).Read(stage);
}

}  // namespace relaxvm::schedule::cpu
