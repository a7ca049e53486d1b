// SPDX-License-Identifier: Apache-2.0
// A tensor program seen as a list of stages: what schedules look at.  A stage is one block in
// closed form; what has no such form stays an opaque statement.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arith/analyzer.h"
#include "tir/functor.h"

namespace relaxvm::schedule {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;
using tir::Buffer;
using tir::PrimFunc;
using tir::Stmt;

// `var` runs over [0, extent).
struct Axis {
  Var var;
  Expr extent;
};

enum class Combine : uint8_t { kNone, kSum, kProd, kMin, kMax, kAnd, kOr };

// A right side of bytes in panels (cpu/pack_operand.cc) with notes: behind its `groups` rows of
// four neighbours along the sum a panel has bytes that are 0 for each `block` rows whose pairs keep
// to 16 bits (tir::DotOfBytePairs is exact).
struct PairNotes {
  int64_t groups = 0, block = 0;
};
// The annotation of the block of a product that says so: groups, block.
inline constexpr const char* kPairNotes = "notes_of_byte_pairs";

// kNone:  out[indices] = value                                for all spatial axes
// else:   out[indices] = combine of `value` over the reduce axes, starting from `identity`
struct Spread;

struct Stage {
  std::string name;
  std::vector<Axis> spatial;
  std::vector<Axis> reduce;
  Combine combine = Combine::kNone;
  Expr identity;
  std::optional<Buffer> out;
  ffi::Array<Expr> indices;
  Expr value;
  // A reduction's result on its way to memory: a formula of `reduced` and the spatial axes.  Null:
  // the result itself.
  Var reduced = Var("reduced", Float(32));
  Expr finish;
  // Of a reduction: an elementwise stage over the reduced axis, whose element is stored right
  // before it is read.
  std::shared_ptr<const Stage> before;
  // Of a sum without spatial axes: a second sum that is made in the same reading.
  std::shared_ptr<const Spread> spread;
  // A load of memory that is needed soon, as a function of the one axis that the stage walks along;
  // `ahead_quarters` elements come for each four points, one after the other.
  Expr ahead;
  int64_t ahead_quarters = 0;
  bool ahead_near = false;  // into the first cache
  // Of a reduction: elementwise stages over an axis as long as the reduced one, or shorter by
  // less than one vector, which have nothing to do with it.  For each four vectors of the
  // reduction, `quarters` vectors of each other stage are stored, from the `begin`th quarter of it
  // on; what is no four vectors at its end is left out.
  struct Beside {
    std::vector<std::shared_ptr<const Stage>> stages;
    int64_t begin = 0;
    int64_t quarters = 0;
  };
  Beside beside;
  // Of a reduction without spatial axes: it is made for several rows at once, and this is what
  // stands for its variables in each.  Empty: one row.
  std::vector<ffi::Map<Var, Expr>> together;
  std::optional<PairNotes> notes;
  Stmt opaque;  // defined: not of the form above; the other fields but `name` are empty

  bool IsOpaque() const { return opaque.defined(); }
};

// The sum of the squares of the distances between the values of another sum and `centre`, which is
// read when that sum has been stored; `sum` says where it goes.
struct Spread {
  Stage sum;
  Expr centre;
};

struct Program {
  PrimFunc func;
  ffi::Array<Stmt> checks;    // asserts in front of all else
  std::vector<Buffer> temps;  // in order of allocation
  std::vector<Stage> stages;  // in order of execution
};

// The value of `combine` for `a` and `b`.
Expr Apply(Combine combine, Expr a, Expr b);
// `accumulated` combined with the next value; a product of floats is added without rounding in
// between.
Expr Accumulated(Combine combine, Expr accumulated, const Expr& next);

// Absent when the program's outline is not "checks, allocations, then nests of one block each"
// (already scheduled by hand).
std::optional<Program> ParseProgram(const PrimFunc& func);

// Puts formulas of temporaries into their only users, or into all of them when cheap; removes
// stages nobody reads. A contraction's operands stay memory (each element is read many times),
// unless the formula is a bare load.
Program InlineStages(Program program);
// The same for temporaries that only move data: their formula is a bare load.
Program InlineLoads(Program program);

// Formulas that compute with float16 or bfloat16 compute with float32, and round what they store.
Program WidenHalves(Program program);

// A product, perhaps one that counts only where `guard` (null: everywhere) holds.
struct GuardedProduct {
  Expr a, b, guard;
};
std::optional<GuardedProduct> ProductOf(const Expr& value);

// Does `stage` multiply two tensors and add up, with an axis that only one of them has on each
// side?  A guard may depend on axes that both have, and on those of one side.
bool IsContraction(const Stage& stage);

// The stage with an axis i that occurs as i // c and i % c (and whose extent c divides) replaced by
// two, so that accesses are linear again: what transposed convolutions look like.  Not for a c
// below `least`.
Stage SplitAxes(const Stage& stage, arith::Analyzer* analyzer, int64_t least = 2);

// A stage of the closed form with its variables replaced in all that it computes and in where that
// goes; its axes are the caller's.
Stage Substituted(const Stage& stage, const ffi::Map<Var, Expr>& map);

// Buffers that a stage reads, each once; also for opaque ones.
std::vector<Var> ReadsOf(const Stage& stage);
bool Writes(const Stage& stage, const Var& buffer);

// A reduction and the elementwise stage that alone reads it, element by element, as one stage.
Stage FinishWith(const Stage& reduction, const Stage& elementwise);
// What is stored for the accumulated value `acc`.
Expr Finished(const Stage& stage, const Expr& acc);

// `e` without the conversions around it.
const Expr& StripCasts(const Expr& e);

// What computing a formula once costs, in additions.
int CostOf(const Expr& value);

}  // namespace relaxvm::schedule
