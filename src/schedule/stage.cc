// SPDX-License-Identifier: Apache-2.0
// From blocks to stages.
#include "schedule/stage.h"

#include <unordered_map>
#include <unordered_set>

#include "arith/analyzer.h"
#include "arith/same.h"

namespace relaxvm::schedule {
namespace {

using ir::Binary;
using ir::BinaryObj;
using ir::BinaryOp;
using tir::BufferLoadObj;
using tir::BufferStoreObj;

Combine CombineOf(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd: return Combine::kSum;
    case BinaryOp::kMul: return Combine::kProd;
    case BinaryOp::kMin: return Combine::kMin;
    case BinaryOp::kMax: return Combine::kMax;
    case BinaryOp::kAnd: return Combine::kAnd;
    case BinaryOp::kOr: return Combine::kOr;
    default: return Combine::kNone;  // no other operator accumulates
  }
}

bool IsLoadOf(const Expr& e, const Var& buffer, const ffi::Array<Expr>& indices) {
  const auto* load = e.as<BufferLoadObj>();
  if (load == nullptr || !load->buffer.same_as(buffer) || load->indices.size() != indices.size())
    return false;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (!arith::SameScalar(load->indices[i], indices[i])) return false;
  }
  return true;
}

bool Reads(const Expr& e, const Var& buffer) {
  bool found = false;
  tir::PostOrderVisit(tir::Evaluate(e), [&](const ffi::ObjectRef& node) {
    const auto* load = node.as<BufferLoadObj>();
    found = found || (load != nullptr && load->buffer.same_as(buffer));
  });
  return found;
}

// Fills in the formula of a block; false when it has another form.
bool ReadFormula(const tir::SBlockObj* block, Stage* stage) {
  const auto* store = block->body.as<BufferStoreObj>();
  if (store == nullptr || store->predicate.defined() || !block->alloc_buffers.empty()) return false;
  stage->out = Buffer(store->buffer);
  stage->indices = store->indices;
  if (!block->init.defined()) {
    if (!stage->reduce.empty() || Reads(store->value, store->buffer)) return false;
    stage->value = store->value;
    return true;
  }
  const auto* init = block->init.as<BufferStoreObj>();
  const auto* update = store->value.as<BinaryObj>();
  if (init == nullptr || update == nullptr || !init->buffer.same_as(store->buffer)) return false;
  stage->combine = CombineOf(update->op);
  if (stage->combine == Combine::kNone) return false;
  if (IsLoadOf(update->a, store->buffer, store->indices))
    stage->value = update->b;
  else if (IsLoadOf(update->b, store->buffer, store->indices))
    stage->value = update->a;
  else
    return false;
  if (Reads(stage->value, store->buffer)) return false;
  stage->identity = init->value;
  return stage->identity.as<ir::IntImmObj>() || stage->identity.as<ir::FloatImmObj>();
}

// One nest of serial loops around one block whose axes are the loop variables.
std::optional<Stage> ReadNest(const Stmt& nest) {
  std::unordered_map<const ffi::Object*, const tir::ForObj*> loops;
  Stmt inner = nest;
  while (const auto* loop = inner.as<tir::ForObj>()) {
    if (loop->kind != tir::ForKind::kSerial || !ir::IsIntValue(loop->min, 0)) return std::nullopt;
    loops.emplace(loop->loop_var.get(), loop);
    inner = loop->body;
  }
  const auto* realize = inner.as<tir::SBlockRealizeObj>();
  if (realize == nullptr || !ir::IsIntValue(realize->predicate, 1)) return std::nullopt;
  const tir::SBlockObj* block = realize->block.get();
  Stage stage;
  stage.name = std::string(block->name_hint);
  const auto notes = ir::GetAttr<ffi::Array<int64_t>>(block->annotations, kPairNotes, {});
  if (!notes.empty()) stage.notes = PairNotes{notes[0], notes[1]};
  ffi::Map<Var, Expr> axes;
  for (size_t i = 0; i < block->iter_vars.size(); ++i) {
    const tir::IterVar& axis = block->iter_vars[i];
    auto loop = loops.find(realize->iter_values[i].get());
    if (loop == loops.end() || axis->kind == tir::IterKind::kOpaque ||
        !ir::IsIntValue(axis->min, 0)) {
      return std::nullopt;
    }
    auto& list = axis->kind == tir::IterKind::kReduce ? stage.reduce : stage.spatial;
    list.push_back({axis->var, loop->second->extent});
    loops.erase(loop);
  }
  if (!loops.empty() || !ReadFormula(block, &stage)) return std::nullopt;
  return stage;
}

// Already has loops that a schedule makes: vectors, threads.
bool IsScheduledByHand(const Stmt& body) {
  bool found = false;
  tir::PostOrderVisit(body, [&](const ffi::ObjectRef& node) {
    const auto* loop = node.as<tir::ForObj>();
    found = found || (loop != nullptr && loop->kind != tir::ForKind::kSerial);
  });
  return found;
}

}  // namespace

