// SPDX-License-Identifier: Apache-2.0
// TabulateBytes: bytes that are computed element by element from other bytes and numbers known at
// compile time are read from a table:
//   quantize(sigmoid(dequantize(x)))  ->  rvm.byte_table(x, table)
// Stage: graph.  The table is the same calls on all 256 bytes, which FoldConstant evaluates.
// Worth it from one elementary function or two roundings on; what a table replaces need not be used
// by it alone.
#include <unordered_map>
#include <unordered_set>

#include "analysis/calls.h"
#include "ir/block_builder.h"
#include "ir/visitor.h"
#include "ops/op_def.h"
#include "passes/pass.h"
#include "support/host_tensor.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

// Elementwise operators, and how much of the work that makes a table worth it each of them is.
constexpr int kEnough = 2;
const std::unordered_map<std::string, int>& Elementwise() {
  static const std::unordered_map<std::string, int> table = {
      {"abs", 0},          {"add", 0},     {"astype", 0},   {"ceil", 0},     {"clip", 0},
      {"divide", 0},       {"erf", 2},     {"exp", 2},      {"floor", 0},    {"log", 2},
      {"maximum", 0},      {"minimum", 0}, {"multiply", 0}, {"negative", 0}, {"nn.gelu", 2},
      {"nn.leakyrelu", 0}, {"nn.relu", 0}, {"nn.silu", 2},  {"power", 2},    {"round", 1},
      {"rsqrt", 1},        {"sigmoid", 2}, {"sqrt", 1},     {"square", 0},   {"subtract", 0},
      {"tanh", 2},
  };
  return table;
}

// What a value is computed from.
struct Origin {
  enum class Kind { kKnown, kBytes, kOther } kind = Kind::kOther;
  Expr bytes;    // of kBytes
  int work = 0;  // since then
};

const ir::TensorTypeObj* TensorOf(const Expr& e) { return e->ty.as<ir::TensorTypeObj>(); }

bool IsBytes(const Expr& e) {
  const auto* type = TensorOf(e);
  return type != nullptr && !type->IsUnknownDtype() && IsInteger(type->dtype) &&
         type->dtype.bits == 8 && type->GetShape().has_value();
}

// One number, with no more dimensions than `ndim`.
bool IsNumber(const Expr& e) {
  const auto* type = TensorOf(e);
  if (type == nullptr || !type->GetShape()) return false;
  for (const Expr& dim : type->GetShape().value()) {
    if (!ir::IsIntValue(dim, 1)) return false;
  }
  return true;
}

// About the variables of a block.
struct Known {
  std::unordered_map<const ffi::Object*, Origin> origins;
  std::unordered_map<const ffi::Object*, Expr> values;
};

