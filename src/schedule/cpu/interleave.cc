// SPDX-License-Identifier: Apache-2.0
// EmitInterleave: an elementwise stage that puts a few runs of memory side by side element by
// element (planes of a picture to pixels), or takes them apart again.
//
// As many registers as there are runs hold as many elements of each.  Every register of the result
// is made of all of them by shuffles of two registers, one for each run but the first.
#include <algorithm>

#include "schedule/cpu/cpu.h"
#include "schedule/cpu/loads.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoad;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kMaxLanes = 16;
constexpr int64_t kMaxRuns = 7;        // code grows with its square
constexpr int64_t kBlockElems = 4096;  // of each run

class Interleaver {
 public:
  Interleaver(const Stage& stage, const Machine& machine, arith::Analyzer* analyzer)
      : stage_(stage),
        analyzer_(analyzer),
        lanes_(std::min(kMaxLanes, machine.Lanes(ElemBytes(stage)))) {}

  bool Find() {
    if (stage_.combine != Combine::kNone || stage_.spatial.size() < 2) return false;
    LoadCollector loads;
    loads.Visit(stage_.value);
    for (const Axis& few : stage_.spatial) {
      runs_ = ir::AsInt(few.extent).value_or(0);
      if (runs_ < 2 || runs_ > kMaxRuns || runs_ * 2 >= lanes_) continue;
      for (const Axis& along : stage_.spatial) {
        if (along.var.same_as(few.var)) continue;
        if (ir::AsInt(along.extent).value_or(lanes_) < lanes_) continue;
        few_ = few;
        along_ = along;
        if (loads.sometimes.empty() ? Fits(loads.always) : ChoosesByRun()) return true;
      }
    }
    return false;
  }

  // One block of the runs.
  RowForm Run() {
    const Axis block{Var("block", Int(64)),
                     analyzer_->Simplify(ir::CeilDiv(along_.extent, Expr(kBlockElems)))};
    const Expr first = block.var * Expr(kBlockElems);
    const Expr count = ir::Min(kBlockElems, along_.extent - first);
    const bool divides = analyzer_->ProveEqual(ir::FloorMod(along_.extent, lanes_), 0);
    Var tile("tile", Int(64)), number("count", Int(64));
    ffi::Array<Stmt> seq = {tir::Bind(number, analyzer_->Simplify(count)),
                            For(tile, 0, ir::FloorDiv(number, lanes_), ForKind::kSerial,
                                Tile(first + tile * Expr(lanes_)))};
    // A result may lie where an operand does: nothing is made twice.
    if (!divides) {
      const Expr whole = ir::FloorDiv(number, lanes_) * Expr(lanes_);
      seq.push_back(tir::IfThenElse(ir::Less(whole, number), Tile(first + whole, number - whole)));
    }
    RowForm form;
    form.body = SeqStmt::Flatten(seq);
    for (const Axis& axis : stage_.spatial) {
      if (!axis.var.same_as(few_.var) && !axis.var.same_as(along_.var)) form.rows.push_back(axis);
    }
    form.rows.push_back(block);
    form.work = ir::Min(kBlockElems, along_.extent) * Expr(runs_ * (CostOf(stage_.value) + 1));
    return form;
  }

 private:
  // What an offset takes from the two axes; -1: something that is no constant.
  struct Steps {
    int64_t few, along;
    bool SideBySide(int64_t runs) const { return few == 1 && along == runs; }
  };
  std::optional<Steps> StepsOf(const Expr& offset) const {
    const auto linear = LinearOffset::Of(offset, {few_, along_});
    if (!linear.has_value()) return std::nullopt;
    auto step = [&](const Var& axis) {
      return ir::AsInt(analyzer_->Simplify(linear->Coeff(axis))).value_or(-1);
    };
    return Steps{step(few_.var), step(along_.var)};
  }

