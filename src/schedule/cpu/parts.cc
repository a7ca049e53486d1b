// SPDX-License-Identifier: Apache-2.0
// InParts: a reduction of much to few results as two, so that threads share it: a reduced axis goes
// in parts that sizes alone decide, then the results of the parts are combined.
#include <algorithm>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {
namespace {

constexpr int64_t kFewResults = 16;
constexpr int64_t kPartWork = 65536;  // additions of a part, at least
constexpr int64_t kMaxParts = 64;
// The same where results lie side by side in what is read: vectors make several at once.
constexpr int64_t kPartWorkSideBySide = 32768;
constexpr int64_t kMaxPartsSideBySide = 16;
// More of them are enough blocks for threads.
constexpr int64_t kMostSideBySide = 4096;

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

// The stage with `axis` of the sum cut into `count` parts of `length`.
Parts Cut(const Stage& flat, size_t axis, const Expr& count, const Expr& length) {
  const Axis& whole = flat.reduce[axis];
  Parts parts;
  parts.part = {Var("part", Int(64)), count};
  const Expr results = NumPoints(flat.spatial);
  parts.partial = Buffer("partial", {count * results}, flat.value.dtype());
  const Expr first = parts.part.var * length;
  const auto known = ir::AsInt(whole.extent), each = ir::AsInt(length);
  const bool even = known.has_value() && each.has_value() && *known % *each == 0;
  const Axis inside{Var(whole.var->name, Int(64)),
                    even ? length : ir::Min(length, whole.extent - first)};
  ffi::Map<Var, Expr> map;
  map.Set(whole.var, first + inside.var);
  Expr result(0);
  for (const Axis& of : flat.spatial) result = result * of.extent + of.var;
  parts.each = flat;
  parts.each.reduce[axis] = inside;
  parts.each.value = tir::Substitute(flat.value, map);
  parts.each.finish = Expr();
  parts.each.out = parts.partial;
  parts.each.indices = {parts.part.var * results + result};

  const Axis all{Var("part", Int(64)), count};
  parts.rest = flat;
  parts.rest.reduce = {all};
  parts.rest.value = parts.partial.Load({all.var * results + result});
  return parts;
}

// Few results of a known size.
std::optional<Parts> OfFewResults(const Stage& flat, const Machine& machine) {
  const auto results = Product(flat.spatial), reduced = Product(flat.reduce);
  if (!results.has_value() || !reduced.has_value() || results.value() >= kFewResults)
    return std::nullopt;
  const int64_t work = results.value() * reduced.value() * (CostOf(flat.value) + 1);
  const auto longest =
      std::max_element(flat.reduce.begin(), flat.reduce.end(), [](const Axis& a, const Axis& b) {
        return ir::AsInt(a.extent).value() < ir::AsInt(b.extent).value();
      });
  const int64_t extent = ir::AsInt(longest->extent).value();
  const int64_t unit = 4 * std::max<int64_t>(1, machine.Lanes(ElemBytes(flat)));
  const int64_t wanted = std::min(kMaxParts, work / kPartWork);
  if (wanted < 2) return std::nullopt;
  const int64_t length = (extent + wanted * unit - 1) / (wanted * unit) * unit;
  const int64_t count = (extent + length - 1) / length;
  if (count < 2) return std::nullopt;
  return Cut(flat, static_cast<size_t>(longest - flat.reduce.begin()), count, length);
}

// A few runs of results that lie side by side in what is read, as means of all pixels of an image
// of channels last: a part is a run of memory, which its thread has often written.
std::optional<Parts> OfRuns(const Stage& flat, const Machine& machine, arith::Analyzer* analyzer) {
  if (flat.spatial.empty() || !ReadsAlong(flat, flat.spatial.back().var)) return std::nullopt;
  const auto side = ir::AsInt(flat.spatial.back().extent);
  if (!side.has_value() || *side < machine.Lanes(ElemBytes(flat)) || *side > kMostSideBySide)
    return std::nullopt;
  int64_t runs = 1;  // for each point of the outermost axis, if nobody knows how many that has
  for (size_t i = 0; i + 1 < flat.spatial.size(); ++i) {
    const auto extent = ir::AsInt(flat.spatial[i].extent);
    if (!extent.has_value() && i > 0) return std::nullopt;
    runs *= extent.value_or(1);
  }
  if (runs >= kFewResults) return std::nullopt;
  const Axis& outer = flat.reduce.front();
  const Expr work = NumPoints(flat.reduce) * Expr(*side * (CostOf(flat.value) + 1));
  const Expr wanted =
      analyzer->Simplify(ir::Min(ir::FloorDiv(work, kPartWorkSideBySide), kMaxPartsSideBySide));
  if (ir::AsInt(wanted).value_or(2) < 2) return std::nullopt;
  ffi::Array<Stmt> definitions;
  const Expr length = Named("length", ir::Max(ir::CeilDiv(outer.extent, ir::Max(wanted, 1)), 1),
                            &definitions, analyzer);
  const Expr count = Named("parts", ir::CeilDiv(outer.extent, length), &definitions, analyzer);
  Parts parts = Cut(flat, 0, count, length);
  parts.definitions = definitions;
  return parts;
}

}  // namespace

std::optional<Parts> InParts(const Stage& flat, const Machine& machine, arith::Analyzer* analyzer) {
  if (flat.combine == Combine::kNone || flat.reduce.empty() || flat.before != nullptr ||
      !flat.beside.stages.empty() || flat.ahead.defined())
    return std::nullopt;
  if (auto parts = OfFewResults(flat, machine)) return parts;
  return OfRuns(flat, machine, analyzer);
}

}  // namespace relaxvm::schedule::cpu
