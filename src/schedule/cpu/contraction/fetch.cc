// SPDX-License-Identifier: Apache-2.0
// What the tiles of a contraction fetch while they compute.
#include <algorithm>

#include "schedule/cpu/contraction/emitter.h"

namespace relaxvm::schedule::cpu {
namespace {

// Tiles of no more rows wait for B; the second number, where it lies beyond the second cache.
constexpr int64_t kRowsThatWait = 3;
constexpr int64_t kRowsThatWaitForMemory = 6;
constexpr int64_t kAheadInMemory = 2048;  // bytes
// Where more tiles share a panel, waiting for its first passage is not felt.
constexpr int64_t kTilesThatHidePanels = 32;
}  // namespace

int64_t ContractionEmitter::BytesOfA(const Expr& depth) const {
  if (c_.stage.reduce.size() != 1) return 0;
  const Expr elements = analyzer_->Simplify(c_.row.extent * depth);
  const DLDataType type = Buffer(c_.LoadOf(c_.a)->buffer).elem_dtype();
  return ir::AsInt(elements).value_or(0) * c_.group * SizeInBytes(type);
}

int64_t ContractionEmitter::BytesOfB(const Expr& depth) const {
  const Expr elements = analyzer_->Simplify(c_.vector.extent * NumPoints(c_.outer_b) * depth);
  const DLDataType type = Buffer(c_.LoadOf(c_.b)->buffer).elem_dtype();
  return ir::AsInt(elements).value_or(0) * c_.GroupInB() * SizeInBytes(type);
}

Contraction::FetchOfB ContractionEmitter::HowToFetchB(int64_t bytes) const {
  // Several runs of memory at once are followed by the core itself, across the ends of pages too.
  if (takes_panels_) return {};
  const int64_t rows = bytes > machine_.l2_bytes ? kRowsThatWaitForMemory : kRowsThatWait;
  // Of several tiles that share a panel, each fetches a part of the next one.
  const auto tiles = ir::AsInt(TilesOfBlock());
  const bool shared = tiles.value_or(2) > 1 && PanelsAreRuns();
  if (machine_.panel_ahead > 0) {
    // Where nobody knows, a tile fetches its own panel only when it finds that it is alone.
    const bool alone = tiles.has_value() ? *tiles == 1 : shared && HasNextPanel();
    return {alone ? kRowsThatWaitForMemory : rows, machine_.panel_ahead, true};
  }
  const bool in_cache = bytes <= std::max(machine_.l2_bytes, machine_.l3_bytes);
  return in_cache || shared ? Contraction::FetchOfB()
                            : Contraction::FetchOfB{rows, kAheadInMemory, false};
}

bool ContractionEmitter::PanelsAreRuns() const {
  if (c_.side_by_side.has_value() || c_.stage.reduce.empty()) return false;
  auto b = LinearOffset::Of(c_.LoadOf(c_.b)->indices[0], c_.stage.reduce);
  Expr run = width_ * c_.GroupInB();
  for (size_t i = c_.stage.reduce.size(); i-- > 0;) {
    const Axis& axis = c_.stage.reduce[i];
    if (!b.has_value() || !ir::AsInt(axis.extent).has_value() ||
        !analyzer_->ProveEqual(b->Coeff(axis.var), run))
      return false;
    run = run * axis.extent;
  }
  return true;
}

std::optional<PartOfNext> ContractionEmitter::PartOf(ffi::Map<Var, Expr> map, int64_t steps,
                                                     const Expr& tiles) const {
  if (c_.fetch_depth > 0 || !PanelsAreRuns() || ir::AsInt(tiles).value_or(1) > kTilesThatHidePanels)
    return std::nullopt;
  map.Set(c_.vector.var, Expr(0));
  map.Set(c_.column, Expr(0));
  for (const Axis& axis : c_.stage.reduce) {
    if (!map.count(axis.var)) map.Set(axis.var, Expr(0));
  }
  const auto* load = c_.LoadOf(c_.b);
  const Buffer b(load->buffer);
  const int64_t bytes = width_ * c_.GroupInB() * SizeInBytes(b.elem_dtype());
  return PartOfNext{tir::Substitute(load->indices[0], map), 0, tiles, steps, bytes, b, Expr()};
}

bool ContractionEmitter::HasBlocksOfRows() const {
  return in_block_.defined() && !analyzer_->ProveEqual(in_block_, NumPoints(c_.outer_a) * chunks_);
}

Expr ContractionEmitter::TilesOfBlock() const {
  return HasBlocksOfRows() ? analyzer_->Simplify(in_block_ * per_task_) : TilesOfPanel();
}

bool ContractionEmitter::HasNextPanel() const {
  return c_.panel_width > 0 || (!c_.outer_b.empty() && ir::IsIntValue(panels_, 1));
}

std::optional<PartOfNext> ContractionEmitter::PartOfNextPanel(const Expr& panel, const Expr& first,
                                                              ffi::Array<Stmt>* seq) {
  if (!HasNextPanel()) return std::nullopt;
  ffi::Map<Var, Expr> map;
  if (c_.panel_width > 0) {
    map.Set(c_.panel, panel + Expr(1));
  } else {
    map.Set(c_.outer_b.back().var, c_.outer_b.back().var + Expr(1));
  }
  const Expr steps = analyzer_->Simplify(NumPoints(c_.stage.reduce));
  auto next = PartOf(map, ir::AsInt(steps).value_or(0), TilesOfBlock());
  if (!next.has_value()) return next;
  const Expr outer = LinearIndex(c_.outer_a);
  Expr before = outer * num_tiles_ + first;
  if (HasBlocksOfRows()) {
    const Expr chunk = outer * chunks_ + ir::FloorDiv(first, per_task_);
    before = analyzer_->Simplify(ir::FloorMod(chunk, in_block_) * per_task_);
  }
  const Var bound("tiles_before", Int(64));
  seq->push_back(tir::Bind(bound, before));
  next->tile = bound;
  return next;
}

}  // namespace relaxvm::schedule::cpu
