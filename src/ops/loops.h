// SPDX-License-Identifier: Apache-2.0
// Hand-written statements for compute rules that are no formula: loop nests and scalars in memory.
#pragma once

#include "ops/compute.h"

namespace relaxvm::ops {

using tir::Buffer;
using tir::Stmt;

// for i0 in dims[0]: for i1 in dims[1]: ... body(i)
inline Stmt LoopNest(const Dims& dims, const std::function<Stmt(const Indices&)>& body,
                     const std::string& prefix = "i") {
  std::vector<ir::Var> vars;
  Indices i;
  for (size_t d = 0; d < dims.size(); ++d) {
    vars.emplace_back(prefix + std::to_string(d), Int(64));
    i.push_back(vars.back());
  }
  Stmt nest = body(i);
  for (size_t d = dims.size(); d-- > 0;) {
    nest = tir::For(vars[d], Expr(0), dims[d], tir::ForKind::kSerial, nest);
  }
  return nest;
}

// The same with the last axis in vectors: its elements are independent of each other.
inline Stmt VectorNest(const Dims& dims, const std::function<Stmt(const Indices&)>& body,
                       const std::string& prefix = "v") {
  if (dims.empty()) return body({});
  constexpr int64_t kLanes = 16;  // what is more than a register becomes several
  const Expr extent = dims.back(), whole = ir::FloorDiv(extent, Expr(kLanes));
  return LoopNest(
      Dims(dims.begin(), dims.end() - 1),
      [&](const Indices& outer) -> Stmt {
        auto at = [&](const Expr& last) {
          Indices i = outer;
          i.push_back(last);
          return body(i);
        };
        const ir::Var block(prefix + "_block", Int(64)), lane(prefix + "_lane", Int(64));
        const ir::Var left(prefix + "_left", Int(64));
        Stmt vector = tir::For(lane, Expr(0), Expr(kLanes), tir::ForKind::kVectorized,
                               at(block * Expr(kLanes) + lane));
        return tir::SeqStmt::Flatten(
            ffi::Array<Stmt>{tir::For(block, Expr(0), whole, tir::ForKind::kSerial, vector),
                             tir::For(left, Expr(0), ir::FloorMod(extent, Expr(kLanes)),
                                      tir::ForKind::kSerial, at(whole * Expr(kLanes) + left))});
      },
      prefix);
}

// for n in [0, extent): body, of independent rounds, which are split over as many threads as
// `work` steps a round make enough for.
inline Stmt ParallelLines(const ir::Var& n, const Expr& extent, const Expr& work,
                          const Stmt& body) {
  constexpr int64_t kWorkPerThread = 4096;
  ir::DictAttrs annotations;
  annotations.Set("most_threads", ir::FloorDiv(extent * work, Expr(kWorkPerThread)));
  return tir::For(n, Expr(0), extent, tir::ForKind::kParallel, body, "", annotations);
}

// body(i) for every element of `dims`, as lines of one element.
inline Stmt ParallelNest(const Dims& dims, const Expr& work,
                         const std::function<Stmt(const Indices&)>& body,
                         const std::string& prefix = "l") {
  if (dims.empty()) return body({});
  ffi::Array<Stmt> one;
  ir::Var number("line", Int(64));
  Indices i;
  Expr rest = number;
  for (size_t d = dims.size(); d-- > 0;) {
    ir::Var at(prefix + std::to_string(d), Int(64));
    one.push_back(tir::Bind(at, d == 0 ? rest : ir::FloorMod(rest, dims[d])));
    rest = ir::FloorDiv(rest, dims[d]);
    i.insert(i.begin(), at);
  }
  one.push_back(body(i));
  return ParallelLines(number, ProductOf(dims), work, tir::SeqStmt::Flatten(one));
}

inline Stmt Sequence(ffi::Array<Stmt> seq) { return tir::SeqStmt::Flatten(std::move(seq)); }

// One number that statements may change.
class Cell {
 public:
  Cell(const std::string& name, DLDataType dtype) : buffer_(name, {Expr(1)}, dtype, "local") {}
  Stmt Alloc() const { return tir::AllocBuffer(buffer_); }
  Expr Get() const { return buffer_.Load({Expr(0)}); }
  Stmt Set(Expr value) const { return tir::BufferStore(buffer_, std::move(value), {Expr(0)}); }

 private:
  Buffer buffer_;
};

// body(i) for the elements of [0, n) for which may_count(i) holds, and perhaps for others: sixteen
// neighbours are asked at once, and left out when none of them counts.
Stmt ForThoseOf(const Expr& n, const std::function<Expr(const Expr&)>& may_count,
                const std::function<Stmt(const Expr&)>& body);

}  // namespace relaxvm::ops
