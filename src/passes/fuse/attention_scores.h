// SPDX-License-Identifier: Apache-2.0
// What stands between the two products of attention: the scores that a softmax is of.
#pragma once

#include <deque>
#include <optional>
#include <unordered_map>

#include "ir/block_builder.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;

// `dims` with ones in front, `rank` of them.
ffi::Array<ir::Expr> WithLeadingOnes(const ffi::Array<ir::Expr>& dims, size_t rank);

// What is added to a score, or put in its place, so that the exponential is 0.
inline constexpr double kHidden = -1e4;

struct Scores {
  ir::Call product;  // q k^T
  double scale = 1;
  ir::Expr factor;  // of each head, or batch: its last two extents are 1; null: none
  std::optional<double> softcap;
  ir::Expr bias;                   // added to the scaled scores; null: nothing
  std::optional<ir::Call> choice;  // instead of it: where(seen, scores, a number that hides)
};

// Reads the values of one block after the other; what it emits goes to `builder`.
class ScoreReader {
 public:
  ScoreReader(const ir::Function& f, ir::BlockBuilder* builder, ir::TypeContext* facts);

  void BeginBlock() { values_.clear(); }
  void Bind(const ir::Binding& binding) { values_[binding->var.get()] = binding->value; }

  // What a variable of the block is bound to; null when unknown.
  ir::Expr ValueOf(const ir::Expr& e) const;
  // The call of `op` that `e` is bound to, until the next `ForgetCalls`; null: it is something
  // else.
  const ir::Call* CallOf(const ir::Expr& e, const char* op);
  void ForgetCalls() { calls_.clear(); }
  bool UsedOnce(const ir::Expr& e) const;
  bool SameDim(const ir::Expr& a, const ir::Expr& b) const { return facts_->ProveEqual(a, b); }
  bool SameShape(const ir::Expr& a, const ir::Expr& b) const;

  // logits = product * scale [+ masks]
  std::optional<Scores> Read(ir::Expr logits);
  // The mask of which `where` is the sum with `scores`; null when it is no such sum.
  ir::Expr Masked(const ir::Call& where, ir::Expr* scores);
  // x of x times numbers, which `scale` takes.
  ir::Expr WithoutFactors(ir::Expr e, double* scale);

 private:
  // What is added to scores as a tensor of shape `to`: their own, or with the batch as two axes.
  struct AddedMask {
    ir::Expr mask;
    ffi::Array<ir::Expr> to;
  };
  static constexpr int kMasks = 4;  // that are added one after the other

  std::optional<double> NumberOf(const ir::Expr& e, int depth = 0);
  bool ReadProduct(ir::Expr e, Scores* scores);
  // Is it a product, below up to so many masks?
  bool LeadsToProduct(ir::Expr e, int masks);
  std::optional<AddedMask> WithoutMask(ir::Expr* e, int masks = kMasks);
  bool SplitsBatch(const ffi::Array<ir::Expr>& merged, const ffi::Array<ir::Expr>& split) const;
  ir::Expr InOneBatch(const AddedMask& added, const ffi::Array<ir::Expr>& dims);
  ir::Expr Hidden(const ir::Call& where);
  ir::Expr WithoutFactor(const ir::Expr& e, double* scale);

  ir::BlockBuilder* builder_;
  ir::TypeContext* facts_;
  std::unordered_map<const ffi::Object*, size_t> num_users_;
  std::unordered_map<const ffi::Object*, ir::Expr> values_;  // of this block
  std::deque<ir::Call> calls_;                               // what CallOf has found, alive
};

}  // namespace relaxvm::passes
