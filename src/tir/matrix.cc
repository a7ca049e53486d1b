// SPDX-License-Identifier: Apache-2.0
#include "tir/matrix.h"

#include <string_view>

namespace relaxvm::tir {
namespace {

// In the order of MatrixOp.
constexpr std::array<const char*, 7> kNames = {
    "matrix.configure", "matrix.release", "matrix.zero",        "matrix.load",
    "matrix.store",     "matrix.dot",     "matrix.dot_of_pairs"};

Stmt CallOf(MatrixOp op, const ffi::Array<Expr>& args) {
  const ir::Attrs external(ffi::Map<ffi::String, ffi::Any>{{"extern", true}});
  return Evaluate(ir::Call(ir::ExternFunc(kNames[static_cast<size_t>(op)]), args, external, {},
                           ir::Span(), ir::PrimType(Int(64))));
}

}  // namespace

Stmt ConfigureMatrices(const std::array<MatrixShape, kMatrixRegisters>& shapes) {
  ffi::Array<Expr> args;
  for (const MatrixShape& shape : shapes) {
    args.push_back(shape.rows);
    args.push_back(shape.bytes);
  }
  return CallOf(MatrixOp::kConfigure, args);
}

Stmt ReleaseMatrices() { return CallOf(MatrixOp::kRelease, {}); }
Stmt ZeroMatrix(int64_t to) { return CallOf(MatrixOp::kZero, {Expr(to)}); }

Stmt LoadMatrix(int64_t to, const BufferLoad& from, const Expr& step) {
  return CallOf(MatrixOp::kLoad, {Expr(to), from, step});
}

Stmt StoreMatrix(int64_t from, const BufferLoad& to, const Expr& step) {
  return CallOf(MatrixOp::kStore, {Expr(from), to, step});
}

Stmt AddProducts(int64_t sums, int64_t left, int64_t right, const std::optional<Signs>& bytes) {
  ffi::Array<Expr> args = {Expr(sums), Expr(left), Expr(right)};
  if (!bytes.has_value()) return CallOf(MatrixOp::kDotOfPairs, args);
  args.push_back(Expr(static_cast<int64_t>(bytes->left)));
  args.push_back(Expr(static_cast<int64_t>(bytes->right)));
  return CallOf(MatrixOp::kDot, args);
}

std::optional<MatrixOp> AsMatrixOp(const ir::CallObj* call) {
  const auto* callee = call->op.as<ir::ExternFuncObj>();
  if (callee == nullptr) return std::nullopt;
  const std::string_view name(callee->global_symbol.data(), callee->global_symbol.size());
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<MatrixOp>(i);
  }
  return std::nullopt;
}

}  // namespace relaxvm::tir
