// SPDX-License-Identifier: Apache-2.0
// Values in several orders of their axes; see the header.
#include "passes/layout/versions.h"

#include <algorithm>

#include "analysis/calls.h"

namespace relaxvm::passes::layout {

using analysis::DimsOf;
using ir::Call;
using ir::Expr;
using ir::Var;

namespace {

ffi::Array<ffi::Any> Axes(const Perm& perm) {
  ffi::Array<ffi::Any> axes;
  for (int64_t p : perm) axes.push_back(p);
  return axes;
}

}  // namespace

int64_t RankOf(const Expr& e) {
  const auto* tensor = e->ty.defined() ? e->ty.as<ir::TensorTypeObj>() : nullptr;
  return tensor == nullptr ? -1 : tensor->ndim;
}

// ---- what is there

const Versions::Version* Versions::Find(const Expr& e, const Perm& perm) const {
  auto it = entries_.find(e.get());
  if (it == entries_.end()) return nullptr;
  for (const Version& version : it->second.values) {
    if (version.perm == perm) return &version;
  }
  return nullptr;
}

Perm Versions::PermOf(const Expr& e) const {
  auto it = entries_.find(e.get());
  if (it != entries_.end()) {
    for (const Version& version : it->second.values) {
      if (!IsIdentity(version.perm)) return version.perm;
    }
  }
  return Identity(static_cast<size_t>(std::max<int64_t>(RankOf(e), 0)));
}

std::optional<Perm> Versions::Origin::SourceOrder(const Perm& perm) const {
  if (!groups) return Then(axes, perm);
  ReshapeGroups::Orders orders = groups->Leading(perm);
  auto dims = DimsOf(keep_alive);
  if (!dims || !SameInMemory(orders.to, perm, *dims)) return std::nullopt;
  return std::move(orders.from);
}

// The order of the origin's value that costs less than to convert what is there.
std::optional<Perm> Versions::ByOrigin(const Expr& e, const Perm& perm, int steps) const {
  auto origin = origins_.find(e.get());
  if (origin == origins_.end() || steps == 0) return std::nullopt;
  std::optional<Perm> order = origin->second.SourceOrder(perm);
  if (!order) return std::nullopt;
  auto it = entries_.find(e.get());
  const bool all_moved =
      it != entries_.end() && std::all_of(it->second.values.begin(), it->second.values.end(),
                                          [](const Version& version) { return version.moved; });
  if (Cost(origin->second.source, *order, steps - 1) > (all_moved ? 1 : 0)) return std::nullopt;
  return order;
}

int Versions::Cost(const Expr& e, const Perm& perm, int steps) const {
  auto it = entries_.find(e.get());
  if (e.as<ir::ConstantObj>()) return 0;
  if (it == entries_.end() && IsIdentity(perm)) return 0;
  auto dims = DimsOf(e);
  auto same = [&](const Perm& have) {
    return have == perm || (dims && SameInMemory(have, perm, *dims));
  };
  if (it == entries_.end() ? same(Identity(perm.size()))
                           : std::any_of(it->second.values.begin(), it->second.values.end(),
                                         [&](const Version& v) { return same(v.perm); })) {
    return 0;
  }
  auto origin = origins_.find(e.get());
  if (origin == origins_.end() || steps == 0) return 1;
  std::optional<Perm> order = origin->second.SourceOrder(perm);
  return order && Cost(origin->second.source, *order, steps - 1) == 0 ? 0 : 1;
}

Perm Versions::BestFor(const std::vector<Expr>& values) const {
  Perm best;
  int best_cost = -1;
  auto consider = [&](const Perm& perm) {
    int cost = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      auto again = [&](const Expr& e) { return e.same_as(values[i]); };
      if (std::none_of(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(i), again)) {
        cost += Cost(values[i], perm);
      }
    }
    if (best_cost >= 0 && cost > best_cost) return;
    best = perm;
    best_cost = cost;
  };
  if (!values.empty()) consider(Identity(static_cast<size_t>(RankOf(values[0]))));
  for (const Expr& e : values) {
    if (Perm have = PermOf(e); !IsIdentity(have)) consider(have);
  }
  return best;
}

Expr Versions::Permute(const Expr& e, const Perm& perm) {
  if (IsIdentity(perm)) return e;
  return builder_->Emit(ops::MakeCall("permute_dims", {e}, {{"axes", Axes(perm)}}));
}

void Versions::AddVersion(const Expr& e, const Perm& perm, const Expr& value) {
  if (!e.as<ir::VarObj>()) return;
  auto [it, added] = entries_.try_emplace(e.get(), Entry{e, {}});
  if (added) it->second.values.push_back({Identity(perm.size()), e});
  it->second.values.push_back({perm, value});
}

Expr Versions::FromOrigin(const Origin& origin, const Expr& e, const Perm& perm,
                          const Perm& source_order) {
  Expr source = Get(origin.source, source_order);
  if (!origin.groups) return source;
  const Dims dims = Permuted(*DimsOf(e), perm);
  return builder_->Emit(ops::MakeCall("reshape", {source, ir::ShapeExpr(dims)}));
}

