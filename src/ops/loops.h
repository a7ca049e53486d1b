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

// body(i) for every element of `dims`: one loop, whose iterations are independent and split over
// threads from two times `kWorkPerThread` steps of `work` an iteration on.
inline Stmt ParallelNest(const Dims& dims, const Expr& work,
                         const std::function<Stmt(const Indices&)>& body,
                         const std::string& prefix = "l") {
  if (dims.empty()) return body({});
  constexpr int64_t kWorkPerThread = 4096;
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
  const Expr total = ProductOf(dims);
  ir::DictAttrs annotations;
  annotations.Set("parallel_if", ir::GreaterEqual(total * work, Expr(2 * kWorkPerThread)));
  return tir::For(number, Expr(0), total, tir::ForKind::kParallel, tir::SeqStmt::Flatten(one), "",
                  annotations);
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

}  // namespace relaxvm::ops
