// SPDX-License-Identifier: Apache-2.0
// EmitPack: B copied to panels at run time.  What lies along the columns is copied register by
// register, what lies along k is turned in square blocks of registers.
#include "schedule/cpu/contraction/contraction.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

class Packer {
 public:
  Packer(const Contraction& c, int64_t width, const Machine& machine, arith::Analyzer* analyzer)
      : c_(c),
        width_(width),
        lanes_(machine.Lanes(SizeInBytes(c.acc))),
        analyzer_(analyzer),
        panels_(analyzer->Simplify(ir::CeilDiv(c.vector.extent, width))),
        full_panels_(analyzer->Simplify(ir::FloorDiv(c.vector.extent, width))),
        packed_(MakeBuffer()) {}

  PackedB Run(Expr* reads) {
    *reads = packed_.Load({Row(c_.panel, LinearIndex(c_.stage.reduce)) + c_.column});
    auto offset = LinearOffset::Of(c_.LoadOf(c_.b)->indices[0], c_.AllAxes());
    const bool along_columns = ir::IsIntValue(offset->Coeff(c_.vector.var), 1);
    const bool along_k =
        !c_.stage.reduce.empty() && ir::IsIntValue(offset->Coeff(c_.stage.reduce.back().var), 1);
    Var panel("panel", Int(64));
    Stmt whole, last;
    if (along_columns) {
      whole = CopyRows(panel, Expr());
      last = CopyRows(panel, c_.vector.extent);
    } else if (along_k) {
      whole = Turn(panel, Expr());
      last = Turn(panel, c_.vector.extent);
    } else {
      whole = OneByOne(panel, 0, width_, c_.vector.extent - panel * Expr(width_));
    }
    Stmt body = !last.defined() || analyzer_->ProveEqual(panels_, full_panels_)
                    ? whole
                    : Stmt(tir::IfThenElse(ir::Less(panel, full_panels_), whole, last));
    std::vector<Axis> tasks = c_.OuterOfB();
    tasks.push_back({panel, panels_});
    return {packed_, OverTasks(tasks, body, Depth() * Expr(width_ / 4), analyzer_)};
  }

 private:
  Expr Depth() const { return analyzer_->Simplify(NumPoints(c_.stage.reduce)); }

  Buffer MakeBuffer() const {
    const Expr size = panels_ * Depth() * Expr(width_) * NumPoints(c_.OuterOfB());
    return Buffer("packed", {analyzer_->Simplify(size)}, c_.b.dtype());
  }

  // Where row k of a panel starts: [batch, outer, panel, k, width].
  Expr Row(const Expr& panel, const Expr& k) const {
    return ((LinearIndex(c_.OuterOfB()) * panels_ + panel) * Depth() + k) * Expr(width_);
  }

  // B at a column of a panel, and at `k` along the innermost axis of the reduction (null: its own
  // variable).
  Expr Source(const Expr& panel, const Expr& column, const Expr& k = Expr()) const {
    ffi::Map<Var, Expr> map;
    map.Set(c_.vector.var, panel * Expr(width_) + column);
    if (k.defined()) map.Set(c_.stage.reduce.back().var, k);
    return tir::Substitute(c_.b, map);
  }

  // Columns at or above `limit` (null: none) become 0.
  Stmt CopyRows(const Var& panel, const Expr& limit) const {
    ffi::Array<Stmt> seq;
    for (int64_t at = 0; at < width_; at += lanes_) {
      Var lane("lane", Int(64));
      Expr column = Expr(at) + lane;
      Expr value = Source(panel, column);
      if (limit.defined())
        value =
            PredicateLoads(value, lane, ir::Less(lane, limit - panel * Expr(width_) - Expr(at)));
      seq.push_back(
          For(lane, 0, lanes_, ForKind::kVectorized,
              BufferStore(packed_, value, {Row(panel, LinearIndex(c_.stage.reduce)) + column})));
    }
    return Loops(c_.stage.reduce, SeqStmt::Flatten(seq));
  }

