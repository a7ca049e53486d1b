// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse/attention_scores.h"

#include <algorithm>
#include <cmath>

#include "analysis/calls.h"
#include "analysis/uses.h"
#include "ops/op_def.h"
#include "passes/fuse/constant_number.h"

namespace relaxvm::passes {

using analysis::DimsOf;
using ir::Call;
using ir::Expr;
using ir::Var;

namespace {

// The number in a constant of one element.
std::optional<double> NumberIn(const Expr& e) {
  const auto* constant = e.as<ir::ConstantObj>();
  if (constant == nullptr || constant->data.device().device_type != kDLCPU) return std::nullopt;
  int64_t count = 1;
  for (int64_t d : constant->data.shape()) count *= d;
  if (count != 1) return std::nullopt;
  const void* p = constant->data.data_ptr();
  if (auto number = FloatElement(constant->data, 0)) return number;
  if (constant->data.dtype() == Int(64)) return *static_cast<const int64_t*>(p);
  return std::nullopt;
}

// Has a tensor of these extents one number for each matrix of a batch?
bool OfMatrices(const ffi::Array<Expr>& dims) {
  const size_t rank = dims.size();
  return rank >= 3 && ir::IsIntValue(dims[rank - 1], 1) && ir::IsIntValue(dims[rank - 2], 1);
}

Scores NoScores() { return {Call(ffi::UnsafeInit{})}; }

}  // namespace

ffi::Array<Expr> WithLeadingOnes(const ffi::Array<Expr>& dims, size_t rank) {
  ffi::Array<Expr> all;
  for (size_t i = dims.size(); i < rank; ++i) all.push_back(Expr(1));
  for (const Expr& d : dims) all.push_back(d);
  return all;
}

ScoreReader::ScoreReader(const ir::Function& f, ir::BlockBuilder* builder, ir::TypeContext* facts)
    : builder_(builder), facts_(facts) {
  analysis::UseChains chains = analysis::FindUses(f);
  for (const auto& [var, users] : chains.users) num_users_[var.get()] = users.size();
  for (const Var& v : chains.in_result) ++num_users_[v.get()];
}

Expr ScoreReader::ValueOf(const Expr& e) const {
  auto it = values_.find(e.get());
  return it == values_.end() ? Expr() : it->second;
}

const Call* ScoreReader::CallOf(const Expr& e, const char* op) {
  auto it = values_.find(e.get());
  if (it == values_.end() || !analysis::CallsOp(it->second, op)) return nullptr;
  calls_.push_back(it->second.as<Call>().value());
  return &calls_.back();
}

bool ScoreReader::UsedOnce(const Expr& e) const {
  auto it = num_users_.find(e.get());
  return it != num_users_.end() && it->second == 1;
}

// The number that a tensor of one element is, also one that is computed of constants, as the
// square root of a depth.
std::optional<double> ScoreReader::NumberOf(const Expr& e, int depth) {
  if (auto number = NumberIn(e)) return number;
  auto it = values_.find(e.get());
  auto call = it == values_.end() || depth > 8 ? std::nullopt : it->second.as<Call>();
  const ir::OpObj* op = call.has_value() ? ir::CalledOp(call.value().get()) : nullptr;
  if (op == nullptr || call.value()->args.empty()) return std::nullopt;
  auto dims = DimsOf(e);
  if (!dims ||
      !std::all_of(dims->begin(), dims->end(), [](const Expr& d) { return ir::IsIntValue(d, 1); }))
    return std::nullopt;
  const std::string name(op->name);
  const Call& c = call.value();
  auto a = NumberOf(c->args[0], depth + 1);
  if (!a) return std::nullopt;
  if (name == "relax.sqrt") return std::sqrt(static_cast<float>(*a));
  if (name == "relax.rsqrt") return 1 / std::sqrt(*a);
  for (const char* same : {"relax.reshape", "relax.squeeze", "relax.expand_dims"}) {
    if (name == same) return a;
  }
  if (name == "relax.astype" && IsFloat(e->ty.as<ir::TensorTypeObj>()->dtype)) return a;
  if (c->args.size() != 2 || !IsFloat(e->ty.as<ir::TensorTypeObj>()->dtype)) return std::nullopt;
  auto b = NumberOf(c->args[1], depth + 1);
  if (!b) return std::nullopt;
  if (name == "relax.multiply") return *a * *b;
  if (name == "relax.divide" && *b != 0) return *a / *b;
  if (name == "relax.power") return std::pow(*a, *b);
  return std::nullopt;
}

// logits = product * scale [+ biases]
std::optional<Scores> ScoreReader::Read(Expr e) {
  Scores scores = NoScores();
  std::vector<AddedMask> added;
  while (std::optional<AddedMask> mask = WithoutMask(&e)) added.push_back(*mask);
  if (const Call* where = added.empty() ? CallOf(e, "relax.where") : nullptr) {
    Expr other = Hidden(*where);
    if (other.defined()) {
      scores.choice = *where;
      e = other;
    } else {
      scores.bias = Masked(*where, &e);
      if (!scores.bias.defined()) return std::nullopt;
    }
  }
  if (!ReadProduct(e, &scores)) return std::nullopt;
  for (const AddedMask& mask : added) {
    Expr bias = InOneBatch(mask, *DimsOf(e));
    scores.bias = scores.bias.defined()
                      ? Expr(builder_->Emit(ops::MakeCall("add", {scores.bias, bias})))
                      : bias;
  }
  return scores;
}

// e = product * scale  or  softcap * tanh(product * scale / softcap)
bool ScoreReader::ReadProduct(Expr e, Scores* scores) {
  if (!UsedOnce(e)) return false;
  e = WithoutFactors(e, &scores->scale);
  if (const Call* tanh = CallOf(e, "relax.tanh")) {
    if (!UsedOnce(e) || !(scores->scale > 0)) return false;
    scores->softcap = scores->scale;
    e = WithoutFactors((*tanh)->args[0], &scores->scale);
  }
  if (const Call* product = CallOf(e, "relax.multiply")) {
    for (int side : {0, 1}) {
      auto of = DimsOf((*product)->args[1 - side]);
      if (!UsedOnce(e) || !of || !SameShape((*product)->args[side], e) || !OfMatrices(*of))
        continue;
      scores->factor = (*product)->args[1 - side];
      e = WithoutFactors((*product)->args[side], &scores->scale);
      break;
    }
  }
  const Call* product = CallOf(e, "relax.matmul");
  if (product == nullptr || !UsedOnce(e)) return false;
  scores->product = *product;
  return true;
}

bool ScoreReader::LeadsToProduct(Expr e, int masks) {
  Scores scores = NoScores();
  return ReadProduct(e, &scores) || (masks > 0 && WithoutMask(&e, masks - 1).has_value());
}

// What is added to the scores `e`, which become those below; nothing when nothing is.
std::optional<ScoreReader::AddedMask> ScoreReader::WithoutMask(Expr* e, int masks) {
  auto all = DimsOf(*e);
  if (!all || !UsedOnce(*e)) return std::nullopt;
  const Call* merged = CallOf(*e, "relax.reshape");
  const Expr sum = merged ? (*merged)->args[0] : *e;
  const Call* add = CallOf(sum, "relax.add");
  auto to = DimsOf(sum);
  if (add == nullptr || !to || !UsedOnce(sum)) return std::nullopt;
  if (merged != nullptr && !SplitsBatch(*all, *to)) return std::nullopt;
  for (int side : {0, 1}) {
    Expr below = (*add)->args[side];
    if (!SameShape(below, sum)) continue;
    if (merged != nullptr) {
      const Call* split = UsedOnce(below) ? CallOf(below, "relax.reshape") : nullptr;
      if (split == nullptr || !SameShape((*split)->args[0], *e)) continue;
      below = (*split)->args[0];
    }
    if (!LeadsToProduct(below, masks)) continue;
    *e = below;
    return AddedMask{(*add)->args[1 - side], *to};
  }
  return std::nullopt;
}

// [images * windows, ..] and [images, windows, ..]?
bool ScoreReader::SplitsBatch(const ffi::Array<Expr>& merged, const ffi::Array<Expr>& split) const {
  if (split.size() != merged.size() + 1) return false;
  for (size_t d = 1; d < merged.size(); ++d) {
    if (!SameDim(merged[d], split[d + 1])) return false;
  }
  return true;
}

// The mask as it is added to scores of `dims`.
Expr ScoreReader::InOneBatch(const AddedMask& added, const ffi::Array<Expr>& dims) {
  if (added.to.size() == dims.size()) return added.mask;
  ffi::Array<Expr> of = WithLeadingOnes(*DimsOf(added.mask), added.to.size());
  Expr mask = added.mask;
  const bool one = ir::IsIntValue(of[0], 1) && ir::IsIntValue(of[1], 1);
  if (!one) {
    of.Set(0, added.to[0]);
    of.Set(1, added.to[1]);
    mask = builder_->Emit(ops::MakeCall("broadcast_to", {mask, ir::ShapeExpr(of)}));
  }
  ffi::Array<Expr> shape = {one ? Expr(1) : dims[0]};
  for (size_t d = 2; d < of.size(); ++d) shape.push_back(of[d]);
  return builder_->Emit(ops::MakeCall("reshape", {mask, ir::ShapeExpr(shape)}));
}

// where(seen, scores, c) = scores + where(seen, 0, c) for a c that drowns any score.
Expr ScoreReader::Masked(const Call& where, Expr* scores) {
  for (int side : {1, 2}) {
    std::optional<double> number = NumberOf(where->args[side]);
    // What drowns any score that the element type holds.
    const bool half = where->args[side]->ty.as<ir::TensorTypeObj>()->dtype == Float(16);
    if (!number.has_value() || !(*number <= (half ? -6e4 : -1e30))) continue;
    const Expr& other = where->args[3 - side];
    if (!LeadsToProduct(other, 0)) continue;
    *scores = other;
    Expr zero = builder_->Emit(ops::MakeCall("zeros_like", {where->args[side]}));
    ffi::Array<Expr> args = side == 1 ? ffi::Array<Expr>{where->args[0], where->args[1], zero}
                                      : ffi::Array<Expr>{where->args[0], zero, where->args[2]};
    return builder_->Emit(ops::MakeCall("where", args));
  }
  return Expr();
}

// s of  where(seen, s, c)  with a c that hides.
Expr ScoreReader::Hidden(const Call& where) {
  std::optional<double> number = NumberOf(where->args[2]);
  if (!number.has_value() || !(*number <= kHidden)) return Expr();
  return LeadsToProduct(where->args[1], 0) ? where->args[1] : Expr();
}

Expr ScoreReader::WithoutFactors(Expr e, double* scale) {
  for (Expr before; !before.same_as(e);) {
    before = e;
    e = WithoutFactor(e, scale);
  }
  return e;
}

// x of  x * number,  number * x,  x / number,  with the number in `scale`; else `e` itself.
Expr ScoreReader::WithoutFactor(const Expr& e, double* scale) {
  if (!UsedOnce(e)) return e;
  if (const Call* product = CallOf(e, "relax.multiply")) {
    for (int side : {0, 1}) {
      std::optional<double> number = NumberOf((*product)->args[1 - side]);
      if (!number.has_value() || !SameShape((*product)->args[side], e)) continue;
      *scale *= *number;
      return (*product)->args[side];
    }
  } else if (const Call* quotient = CallOf(e, "relax.divide")) {
    std::optional<double> number = NumberOf((*quotient)->args[1]);
    if (number.has_value() && *number != 0 && SameShape((*quotient)->args[0], e)) {
      *scale /= *number;
      return (*quotient)->args[0];
    }
  }
  return e;
}

bool ScoreReader::SameShape(const Expr& a, const Expr& b) const {
  auto x = DimsOf(a), y = DimsOf(b);
  if (!x || !y || x->size() != y->size()) return false;
  for (size_t d = 0; d < x->size(); ++d) {
    if (!SameDim((*x)[d], (*y)[d])) return false;
  }
  return true;
}

}  // namespace relaxvm::passes
