// SPDX-License-Identifier: Apache-2.0
// Blocks are looked at from the last to the first.  A buffer's layout is a map of its dimensions;
// where each dimension is indexed by one spatial axis of a block, it is a map of these axes, and of
// every other buffer that is indexed by some of them in the same order.
#include "analysis/layout_suggestions.h"

#include <algorithm>
#include <map>
#include <optional>

#include "analysis/blocks.h"
#include "arith/analyzer.h"
#include "ir/visitor.h"
#include "tir/functor.h"

namespace relaxvm::analysis {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;
using tir::IndexMap;

// The spatial axis that each dimension follows; null: none.
using Axes = std::vector<const ffi::Object*>;

bool Uses(const Expr& e, const ffi::Object* var) {
  const auto vars = ir::FreeVars(e);
  return std::any_of(vars.begin(), vars.end(), [&](const Var& v) { return v.get() == var; });
}

// Does `e` grow with `var` in equal steps?
bool IsLinear(const Expr& e, const ffi::Object* var) {
  if (e.get() == var) return true;
  const auto* binary = e.as<ir::BinaryObj>();
  if (binary == nullptr) return false;
  const bool left = Uses(binary->a, var), right = Uses(binary->b, var);
  if (left == right) return false;
  switch (binary->op) {
    case ir::BinaryOp::kAdd:
    case ir::BinaryOp::kMul: return IsLinear(left ? binary->a : binary->b, var);
    case ir::BinaryOp::kSub: return left && IsLinear(binary->a, var);
    default: return false;
  }
}

Axes AxesOf(const tir::SBlock& block) {
  Axes axes;
  for (const tir::IterVar& iter : block->iter_vars)
    axes.push_back(iter->kind == tir::IterKind::kSpatial ? iter->var.get() : nullptr);
  return axes;
}

// Absent when an index mixes axes, an axis indexes two dimensions, or steps are not equal.
std::optional<Axes> AxesOf(const ffi::Array<Expr>& indices, const Axes& of_block) {
  Axes axes;
  for (const Expr& index : indices) {
    const ffi::Object* found = nullptr;
    for (const ffi::Object* axis : of_block) {
      if (axis == nullptr || !Uses(index, axis)) continue;
      if (found != nullptr || !IsLinear(index, axis)) return std::nullopt;
      found = axis;
    }
    if (found != nullptr && std::find(axes.begin(), axes.end(), found) != axes.end())
      return std::nullopt;
    axes.push_back(found);
  }
  return axes;
}

// `map`, whose initial indices follow the axes `from`, for something that follows the axes `to`:
// what it does not have of `from` drops out, what it has besides stays where it is.
std::optional<IndexMap> Follow(const IndexMap& map, const Axes& from, const Axes& to) {
  ffi::Array<Var> initial;
  ffi::Map<Var, Expr> renamed;
  std::vector<size_t> others;  // places of what `map` says nothing of
  size_t next = 0;
  for (size_t d = 0; d < to.size(); ++d) {
    auto found = to[d] == nullptr ? from.end() : std::find(from.begin(), from.end(), to[d]);
    if (found == from.end()) {
      initial.push_back(Var("d", Int(64)));
      others.push_back(d);
      continue;
    }
    const auto place = static_cast<size_t>(found - from.begin());
    if (place < next) return std::nullopt;  // another order
    next = place + 1;
    const Var& old = map->initial_indices[place];
    initial.push_back(Var(old->name, old->ty));
    renamed.Set(old, initial.back());
  }
  if (renamed.empty()) return std::nullopt;
  ffi::Array<Expr> kept;
  for (const Expr& e : map->final_indices) {
    const auto vars = ir::FreeVars(e);
    const auto known = std::count_if(vars.begin(), vars.end(),
                                     [&](const Var& v) { return renamed.count(v) != 0; });
    if (known == static_cast<int64_t>(vars.size())) {
      kept.push_back(tir::Substitute(e, renamed));
    } else if (known != 0) {
      return std::nullopt;
    }
  }
  ffi::Array<Expr> final_indices;
  auto other = others.begin();
  auto e = kept.begin();
  while (e != kept.end() || other != others.end()) {
    if (other != others.end() && (*other == final_indices.size() || e == kept.end())) {
      final_indices.push_back(initial[*other++]);
    } else {
      final_indices.push_back(*e++);
    }
  }
  return IndexMap(initial, final_indices);
}

class Suggester {
 public:
  Suggester(const tir::PrimFunc& program, const ffi::Array<IndexMap>& results) {
    std::vector<Var> buffers;
    for (const Var& param : program->params) {
      if (tir::IsBuffer(param)) buffers.push_back(param);
    }
    if (results.size() > buffers.size()) {
      Fail(ErrorKind::kValueError, program->span.Place(),
           "suggest_layout_transforms: ", results.size(), " layouts are given for a program with ",
           buffers.size(), " buffers");
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const Var& buffer = buffers[buffers.size() - results.size() + i];
      const size_t rank = tir::Buffer(buffer).shape().size();
      if (rank != results[i]->initial_indices.size()) {
        Fail(ErrorKind::kValueError, program->span.Place(),
             "suggest_layout_transforms: the layout of ", buffer->name, " takes ",
             results[i]->initial_indices.size(), " indices, and it has ", rank, " dimensions");
      }
      known_.emplace(buffer.get(), results[i]);
    }
  }

