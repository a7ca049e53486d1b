// SPDX-License-Identifier: Apache-2.0
// The limits are measured (Emerald Rapids, AVX-512, one thread, times in us as it is and with both
// conversions): window 7 and step 7 of 56x56 227 and 67, 3 and 2 of 14x14 191 and 25, 5 and 1 of
// 20x20 176 and 80, of 40x40 394 and 327, 13 and 1 of 20x20 7405 and 371, 3 and 1 of 20x20 75 and
// 43; but 2 and 2 of 56x56 27 and 103, 3 and 1 of 56x56 124 and 271.
#include "passes/layout/pool_layout.h"

#include "ops/op_def.h"

namespace relaxvm::passes::layout {
namespace ffi = tvm::ffi;
namespace {

constexpr int64_t kLeastChannels = 16;
constexpr int64_t kUnknownSize = 64;
constexpr int64_t kShortRow = 8;

bool IsFasterWithChannelsLast(const ir::Call& call) {
  if (ops::AttrOf<std::string>(call, "layout") != "NCHW") return false;
  const auto* data = call->args[0]->ty.as<ir::TensorTypeObj>();
  const auto* result = call->ty.as<ir::TensorTypeObj>();
  if (data == nullptr || result == nullptr || !data->GetShape() || !result->GetShape())
    return false;
  auto size = [](const ir::Expr& e) { return ir::AsInt(e).value_or(kUnknownSize); };
  const int64_t channels = ir::AsInt(data->GetShape().value()[1]).value_or(0);
  const int64_t height = size(result->GetShape().value()[2]);
  const int64_t width = size(result->GetShape().value()[3]);
  if (channels < kLeastChannels || height * width < 4) return false;
  const auto window = ops::AttrOf<ops::Ints>(call, "pool_size");
  const auto steps = ops::AttrOf<ops::Ints>(call, "strides");
  const int64_t area = window[0] * window[1];
  if (width <= kShortRow || steps[1] > 4) return true;
  const bool overlaps = steps[1] < window[1];
  return overlaps && (window[1] > 8 || (area >= 9 && width <= 20));
}

}  // namespace

ffi::Function PoolLayouts() {
  return ffi::Function::FromTyped([](const ir::Call& call) -> ffi::Any {
    const auto* op = ir::CalledOp(call.get());
    if (op == nullptr) return nullptr;
    const std::string name(op->name);
    if (name != "relax.nn.max_pool2d" && name != "relax.nn.avg_pool2d") return nullptr;
    if (!IsFasterWithChannelsLast(call)) return nullptr;
    ffi::Map<ffi::String, ffi::Array<ffi::String>> layouts;
    layouts.Set(name, {"NHWC"});
    return layouts;
  });
}

}  // namespace relaxvm::passes::layout
