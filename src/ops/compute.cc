// SPDX-License-Identifier: Apache-2.0
// What compute rules share; see the header.
#include "ops/compute.h"

namespace relaxvm::ops {

Expr BroadcastAt(const Tensor& x, const Dims& out, const Indices& i) {
  Indices at;
  size_t skip = out.size() - x->shape.size();
  for (size_t d = 0; d < x->shape.size(); ++d) {
    bool repeated = ir::IsIntValue(x->shape[d], 1) && !ir::IsIntValue(out[skip + d], 1);
    at.push_back(repeated ? Expr(0) : i[skip + d]);
  }
  return x(at);
}

DLDataType WideDtype(DLDataType dtype) {
  return IsFloat(dtype) && dtype.bits <= 16 ? Float(32, dtype.lanes) : dtype;
}

Expr ConvertTo(DLDataType dtype, Expr e) {
  DLDataType from = e.dtype();
  if (from == dtype) return e;
  if (IsBool(dtype)) return ir::NotEqual(e, Number(from, 0));
  return ir::Cast(dtype, std::move(e));
}

Expr ProductOf(const Dims& dims, size_t begin, size_t end) {
  Expr product(1);
  for (size_t d = begin; d < end; ++d) product = product * dims[d];
  return product;
}

Expr SafeDivide(const Expr& a, const Expr& b, bool floor) {
  DLDataType t = a.dtype();
  Expr zero = Number(t, 0);
  Expr one = Number(t, 1);
  auto divide = [&](const Expr& y) { return floor ? ir::FloorDiv(a, y) : ir::Div(a, y); };
  if (auto value = ir::AsInt(b); value.has_value() && *value != 0 && *value != -1) return divide(b);
  Expr is_zero = ir::Equal(b, zero);
  if (IsUInt(t)) return ir::Select(is_zero, zero, divide(ir::Select(is_zero, one, b)));
  Expr is_minus_one = ir::Equal(b, Number(t, -1));
  Expr quotient = divide(ir::Select(ir::Or(is_zero, is_minus_one), one, b));
  return ir::Select(is_zero, zero, ir::Select(is_minus_one, zero - a, quotient));
}

Expr SafeRemainder(const Expr& a, const Expr& b, bool floor) {
  DLDataType t = a.dtype();
  Expr zero = Number(t, 0);
  Expr one = Number(t, 1);
  auto remainder = [&](const Expr& y) { return floor ? ir::FloorMod(a, y) : ir::Mod(a, y); };
  if (auto value = ir::AsInt(b); value.has_value() && *value != 0 && *value != -1) {
    return remainder(b);
  }
  Expr special = ir::Equal(b, zero);
  if (!IsUInt(t)) special = ir::Or(special, ir::Equal(b, Number(t, -1)));
  return ir::Select(special, zero, remainder(ir::Select(special, one, b)));
}

Indices Unflatten(const Expr& flat, const Dims& dims) {
  std::vector<Expr> at(dims.size());
  Expr rest = flat;
  for (size_t d = dims.size(); d-- > 0;) {
    at[d] = d == 0 ? rest : ir::FloorMod(rest, dims[d]);
    if (d != 0) rest = ir::FloorDiv(rest, dims[d]);
  }
  return Indices(at.begin(), at.end());
}

Expr Flatten(const Indices& i, const Dims& dims) {
  Expr flat(0);
  for (size_t d = 0; d < dims.size(); ++d) flat = flat * dims[d] + i[d];
  return flat;
}

Expr GuardEmpty(const Expr& value, const Dims& extents) {
  Expr some = ir::BoolImm(true);
  for (const Expr& e : extents) {
    if (ir::AsInt(e).has_value() && !ir::IsIntValue(e, 0)) continue;
    some = ir::And(some, ir::Greater(e, Expr(0)));
  }
  return ir::IfThenElse(some, value, Number(value.dtype(), 0));
}

}  // namespace relaxvm::ops