Expr Versions::Get(const Expr& e, const Perm& perm) {
  if (const Version* version = Find(e, perm)) return version->value;
  auto it = entries_.find(e.get());
  if (it == entries_.end() && IsIdentity(perm)) return e;
  Expr value;
  if (std::optional<Perm> order = ByOrigin(e, perm, kMaxSteps)) {
    const Origin origin = origins_.at(e.get());
    value = FromOrigin(origin, e, perm, *order);
  } else if (it == entries_.end()) {
    value = Permute(e, perm);
  } else {
    const Version have = it->second.values.front();
    value = Permute(have.value, Then(Inverse(have.perm), perm));
  }
  AddVersion(e, perm, value);
  return value;
}

Expr Versions::Plain(const Expr& e) {
  if (const auto* tuple = e.as<ir::TupleObj>()) {
    ffi::Array<Expr> fields = tuple->fields.Map([this](const Expr& f) { return Plain(f); });
    return fields.same_as(tuple->fields) ? e : Expr(ir::Tuple(std::move(fields), tuple->span));
  }
  if (auto tuple = tuples_.find(e.get()); tuple != tuples_.end()) {
    ffi::Array<Expr> fields;
    for (size_t i = 0; i < tuple->second.perms.size(); ++i) {
      Expr item = builder_->Emit(ir::TupleGetItem(tuple->second.value, static_cast<int64_t>(i)));
      const Perm& perm = tuple->second.perms[i];
      fields.push_back(perm.empty() ? item : Permute(item, Inverse(perm)));
    }
    return ir::Tuple(fields);
  }
  if (entries_.count(e.get()) == 0) return e;
  return Get(e, Identity(static_cast<size_t>(RankOf(e))));
}

// ---- what is new

void Versions::Define(const Var& var, const Call& call, const Perm& perm) {
  changed_ = true;
  call->span = var->span;
  if (IsIdentity(perm)) {
    return builder_->EmitBinding(ir::VarBinding(var, builder_->Normalize(call), var->span));
  }
  DefineAs(var, EmitLike(var, call), perm);
}

Expr Versions::EmitLike(const Var& var, const Expr& value) {
  if (var.as<ir::DataflowVarObj>()) return builder_->Emit(value, var->name);
  Var made = builder_->EmitOutput(value, var->name);
  made_.insert(made.get());
  return made;
}

void Versions::DefineAs(const Var& var, const Expr& value, const Perm& perm, bool moved) {
  changed_ = true;
  if (IsIdentity(perm)) {
    return builder_->EmitBinding(ir::VarBinding(var, value, var->span));
  }
  entries_[var.get()] = {var, {{perm, value, moved}}};
  if (var.as<ir::DataflowVarObj>()) return;
  // Visible outside of its block, or read where nobody converts: the plain one must exist under
  // its own name.
  Expr plain =
      builder_->Normalize(ops::MakeCall("permute_dims", {value}, {{"axes", Axes(Inverse(perm))}}));
  builder_->EmitBinding(ir::VarBinding(var, plain, var->span));
  entries_[var.get()].values.push_back({Identity(perm.size()), var});
}

void Versions::DefineTuple(const Var& var, const Call& call, std::vector<Perm> perms) {
  changed_ = true;
  call->span = var->span;
  Expr value = EmitLike(var, call);
  tuples_[var.get()] = {var, value, std::move(perms)};
  if (var.as<ir::DataflowVarObj>()) return;
  Expr plain = Plain(var);
  builder_->EmitBinding(ir::VarBinding(var, builder_->Normalize(plain), var->span));
}

const Perm* Versions::FieldOf(const ir::TupleGetItemObj* item, Expr* value) const {
  auto it = tuples_.find(item->tuple_value.get());
  if (it == tuples_.end()) return nullptr;
  *value = ir::TupleGetItem(it->second.value, item->index, item->span);
  return &it->second.perms[item->index];
}

void Versions::CameFromPermutation(const Var& var, const Expr& source, Perm axes) {
  origins_.insert_or_assign(var.get(), Origin{var, source, std::move(axes), std::nullopt});
}

void Versions::CameFromReshape(const Var& var, const Expr& source, ReshapeGroups groups) {
  origins_.insert_or_assign(var.get(), Origin{var, source, {}, std::move(groups)});
}

// ---- scopes

void Versions::LeaveBlock(const ir::BindingBlock& done) {
  if (done.as<ir::DataflowBlockObj>() != nullptr) {
    for (const ir::Binding& binding : done->bindings) {
      if (made_.count(binding->var.get()) != 0) home_[binding->var.get()] = done.get();
    }
  }
  // Variables seen outside of the block exist plainly under their own name, too.
  tuples_.clear();
  origins_.clear();
  for (auto& [var, entry] : entries_) {
    std::erase_if(entry.values, [](const Version& version) {
      return version.value.as<ir::DataflowVarObj>() != nullptr;
    });
  }
  std::erase_if(entries_, [](const auto& entry) { return entry.second.values.empty(); });
}

Versions::Scope Versions::EnterBranch() {
  return {entries_, std::exchange(tuples_, {}), std::exchange(origins_, {})};
}

void Versions::LeaveBranch(Scope scope) {
  entries_ = std::move(scope.entries);
  tuples_ = std::move(scope.tuples);
  origins_ = std::move(scope.origins);
}

}  // namespace relaxvm::passes::layout