class Tabulator : public ir::Mutator {
 public:
  Tabulator(const IRModule& mod, ir::TypeContext* facts) : builder_(facts, mod) {}

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    // What another block computes from is perhaps not visible here.
    Known outer = std::move(known_);
    known_ = {};
    const ir::BindingBlock out = Tabulated(block);
    known_ = std::move(outer);
    return out;
  }

 private:
  ir::BindingBlock Tabulated(const ir::BindingBlock& block) {
    bool any = false;
    for (const ir::Binding& b : block->bindings) {
      Read(b);
      any |= IsWorthIt(b);
    }
    if (!any) return ir::Mutator::MutateBlock(block);
    builder_.BeginBlock(block.as<ir::DataflowBlockObj>() != nullptr);
    for (const ir::Binding& binding : block->bindings) {
      ffi::Array<ir::Binding> rewritten;
      ir::Mutator::MutateBinding(binding, &rewritten);
      ir::Binding now = rewritten[0];
      if (IsWorthIt(binding)) {
        const Expr& bytes = known_.origins.at(binding->var.get()).bytes;
        const Expr table = TableOf(binding->var, bytes);
        Expr value = ops::MakeCall("rvm.byte_table", {bytes, table});
        now = ir::VarBinding(now->var, builder_.Normalize(value), now->span);
      }
      builder_.EmitBinding(now);
    }
    return builder_.EndBlock();
  }

  bool IsWorthIt(const ir::Binding& b) const {
    auto it = known_.origins.find(b->var.get());
    if (it == known_.origins.end() || !IsBytes(b->var)) return false;
    const Origin& origin = it->second;
    return origin.kind == Origin::Kind::kBytes && !origin.bytes.same_as(b->var) &&
           origin.work >= kEnough;
  }

  static const ir::CallObj* ElementwiseCall(const Expr& value, int* work) {
    const auto* call = value.as<ir::CallObj>();
    const auto* op = call == nullptr ? nullptr : call->op.as<ir::OpObj>();
    if (op == nullptr) return nullptr;
    std::string name(op->name);
    if (name.rfind("relax.", 0) == 0) name = name.substr(6);
    auto it = Elementwise().find(name);
    if (it == Elementwise().end()) return nullptr;
    *work = it->second;
    return call;
  }

  void Read(const ir::Binding& b) {
    Origin origin;
    if (b.as<ir::VarBindingObj>()) origin = Computed(b->value, b->var);
    if (origin.kind == Origin::Kind::kOther && IsBytes(b->var))
      origin = {Origin::Kind::kBytes, b->var, 0};
    known_.origins[b->var.get()] = origin;
    known_.values[b->var.get()] = b->value;
  }

  Origin Computed(const Expr& value, const Var& var) {
    if (value.as<ir::ConstantObj>()) return {Origin::Kind::kKnown, Expr(), 0};
    if (value.as<ir::VarObj>()) return OriginOf(value);
    int work = 0;
    if (OnlyReshapes(value) && IsNumber(var)) {
      const Origin origin = OriginOf(value.as<ir::CallObj>()->args[0]);
      return origin.kind == Origin::Kind::kKnown ? origin : Origin();
    }
    const auto* call = ElementwiseCall(value, &work);
    if (call == nullptr) return {};
    Origin all{Origin::Kind::kKnown, Expr(), work};
    for (const Expr& arg : call->args) {
      if (TensorOf(arg) == nullptr) continue;  // limits of a clip
      Origin origin = OriginOf(arg);
      if (origin.kind == Origin::Kind::kOther) return {};
      if (origin.kind == Origin::Kind::kKnown) {
        if (!IsNumber(arg)) return {};
        continue;
      }
      if (all.kind == Origin::Kind::kBytes && !all.bytes.same_as(origin.bytes)) return {};
      all = {Origin::Kind::kBytes, origin.bytes, all.work + origin.work};
    }
    if (all.kind == Origin::Kind::kBytes && !SameShape(all.bytes, var)) return {};
    return all;
  }

  static bool OnlyReshapes(const Expr& value) {
    for (const char* op :
         {"relax.reshape", "relax.permute_dims", "relax.expand_dims", "relax.squeeze"}) {
      if (analysis::CallsOp(value, op)) return true;
    }
    return false;
  }

  Origin OriginOf(const Expr& e) {
    if (e.as<ir::ConstantObj>()) return {Origin::Kind::kKnown, Expr(), 0};
    auto it = known_.origins.find(e.get());
    if (it != known_.origins.end()) return it->second;
    if (e.as<ir::VarObj>() && IsBytes(e)) return {Origin::Kind::kBytes, e, 0};  // a parameter
    return {};
  }

  static bool SameShape(const Expr& a, const Expr& b) {
    const auto *left = TensorOf(a), *right = TensorOf(b);
    if (left == nullptr || right == nullptr || !left->GetShape() || !right->GetShape())
      return false;
    return ir::StructuralEqual(left->GetShape().value(), right->GetShape().value());
  }

  // The calls between `bytes` and `result`, on a vector of all bytes.
  Expr TableOf(const Expr& result, const Expr& bytes) {
    std::unordered_map<const ffi::Object*, Expr> made;
    made[bytes.get()] = AllBytes(TensorOf(bytes)->dtype);
    std::vector<Expr> todo = {result};
    while (!todo.empty()) {
      const Expr e = todo.back();
      if (made.count(e.get()) || !IsComputed(e)) {
        todo.pop_back();
        continue;
      }
      const auto* call = known_.values.at(e.get()).as<ir::CallObj>();
      const auto* alias = known_.values.at(e.get()).as<ir::VarObj>();
      const ffi::Array<Expr> args =
          alias ? ffi::Array<Expr>{known_.values.at(e.get())} : call->args;
      const size_t before = todo.size();
      for (const Expr& arg : args) {
        if (IsComputed(arg) && !made.count(arg.get())) todo.push_back(arg);
      }
      if (todo.size() > before) continue;
      ffi::Array<Expr> now;
      for (const Expr& arg : args) now.push_back(Replaced(made, arg));
      made[e.get()] =
          alias ? now[0] : builder_.Emit(ir::Call(call->op, now, call->attrs, {}, call->span));
      todo.pop_back();
    }
    return made.at(result.get());
  }

  bool IsComputed(const Expr& e) const {
    auto it = known_.origins.find(e.get());
    return it != known_.origins.end() && it->second.kind == Origin::Kind::kBytes;
  }

  // Numbers become scalars: with dimensions they would give the vector some as well.
  Expr Replaced(const std::unordered_map<const ffi::Object*, Expr>& made, const Expr& arg) {
    if (auto it = made.find(arg.get()); it != made.end()) return it->second;
    if (TensorOf(arg) == nullptr || TensorOf(arg)->ndim == 0) return arg;
    return builder_.Emit(ops::MakeCall("reshape", {arg, ir::ShapeExpr(ffi::Array<Expr>())}));
  }

  static Expr AllBytes(DLDataType dtype) {
    ffi::Tensor all = NewHostTensor({256}, dtype);
    auto* data = static_cast<uint8_t*>(all.data_ptr());
    for (int i = 0; i < 256; ++i) data[i] = static_cast<uint8_t>(i);
    return ir::Constant(all);
  }

  ir::BlockBuilder builder_;
  Known known_;
};

}  // namespace

IRModule TabulateBytes(IRModule mod, const PassContext& context) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& f) {
    return Tabulator(mod, facts.get()).Mutate(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
