// SPDX-License-Identifier: Apache-2.0
// The loads of a formula, found and replaced.
#pragma once

#include <utility>
#include <vector>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {

// Loads that a formula always makes, and those that it may leave out.
class LoadCollector : public tir::StmtVisitor {
 public:
  std::vector<tir::BufferLoad> always, sometimes;
  void VisitBufferLoad(const tir::BufferLoadObj* load) override {
    (depth_ == 0 ? always : sometimes).push_back(ffi::GetRef<tir::BufferLoad>(load));
    tir::StmtVisitor::VisitBufferLoad(load);
  }
  void VisitIntrin(const ir::IntrinObj* e) override {
    const bool guards = e->intrin == ir::Intrin::kIfThenElse;
    depth_ += guards;
    tir::StmtVisitor::VisitIntrin(e);
    depth_ -= guards;
  }

 private:
  int depth_ = 0;
};

// Replaces given loads.
class LoadReplacer : public tir::StmtMutator {
 public:
  std::vector<std::pair<const ffi::Object*, Expr>> values;
  Expr MutateBufferLoad(const tir::BufferLoad& load) override {
    for (const auto& [from, to] : values) {
      if (load.get() == from) return to;
    }
    return tir::StmtMutator::MutateBufferLoad(load);
  }
};

// Puts 0 in the place of every load: what is left of a formula when memory is left out.
class LoadEraser : public tir::StmtMutator {
 public:
  Expr MutateBufferLoad(const tir::BufferLoad& load) override {
    return ir::Cast(load.dtype(), Expr(0));
  }
};

}  // namespace relaxvm::schedule::cpu
