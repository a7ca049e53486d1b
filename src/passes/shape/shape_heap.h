// SPDX-License-Identifier: Apache-2.0
// The heap of symbolic sizes of one function, while it is lowered: which slot holds which
// expression, and what has to be computed at which place.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/expr.h"
#include "tir/stmt.h"

namespace relaxvm::passes {

inline constexpr const char* kShapesLowered =
    "relaxvm.shapes_lowered";  // function attribute: VMShapeLower has run

// The codes that match_shape and make_shape take; the same numbers as in the executable format.
enum class MatchCode : int64_t {
  kAssertEqualToImm = 0,
  kStoreToHeap = 1,
  kNoOp = 2,
  kAssertEqualToLoad = 3
};
enum class MakeCode : int64_t { kUseImm = 0, kLoadShape = 1 };

class ShapeHeap {
 public:
  ShapeHeap();

  // A scope is a function body or a branch; what was defined in it is forgotten when it is left.
  void EnterScope();
  void LeaveScope();
  // A new place after which size expressions can be computed; returns its number.
  int AddPoint();

  // The slot of a variable or an expression that already has one.
  std::optional<int64_t> Find(const ir::Expr& e) const;
  // A slot for a variable that the current place stores.
  int64_t Define(const ir::Var& var);
  // A slot for an expression whose variables all have one; computed at the earliest place where all
  // are known.
  int64_t AddExpression(const ir::Expr& e);
  // `var` is another name for `e`; `slot_of` gives the slot of a non-constant expression.
  void Alias(const ir::Var& var, const ir::Expr& e,
             const std::function<int64_t(const ir::Expr&)>& slot_of);
  // The value of an immediate, or of a variable bound to one.
  std::optional<int64_t> Constant(const ir::Expr& e) const;

  // The program that computes what was added at `point`; nothing when there is nothing to compute.
  std::optional<tir::PrimFunc> MakeProgram(int point) const;
  // The same in Relax's form, once all slots are known: stores of expressions over loads.
  tir::PrimFunc MakePlainProgram(int point) const;

  const ir::Var& var() const { return heap_; }
  int64_t size() const { return next_slot_; }

 private:
  struct Entry {
    ir::Expr expr;
    int64_t slot;
    int point;
  };
  struct Computed {
    int64_t slot;
    ir::Expr expr;
  };

  int PointOf(const ir::Expr& e) const;
  void Remember(const ir::Expr& e, int64_t slot, int point);

  ir::Var heap_;
  int64_t next_slot_ = 0;
  int num_points_ = 0;
  std::vector<size_t> scopes_;  // number of entries at its start
  std::vector<Entry> entries_;  // in order of definition
  std::unordered_map<const ir::VarObj*, size_t> by_var_;
  std::unordered_map<const ir::VarObj*, int64_t> all_slots_;  // of every variable ever defined
  std::unordered_multimap<uint64_t, size_t> by_hash_;
  std::unordered_map<const ir::VarObj*, int64_t> constants_;
  std::vector<std::vector<Computed>> computed_;  // by point
};

}  // namespace relaxvm::passes
