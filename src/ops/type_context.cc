// SPDX-License-Identifier: Apache-2.0
// What type rules ask about integers, answered by arith::Analyzer.  No facts are entered: a rule
// holds for every value.
#include "arith/analyzer.h"
#include "ops/op_def.h"

namespace relaxvm::ops {
namespace {

class AnalyzerContext : public ir::TypeContext {
 public:
  Expr Simplify(const Expr& e) override { return ir::IsPrim(e) ? analyzer_.Simplify(e) : e; }
  bool ProveEqual(const Expr& a, const Expr& b) override {
    return a.same_as(b) || (ir::IsPrim(a) && ir::IsPrim(b) && analyzer_.ProveEqual(a, b));
  }
  bool Prove(const Expr& condition) override { return analyzer_.Prove(condition); }

 private:
  arith::Analyzer analyzer_;
};

}  // namespace

std::unique_ptr<ir::TypeContext> MakeTypeContext() { return std::make_unique<AnalyzerContext>(); }

}  // namespace relaxvm::ops
