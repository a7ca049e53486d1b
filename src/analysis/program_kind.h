// SPDX-License-Identifier: Apache-2.0
// What a tensor program does, found by looking at its blocks: how it may be fused, and whether it
// only moves data.
#pragma once

#include "tir/stmt.h"

namespace relaxvm::analysis {

// How the elements of the result depend on those of the arguments; the values are those of
// attribute "op_pattern".
enum class FusionKind : int64_t {
  kElementwise = 0,  // out[i] from a[i], and from broadcast arguments
  kBroadcast = 1,    // out[i] from a[some of i, in order]
  kInjective = 2,    // out[i] from a[any function of i]
  kReduction = 3,    // accumulates over whole axes
  kContraction = 4,  // accumulates over products or windows, or in several steps; elementwise work
                     // may follow it
  kOpaque = 8,       // anything else
};

FusionKind KindOf(const tir::PrimFunc& program);

// Does the program copy one argument to its result, keeping the row-major order of elements?
bool HasReshapePattern(const tir::PrimFunc& program);

// Buffer parameters, inputs and outputs apart; scalars.
struct ProgramParams {
  std::vector<tir::Buffer> inputs;
  std::vector<tir::Buffer> outputs;
  std::vector<ir::Var> scalars;
};
ProgramParams ParamsOf(const tir::PrimFunc& program);

}  // namespace relaxvm::analysis
