// SPDX-License-Identifier: Apache-2.0
// EmitRowsOnLanes: as many rows as there are lanes go through the loops of a group together, each
// in a lane of its own.  What they read and store is turned round in registers, so that formulas
// have full vectors where a row alone would leave most lanes empty.
#include <algorithm>

#include "schedule/cpu/loads.h"
#include "schedule/cpu/nest.h"
#include "schedule/cpu/rows.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoad;
using tir::BufferLoadObj;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kFewestLanes = 4;

// Memory that a row touches: element `base` + stride * row + place along it.
struct MemoryRun {
  Buffer buffer;
  Expr base, stride;
  int64_t extent = 0;
  Buffer tile;  // extent x lanes
};

class RowsOnLanes {
 public:
  RowsOnLanes(const RowLoops& rows, const Machine& machine, arith::Analyzer* analyzer)
      : rows_(rows), analyzer_(analyzer) {
    int64_t bytes = 1;
    for (const Stage& loop : rows.loops) {
      bytes = std::max(bytes, ElemBytes(loop));
      if (loop.before != nullptr) bytes = std::max(bytes, ElemBytes(*loop.before));
    }
    lanes_ = machine.Lanes(bytes);
  }

  std::optional<RowForm> Run() {
    if (lanes_ < kFewestLanes || rows_.rows.empty() || !TakeTemporaries()) return std::nullopt;
    for (const Stage& loop : rows_.loops) {
      if (!IsShort(loop) || !Understands(loop)) return std::nullopt;
      if (loop.before == nullptr) continue;
      if (Temporary(*loop.before->out) == nullptr || !Understands(*loop.before))
        return std::nullopt;
    }
    if (longest_ < 2) return std::nullopt;
    const Expr count = rows_.rows.back().extent;
    if (ir::AsInt(count).value_or(lanes_) < lanes_) return std::nullopt;

    const Axis block{Var("block", Int(64)), analyzer_->Simplify(ir::CeilDiv(count, lanes_))};
    first_ = block.var * Expr(lanes_);
    const Expr left = analyzer_->Simplify(count - first_);
    Stmt body = Block(Expr());
    if (!analyzer_->ProveEqual(ir::FloorMod(count, lanes_), 0))
      body = tir::IfThenElse(ir::GreaterEqual(left, Expr(lanes_)), body, Block(left));
    std::vector<Axis> blocks = rows_.rows;
    blocks.back() = block;
    return RowForm{blocks, body, rows_.work * Expr(lanes_), Expr()};
  }

 private:
  // ---- what there is

  // One axis at most, which is no longer than a vector.
  bool IsShort(const Stage& loop) {
    const bool reduces = loop.combine != Combine::kNone;
    if (loop.spatial.size() + loop.reduce.size() > 1 || (reduces && loop.reduce.empty()) ||
        loop.spread != nullptr || !loop.beside.stages.empty())
      return false;
    const std::optional<Axis> axis = AxisOf(loop);
    if (!axis.has_value()) return true;
    const int64_t extent = ir::AsInt(axis->extent).value_or(0);
    longest_ = std::max(longest_, extent);
    return 1 <= extent && extent <= lanes_;
  }

  bool TakeTemporaries() {
    for (const Stmt& stmt : rows_.temporaries) {
      const Buffer one(stmt.as<tir::AllocBufferObj>()->buffer);
      const auto elements = ir::AsInt(analyzer_->Simplify(NumElements(one)));
      if (!elements.has_value() || *elements > lanes_) return false;
      temporaries_.emplace_back(
          one, Buffer(one->name, {Expr(*elements * lanes_)}, one.elem_dtype(), "local"));
    }
    return true;
  }

  const Buffer* Temporary(const Var& buffer) const {
    for (const auto& [one, all] : temporaries_) {
      if (one.same_as(buffer)) return &all;
    }
    return nullptr;
  }

