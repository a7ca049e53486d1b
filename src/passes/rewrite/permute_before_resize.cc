// SPDX-License-Identifier: Apache-2.0
// PermuteBeforeResize: a permutation of an enlarged image that puts its rows into memory one after
// the other is done to the smaller image. Stage: graph, after ConvertLayout, which leaves such a
// permutation where a result is wanted with channels first.  Rows are resized by vectors, pixels of
// few channels mostly by empty ones.
#include "ops/layout_rule.h"
#include "passes/layout/permutation.h"
#include "passes/rewrite/rules.h"

namespace relaxvm::passes {
namespace {

using ir::CallObj;
using ir::Expr;

constexpr size_t kMostBetween = 4;  // elementwise calls after the resize

const CallObj* AsResize(const analysis::PatternMatcher& matched, const Expr& e) {
  const CallObj* call = AsCallOf(matched, e, "image.resize2d");
  return call != nullptr ? call : AsCallOf(matched, e, "image.resize3d");
}

// The call of one tensor, element by element, that `e` is; null when it is something else.
const CallObj* AsUnary(const analysis::PatternMatcher& matched, const Expr& e) {
  const Expr value = matched.LookThrough(e);
  const auto* call = value.as<CallObj>();
  const ir::OpObj* op = call == nullptr ? nullptr : ir::CalledOp(call);
  if (op == nullptr || op->record == nullptr || call->args.size() != 1) return nullptr;
  const ops::LayoutRule* rule = ops::RecordOf(op).layout.get();
  return rule != nullptr && rule->kind == ops::LayoutRule::Kind::kElementwise ? call : nullptr;
}

bool IsNowhereSmaller(const Expr& result, const Expr& data) {
  auto want = DimsOf(result), have = DimsOf(data);
  if (!want || !have || want->size() != have->size()) return false;
  auto facts = ops::MakeTypeContext();
  for (int64_t d = 0; d < static_cast<int64_t>(want->size()); ++d) {
    if (!facts->Prove(ir::LessEqual((*have)[d], (*want)[d]))) return false;
  }
  return true;
}

ffi::Map<ffi::String, ffi::Any> ValuesOf(const CallObj* call) {
  return call->attrs.defined() ? call->attrs->values : ffi::Map<ffi::String, ffi::Any>();
}

Expr Reorder(const Expr& value, const analysis::PatternMatcher& matched) {
  const auto* permute = value.as<CallObj>();
  auto axes = permute->attrs.Get("axes").as<ffi::Array<ffi::Any>>();
  std::vector<const CallObj*> between;
  Expr source = permute->args[0];
  const CallObj* resize = AsResize(matched, source);
  while (resize == nullptr) {
    const CallObj* call = AsUnary(matched, source);
    if (call == nullptr || between.size() == kMostBetween) return Expr();
    between.push_back(call);
    source = call->args[0];
    resize = AsResize(matched, source);
  }
  // To pick pixels is a copy of their channels.
  if (resize->attrs.Get("method").cast<ffi::String>() == "nearest_neighbor") return Expr();
  if (!axes || !IsNowhereSmaller(permute->args[0], resize->args[0])) return Expr();
  const std::string letters(resize->attrs.Get("layout").cast<ffi::String>());
  if (letters.size() != axes->size()) return Expr();
  layout::Perm perm;
  for (const ffi::Any& axis : *axes) {
    const int64_t a = axis.cast<int64_t>();
    perm.push_back(a < 0 ? a + static_cast<int64_t>(letters.size()) : a);
  }
  const std::string moved = layout::Permuted(letters, perm);
  if (moved.back() != 'W' || letters.back() == 'W') return Expr();
  auto attrs = resize->attrs->values;
  attrs.Set("layout", ffi::String(moved));
  Expr result = ops::MakeCall("permute_dims", {resize->args[0]}, permute->attrs->values);
  auto again = [](const CallObj* call, ffi::Array<Expr> args,
                  ffi::Map<ffi::String, ffi::Any> with) -> Expr {
    constexpr size_t kPrefix = 6;  // "relax."
    const std::string name(ir::CalledOp(call)->name);
    return ops::MakeCall(name.substr(kPrefix), std::move(args), std::move(with));
  };
  result = again(resize, {result, resize->args[1]}, attrs);
  for (size_t i = between.size(); i-- > 0;)
    result = again(between[i], {result}, ValuesOf(between[i]));
  return result;
}

}  // namespace

IRModule PermuteBeforeResize(IRModule mod, const PassContext& context) {
  return RewriteModule(std::move(mod), {{CallOf("permute_dims", {AnyValue()}), Reorder}});
}

}  // namespace relaxvm::passes
