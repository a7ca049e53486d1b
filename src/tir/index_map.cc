// SPDX-License-Identifier: Apache-2.0
// Index maps, and their way back by digits.
//
// A digit is  (var // lower) % extent,  a part of one initial index.  Each final index is read as a
// number in a mixed radix, a sum of digits each scaled by the product of the extents below it.
// The way back takes the digits out of the final indices and adds them up, times their `lower`.
#include "tir/index_map.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "arith/analyzer.h"
#include "ir/visitor.h"
#include "tir/functor.h"

namespace relaxvm::tir {
namespace {

using ir::BinaryObj;
using ir::BinaryOp;

constexpr size_t kMaxDigits = 64;

struct Digit {
  const ir::VarObj* var;
  Expr lower, extent, scale;
};
using Digits = std::vector<Digit>;

class DigitReader {
 public:
  DigitReader(const IndexMap& map, const ffi::Array<Expr>& extents, arith::Analyzer* analyzer)
      : analyzer_(analyzer) {
    for (size_t i = 0; i < extents.size(); ++i)
      extents_.emplace(map->initial_indices[i].get(), extents[i]);
  }

  // The digits of `e`, lowest first; what is added to them goes to `base`.  Absent: no such number.
  std::optional<Digits> Number(const Expr& e, Expr* base) {
    *base = Expr(0);
    auto digits = Read(e, base);
    return digits.has_value() ? Sorted(*std::move(digits)) : std::nullopt;
  }

 private:
  Expr Simple(const Expr& e) { return analyzer_->Simplify(e); }
  bool Equal(const Expr& a, const Expr& b) { return analyzer_->ProveEqual(a, b); }
  bool Divides(const Expr& divisor, const Expr& e) {
    return !Equal(divisor, Expr(0)) && Equal(ir::FloorMod(e, divisor), Expr(0));
  }
  static Expr Wide(const Expr& e) { return ir::Cast(Int(64), e); }

  bool IsFixed(const Expr& e) const {
    const auto vars = ir::FreeVars(e);
    return std::none_of(vars.begin(), vars.end(),
                        [&](const Var& v) { return extents_.count(v.get()) > 0; });
  }

  std::optional<Digits> Read(const Expr& e, Expr* base) {
    if (IsFixed(e)) {
      *base = Simple(*base + Wide(e));
      return Digits{};
    }
    if (const auto* cast = e.as<ir::CastObj>()) return Read(cast->value, base);
    auto it = extents_.find(e.get());
    if (it != extents_.end()) {
      return Digits{{e.as<ir::VarObj>(), Expr(1), it->second, Expr(1)}};
    }
    const auto* binary = e.as<BinaryObj>();
    if (binary == nullptr) return std::nullopt;
    switch (binary->op) {
      case BinaryOp::kAdd: {
        auto a = Read(binary->a, base), b = Read(binary->b, base);
        if (!a || !b || a->size() + b->size() > kMaxDigits) return std::nullopt;
        a->insert(a->end(), b->begin(), b->end());
        return a;
      }
      case BinaryOp::kSub: {
        if (!IsFixed(binary->b)) return std::nullopt;
        *base = Simple(*base - Wide(binary->b));
        return Read(binary->a, base);
      }
      case BinaryOp::kMul: {
        const bool left = IsFixed(binary->a);
        if (!left && !IsFixed(binary->b)) return std::nullopt;
        const Expr factor = Wide(left ? binary->a : binary->b);
        Expr inner(0);
        auto digits = Read(left ? binary->b : binary->a, &inner);
        if (!digits) return std::nullopt;
        *base = Simple(*base + inner * factor);
        for (Digit& d : *digits) d.scale = Simple(d.scale * factor);
        return digits;
      }
      case BinaryOp::kFloorDiv:
      case BinaryOp::kFloorMod: return Cut(*binary);
      default: return std::nullopt;
    }
  }

  // The digits of a number that lie above (//) or below (%) its divisor.
  std::optional<Digits> Cut(const BinaryObj& e) {
    if (!IsFixed(e.b)) return std::nullopt;
    const bool above = e.op == BinaryOp::kFloorDiv;
    const Expr by = Simple(Wide(e.b));
    Expr base;
    auto digits = Number(e.a, &base);
    if (!digits || !Equal(base, Expr(0))) return std::nullopt;
    Digits result;
    for (const Digit& d : *digits) {
      Digit part = d;
      const bool top = &d == &digits->back();
      if (Divides(by, d.scale)) {  // all of it above
        if (!above) continue;
        part.scale = Simple(ir::FloorDiv(d.scale, by));
      } else if (!Divides(d.scale, by)) {
        return std::nullopt;
      } else {
        // The lower part has `size` values; what is missing of them is padding.
        const Expr size = Simple(ir::FloorDiv(by, d.scale));
        const bool below =
            Divides(d.extent, size) || (top && analyzer_->ProveLessEqual(d.extent, size));
        if (below && above && !top) continue;
        if (!below && !top && !Divides(size, d.extent)) return std::nullopt;
        if (above) {
          part.lower = Simple(d.lower * size);
          part.extent = Simple(ir::CeilDiv(d.extent, size));
          part.scale = Expr(1);
        } else if (!below || top) {
          part.extent = size;
        }
      }
      result.push_back(part);
    }
    return result;
  }