  // Do results lie side by side and operands in runs, or the other way round?
  bool Fits(const std::vector<BufferLoad>& loads) {
    turned_.clear();
    const auto out = StepsOf(stage_.indices[0]);
    if (!out.has_value()) return false;
    joins_ = out->SideBySide(runs_);
    if (!joins_ && out->along != 1) return false;
    bool moves = false;
    for (const BufferLoad& load : loads) {
      const auto in = StepsOf(load->indices[0]);
      if (!in.has_value()) return false;
      const bool side_by_side = in->SideBySide(runs_);
      if (in->few == 0 && in->along == 0) continue;
      if (!side_by_side && in->along != 0 && in->along != 1) return false;
      moves = moves || (joins_ ? in->along == 1 : side_by_side);
      if (side_by_side == joins_) continue;
      if (SizeInBytes(load.dtype()) * 8 != load.dtype().bits) return false;
      turned_.push_back(load);
    }
    return moves && !UsesAny(LoadEraser().Mutate(stage_.value), {few_, along_});
  }

  // A formula that chooses by the run, as that of two tensors whose channels are shuffled, is
  // another one for each.
  bool ChoosesByRun() {
    turned_.clear();
    of_run_.clear();
    const auto out = StepsOf(stage_.indices[0]);
    const DLDataType dtype = stage_.value.dtype();
    joins_ = out.has_value() && out->SideBySide(runs_);
    if (!joins_ || SizeInBytes(dtype) * 8 != dtype.bits) return false;
    analyzer_->Bind(along_.var, 0, along_.extent);
    for (int64_t number = 0; number < runs_; ++number) {
      ffi::Map<Var, Expr> map;
      map.Set(few_.var, number);
      const Expr value = analyzer_->Simplify(tir::Substitute(stage_.value, map));
      LoadCollector loads;
      loads.Visit(value);
      auto is_run = [&](const BufferLoad& load) {
        const auto in = StepsOf(load->indices[0]);
        return in.has_value() && (in->along == 0 || in->along == 1);
      };
      if (!loads.sometimes.empty() ||
          !std::all_of(loads.always.begin(), loads.always.end(), is_run) ||
          UsesAny(LoadEraser().Mutate(value), {along_}))
        return false;
      of_run_.push_back(value);
    }
    return true;
  }

  // The expression at element `few` of the places from `along` on.
  template <typename T>
  T At(const T& what, const Expr& few, const Expr& along) const {
    ffi::Map<Var, Expr> map;
    map.Set(few_.var, few);
    map.Set(along_.var, along);
    return tir::Substitute(what, map);
  }
  // Register `number` of what lies side by side, or of run `number`.
  template <typename T>
  T Register(const T& what, bool side_by_side, int64_t number, const Expr& base,
             const Expr& lane) const {
    return side_by_side ? At(what, Expr(number * lanes_) + lane, base)
                        : At(what, Expr(number), base + lane);
  }

  // Lanes of a register of runs, or of what lies side by side, that the first `count` elements of
  // each run have.
  Expr IsThere(bool side_by_side, int64_t number, const Expr& lane, const Expr& count) const {
    return side_by_side ? ir::Less(Expr(number * lanes_) + lane, count * Expr(runs_))
                        : ir::Less(lane, count);
  }

  // All runs' elements at [base, base + lanes), or `count` of them (null: all).
  Stmt Tile(const Expr& base, const Expr& count = Expr()) const {
    ffi::Array<Stmt> seq;
    std::vector<Buffer> tiles;
    for (const BufferLoad& load : turned_) tiles.push_back(Turned(load, base, count, &seq));
    const auto chosen =
        of_run_.empty() ? std::nullopt : std::optional(Turned(Expr(), base, count, &seq));
    for (int64_t number = 0; number < runs_; ++number) {
      Var lane("lane", Int(64));
      LoadReplacer replacer;
      for (size_t i = 0; i < turned_.size(); ++i) {
        replacer.values.emplace_back(turned_[i].get(),
                                     tiles[i].Load({Expr(number * lanes_) + lane}));
      }
      Expr value = chosen.has_value()
                       ? chosen->Load({Expr(number * lanes_) + lane})
                       : Register(replacer.Mutate(stage_.value), joins_, number, base, lane);
      const Expr at = Register(stage_.indices[0], joins_, number, base, lane);
      const Expr there = count.defined() ? IsThere(joins_, number, lane, count) : Expr();
      if (count.defined()) value = PredicateLoads(value, lane, there);
      seq.push_back(
          For(lane, 0, lanes_, ForKind::kVectorized, BufferStore(*stage_.out, value, {at}, there)));
    }
    return SeqStmt::Flatten(seq);
  }

