// SPDX-License-Identifier: Apache-2.0
// InParts: a reduction of much to few results as two, so that threads share it: the longest reduced
// axis goes in parts that its extent alone decides, then the results of the parts are combined.
#include <algorithm>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {
namespace {

constexpr int64_t kFewResults = 16;
constexpr int64_t kPartWork = 65536;  // additions of a part, at least
constexpr int64_t kMaxParts = 64;

// The product of extents; absent when it is not known or 0.
std::optional<int64_t> Product(const std::vector<Axis>& axes) {
  int64_t product = 1;
  for (const Axis& axis : axes) {
    const auto extent = ir::AsInt(axis.extent);
    if (!extent.has_value() || extent.value() < 1) return std::nullopt;
    product *= extent.value();
  }
  return product;
}

}  // namespace

std::optional<Parts> InParts(const Stage& flat, const Machine& traits) {
  if (flat.combine == Combine::kNone || flat.reduce.empty() || flat.before != nullptr ||
      !flat.beside.stages.empty() || flat.ahead.defined())
    return std::nullopt;
  const auto results = Product(flat.spatial), reduced = Product(flat.reduce);
  if (!results.has_value() || !reduced.has_value() || results.value() >= kFewResults)
    return std::nullopt;
  const int64_t work = results.value() * reduced.value() * (CostOf(flat.value) + 1);
  const auto longest =
      std::max_element(flat.reduce.begin(), flat.reduce.end(), [](const Axis& a, const Axis& b) {
        return ir::AsInt(a.extent).value() < ir::AsInt(b.extent).value();
      });
  const int64_t extent = ir::AsInt(longest->extent).value();
  const int64_t unit = 4 * std::max<int64_t>(1, traits.Lanes(ElemBytes(flat)));
  const int64_t wanted = std::min(kMaxParts, work / kPartWork);
  if (wanted < 2) return std::nullopt;
  const int64_t length = (extent + wanted * unit - 1) / (wanted * unit) * unit;
  const int64_t count = (extent + length - 1) / length;
  if (count < 2) return std::nullopt;

  Parts parts;
  parts.part = {Var("part", Int(64)), Expr(count)};
  parts.partial = Buffer("partial", {Expr(count * results.value())}, flat.value.dtype());
  const Expr first = parts.part.var * Expr(length);
  const Axis inside{Var(longest->var->name, Int(64)),
                    extent % length == 0 ? Expr(length) : ir::Min(length, Expr(extent) - first)};
  ffi::Map<Var, Expr> map;
  map.Set(longest->var, first + inside.var);
  Expr result(0);
  for (const Axis& axis : flat.spatial) result = result * axis.extent + axis.var;
  parts.each = flat;
  parts.each.reduce[static_cast<size_t>(longest - flat.reduce.begin())] = inside;
  parts.each.value = tir::Substitute(flat.value, map);
  parts.each.finish = Expr();
  parts.each.out = parts.partial;
  parts.each.indices = {parts.part.var * Expr(results.value()) + result};

  const Axis all{Var("part", Int(64)), Expr(count)};
  parts.rest = flat;
  parts.rest.reduce = {all};
  parts.rest.value = parts.partial.Load({all.var * Expr(results.value()) + result});
  return parts;
}

}  // namespace relaxvm::schedule::cpu
