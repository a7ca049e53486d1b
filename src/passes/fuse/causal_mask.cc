// SPDX-License-Identifier: Apache-2.0
// Masks are read by asking what one element is: a scalar expression in the query's and the key's
// index.  What depends on data becomes an unknown.
#include "passes/fuse/causal_mask.h"

#include <algorithm>
#include <unordered_map>

#include "analysis/calls.h"
#include "ops/op_def.h"
#include "passes/fuse/constant_number.h"

namespace relaxvm::passes {
namespace {

using analysis::DimsOf;
using ir::BinaryOp;
using ir::Call;
using ir::Expr;
using Indices = std::vector<Expr>;
using ValueOf = std::function<Expr(const Expr&)>;

constexpr int64_t kMaxConstant = int64_t{1}
                                 << 24;  // elements of a constant mask that are looked at
constexpr int kMaxDepth = 64;

const std::unordered_map<std::string, BinaryOp>& Binaries() {
  static const auto* table = new std::unordered_map<std::string, BinaryOp>{
      {"relax.add", BinaryOp::kAdd},          {"relax.subtract", BinaryOp::kSub},
      {"relax.multiply", BinaryOp::kMul},     {"relax.less", BinaryOp::kLT},
      {"relax.less_equal", BinaryOp::kLE},    {"relax.greater", BinaryOp::kGT},
      {"relax.greater_equal", BinaryOp::kGE}, {"relax.logical_and", BinaryOp::kAnd},
      {"relax.logical_or", BinaryOp::kOr},    {"relax.bitwise_and", BinaryOp::kAnd},
      {"relax.bitwise_or", BinaryOp::kOr}};
  return *table;
}

std::optional<double> FloatOf(const Expr& e) {
  if (const auto* number = e.as<ir::FloatImmObj>()) return number->value;
  return std::nullopt;
}

class ElementReader {
 public:
  explicit ElementReader(const ValueOf& value_of) : value_of_(value_of) {}

  // The element of `e` at `at`; a new variable when it depends on data.
  Expr Read(const Expr& e, const Indices& at, int depth = 0) {
    Expr element = depth < kMaxDepth ? Element(e, at, depth + 1) : Expr();
    if (element.defined()) return element;
    const auto* type = e->ty.as<ir::TensorTypeObj>();
    return ir::Var("unknown", type == nullptr ? Int(64) : type->dtype);
  }

 private:
  // Indices of an operand of `dims` that is broadcast from the right.
  static Indices Aligned(const ffi::Array<Expr>& dims, const Indices& at) {
    Indices result;
    for (size_t d = 0; d < dims.size(); ++d) {
      const Expr& index = at[at.size() - dims.size() + d];
      result.push_back(ir::IsIntValue(dims[d], 1) ? Expr(0) : index);
    }
    return result;
  }

  Expr Operand(const Expr& e, const Indices& at, int depth) {
    auto dims = DimsOf(e);
    if (!dims || dims->size() > at.size()) return Expr();
    return Read(e, Aligned(*dims, at), depth);
  }

  Expr Element(const Expr& e, const Indices& at, int depth) {
    if (const auto* constant = e.as<ir::ConstantObj>()) return OfConstant(*constant, at);
    Expr value = value_of_(e);
    if (!value.defined()) return Expr();
    if (value.as<ir::VarObj>() || value.as<ir::ConstantObj>()) return Read(value, at, depth);
    auto call = value.as<Call>();
    const ir::OpObj* op = call.has_value() ? ir::CalledOp(call.value().get()) : nullptr;
    auto dims = op != nullptr ? DimsOf(e) : std::nullopt;
    if (op == nullptr || !dims || dims->size() != at.size()) return Expr();
    return OfCall(call.value(), std::string(op->name), *dims, at, depth);
  }

