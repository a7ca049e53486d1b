// SPDX-License-Identifier: Apache-2.0
// How calls take arguments in another order of their axes, one function for each kind of
// ops::LayoutRule.  Each gives false, and has emitted nothing that matters, when the call stays as
// it is.
#pragma once

#include <optional>
#include <string>

#include "ops/layout_rule.h"
#include "passes/layout/versions.h"

namespace relaxvm::passes::layout {

using Attributes = ffi::Map<ffi::String, ffi::Any>;

// A call that may be converted, and where its result goes.
struct Site {
  Versions& versions;
  ir::Var var;
  ir::Call call;
  std::string name;  // of the operator
  const ops::LayoutRule& rule;

  Attributes Attrs() const;
  std::string StringAttr(const char* field) const;

  // `first`, and the other arguments as they were before.
  ffi::Array<ir::Expr> WithFirst(ir::Expr first) const;
  // The order of the first argument; empty when that is the plain one.
  Perm Moved() const;
  bool Define(const ffi::Array<ir::Expr>& args, const Attributes& attrs, const Perm& perm) const;
};

// The axes that an attribute names, counted from the front; empty for None.
Perm AxesIn(const ffi::Any& value, int64_t rank);
ffi::Any MapAxes(const ffi::Any& value, const Perm& perm);

struct Wanted {
  std::string data;
  std::string kernel;
};

bool FollowElementwise(const Site& site);
bool FollowAxes(const Site& site);       // kAxes
bool FollowNamedAxes(const Site& site);  // kFirst, kAllAxes
bool FollowReduce(const Site& site);
bool FollowSlice(const Site& site);
bool FollowEinsum(const Site& site);
bool FollowEachAxis(const Site& site);  // kTile, kPad, kShapes
bool FollowPermute(const Site& site);
bool FollowReshape(const Site& site);
bool FollowShape(const Site& site);  // kExpand, kSqueeze
bool FollowImage(const Site& site, const std::optional<Wanted>& want);
bool ConvertConvolution(const Site& site, const Wanted& want);

// By the rule's kind.
bool Follow(const Site& site, const std::optional<Wanted>& want);

}  // namespace relaxvm::passes::layout
