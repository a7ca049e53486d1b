// SPDX-License-Identifier: Apache-2.0
// Orders of a tensor's axes, and what a reshape does to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/op.h"

namespace relaxvm::passes::layout {

namespace ffi = tvm::ffi;

// perm[i] is the original axis at place i.
using Perm = std::vector<int64_t>;
using Dims = ffi::Array<ir::Expr>;

Perm Identity(size_t n);
bool IsIdentity(const Perm& perm);
Perm Inverse(const Perm& perm);
// Applied one after the other: first `a`, then `b`.
Perm Then(const Perm& a, const Perm& b);
Dims Permuted(const Dims& dims, const Perm& perm);
std::string Permuted(const std::string& letters, const Perm& perm);

// "NCHW" -> "NHWC" is {0, 2, 3, 1}; empty when one has letters that the other lacks (blocked
// layouts).
Perm PermBetween(const std::string& from, const std::string& to);

// `perm` of a result with new axes at places `added`; the others in their order.
Perm Expanded(const Perm& perm, const Perm& added, int64_t rank);
// `perm` without the original axes `gone`, counted anew.
Perm Without(const Perm& perm, const Perm& gone);

// Whether both orders put the elements of a tensor of these extents into the same order: they
// differ by axes of extent 1 only.
bool SameInMemory(const Perm& a, const Perm& b, const Dims& dims);

// A reshape as groups of neighbouring axes: the axes `first` of the argument become `second` of
// the result.  An axis of extent 1 may stand alone on one side.
class ReshapeGroups {
 public:
  // Absent when nothing but the number of all elements is known to agree.
  static std::optional<ReshapeGroups> Of(const Dims& from, const Dims& to, ir::TypeContext* facts);

  struct Orders {
    Perm from, to;
  };
  // Orders of the axes of both sides with the same elements in memory, as near to `from` as
  // possible: a group of several axes goes where its largest one stands.
  Orders Following(const Perm& from) const { return Walk(from, false); }
  // The same, near to the order of the result's axes.
  Orders Leading(const Perm& to) const { return Walk(to, true); }

 private:
  using Group = std::pair<Perm, Perm>;
  Orders Walk(const Perm& order, bool by_result) const;
  std::vector<Group> groups_;
  std::vector<int64_t> from_size_, to_size_;  // of the axes; a symbolic one is the largest there is
};

}  // namespace relaxvm::passes::layout
