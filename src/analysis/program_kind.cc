// SPDX-License-Identifier: Apache-2.0
#include "analysis/program_kind.h"

#include <algorithm>
#include <unordered_map>

#include "analysis/blocks.h"
#include "arith/analyzer.h"
#include "arith/same.h"
#include "tir/byte_table.h"
#include "tir/functor.h"

namespace relaxvm::analysis {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;

// How an index depends on the axes of its block.
struct IndexUse {
  bool spatial = false;
  bool reduce = false;
  bool loads = false;
};

class BlockKind {
 public:
  explicit BlockKind(const tir::SBlock& block) : block_(block) {
    for (const tir::IterVar& iter : block->iter_vars) kinds_[iter->var.get()] = iter->kind;
  }

  FusionKind Find() {
    for (const auto& [var, kind] : kinds_) {
      if (kind == tir::IterKind::kOpaque) return FusionKind::kOpaque;
    }
    std::optional<BlockStores> body = StoresOf(block_);
    if (!body || body->stores.empty()) return FusionKind::kOpaque;
    for (const tir::BufferStore& store : body->stores) {
      if (store->predicate.defined() || !StoresOnePointPerIteration(store))
        return FusionKind::kOpaque;
    }
    bool reduces = block_->init.defined();
    for (const auto& [var, kind] : kinds_) reduces |= kind == tir::IterKind::kReduce;
    return reduces ? Reduction(*body) : PerElement(*body);
  }

 private:
  // Each index a spatial axis of its own, or fixed: iterations write different elements.
  bool StoresOnePointPerIteration(const tir::BufferStore& store) {
    std::vector<const ffi::Object*> seen;
    for (const Expr& index : store->indices) {
      if (ir::AsInt(index)) continue;
      auto it = kinds_.find(index.get());
      if (it == kinds_.end() || it->second != tir::IterKind::kSpatial) return false;
      if (std::find(seen.begin(), seen.end(), index.get()) != seen.end()) return false;
      seen.push_back(index.get());
    }
    return true;
  }

  IndexUse UseOf(const Expr& index) {
    class Finder : public tir::StmtVisitor {
     public:
      explicit Finder(const std::unordered_map<const ffi::Object*, tir::IterKind>& kinds)
          : kinds_(kinds) {}
      IndexUse use;
      void VisitVar(const ir::VarObj* v) override {
        auto it = kinds_.find(v);
        if (it == kinds_.end()) return;
        (it->second == tir::IterKind::kReduce ? use.reduce : use.spatial) = true;
      }
      void VisitBufferLoad(const tir::BufferLoadObj* l) override {
        use.loads = true;
        tir::StmtVisitor::VisitBufferLoad(l);
      }

     private:
      const std::unordered_map<const ffi::Object*, tir::IterKind>& kinds_;
    } finder(kinds_);
    finder.Visit(index);
    return finder.use;
  }

  FusionKind PerElement(const BlockStores& body) {
    bool elementwise = false;
    FusionKind kind = FusionKind::kElementwise;
    auto look = [&](const Expr& value) {
      for (const tir::BufferLoad& load : LoadsIn(value)) {
        FusionKind access = AccessOf(load, body.stores[0]->indices);
        elementwise |= access == FusionKind::kElementwise;
        kind = std::max(kind, access);
      }
    };
    for (const tir::Bind& bind : body.binds) look(bind->value);
    for (const tir::BufferStore& store : body.stores) {
      if (!SameIndices(store->indices, body.stores[0]->indices)) return FusionKind::kOpaque;
      look(store->value);
    }
    // A bias beside an element at the same place is elementwise work.
    return kind == FusionKind::kBroadcast && elementwise ? FusionKind::kElementwise : kind;
  }

