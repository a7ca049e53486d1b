// SPDX-License-Identifier: Apache-2.0
// EmitPackGroups: B copied to panels of words at run time; a word is a group of neighbours along
// the innermost axis of the sum.
#include "schedule/cpu/contraction/contraction.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

class GroupPacker {
 public:
  GroupPacker(Contraction* c, int64_t width, const Machine& machine, arith::Analyzer* analyzer)
      : c_(*c),
        width_(width),
        lanes_(machine.Lanes(sizeof(int32_t))),
        size_(c->group_if_packed),
        analyzer_(analyzer),
        panels_(analyzer->Simplify(ir::CeilDiv(c->vector.extent, width))),
        inner_(c->stage.reduce.back()) {}

  PackedB Run() {
    c_.stage.reduce.back() = {Var(inner_.var->name, Int(64)),
                              analyzer_->Simplify(ir::FloorDiv(inner_.extent, size_))};
    rest_ = analyzer_->Simplify(inner_.extent - c_.stage.reduce.back().extent * Expr(size_));
    const bool has_rest = !ir::IsIntValue(rest_, 0);
    depth_ = analyzer_->Simplify(NumPoints(c_.stage.reduce) + Expr(has_rest ? 1 : 0));
    const Expr size = panels_ * Expr(width_) * NumPoints(c_.OuterOfB());
    Buffer words("packed", {analyzer_->Simplify(size * depth_)}, Int(32));
    auto offset = LinearOffset::Of(c_.LoadOf(c_.b)->indices[0], {c_.vector, inner_});
    const bool along_k = offset.has_value() && ir::IsIntValue(offset->Coeff(inner_.var), 1) &&
                         !ir::IsIntValue(offset->Coeff(c_.vector.var), 1);
    Var panel("panel", Int(64));
    std::vector<Axis> tasks = c_.OuterOfB();
    tasks.push_back({panel, panels_});
    Stmt body = along_k ? AlongK(words, panel) : AlongColumns(words, panel, Expr());
    if (has_rest) {
      ffi::Map<Var, Expr> map;
      map.Set(c_.stage.reduce.back().var, c_.stage.reduce.back().extent);
      const Stmt rest = tir::Substitute(AlongColumns(words, panel, rest_), map);
      body = SeqStmt::Flatten({body, tir::IfThenElse(ir::Greater(rest_, Expr(0)), rest)});
      c_.rest_of_group = rest_;
    }
    Stmt fill = OverTasks(tasks, body, depth_ * Expr(width_), analyzer_);
    ffi::Map<Var, Expr> map;
    map.Set(inner_.var, c_.stage.reduce.back().var * Expr(size_));
    c_.a = tir::Substitute(c_.a, map);
    c_.b = words.Load({Row(c_.panel) + c_.column});
    c_.panel_width = width_;
    c_.group = size_;
    c_.b_in_words = true;
    return {words, fill};
  }

 private:
  // Where the words of the current group of k start.
  Expr Row(const Expr& panel) const {
    Expr k = LinearIndex(c_.stage.reduce);
    return ((LinearIndex(c_.OuterOfB()) * panels_ + panel) * depth_ + k) * Expr(width_);
  }
  // B at a column and at one place of the current group.
  Expr Element(const Expr& column, int64_t place) const {
    ffi::Map<Var, Expr> map;
    map.Set(c_.vector.var, column);
    map.Set(inner_.var, c_.stage.reduce.back().var * Expr(size_) + Expr(place));
    return tir::Substitute(StripCasts(c_.b), map);
  }

  // A register of words at a time: of all groups, or of one that has `rest` elements.
  Stmt AlongColumns(const Buffer& words, const Var& panel, const Expr& rest) const {
    ffi::Array<Stmt> seq;
    for (int64_t at = 0; at < width_; at += lanes_) {
      Var lane("lane", Int(64));
      const Expr column = panel * Expr(width_) + Expr(at) + lane;
      Expr word = WordOf(size_, rest, [&](int64_t place) { return Element(column, place); });
      if (!analyzer_->ProveEqual(panels_ * Expr(width_), c_.vector.extent)) {
        Expr inside = c_.vector.extent - panel * Expr(width_) - Expr(at);
        word = PredicateLoads(word, lane, ir::Less(lane, inside));
      }
      seq.push_back(For(lane, 0, lanes_, ForKind::kVectorized,
                        BufferStore(words, word, {Row(panel) + Expr(at) + lane})));
    }
    const Stmt row = SeqStmt::Flatten(seq);
    return rest.defined() ? row : Loops(c_.stage.reduce, row);
  }

  // A group is contiguous: word by word, along k.
  Stmt AlongK(const Buffer& words, const Var& panel) const {
    Var column("column", Int(64));
    Expr at = panel * Expr(width_) + column;
    const Expr first = Element(at, 0);
    const auto* load = first.as<tir::BufferLoadObj>();
    Expr group = tir::BufferLoad(load->buffer, {ir::RampExpr(load->indices[0], 1, size_)});
    Expr word = ir::CallIntrin(Int(32), ir::Intrin::kReinterpret, {group});
    word = ir::IfThenElse(ir::Less(at, c_.vector.extent), word, ir::Const(Int(32), 0));
    Stmt body = BufferStore(words, word, {Row(panel) + column});
    return For(column, 0, width_, ForKind::kSerial, Loops(c_.stage.reduce, body));
  }

  Contraction& c_;
  int64_t width_, lanes_, size_;
  arith::Analyzer* analyzer_;
  Expr panels_, depth_;
  Expr rest_;   // elements behind the whole groups
  Axis inner_;  // of the sum, element by element
};

}  // namespace

Expr WordOf(int64_t size, const Expr& rest, const std::function<Expr(int64_t place)>& element) {
  const int bits = static_cast<int>(32 / size);
  Expr word;
  for (int64_t place = 0; place < size; ++place) {
    Expr part = ir::CallIntrin(UInt(bits), ir::Intrin::kReinterpret, {element(place)});
    part = ir::Cast(Int(32), part);
    if (rest.defined())
      part = ir::IfThenElse(ir::Greater(rest, Expr(place)), part, ir::Const(Int(32), 0));
    if (place > 0)
      part = ir::Make(ir::BinaryOp::kShiftLeft, part, ir::Const(Int(32), place * bits));
    word = place == 0 ? part : ir::Make(ir::BinaryOp::kBitOr, word, part);
  }
  return word;
}

PackedB EmitPackGroups(Contraction* c, int64_t width, const Machine& machine,
                       arith::Analyzer* analyzer) {
  return GroupPacker(c, width, machine, analyzer).Run();
}

}  // namespace relaxvm::schedule::cpu
