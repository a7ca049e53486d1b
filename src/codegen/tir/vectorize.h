// SPDX-License-Identifier: Apache-2.0
// Vectorised loops of constant extent become vector expressions; conditions on the loop variable
// become predicates of loads and stores.  A loop that cannot be (it carries a value from one
// iteration to the next, allocates, or holds a loop whose bounds differ between lanes) becomes a
// serial loop.
#pragma once

#include "tir/stmt.h"

namespace relaxvm::codegen {

tir::Stmt VectorizeLoops(const tir::Stmt& body);

}  // namespace relaxvm::codegen
