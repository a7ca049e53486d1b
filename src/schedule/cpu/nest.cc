// SPDX-License-Identifier: Apache-2.0
// EmitNest: one stage as vector loops.  An axis is chosen to run along the lanes: one that memory
// runs along too.
#include <algorithm>

#include "schedule/cpu/nest.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::Intrin;
using tir::BufferLoad;
using tir::BufferLoadObj;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

// Sums of no more vectors each are made a vector of sums at once: what adds up lanes would take as
// long as what fills them.
constexpr int64_t kShortVectors = 4;

// A line of so many vectors is cut where the formula's choices change.
constexpr int64_t kFramedVectors = 4;

// Vectors of an elementary function that are computed step by step together on 16 registers: one
// after the other, a core sees too few of their instructions at once to hide how long the chain of
// each is.
constexpr int64_t kChains = 4;

// Erf and gelu go by tables there, whose instructions are what they wait for.
class FindsElementaryFunction : public tir::StmtVisitor {
 public:
  bool found = false;
  void VisitIntrin(const ir::IntrinObj* call) override {
    switch (call->intrin) {
      case Intrin::kExp:
      case Intrin::kExpOfNegative:
      case Intrin::kLog:
      case Intrin::kTanh:
      case Intrin::kSigmoid:
      case Intrin::kSin:
      case Intrin::kCos: found = true; break;
      default: StmtVisitor::VisitIntrin(call);
    }
  }
};
bool HasElementaryFunction(const Expr& value) {
  FindsElementaryFunction visitor;
  visitor.Visit(tir::Evaluate(value));
  return visitor.found;
}

class NestEmitter {
 public:
  NestEmitter(const Stage& stage, const Machine& traits, arith::Analyzer* analyzer)
      : stage_(stage),
        traits_(traits),
        analyzer_(analyzer),
        lanes_(traits.Lanes(ElemBytes(stage))) {}

  Stmt Run() {
    if (stage_.spread != nullptr) return EmitMoments(stage_, traits_, analyzer_);
    const Choice choice = ChooseLanes(stage_, lanes_);
    switch (choice.kind) {
      case AlongLanes::kNothing: return Scalar();
      case AlongLanes::kSpatial:
        lanes_ = LanesAlong(stage_.spatial[choice.index], lanes_);
        if (stage_.combine == Combine::kNone)
          lanes_ *= VectorsOfPeriods(stage_.value, stage_.spatial[choice.index]);
        return AlongSpatial(choice.index);
      case AlongLanes::kReduce: return AlongReduce(choice.index);
    }
    RELAXVM_UNREACHABLE();
  }

  bool RunsAlong() const {
    const Choice choice = ChooseLanes(stage_, lanes_);
    return stage_.combine == Combine::kNone ? choice.kind == AlongLanes::kSpatial
                                            : choice.kind == AlongLanes::kReduce;
  }

  Stmt Rest() const {
    const Axis axis = stage_.spatial[0];
    const Expr step = kAccumulators * lanes_;
    const Expr done = analyzer_->Simplify(ir::FloorDiv(axis.extent, step) * step);
    if (analyzer_->ProveEqual(done, axis.extent)) return SeqStmt(ffi::Array<Stmt>());
    ffi::Map<Var, Expr> map;
    map.Set(axis.var, done + axis.var);
    Stage rest = Substituted(stage_, map);
    rest.spatial[0].extent = analyzer_->Simplify(axis.extent - done);
    return NestEmitter(rest, traits_, analyzer_).AlongSpatial(0);
  }

  // A store of no lanes would still fetch its line.
  Stmt Partial() const {
    const Expr& extent = stage_.spatial[0].extent;
    return tir::IfThenElse(ir::Less(Expr(0), extent), OneVector(stage_.spatial[0], 0, extent));
  }