  Expr OfCall(const Call& call, const std::string& op, const ffi::Array<Expr>& dims,
              const Indices& at, int depth) {
    const Expr& x = call->args.empty() ? call->op : call->args[0];
    if (auto it = Binaries().find(op); it != Binaries().end()) {
      Expr a = Operand(call->args[0], at, depth), b = Operand(call->args[1], at, depth);
      return a.defined() && b.defined() ? OfBinary(it->second, a, b) : Expr();
    }
    if (op == "relax.logical_not" || op == "relax.bitwise_not") {
      Expr element = Read(x, at, depth);
      return element.dtype() == Bool() ? ir::Not(element) : Expr();
    }
    if (op == "relax.where") {
      Expr c = Operand(x, at, depth), a = Operand(call->args[1], at, depth),
           b = Operand(call->args[2], at, depth);
      if (!c.defined() || !a.defined() || !b.defined()) return Expr();
      return ir::Select(c, a, b);
    }
    if (op == "relax.astype") return OfCast(Read(x, at, depth), call);
    if (op == "relax.full") return Operand(call->args[1], at, depth);
    if (op == "relax.ones" || op == "relax.zeros") {
      const DLDataType dtype = call->ty.as<ir::TensorTypeObj>()->dtype;
      return ir::Const(dtype, op == "relax.ones");
    }
    if (op == "relax.tril" || op == "relax.triu") {
      Expr element = Read(x, at, depth);
      const Expr &row = at[at.size() - 2], &column = at.back();
      Expr kept = op == "relax.tril" ? ir::LessEqual(column, row + call->args[1])
                                     : ir::GreaterEqual(column, row + call->args[1]);
      if (element.dtype() == Bool()) return ir::And(kept, element);
      return ir::Select(kept, element, ir::Const(element.dtype(), 0));
    }
    if (op == "relax.arange") {
      if (IsFloat(call->ty.as<ir::TensorTypeObj>()->dtype)) return Expr();
      return call->args[0] + at[0] * (call->args.size() > 2 ? call->args[2] : Expr(1));
    }
    if (op == "relax.shape_to_tensor") {
      const auto* shape = x.as<ir::ShapeExprObj>();
      auto index = ir::AsInt(at[0]);
      if (shape == nullptr || !index) return Expr();
      return shape->values[*index];
    }
    if (op == "relax.reshape" || op == "relax.squeeze" || op == "relax.expand_dims")
      return OfReshape(x, dims, at, depth);
    if (op == "relax.broadcast_to") return Operand(x, at, depth);
    if (op == "relax.permute_dims") return OfPermutation(call, at, depth);
    if (op == "relax.strided_slice") return OfSlice(call, at, depth);
    return Expr();
  }

  static Expr OfBinary(BinaryOp op, const Expr& a, const Expr& b) {
    if ((op == BinaryOp::kAnd || op == BinaryOp::kOr) && a.dtype() != Bool()) return Expr();
    if (!IsFloat(a.dtype())) return a.dtype() == b.dtype() ? ir::Make(op, a, b) : Expr();
    // (seen ? x : y) + z and its kin: numbers of both branches.
    const auto *left = a.as<ir::SelectObj>(), *right = b.as<ir::SelectObj>();
    auto apply = [&](const Expr& x, const Expr& y) -> Expr {
      auto u = FloatOf(x), v = FloatOf(y);
      if (!u || !v) return Expr();
      const float p = static_cast<float>(*u), q = static_cast<float>(*v);
      if (op == BinaryOp::kAdd) return ir::ConstFloat(Float(32), p + q);
      if (op == BinaryOp::kSub) return ir::ConstFloat(Float(32), p - q);
      if (op == BinaryOp::kMul) return ir::ConstFloat(Float(32), p * q);
      return Expr();
    };
    if (left == nullptr && right == nullptr) return apply(a, b);
    if (left != nullptr && right != nullptr) return Expr();
    const ir::SelectObj* choice = left != nullptr ? left : right;
    Expr yes = left != nullptr ? apply(left->true_value, b) : apply(a, right->true_value);
    Expr no = left != nullptr ? apply(left->false_value, b) : apply(a, right->false_value);
    if (!yes.defined() || !no.defined()) return Expr();
    return ir::Select(choice->condition, yes, no);
  }

  static Expr OfCast(const Expr& element, const Call& call) {
    const DLDataType to = call->ty.as<ir::TensorTypeObj>()->dtype, from = element.dtype();
    if (to == from) return element;
    if (from == Bool() && !element.as<ir::VarObj>())
      return ir::Select(element, ir::Const(to, 1), ir::Const(to, 0));
    if (to == Bool()) {
      const auto* choice = element.as<ir::SelectObj>();
      if (choice == nullptr) return Expr();
      auto truth = [](const Expr& e) -> std::optional<bool> {
        if (auto number = FloatOf(e)) return *number != 0;
        if (auto number = ir::AsInt(e)) return *number != 0;
        return std::nullopt;
      };
      auto yes = truth(choice->true_value), no = truth(choice->false_value);
      if (!yes || !no || *yes == *no) return Expr();
      return *yes ? choice->condition : ir::Not(choice->condition);
    }
    // Positions fit every integer that they are kept in.
    const bool index = !IsFloat(to) && !IsFloat(from) && from != Bool() && to.bits >= 32;
    return index && from == Int(64) ? element : Expr();
  }

