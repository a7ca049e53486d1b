// SPDX-License-Identifier: Apache-2.0
// The values of a function in several orders of their axes.  A conversion is emitted only when
// somebody asks for an order that is not there yet, and not even then when the value was made by a
// reshape or a permutation of something that has the right order.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ops/op_def.h"
#include "passes/layout/permutation.h"

namespace relaxvm::passes::layout {

int64_t RankOf(const ir::Expr& e);

class Versions {
 public:
  explicit Versions(ir::BlockBuilder* builder) : builder_(builder) {}
  ir::BlockBuilder* builder() const { return builder_; }
  bool changed() const { return changed_; }

  // ---- what is there

  // The order that `e` was brought into; the identity when it is plain.
  Perm PermOf(const ir::Expr& e) const;
  // The order in which fewest of `values` would have to be moved; for equal numbers another than
  // the plain one, and the last.
  Perm BestFor(const std::vector<ir::Expr>& values) const;
  // `e` with its axes in this order.
  ir::Expr Get(const ir::Expr& e, const Perm& perm);
  // `e` as it was before: plain; also tuples.
  ir::Expr Plain(const ir::Expr& e);

  // ---- what is new

  // Binds the result of a converted call to what `var` stood for.
  void Define(const ir::Var& var, const ir::Call& call, const Perm& perm);
  // `value` is what `var` stood for, in another order.  `moved`: a conversion made it, so another
  // order costs no more when it is made from where that one started.
  void DefineAs(const ir::Var& var, const ir::Expr& value, const Perm& perm, bool moved = false);
  // The same for a call that gives a tuple; an empty order for fields that stay.
  void DefineTuple(const ir::Var& var, const ir::Call& call, std::vector<Perm> perms);
  // A variable that is seen as far as `var`.
  ir::Expr EmitLike(const ir::Var& var, const ir::Expr& value);
  // The field of a converted tuple and its order; nothing for other tuples.
  const Perm* FieldOf(const ir::TupleGetItemObj* item, ir::Expr* value) const;

  // `var` is `source` with other axes: axis i of it is axis axes[i] of the source ...
  void CameFromPermutation(const ir::Var& var, const ir::Expr& source, Perm axes);
  // ... or groups of axes became others.
  void CameFromReshape(const ir::Var& var, const ir::Expr& source, ReshapeGroups groups);

  // ---- scopes

  // After a block: what only the block saw is gone.  `done`: the block as it became.
  void LeaveBlock(const ir::BindingBlock& done);
  // Values that were made visible outside of their blocks, and these.
  std::unordered_map<const ffi::Object*, const ffi::Object*> TakeHomes() {
    return std::move(home_);
  }
  void MarkChanged() { changed_ = true; }
  bool ExchangeChanged(bool value) { return std::exchange(changed_, value); }

  // A branch sees what exists before it; its own end with it.
  struct Scope;
  Scope EnterBranch();
  void LeaveBranch(Scope scope);

 private:
  struct Version {
    Perm perm;
    ir::Expr value;
    bool moved = false;
  };
  struct Entry {
    ir::Expr keep_alive;
    std::vector<Version> values;
  };
  struct MovedTuple {
    ir::Expr keep_alive;
    ir::Expr value;
    std::vector<Perm> perms;
  };
  struct Origin {
    ir::Var keep_alive;
    ir::Expr source;
    Perm axes;                            // of a permutation, or:
    std::optional<ReshapeGroups> groups;  // of a reshape
    // The order of the source that gives this order of the result; absent when none does.
    std::optional<Perm> SourceOrder(const Perm& perm) const;
  };
  using Entries = std::unordered_map<const ffi::Object*, Entry>;
  using Tuples = std::unordered_map<const ffi::Object*, MovedTuple>;
  using Origins = std::unordered_map<const ffi::Object*, Origin>;

  static constexpr int kMaxSteps = 16;  // along origins
  // How often elements would be moved to get `e` in this order.
  int Cost(const ir::Expr& e, const Perm& perm, int steps = kMaxSteps) const;
  const Version* Find(const ir::Expr& e, const Perm& perm) const;
  std::optional<Perm> ByOrigin(const ir::Expr& e, const Perm& perm, int steps) const;
  ir::Expr FromOrigin(const Origin& origin, const ir::Expr& e, const Perm& perm,
                      const Perm& source_order);
  ir::Expr Permute(const ir::Expr& e, const Perm& perm);
  void AddVersion(const ir::Expr& e, const Perm& perm, const ir::Expr& value);

  ir::BlockBuilder* builder_;
  Entries entries_;
  Tuples tuples_;
  Origins origins_;
  std::unordered_set<const ffi::Object*> made_;  // seen outside of their blocks, as far as needed
  std::unordered_map<const ffi::Object*, const ffi::Object*> home_;  // of these: their blocks
  bool changed_ = false;

 public:
  struct Scope {
    Entries entries;
    Tuples tuples;
    Origins origins;
  };
};

}  // namespace relaxvm::passes::layout