  std::optional<Digits> Sorted(Digits digits) {
    Digits sorted;
    Expr scale(1);
    // A digit with one value lies below those of its scale.
    std::stable_partition(digits.begin(), digits.end(),
                          [&](const Digit& d) { return Equal(d.extent, Expr(1)); });
    while (!digits.empty()) {
      auto next = std::find_if(digits.begin(), digits.end(),
                               [&](const Digit& d) { return Equal(d.scale, scale); });
      if (next == digits.end()) return std::nullopt;
      scale = Simple(scale * next->extent);
      sorted.push_back(*next);
      digits.erase(next);
    }
    return sorted;
  }

  arith::Analyzer* analyzer_;
  std::unordered_map<const ffi::Object*, Expr> extents_;
};

// A digit, and its value out of the final indices.
struct Found {
  Digit digit;
  Expr value;
};

// The index that has these digits; absent when one of them is missing or there twice.
std::optional<Expr> Join(const std::vector<Found>& found, const ir::VarObj* var, const Expr& extent,
                         arith::Analyzer* analyzer) {
  Expr sum(0), lower(1);
  std::vector<const Found*> left;
  for (const Found& f : found) {
    if (f.digit.var == var) left.push_back(&f);
  }
  while (!left.empty()) {
    auto next = std::find_if(left.begin(), left.end(), [&](const Found* f) {
      return analyzer->ProveEqual(f->digit.lower, lower);
    });
    if (next == left.end()) return std::nullopt;
    sum = (*next)->value * lower + sum;
    lower = analyzer->Simplify(lower * (*next)->digit.extent);
    left.erase(next);
  }
  if (!analyzer->ProveLessEqual(extent, lower)) return std::nullopt;
  return analyzer->Simplify(sum);
}

}  // namespace

IndexMap::IndexMap(ffi::Array<Var> initial_indices, ffi::Array<Expr> final_indices,
                   ffi::ObjectRef inverse_index_map)
    : ffi::ObjectRef(ffi::UnsafeInit{}) {
  auto node = ffi::make_object<IndexMapObj>();
  node->initial_indices = std::move(initial_indices);
  node->final_indices = std::move(final_indices);
  node->inverse_index_map = std::move(inverse_index_map);
  data_ = std::move(node);
}

ffi::Array<Expr> IndexMap::MapIndices(const ffi::Array<Expr>& indices,
                                      arith::Analyzer* analyzer) const {
  RELAXVM_CHECK(indices.size() == get()->initial_indices.size()) << "indices of an index map";
  ffi::Map<Var, Expr> map;
  for (size_t i = 0; i < indices.size(); ++i)
    map.Set(get()->initial_indices[i], ir::Cast(get()->initial_indices[i].dtype(), indices[i]));
  return get()->final_indices.Map(
      [&](const Expr& e) { return analyzer->Simplify(tir::Substitute(e, map)); });
}

std::optional<MappedShape> MapShape(const IndexMap& map, const ffi::Array<Expr>& extents,
                                    arith::Analyzer* analyzer) {
  RELAXVM_CHECK(extents.size() == map->initial_indices.size()) << "extents of an index map";
  DigitReader reader(map, extents, analyzer);
  MappedShape result;
  std::vector<Found> found;
  for (const Expr& e : map->final_indices) {
    Expr base;
    auto digits = reader.Number(e, &base);
    if (!digits || !analyzer->ProveEqual(base, Expr(0))) return std::nullopt;
    Var index("j" + std::to_string(result.indices.size()), Int(64));
    Expr size(1);
    for (const Digit& d : *digits) {
      Expr value = ir::FloorDiv(index, d.scale);
      if (&d != &digits->back()) value = ir::FloorMod(value, d.extent);
      found.push_back({d, value});
      size = size * d.extent;
    }
    result.indices.push_back(index);
    result.extents.push_back(analyzer->Simplify(size));
  }
  arith::Analyzer::Scope scope(analyzer);
  for (size_t d = 0; d < result.indices.size(); ++d)
    analyzer->Bind(result.indices[d], Expr(0), result.extents[d]);
  result.is_padding = ir::BoolImm(false);
  for (size_t i = 0; i < extents.size(); ++i) {
    auto index = Join(found, map->initial_indices[i].get(), extents[i], analyzer);
    if (!index) return std::nullopt;
    if (!analyzer->Prove(ir::Less(*index, extents[i])))
      result.is_padding = ir::Or(result.is_padding, ir::GreaterEqual(*index, extents[i]));
    result.origin.push_back(*index);
  }
  return result;
}

bool SameMap(const IndexMap& a, const IndexMap& b, arith::Analyzer* analyzer) {
  if (a->initial_indices.size() != b->initial_indices.size() ||
      a->final_indices.size() != b->final_indices.size())
    return false;
  ffi::Array<Expr> indices;
  for (const Var& v : a->initial_indices) indices.push_back(v);
  ffi::Array<Expr> places = b.MapIndices(indices, analyzer);
  for (size_t i = 0; i < places.size(); ++i) {
    if (!analyzer->ProveEqual(ir::Cast(Int(64), a->final_indices[i]), ir::Cast(Int(64), places[i])))
      return false;
  }
  return true;
}

}  // namespace relaxvm::tir