 private:
  static std::vector<Axis> Without(std::vector<Axis> axes, size_t index) {
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(index));
    return axes;
  }

  // One element after the other; the sum of a reduction stays in a register.
  Stmt Scalar() const {
    if (stage_.combine == Combine::kNone) {
      return Loops(stage_.spatial, BufferStore(*stage_.out, stage_.value, stage_.indices));
    }
    Buffer acc = Accumulators(stage_, 1);
    Stmt update = BufferStore(acc, Accumulated(stage_.combine, acc.Load({0}), stage_.value), {0});
    if (stage_.before != nullptr) {
      ffi::Map<Var, Expr> map;
      map.Set(stage_.before->spatial[0].var, stage_.reduce[0].var);
      const Stage& before = *stage_.before;
      update = SeqStmt({BufferStore(*before.out, tir::Substitute(before.value, map),
                                    {tir::Substitute(before.indices[0], map)}),
                        update});
    }
    return Loops(stage_.spatial,
                 SeqStmt::Flatten(
                     {tir::AllocBuffer(acc), BufferStore(acc, stage_.identity, {0}),
                      Loops(stage_.reduce, update),
                      BufferStore(*stage_.out, Finished(stage_, acc.Load({0})), stage_.indices)}));
  }

  // How many vectors of `value` to compute together.
  int64_t ChainsOf(const Expr& value) const {
    return traits_.num_vectors <= 16 && HasElementaryFunction(value) ? kChains : 1;
  }

  // One vector of elements from `base` on; lanes at or above `limit` (null: none) are left out.
  Stmt OneVector(const Axis& axis, const Expr& base, const Expr& limit, int64_t vectors = 1) const {
    Var lane("lane", Int(64));
    ffi::Map<Var, Expr> map;
    map.Set(axis.var, base + lane);
    Expr predicate = limit.defined() ? ir::Less(lane, limit - base) : Expr();
    Expr value = tir::Substitute(stage_.value, map);
    if (predicate.defined()) value = PredicateLoads(value, lane, predicate);
    return For(
        lane, 0, vectors * lanes_, ForKind::kVectorized,
        BufferStore(*stage_.out, value, {tir::Substitute(stage_.indices[0], map)}, predicate));
  }

  // A formula that chooses by bounds on an axis: `inside` in [first, end) where `of_line` holds.
  struct Framed {
    Expr inside, outside;  // null: the formula is another one
    Expr first = 0, end, of_line = ir::Const(Bool(), 1);
  };

  Framed FramedAlong(const Axis& axis) const {
    const auto* choice = stage_.value.as<ir::IntrinObj>();
    if (choice == nullptr || choice->intrin != Intrin::kIfThenElse ||
        ir::AsInt(axis.extent).value_or(0) < kFramedVectors * lanes_)
      return {};
    Framed framed;
    framed.end = axis.extent;
    std::vector<Expr> todo = {choice->args[0]};
    while (!todo.empty()) {
      const Expr condition = todo.back();
      todo.pop_back();
      const auto* both = condition.as<ir::BinaryObj>();
      if (both != nullptr && both->op == ir::BinaryOp::kAnd) {
        todo.push_back(both->a);
        todo.push_back(both->b);
        continue;
      }
      if (!UsesVar(condition, axis.var)) {
        framed.of_line = ir::And(framed.of_line, condition);
        continue;
      }
      const Expr slack = AtLeastZero(condition);
      const auto linear = slack.defined() ? LinearOffset::Of(slack, {axis}) : std::nullopt;
      if (!linear.has_value()) return {};
      const auto step = ir::AsInt(analyzer_->Simplify(linear->Coeff(axis.var)));
      if (step == 1)
        framed.first = ir::Max(framed.first, Expr(0) - linear->rest());
      else if (step == -1)
        framed.end = ir::Min(framed.end, linear->rest() + 1);
      else
        return {};
    }
    framed.inside = choice->args[1];
    framed.outside = choice->args[2];
    framed.first = analyzer_->Simplify(ir::Min(framed.first, axis.extent));
    framed.end = analyzer_->Simplify(ir::Max(framed.end, framed.first));
    return framed;
  }

  // Vectors [from, to) of the axis.
  Stmt Blocks(const Axis& axis, Expr from, const Expr& to) const {
    ffi::Array<Stmt> loops;
    for (int64_t vectors = ChainsOf(stage_.value);; vectors = 1) {
      Var block("block", Int(64));
      const Expr blocks = analyzer_->Simplify(ir::FloorDiv(to - from, vectors));
      if (vectors > 1 && ir::IsIntValue(blocks, 0)) continue;
      const Stmt loop =
          Loop(block, blocks, ForKind::kSerial,
               OneVector(axis, (from + block * Expr(vectors)) * Expr(lanes_), Expr(), vectors));
      loops.push_back(FetchingAhead(loop, axis, from * Expr(lanes_), vectors));
      from = analyzer_->Simplify(from + blocks * Expr(vectors));
      if (vectors == 1 || analyzer_->ProveEqual(from, to)) return SeqStmt::Flatten(loops);
    }
  }

  // The same for [0, blocks): only where a border passes through a vector its lanes are asked where
  // they are.
  Stmt Blocks(const Framed& framed, const Axis& axis, const Expr& blocks) const {
    auto with = [&](const Expr& value, const Expr& from, const Expr& to) {
      Stage part = stage_;
      part.value = value;
      NestEmitter emitter(part, traits_, analyzer_);
      emitter.lanes_ =
          lanes_;  // what `part` reads may be narrower than what the whole formula does
      return emitter.Blocks(axis, from, to);
    };
    auto bound = [&](const Expr& e) { return analyzer_->Simplify(ir::Min(ir::Max(e, 0), blocks)); };
    const Expr before = bound(ir::FloorDiv(framed.first, lanes_));
    const Expr first = bound(ir::CeilDiv(framed.first, lanes_));
    const Expr end = analyzer_->Simplify(ir::Max(bound(ir::FloorDiv(framed.end, lanes_)), first));
    const Expr after = analyzer_->Simplify(ir::Max(bound(ir::CeilDiv(framed.end, lanes_)), end));
    const Stmt line =
        SeqStmt::Flatten({with(framed.outside, 0, before), with(stage_.value, before, first),
                          with(framed.inside, first, end), with(stage_.value, end, after),
                          with(framed.outside, after, blocks)});
    const Expr of_line = analyzer_->Simplify(framed.of_line);
    if (ir::IsIntValue(of_line, 1)) return line;
    return tir::IfThenElse(of_line, line, with(framed.outside, 0, blocks));
  }

  Stmt AlongSpatial(size_t index) const {
    if (auto done = EmitShortRows(stage_, lanes_, analyzer_)) return *done;
    if (stage_.combine != Combine::kNone)
      return EmitWindow(stage_, index, lanes_, traits_, analyzer_);
    const Axis axis = stage_.spatial[index];
    const Expr blocks = analyzer_->Simplify(ir::FloorDiv(axis.extent, lanes_));
    const Expr done = analyzer_->Simplify(blocks * Expr(lanes_));
    const Framed framed = stage_.ahead.defined() ? Framed() : FramedAlong(axis);
    ffi::Array<Stmt> seq = {framed.inside.defined() ? Blocks(framed, axis, blocks)
                                                    : Blocks(axis, 0, blocks)};
    if (!analyzer_->ProveEqual(done, axis.extent)) {
      seq.push_back(
          tir::IfThenElse(ir::Less(done, axis.extent), OneVector(axis, done, axis.extent)));
    }
    return Loops(Without(stage_.spatial, index), SeqStmt::Flatten(seq));
  }

  // Each iteration of a loop over blocks of `vectors` vectors, from `from` on, also fetches lines
  // of what is needed soon.
  Stmt FetchingAhead(const Stmt& blocks, const Axis& axis, const Expr& from,
                     int64_t vectors) const {
    const auto* loop = blocks.as<tir::ForObj>();
    const auto* load = stage_.ahead.as<BufferLoadObj>();
    if (loop == nullptr || load == nullptr || stage_.ahead_quarters == 0) return blocks;
    const int64_t elems = vectors * lanes_ * stage_.ahead_quarters / 4;
    const int64_t lines = std::max<int64_t>(1, elems / lanes_);
    ffi::Map<Var, Expr> map;
    map.Set(axis.var, from + loop->loop_var * Expr(elems));
    Expr at = tir::Substitute(load->indices[0], map);
    if (lines > 1) at = ir::RampExpr(at, lanes_, lines);
    return Annotated(loop, stage_.ahead_near ? kPrefetchNear : kPrefetch,
                     Buffer(load->buffer).Load({at}));
  }

  Expr Horizontal(const Expr& vector) const {
    switch (stage_.combine) {
      case Combine::kSum: return ir::CallIntrin(Intrin::kReduceAdd, {vector});
      case Combine::kProd: return ir::CallIntrin(Intrin::kReduceMul, {vector});
      case Combine::kMin: return ir::CallIntrin(Intrin::kReduceMin, {vector});
      case Combine::kMax: return ir::CallIntrin(Intrin::kReduceMax, {vector});
      case Combine::kNone:
      case Combine::kAnd:
      case Combine::kOr: break;
    }
    RELAXVM_UNREACHABLE();
  }

  // Statements of the stage for the row `row` of those that it is made for together.
  Stmt InRow(size_t row, const Stmt& stmt) const {
    return stage_.together.empty() ? stmt : tir::Substitute(stmt, stage_.together[row]);
  }
  size_t NumRows() const { return std::max<size_t>(1, stage_.together.size()); }

  // acc[u] += value at `base` + u vectors, for `count` vectors from `from` on, in each row; lanes
  // at or above `limit` add nothing.
  Stmt Accumulate(const Buffer& acc, const Axis& axis, const Expr& base, int64_t from,
                  int64_t count, const Expr& limit) const {
    const int64_t chains =
        std::min(count, ChainsOf(stage_.before != nullptr ? stage_.before->value : stage_.value));
    ffi::Array<Stmt> seq;
    for (size_t row = 0; row < NumRows(); ++row) {
      const int64_t first = static_cast<int64_t>(row) * kAccumulators;
      for (int64_t u = from; u < from + count; u += chains) {
        const Expr at = base + Expr(u * lanes_);
        if (stage_.before != nullptr)
          seq.push_back(InRow(row, ElementwiseVector(*stage_.before, at, limit, chains * lanes_)));
        seq.push_back(InRow(row, AddVector(acc, first + u, axis, at, limit, chains)));
      }
    }
    return SeqStmt::Flatten(seq);
  }

  // acc[at] += value at `base`, for so many vectors.
  Stmt AddVector(const Buffer& acc, int64_t at, const Axis& axis, const Expr& base,
                 const Expr& limit, int64_t vectors = 1) const {
    Var lane("lane", Int(64));
    ffi::Map<Var, Expr> map;
    map.Set(axis.var, base + lane);
    Expr value = tir::Substitute(stage_.value, map);
    if (limit.defined()) {
      Expr predicate = ir::Less(lane, limit - base);
      value = ir::Select(predicate, PredicateLoads(value, lane, predicate), stage_.identity);
    }
    Expr to = Expr(at * lanes_) + lane;
    return For(lane, 0, vectors * lanes_, ForKind::kVectorized,
               BufferStore(acc, Accumulated(stage_.combine, acc.Load({to}), value), {to}));
  }

  // Iteration `block` of `blocks` from `done` on: as many vectors as there are accumulators, and
  // those of the stages beside that go with them.  Several rows take turns by half as many, so that
  // what they share is still in registers.
  Stmt Step(const Buffer& acc, const Axis& axis, const Expr& done, const Expr& blocks,
            const Var& block) const {
    const Expr base = done + block * Expr(kAccumulators * lanes_);
    const auto& [stages, begin, quarters] = stage_.beside;
    const Expr first = blocks * Expr(begin) + block * Expr(quarters);
    const int64_t parts = NumRows() > 1 ? 2 : 1;
    ffi::Array<Stmt> seq;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t count = kAccumulators / parts, others = quarters / parts;
      seq.push_back(Accumulate(acc, axis, base, part * count, count, Expr()));
      for (const auto& stage : stages) {
        for (int64_t u = part * others; u < (part + 1) * others; ++u)
          seq.push_back(
              ElementwiseVector(*stage, (first + Expr(u)) * Expr(lanes_), Expr(), lanes_));
      }
    }
    return SeqStmt::Flatten(seq);
  }

  Stmt AlongReduce(size_t index) const {
    if (!IsManyShort(index)) return OneByOne(index);
    const Axis many = stage_.spatial.back();
    const std::vector<Axis> others(stage_.spatial.begin(), stage_.spatial.end() - 1);
    // The last vector of results is moved back: what it computes again has the same value.
    Var block("block", Int(64));
    const Expr first = analyzer_->ProveEqual(ir::FloorMod(many.extent, lanes_), 0)
                           ? Expr(block * Expr(lanes_))
                           : ir::Min(block * Expr(lanes_), many.extent - Expr(lanes_));
    const Stmt blocks =
        Loops(others, Loop(block, analyzer_->Simplify(ir::CeilDiv(many.extent, lanes_)),
                           ForKind::kSerial, VectorOfResults(index, first)));
    if (analyzer_->ProveAtLeast(many.extent, lanes_)) return blocks;
    return tir::IfThenElse(ir::GreaterEqual(many.extent, lanes_), blocks, OneByOne(index));
  }

  // Are there many results next to each other, each of a few vectors?
  bool IsManyShort(size_t index) const {
    if (stage_.spatial.empty() || stage_.before != nullptr || !stage_.beside.stages.empty() ||
        stage_.ahead.defined() || lanes_ * 2 > traits_.num_vectors ||
        SizeInBytes(stage_.value.dtype()) != ElemBytes(stage_))
      return false;
    const Axis& many = stage_.spatial.back();
    const auto linear = LinearOffset::Of(stage_.indices[0], {many});
    if (!linear.has_value() || !ir::IsIntValue(linear->Coeff(many.var), 1)) return false;
    if (ir::AsInt(many.extent).value_or(lanes_) < lanes_) return false;
    int64_t vectors =
        (ir::AsInt(stage_.reduce[index].extent).value_or(int64_t{1} << 20) + lanes_ - 1) / lanes_;
    for (const Axis& axis : Without(stage_.reduce, index))
      vectors *= ir::AsInt(axis.extent).value_or(kShortVectors + 1);
    // Many vectors of each of many results are read in an order that the core does not foresee.
    return vectors <= (ReadsPastSecondCache() ? kShortVectors / 2 : kShortVectors);
  }

  // Is something known to be read that the second cache does not hold?
  bool ReadsPastSecondCache() const {
    for (const Var& read : ReadsOf(stage_)) {
      int64_t bytes = SizeInBytes(Buffer(read).elem_dtype());
      for (const Expr& d : Buffer(read).shape()) bytes *= ir::AsInt(d).value_or(0);
      if (traits_.l2_bytes > 0 && bytes > traits_.l2_bytes) return true;
    }
    return false;
  }

  // Results [first, first + lanes) of the last spatial axis.  Each has a register; then these are
  // added up in pairs, and the two halves of a register are from there on sums of two results, so
  // that a vector of results is left.
  Stmt VectorOfResults(size_t index, const Expr& first) const {
    const Axis axis = stage_.reduce[index];
    const Var& many = stage_.spatial.back().var;
    Buffer acc = Accumulators(stage_, lanes_ * lanes_);
    ffi::Array<Stmt> seq = {tir::AllocBuffer(acc),
                            Fill(acc, stage_.identity, lanes_ * lanes_, lanes_)};
    auto add = [&](int64_t i, const Expr& base, const Expr& limit) {
      ffi::Map<Var, Expr> map;
      map.Set(many, first + Expr(i));
      return tir::Substitute(AddVector(acc, i, axis, base, limit), map);
    };
    const Expr blocks = analyzer_->Simplify(ir::FloorDiv(axis.extent, lanes_));
    const Expr done = analyzer_->Simplify(blocks * Expr(lanes_));
    const bool has_rest = !analyzer_->ProveEqual(done, axis.extent);
    // Result after result: what is read is one run of memory.
    ffi::Array<Stmt> body;
    const int64_t vectors = ir::AsInt(blocks).value();
    for (int64_t i = 0; i < lanes_; ++i) {
      for (int64_t v = 0; v < vectors; ++v) body.push_back(add(i, v * lanes_, Expr()));
      if (has_rest) body.push_back(add(i, done, axis.extent));
    }
    seq.push_back(Loops(Without(stage_.reduce, index), SeqStmt::Flatten(body)));
    acc = AddUpRegisters(acc, lanes_, stage_.combine, &seq);
    Var lane("lane", Int(64));
    ffi::Map<Var, Expr> map;
    map.Set(many, first + lane);
    seq.push_back(
        For(lane, 0, lanes_, ForKind::kVectorized,
            BufferStore(*stage_.out, tir::Substitute(Finished(stage_, acc.Load({lane})), map),
                        {tir::Substitute(stage_.indices[0], map)})));
    return SeqStmt::Flatten(seq);
  }

  Stmt OneByOne(size_t index) const {
    const Axis axis = stage_.reduce[index];
    const int64_t elems = static_cast<int64_t>(NumRows()) * kAccumulators * lanes_;
    Buffer acc = Accumulators(stage_, elems);
    Stmt init = Fill(acc, stage_.identity, elems, lanes_);
    ffi::Array<Stmt> body;
    Expr done = 0;
    for (int64_t vectors : {kAccumulators, int64_t{1}}) {
      const Expr step = vectors * lanes_;
      // A stage beside may be shorter, by less than one vector.
      const bool beside = vectors > 1 && !stage_.beside.stages.empty();
      const Expr& extent = beside ? stage_.beside.stages[0]->spatial[0].extent : axis.extent;
      Expr blocks = analyzer_->Simplify(ir::FloorDiv(extent - done, step));
      Var block("block", Int(64));
      const Stmt part = vectors > 1
                            ? Step(acc, axis, done, blocks, block)
                            : Accumulate(acc, axis, done + block * step, 0, vectors, Expr());
      Stmt loop = Loop(block, blocks, ForKind::kSerial, part);
      // What one vector after the other fetches at the end of a row is not worth a loop.
      body.push_back(vectors == 1 ? loop : FetchingAhead(loop, axis, done, vectors));
      done = analyzer_->Simplify(done + blocks * step);
    }
    if (!analyzer_->ProveEqual(done, axis.extent)) {
      body.push_back(tir::IfThenElse(ir::Less(done, axis.extent),
                                     Accumulate(acc, axis, done, 0, 1, axis.extent)));
    }
    ffi::Array<Stmt> all = {tir::AllocBuffer(acc), init,
                            Loops(Without(stage_.reduce, index), SeqStmt::Flatten(body))};
    for (size_t row = 0; row < NumRows(); ++row) all.push_back(InRow(row, StoreSum(acc, row)));
    return Loops(stage_.spatial, SeqStmt::Flatten(all));
  }

  Stmt StoreSum(const Buffer& acc, size_t row) const {
    auto part = [&](int64_t u) {
      const int64_t at = static_cast<int64_t>(row) * kAccumulators + u;
      return Expr(acc.Load({ir::RampExpr(Expr(at * lanes_), 1, lanes_)}));
    };
    Expr low = Apply(stage_.combine, part(0), part(1)),
         high = Apply(stage_.combine, part(2), part(3));
    return BufferStore(*stage_.out, Finished(stage_, Horizontal(Apply(stage_.combine, low, high))),
                       stage_.indices);
  }

  const Stage& stage_;
  const Machine& traits_;
  arith::Analyzer* analyzer_;
  int64_t lanes_;
};

}  // namespace

