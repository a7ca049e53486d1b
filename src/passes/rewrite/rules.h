// SPDX-License-Identifier: Apache-2.0
// Small helpers for passes that are one rewrite rule.
#pragma once

#include <string>
#include <vector>

#include "analysis/calls.h"
#include "ops/op_def.h"
#include "passes/pass.h"
#include "passes/rewrite/rewrite.h"

namespace relaxvm::passes {

inline analysis::Pattern AnyValue() {
  return analysis::Pattern(analysis::PatternKind::kWildcard, {});
}

// A call of operator `name` ("concat") with these arguments, and perhaps more.
inline analysis::Pattern CallOf(const char* name, std::vector<analysis::Pattern> args) {
  using analysis::PatternKind;
  ffi::Array<ffi::ObjectRef> parts = {
      analysis::Pattern(PatternKind::kExpr, {}, ops::FindOp(std::string("relax.") + name).value())};
  for (const analysis::Pattern& arg : args) parts.push_back(arg);
  return analysis::Pattern(PatternKind::kCall, parts, nullptr, "", 1);
}

// The call of operator `name` that `e` is, looking through variables; null when it is none.
using analysis::DimsOf;

inline const ir::CallObj* AsCallOf(const analysis::PatternMatcher& matched, const ir::Expr& e,
                                   const char* name) {
  const ir::Expr value = matched.LookThrough(e);
  const auto* call = value.as<ir::CallObj>();
  const ir::OpObj* op = call == nullptr ? nullptr : ir::CalledOp(call);
  return op != nullptr && op->name == std::string("relax.") + name ? call : nullptr;
}

inline int64_t RankOf(const ir::Expr& e) {
  const auto* tensor = e->ty.defined() ? e->ty.as<ir::TensorTypeObj>() : nullptr;
  return tensor == nullptr ? -1 : tensor->ndim;
}

}  // namespace relaxvm::passes
