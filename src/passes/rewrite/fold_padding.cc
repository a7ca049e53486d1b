// SPDX-License-Identifier: Apache-2.0
// FoldPadding: zeros that nn.pad puts around the data of a convolution become the convolution's own
// padding, which leaves them out where it can. Stage: graph.
#include "passes/rewrite/rules.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using Ints = std::vector<int64_t>;

Ints IntsOf(const ffi::Any& value) {
  Ints ints;
  for (const ffi::Any& v : value.cast<ffi::Array<ffi::Any>>()) ints.push_back(v.cast<int64_t>());
  return ints;
}

Expr Fold(const Expr& value, const analysis::PatternMatcher& matched) {
  const auto* conv = value.as<ir::CallObj>();
  const ir::CallObj* pad = AsCallOf(matched, conv->args[0], "nn.pad");
  if (pad == nullptr || pad->attrs.Get("pad_mode").cast<ffi::String>() != "constant" ||
      pad->attrs.Get("pad_value").cast<double>() != 0)
    return Expr();
  const Ints widths = IntsOf(pad->attrs.Get("pad_width"));
  Ints padding = IntsOf(conv->attrs.Get("padding"));
  const std::string letters(conv->attrs.Get("data_layout").cast<ffi::String>());
  const std::string spatial = std::string("DHW").substr(3 - padding.size() / 2);
  if (widths.size() != 2 * letters.size()) return Expr();
  for (size_t d = 0; d < letters.size(); ++d) {
    const int64_t before = widths[2 * d], after = widths[2 * d + 1];
    const size_t s = spatial.find(letters[d]);
    if (before < 0 || after < 0) return Expr();
    if (s == std::string::npos) {
      if (before + after != 0) return Expr();
      continue;
    }
    padding[s] += before;
    padding[spatial.size() + s] += after;
  }
  auto attrs = conv->attrs->values;
  attrs.Set("padding", ffi::Array<ffi::Any>(padding.begin(), padding.end()));
  constexpr size_t kPrefix = 6;  // "relax."
  return ops::MakeCall(std::string(ir::CalledOp(conv)->name).substr(kPrefix),
                       {pad->args[0], conv->args[1]}, attrs);
}

}  // namespace

IRModule FoldPadding(IRModule mod, const PassContext& context) {
  std::vector<RewriteRule> rules;
  for (const char* name : {"nn.conv1d", "nn.conv2d", "nn.conv3d"})
    rules.push_back({CallOf(name, {AnyValue(), AnyValue()}), Fold});
  return RewriteModule(std::move(mod), rules);
}

}  // namespace relaxvm::passes
