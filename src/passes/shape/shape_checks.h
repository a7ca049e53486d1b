// SPDX-License-Identifier: Apache-2.0
// What has to be checked at run time of a value that enters a function or a match_cast: its kind
// first, then its sizes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/expr.h"
#include "ir/module.h"

namespace relaxvm::passes {

struct Match {
  ir::Expr value;
  ir::Type expected;
  ir::Type known;                        // what is already sure of the value; null: nothing
  std::string context;                   // opens the error message
  const ir::IRModuleObj* mod = nullptr;  // where data types are defined
  bool plain = false;                    // in Relax's form: see VMShapeLower
  bool only_sizes = false;               // parts without symbolic sizes are taken on trust
};

// Sizes that a tensor, shape or scalar has to have.
struct SizeMatch {
  ir::Expr value;
  tvm::ffi::Array<ir::Expr> dims;
  std::string context;
  bool is_scalar = false;
  bool pending = false;  // some dimensions are compared after the size expressions are computed
};

using EmitValueFn = std::function<ir::Expr(ir::Expr value, ir::Type type)>;

// Emits the checks of kinds, ranks and dtypes that `known` does not prove; gives back the sizes to
// match.
void EmitTypeChecks(const Match& match, const EmitValueFn& emit, std::vector<SizeMatch>* sizes);
// Does `expected` promise more than `found` proves?
bool NeedsCheck(const ir::Type& expected, const ir::Type& found);

// "main: parameter 'x', expected Tensor((n, 4), float32)"
std::string ParamContext(const std::string& function, const ir::Var& param);
std::string ResultContext(const std::string& function, const ir::Type& type);
std::string CastContext(const std::string& function, const ir::MatchCastObj* cast);

}  // namespace relaxvm::passes
