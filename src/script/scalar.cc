// SPDX-License-Identifier: Apache-2.0
// Scalar expressions as script.  A node that Python's operators would fold is written with its
// constructor, so that parsing gives the same node.
#include <charconv>
#include <cmath>

#include "ir/node_kind.h"
#include "ir/visitor.h"
#include "script/printer.h"

namespace relaxvm::script {

using ir::BinaryOp;
using ir::Node;

namespace {

struct BinaryRow {
  const char* infix;  // null: written as a call of `maker`
  int precedence;
  const char* constructor;  // makes exactly this node
};

BinaryRow RowOf(BinaryOp op, bool is_float) {
  switch (op) {
    case BinaryOp::kAdd: return {"+", kAdd, "Add"};
    case BinaryOp::kSub: return {"-", kAdd, "Sub"};
    case BinaryOp::kMul: return {"*", kMul, "Mul"};
    case BinaryOp::kDiv: return {is_float ? "/" : nullptr, kMul, "Div"};
    case BinaryOp::kMod: return {nullptr, kAtom, "Mod"};
    case BinaryOp::kFloorDiv: return {"//", kMul, "FloorDiv"};
    case BinaryOp::kFloorMod: return {"%", kMul, "FloorMod"};
    case BinaryOp::kMin: return {nullptr, kAtom, "Min"};
    case BinaryOp::kMax: return {nullptr, kAtom, "Max"};
    case BinaryOp::kEQ: return {"==", kCompare, "EQ"};
    case BinaryOp::kNE: return {"!=", kCompare, "NE"};
    case BinaryOp::kLT: return {"<", kCompare, "LT"};
    case BinaryOp::kLE: return {"<=", kCompare, "LE"};
    case BinaryOp::kGT: return {">", kCompare, "GT"};
    case BinaryOp::kGE: return {">=", kCompare, "GE"};
    case BinaryOp::kAnd: return {"and", kAnd, "And"};
    case BinaryOp::kOr: return {"or", kOr, "Or"};
    case BinaryOp::kBitAnd: return {nullptr, kAtom, "bitwise_and"};
    case BinaryOp::kBitOr: return {nullptr, kAtom, "bitwise_or"};
    case BinaryOp::kBitXor: return {nullptr, kAtom, "bitwise_xor"};
    case BinaryOp::kShiftLeft: return {nullptr, kAtom, "shift_left"};
    case BinaryOp::kShiftRight: return {nullptr, kAtom, "shift_right"};
  }
  RELAXVM_UNREACHABLE();
}

// Would the folding maker give back this very node?
bool IsFixedPoint(const ir::BinaryObj* b) {
  const Expr made = ir::Make(b->op, b->a, b->b);
  const auto* m = made.as<ir::BinaryObj>();
  return m != nullptr && m->op == b->op && m->a.same_as(b->a) && m->b.same_as(b->b);
}

bool IsImmediate(const Expr& e) { return e.as<ir::IntImmObj>() || e.as<ir::FloatImmObj>(); }

std::string Parens(std::string text, int precedence, int context) {
  return precedence < context ? "(" + std::move(text) + ")" : text;
}

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "float(\"nan\")";
  if (std::isinf(value)) return value > 0 ? "float(\"inf\")" : "float(\"-inf\")";
  char buffer[40];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string Join(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i != 0) text += separator;
    text += parts[i];
  }
  return text;
}

// `bare`: the reader takes the dtype from the other operand.
std::string Printer::Literal(const Expr& imm, bool bare) {
  const DLDataType dtype = imm.dtype();
  std::string text;
  if (const auto* i = imm.as<ir::IntImmObj>()) {
    if (IsBool(dtype)) return i->value ? "T.bool(True)" : "T.bool(False)";
    text = std::to_string(i->value);
    bare = bare || dtype == Int(in_program_ ? 32 : 64);
  } else {
    text = FloatText(imm.as<ir::FloatImmObj>()->value);
    bare = bare || dtype == Float(32);
    if (text[0] == 'f') {  // float("nan")
      text = text.substr(6, text.size() - 7);
      bare = false;
    }
  }
  return bare ? text : "T." + DTypeName(dtype) + "(" + text + ")";
}

std::string Printer::Operand(const Expr& e, const Expr& other, int context) {
  if (IsImmediate(e) && !IsImmediate(other)) {
    std::string text = Literal(e, true);
    return text[0] == '-' ? Parens(std::move(text), kUnary, context) : text;
  }
  return Scalar(e, context);
}

std::string Printer::Binary(const ir::BinaryObj* b, int context) {
  const BinaryRow row = RowOf(b->op, IsFloat(b->a.dtype()));
  // Comparisons do not chain, and operators of one rank group to the left.
  const bool compare = row.precedence == kCompare;
  const int left = compare ? row.precedence + 1 : row.precedence;
  if (row.infix != nullptr && IsFixedPoint(b)) {
    std::string text =
        Operand(b->a, b->b, left) + " " + row.infix + " " + Operand(b->b, b->a, row.precedence + 1);
    return Parens(std::move(text), row.precedence, context);
  }
  std::string name = row.constructor;
  if (row.infix == nullptr && IsFixedPoint(b)) {
    if (b->op == BinaryOp::kMin) name = "min";
    if (b->op == BinaryOp::kMax) name = "max";
  }
  return "T." + name + "(" + Operand(b->a, b->b, kLoose) + ", " + Operand(b->b, b->a, kLoose) + ")";
}

