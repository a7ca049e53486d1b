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
#include <optional>
#include <unordered_map>

#include "analysis/calls.h"
#include "arith/analyzer.h"
#include "ir/block_builder.h"
#include "ops/op_def.h"
#include "passes/fuse/attention_scores.h"
#include "passes/fuse/causal_mask.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::DimsOf;
using ir::Call;
using ir::Expr;
using ir::Var;
using Perm = std::vector<int64_t>;

class Fuser : public ir::Mutator {
 public:
  Fuser(const ir::Function& f, const IRModule& mod, ir::TypeContext* facts)
      : builder_(facts, mod), facts_(facts), reader_(f, &builder_, facts) {}

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    bool any = false;
    for (const ir::Binding& b : block->bindings)
      any |= analysis::CallsOp(b->value, "relax.nn.softmax");
    if (!any || block.as<ir::DataflowBlockObj>() == nullptr) return ir::Mutator::MutateBlock(block);
    reader_.BeginBlock();
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
        reader_.Bind(now);
      }
      builder_.EmitBinding(now);
    }
    ir::BindingBlock out = builder_.EndBlock();
    return changed ? out : block;
  }

 private:
  struct Turned {
    Expr from;
    Perm perm;
  };
  // What `e` is a permutation of: written as one, or as a matrix transposed in a batch whose axes
  // are merged for it.
  std::optional<Turned> TurnedOf(const Expr& e) {
    if (const Call* permute = reader_.CallOf(e, "relax.permute_dims")) {
      std::optional<Perm> perm = PermOf(*permute);
      if (!perm) return std::nullopt;
      Turned turned{(*permute)->args[0], *perm};
      if (std::optional<Turned> before = TurnedOf(turned.from)) {
        turned.from = before->from;
        turned.perm = After(before->perm, turned.perm);
      }
      return turned;
    }
    const Call* outer = reader_.CallOf(e, "relax.reshape");
    const Call* turn = outer ? reader_.CallOf((*outer)->args[0], "relax.permute_dims") : nullptr;
    if (turn == nullptr || PermOf(*turn) != Perm{0, 2, 1}) return std::nullopt;
    const Call* inner = reader_.CallOf((*turn)->args[0], "relax.reshape");
    if (inner == nullptr) return std::nullopt;
    auto to = DimsOf(e), middle = DimsOf((*inner)), from = DimsOf((*inner)->args[0]);
    if (!to || !from || !middle || to->size() != 4 || from->size() != 4) return std::nullopt;
    const bool same =
        reader_.SameDim((*from)[0], (*to)[0]) && reader_.SameDim((*from)[1], (*to)[1]) &&
        reader_.SameDim((*from)[2], (*to)[3]) && reader_.SameDim((*from)[3], (*to)[2]) &&
        reader_.SameDim((*middle)[1], (*from)[2]) && reader_.SameDim((*middle)[2], (*from)[3]);
    if (!same) return std::nullopt;
    return Turned{(*inner)->args[0], {0, 1, 3, 2}};
  }

  // The value that stands for the binding's; null when it stays.
  Expr Rewritten(const ir::Binding& binding) {
    reader_.ForgetCalls();
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
      if (!weights || !reader_.UsedOnce(v) || !SwapsMatrices(weights->perm)) return Expr();
      logits = LogitsOf(weights->from);
      v = weighted->args[0];
    }
    if (!logits.has_value()) return Expr();
    std::optional<Scores> scores = reader_.Read(*logits);
    if (!scores.has_value()) return Expr();
    Expr q = scores->product->args[0], k = scores->product->args[1];
    q = reader_.WithoutFactors(q, &scores->scale);
    k = reader_.WithoutFactors(k, &scores->scale);
    auto qs = DimsOf(q), ks = DimsOf(k), vs = DimsOf(v), out = DimsOf(var);
    if (!qs || !ks || !vs || !out) return Expr();
    const size_t rank = qs->size();
    if ((rank != 3 && rank != 4) || ks->size() != rank || vs->size() != rank) return Expr();
    for (size_t d = 0; d + 2 < rank; ++d) {
      if (!reader_.SameDim((*qs)[d], (*ks)[d]) || !reader_.SameDim((*qs)[d], (*vs)[d]) ||
          !reader_.SameDim((*qs)[d], (*out)[d]))
        return Expr();
    }
    if (!reader_.SameDim((*ks)[rank - 1], (*vs)[rank - (turned ? 1 : 2)]) ||
        !reader_.SameDim((*qs)[rank - 2], (*out)[rank - (turned ? 1 : 2)]))
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
      scores->bias = reader_.Masked(*scores->choice, &masked_scores);
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
        reader_.SameDim((*DimsOf(shared_keys))[key_perm[2]],
                        (*DimsOf(shared_values))[value_perm[2]])) {
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
    const auto value_of = [this](const Expr& e) { return reader_.ValueOf(e); };
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
    if (const Call* repeat = reader_.CallOf(from, "relax.repeat")) {
      auto axis = (*repeat)->attrs.Get("axis").as<int64_t>();
      if (!axis.has_value() || (axis.value() + 4) % 4 != all[2]) return Expr();
      *perm = all;
      return (*repeat)->args[0];
    }
    const Call* merged = reader_.CallOf(from, "relax.reshape");
    const Call* spread =
        merged ? reader_.CallOf((*merged)->args[0], "relax.broadcast_to") : nullptr;
    if (spread == nullptr) return Expr();
    auto wide = DimsOf((*merged)->args[0]), narrow = DimsOf((*spread)->args[0]);
    if (!wide || !narrow || wide->size() != 5 || narrow->size() != 5 ||
        !ir::IsIntValue((*narrow)[heads + 1], 1))
      return Expr();
    for (size_t d = 0; d < 5; ++d) {
      if (d != heads + 1 && !reader_.SameDim((*wide)[d], (*narrow)[d])) return Expr();
      const size_t place = d > heads ? d - 1 : d;
      if (d != heads && d != heads + 1 && !reader_.SameDim((*wide)[d], (*to)[place])) return Expr();
    }
    for (const char* op : {"relax.expand_dims", "relax.reshape"}) {
      const Call* added = reader_.CallOf((*spread)->args[0], op);
      auto dims = added != nullptr ? DimsOf((*added)->args[0]) : std::nullopt;
      if (!dims || dims->size() != 4) continue;
      bool same = true;
      for (size_t d = 0; d < 4; ++d)
        same = same && reader_.SameDim((*dims)[d], (*narrow)[d > heads ? d + 1 : d]);
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
    if (const Call* reshape = reader_.CallOf(at, "relax.reshape");
        reshape && reader_.UsedOnce(at)) {
      around = reshape;
      at = (*reshape)->args[0];
    }
    const Call* softmax = reader_.CallOf(at, "relax.nn.softmax");
    if (softmax == nullptr || !reader_.UsedOnce(at)) return std::nullopt;
    auto dims = DimsOf(at);
    const int64_t axis = ops::AttrOf<int64_t>(*softmax, "axis");
    if (!dims || (axis != -1 && axis != static_cast<int64_t>(dims->size()) - 1))
      return std::nullopt;
    Expr logits = (*softmax)->args[0];
    if (around != nullptr) {
      // The rows may be merged for the softmax, when they come back as they were.
      const Call* inner = reader_.CallOf(logits, "relax.reshape");
      if (inner == nullptr || !reader_.UsedOnce(logits)) return std::nullopt;
      Expr before = (*inner)->args[0];
      auto from = DimsOf(before);
      if (!reader_.SameShape(before, e) || !reader_.SameDim(from->back(), dims->back()))
        return std::nullopt;
      logits = before;
    }
    if (!reader_.UsedOnce(logits)) return std::nullopt;
    return logits;
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
  ScoreReader reader_;
  std::unordered_map<const ffi::Object*, Turned> fused_;  // of the call [b, s, h, d]
};

}  // namespace

IRModule FuseAttention(IRModule mod, const PassContext& context) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& f) {
    return Fuser(f, mod, facts.get()).Mutate(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