Buffer Accumulators(const Stage& stage, int64_t count) {
  return Buffer("acc", {Expr(count)}, stage.value.dtype(), "local");
}

Buffer AddUpRegisters(Buffer acc, int64_t lanes, Combine combine, ffi::Array<Stmt>* seq) {
  auto part = [&](int64_t i) { return ir::RampExpr(Expr(i * lanes), 1, lanes); };
  for (int64_t step = 1; step < lanes; step *= 2) {
    ffi::Array<int64_t> low, high;
    for (int64_t l = 0; l < lanes; ++l) {
      low.push_back((l & step) != 0 ? lanes + l - step : l);
      high.push_back((l & step) != 0 ? lanes + l : l + step);
    }
    Buffer next("acc", acc.shape(), acc.elem_dtype(), "local");
    seq->push_back(tir::AllocBuffer(next));
    for (int64_t i = 0; i < lanes; i += 2 * step) {
      const ffi::Array<Expr> both = {acc.Load({part(i)}), acc.Load({part(i + step)})};
      seq->push_back(
          BufferStore(next, Apply(combine, ir::ShuffleExpr(both, low), ir::ShuffleExpr(both, high)),
                      {part(i)}));
    }
    acc = next;
  }
  return acc;
}

Stmt ElementwiseVector(const Stage& elementwise, const Expr& base, const Expr& limit,
                       int64_t lanes) {
  Var lane("lane", Int(64));
  const Expr predicate = limit.defined() ? ir::Less(lane, limit - base) : Expr();
  ffi::Map<Var, Expr> map;
  map.Set(elementwise.spatial[0].var, base + lane);
  Expr value = tir::Substitute(elementwise.value, map);
  if (predicate.defined()) value = PredicateLoads(value, lane, predicate);
  return For(lane, 0, lanes, ForKind::kVectorized,
             BufferStore(*elementwise.out, value, {tir::Substitute(elementwise.indices[0], map)},
                         predicate));
}

Stmt EmitNest(const Stage& flat, const Machine& traits, arith::Analyzer* analyzer) {
  return NestEmitter(flat, traits, analyzer).Run();
}

bool RunsAlong(const Stage& flat, const Machine& traits, arith::Analyzer* analyzer) {
  return NestEmitter(flat, traits, analyzer).RunsAlong();
}

Stmt EmitRest(const Stage& flat, const Machine& traits, arith::Analyzer* analyzer) {
  return NestEmitter(flat, traits, analyzer).Rest();
}

Stmt EmitPartial(const Stage& flat, const Machine& traits, arith::Analyzer* analyzer) {
  return NestEmitter(flat, traits, analyzer).Partial();
}

}  // namespace relaxvm::schedule::cpu