  // Where lane `lane` of result `number` comes from: the operand's register and its lane.
  std::pair<int64_t, int64_t> SourceOf(int64_t number, int64_t lane) const {
    const int64_t place = joins_ ? number * lanes_ + lane : lane * runs_ + number;
    return joins_ ? std::pair(place % runs_, place / runs_)
                  : std::pair(place / lanes_, place % lanes_);
  }

  // The registers that a load (null: the formula of each run) gives at `base`, in the order of the
  // results.
  Buffer Turned(const Expr& load, const Expr& base, const Expr& count,
                ffi::Array<Stmt>* seq) const {
    const DLDataType dtype = load.defined() ? load.dtype() : stage_.value.dtype();
    Buffer tile("turned", {Expr(runs_ * lanes_)}, dtype, "local");
    seq->push_back(tir::AllocBuffer(tile));
    auto place = [&](int64_t number) { return ir::RampExpr(Expr(number * lanes_), 1, lanes_); };
    auto bound = [&](const Expr& value) {
      Var var("v", value.dtype());
      seq->push_back(tir::Bind(var, value));
      return var;
    };
    for (int64_t number = 0; number < runs_; ++number) {
      Var lane("lane", Int(64));
      const Expr& source = load.defined() ? load : of_run_[static_cast<size_t>(number)];
      Expr value = Register(source, !joins_, number, base, lane);
      if (count.defined())
        value = PredicateLoads(value, lane, IsThere(!joins_, number, lane, count));
      seq->push_back(For(lane, 0, lanes_, ForKind::kVectorized,
                         BufferStore(tile, value, {Expr(number * lanes_) + lane})));
    }
    std::vector<Expr> from;
    for (int64_t number = 0; number < runs_; ++number)
      from.push_back(bound(tile.Load({place(number)})));
    for (int64_t number = 0; number < runs_; ++number) {
      Expr value = from[0];
      for (int64_t next = 1; next < runs_; ++next) {
        ffi::Array<int64_t> picks;
        for (int64_t lane = 0; lane < lanes_; ++lane) {
          const auto [source, at] = SourceOf(number, lane);
          picks.push_back(source == next ? lanes_ + at : source == 0 && next == 1 ? at : lane);
        }
        value = bound(ir::ShuffleExpr({value, from[static_cast<size_t>(next)]}, picks));
      }
      seq->push_back(BufferStore(tile, value, {place(number)}));
    }
    return tile;
  }

  const Stage& stage_;
  arith::Analyzer* analyzer_;
  const int64_t lanes_;
  int64_t runs_ = 0;
  bool joins_ = false;  // results lie side by side
  Axis few_{Var("few", Int(64)), Expr(1)};
  Axis along_{Var("along", Int(64)), Expr(1)};
  std::vector<BufferLoad> turned_;
  std::vector<Expr> of_run_;  // where formulas choose by it
};

}  // namespace

std::optional<RowForm> EmitInterleave(const Stage& flat, const Machine& machine,
                                      arith::Analyzer* analyzer) {
  Interleaver interleaver(flat, machine, analyzer);
  if (!interleaver.Find()) return std::nullopt;
  return interleaver.Run();
}

}  // namespace relaxvm::schedule::cpu
