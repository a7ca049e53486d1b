// SPDX-License-Identifier: Apache-2.0
// The calls of a block form a graph: an edge from each result to the calls that read it.  A call is
// joined with its immediate post-dominator (the first call that every path from it goes through)
// and everything between them, when the kinds allow it:
//   injective work              into  injective work, or into the reduction that reads it
//   contraction or reduction    into  elementwise work on its result (bias, activation, residual,
//   scale, cast)
//   a permutation, padding      into  the product (also attention) that alone reads it
// What a call samples at places that tensors tell, several for an element, is made before it.
// A region between a call and its post-dominator has one way out, so joining it never makes a
// cycle.
#include "passes/fuse/groups.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "analysis/calls.h"
#include "arith/analyzer.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/fuse/operand_order.h"

namespace relaxvm::passes {
namespace {

namespace ffi = tvm::ffi;
using analysis::FusionKind;
using ir::Expr;

constexpr int kOutside =
    -1;  // a result that leaves the block, or is used by something that is no fusible call

struct Node {
  FusionKind kind = FusionKind::kOpaque;
  ffi::Array<Expr> shape;      // of the result
  std::vector<int> consumers;  // positions, ascending, each once
  bool escapes = false;
  int post_dominator = kOutside;
  int depth = 0;  // in the tree of post-dominators
};

class Finder {
 public:
  Finder(const ir::DataflowBlock& block, const ir::IRModule& mod, const FusionLimits& limits)
      : block_(block), mod_(mod), limits_(limits), nodes_(block->bindings.size()) {}

