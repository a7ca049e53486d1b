// SPDX-License-Identifier: Apache-2.0
// ReadAttention: which stages of a program are attention.
#include "schedule/cpu/attention/parts.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::BinaryObj;
using ir::BinaryOp;
using ir::Intrin;
using tir::BufferLoadObj;

// The two factors of a sum of products.
const BinaryObj* ProductOf(const Stage& s) {
  if (s.combine != Combine::kSum) return nullptr;
  const auto* product = StripCasts(s.value).as<BinaryObj>();
  return product != nullptr && product->op == BinaryOp::kMul ? product : nullptr;
}

bool Reads(const Stage& s, const Stage& writer) {
  for (const Var& read : ReadsOf(s)) {
    if (read.same_as(*writer.out)) return true;
  }
  return false;
}
class AttentionReader {
 public:
  AttentionReader(const Program& program, size_t at) : program_(program), at_(at) {}

  // Reads the stages from `at` on; false when they are something else.
  bool Read() {
    if (at_ + kAttentionStages > program_.stages.size()) return false;
    for (size_t i = at_; i < at_ + kAttentionStages; ++i) {
      const Stage& s = program_.stages[i];
      if (s.IsOpaque() || s.indices.size() != s.spatial.size() || s.finish.defined()) return false;
      for (size_t d = 0; d < s.indices.size(); ++d) {
        if (!s.indices[d].same_as(s.spatial[d].var)) return false;
      }
      if (i + 1 < at_ + kAttentionStages && !OnlyInside(s)) return false;
    }
    if (!(ReadSoftmax() && ReadScores() && ReadWeighted())) return false;
    FindSharedHeads();
    return true;
  }
  AttentionParts Parts() const { return parts_; }

 private:
  const Stage& At(size_t i) const { return program_.stages[at_ + i]; }

  bool OnlyInside(const Stage& writer) const {
    bool temp = false;
    for (const Buffer& b : program_.temps) temp |= b.same_as(*writer.out);
    for (size_t i = 0; i < program_.stages.size(); ++i) {
      if ((i < at_ || i >= at_ + kAttentionStages) && Reads(program_.stages[i], writer))
        return false;
    }
    return temp;
  }

