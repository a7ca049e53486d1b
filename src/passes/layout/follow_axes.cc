// SPDX-License-Identifier: Apache-2.0
// Calls that follow the order of their arguments' axes: elementwise ones, those that name axes, and
// those that have a number for each axis.
#include <algorithm>

#include "passes/layout/follow.h"

namespace relaxvm::passes::layout {

using ir::Expr;
using Kind = ops::LayoutRule::Kind;

Attributes Site::Attrs() const {
  return call->attrs.defined() ? call->attrs->values : Attributes();
}

std::string Site::StringAttr(const char* field) const {
  auto text = call->attrs.Get(field).as<ffi::String>();
  return text.has_value() ? std::string(text.value()) : std::string();
}

ffi::Array<Expr> Site::WithFirst(Expr first) const {
  ffi::Array<Expr> result = {std::move(first)};
  for (size_t i = 1; i < call->args.size(); ++i) result.push_back(versions.Plain(call->args[i]));
  return result;
}

Perm Site::Moved() const {
  Perm perm = versions.PermOf(call->args[0]);
  return IsIdentity(perm) ? Perm() : perm;
}

bool Site::Define(const ffi::Array<Expr>& args, const Attributes& attrs, const Perm& perm) const {
  versions.Define(var, ops::MakeCall(name, args, attrs), perm);
  return true;
}

Perm AxesIn(const ffi::Any& value, int64_t rank) {
  Perm axes;
  if (auto one = value.as<int64_t>())
    axes.push_back(one.value());
  else if (auto many = value.as<ffi::Array<ffi::Any>>()) {
    for (const ffi::Any& axis : many.value()) axes.push_back(axis.cast<int64_t>());
  }
  for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  return axes;
}

ffi::Any MapAxes(const ffi::Any& value, const Perm& perm) {
  const Perm place = Inverse(perm);
  const int64_t rank = static_cast<int64_t>(perm.size());
  if (auto one = value.as<int64_t>())
    return place[one.value() < 0 ? one.value() + rank : one.value()];
  ffi::Array<ffi::Any> mapped;
  for (int64_t axis : AxesIn(value, rank)) mapped.push_back(place[axis]);
  return mapped;
}

namespace {

// A broadcast operand of an elementwise operator, permuted like the full ones; undefined when its
// shape is not known.
Expr Aligned(Versions& versions, const Expr& arg, const Perm& perm) {
  if (ir::IsPrim(arg)) return arg;
  const int64_t rank = RankOf(arg);
  if (rank == 0) return arg;
  if (rank < 0 || rank > static_cast<int64_t>(perm.size())) return Expr();
  if (rank == static_cast<int64_t>(perm.size())) return versions.Get(arg, perm);
  // Missing axes stand at the front: give them back as ones, then permute.
  auto dims = arg->ty.as<ir::TensorTypeObj>()->GetShape();
  if (!dims.has_value()) return Expr();
  ffi::Array<Expr> shape;
  for (size_t i = static_cast<size_t>(rank); i < perm.size(); ++i) shape.push_back(Expr(1));
  for (const Expr& d : dims.value()) shape.push_back(d);
  Expr full = versions.builder()->Emit(
      ops::MakeCall("reshape", {versions.Plain(arg), ir::ShapeExpr(shape)}));
  return versions.Get(full, perm);
}

// A call that gives `perm`, or a tuple whose fields are all in that order.
bool DefineAll(const Site& site, const ir::Call& made, const Perm& perm) {
  if (const auto* results = site.var->ty.as<ir::TupleTypeObj>()) {
    site.versions.DefineTuple(site.var, made, std::vector<Perm>(results->fields.size(), perm));
  } else {
    site.versions.Define(site.var, made, perm);
  }
  return true;
}

}  // namespace

bool FollowElementwise(const Site& site) {
  const int64_t rank = RankOf(site.var);
  if (rank < 2) return false;
  std::vector<Expr> full;
  for (const Expr& arg : site.call->args) {
    if (RankOf(arg) == rank) full.push_back(arg);
  }
  const Perm perm = site.versions.BestFor(full);
  if (perm.empty() || IsIdentity(perm)) return false;
  ffi::Array<Expr> args;
  for (const Expr& arg : site.call->args) {
    Expr aligned = Aligned(site.versions, arg, perm);
    if (!aligned.defined()) return false;
    args.push_back(aligned);
  }
  return site.Define(args, site.Attrs(), perm);
}

bool FollowAxes(const Site& site) {
  const auto* tuple = site.call->args[0].as<ir::TupleObj>();
  const ffi::Array<Expr> data =
      tuple != nullptr ? tuple->fields : ffi::Array<Expr>{site.call->args[0]};
  const auto* results = site.var->ty.as<ir::TupleTypeObj>();
  if (data.empty()) return false;
  const int64_t rank = results == nullptr ? RankOf(site.var) : RankOf(data[0]);
  if (rank < 2) return false;
  for (const Expr& d : data) {
    if (RankOf(d) != rank) return false;
  }
  const Perm perm = site.versions.BestFor({data.begin(), data.end()});
  if (IsIdentity(perm)) return false;
  Attributes attrs = site.Attrs();
  for (const std::string& field : site.rule.axis_attrs) {
    if (attrs[field] == nullptr) return false;  // no axis: flattened first
    attrs.Set(field, MapAxes(attrs[field], perm));
  }
  ffi::Array<Expr> moved = data.Map([&](const Expr& d) { return site.versions.Get(d, perm); });
  ffi::Array<Expr> args = site.WithFirst(tuple != nullptr ? Expr(ir::Tuple(moved)) : moved[0]);
  return DefineAll(site, ops::MakeCall(site.name, args, attrs), perm);
}

// The first argument moves, or all of its rank do.
bool FollowNamedAxes(const Site& site) {
  const int64_t rank = RankOf(site.call->args[0]);
  const bool all = site.rule.kind == Kind::kAllAxes;
  std::vector<Expr> moving;
  for (const Expr& arg : site.call->args) {
    if (all && RankOf(arg) != rank) return false;
    if (all || moving.empty()) moving.push_back(arg);
  }
  if (rank < 2) return false;
  const Perm perm = site.versions.BestFor(moving);
  if (IsIdentity(perm)) return false;
  Attributes attrs = site.Attrs();
  for (const std::string& field : site.rule.axis_attrs) {
    if (attrs[field] == nullptr) return false;
    attrs.Set(field, MapAxes(attrs[field], perm));
  }
  Versions& versions = site.versions;
  auto moved = [&](const Expr& a) { return versions.Get(a, perm); };
  ffi::Array<Expr> args =
      all ? site.call->args.Map(moved) : site.WithFirst(moved(site.call->args[0]));
  ir::Call made = ops::MakeCall(site.name, args, attrs);
  if (const auto* tuple = site.var->ty.as<ir::TupleTypeObj>()) {
    std::vector<Perm> perms(tuple->fields.size());
    perms[0] = perm;
    versions.DefineTuple(site.var, made, std::move(perms));
  } else {
    versions.Define(site.var, made, perm);
  }
  return true;
}

bool FollowReduce(const Site& site) {
  const Perm perm = site.Moved();
  if (perm.empty()) return false;
  Attributes attrs = site.Attrs();
  const std::string& field = site.rule.axis_attrs[0];
  const Perm axes = AxesIn(attrs[field], static_cast<int64_t>(perm.size()));
  if (axes.empty()) return false;
  const bool keepdims = attrs["keepdims"].as<bool>().value_or(false);
  attrs.Set(field, MapAxes(attrs[field], perm));
  return site.Define(site.WithFirst(site.versions.Get(site.call->args[0], perm)), attrs,
                     keepdims ? perm : Without(perm, axes));
}

// The axes are numbers in the second argument.
bool FollowSlice(const Site& site) {
  const Perm perm = site.Moved();
  const auto* axes = site.call->args[1].as<ir::TupleObj>();
  if (perm.empty() || axes == nullptr) return false;
  const Perm place = Inverse(perm);
  ffi::Array<Expr> mapped;
  for (const Expr& axis : axes->fields) {
    auto number = ir::AsInt(axis);
    if (!number) return false;
    const int64_t at = *number < 0 ? *number + static_cast<int64_t>(perm.size()) : *number;
    mapped.push_back(ir::IntImm(axis.dtype(), place[at]));
  }
  ffi::Array<Expr> args = site.WithFirst(site.versions.Get(site.call->args[0], perm));
  args.Set(1, ir::Tuple(mapped));
  return site.Define(args, site.Attrs(), perm);
}

bool FollowEachAxis(const Site& site) {
  const Perm perm = site.Moved();
  if (perm.empty() || RankOf(site.var) != static_cast<int64_t>(perm.size())) return false;
  Attributes attrs = site.Attrs();
  ffi::Array<Expr> args = site.call->args;
  if (site.rule.kind == Kind::kShapes) {
    args = site.WithFirst(args[0]);
    for (size_t i = 1; i < args.size(); ++i) {
      if (args[i]->ty.as<ir::ShapeTypeObj>() == nullptr) continue;
      const auto* shape = args[i].as<ir::ShapeExprObj>();
      if (shape == nullptr || shape->values.size() != perm.size()) return false;
      args.Set(i, ir::ShapeExpr(Permuted(shape->values, perm)));
    }
    args.Set(0, site.versions.Get(args[0], perm));
    return site.Define(args, attrs, perm);
  }
  const std::string& field = site.rule.axis_attrs[0];
  const auto numbers = attrs[field].cast<ffi::Array<ffi::Any>>();
  // Pads are pairs; there may be fewer repeats than axes, which are those of the last ones.
  const size_t each = site.rule.kind == Kind::kPad ? 2 : 1;
  const size_t given = numbers.size() / each;
  if (given > perm.size()) return false;
  const size_t missing = perm.size() - given;
  ffi::Array<ffi::Any> moved;
  for (int64_t p : perm) {
    const size_t at = static_cast<size_t>(p);
    for (size_t k = 0; k < each; ++k) {
      moved.push_back(at < missing ? ffi::Any(int64_t{1}) : numbers[(at - missing) * each + k]);
    }
  }
  attrs.Set(field, moved);
  return site.Define(site.WithFirst(site.versions.Get(args[0], perm)), attrs, perm);
}

}  // namespace relaxvm::passes::layout
