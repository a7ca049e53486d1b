// SPDX-License-Identifier: Apache-2.0
// What the passes share that load weights when they are needed.
#pragma once

#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/module.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;

// The parameters of a function in front of its weights, by attribute "num_input"; 0 without it.
int64_t NumInput(const ir::FunctionObj* func);
// Calls with effects stand outside of dataflow blocks.
ir::Function WithoutDataflow(const ir::GlobalVar& var, const ir::Function& func);
ir::SeqExpr OneBlock(const ffi::Array<ir::Binding>& bindings, const ir::Expr& body,
                     const ir::Span& span);
// The result's type as callers see it who only know these parameters.
ir::Type TypeForCaller(const ir::Type& type, const ffi::Array<ir::Var>& params);

// What a function returns, by its places in the tuple; a single value is result 0.
struct Results {
  std::unordered_map<const ffi::Object*, std::vector<int64_t>> places;  // of variables
  std::vector<std::pair<int64_t, ir::Expr>> values;                     // that no variable holds
};
Results ResultsIn(const ir::Expr& body);

// The call that gives the weight number `index`, of any type.
using AskFor = std::function<ir::Call(int64_t index, const ir::Var& param)>;
// Binds `param`'s name and type to what `call` gives.
ir::Var BindWeight(const ir::Call& call, const ir::Var& param, bool dataflow,
                   ffi::Array<ir::Binding>* out);
// `func` without its weights: each is asked for right before its first use; the parameters `extra`
// stand in their place.  Asking `without_effect` may stand in a dataflow block, which a weight does
// not leave: the next block asks again.
ir::Function ReadInputsLazily(const ir::Function& func, const ffi::Array<ir::Var>& extra,
                              const AskFor& ask, bool without_effect);

}  // namespace relaxvm::passes