  // scores, masked, max, exp, sum and weighted in any order, result.
  bool ReadSoftmax() {
    parts_.scores = &At(0), parts_.masked = &At(1), parts_.exp = &At(3), parts_.result = &At(6);
    const bool sum_first = ProductOf(At(5)) != nullptr;
    parts_.sum = &At(sum_first ? 4 : 5), parts_.weighted = &At(sum_first ? 5 : 4);
    const Stage &max = At(2), &exp = *parts_.exp, &sum = *parts_.sum;
    if (parts_.masked->combine != Combine::kNone || !Reads(*parts_.masked, *parts_.scores))
      return false;
    if (max.combine != Combine::kMax || max.reduce.size() != 1) return false;
    const auto* maximum_of = LoadInCasts(max.value);
    if (maximum_of == nullptr || !maximum_of->buffer.same_as(*parts_.masked->out)) return false;
    const auto* e = exp.value.as<ir::IntrinObj>();
    if (exp.combine != Combine::kNone || e == nullptr || e->intrin != Intrin::kExp) return false;
    const auto* moved = e->args[0].as<BinaryObj>();
    if (moved == nullptr || moved->op != BinaryOp::kSub) return false;
    const auto *score = LoadInCasts(moved->a), *greatest = LoadInCasts(moved->b);
    if (score == nullptr || greatest == nullptr || !score->buffer.same_as(*parts_.masked->out) ||
        !greatest->buffer.same_as(*max.out))
      return false;
    if (sum.combine != Combine::kSum || sum.reduce.size() != 1) return false;
    const auto* summed = LoadInCasts(sum.value);
    if (summed == nullptr || !summed->buffer.same_as(*exp.out)) return false;
    // All of them at the same place, the keys last.
    const size_t rank = parts_.masked->spatial.size();
    parts_.key = rank - 1;
    if (exp.spatial.size() != rank || max.spatial.size() + 1 != rank ||
        sum.spatial.size() + 1 != rank)
      return false;
    auto walks = [](const BufferLoadObj* load, const Stage& s) {
      std::vector<Axis> all = s.spatial;
      all.insert(all.end(), s.reduce.begin(), s.reduce.end());
      for (size_t d = 0; d < load->indices.size(); ++d) {
        if (d >= all.size() || !load->indices[d].same_as(all[d].var)) return false;
      }
      return true;
    };
    if (!walks(maximum_of, max) || !walks(summed, sum) || !walks(score, exp) ||
        !walks(greatest, exp))
      return false;
    bool same_place = true;
    tir::PostOrderVisit(tir::Evaluate(parts_.masked->value), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<BufferLoadObj>();
      if (load != nullptr && load->buffer.same_as(*parts_.scores->out))
        same_place = same_place && walks(load, *parts_.masked);
    });
    return same_place && parts_.masked->value.dtype() == Float(32);
  }

  // scores[..., s, ..., t] = sum over d of q[..., s, d] * k[..., t, d]
  bool ReadScores() {
    const auto* product = ProductOf(*parts_.scores);
    if (product == nullptr || parts_.scores->reduce.size() != 1 ||
        parts_.scores->spatial.size() != parts_.masked->spatial.size())
      return false;
    const Var &t = parts_.scores->spatial[parts_.key].var, &d = parts_.scores->reduce[0].var;
    for (const auto& [q, k] : {std::pair(product->a, product->b), {product->b, product->a}}) {
      if (LoadInCasts(q) == nullptr || LoadInCasts(k) == nullptr) return false;
      if (UsesVar(q, t) || !UsesVar(k, t) || !UsesVar(q, d) || !UsesVar(k, d)) continue;
      parts_.q = q, parts_.k = k;
      size_t found = 0;
      for (size_t i = 0; i < parts_.scores->spatial.size(); ++i) {
        if (!UsesVar(q, parts_.scores->spatial[i].var) || UsesVar(k, parts_.scores->spatial[i].var))
          continue;
        parts_.query = i;
        ++found;
      }
      return found == 1;
    }
    return false;
  }

  // weighted[..., s, ..., e] = sum over t of p[..., s, t] * v[..., t, e]
  bool ReadWeighted() {
    const auto* product = ProductOf(*parts_.weighted);
    if (product == nullptr || parts_.weighted->reduce.size() != 1) return false;
    Expr p = product->a;
    parts_.v = product->b;
    const auto* load = LoadInCasts(p);
    if (load == nullptr || !load->buffer.same_as(*parts_.exp->out)) {
      std::swap(p, parts_.v);
      load = LoadInCasts(p);
    }
    if (load == nullptr || !load->buffer.same_as(*parts_.exp->out) ||
        LoadInCasts(parts_.v) == nullptr)
      return false;
    if (!load->indices[parts_.key].same_as(parts_.weighted->reduce[0].var)) return false;
    // Names of the axes of the scores in terms of those of the result.
    const size_t rank = parts_.scores->spatial.size();
    if (parts_.weighted->spatial.size() != rank || parts_.result->spatial.size() != rank)
      return false;
    const Axis* width = nullptr;
    for (const Axis& axis : parts_.weighted->spatial) {
      bool in_scores = false;
      for (size_t i = 0; i < rank; ++i) {
        if (i == parts_.key || !load->indices[i].same_as(axis.var)) continue;
        parts_.weighted_axes.Set(axis.var, parts_.scores->spatial[i].var);
        in_scores = true;
      }
      if (in_scores) continue;
      if (width != nullptr) return false;
      width = &axis;
    }
    if (width == nullptr || parts_.weighted_axes.size() + 1 != rank) return false;
    parts_.wide_axis = width->var;
    for (size_t i = 0; i < rank; ++i) {
      if (i != parts_.key && i != parts_.query) continue;
      if (i == parts_.query && UsesVar(parts_.v, parts_.AxisOf(*parts_.weighted, i))) return false;
    }
    if (parts_.result->combine != Combine::kNone || !Reads(*parts_.result, *parts_.weighted))
      return false;
    // The result reads both at its own place.
    bool same_place = true;
    tir::PostOrderVisit(tir::Evaluate(parts_.result->value), [&](const ffi::ObjectRef& node) {
      const auto* l = node.as<BufferLoadObj>();
      if (l == nullptr) return;
      if (l->buffer.same_as(*parts_.weighted->out)) {
        for (size_t i = 0; i < rank; ++i)
          same_place = same_place && l->indices[i].same_as(parts_.result->spatial[i].var);
      } else if (l->buffer.same_as(*parts_.sum->out)) {
        for (size_t i = 0, at = 0; i < rank; ++i) {
          if (i == parts_.key) continue;
          same_place = same_place && l->indices[at++].same_as(parts_.ResultAxis(i));
        }
      }
    });
    return same_place;
  }
  // Heads that read the same keys and values: the axis that both use as  head // shared.
  void FindSharedHeads() {
    parts_.head = parts_.scores->spatial.size();
    for (size_t i = 0; i < parts_.scores->spatial.size(); ++i) {
      if (i == parts_.query || i == parts_.key) continue;
      const Var& head = parts_.scores->spatial[i].var;
      std::optional<int64_t> shared;
      tir::PostOrderVisit(tir::Evaluate(parts_.k), [&](const ffi::ObjectRef& node) {
        const auto* quotient = node.as<BinaryObj>();
        if (quotient == nullptr || quotient->op != BinaryOp::kFloorDiv) return;
        auto by = ir::AsInt(quotient->b);
        if (quotient->a.same_as(head) && by && !shared) shared = *by;
      });
      const auto heads = ir::AsInt(parts_.scores->spatial[i].extent);
      if (!shared || !heads || *shared < 2 || *heads % *shared != 0) continue;
      if (!DependsOnGroup(parts_.k, head, *shared) ||
          !DependsOnGroup(parts_.v, parts_.AxisOf(*parts_.weighted, i), *shared))
        continue;
      parts_.head = i;
      parts_.shared = *shared;
      return;
    }
  }

  // Is every use of `head` in `e`  head // shared?
  static bool DependsOnGroup(const Expr& e, const Var& head, int64_t shared) {
    class Others : public tir::StmtMutator {
     public:
      Others(const Var& head, int64_t shared) : head_(head), shared_(shared) {}
      Expr MutateBinary(const ir::Binary& e) override {
        if (e->op == BinaryOp::kFloorDiv && e->a.same_as(head_) && ir::IsIntValue(e->b, shared_))
          return Expr(0);
        return tir::StmtMutator::MutateBinary(e);
      }

     private:
      const Var& head_;
      int64_t shared_;
    };
    return !UsesVar(Others(head, shared).Mutate(e), head);
  }

  const Program& program_;
  size_t at_;
  AttentionParts parts_;
};

}  // namespace

Var AttentionParts::AxisOf(const Stage& s, size_t i) const {
  for (size_t d = 0; d < weighted->spatial.size(); ++d) {
    auto it = weighted_axes.find(weighted->spatial[d].var);
    if (it != weighted_axes.end() && (*it).second.same_as(scores->spatial[i].var))
      return s.spatial[d].var;
  }
  RELAXVM_UNREACHABLE();
}

size_t AttentionParts::WidePlace() const {
  for (size_t d = 0; d < weighted->spatial.size(); ++d) {
    if (weighted->spatial[d].var.same_as(wide_axis)) return d;
  }
  RELAXVM_UNREACHABLE();
}

std::optional<AttentionParts> ReadAttention(const Program& program, size_t at) {
  AttentionReader reader(program, at);
  if (!reader.Read()) return std::nullopt;
  return reader.Parts();
}

}  // namespace relaxvm::schedule::cpu