  static bool SameIndices(const ffi::Array<Expr>& a, const ffi::Array<Expr>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!arith::SameScalar(a[i], b[i])) return false;
    }
    return true;
  }

  FusionKind AccessOf(const tir::BufferLoad& load, const ffi::Array<Expr>& store) {
    if (SameIndices(load->indices, store)) return FusionKind::kElementwise;
    if (tir::IsByteTable(load)) return FusionKind::kBroadcast;
    // Axes in the order of the result, some left out; fixed indices where the argument has size 1.
    size_t next = 0;
    for (const Expr& index : load->indices) {
      if (ir::AsInt(index)) continue;
      while (next < store.size() && !store[next].same_as(index)) ++next;
      if (next++ == store.size()) return FusionKind::kInjective;
    }
    return FusionKind::kBroadcast;
  }

  FusionKind Reduction(const BlockStores& body) {
    FusionKind kind = FusionKind::kReduction;
    for (const tir::BufferStore& store : body.stores) {
      if (IsProductOfLoads(store->value, store)) kind = FusionKind::kContraction;
      for (const tir::BufferLoad& load : LoadsIn(store->value)) {
        for (const Expr& index : load->indices) {
          IndexUse use = UseOf(index);
          // A window slides over the argument: elements are read several times.
          if (use.spatial && use.reduce) kind = FusionKind::kContraction;
          if (use.loads) return FusionKind::kContraction;
        }
      }
    }
    return kind;
  }

  // acc + x * y, casts aside, where x and y load at different indices.
  static bool IsProductOfLoads(const Expr& value, const tir::BufferStore& store) {
    auto strip = [](Expr e) {
      while (auto* cast = e.as<ir::CastObj>()) e = cast->value;
      return e;
    };
    auto* add = value.as<ir::BinaryObj>();
    if (add == nullptr || add->op != ir::BinaryOp::kAdd) return false;
    for (const Expr& side : {add->a, add->b}) {
      Expr term = strip(side);
      auto* product = term.as<ir::BinaryObj>();
      if (product == nullptr || product->op != ir::BinaryOp::kMul) continue;
      std::vector<tir::BufferLoad> x = LoadsIn(product->a), y = LoadsIn(product->b);
      if (x.empty() || y.empty()) continue;
      if (!(x[0]->buffer.same_as(y[0]->buffer) && SameIndices(x[0]->indices, y[0]->indices)))
        return true;
    }
    return false;
  }

  tir::SBlock block_;
  std::unordered_map<const ffi::Object*, tir::IterKind> kinds_;
};

bool IsReduction(FusionKind kind) {
  return kind == FusionKind::kReduction || kind == FusionKind::kContraction;
}

bool IsCompact(const tir::Buffer& buffer) {
  return buffer.type()->strides.empty() &&
         (!buffer.type()->elem_offset.defined() || ir::IsIntValue(buffer.type()->elem_offset, 0));
}

// The flat position of an element of a compact buffer.
Expr FlatIndex(const ffi::Array<Expr>& indices, const ffi::Array<Expr>& shape) {
  Expr flat = Expr(int64_t{0});
  for (size_t i = 0; i < indices.size(); ++i) {
    flat = ir::Cast(Int(64), flat) * ir::Cast(Int(64), shape[i]) + ir::Cast(Int(64), indices[i]);
  }
  return flat;
}

Expr NumElements(const tir::Buffer& buffer) {
  Expr product = Expr(int64_t{1});
  for (const Expr& dim : buffer.shape()) product = product * ir::Cast(Int(64), dim);
  return product;
}

}  // namespace

ProgramParams ParamsOf(const tir::PrimFunc& program) {
  ProgramParams out;
  for (const Var& param : program->params) {
    if (tir::IsBuffer(param)) {
      out.inputs.push_back(tir::Buffer(param));
    } else {
      out.scalars.push_back(param);
    }
  }
  int64_t num_outputs = ir::GetAttr<int64_t>(program->attrs, tir::attr::kNumOutputs, 1);
  size_t num_inputs = out.inputs.size() - std::min<size_t>(out.inputs.size(), num_outputs);
  out.outputs.assign(out.inputs.begin() + static_cast<int64_t>(num_inputs), out.inputs.end());
  out.inputs.erase(out.inputs.begin() + static_cast<int64_t>(num_inputs), out.inputs.end());
  return out;
}

FusionKind KindOf(const tir::PrimFunc& program) {
  if (ir::GetAttr<bool>(program->attrs, tir::attr::kScheduled, false)) return FusionKind::kOpaque;
  for (const Var& param : program->params) {
    if (tir::IsBuffer(param) && !IsCompact(tir::Buffer(param))) return FusionKind::kOpaque;
  }
  std::optional<std::vector<LeafBlock>> blocks = LeafBlocks(program->body);
  if (!blocks || blocks->empty()) return FusionKind::kOpaque;
  FusionKind kind = FusionKind::kElementwise;
  int num_reductions = 0;
  for (const LeafBlock& leaf : *blocks) {
    FusionKind own = BlockKind(leaf.realize->block).Find();
    if (own == FusionKind::kOpaque) return own;
    // Work per element after a reduction keeps its kind only where it is elementwise.
    if (num_reductions > 0 && own > FusionKind::kElementwise) kind = FusionKind::kContraction;
    num_reductions += IsReduction(own);
    kind = std::max(kind, own);
  }
  // Several passes over the data (softmax): a whole that elementwise work may follow, as with a
  // contraction.
  return num_reductions > 1 ? FusionKind::kContraction : kind;
}