  // The access of memory in the row number 0 at place 0 of `axis`, and how it goes on from there;
  // absent: in no way that there is code for.
  enum class Kind : uint8_t { kSame, kLane, kRun };  // for all rows; an element of each; a run
  struct Access {
    Kind kind;
    Expr base, stride;
  };
  std::optional<Access> AccessOf(const Expr& at, const std::optional<Axis>& axis) const {
    std::vector<Axis> axes = rows_.rows;
    if (axis.has_value()) axes.push_back(*axis);
    const auto offset = LinearOffset::Of(at, axes);
    if (!offset.has_value()) return std::nullopt;
    Access access{Kind::kSame, At(at, axis),
                  analyzer_->Simplify(offset->Coeff(rows_.rows.back().var))};
    if (ir::IsIntValue(access.stride, 0)) return access;
    const Expr step = axis.has_value() ? analyzer_->Simplify(offset->Coeff(axis->var)) : Expr(0);
    if (ir::IsIntValue(step, 1))
      access.kind = Kind::kRun;
    else if (ir::IsIntValue(step, 0) && ir::IsIntValue(access.stride, 1))
      access.kind = Kind::kLane;
    else
      return std::nullopt;
    return access;
  }
  Expr At(const Expr& at, const std::optional<Axis>& axis) const {
    ffi::Map<Var, Expr> map = FirstRow();
    if (axis.has_value()) map.Set(axis->var, 0);
    return analyzer_->Simplify(tir::Substitute(at, map));
  }
  ffi::Map<Var, Expr> FirstRow() const {
    ffi::Map<Var, Expr> map;
    map.Set(rows_.rows.back().var, 0);
    return map;
  }

  // Is there code for all that a stage reads and stores?  What it reads by runs is put down.
  bool Understands(const Stage& stage) {
    const std::optional<Axis> axis = AxisOf(stage);
    const auto inner = stage.combine == Combine::kNone ? axis : std::nullopt;
    if (Temporary(*stage.out) == nullptr) {
      const auto access = AccessOf(stage.indices[0], inner);
      if (!access.has_value() || access->kind == Kind::kSame) return false;
      if (inner.has_value() && access->kind != Kind::kRun) return false;
    }
    return UnderstandsFormula(stage.value, axis) &&
           (!stage.finish.defined() || UnderstandsFormula(stage.finish, std::nullopt));
  }

  bool UnderstandsFormula(const Expr& formula, const std::optional<Axis>& axis) {
    bool known = true;
    tir::PostOrderVisit(tir::Evaluate(formula), [&](const ffi::ObjectRef& node) {
      const auto* choice = node.as<ir::IntrinObj>();
      known = known && (choice == nullptr || choice->intrin != ir::Intrin::kIfThenElse);
      const auto* load = node.as<BufferLoadObj>();
      if (load == nullptr || !known) return;
      if (IsRowsOwn(load->indices[0])) {
        known = false;
        return;
      }
      if (Temporary(load->buffer) != nullptr) {
        known = !UsesVar(load->indices[0], rows_.rows.back().var);
        return;
      }
      const auto access = AccessOf(load->indices[0], axis);
      known = access.has_value() && !load->predicate.defined() && !IsStored(load->buffer);
      if (!known || access->kind != Kind::kRun) return;
      const int64_t extent = ir::AsInt(axis->extent).value();
      if (MemoryRun* run = RunOf(load->buffer, *access); run != nullptr)
        run->extent = std::max(run->extent, extent);
      else
        runs_.push_back(
            {Buffer(load->buffer), access->base, access->stride, extent, Buffer(load->buffer)});
    });
    // Which row it is only places in memory may know.
    const Expr rest = LoadEraser().Mutate(formula);
    return known && !UsesVar(rest, rows_.rows.back().var);
  }

