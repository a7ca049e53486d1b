// SPDX-License-Identifier: Apache-2.0
// Calls replaced by the bodies of what they call.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "ir/visitor.h"

namespace relaxvm::passes {

using FunctionsByName = std::unordered_map<std::string, ir::Function>;

// `func` with every call of one of `functions`, also inside of their bodies, replaced.  A function
// that calls itself is an error.
ir::Function InlineFunctions(const ir::Function& func, const FunctionsByName& functions);

// The bindings of a body as they stand within the caller's dataflow block: what was an output is
// none there.  A body that defines functions stays as it is; they may not name what leaves no
// block.
ir::SeqExpr WithoutOutputs(const ir::SeqExpr& body);

}  // namespace relaxvm::passes
