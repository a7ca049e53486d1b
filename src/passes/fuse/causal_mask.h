// SPDX-License-Identifier: Apache-2.0
// Masks of attention that say "no key behind the query", however a graph computes them.
#pragma once

#include <functional>
#include <optional>

#include "ir/op.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;

// Whether `seen`, a bool tensor, is true exactly where the key is no later than the query: key <=
// query + keys - queries ("BottomRight"), or key <= query ("TopLeft").  The last two axes are
// queries and keys, axes before them must not matter.  `value_of` gives what a variable is bound
// to, null when unknown.
enum class Causal { kTopLeft, kBottomRight };
std::optional<Causal> CausalMask(const ir::Expr& seen, const ir::Expr& queries,
                                 const ir::Expr& keys,
                                 const std::function<ir::Expr(const ir::Expr&)>& value_of,
                                 ir::TypeContext* facts);

// The same for a mask that is added to scores: 0 where the key is seen, `lowest` or less where it
// is not.
std::optional<Causal> CausalBias(const ir::Expr& bias, const ir::Expr& queries,
                                 const ir::Expr& keys, double lowest,
                                 const std::function<ir::Expr(const ir::Expr&)>& value_of,
                                 ir::TypeContext* facts);

}  // namespace relaxvm::passes