std::string Printer::Intrinsic(const ir::IntrinObj* i) {
  const std::string name = ir::IntrinName(i->intrin);
  const DLDataType dtype = i->ty.as<ir::PrimTypeObj>()->dtype;
  if (i->intrin == ir::Intrin::kReinterpret) {
    return "T.reinterpret(" + Quoted(DTypeName(dtype)) + ", " + Scalar(i->args[0]) + ")";
  }
  const bool usual =
      ir::IntrinExpr(ir::CallIntrin(i->intrin, i->args).dtype(), i->intrin, i->args).dtype() ==
      dtype;
  if (!usual) {
    return "T.call_intrin(" + Quoted(DTypeName(dtype)) + ", " + Quoted(name) + ", " +
           Scalars(i->args) + ")";
  }
  return "T." + name + "(" + Scalars(i->args) + ")";
}

std::string Printer::TensorProgramCall(const ir::CallObj* call) {
  std::vector<std::string> parts;
  const auto* packed = call->op.as<ir::ExternFuncObj>();
  const auto* prim = call->ty.as<ir::PrimTypeObj>();
  const bool is_extern = call->attrs.defined();
  if (call->op.as<ir::GlobalVarObj>()) return Value(call->op) + "(" + Scalars(call->args) + ")";
  if (packed == nullptr) return Value(ffi::GetRef<ir::Call>(call));
  if (is_extern) parts.push_back(Quoted(DTypeName(prim != nullptr ? prim->dtype : Void())));
  parts.push_back(
      Quoted(std::string_view(packed->global_symbol.data(), packed->global_symbol.size())));
  for (const Expr& a : call->args) {
    const auto* s = a.as<ir::StringImmObj>();
    parts.push_back(s != nullptr ? Quoted(std::string_view(s->value.data(), s->value.size()))
                                 : Scalar(a));
  }
  return std::string(is_extern ? "T.call_extern(" : "T.call_packed(") + Join(parts) + ")";
}

std::string Printer::Scalar(const Expr& e, int context) {
  switch (ir::NodeOf(e.get())) {
    case Node::kIntImm:
    case Node::kFloatImm: {
      std::string text = Literal(e, false);
      return text[0] == '-' ? Parens(std::move(text), kUnary, context) : text;
    }
    case Node::kVar: return NameOf(e.as<Var>().value());
    case Node::kBinary: return Binary(e.as<ir::BinaryObj>(), context);
    case Node::kCast: {
      const auto* c = e.as<ir::CastObj>();
      return "T.Cast(" + Quoted(DTypeName(e.dtype())) + ", " + Scalar(c->value) + ")";
    }
    case Node::kSelect: {
      const auto* s = e.as<ir::SelectObj>();
      return "T.Select(" + Scalar(s->condition) + ", " + Scalar(s->true_value) + ", " +
             Scalar(s->false_value) + ")";
    }
    case Node::kLet: {
      const auto* l = e.as<ir::LetObj>();
      std::string value = Scalar(l->value), var = NameOf(l->var);
      return "T.Let(" + Scalar(l->body) + ", where={" + var + ": " + value + "})";
    }
    case Node::kRamp: {
      const auto* r = e.as<ir::RampObj>();
      return "T.Ramp(" + Scalar(r->base) + ", " + Operand(r->stride, r->base, kLoose) + ", " +
             std::to_string(r->lanes) + ")";
    }
    case Node::kBroadcast: {
      const auto* b = e.as<ir::BroadcastObj>();
      return "T.Broadcast(" + Scalar(b->value) + ", " + std::to_string(b->lanes) + ")";
    }
    case Node::kShuffle: {
      const auto* s = e.as<ir::ShuffleObj>();
      std::vector<std::string> indices;
      for (int64_t i : s->indices) indices.push_back(std::to_string(i));
      return "T.Shuffle([" + Scalars(s->vectors) + "], [" + Join(indices) + "])";
    }
    case Node::kIntrin: {
      const auto* i = e.as<ir::IntrinObj>();
      if (i->intrin == ir::Intrin::kNot) {
        Expr made = ir::Not(i->args[0]);
        const auto* m = made.as<ir::IntrinObj>();
        if (m != nullptr && m->intrin == ir::Intrin::kNot && m->args[0].same_as(i->args[0])) {
          return Parens("not " + Scalar(i->args[0], kNot), kNot, context);
        }
      }
      return Intrinsic(i);
    }
    case Node::kCall: return in_program_ ? TensorProgramCall(e.as<ir::CallObj>()) : Value(e);
    case Node::kOther:
      if (const auto* l = e.as<tir::BufferLoadObj>()) {
        if (!l->predicate.defined()) return NameOf(l->buffer) + "[" + Indices(l->indices) + "]";
        return NameOf(l->buffer) + ".vload([" + Scalars(l->indices) +
               "], predicate=" + Scalar(l->predicate) + ")";
      }
      return Value(e);
    case Node::kStringImm: {
      const auto* s = e.as<ir::StringImmObj>();
      return Quoted(std::string_view(s->value.data(), s->value.size()));
    }
    default: return Value(e);
  }
}

std::string Printer::Scalars(const ffi::Array<Expr>& list) {
  std::vector<std::string> parts;
  for (const Expr& e : list) parts.push_back(Scalar(e));
  return Join(parts);
}

std::string Printer::Tuple(const ffi::Array<Expr>& list) {
  return "(" + Scalars(list) + (list.size() == 1 ? ",)" : ")");
}

std::string Printer::Indices(const ffi::Array<Expr>& list) {
  return list.empty() ? "()" : Scalars(list);
}

}  // namespace relaxvm::script
