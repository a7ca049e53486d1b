// SPDX-License-Identifier: Apache-2.0
// FuseAttention: attention written out in operators becomes one call of nn.attention.
//   softmax(cap(scale * (q k^T)) + mask) v  ->  nn.attention(q, k, v) or nn.attention_bias(.., b)
// where cap(s) is s or softcap * tanh(s / softcap); also as its transpose, v^T softmax(..)^T.
// A mask that hides exactly the keys behind a query becomes the attribute causal_mask; heads of key
// and value that are repeated for groups of queries' heads are taken as they were before.
// Accepted on the way: factors on q, k or the scores, also one for each head (cosine attention);
// masks that are added, one after the other and to scores whose batch is split into images and
// windows, or chosen by `where`; reshapes around the softmax that keep its last axis; transposed
// heads, which nn.attention reads in place.
// Stage: graph.  Needs: float tensors of rank 3 or 4 with known shapes, values in between used by
// nothing else.  Keeps: values up to rounding.
#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <unordered_map>

#include "analysis/calls.h"
#include "analysis/uses.h"
#include "arith/analyzer.h"
#include "ir/block_builder.h"
#include "ops/op_def.h"
#include "passes/fuse/causal_mask.h"
#include "passes/fuse/constant_number.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Call;
using ir::Expr;
using ir::Var;
using Perm = std::vector<int64_t>;

std::optional<ffi::Array<Expr>> DimsOf(const Expr& e) {
  const auto* tensor = e->ty.defined() ? e->ty.as<ir::TensorTypeObj>() : nullptr;
  if (tensor == nullptr || !tensor->GetShape().has_value()) return std::nullopt;
  return tensor->GetShape().value();
}

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

// What is added to scores of a shape: their own, or with the batch as two axes.
struct AddedMask {
  Expr mask;
  ffi::Array<Expr> to;
};

// What stands between the two products.
struct Scores {
  Call product;  // q k^T
  double scale = 1;
  Expr factor;  // of each head, or batch: its last two extents are 1; null: none
  std::optional<double> softcap;
  Expr bias;                   // added to the scaled scores; null: nothing
  std::optional<Call> choice;  // instead of it: where(seen, scores, a number that hides)
};

Scores NoScores() { return {Call(ffi::UnsafeInit{})}; }

// What is added to a score, or put in its place, so that the exponential is 0.
constexpr double kHidden = -1e4;

constexpr int kMasks = 4;  // that are added one after the other

