// SPDX-License-Identifier: Apache-2.0
// Loops, and the small parts that all schedules of CPUs build bodies of.
#include <algorithm>
#include <utility>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoad;
using tir::BufferLoadObj;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

class LoadPredicator : public tir::StmtMutator {
 public:
  LoadPredicator(const Var& lane, Expr predicate) : lane_(lane), predicate_(std::move(predicate)) {}
  Expr MutateBufferLoad(const BufferLoad& load) override {
    ffi::Array<Expr> indices = MutateAll(load->indices);
    const bool varies = UsesVar(indices[0], lane_);
    return BufferLoad(load->buffer, indices, varies ? predicate_ : load->predicate, load->span);
  }

 private:
  const Var& lane_;
  Expr predicate_;
};

// The widest type that is computed with on lanes: of what is loaded, of indices that are loaded if
// they change along `lane_axis`, and of floats that are cast.
class WidestElement : public tir::StmtVisitor {
 public:
  using tir::StmtVisitor::Visit;
  explicit WidestElement(const Axis* lane_axis) : lane_axis_(lane_axis) {}

  void VisitBufferLoad(const BufferLoadObj* load) override {
    const bool is_index = std::exchange(in_index_, true);
    if (!is_index || Varies(load)) Take(Buffer(load->buffer).elem_dtype());
    StmtVisitor::VisitBufferLoad(load);
    in_index_ = is_index;
  }
  void VisitCast(const ir::CastObj* cast) override {
    if (IsFloat(Expr(cast->value).dtype())) Take(Expr(cast->value).dtype());
    StmtVisitor::VisitCast(cast);
  }

  int64_t bytes = 0;

 private:
  void Take(DLDataType type) { bytes = std::max(bytes, SizeInBytes(type)); }
  bool Varies(const BufferLoadObj* load) const {
    return lane_axis_ != nullptr &&
           std::any_of(load->indices.begin(), load->indices.end(),
                       [&](const Expr& i) { return UsesVar(i, lane_axis_->var); });
  }

  const Axis* lane_axis_;
  bool in_index_ = false;
};

}  // namespace

int64_t ElemBytes(const Stage& stage) {
  WidestElement widest(stage.spatial.empty() ? nullptr : &stage.spatial.back());
  widest.Visit(stage.value);
  return std::max({widest.bytes, SizeInBytes(stage.out->elem_dtype()),
                   SizeInBytes(ElementOf(stage.value.dtype()))});
}

Stmt Loop(const Var& var, const Expr& extent, ForKind kind, const Stmt& body) {
  if (ir::IsIntValue(extent, 0)) return SeqStmt(ffi::Array<Stmt>());
  if (ir::IsIntValue(extent, 1)) {
    ffi::Map<Var, Expr> map;
    map.Set(var, 0);
    return tir::Substitute(body, map);
  }
  return For(var, 0, extent, kind, body);
}

Stmt Annotated(const tir::ForObj* loop, const char* name, const Expr& value) {
  auto copy = ffi::make_object<tir::ForObj>(*loop);
  copy->annotations.Set(name, value);
  return ir::NodeRef<For>(std::move(copy));
}

Expr NumPoints(const std::vector<Axis>& axes) {
  Expr points = 1;
  for (const Axis& axis : axes) points = points * axis.extent;
  return points;
}

Expr NumElements(const Buffer& buffer) {
  Expr elements = 1;
  for (const Expr& d : buffer.shape()) elements = elements * d;
  return elements;
}

void BindPoint(const std::vector<Axis>& axes, Expr index, ffi::Array<Stmt>* seq) {
  size_t outermost = 0;
  while (outermost + 1 < axes.size() && ir::IsIntValue(axes[outermost].extent, 1)) ++outermost;
  for (size_t i = axes.size(); i-- > 0;) {
    if (ir::IsIntValue(axes[i].extent, 1)) {
      seq->push_back(tir::Bind(axes[i].var, Expr(0)));
      continue;
    }
    seq->push_back(
        tir::Bind(axes[i].var, i == outermost ? index : ir::FloorMod(index, axes[i].extent)));
    if (i > outermost) {
      Var next("rest", Int(64));
      seq->push_back(tir::Bind(next, ir::FloorDiv(index, axes[i].extent)));
      index = next;
    }
  }
}

Expr Named(const char* name, const Expr& value, ffi::Array<Stmt>* seq, arith::Analyzer* analyzer) {
  const Expr simple = analyzer->Simplify(value);
  if (ir::AsInt(simple).has_value()) return simple;
  Var var(name, Int(64));
  seq->push_back(tir::Bind(var, simple));
  return var;
}

Stmt Loops(const std::vector<Axis>& axes, Stmt body) {
  for (size_t i = axes.size(); i-- > 0;)
    body = Loop(axes[i].var, axes[i].extent, ForKind::kSerial, body);
  return body;
}

Stmt ParallelLoop(const Var& var, const Expr& extent, const Expr& work, const Stmt& body,
                  arith::Analyzer* analyzer) {
  ir::DictAttrs annotations;
  annotations.Set(kMostThreads, analyzer->Simplify(ir::FloorDiv(extent * work, kWorkPerThread)));
  return For(var, 0, extent, ForKind::kParallel, body, "", annotations);
}

Stmt Fill(const Buffer& acc, const Expr& value, int64_t count, int64_t lanes) {
  ffi::Array<Stmt> seq;
  for (int64_t at = 0; at < count; at += lanes) {
    Var lane("lane", Int(64));
    seq.push_back(
        For(lane, 0, lanes, ForKind::kVectorized, BufferStore(acc, value, {Expr(at) + lane})));
  }
  return SeqStmt::Flatten(seq);
}

Expr PredicateLoads(const Expr& e, const Var& lane, const Expr& predicate) {
  return LoadPredicator(lane, predicate).Mutate(e);
}

}  // namespace relaxvm::schedule::cpu
