// SPDX-License-Identifier: Apache-2.0
// EmitPixels: an elementwise stage that makes pixels of bytes from planes, each by a formula of its
// own, with padding around or in place of a plane: what a quantized network does with a picture
// first.
//
// Where nothing is padding, a vector of each plane's results becomes bytes of words by shifts; the
// padding is written element by element.
#include <algorithm>

#include "schedule/cpu/cpu.h"
#include "schedule/cpu/loads.h"
#include "tir/dot.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::BinaryObj;
using ir::BinaryOp;
using ir::Intrin;
using ir::IntrinObj;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kMaxLanes = 16;

class PixelWriter {
 public:
  PixelWriter(const Stage& stage, const Machine& machine, arith::Analyzer* analyzer)
      : stage_(stage),
        analyzer_(analyzer),
        lanes_(std::min(kMaxLanes, machine.Lanes(ElemBytes(stage)))) {}

  bool Find() {
    if (stage_.combine != Combine::kNone || stage_.spatial.size() < 2 || lanes_ < 2) return false;
    if (SizeInBytes(stage_.out->elem_dtype()) != 1 || stage_.out->elem_dtype().bits != 8)
      return false;
    few_ = stage_.spatial.back();
    planes_ = ir::AsInt(few_.extent).value_or(0);
    if (planes_ != 2 && planes_ != 4) return false;
    const auto out = LinearOffset::Of(stage_.indices[0], stage_.spatial);
    if (!out.has_value() || !ir::IsIntValue(out->Coeff(few_.var), 1)) return false;
    for (const Axis& axis : stage_.spatial) {
      if (ir::IsIntValue(out->Coeff(axis.var), planes_)) along_ = axis;
    }
    if (ir::AsInt(along_.extent).value_or(2 * lanes_) < 2 * lanes_) return false;
    LoadCollector loads;
    loads.Visit(stage_.value);
    if (loads.sometimes.empty()) return false;  // nothing is padding: EmitInterleave does it
    for (int64_t plane = 0; plane < planes_; ++plane) {
      ffi::Map<Var, Expr> map;
      map.Set(few_.var, Expr(plane));
      const Expr inside = Inside(tir::Substitute(stage_.value, map));
      if (!inside.defined() || !RunsAlong(inside)) return false;
      values_.push_back(inside);
    }
    return true;
  }

  // One line of pixels.
  RowForm Run() {
    Var first("first", Int(64)), end("end", Int(64)), tile("tile", Int(64)), done("done", Int(64));
    const Expr begin = analyzer_->Simplify(ir::Min(ir::Max(first_, 0), along_.extent));
    const Expr fits = ir::GreaterEqual(end - first, Expr(lanes_));
    // The last tile reaches back over what is there already.
    const Expr tiles = ir::Select(fits, ir::CeilDiv(end - first, lanes_), Expr(0));
    const Expr base = ir::Min(first + tile * Expr(lanes_), end - Expr(lanes_));
    const Stmt inside = SeqStmt::Flatten(
        {tir::Bind(first, begin),
         tir::Bind(end, analyzer_->Simplify(ir::Max(begin, ir::Min(end_, along_.extent)))),
         Plain(0, first), For(tile, 0, tiles, ForKind::kSerial, Tile(base)),
         tir::Bind(done, ir::Select(fits, end, first)), Plain(done, along_.extent)});
    RowForm form;
    form.body = inside_line_.defined()
                    ? Stmt(tir::IfThenElse(inside_line_, inside, Plain(0, along_.extent)))
                    : inside;
    for (const Axis& axis : stage_.spatial) {
      if (!axis.var.same_as(few_.var) && !axis.var.same_as(along_.var)) form.rows.push_back(axis);
    }
    form.work = along_.extent * Expr(planes_ * (CostOf(stage_.value) + 1));
    return form;
  }

 private:
  // `e` where all that it asks about the place holds, which is written down.  Null: it asks
  // something else.
  Expr Inside(const Expr& e) {
    class Taken : public tir::StmtMutator {
     public:
      explicit Taken(PixelWriter* writer) : writer_(writer) {}
      bool ok = true;
      Expr MutateIntrin(const ir::IntrinExpr& e) override {
        if (e->intrin != Intrin::kIfThenElse) return StmtMutator::MutateIntrin(e);
        const Expr condition = writer_->analyzer_->Simplify(e->args[0]);
        if (const auto known = ir::AsInt(condition)) return Mutate(e->args[known.value() ? 1 : 2]);
        ok = ok && writer_->AddCondition(condition);
        return Mutate(e->args[1]);
      }

     private:
      PixelWriter* writer_;
    };
    Taken taken(this);
    const Expr inside = taken.Mutate(e);
    return taken.ok ? inside : Expr();
  }