class Fuser : public ir::Mutator {
 public:
  Fuser(const ir::Function& f, const IRModule& mod, ir::TypeContext* facts)
      : builder_(facts, mod), facts_(facts) {
    analysis::UseChains chains = analysis::FindUses(f);
    for (const auto& [var, users] : chains.users) num_users_[var.get()] = users.size();
    for (const Var& v : chains.in_result) ++num_users_[v.get()];
  }

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    bool any = false;
    for (const ir::Binding& b : block->bindings)
      any |= analysis::CallsOp(b->value, "relax.nn.softmax");
    if (!any || block.as<ir::DataflowBlockObj>() == nullptr) return ir::Mutator::MutateBlock(block);
    values_.clear();
    fused_.clear();
    builder_.BeginBlock(true);
    bool changed = false;
    for (const ir::Binding& binding : block->bindings) {
      ir::Binding now = binding;
      if (binding.as<ir::VarBindingObj>()) {
        if (Expr value = Rewritten(binding); value.defined()) {
          now = ir::VarBinding(binding->var, builder_.Normalize(value), binding->span);
          changed = true;
        }
        values_[now->var.get()] = now->value;
      }
      builder_.EmitBinding(now);
    }
    ir::BindingBlock out = builder_.EndBlock();
    return changed ? out : block;
  }

 private:
  const Call* CallOf(const Expr& e, const char* op) {
    auto it = values_.find(e.get());
    if (it == values_.end() || !analysis::CallsOp(it->second, op)) return nullptr;
    calls_.push_back(it->second.as<Call>().value());
    return &calls_.back();
  }
  bool UsedOnce(const Expr& e) const {
    auto it = num_users_.find(e.get());
    return it != num_users_.end() && it->second == 1;
  }
  bool SameDim(const Expr& a, const Expr& b) const { return facts_->ProveEqual(a, b); }

  // The number that a tensor of one element is, also one that is computed of constants, as the
  // square root of a depth.
  std::optional<double> NumberOf(const Expr& e, int depth = 0) {
    if (auto number = NumberIn(e)) return number;
    auto it = values_.find(e.get());
    auto call = it == values_.end() || depth > 8 ? std::nullopt : it->second.as<Call>();
    const ir::OpObj* op = call.has_value() ? ir::CalledOp(call.value().get()) : nullptr;
    if (op == nullptr || call.value()->args.empty()) return std::nullopt;
    auto dims = DimsOf(e);
    if (!dims || !std::all_of(dims->begin(), dims->end(),
                              [](const Expr& d) { return ir::IsIntValue(d, 1); }))
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

  struct Turned {
    Expr from;
    Perm perm;
  };
  // What `e` is a permutation of: written as one, or as a matrix transposed in a batch whose axes
  // are merged for it.
  std::optional<Turned> TurnedOf(const Expr& e) {
    if (const Call* permute = CallOf(e, "relax.permute_dims")) {
      std::optional<Perm> perm = PermOf(*permute);
      if (!perm) return std::nullopt;
      Turned turned{(*permute)->args[0], *perm};
      if (std::optional<Turned> before = TurnedOf(turned.from)) {
        turned.from = before->from;
        turned.perm = After(before->perm, turned.perm);
      }
      return turned;
    }
    const Call* outer = CallOf(e, "relax.reshape");
    const Call* turn = outer ? CallOf((*outer)->args[0], "relax.permute_dims") : nullptr;
    if (turn == nullptr || PermOf(*turn) != Perm{0, 2, 1}) return std::nullopt;
    const Call* inner = CallOf((*turn)->args[0], "relax.reshape");
    if (inner == nullptr) return std::nullopt;
    auto to = DimsOf(e), middle = DimsOf((*inner)), from = DimsOf((*inner)->args[0]);
    if (!to || !from || !middle || to->size() != 4 || from->size() != 4) return std::nullopt;
    const bool same = SameDim((*from)[0], (*to)[0]) && SameDim((*from)[1], (*to)[1]) &&
                      SameDim((*from)[2], (*to)[3]) && SameDim((*from)[3], (*to)[2]) &&
                      SameDim((*middle)[1], (*from)[2]) && SameDim((*middle)[2], (*from)[3]);
    if (!same) return std::nullopt;
    return Turned{(*inner)->args[0], {0, 1, 3, 2}};
  }

  // The value that stands for the binding's; null when it stays.
  Expr Rewritten(const ir::Binding& binding) {
    calls_.clear();
    if (analysis::CallsOp(binding->value, "relax.permute_dims")) {
      // Heads that are put back where they came from.
      Call call = binding->value.as<Call>().value();
      auto it = fused_.find(call->args[0].get());
      std::optional<Perm> perm = PermOf(call);
      if (it == fused_.end() || !perm) return Expr();
      return ChangesNothing(After(it->second.perm, *perm)) ? it->second.from : Expr();
    }
    if (!analysis::CallsOp(binding->value, "relax.matmul")) return Expr();
    return Attention(binding->var, binding->value.as<Call>().value());
  }

  Expr Attention(const Var& var, const Call& weighted) {
    Expr v = weighted->args[1];
    std::optional<Expr> logits = LogitsOf(weighted->args[0]);
    // Depths before lengths: the weights stand on the right, transposed.
    const bool turned = !logits.has_value();
    if (turned) {
      std::optional<Turned> weights = TurnedOf(v);
      if (!weights || !UsedOnce(v) || !SwapsMatrices(weights->perm)) return Expr();
      logits = LogitsOf(weights->from);
      v = weighted->args[0];
    }
    if (!logits.has_value()) return Expr();
    std::optional<Scores> scores = ReadScores(*logits);
    if (!scores.has_value()) return Expr();
    Expr q = scores->product->args[0], k = scores->product->args[1];
    q = WithoutFactors(q, &scores->scale);
    k = WithoutFactors(k, &scores->scale);
    auto qs = DimsOf(q), ks = DimsOf(k), vs = DimsOf(v), out = DimsOf(var);
    if (!qs || !ks || !vs || !out) return Expr();
    const size_t rank = qs->size();
    if ((rank != 3 && rank != 4) || ks->size() != rank || vs->size() != rank) return Expr();
    for (size_t d = 0; d + 2 < rank; ++d) {
      if (!SameDim((*qs)[d], (*ks)[d]) || !SameDim((*qs)[d], (*vs)[d]) ||
          !SameDim((*qs)[d], (*out)[d]))
        return Expr();
    }
    if (!SameDim((*ks)[rank - 1], (*vs)[rank - (turned ? 1 : 2)]) ||
        !SameDim((*qs)[rank - 2], (*out)[rank - (turned ? 1 : 2)]))
      return Expr();
    const DLDataType dtype = q->ty.as<ir::TensorTypeObj>()->dtype;
    for (const Expr& e : {Expr(scores->product), k, v, Expr(var)}) {
      if (!IsFloat(dtype) || e->ty.as<ir::TensorTypeObj>()->dtype != dtype) return Expr();
    }
    std::optional<Causal> causal = CausalOf(*scores, (*qs)[rank - 2], (*ks)[rank - 1]);
    if (causal) {
      scores->bias = Expr();
    } else if (scores->choice.has_value()) {
      Expr masked_scores;
      scores->bias = Masked(*scores->choice, &masked_scores);
      if (!scores->bias.defined()) return Expr();
    }
    Expr bias = BiasFor(scores->bias, rank);
    if (scores->bias.defined() && !bias.defined()) return Expr();
    // [batch, heads, length, depth] -> [batch, length, heads, depth]; rank 3 has one head.
    const Perm straight = rank == 4 ? Perm{0, 2, 1, 3} : Perm{0, 1, 2};
    const Perm across = rank == 4 ? Perm{0, 3, 1, 2} : Perm{0, 2, 1};
    Expr query = Permuted(q, straight);
    Perm key_perm = across, value_perm = turned ? across : straight;
    Expr shared_keys = Unrepeated(k, &key_perm), shared_values = Unrepeated(v, &value_perm);
    if (shared_keys.defined() && shared_values.defined() &&
        SameDim((*DimsOf(shared_keys))[key_perm[2]], (*DimsOf(shared_values))[value_perm[2]])) {
      k = shared_keys;
      v = shared_values;
    } else {
      key_perm = across;
      value_perm = turned ? across : straight;
    }
    Expr key = Permuted(k, key_perm), value = Permuted(v, value_perm);
    if (rank == 3) {
      for (Expr* e : {&query, &key, &value}) *e = WithOneHead(*e);
    }
    if (scores->factor.defined()) {
      const ffi::Array<Expr> of = WithLeadingOnes(*DimsOf(scores->factor), rank);
      const Expr heads = rank == 4 ? of[1] : Expr(1);
      Var factor = builder_.Emit(ops::MakeCall(
          "reshape",
          {scores->factor, ir::ShapeExpr(ffi::Array<Expr>{of[0], Expr(1), heads, Expr(1)})}));
      query = builder_.Emit(ops::MakeCall("multiply", {query, factor}));
    }
    ffi::Map<ffi::String, ffi::Any> attrs{{"scale", scores->scale}};
    if (causal) {
      const bool left = *causal == Causal::kTopLeft;
      attrs.Set("causal_mask", ffi::String(left ? "TopLeft" : "BottomRight"));
    }
    if (scores->softcap) attrs.Set("softcap", *scores->softcap);
    ffi::Array<Expr> args = {query, key, value};
    if (bias.defined()) args.push_back(bias);
    Var result = builder_.Emit(
        ops::MakeCall(bias.defined() ? "nn.attention_bias" : "nn.attention", args, attrs));
    if (rank == 3) return OfOneHead(result, *out, turned);
    const Perm back = turned ? Perm{0, 2, 3, 1} : Perm{0, 2, 1, 3};
    fused_.emplace(var.get(), Turned{result, back});
    return ops::MakeCall("permute_dims", {result}, {{"axes", Axes(back)}});
  }

  // [batch, length, 1, depth] without the head, as `dims`.
  Expr OfOneHead(const Var& result, const ffi::Array<Expr>& dims, bool turned) {
    if (!turned) return ops::MakeCall("reshape", {result, ir::ShapeExpr(dims)});
    Var matrices = builder_.Emit(ops::MakeCall(
        "reshape", {result, ir::ShapeExpr(ffi::Array<Expr>{dims[0], dims[2], dims[1]})}));
    return ops::MakeCall("permute_dims", {matrices}, {{"axes", Axes({0, 2, 1})}});
  }

  // Are the last two axes in the other's place, and all others in their own?
  static bool SwapsMatrices(Perm perm) {
    if (perm.size() < 2) return false;
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return ChangesNothing(perm);
  }

  static bool ChangesNothing(const Perm& perm) {
    for (size_t i = 0; i < perm.size(); ++i) {
      if (perm[i] != static_cast<int64_t>(i)) return false;
    }
    return true;
  }

  // `perm` of what `first` has permuted, in one.
  static Perm After(const Perm& first, Perm perm) {
    for (int64_t& axis : perm) axis = first[axis];
    return perm;
  }

  std::optional<Causal> CausalOf(const Scores& scores, const Expr& queries, const Expr& keys) {
    auto value_of = [this](const Expr& e) {
      auto it = values_.find(e.get());
      return it == values_.end() ? Expr() : it->second;
    };
    if (scores.choice.has_value())
      return CausalMask((*scores.choice)->args[0], queries, keys, value_of, facts_);
    if (!scores.bias.defined()) return std::nullopt;
    return CausalBias(scores.bias, queries, keys, kHidden, value_of, facts_);
  }

  // Repeated heads as they were: `e`, read with its axes permuted by `perm` as [batch, length,
  // heads, depth], is  reshape(broadcast_to(x with an axis of extent 1 behind the heads)), or
  // repeat(x).  Gives x and how its axes are permuted; null for anything else.
  Expr Unrepeated(const Expr& e, Perm* perm) {
    Expr from = e;
    Perm all = *perm;
    if (std::optional<Turned> before = TurnedOf(e)) {
      from = before->from;
      all = After(before->perm, all);
    }
    auto to = DimsOf(from);
    if (all.size() != 4 || !to || to->size() != 4) return Expr();
    const auto heads = static_cast<size_t>(all[2]);
    if (const Call* repeat = CallOf(from, "relax.repeat")) {
      auto axis = (*repeat)->attrs.Get("axis").as<int64_t>();
      if (!axis.has_value() || (axis.value() + 4) % 4 != all[2]) return Expr();
      *perm = all;
      return (*repeat)->args[0];
    }
    const Call* merged = CallOf(from, "relax.reshape");
    const Call* spread = merged ? CallOf((*merged)->args[0], "relax.broadcast_to") : nullptr;
    if (spread == nullptr) return Expr();
    auto wide = DimsOf((*merged)->args[0]), narrow = DimsOf((*spread)->args[0]);
    if (!wide || !narrow || wide->size() != 5 || narrow->size() != 5 ||
        !ir::IsIntValue((*narrow)[heads + 1], 1))
      return Expr();
    for (size_t d = 0; d < 5; ++d) {
      if (d != heads + 1 && !SameDim((*wide)[d], (*narrow)[d])) return Expr();
      const size_t place = d > heads ? d - 1 : d;
      if (d != heads && d != heads + 1 && !SameDim((*wide)[d], (*to)[place])) return Expr();
    }
    for (const char* op : {"relax.expand_dims", "relax.reshape"}) {
      const Call* added = CallOf((*spread)->args[0], op);
      auto dims = added != nullptr ? DimsOf((*added)->args[0]) : std::nullopt;
      if (!dims || dims->size() != 4) continue;
      bool same = true;
      for (size_t d = 0; d < 4; ++d)
        same = same && SameDim((*dims)[d], (*narrow)[d > heads ? d + 1 : d]);
      if (!same) continue;
      *perm = all;
      return (*added)->args[0];
    }
    return Expr();
  }

  // What the softmax along the last axis that gives `e` is of.
  std::optional<Expr> LogitsOf(const Expr& e) {
    Expr at = e;
    const Call* around = nullptr;
    if (const Call* reshape = CallOf(at, "relax.reshape"); reshape && UsedOnce(at)) {
      around = reshape;
      at = (*reshape)->args[0];
    }
    const Call* softmax = CallOf(at, "relax.nn.softmax");
    if (softmax == nullptr || !UsedOnce(at)) return std::nullopt;
    auto dims = DimsOf(at);
    const int64_t axis = ops::AttrOf<int64_t>(*softmax, "axis");
    if (!dims || (axis != -1 && axis != static_cast<int64_t>(dims->size()) - 1))
      return std::nullopt;
    Expr logits = (*softmax)->args[0];
    if (around != nullptr) {
      // The rows may be merged for the softmax, when they come back as they were.
      const Call* inner = CallOf(logits, "relax.reshape");
      if (inner == nullptr || !UsedOnce(logits)) return std::nullopt;
      Expr before = (*inner)->args[0];
      auto from = DimsOf(before);
      if (!SameShape(before, e) || !SameDim(from->back(), dims->back())) return std::nullopt;
      logits = before;
    }
    if (!UsedOnce(logits)) return std::nullopt;
    return logits;
  }

  // logits = product * scale [+ biases]
  std::optional<Scores> ReadScores(Expr e) {
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
                        ? Expr(builder_.Emit(ops::MakeCall("add", {scores.bias, bias})))
                        : bias;
    }
    return scores;
  }

  // e = product * scale  or  softcap * tanh(product * scale / softcap)
  bool ReadProduct(Expr e, Scores* scores) {
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

  // Has a tensor of these extents one number for each matrix of a batch?
  static bool OfMatrices(const ffi::Array<Expr>& dims) {
    const size_t rank = dims.size();
    return rank >= 3 && ir::IsIntValue(dims[rank - 1], 1) && ir::IsIntValue(dims[rank - 2], 1);
  }

  bool LeadsToProduct(Expr e, int masks = kMasks) {
    Scores scores = NoScores();
    return ReadProduct(e, &scores) || (masks > 0 && WithoutMask(&e, masks - 1).has_value());
  }

  // What is added to the scores `e`, which become those below; nothing when nothing is.
  std::optional<AddedMask> WithoutMask(Expr* e, int masks = kMasks) {
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
  bool SplitsBatch(const ffi::Array<Expr>& merged, const ffi::Array<Expr>& split) const {
    if (split.size() != merged.size() + 1) return false;
    for (size_t d = 1; d < merged.size(); ++d) {
      if (!SameDim(merged[d], split[d + 1])) return false;
    }
    return true;
  }

  // The mask as it is added to scores of `dims`.
  Expr InOneBatch(const AddedMask& added, const ffi::Array<Expr>& dims) {
    if (added.to.size() == dims.size()) return added.mask;
    ffi::Array<Expr> of = WithLeadingOnes(*DimsOf(added.mask), added.to.size());
    Expr mask = added.mask;
    const bool one = ir::IsIntValue(of[0], 1) && ir::IsIntValue(of[1], 1);
    if (!one) {
      of.Set(0, added.to[0]);
      of.Set(1, added.to[1]);
      mask = builder_.Emit(ops::MakeCall("broadcast_to", {mask, ir::ShapeExpr(of)}));
    }
    ffi::Array<Expr> shape = {one ? Expr(1) : dims[0]};
    for (size_t d = 2; d < of.size(); ++d) shape.push_back(of[d]);
    return builder_.Emit(ops::MakeCall("reshape", {mask, ir::ShapeExpr(shape)}));
  }

  static ffi::Array<Expr> WithLeadingOnes(const ffi::Array<Expr>& dims, size_t rank) {
    ffi::Array<Expr> all;
    for (size_t i = dims.size(); i < rank; ++i) all.push_back(Expr(1));
    for (const Expr& d : dims) all.push_back(d);
    return all;
  }

  // where(seen, scores, c) = scores + where(seen, 0, c) for a c that drowns any score.
  Expr Masked(const Call& where, Expr* scores) {
    for (int side : {1, 2}) {
      std::optional<double> number = NumberOf(where->args[side]);
      // What drowns any score that the element type holds.
      const bool half = where->args[side]->ty.as<ir::TensorTypeObj>()->dtype == Float(16);
      if (!number.has_value() || !(*number <= (half ? -6e4 : -1e30))) continue;
      const Expr& other = where->args[3 - side];
      if (!LeadsToProduct(other)) continue;
      *scores = other;
      Expr zero = ZeroLike(where->args[side]);
      ffi::Array<Expr> args = side == 1 ? ffi::Array<Expr>{where->args[0], where->args[1], zero}
                                        : ffi::Array<Expr>{where->args[0], zero, where->args[2]};
      return builder_.Emit(ops::MakeCall("where", args));
    }
    return Expr();
  }

  // s of  where(seen, s, c)  with a c that hides.
  Expr Hidden(const Call& where) {
    std::optional<double> number = NumberOf(where->args[2]);
    if (!number.has_value() || !(*number <= kHidden)) return Expr();
    return LeadsToProduct(where->args[1]) ? where->args[1] : Expr();
  }

  Expr ZeroLike(const Expr& constant) {
    return builder_.Emit(ops::MakeCall("zeros_like", {constant}));
  }

  Expr WithoutFactors(Expr e, double* scale) {
    for (Expr before; !before.same_as(e);) {
      before = e;
      e = WithoutFactor(e, scale);
    }
    return e;
  }

  // x of  x * number,  number * x,  x / number,  with the number in `scale`; else `e` itself.
  Expr WithoutFactor(const Expr& e, double* scale) {
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

  bool SameShape(const Expr& a, const Expr& b) const {
    auto x = DimsOf(a), y = DimsOf(b);
    if (!x || !y || x->size() != y->size()) return false;
    for (size_t d = 0; d < x->size(); ++d) {
      if (!SameDim((*x)[d], (*y)[d])) return false;
    }
    return true;
  }

  // The mask as [batch, heads, queries, keys]; null when it has no such form.
  Expr BiasFor(const Expr& bias, size_t rank) {
    if (!bias.defined()) return Expr();
    auto dims = DimsOf(bias);
    if (!dims || dims->size() > rank) return Expr();
    ffi::Array<Expr> shape = WithLeadingOnes(*dims, rank);
    if (rank == 3) shape = {shape[0], Expr(1), shape[1], shape[2]};
    if (shape.size() == dims->size()) return bias;
    return builder_.Emit(ops::MakeCall("reshape", {bias, ir::ShapeExpr(shape)}));
  }

  Expr WithOneHead(const Expr& e) {
    ffi::Array<Expr> dims = *DimsOf(e);
    return builder_.Emit(ops::MakeCall(
        "reshape", {e, ir::ShapeExpr(ffi::Array<Expr>{dims[0], dims[1], Expr(1), dims[2]})}));
  }

  static ffi::Array<ffi::Any> Axes(const Perm& perm) {
    ffi::Array<ffi::Any> axes;
    for (int64_t p : perm) axes.push_back(p);
    return axes;
  }

  static std::optional<Perm> PermOf(const Call& permute) {
    auto axes = permute->attrs.Get("axes").as<ffi::Array<ffi::Any>>();
    if (!axes.has_value()) return std::nullopt;
    Perm perm;
    const auto rank = static_cast<int64_t>(axes.value().size());
    for (const ffi::Any& a : axes.value()) {
      const auto axis = a.cast<int64_t>();
      perm.push_back(axis < 0 ? axis + rank : axis);
    }
    return perm;
  }

  // `e` with its axes permuted; what it is a permutation of already is permuted instead.
  Expr Permuted(const Expr& e, const Perm& perm) {
    Expr from = e;
    Perm all = perm;
    if (std::optional<Turned> before = TurnedOf(e)) {
      from = before->from;
      all = After(before->perm, perm);
    }
    return ChangesNothing(all)
               ? from
               : Expr(builder_.Emit(ops::MakeCall("permute_dims", {from}, {{"axes", Axes(all)}})));
  }

  ir::BlockBuilder builder_;
  ir::TypeContext* facts_;
  std::unordered_map<const ffi::Object*, size_t> num_users_;
  std::unordered_map<const ffi::Object*, Expr> values_;   // of this block
  std::unordered_map<const ffi::Object*, Turned> fused_;  // of the call [b, s, h, d]
  std::deque<Call> calls_;                                // what CallOf has found, alive
};

}  // namespace

IRModule FuseAttention(IRModule mod, const PassContext& context) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& f) {
    return Fuser(f, mod, facts.get()).Mutate(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