  std::vector<FusionGroup> Run() {
    ReadGraph();
    FindPostDominators();
    parent_.resize(nodes_.size());
    anchor_.resize(nodes_.size(), kOutside);
    size_.resize(nodes_.size(), 1);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      parent_[i] = static_cast<int>(i);
      if (IsAnchor(nodes_[i].kind)) anchor_[i] = static_cast<int>(i);
    }
    // Contractions first: their epilogue is worth more than what else could be done with it.
    for (FusionKind kind : {FusionKind::kContraction, FusionKind::kReduction}) {
      if (kind == FusionKind::kReduction && !limits_.extend_reductions) continue;
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i].kind == kind) ExtendEpilogue(static_cast<int>(i));
      }
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].kind <= FusionKind::kInjective) JoinInjective(static_cast<int>(i));
    }
    JoinOutputs();
    return Collect();
  }

 private:
  static bool IsAnchor(FusionKind kind) {
    return kind == FusionKind::kReduction || kind == FusionKind::kContraction;
  }

  // ---- the graph

  void ReadGraph() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const ir::Binding& binding = block_->bindings[i];
      ReadUses(binding, static_cast<int>(i));
      position_[binding->var.get()] = static_cast<int>(i);
      if (!binding->var.as<ir::DataflowVarObj>()) nodes_[i].escapes = true;
      if (binding.as<ir::VarBindingObj>()) ReadKind(binding, &nodes_[i]);
    }
  }

  void ReadUses(const ir::Binding& binding, int user) {
    class Uses : public ir::Visitor {
     public:
      std::vector<const ir::VarObj*> vars;
      void VisitVar(const ir::VarObj* v) override { vars.push_back(v); }
      void VisitOther(const ir::ExprObj*) override {}
    } uses;
    uses.Visit(binding->value);
    for (const ir::VarObj* var : uses.vars) {
      auto it = position_.find(var);
      if (it == position_.end()) continue;
      std::vector<int>& consumers = nodes_[it->second].consumers;
      if (consumers.empty() || consumers.back() != user) consumers.push_back(user);
    }
  }

  void ReadKind(const ir::Binding& binding, Node* node) {
    std::optional<analysis::TirCall> call = analysis::AsCallTir(binding->value);
    if (!call) return;
    auto type = binding->var->ty.as<ir::TensorTypeObj>();
    if (type == nullptr || !type->GetShape()) return;
    auto program = mod_->Lookup(call->func).as<tir::PrimFunc>();
    if (!program || !FitsProgram(*call, *program, *type)) return;
    node->shape = type->GetShape().value();
    auto kind = ir::GetAttr<int64_t>((*program)->attrs, ir::attr::kOpPattern,
                                     static_cast<int64_t>(FusionKind::kOpaque));
    node->kind = kind >= 0 && kind <= 4 ? static_cast<FusionKind>(kind) : FusionKind::kOpaque;
  }

  // Are the sizes that the program states those of the arguments?  Fusing drops the check at its
  // border.
  bool FitsProgram(const analysis::TirCall& call, const tir::PrimFunc& program,
                   const ir::TensorTypeObj& result) {
    analysis::ProgramParams params = analysis::ParamsOf(program);
    if (params.outputs.size() != 1 || params.inputs.size() != call.args.size() ||
        params.scalars.size() != call.tir_vars.size()) {
      return false;
    }
    ffi::Map<ir::Var, Expr> sizes;
    for (size_t i = 0; i < params.scalars.size(); ++i)
      sizes.Set(params.scalars[i], call.tir_vars[i]);
    auto fits = [&](const tir::Buffer& buffer, const ir::TensorTypeObj* type) {
      if (type == nullptr || !type->GetShape() || type->dtype != buffer.elem_dtype()) return false;
      ffi::Array<Expr> dims = type->GetShape().value();
      if (dims.size() != buffer.shape().size()) return false;
      for (size_t i = 0; i < dims.size(); ++i) {
        auto var = buffer.shape()[i].as<ir::Var>();
        if (var && !sizes.count(*var)) sizes.Set(*var, dims[i]);
        if (!analyzer_.ProveEqual(ir::Substitute(buffer.shape()[i], sizes), dims[i])) return false;
      }
      return true;
    };
    for (size_t i = 0; i < params.inputs.size(); ++i) {
      if (!fits(params.inputs[i], call.args[i]->ty.as<ir::TensorTypeObj>())) return false;
    }
    return fits(params.outputs[0], &result);
  }

  // The nearest common ancestor of the consumers; consumers come later, so one walk backwards finds
  // all.
  void FindPostDominators() {
    for (size_t n = nodes_.size(); n-- > 0;) {
      Node& node = nodes_[n];
      int meet = node.escapes || node.consumers.empty() ? kOutside : node.consumers[0];
      for (size_t i = 1; i < node.consumers.size() && meet != kOutside; ++i) {
        meet = CommonAncestor(meet, node.consumers[i]);
      }
      node.post_dominator = meet;
      node.depth = meet == kOutside ? 1 : nodes_[meet].depth + 1;
    }
  }

  int CommonAncestor(int a, int b) {
    while (a != b && a != kOutside && b != kOutside) {
      // Positions grow towards the root: step from the one that is farther away.
      if (a < b) {
        a = nodes_[a].post_dominator;
      } else {
        b = nodes_[b].post_dominator;
      }
    }
    return a == b ? a : kOutside;
  }

  // ---- groups

  int Root(int n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }

  void Join(const std::vector<int>& members) {
    int root = Root(members[0]);
    for (int m : members) {
      int other = Root(m);
      if (other == root) continue;
      parent_[other] = root;
      size_[root] += size_[other];
      if (anchor_[root] == kOutside) anchor_[root] = anchor_[other];
    }
  }

  // The calls on paths from `from` (left out) to `to` (included), when all of them satisfy
  // `allowed` and the result would not be too large; empty otherwise.
  template <typename Allowed>
  std::vector<int> Region(int from, int to, const Allowed& allowed) {
    std::vector<int> region, todo = nodes_[from].consumers;
    std::unordered_map<int, bool> seen;
    int64_t total = size_[Root(from)];
    while (!todo.empty()) {
      int n = todo.back();
      todo.pop_back();
      if (!seen.emplace(n, true).second) continue;
      if (!allowed(n)) return {};
      int root = Root(n);
      if (root != Root(from) && seen.emplace(~root, true).second) total += size_[root];
      if (total > limits_.max_calls || static_cast<int64_t>(region.size()) > limits_.max_calls)
        return {};
      region.push_back(n);
      if (n == to) continue;
      for (int c : nodes_[n].consumers) todo.push_back(c);
    }
    return region;
  }

  bool SameShape(const Node& a, const Node& b) {
    if (a.shape.size() != b.shape.size()) return false;
    for (size_t i = 0; i < a.shape.size(); ++i) {
      if (!analyzer_.ProveEqual(a.shape[i], b.shape[i])) return false;
    }
    return true;
  }

  // Elementwise calls after a contraction or reduction work on its result while it is at hand.
  void ExtendEpilogue(int anchor) {
    auto allowed = [&](int n) {
      return nodes_[n].kind <= FusionKind::kBroadcast && SameShape(nodes_[n], nodes_[anchor]) &&
             (anchor_[Root(n)] == kOutside || anchor_[Root(n)] == anchor);
    };
    for (int from = anchor; nodes_[from].post_dominator != kOutside;) {
      int to = nodes_[from].post_dominator;
      std::vector<int> region = Region(from, to, allowed);
      if (region.empty()) return;
      region.push_back(anchor);
      Join(region);
      from = to;
    }
  }

  void JoinInjective(int n) {
    int to = nodes_[n].post_dominator;
    // The epilogue of an anchor ends where ExtendEpilogue ended it.
    if (to == kOutside || anchor_[Root(n)] != kOutside || IsSampled(n)) return;
    int anchor = anchor_[Root(to)];
    if (anchor == to) {
      // Elements of a contraction's operands are read many times: what computes them runs before
      // it.
      if (nodes_[to].kind != FusionKind::kReduction) {
        if (size_[Root(n)] == 1 && size_[Root(to)] < limits_.max_calls && IsReadInPlace(n, to))
          Join({to, n});
        return;
      }
    } else if (anchor != kOutside) {
      // Into an epilogue only what runs once for each of its elements.
      if (nodes_[n].kind > FusionKind::kBroadcast || !SameShape(nodes_[n], nodes_[to])) return;
    }
    const bool into_epilogue = anchor != kOutside && anchor != to;
    auto allowed = [&](int m) {
      if (m == to) return nodes_[to].kind <= FusionKind::kReduction;
      if (anchor_[Root(m)] != kOutside && anchor_[Root(m)] != anchor) return false;
      if (into_epilogue)
        return nodes_[m].kind <= FusionKind::kBroadcast && SameShape(nodes_[m], nodes_[to]);
      return nodes_[m].kind <= FusionKind::kInjective;
    };
    std::vector<int> region = Region(n, to, allowed);
    if (region.empty()) return;
    region.push_back(n);
    Join(region);
  }

  tir::PrimFunc Program(const analysis::TirCall& call) {
    return mod_->Lookup(call.func).as<tir::PrimFunc>().value();
  }

  bool IsSampled(int n) {
    const ir::Var made = block_->bindings[n]->var;
    return std::any_of(nodes_[n].consumers.begin(), nodes_[n].consumers.end(), [&](int user) {
      if (nodes_[user].kind != FusionKind::kInjective) return false;
      std::optional<analysis::TirCall> call = analysis::AsCallTir(block_->bindings[user]->value);
      for (size_t i = 0; i < call->args.size(); ++i) {
        if (call->args[i].same_as(made) && ReadsAtSites(Program(*call), i)) return true;
      }
      return false;
    });
  }

  // Can the product `to`, the only reader of `n`, read what `n` only permutes or pads?
  bool IsReadInPlace(int n, int to) {
    if (nodes_[n].kind != FusionKind::kInjective || nodes_[to].kind != FusionKind::kContraction ||
        nodes_[n].consumers != std::vector<int>{to})
      return false;
    const ir::Binding& made = block_->bindings[n];
    std::optional<analysis::TirCall> made_by = analysis::AsCallTir(made->value);
    std::optional<analysis::TirCall> product = analysis::AsCallTir(block_->bindings[to]->value);
    std::optional<size_t> arg;
    for (size_t i = 0; i < product->args.size(); ++i) {
      if (!product->args[i].same_as(made->var)) continue;
      if (arg.has_value()) return false;
      arg = i;
    }
    if (!arg.has_value()) return false;
    return ReadsWellPermuted(Program(*made_by), Program(*product), *arg) ||
           ReadsWellPadded(Program(*made_by), Program(*product), *arg);
  }

  // ---- groups with several outputs

  // Is there anything in rows of this shape that a vector loop can gain from?  Rows of one tile of
  // memory at least; shorter ones run faster as one long loop each.
  static bool HasLongRows(const Node& node) {
    constexpr int64_t kElems = 64;
    auto last = node.shape.empty() ? std::nullopt : ir::AsInt(node.shape.back());
    return last.has_value() && *last >= kElems;
  }

  // Elementwise calls of one shape whose results are used by each other and outside: computed in
  // one pass, a result is still at hand when the next one reads it.
  void JoinOutputs() {
    if (limits_.max_outputs < 2) return;
    std::unordered_map<int, std::vector<int>> members;
    for (size_t i = 0; i < nodes_.size(); ++i)
      members[Root(static_cast<int>(i))].push_back(static_cast<int>(i));
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].kind > FusionKind::kBroadcast || !HasLongRows(nodes_[i])) continue;
      for (int user : nodes_[i].consumers) {
        int a = Root(static_cast<int>(i)), b = Root(user);
        if (a == b || anchor_[a] != kOutside || anchor_[b] != kOutside) continue;
        std::vector<int> merged;
        std::merge(members[a].begin(), members[a].end(), members[b].begin(), members[b].end(),
                   std::back_inserter(merged));
        if (!IsOnePass(merged, nodes_[i])) continue;
        Join(merged);
        members[Root(a)] = std::move(merged);
      }
    }
  }

  bool IsOnePass(const std::vector<int>& calls, const Node& like) {
    if (static_cast<int64_t>(calls.size()) > limits_.max_calls) return false;
    for (int n : calls) {
      if (nodes_[n].kind > FusionKind::kBroadcast || !SameShape(nodes_[n], like)) return false;
    }
    // The calls run where the last of them stood: whoever reads a result comes after that.
    int64_t outputs = 0;
    for (int n : calls) {
      bool outside = nodes_[n].escapes || nodes_[n].consumers.empty();
      for (int user : nodes_[n].consumers) {
        if (std::binary_search(calls.begin(), calls.end(), user)) continue;
        if (user < calls.back()) return false;
        outside = true;
      }
      outputs += outside;
    }
    return outputs <= limits_.max_outputs;
  }

  // What only gives memory another shape costs nothing alone, and a program is simpler without it:
  // reshapes that read what no call of the group makes, and one that gives its last result.
  void LeaveReshapesAtTheEnds(std::vector<int>* calls) {
    for (size_t i = 0; calls->size() > 1 && i < calls->size();) {
      const Expr source = ReshapedBy((*calls)[i]);
      auto made = source.defined() ? position_.find(source.get()) : position_.end();
      const bool first = made == position_.end() ||
                         !std::binary_search(calls->begin(), calls->end(), made->second);
      if (source.defined() && (first || i + 1 == calls->size())) {
        calls->erase(calls->begin() + static_cast<std::ptrdiff_t>(i));
        i = 0;
      } else {
        ++i;
      }
    }
  }

  // What the call only gives another shape; null for other calls.
  Expr ReshapedBy(int n) {
    std::optional<analysis::TirCall> call = analysis::AsCallTir(block_->bindings[n]->value);
    if (!call || call->args.size() != 1) return Expr();
    auto [it, added] = is_reshape_.try_emplace(call->func.get(), false);
    if (added) {
      auto program = mod_->Lookup(call->func).as<tir::PrimFunc>();
      it->second = program.has_value() && analysis::HasReshapePattern(program.value());
    }
    return it->second ? call->args[0] : Expr();
  }

  std::vector<FusionGroup> Collect() {
    std::unordered_map<int, size_t> index;
    std::vector<FusionGroup> all;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      auto [it, added] = index.try_emplace(Root(static_cast<int>(i)), all.size());
      if (added) all.emplace_back();
      all[it->second].calls.push_back(static_cast<int>(i));
    }
    std::vector<FusionGroup> groups;
    for (FusionGroup& group : all) {
      if (limits_.keep_reshapes) LeaveReshapesAtTheEnds(&group.calls);
      if (group.calls.size() < 2) continue;
      for (int n : group.calls) {
        bool outside = nodes_[n].escapes || n == group.calls.back();
        for (int user : nodes_[n].consumers)
          outside |= !std::binary_search(group.calls.begin(), group.calls.end(), user);
        if (outside) group.outputs.push_back(n);
      }
      groups.push_back(std::move(group));
    }
    return groups;
  }

  const ir::DataflowBlock& block_;
  const ir::IRModule& mod_;
  const FusionLimits& limits_;
  arith::Analyzer analyzer_;
  std::vector<Node> nodes_;
  std::unordered_map<const ffi::Object*, int> position_;
  std::vector<int> parent_;    // union-find
  std::vector<int> anchor_;    // of a root: the contraction or reduction of its group
  std::vector<int64_t> size_;  // of a root
  std::unordered_map<const ffi::Object*, bool> is_reshape_;  // by the program's variable
};

}  // namespace

std::vector<FusionGroup> FindFusionGroups(const ir::DataflowBlock& block, const ir::IRModule& mod,
                                          const FusionLimits& limits) {
  return Finder(block, mod, limits).Run();
}

}  // namespace relaxvm::passes