  bool AddCondition(const Expr& condition) {
    const auto* binary = condition.as<BinaryObj>();
    if (binary != nullptr && binary->op == BinaryOp::kAnd)
      return AddCondition(binary->a) && AddCondition(binary->b);
    if (!UsesVar(condition, along_.var)) {
      for (const Expr& known : of_line_) {
        if (ir::StructuralEqual(known, condition)) return true;
      }
      of_line_.push_back(condition);
      inside_line_ = inside_line_.defined() ? Expr(ir::And(inside_line_, condition)) : condition;
      return true;
    }
    const Expr slack = AtLeastZero(condition);
    return slack.defined() && AddBound(slack);
  }

  bool AddBound(const Expr& e) {
    const auto linear = LinearOffset::Of(e, {along_});
    if (!linear.has_value()) return false;
    const auto step = ir::AsInt(analyzer_->Simplify(linear->Coeff(along_.var)));
    if (step != 1 && step != -1) return false;
    if (step == 1)
      first_ = ir::Max(first_, Expr(0) - linear->rest());
    else
      end_ = ir::Min(end_, linear->rest() + 1);
    return true;
  }

  // Is a vector of it made of runs of memory and numbers?
  bool RunsAlong(const Expr& value) const {
    LoadCollector loads;
    loads.Visit(value);
    for (const tir::BufferLoad& load : loads.always) {
      if (load->indices.size() != 1) return false;
      const auto linear = LinearOffset::Of(load->indices[0], {along_});
      if (!linear.has_value()) return false;
      const Expr step = analyzer_->Simplify(linear->Coeff(along_.var));
      if (!ir::IsIntValue(step, 0) && !ir::IsIntValue(step, 1)) return false;
    }
    LoadReplacer replacer;
    for (const tir::BufferLoad& load : loads.always)
      replacer.values.emplace_back(load.get(), ir::Const(load.dtype(), 0));
    return !UsesVar(replacer.Mutate(value), along_.var);
  }

  template <typename T>
  T At(const T& what, const Expr& few, const Expr& along) const {
    ffi::Map<Var, Expr> map;
    map.Set(few_.var, few);
    map.Set(along_.var, along);
    return tir::Substitute(what, map);
  }

  // Pixels [from, end) one by one.
  Stmt Plain(const Expr& from, const Expr& end) const {
    Var pixel("pixel", Int(64)), few("few", Int(64));
    const Expr at = from + pixel;
    const Stmt body =
        BufferStore(*stage_.out, At(stage_.value, few, at), {At(stage_.indices[0], few, at)});
    return Loop(pixel, analyzer_->Simplify(end - from), ForKind::kSerial,
                Loop(few, few_.extent, ForKind::kSerial, body));
  }

  // Pixels [base, base + lanes).
  Stmt Tile(const Expr& base) const {
    Buffer results("planes", {Expr(planes_ * lanes_)}, stage_.out->elem_dtype(), "local");
    ffi::Array<Stmt> seq = {tir::AllocBuffer(results)};
    std::vector<Expr> runs;
    for (int64_t plane = 0; plane < planes_; ++plane) {
      Var lane("lane", Int(64));
      const Expr value = At(values_[static_cast<size_t>(plane)], Expr(plane), base + lane);
      seq.push_back(For(lane, 0, lanes_, ForKind::kVectorized,
                        BufferStore(results, value, {Expr(plane * lanes_) + lane})));
      runs.push_back(results.Load({ir::RampExpr(Expr(plane * lanes_), 1, lanes_)}));
    }
    // A pixel is a word.
    DLDataType type = stage_.out->elem_dtype();
    type.lanes = static_cast<uint16_t>(planes_ * lanes_);
    const Expr words = tir::WordsOfBytes(runs, static_cast<int>(8 * planes_));
    const Expr to = At(stage_.indices[0], Expr(0), base);
    seq.push_back(BufferStore(*stage_.out, ir::CallIntrin(type, Intrin::kReinterpret, {words}),
                              {ir::RampExpr(to, 1, planes_ * lanes_)}));
    return SeqStmt::Flatten(seq);
  }

  const Stage& stage_;
  arith::Analyzer* analyzer_;
  const int64_t lanes_;
  int64_t planes_ = 0;
  Axis few_{Var("few", Int(64)), Expr(1)};
  Axis along_{Var("along", Int(64)), Expr(1)};
  std::vector<Expr> values_;  // of each plane, where nothing is padding
  std::vector<Expr> of_line_;
  Expr inside_line_;  // all of them; null: there is none
  Expr first_ = 0, end_ = int64_t{1} << 40;
};

}  // namespace

std::optional<RowForm> EmitPixels(const Stage& flat, const Machine& machine,
                                  arith::Analyzer* analyzer) {
  PixelWriter writer(flat, machine, analyzer);
  if (!writer.Find()) return std::nullopt;
  return writer.Run();
}

}  // namespace relaxvm::schedule::cpu