  // Only axes of extent 1 come and go.
  Expr OfReshape(const Expr& x, const ffi::Array<Expr>& dims, const Indices& at, int depth) {
    auto from = DimsOf(x);
    if (!from) return Expr();
    Indices kept;
    std::vector<Expr> extents;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (ir::IsIntValue(dims[d], 1)) continue;
      kept.push_back(at[d]);
      extents.push_back(dims[d]);
    }
    Indices inner;
    size_t next = 0;
    for (const Expr& d : *from) {
      if (ir::IsIntValue(d, 1)) {
        inner.push_back(Expr(0));
      } else if (next < kept.size() && ir::StructuralEqual(d, extents[next])) {
        inner.push_back(kept[next++]);
      } else {
        return Expr();
      }
    }
    return next == kept.size() ? Read(x, inner, depth) : Expr();
  }

  Expr OfPermutation(const Call& call, const Indices& at, int depth) {
    Indices inner(at.size());
    auto axes = call->attrs.Get("axes").as<ffi::Array<int64_t>>();
    for (size_t i = 0; i < at.size(); ++i) {
      const auto rank = static_cast<int64_t>(at.size());
      int64_t axis = axes.has_value() ? axes.value()[i] : rank - 1 - static_cast<int64_t>(i);
      inner[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = at[i];
    }
    return Read(call->args[0], inner, depth);
  }

  Expr OfSlice(const Call& call, const Indices& at, int depth) {
    const auto *axes = call->args[1].as<ir::TupleObj>(), *begin = call->args[2].as<ir::TupleObj>();
    auto inside = call->attrs.Get("assume_inbound").as<bool>();
    if (axes == nullptr || begin == nullptr) return Expr();
    Indices inner = at;
    for (size_t i = 0; i < axes->fields.size(); ++i) {
      auto axis = ir::AsInt(axes->fields[i]);
      auto first = ir::AsInt(begin->fields[i]);
      if (!axis || (!inside.value_or(false) && !(first.has_value() && *first == 0))) return Expr();
      if (call->args.size() > 4) {
        const auto* strides = call->args[4].as<ir::TupleObj>();
        if (strides == nullptr || !ir::IsIntValue(strides->fields[i], 1)) return Expr();
      }
      const auto rank = static_cast<int64_t>(at.size());
      const auto place = static_cast<size_t>(*axis < 0 ? *axis + rank : *axis);
      inner[place] = inner[place] + begin->fields[i];
    }
    return Read(call->args[0], inner, depth);
  }

  // A number; or a constant matrix of two values below and above a diagonal.
  static Expr OfConstant(const ir::ConstantObj& constant, const Indices& at) {
    const ffi::Tensor& data = constant.data;
    const DLDataType dtype = data.dtype();
    if (data.device().device_type != kDLCPU || dtype.lanes != 1) return Expr();
    int64_t count = 1;
    for (int64_t d : data.shape()) count *= d;
    if (count == 0 || count > kMaxConstant) return Expr();
    auto number = [&](int64_t i) -> Expr {
      const void* p = data.data_ptr();
      if (dtype == Bool()) return ir::BoolImm(static_cast<const uint8_t*>(p)[i] != 0);
      if (auto value = FloatElement(data, i)) return ir::ConstFloat(Float(32), *value);
      if (dtype == Int(64)) return ir::Const(dtype, static_cast<const int64_t*>(p)[i]);
      if (dtype == Int(32)) return ir::Const(Int(64), static_cast<const int32_t*>(p)[i]);
      return Expr();
    };
    Expr first = number(0);
    if (!first.defined() || count == 1) return first;
    const auto shape = data.shape();
    if (shape.size() < 2 || (dtype != Bool() && !IsFloat(dtype))) return Expr();
    const int64_t columns = shape[shape.size() - 1], rows = shape[shape.size() - 2];
    if (rows * columns != count || columns < 2) return Expr();
    const auto width = static_cast<size_t>(SizeInBytes(dtype));
    auto same = [&](int64_t i, int64_t j) {
      const char* p = static_cast<const char*>(data.data_ptr());
      return std::equal(p + i * width, p + i * width + width, p + j * width);
    };
    // As many equal ones at the front of the last row as stand on or below the diagonal.
    const int64_t last = (rows - 1) * columns;
    int64_t seen = 1;
    while (seen < columns && same(last, last + seen)) ++seen;
    // Row r then has seen - (rows - 1 - r) of them; the first row shows both values.
    const int64_t diagonal = seen - rows;
    if (diagonal < 0 || diagonal + 1 >= columns) return Expr();
    const int64_t other = diagonal + 1;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        if (!same(r * columns + c, c <= r + diagonal ? 0 : other)) return Expr();
      }
    }
    Expr below = ir::LessEqual(at.back(), at[at.size() - 2] + Expr(diagonal));
    if (dtype == Bool()) return ir::IsIntValue(first, 1) ? below : ir::Not(below);
    return ir::Select(below, first, number(other));
  }