  // Is it a place that a row's temporaries tell?
  bool IsRowsOwn(const Expr& index) const {
    bool found = false;
    tir::PostOrderVisit(tir::Evaluate(index), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<BufferLoadObj>();
      found = found || (load != nullptr && Temporary(load->buffer) != nullptr);
    });
    return found;
  }

  bool IsStored(const Var& buffer) const {
    return std::any_of(rows_.loops.begin(), rows_.loops.end(), [&](const Stage& loop) {
      return loop.out->same_as(buffer) ||
             (loop.before != nullptr && loop.before->out->same_as(buffer));
    });
  }

  MemoryRun* RunOf(const Var& buffer, const Access& access) {
    for (MemoryRun& run : runs_) {
      if (run.buffer.same_as(buffer) && analyzer_->ProveEqual(run.base, access.base) &&
          analyzer_->ProveEqual(run.stride, access.stride))
        return &run;
    }
    return nullptr;
  }

  // ---- code

  // `count` rows from `first_` on; null: as many as there are lanes.
  Stmt Block(const Expr& count) {
    count_ = count;
    ffi::Array<Stmt> seq;
    for (MemoryRun& run : runs_) Read(&run, &seq);
    for (auto& [one, all] : temporaries_) {
      all = Buffer(one->name, all.shape(), one.elem_dtype(), "local");
      seq.push_back(tir::AllocBuffer(all));
    }
    for (const Stage& loop : rows_.loops) Emit(loop, &seq);
    return SeqStmt::Flatten(seq);
  }

  // Lanes that hold rows; null: all do.
  Expr HasRow(const Expr& lane) const { return count_.defined() ? ir::Less(lane, count_) : Expr(); }

  template <typename Value>
  Stmt Vector(const Value& store) const {
    Var lane("lane", Int(64));
    return For(lane, 0, lanes_, ForKind::kVectorized, store(lane));
  }

  // Of row `i` of the block, the lanes that a run of `extent` elements has.
  Expr HasPlace(int64_t i, const Var& lane, int64_t extent) const {
    const Expr places = count_.defined()
                            ? Expr(ir::Select(ir::Less(Expr(i), count_), Expr(extent), Expr(0)))
                            : Expr(extent);
    return extent == lanes_ && !count_.defined() ? Expr() : Expr(ir::Less(lane, places));
  }
  Expr Place(const Expr& base, const Expr& stride, int64_t i, const Expr& lane) const {
    return analyzer_->Simplify(base + (first_ + Expr(i)) * stride) + lane;
  }
  Expr Part(const Buffer& buffer, int64_t i) const { return buffer.Load({Ramp(i)}); }
  Expr Ramp(int64_t i) const { return ir::RampExpr(Expr(i * lanes_), 1, lanes_); }

  void Read(MemoryRun* run, ffi::Array<Stmt>* seq) const {
    const DLDataType dtype = run->buffer.elem_dtype();
    const Buffer read("read", {Expr(lanes_ * lanes_)}, dtype, "local");
    run->tile = Buffer("tile", {Expr(run->extent * lanes_)}, dtype, "local");
    seq->push_back(tir::AllocBuffer(read));
    seq->push_back(tir::AllocBuffer(run->tile));
    std::vector<Expr> rows;
    for (int64_t i = 0; i < lanes_; ++i) {
      seq->push_back(Vector([&](const Var& lane) {
        const Expr value = BufferLoad(run->buffer, {Place(run->base, run->stride, i, lane)},
                                      HasPlace(i, lane, run->extent));
        return BufferStore(read, value, {Expr(i * lanes_) + lane});
      }));
      rows.push_back(Part(read, i));
    }
    TurnInRegisters(&rows, SizeInBytes(dtype), seq);
    for (int64_t j = 0; j < run->extent; ++j)
      seq->push_back(BufferStore(run->tile, rows[j], {Ramp(j)}));
  }

  void Write(const MemoryRun& run, ffi::Array<Stmt>* seq) const {
    const DLDataType dtype = run.buffer.elem_dtype();
    const Buffer turned("turned", {Expr(lanes_ * lanes_)}, dtype, "local");
    std::vector<Expr> rows(lanes_, Expr());
    for (int64_t j = 0; j < run.extent; ++j) rows[j] = Part(run.tile, j);
    TurnInRegisters(&rows, SizeInBytes(dtype), seq);
    seq->push_back(tir::AllocBuffer(turned));
    for (int64_t i = 0; i < lanes_; ++i) {
      seq->push_back(BufferStore(turned, rows[i], {Ramp(i)}));
      seq->push_back(Vector([&](const Var& lane) {
        return BufferStore(run.buffer, turned.Load({Expr(i * lanes_) + lane}),
                           {Place(run.base, run.stride, i, lane)}, HasPlace(i, lane, run.extent));
      }));
    }
  }

  // A formula for the rows along `lane`, at `place` of the axis.
  class OnLanes : public tir::StmtMutator {
   public:
    OnLanes(RowsOnLanes* rows, const std::optional<Axis>& axis, const Expr& place, const Var& lane)
        : rows_(rows), axis_(axis), place_(place), lane_(lane) {}

    Expr Of(const Expr& formula) {
      const Expr mutated = Mutate(formula);
      if (!axis_.has_value()) return mutated;
      ffi::Map<Var, Expr> map;
      map.Set(axis_->var, place_);
      return tir::Substitute(mutated, map);
    }
    Expr MutateBufferLoad(const BufferLoad& load) override {
      const Expr lanes = rows_->lanes_;
      if (const Buffer* all = rows_->Temporary(load->buffer))
        return all->Load({load->indices[0] * lanes + lane_});
      const Access access = rows_->AccessOf(load->indices[0], axis_).value();
      switch (access.kind) {
        case Kind::kSame:
          return BufferLoad(load->buffer, {tir::Substitute(load->indices[0], rows_->FirstRow())});
        case Kind::kLane:
          return BufferLoad(load->buffer, {access.base + rows_->first_ + lane_},
                            rows_->HasRow(lane_));
        case Kind::kRun:
          return rows_->RunOf(load->buffer, access)->tile.Load({axis_->var * lanes + lane_});
      }
      RELAXVM_UNREACHABLE();
    }

   private:
    RowsOnLanes* rows_;
    const std::optional<Axis>& axis_;
    const Expr& place_;
    const Var& lane_;
  };

  void Emit(const Stage& loop, ffi::Array<Stmt>* seq) {
    const std::optional<Axis> axis = AxisOf(loop);
    const Var place("place", Int(64));
    if (loop.combine == Combine::kNone) {
      StoreAt(loop, axis, place, seq);
      return;
    }
    const Buffer acc = Accumulators(loop, lanes_);
    ffi::Array<Stmt> body;
    if (loop.before != nullptr) body.push_back(Element(*loop.before, place));
    body.push_back(Vector([&](const Var& lane) {
      const Expr value = OnLanes(this, axis, place, lane).Of(loop.value);
      return BufferStore(acc, Accumulated(loop.combine, acc.Load({lane}), value), {lane});
    }));
    seq->push_back(tir::AllocBuffer(acc));
    seq->push_back(Fill(acc, loop.identity, lanes_, lanes_));
    seq->push_back(Loop(place, axis->extent, ForKind::kSerial, SeqStmt::Flatten(body)));
    seq->push_back(Vector([&](const Var& lane) {
      Stage whole = loop;
      if (loop.finish.defined())
        whole.finish = OnLanes(this, std::nullopt, place, lane).Of(loop.finish);
      return Stored(loop, Finished(whole, acc.Load({lane})), lane);
    }));
  }

  // Stores one value of each row.
  Stmt Stored(const Stage& stage, const Expr& value, const Var& lane) const {
    if (const Buffer* all = Temporary(*stage.out))
      return BufferStore(*all, value, {stage.indices[0] * Expr(lanes_) + lane});
    const Access access = AccessOf(stage.indices[0], std::nullopt).value();
    return BufferStore(*stage.out, value, {access.base + first_ + lane}, HasRow(lane));
  }

  // An element of each row of a temporary.
  Stmt Element(const Stage& stage, const Var& place) {
    const std::optional<Axis> axis = stage.spatial[0];
    return Vector([&](const Var& lane) {
      ffi::Map<Var, Expr> map;
      map.Set(axis->var, place);
      const Expr at = tir::Substitute(stage.indices[0], map) * Expr(lanes_) + lane;
      return BufferStore(*Temporary(*stage.out), OnLanes(this, axis, place, lane).Of(stage.value),
                         {at});
    });
  }

  void StoreAt(const Stage& stage, const std::optional<Axis>& axis, const Var& place,
               ffi::Array<Stmt>* seq) {
    if (!axis.has_value()) {
      seq->push_back(Vector([&](const Var& lane) {
        return Stored(stage, OnLanes(this, axis, place, lane).Of(stage.value), lane);
      }));
      return;
    }
    if (Temporary(*stage.out) != nullptr) {
      seq->push_back(Loop(place, axis->extent, ForKind::kSerial, Element(stage, place)));
      return;
    }
    const int64_t extent = ir::AsInt(axis->extent).value();
    const Access access = AccessOf(stage.indices[0], axis).value();
    const MemoryRun run{*stage.out, access.base, access.stride, extent,
                        Buffer("tile", {Expr(extent * lanes_)}, stage.out->elem_dtype(), "local")};
    seq->push_back(tir::AllocBuffer(run.tile));
    seq->push_back(Loop(place, axis->extent, ForKind::kSerial, Vector([&](const Var& lane) {
                          return BufferStore(run.tile,
                                             OnLanes(this, axis, place, lane).Of(stage.value),
                                             {place * Expr(lanes_) + lane});
                        })));
    Write(run, seq);
  }

  const RowLoops& rows_;
  arith::Analyzer* analyzer_;
  int64_t lanes_ = 0;
  int64_t longest_ = 0;                                 // of the rows' axes
  std::vector<std::pair<Buffer, Buffer>> temporaries_;  // of one row, of all
  std::vector<MemoryRun> runs_;                         // that are read
  Expr first_;                                          // row of a block
  Expr count_;
};

}  // namespace

std::optional<RowForm> EmitRowsOnLanes(const RowLoops& rows, const Machine& machine,
                                       arith::Analyzer* analyzer) {
  return RowsOnLanes(rows, machine, analyzer).Run();
}

}  // namespace relaxvm::schedule::cpu