  // `count` columns of a panel, element by element; those at or above `inside` become 0.
  Stmt OneByOne(const Var& panel, int64_t from, int64_t count, const Expr& inside) const {
    Var column("column", Int(64));
    Expr at = Expr(from) + column;
    Expr value =
        ir::IfThenElse(ir::Less(at, inside), Source(panel, at), ir::Const(c_.b.dtype(), 0));
    Stmt body = BufferStore(packed_, value, {Row(panel, LinearIndex(c_.stage.reduce)) + at});
    // Reads run along k: k innermost keeps them in few lines.
    return For(column, 0, count, ForKind::kSerial, Loops(c_.stage.reduce, body));
  }

  Stmt Turn(const Var& panel, const Expr& limit) const {
    ffi::Array<Stmt> seq;
    for (int64_t from = 0; from < width_; from += lanes_) {
      Stmt block = TurnBlocks(panel, from);
      if (!limit.defined()) {
        seq.push_back(block);
        continue;
      }
      const Expr inside = limit - panel * Expr(width_);
      seq.push_back(tir::IfThenElse(ir::GreaterEqual(inside, from + lanes_), block,
                                    OneByOne(panel, from, lanes_, inside)));
    }
    return SeqStmt::Flatten(seq);
  }

  // lanes_ columns of a panel: blocks of lanes_ x lanes_ elements through registers, then what is
  // left of k.
  Stmt TurnBlocks(const Var& panel, int64_t from) const {
    const std::vector<Axis>& reduce = c_.stage.reduce;
    const Axis& inner = reduce.back();
    const std::vector<Axis> outer(reduce.begin(), reduce.end() - 1);
    const Expr blocks = analyzer_->Simplify(ir::FloorDiv(inner.extent, lanes_));
    Var block("block", Int(64)), rest("rest", Int(64)), column("column", Int(64));
    const Expr first = LinearIndex(outer) * inner.extent;
    const Expr done = analyzer_->Simplify(blocks * Expr(lanes_));
    Stmt single = For(column, 0, lanes_, ForKind::kSerial,
                      BufferStore(packed_, Source(panel, Expr(from) + column, done + rest),
                                  {Row(panel, first + done + rest) + Expr(from) + column}));
    Stmt turned =
        Loop(block, blocks, ForKind::kSerial, TurnBlock(panel, from, block * Expr(lanes_), first));
    Stmt left = Loop(rest, analyzer_->Simplify(inner.extent - done), ForKind::kSerial, single);
    return Loops(outer, SeqStmt::Flatten({turned, left}));
  }

  // Rows of the block are columns of B.
  Stmt TurnBlock(const Var& panel, int64_t from, const Expr& k, const Expr& first) const {
    ffi::Array<Stmt> seq;
    Buffer block("block", {Expr(lanes_ * lanes_)}, c_.b.dtype(), "local");
    seq.push_back(tir::AllocBuffer(block));
    std::vector<Expr> rows;
    for (int64_t i = 0; i < lanes_; ++i) {
      Var lane("lane", Int(64));
      const Expr at(i * lanes_);
      seq.push_back(For(lane, 0, lanes_, ForKind::kVectorized,
                        BufferStore(block, Source(panel, Expr(from + i), k + lane), {at + lane})));
      rows.push_back(block.Load({ir::RampExpr(at, 1, lanes_)}));
    }
    TurnInRegisters(&rows, SizeInBytes(c_.b.dtype()), &seq);
    for (int64_t i = 0; i < lanes_; ++i) {
      const Expr to = Row(panel, first + k + Expr(i)) + Expr(from);
      seq.push_back(BufferStore(packed_, rows[i], {ir::RampExpr(to, 1, lanes_)}));
    }
    return SeqStmt::Flatten(seq);
  }

  const Contraction& c_;
  int64_t width_;
  int64_t lanes_;
  arith::Analyzer* analyzer_;
  Expr panels_, full_panels_;
  Buffer packed_;
};

}  // namespace

PackedB EmitPack(Contraction* c, int64_t width, const Machine& machine, arith::Analyzer* analyzer) {
  Expr reads;
  PackedB packed = Packer(*c, width, machine, analyzer).Run(&reads);
  c->b = reads;
  c->panel_width = width;
  return packed;
}

}  // namespace relaxvm::schedule::cpu