  std::vector<LayoutSuggestion> Run(const tir::PrimFunc& program) {
    std::vector<LayoutSuggestion> found;
    const auto leaves = LeafBlocks(program->body);
    if (!leaves) return found;
    for (auto leaf = leaves->rbegin(); leaf != leaves->rend(); ++leaf) {
      if (auto suggestion = Look(leaf->realize->block)) found.push_back(*suggestion);
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

 private:
  std::optional<LayoutSuggestion> Look(const tir::SBlock& block) {
    const auto body = StoresOf(block);
    if (!body || body->stores.empty()) return std::nullopt;
    const Axes axes = AxesOf(block);
    const Var written = body->stores[0]->buffer;
    auto layout = known_.find(written.get());
    if (layout == known_.end()) return std::nullopt;
    std::optional<Axes> at;
    for (const tir::BufferStore& store : body->stores) {
      auto here = AxesOf(store->indices, axes);
      if (!store->buffer.same_as(written) || !here || (at && *at != *here)) return std::nullopt;
      at = here;
    }
    const auto map = Follow(layout->second, *at, axes);
    if (!map) return std::nullopt;
    LayoutSuggestion suggestion{block, *map, {{written, layout->second}}};
    AddReads(*body, axes, &suggestion);
    return suggestion;
  }

  void AddReads(const BlockStores& body, const Axes& axes, LayoutSuggestion* suggestion) {
    std::vector<tir::BufferLoad> loads;
    for (const tir::Bind& bind : body.binds) {
      for (const tir::BufferLoad& load : LoadsIn(bind->value)) loads.push_back(load);
    }
    for (const tir::BufferStore& store : body.stores) {
      for (const tir::BufferLoad& load : LoadsIn(store->value)) loads.push_back(load);
    }
    std::vector<std::pair<Var, std::optional<IndexMap>>> reads;  // absent: loads disagree
    for (const tir::BufferLoad& load : loads) {
      if (load->buffer.same_as(suggestion->buffers[0].first)) continue;
      std::optional<IndexMap> map;
      if (auto at = AxesOf(load->indices, axes)) map = Follow(suggestion->map, axes, *at);
      auto same = std::find_if(reads.begin(), reads.end(),
                               [&](const auto& read) { return read.first.same_as(load->buffer); });
      if (same == reads.end()) {
        reads.emplace_back(load->buffer, map);
      } else if (!map || !same->second || !IsSame(*map, *same->second)) {
        same->second = std::nullopt;
      }
    }
    for (const auto& [buffer, map] : reads) {
      if (!map) continue;
      auto [other, fresh] = known_.emplace(buffer.get(), *map);
      if (fresh || IsSame(other->second, *map)) suggestion->buffers.emplace_back(buffer, *map);
    }
  }

  bool IsSame(const IndexMap& a, const IndexMap& b) { return tir::SameMap(a, b, &analyzer_); }

  std::map<const ffi::Object*, IndexMap> known_;  // of buffers
  arith::Analyzer analyzer_;
};

}  // namespace

std::vector<LayoutSuggestion> SuggestLayouts(const tir::PrimFunc& program,
                                             const ffi::Array<IndexMap>& results) {
  return Suggester(program, results).Run(program);
}

}  // namespace relaxvm::analysis