Expr Apply(Combine combine, Expr a, Expr b) {
  switch (combine) {
    case Combine::kNone: return b;
    case Combine::kSum: return ir::Add(std::move(a), std::move(b));
    case Combine::kProd: return ir::Mul(std::move(a), std::move(b));
    case Combine::kMin: return ir::Min(std::move(a), std::move(b));
    case Combine::kMax: return ir::Max(std::move(a), std::move(b));
    case Combine::kAnd: return ir::And(std::move(a), std::move(b));
    case Combine::kOr: return ir::Or(std::move(a), std::move(b));
  }
  RELAXVM_UNREACHABLE();
}

Expr Accumulated(Combine combine, Expr accumulated, const Expr& next) {
  const auto* product = next.as<BinaryObj>();
  if (combine == Combine::kSum && product != nullptr && product->op == BinaryOp::kMul &&
      IsFloat(next.dtype())) {
    return ir::CallIntrin(ir::Intrin::kFma, {product->a, product->b, std::move(accumulated)});
  }
  return Apply(combine, std::move(accumulated), next);
}

const Expr& StripCasts(const Expr& e) {
  const Expr* inner = &e;
  while (const auto* cast = inner->as<ir::CastObj>()) inner = &cast->value;
  return *inner;
}

std::optional<Program> ParseProgram(const PrimFunc& func) {
  if (IsScheduledByHand(func->body)) return std::nullopt;
  Program program{func, {}, {}, {}};
  std::vector<Stmt> parts;
  if (const auto* seq = func->body.as<tir::SeqStmtObj>())
    parts.assign(seq->seq.begin(), seq->seq.end());
  else
    parts.push_back(func->body);
  for (const Stmt& part : parts) {
    if (const auto* alloc = part.as<tir::AllocBufferObj>()) {
      program.temps.push_back(Buffer(alloc->buffer));
    } else if (auto stage = ReadNest(part)) {
      program.stages.push_back(std::move(*stage));
    } else if (part.as<tir::AssertStmtObj>() && program.temps.empty() && program.stages.empty()) {
      program.checks.push_back(part);
    } else if (part.as<tir::BindObj>() || part.as<tir::AssertStmtObj>()) {
      return std::nullopt;  // statements that later ones depend on in ways stages do not show
    } else {
      Stage stage;
      stage.name = "opaque";
      stage.opaque = part;
      program.stages.push_back(std::move(stage));
    }
  }
  return program;
}

Stage FinishWith(const Stage& reduction, const Stage& elementwise) {
  class ResultReader : public tir::StmtMutator {
   public:
    ResultReader(const Var& buffer, Expr result) : buffer_(buffer), result_(std::move(result)) {}
    Expr MutateBufferLoad(const tir::BufferLoad& load) override {
      return load->buffer.same_as(buffer_) ? result_ : StmtMutator::MutateBufferLoad(load);
    }

   private:
    const Var& buffer_;
    Expr result_;
  };
  Stage stage = reduction;
  stage.reduced = Var("reduced", reduction.value.dtype());
  ffi::Map<Var, Expr> axes;
  for (size_t i = 0; i < elementwise.spatial.size(); ++i) {
    axes.Set(elementwise.spatial[i].var, reduction.spatial[i].var);
  }
  Expr result = ir::Cast(reduction.out->elem_dtype(), stage.reduced);
  stage.finish =
      ResultReader(*reduction.out, result).Mutate(tir::Substitute(elementwise.value, axes));
  stage.out = elementwise.out;
  stage.indices = elementwise.indices.Map([&](const Expr& e) { return tir::Substitute(e, axes); });
  stage.name = elementwise.name;
  return stage;
}

Stage Substituted(const Stage& stage, const ffi::Map<Var, Expr>& map) {
  Stage result = stage;
  result.value = tir::Substitute(stage.value, map);
  if (stage.finish.defined()) result.finish = tir::Substitute(stage.finish, map);
  result.indices = stage.indices.Map([&](const Expr& e) { return tir::Substitute(e, map); });
  if (stage.before != nullptr)
    result.before = std::make_shared<const Stage>(Substituted(*stage.before, map));
  return result;
}

Expr Finished(const Stage& stage, const Expr& acc) {
  if (!stage.finish.defined()) return acc;
  ffi::Map<Var, Expr> map;
  map.Set(stage.reduced, acc);
  return tir::Substitute(stage.finish, map);
}

std::vector<Var> ReadsOf(const Stage& stage) {
  std::vector<Var> reads;
  std::unordered_set<const ffi::Object*> seen;
  auto visit = [&](const ffi::ObjectRef& node) {
    const auto* load = node.as<BufferLoadObj>();
    if (load != nullptr && seen.insert(load->buffer.get()).second) reads.push_back(load->buffer);
  };
  tir::PostOrderVisit(stage.IsOpaque() ? stage.opaque : Stmt(tir::Evaluate(stage.value)), visit);
  if (stage.finish.defined()) tir::PostOrderVisit(tir::Evaluate(stage.finish), visit);
  return reads;
}

bool Writes(const Stage& stage, const Var& buffer) {
  if (!stage.IsOpaque()) return stage.out->same_as(buffer);
  bool found = false;
  tir::PostOrderVisit(stage.opaque, [&](const ffi::ObjectRef& node) {
    const auto* store = node.as<BufferStoreObj>();
    found = found || (store != nullptr && store->buffer.same_as(buffer));
  });
  return found;
}

}  // namespace relaxvm::schedule