  const ValueOf& value_of_;
};

// An integer that is at least 0 exactly where the comparison holds; undefined for anything else.
Expr Slack(const Expr& condition, bool holds) {
  if (const auto* no = condition.as<ir::IntrinObj>();
      no != nullptr && no->intrin == ir::Intrin::kNot)
    return Slack(no->args[0], !holds);
  const auto* compare = condition.as<ir::BinaryObj>();
  if (compare == nullptr || !ir::IsComparison(compare->op) || compare->a.dtype() != Int(64))
    return Expr();
  Expr a = compare->a, b = compare->b;
  BinaryOp op = compare->op;
  if (op == BinaryOp::kGT || op == BinaryOp::kGE) {
    std::swap(a, b);
    op = op == BinaryOp::kGT ? BinaryOp::kLT : BinaryOp::kLE;
  }
  if (op != BinaryOp::kLT && op != BinaryOp::kLE) return Expr();
  Expr slack = op == BinaryOp::kLE ? b - a : b - a - Expr(1);
  return holds ? slack : Expr(-1) - slack;
}

struct Place {
  Expr query, key;
};

std::optional<Causal> Diagonal(const Expr& condition, bool holds, const Place& place,
                               const Expr& queries, const Expr& keys, ir::TypeContext* facts) {
  Expr slack = Slack(condition, holds);
  if (!slack.defined()) return std::nullopt;
  Expr before = place.query - place.key;
  // Every query sees a key then.
  if (facts->ProveEqual(slack, before + keys - queries) &&
      facts->Prove(ir::GreaterEqual(keys, queries)))
    return Causal::kBottomRight;
  if (facts->ProveEqual(slack, before)) return Causal::kTopLeft;
  return std::nullopt;
}

struct Reading {
  Place place;
  Expr element;
};

Reading ReadMask(const Expr& mask, const ValueOf& value_of) {
  Reading reading{{ir::Var("query", Int(64)), ir::Var("key", Int(64))}, Expr()};
  auto dims = DimsOf(mask);
  if (!dims || dims->size() < 2) return reading;
  Indices at;
  for (size_t d = 0; d + 2 < dims->size(); ++d) at.push_back(ir::Var("outer", Int(64)));
  at.push_back(reading.place.query);
  at.push_back(reading.place.key);
  for (size_t d = 0; d < dims->size(); ++d) {
    if (ir::IsIntValue((*dims)[d], 1)) at[d] = Expr(0);
  }
  reading.element = ElementReader(value_of).Read(mask, at);
  return reading;
}

}  // namespace

std::optional<Causal> CausalMask(const Expr& seen, const Expr& queries, const Expr& keys,
                                 const ValueOf& value_of, ir::TypeContext* facts) {
  Reading reading = ReadMask(seen, value_of);
  if (!reading.element.defined()) return std::nullopt;
  return Diagonal(reading.element, true, reading.place, queries, keys, facts);
}

std::optional<Causal> CausalBias(const Expr& bias, const Expr& queries, const Expr& keys,
                                 double lowest, const ValueOf& value_of, ir::TypeContext* facts) {
  Reading reading = ReadMask(bias, value_of);
  if (!reading.element.defined()) return std::nullopt;
  const auto* choice = reading.element.as<ir::SelectObj>();
  if (choice == nullptr) return std::nullopt;
  auto yes = FloatOf(choice->true_value), no = FloatOf(choice->false_value);
  if (!yes || !no) return std::nullopt;
  const bool holds = *yes == 0 && *no <= lowest;
  if (!holds && !(*no == 0 && *yes <= lowest)) return std::nullopt;
  return Diagonal(choice->condition, holds, reading.place, queries, keys, facts);
}

}  // namespace relaxvm::passes
