// SPDX-License-Identifier: Apache-2.0
// Calls whose attributes describe the axes by letters: convolutions, pooling, resizing, einsum.
#include <algorithm>

#include "passes/layout/follow.h"

namespace relaxvm::passes::layout {

using ir::Expr;
using Kind = ops::LayoutRule::Kind;

bool ConvertConvolution(const Site& site, const Wanted& want) {
  const std::string data = site.StringAttr("data_layout"),
                    kernel = site.StringAttr("kernel_layout");
  std::string out = site.StringAttr("out_layout");
  if (out.empty()) out = data;
  const Perm data_perm = PermBetween(data, want.data),
             kernel_perm = PermBetween(kernel, want.kernel);
  if (data_perm.empty() || kernel_perm.empty() || out != data || IsIdentity(data_perm))
    return false;
  Attributes attrs = site.call->attrs->values;
  attrs.Set("data_layout", ffi::String(want.data));
  attrs.Set("kernel_layout", ffi::String(want.kernel));
  attrs.Set("out_layout", ffi::String(want.data));
  Expr x = site.versions.Get(site.call->args[0], data_perm),
       w = site.versions.Get(site.call->args[1], kernel_perm);
  return site.Define({x, w}, attrs, data_perm);
}

bool FollowImage(const Site& site, const std::optional<Wanted>& want) {
  Attributes attrs = site.call->attrs->values;
  const char* field = attrs.count("data_layout") ? "data_layout" : "layout";
  const std::string letters = site.StringAttr(field);
  const Perm perm =
      want ? PermBetween(letters, want->data) : site.versions.PermOf(site.call->args[0]);
  if (perm.empty() || IsIdentity(perm)) return false;
  const std::string out = site.StringAttr("out_layout");
  if (letters.size() != perm.size() || (!out.empty() && out != letters)) return false;
  const std::vector<std::string>& known = site.rule.axis_attrs;
  const std::string moved = Permuted(letters, perm);
  if (!known.empty() && std::find(known.begin(), known.end(), moved) == known.end()) return false;
  attrs.Set(field, ffi::String(moved));
  if (attrs.count("out_layout")) attrs.Set("out_layout", ffi::String(moved));
  return site.Define(site.WithFirst(site.versions.Get(site.call->args[0], perm)), attrs, perm);
}

// The letters of an operand follow its axes; the result stays plain.
bool FollowEinsum(const Site& site) {
  const auto* operands = site.call->args[0].as<ir::TupleObj>();
  const std::string& field = site.rule.axis_attrs[0];
  const std::string text = site.StringAttr(field.c_str());
  if (operands == nullptr || text.find('.') != std::string::npos) return false;
  std::string changed;
  ffi::Array<Expr> moved;
  size_t at = 0, count = 0;
  for (const Expr& operand : operands->fields) {
    std::string letters;
    for (; at < text.size() && text[at] != ',' && text[at] != '-'; ++at) {
      if (text[at] != ' ') letters += text[at];
    }
    Perm perm = site.versions.PermOf(operand);
    if (letters.size() != perm.size()) return false;
    count += !IsIdentity(perm);
    changed += (moved.empty() ? "" : ",") + Permuted(letters, perm);
    moved.push_back(site.versions.Get(operand, perm));
    if (at < text.size() && text[at] == ',') ++at;
  }
  if (count == 0) return false;
  Attributes attrs = site.Attrs();
  attrs.Set(field, ffi::String(changed + text.substr(at)));
  return site.Define({ir::Tuple(moved)}, attrs, Identity(static_cast<size_t>(RankOf(site.var))));
}

bool Follow(const Site& site, const std::optional<Wanted>& want) {
  switch (site.rule.kind) {
    case Kind::kElementwise: return FollowElementwise(site);
    case Kind::kAxes: return FollowAxes(site);
    case Kind::kReduce: return FollowReduce(site);
    case Kind::kImage: return FollowImage(site, want);
    case Kind::kConvolution: return want && ConvertConvolution(site, *want);
    case Kind::kFirst:
    case Kind::kAllAxes: return FollowNamedAxes(site);
    case Kind::kPermute: return FollowPermute(site);
    case Kind::kReshape: return FollowReshape(site);
    case Kind::kExpand:
    case Kind::kSqueeze: return FollowShape(site);
    case Kind::kTile:
    case Kind::kPad:
    case Kind::kShapes: return FollowEachAxis(site);
    case Kind::kSlice: return FollowSlice(site);
    case Kind::kEinsum: return FollowEinsum(site);
  }
  return false;
}

}  // namespace relaxvm::passes::layout
