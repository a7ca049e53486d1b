// SPDX-License-Identifier: Apache-2.0
// Orders of a tensor's axes; see the header.
#include "passes/layout/permutation.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ir/prim.h"

namespace relaxvm::passes::layout {

using ir::Expr;

Perm Identity(size_t n) {
  Perm perm(n);
  std::iota(perm.begin(), perm.end(), 0);
  return perm;
}

bool IsIdentity(const Perm& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

Perm Inverse(const Perm& perm) {
  Perm inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = static_cast<int64_t>(i);
  return inverse;
}

Perm Then(const Perm& a, const Perm& b) {
  Perm result(b.size());
  for (size_t i = 0; i < b.size(); ++i) result[i] = a[b[i]];
  return result;
}

Dims Permuted(const Dims& dims, const Perm& perm) {
  Dims result;
  for (int64_t p : perm) result.push_back(dims[p]);
  return result;
}

std::string Permuted(const std::string& letters, const Perm& perm) {
  std::string result;
  for (int64_t p : perm) result += letters[p];
  return result;
}

Perm PermBetween(const std::string& from, const std::string& to) {
  if (from.size() != to.size()) return {};
  Perm perm;
  for (char letter : to) {
    const size_t at = from.find(letter);
    if (at == std::string::npos) return {};
    perm.push_back(static_cast<int64_t>(at));
  }
  return perm;
}

Perm Expanded(const Perm& perm, const Perm& added, int64_t rank) {
  auto is_new = [&](int64_t i) { return std::find(added.begin(), added.end(), i) != added.end(); };
  Perm old_places, result;
  for (int64_t i = 0; i < rank; ++i) {
    if (!is_new(i)) old_places.push_back(i);
  }
  size_t next = 0;
  for (int64_t i = 0; i < rank; ++i) result.push_back(is_new(i) ? i : old_places[perm[next++]]);
  return result;
}

Perm Without(const Perm& perm, const Perm& gone) {
  Perm kept;
  for (int64_t p : perm) {
    if (std::find(gone.begin(), gone.end(), p) == gone.end()) kept.push_back(p);
  }
  Perm sorted = kept, result;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t k : kept) {
    result.push_back(std::find(sorted.begin(), sorted.end(), k) - sorted.begin());
  }
  return result;
}

namespace {

Perm WithoutUnits(const Perm& perm, const Dims& dims) {
  Perm result;
  for (int64_t p : perm) {
    if (!ir::IsIntValue(dims[p], 1)) result.push_back(p);
  }
  return result;
}

Expr Product(const Dims& dims, size_t begin, size_t count) {
  Expr product(1);
  for (size_t i = begin; i < begin + count; ++i) product = product * dims[i];
  return product;
}

}  // namespace

bool SameInMemory(const Perm& a, const Perm& b, const Dims& dims) {
  return a.size() == b.size() && a.size() == dims.size() &&
         WithoutUnits(a, dims) == WithoutUnits(b, dims);
}

std::optional<ReshapeGroups> ReshapeGroups::Of(const Dims& from, const Dims& to,
                                               ir::TypeContext* facts) {
  ReshapeGroups result;
  auto size = [](const Expr& d) {
    return ir::AsInt(d).value_or(std::numeric_limits<int64_t>::max());
  };
  for (const Expr& d : from) result.from_size_.push_back(size(d));
  for (const Expr& d : to) result.to_size_.push_back(size(d));
  size_t i = 0, o = 0;
  auto range = [](size_t begin, size_t count) {
    Perm axes(count);
    std::iota(axes.begin(), axes.end(), static_cast<int64_t>(begin));
    return axes;
  };
  while (i < from.size() || o < to.size()) {
    const bool unit_in = i < from.size() && result.from_size_[i] == 1,
               unit_out = o < to.size() && result.to_size_[o] == 1;
    if (unit_in || unit_out) {
      result.groups_.emplace_back(range(i, unit_in), range(o, unit_out));
      i += unit_in;
      o += unit_out;
      continue;
    }
    bool found = false;
    // The fewest axes whose extents have equal products.
    for (size_t total = 2; !found && total <= from.size() - i + to.size() - o; ++total) {
      for (size_t n = 1; !found && n < total; ++n) {
        const size_t m = total - n;
        if (n > from.size() - i || m > to.size() - o) continue;
        if (!facts->ProveEqual(Product(from, i, n), Product(to, o, m))) continue;
        found = true;
        result.groups_.emplace_back(range(i, n), range(o, m));
        i += n;
        o += m;
      }
    }
    if (!found) return std::nullopt;
  }
  return result;
}

ReshapeGroups::Orders ReshapeGroups::Walk(const Perm& order, bool by_result) const {
  const std::vector<int64_t>& size = by_result ? to_size_ : from_size_;
  std::vector<size_t> group_of(order.size());
  Perm anchor(groups_.size(), -1);  // the axis whose place a group takes
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (int64_t axis : by_result ? groups_[g].second : groups_[g].first) {
      group_of[axis] = g;
      if (anchor[g] < 0 || size[axis] > size[anchor[g]]) anchor[g] = axis;
    }
  }
  std::vector<bool> done(groups_.size(), false);
  Orders orders;
  for (int64_t axis : order) {
    const size_t g = group_of[axis];
    if (axis != anchor[g]) continue;
    done[g] = true;
    const auto& [from, to] = groups_[g];
    orders.from.insert(orders.from.end(), from.begin(), from.end());
    orders.to.insert(orders.to.end(), to.begin(), to.end());
  }
  // Axes of extent 1 that only the other side has: wherever they stand, memory is the same.  Next
  // to their neighbour they are where they are expected.
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (done[g]) continue;
    done[g] = true;
    auto place = [&](Perm& perm, const Perm& axes) {
      for (int64_t axis : axes) {
        auto before = std::find(perm.begin(), perm.end(), axis - 1);
        perm.insert(axis == 0 ? perm.begin() : before == perm.end() ? before : before + 1, axis);
      }
    };
    place(orders.from, groups_[g].first);
    place(orders.to, groups_[g].second);
  }
  return orders;
}

}  // namespace relaxvm::passes::layout
