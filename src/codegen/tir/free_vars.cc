// SPDX-License-Identifier: Apache-2.0
#include "codegen/tir/free_vars.h"

#include <unordered_set>

#include "tir/functor.h"

namespace relaxvm::codegen {
namespace {

class Collector : public tir::StmtVisitor {
 public:
  FreeVars found;

  void Define(const ir::Var& v) { known_.insert(v.get()); }

  void VisitDef(const ir::Var& v) override {
    tir::StmtVisitor::VisitDef(v);
    known_.insert(v.get());
  }
  void VisitVar(const ir::VarObj* v) override {
    if (known_.insert(v).second) found.scalars.push_back(tvm::ffi::GetRef<ir::Var>(v));
  }
  void VisitBufferUse(const ir::Var& v) override {
    if (!known_.insert(v.get()).second) return;
    VisitType(v->ty);
    found.buffers.push_back(tir::Buffer(v));
  }

 private:
  std::unordered_set<const tvm::ffi::Object*> known_;
};

}  // namespace

FreeVars FreeVarsOf(const tir::Stmt& body, const std::vector<ir::Var>& defined) {
  Collector collector;
  for (const ir::Var& v : defined) collector.Define(v);
  collector.Visit(body);
  return collector.found;
}

}  // namespace relaxvm::codegen
