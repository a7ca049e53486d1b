// SPDX-License-Identifier: Apache-2.0
// Panels of B that are narrower than the sums: several tiles that share one find it widened.  In
// each tile, widening a register takes the units that multiply.
#include <algorithm>

#include "schedule/cpu/contraction/emitter.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::ForKind;
using tir::SeqStmt;

// For which a panel is worth widening: one that fits into the first cache, and others, whose stores
// wait for the second one.
constexpr int64_t kFewestRows = 24, kFewestRowsBehindCache = 48;

}  // namespace

bool ContractionEmitter::HasNarrowPanels() const {
  const auto* load = c_.LoadOf(c_.b);
  const auto depth = ir::AsInt(analyzer_->Simplify(NumPoints(c_.stage.reduce)));
  // A guard may say what there is of a B that is no panel.
  if (c_.group > 1 || matrix_step_ > 0 || takes_panels_ || c_.side_by_side.has_value() ||
      (c_.guard.defined() && c_.panel_width == 0) || depth.value_or(0) == 0 ||
      load->predicate.defined() ||
      SizeInBytes(Buffer(load->buffer).elem_dtype()) >= SizeInBytes(c_.acc))
    return false;
  if (c_.panel_width > 0) return c_.panel_width == width_;
  const auto b = LinearOffset::Of(load->indices[0], c_.AllAxes());
  return b.has_value() && ir::IsIntValue(b->Coeff(c_.vector.var), 1);
}

Expr ContractionEmitter::WidensPanelFor(const Expr& tiles) const {
  if (!HasNarrowPanels() || BytesOfWidePanel() > machine_.l2_bytes) return 0;
  return analyzer_->Simplify(ir::GreaterEqual(tiles, TilesWorthWidening()));
}

int64_t ContractionEmitter::BytesOfWidePanel() const {
  return *ir::AsInt(analyzer_->Simplify(NumPoints(c_.stage.reduce))) * width_ * SizeInBytes(c_.acc);
}

int64_t ContractionEmitter::TilesWorthWidening() const {
  const bool fits = BytesOfWidePanel() <= machine_.l1_bytes;
  return ((fits ? kFewestRows : kFewestRowsBehindCache) + rows_ - 1) / rows_;
}

Contraction ContractionEmitter::WithWidePanel(Contraction c, const Expr& panel, const Expr& steps,
                                              ffi::Array<Stmt>* seq) const {
  Buffer wide("wide_panel", {analyzer_->Simplify(steps * Expr(width_))}, c.acc);
  const Expr step = LinearIndex(c.stage.reduce) * Expr(width_);
  auto copy = [&](const Expr& limit) {
    ffi::Array<Stmt> registers;
    for (int64_t at = 0; at < width_; at += lanes_) {
      Var lane("lane", Int(64));
      const Expr column = Expr(at) + lane;
      ffi::Map<Var, Expr> map;
      map.Set(c.panel, panel);
      map.Set(c.column, column);
      map.Set(c.vector.var, panel * Expr(width_) + column);
      Expr value = ir::Cast(c.acc, tir::Substitute(c.b, map));
      if (limit.defined())
        value = PredicateLoads(value, lane, ir::Less(column, limit - panel * Expr(width_)));
      registers.push_back(tir::For(lane, 0, lanes_, ForKind::kVectorized,
                                   tir::BufferStore(wide, value, {step + column})));
    }
    return Loops(c.stage.reduce, SeqStmt::Flatten(registers));
  };
  Stmt fill = copy(Expr());
  if (c.panel_width == 0 && !analyzer_->ProveEqual(full_panels_, panels_))
    fill = tir::IfThenElse(ir::Less(panel, full_panels_), fill, copy(c.vector.extent));
  seq->push_back(tir::AllocBuffer(wide));
  seq->push_back(fill);
  c.b = wide.Load({step + c.column});
  c.panel_width = width_;
  c.fetch_b = {};
  // Heights of enough tiles are even.
  const int64_t most = TilesWorthWidening();
  if (!ir::AsInt(c.row.extent).has_value())
    c.fewest_rows = std::max(c.fewest_rows, ((most - 1) * rows_ + 1) / most);
  return c;
}

}  // namespace relaxvm::schedule::cpu
