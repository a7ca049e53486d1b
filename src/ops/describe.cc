// SPDX-License-Identifier: Apache-2.0
// Types and dimensions in the words of error messages.
#include <sstream>

#include "ir/data_type.h"
#include "ir/prim.h"
#include "ops/op_def.h"

namespace relaxvm::ops {
namespace {

const char* Symbol(ir::BinaryOp op) {
  using ir::BinaryOp;
  switch (op) {
    case BinaryOp::kAdd: return " + ";
    case BinaryOp::kSub: return " - ";
    case BinaryOp::kMul: return " * ";
    case BinaryOp::kDiv: return " / ";
    case BinaryOp::kMod: return " % ";
    case BinaryOp::kFloorDiv: return " // ";
    case BinaryOp::kFloorMod: return " % ";
    case BinaryOp::kMin: return " min ";
    case BinaryOp::kMax: return " max ";
    case BinaryOp::kEQ: return " == ";
    case BinaryOp::kNE: return " != ";
    case BinaryOp::kLT: return " < ";
    case BinaryOp::kLE: return " <= ";
    case BinaryOp::kGT: return " > ";
    case BinaryOp::kGE: return " >= ";
    case BinaryOp::kAnd: return " and ";
    case BinaryOp::kOr: return " or ";
    case BinaryOp::kBitAnd: return " & ";
    case BinaryOp::kBitOr: return " | ";
    case BinaryOp::kBitXor: return " ^ ";
    case BinaryOp::kShiftLeft: return " << ";
    case BinaryOp::kShiftRight: return " >> ";
  }
  RELAXVM_UNREACHABLE();
}

// `depth` bounds the text: what lies deeper is "...".
void Print(std::ostream& os, const Expr& e, int depth) {
  if (!e.defined()) {
    os << "?";
  } else if (const auto* i = e.as<ir::IntImmObj>()) {
    os << i->value;
  } else if (const auto* f = e.as<ir::FloatImmObj>()) {
    os << f->value;
  } else if (const auto* v = e.as<ir::VarObj>()) {
    os << std::string(v->name);
  } else if (const auto* b = e.as<ir::BinaryObj>(); b != nullptr && depth > 0) {
    bool operand = depth < 8;
    if (operand) os << "(";
    Print(os, b->a, depth - 1);
    os << Symbol(b->op);
    Print(os, b->b, depth - 1);
    if (operand) os << ")";
  } else if (const auto* c = e.as<ir::CastObj>()) {
    Print(os, c->value, depth);
  } else {
    os << "...";
  }
}

std::string Join(const Dims& dims) {
  std::ostringstream os;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i != 0) os << ", ";
    Print(os, dims[i], 8);
  }
  return os.str();
}

}  // namespace

std::string DescribeExpr(const Expr& e) {
  std::ostringstream os;
  Print(os, e, 8);
  return os.str();
}

std::string DescribeDims(const Dims& dims) {
  return "(" + Join(dims) + (dims.size() == 1 ? ",)" : ")");
}

std::string DescribeType(const Type& type) {
  std::ostringstream os;
  if (type.IsMissing()) {
    os << "a value of unknown type";
  } else if (const auto* t = type.as<ir::TensorTypeObj>()) {
    os << "Tensor(";
    if (auto dims = t->GetShape()) {
      os << DescribeDims(*dims);
    } else {
      os << "ndim=" << (t->IsUnknownRank() ? std::string("?") : std::to_string(t->ndim));
    }
    if (!t->IsUnknownDtype()) os << ", " << DTypeName(t->dtype);
    os << ")";
  } else if (const auto* s = type.as<ir::ShapeTypeObj>()) {
    if (s->values.has_value()) {
      os << "Shape([" << Join(s->values.value()) << "])";
    } else {
      os << "Shape(ndim=" << (s->ndim < 0 ? std::string("?") : std::to_string(s->ndim)) << ")";
    }
  } else if (const auto* p = type.as<ir::PrimTypeObj>()) {
    os << "a scalar of " << DTypeName(p->dtype);
  } else if (const auto* t = type.as<ir::TupleTypeObj>()) {
    os << "Tuple(";
    for (size_t i = 0; i < t->fields.size() && i < 8; ++i) {
      os << (i == 0 ? "" : ", ") << DescribeType(t->fields[i]);
    }
    os << (t->fields.size() > 8 ? ", ...)" : ")");
  } else if (const auto* adt = type.as<ir::AdtTypeObj>()) {
    os << std::string(adt->name);
    for (size_t i = 0; i < adt->args.size(); ++i)
      os << (i == 0 ? "[" : ", ") << DescribeType(adt->args[i]);
    if (!adt->args.empty()) os << "]";
  } else if (type.as<ir::NothingTypeObj>() != nullptr) {
    os << "nothing";
  } else if (type.as<ir::FuncTypeObj>() != nullptr) {
    os << "a function";
  } else {
    os << "an object";
  }
  return os.str();
}

}  // namespace relaxvm::ops
