// SPDX-License-Identifier: Apache-2.0
#include "analysis/blocks.h"

#include "tir/functor.h"

namespace relaxvm::analysis {
namespace {

namespace ffi = tvm::ffi;

bool HasBlockInside(const tir::Stmt& s) {
  bool found = false;
  tir::PostOrderVisit(s,
                      [&](const ffi::ObjectRef& n) { found |= n.as<tir::SBlockObj>() != nullptr; });
  return found;
}

class Collector {
 public:
  std::vector<LeafBlock> blocks;

  bool Run(const tir::Stmt& s) {
    switch (tir::KindOf(s.get())) {
      case tir::StmtKind::kSeq:
        for (const tir::Stmt& part : s.as<tir::SeqStmtObj>()->seq) {
          if (!Run(part)) return false;
        }
        return true;
      case tir::StmtKind::kAllocBuffer: return true;
      case tir::StmtKind::kFor: {
        tir::For loop = s.as<tir::For>().value();
        if (loop->kind == tir::ForKind::kVectorized || loop->kind == tir::ForKind::kThreadBinding)
          return false;
        loops_.push_back(loop);
        bool plain = Run(loop->body);
        loops_.pop_back();
        return plain;
      }
      case tir::StmtKind::kBlockRealize: {
        tir::SBlockRealize realize = s.as<tir::SBlockRealize>().value();
        const tir::SBlock& block = realize->block;
        if (HasBlockInside(block->body)) {
          // A block without axes that only holds others; one with axes is an iteration of its own.
          return block->iter_vars.empty() && !block->init.defined() && Run(block->body);
        }
        blocks.push_back({realize, loops_});
        return true;
      }
      case tir::StmtKind::kBufferStore:
      case tir::StmtKind::kBind:
      case tir::StmtKind::kAssert:
      case tir::StmtKind::kEvaluate:
      case tir::StmtKind::kIfThenElse:
      case tir::StmtKind::kWhile:
      case tir::StmtKind::kBlock: return false;
    }
    RELAXVM_UNREACHABLE();
  }

 private:
  std::vector<tir::For> loops_;
};

bool CollectStores(const tir::Stmt& s, BlockStores* out) {
  if (auto seq = s.as<tir::SeqStmtObj>()) {
    for (const tir::Stmt& part : seq->seq) {
      if (!CollectStores(part, out)) return false;
    }
    return true;
  }
  if (auto store = s.as<tir::BufferStore>()) {
    out->stores.push_back(*store);
    return true;
  }
  if (auto bind = s.as<tir::Bind>()) {
    out->binds.push_back(*bind);
    return true;
  }
  return false;
}

}  // namespace

std::optional<std::vector<LeafBlock>> LeafBlocks(const tir::Stmt& body) {
  Collector collector;
  if (!collector.Run(body)) return std::nullopt;
  return std::move(collector.blocks);
}

std::optional<BlockStores> StoresOf(const tir::SBlock& block) {
  BlockStores out;
  if (!block->body.defined() || !CollectStores(block->body, &out)) return std::nullopt;
  return out;
}

std::vector<tir::BufferLoad> LoadsIn(const ir::Expr& e) {
  class Finder : public tir::StmtVisitor {
   public:
    std::vector<tir::BufferLoad> loads;
    void VisitBufferLoad(const tir::BufferLoadObj* l) override {
      loads.push_back(ffi::GetRef<tir::BufferLoad>(l));
      tir::StmtVisitor::VisitBufferLoad(l);
    }
  } finder;
  finder.Visit(e);
  return std::move(finder.loads);
}

}  // namespace relaxvm::analysis