namespace {

// The body without a check in front that both buffers hold the same number of elements; then that
// need not be proved.
tir::Stmt WithoutSizeCheck(const tir::Stmt& body, const tir::Buffer& in, const tir::Buffer& out,
                           bool* checked) {
  const auto* seq = body.as<tir::SeqStmtObj>();
  if (seq == nullptr || seq->seq.empty()) return body;
  const auto* check = seq->seq[0].as<tir::AssertStmtObj>();
  const auto* same = check == nullptr ? nullptr : check->condition.as<ir::BinaryObj>();
  if (same == nullptr || same->op != ir::BinaryOp::kEQ) return body;
  arith::Analyzer analyzer;
  auto are = [&](const Expr& a, const Expr& b) {
    return analyzer.ProveEqual(a, NumElements(in)) && analyzer.ProveEqual(b, NumElements(out));
  };
  if (!are(same->a, same->b) && !are(same->b, same->a)) return body;
  *checked = true;
  ffi::Array<tir::Stmt> rest(seq->seq.begin() + 1, seq->seq.end());
  return rest.size() == 1 ? rest[0] : tir::Stmt(tir::SeqStmt(rest));
}

}  // namespace

bool HasReshapePattern(const tir::PrimFunc& program) {
  ProgramParams params = ParamsOf(program);
  if (params.inputs.size() != 1 || params.outputs.size() != 1) return false;
  const tir::Buffer& in = params.inputs[0];
  const tir::Buffer& out = params.outputs[0];
  if (in.elem_dtype() != out.elem_dtype() || !IsCompact(in) || !IsCompact(out)) return false;
  bool checked = false;
  std::optional<std::vector<LeafBlock>> blocks =
      LeafBlocks(WithoutSizeCheck(program->body, in, out, &checked));
  if (!blocks || blocks->size() != 1) return false;
  const tir::SBlockRealize& realize = blocks->front().realize;
  std::optional<BlockStores> body = StoresOf(realize->block);
  if (!body || body->stores.size() != 1 || !body->binds.empty() || realize->block->init.defined())
    return false;
  if (!ir::IsIntValue(realize->predicate, 1)) return false;
  const tir::BufferStore& store = body->stores[0];
  auto* load = store->value.as<tir::BufferLoadObj>();
  if (load == nullptr || !load->buffer.same_as(in) || !store->buffer.same_as(out)) return false;

  arith::Analyzer analyzer;
  for (const Var& scalar : params.scalars)
    analyzer.BindRange(scalar, arith::Interval::Everything());
  Expr covered = Expr(int64_t{1});
  for (const tir::IterVar& iter : realize->block->iter_vars) {
    if (iter->kind != tir::IterKind::kSpatial) return false;
    analyzer.Bind(iter->var, iter->min, iter->extent);
    covered = covered * ir::Cast(Int(64), iter->extent);
  }
  if (!checked && !analyzer.ProveEqual(NumElements(in), NumElements(out))) return false;
  if (!analyzer.ProveEqual(covered, NumElements(out))) return false;
  const Expr to = FlatIndex(store->indices, out.shape()),
             from = FlatIndex(load->indices, in.shape());
  if (analyzer.ProveEqual(to, from)) return true;
  if (!checked) return false;
  // The numbers of elements agree: n (p - q) = 0 for the n rows of leading axes that stay as they
  // are.  Row r then begins at the same place: r (p - q) = 0.
  const Expr apart = analyzer.Simplify(to - from);
  const Expr difference = NumElements(out) - NumElements(in);
  Expr rows(int64_t{1}), row(int64_t{0});
  for (const tir::IterVar& iter : realize->block->iter_vars) {
    const Expr extent = ir::Cast(Int(64), iter->extent);
    row = row * extent + ir::Cast(Int(64), iter->var);
    rows = rows * extent;
    if (analyzer.ProveEqual(apart * rows, difference * row)) return true;
  }
  return false;
}

}  // namespace relaxvm::analysis
