// SPDX-License-Identifier: Apache-2.0
// Sizes get variables of the program's own: a dimension that is a compound expression at the call
// becomes one variable, so that equal work at different places gives equal programs, which are
// compiled once.
#include "lowering/op_to_program.h"

#include <tvm/ffi/container/tensor.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/prim.h"
#include "ir/visitor.h"
#include "tir/functor.h"

namespace relaxvm::lowering {
namespace {

using ir::Call;
using ir::Expr;
using ir::TensorTypeObj;
using ir::Type;
using ir::Var;

// Dimensions of the caller -> dimensions of the program.
class SizeMap {
 public:
  SizeMap(ir::TypeContext& facts, bool abstract) : facts_(facts), abstract_(abstract) {}

  // A dimension of an argument: an immediate stays, a variable gets a new one, an expression
  // becomes a variable when sizes are abstracted.
  Expr Dim(const Expr& dim) {
    if (ir::AsInt(dim).has_value()) return dim;
    Expr simple = facts_.Simplify(dim);
    if (ir::AsInt(simple).has_value()) return simple;
    if (const auto* var = simple.as<ir::VarObj>()) return OfVar(ffi::GetRef<Var>(var));
    if (!abstract_) return Rewrite(simple);
    for (const auto& [from, to] : compound_) {
      if (ir::StructuralEqual(from, simple) || facts_.ProveEqual(from, simple)) return to;
    }
    // What other dimensions give is computed from them: the program then knows how they relate.
    Replacer replacer(*this);
    if (Expr derived = replacer.Mutate(simple); replacer.complete) return derived;
    Var fresh("s" + std::to_string(compound_.size()), simple.dtype());
    compound_.emplace_back(simple, fresh);
    all_.push_back(fresh);
    origin_[fresh.get()] = simple;
    return fresh;
  }

  // Any scalar in the program's variables; compounds that stand for known dimensions are used where
  // they fit.
  Expr Rewrite(const Expr& e) {
    ffi::Map<Var, Expr> map;
    for (const Var& var : ir::FreeVars(e)) map.Set(var, OfVar(var));
    return map.empty() ? e : ir::Substitute(e, map);
  }

  // Names the dimensions of all arguments, the small ones first, so that large ones are expressed
  // in them.
  void Prepare(std::vector<Expr> dims) {
    for (Expr& dim : dims) dim = facts_.Simplify(dim);
    auto num_nodes = [](const Expr& e) {
      int count = 0;
      ir::PostOrderVisit(e, [&](const Expr&) { ++count; });
      return count;
    };
    std::vector<std::pair<int, Expr>> by_size;
    for (const Expr& dim : dims) by_size.emplace_back(num_nodes(dim), dim);
    std::stable_sort(by_size.begin(), by_size.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [size, dim] : by_size) Dim(dim);
  }

  ffi::Array<Expr> Dims(const ffi::Array<Expr>& dims) {
    return dims.Map([this](const Expr& dim) { return Dim(dim); });
  }

  const std::vector<Var>& vars() const { return all_; }

  // What `var` of the program is at the call.
  Expr Origin(const Var& var) const {
    auto it = origin_.find(var.get());
    RELAXVM_CHECK(it != origin_.end()) << "size variable " << var->name << " comes from nowhere";
    return it->second;
  }

 private:
  // Compounds and variables that are known, in place of what they stand for at the call.
  class Replacer : public ir::Mutator {
   public:
    explicit Replacer(const SizeMap& sizes) : sizes_(sizes) {}
    Expr MutateBinary(const ir::Binary& b) override {
      for (const auto& [from, to] : sizes_.compound_) {
        if (ir::StructuralEqual(from, b)) return to;
      }
      return ir::Mutator::MutateBinary(b);
    }
    Expr MutateVar(const Var& var) override {
      auto it = sizes_.vars_.find(var.get());
      complete = complete && it != sizes_.vars_.end();
      return it == sizes_.vars_.end() ? Expr(var) : Expr(it->second);
    }
    bool complete = true;  // everything was known

   private:
    const SizeMap& sizes_;
  };

  Expr OfVar(const Var& var) {
    auto it = vars_.find(var.get());
    if (it != vars_.end()) return it->second;
    Var fresh(var->name, var->ty.as<ir::PrimTypeObj>()->dtype);
    vars_.emplace(var.get(), fresh);
    all_.push_back(fresh);
    origin_.emplace(fresh.get(), var);
    return fresh;
  }

  ir::TypeContext& facts_;
  bool abstract_;
  std::unordered_map<const ffi::Object*, Var> vars_;
  std::vector<Var> all_;  // of the program, in order
  std::vector<std::pair<Expr, Var>> compound_;
  std::unordered_map<const ffi::Object*, Expr> origin_;
};

// The value of a tensor constant of one element as an immediate; `any_rank`: also one with
// dimensions.
std::optional<Expr> ScalarConstant(const Expr& e, bool any_rank) {
  const auto* constant = e.as<ir::ConstantObj>();
  if (constant == nullptr ||
      (any_rank ? constant->data.numel() != 1 : constant->data.ndim() != 0) ||
      constant->data.device().device_type != kDLCPU)
    return std::nullopt;
  DLDataType dtype = constant->data.dtype();
  const void* data = static_cast<const char*>(constant->data.data_ptr());
  auto load = [data]<typename T>(T) {
    T value;
    __builtin_memcpy(&value, data, sizeof(T));
    return value;
  };
  if (dtype.lanes != 1) return std::nullopt;
  if (dtype == Float(32)) return ir::FloatImm(dtype, load(float{}));
  if (dtype == Float(64)) return ir::FloatImm(dtype, load(double{}));
  if (IsBool(dtype)) return ir::IntImm(dtype, load(uint8_t{}) != 0);
  if (IsInt(dtype)) {
    switch (dtype.bits) {
      case 8: return ir::IntImm(dtype, load(int8_t{}));
      case 16: return ir::IntImm(dtype, load(int16_t{}));
      case 32: return ir::IntImm(dtype, load(int32_t{}));
      case 64: return ir::IntImm(dtype, load(int64_t{}));
    }
  }
  if (IsUInt(dtype) && dtype.bits == 8) return ir::IntImm(dtype, load(uint8_t{}));
  return std::nullopt;
}

// Replaces the loads of scalar buffers by their values, and drops these parameters.
class ScalarInliner : public tir::StmtMutator {
 public:
  explicit ScalarInliner(std::unordered_map<std::string, Expr> values)
      : values_(std::move(values)) {}

  tir::PrimFunc Run(const tir::PrimFunc& program) {
    ffi::Array<Var> params;
    for (const Var& param : program->params) {
      auto it = values_.find(param->name);
      if (it != values_.end() && tir::IsBuffer(param)) {
        scalars_.emplace(param.get(), it->second);
      } else {
        params.push_back(param);
      }
    }
    return tir::PrimFunc(params, Mutate(program->body), program->attrs, program->span);
  }

  Expr MutateBufferLoad(const tir::BufferLoad& load) override {
    auto it = scalars_.find(load->buffer.get());
    return it == scalars_.end() ? tir::StmtMutator::MutateBufferLoad(load) : it->second;
  }

  tir::Stmt MutateSBlock(const tir::SBlock& block) override {
    tir::Stmt mutated = tir::StmtMutator::MutateSBlock(block);
    const auto* b = mutated.as<tir::SBlockObj>();
    ffi::Array<tir::BufferRegion> reads;
    for (const tir::BufferRegion& region : b->reads) {
      if (!scalars_.count(region->buffer.get())) reads.push_back(region);
    }
    if (reads.size() == b->reads.size()) return mutated;
    return tir::SBlock(b->iter_vars, reads, b->writes, b->name_hint, b->body, b->init,
                       b->alloc_buffers, b->annotations, b->span);
  }

 private:
  std::unordered_map<std::string, Expr> values_;  // by parameter name
  std::unordered_map<const ffi::Object*, Expr> scalars_;
};

// Type rules refuse sizes that are surely unequal.  Those of which that could not be decided are
// what the program relies on: it checks them before it starts.
class RelianceRecorder : public ir::TypeContext {
 public:
  explicit RelianceRecorder(ir::TypeContext& facts) : facts_(facts) {}

  Expr Simplify(const Expr& e) override { return facts_.Simplify(e); }
  bool ProveEqual(const Expr& a, const Expr& b) override { return facts_.ProveEqual(a, b); }
  bool Prove(const Expr& condition) override {
    if (facts_.Prove(condition)) return true;
    const auto* differ = condition.as<ir::BinaryObj>();
    if (differ != nullptr && differ->op == ir::BinaryOp::kNE &&
        !facts_.ProveEqual(differ->a, differ->b)) {
      undecided_.push_back(ir::Equal(differ->a, differ->b));
    }
    return false;
  }
  // One check for each undecided question.
  ffi::Array<tir::Stmt> Checks(const ir::OpObj* op) const {
    ffi::Array<tir::Stmt> checks;
    for (size_t i = 0; i < undecided_.size(); ++i) {
      bool known = false;
      for (size_t k = 0; k < i; ++k) {
        known = known || ir::StructuralEqual(undecided_[i], undecided_[k]);
      }
      if (known) continue;
      const auto* equal = undecided_[i].as<ir::BinaryObj>();
      checks.push_back(tir::AssertStmt(undecided_[i], "ValueError",
                                       std::string(op->name) + ": " + ops::DescribeExpr(equal->a) +
                                           " and " + ops::DescribeExpr(equal->b) +
                                           " must be equal in the shapes of its arguments"));
    }
    return checks;
  }

 private:
  ir::TypeContext& facts_;
  std::vector<Expr> undecided_;
};

class Converter {
 public:
  Converter(const Call& call, ir::TypeContext& facts, bool abstract)
      : call_(call),
        op_(call->op.as<ir::OpObj>()),
        record_(ops::RecordOf(op_)),
        facts_(facts),
        sizes_(facts, abstract) {}

  ProgramCall Run() {
    ops::ComputeArgs in{Call(call_), {}, Type()};
    std::vector<Expr> dims;
    for (const Expr& arg : call_->args) CollectDims(arg, arg->ty, &dims);
    sizes_.Prepare(std::move(dims));
    ffi::Array<Expr> inner_args;
    for (const Expr& arg : call_->args) inner_args.push_back(Convert(arg, &in.tensors));
    Call inner(call_->op, inner_args, call_->attrs, call_->ty_args, call_->span);
    RelianceRecorder recorder(facts_);
    inner->ty = op_->type_rule(inner, recorder);
    in.call = inner;
    in.out = inner->ty;
    std::vector<tir::Tensor> outputs = record_.compute(in, call_->attrs);
    ffi::Array<Var> scalars = Unbound(outputs);
    ProgramCall result{tir::CreatePrimFunc(placeholders_, outputs, scalars), args_, {}};
    AddChecks(recorder.Checks(op_), outputs, scalars, &result.program);
    KeepUsedScalars(scalars, &result);
    if (!scalar_values_.empty()) result.program = ScalarInliner(scalar_values_).Run(result.program);
    return result;
  }

 private:
  // An argument as the compute rule's call sees it: tensors become variables of the program's
  // shapes.
  Expr Convert(const Expr& arg, std::vector<ops::Tensors>* tensors) {
    tensors->emplace_back();
    if (arg->ty.as<TensorTypeObj>()) return Tensor(arg, &tensors->back());
    if (const auto* type = arg->ty.as<ir::TupleTypeObj>())
      return Tuple(arg, type, &tensors->back());
    if (const auto* shape = arg.as<ir::ShapeExprObj>())
      return ir::ShapeExpr(sizes_.Dims(shape->values), arg->span);
    if (const auto* type = arg->ty.as<ir::ShapeTypeObj>(); type && type->values.has_value()) {
      return ir::ShapeExpr(sizes_.Dims(type->values.value()), arg->span);
    }
    if (ir::IsPrim(arg)) return sizes_.Rewrite(arg);
    return arg;
  }

  static void CollectDims(const Expr& arg, const Type& type, std::vector<Expr>* dims) {
    if (const auto* tensor = type.as<TensorTypeObj>()) {
      auto shape = tensor->GetShape();
      if (shape.has_value()) dims->insert(dims->end(), shape.value().begin(), shape.value().end());
    } else if (const auto* tuple = type.as<ir::TupleTypeObj>()) {
      for (const Type& field : tuple->fields) CollectDims(Expr(), field, dims);
    } else if (const auto* shape = arg.as<ir::ShapeExprObj>()) {
      dims->insert(dims->end(), shape->values.begin(), shape->values.end());
    } else if (const auto* shape_type = type.as<ir::ShapeTypeObj>()) {
      if (!shape_type->values.has_value()) return;
      const auto& values = shape_type->values.value();
      dims->insert(dims->end(), values.begin(), values.end());
    }
  }

  Expr Tensor(const Expr& arg, ops::Tensors* tensors) {
    const auto* type = arg->ty.as<TensorTypeObj>();
    auto shape = type->GetShape();
    RELAXVM_CHECK(shape.has_value())
        << "the shape of an argument of " << op_->name << " is not known";
    ffi::Array<Expr> dims = sizes_.Dims(shape.value());
    std::string name = NameOf(arg);
    tir::Tensor placeholder(name, dims, type->dtype);
    tensors->push_back(placeholder);
    Var var(name, ir::TensorType(dims, type->dtype, type->vdevice));
    placeholders_.push_back(placeholder);
    if (auto value = ScalarConstant(arg, IsKnownBetter(arg))) {
      scalar_values_.emplace(name, *value);
      return arg;  // type rules may look at constants
    }
    args_.push_back(arg);
    return arg.as<ir::ConstantObj>() ? arg : Expr(var);
  }

  // Does the code gain from knowing this number?  Others stay arguments, so that programs which
  // differ in them only are one.
  bool IsKnownBetter(const Expr& arg) const {
    const bool divides = op_->name == "relax.divide" || op_->name == "relax.power";
    return divides && call_->args.size() == 2 && arg.same_as(call_->args[1]);
  }

  Expr Tuple(const Expr& arg, const ir::TupleTypeObj* type, ops::Tensors* tensors) {
    ffi::Array<Expr> fields;
    const auto* literal = arg.as<ir::TupleObj>();
    for (size_t i = 0; i < type->fields.size(); ++i) {
      Expr field = literal ? literal->fields[i] : Expr();
      if (!field.defined()) {
        ir::TupleGetItem item(arg, static_cast<int64_t>(i));
        item->ty = type->fields[i];
        field = item;
      }
      if (field->ty.as<TensorTypeObj>()) {
        fields.push_back(Tensor(field, tensors));
      } else {
        fields.push_back(literal && ir::IsPrim(field) ? sizes_.Rewrite(field) : field);
      }
    }
    ir::Tuple tuple(fields, arg->span);
    ffi::Array<Type> types;
    for (const Expr& field : fields) types.push_back(field->ty);
    tuple->ty = ir::TupleType(types);
    return tuple;
  }

  // Distinct names, because scalar constants are found again by them.
  std::string NameOf(const Expr& arg) {
    std::string name = "c";
    if (const auto* var = arg.as<ir::VarObj>()) name = var->name;
    int& count = names_[name];
    ++count;
    return count == 1 ? name : name + "_" + std::to_string(count - 1) + "_";
  }

  // Variables that no buffer's shape holds as a dimension of its own.
  ffi::Array<Var> Unbound(const std::vector<tir::Tensor>& outputs) const {
    std::unordered_set<const ffi::Object*> bound;
    for (const auto* tensors : {&placeholders_, &outputs}) {
      for (const tir::Tensor& tensor : *tensors) {
        for (const Expr& dim : tensor->shape) bound.insert(dim.get());
      }
    }
    ffi::Array<Var> unbound;
    for (const Var& var : sizes_.vars()) {
      if (!bound.count(var.get())) unbound.push_back(var);
    }
    return unbound;
  }

  // Puts `checks`, which are about this converter's variables, before the program, which has its
  // own.
  void AddChecks(const ffi::Array<tir::Stmt>& checks, const std::vector<tir::Tensor>& outputs,
                 const ffi::Array<Var>& scalars, tir::PrimFunc* program) const {
    if (checks.empty()) return;
    const ffi::Array<Var>& params = (*program)->params;
    ffi::Map<Var, Expr> map;
    std::vector<tir::Tensor> tensors = placeholders_;
    tensors.insert(tensors.end(), outputs.begin(), outputs.end());
    for (size_t i = 0; i < tensors.size(); ++i) {
      tir::Buffer buffer(params[i]);
      for (size_t d = 0; d < tensors[i]->shape.size(); ++d) {
        if (auto var = tensors[i]->shape[d].as<Var>()) map.Set(*var, buffer.shape()[d]);
      }
    }
    for (size_t i = 0; i < scalars.size(); ++i) {
      map.Set(scalars[i], params[params.size() - scalars.size() + i]);
    }
    ffi::Array<tir::Stmt> body;
    for (const tir::Stmt& check : checks) body.push_back(tir::Substitute(check, map));
    body.push_back((*program)->body);
    *program =
        tir::PrimFunc(params, tir::SeqStmt::Flatten(body), (*program)->attrs, (*program)->span);
  }

  // Drops the scalar parameters (the last ones) that the program does not use; the others are
  // passed by the call.
  void KeepUsedScalars(const ffi::Array<Var>& scalars, ProgramCall* result) const {
    if (scalars.empty()) return;
    class Uses : public tir::StmtVisitor {
     public:
      void VisitVar(const ir::VarObj* v) override { used.insert(v); }
      std::unordered_set<const ffi::Object*> used;
    };
    const tir::PrimFunc& program = result->program;
    size_t first = program->params.size() - scalars.size();
    Uses uses;
    ffi::Array<Var> params;
    for (size_t i = 0; i < first; ++i) {
      params.push_back(program->params[i]);
      for (const Expr& dim : tir::Buffer(program->params[i]).shape()) uses.ir::Visitor::Visit(dim);
    }
    uses.Visit(program->body);
    for (size_t i = 0; i < scalars.size(); ++i) {
      if (!uses.used.count(program->params[first + i].get())) continue;
      params.push_back(program->params[first + i]);
      result->tir_vars.push_back(sizes_.Origin(scalars[i]));
    }
    result->program = tir::PrimFunc(params, program->body, program->attrs, program->span);
  }

  Call call_;
  const ir::OpObj* op_;
  const ops::OpDef& record_;
  ir::TypeContext& facts_;
  SizeMap sizes_;
  std::vector<tir::Tensor> placeholders_;
  ffi::Array<Expr> args_;
  std::unordered_map<std::string, Expr> scalar_values_;
  std::unordered_map<std::string, int> names_;
};

bool HasCompoundSizes(const Type& type) {
  if (const auto* tensor = type.as<TensorTypeObj>()) {
    auto shape = tensor->GetShape();
    if (!shape.has_value()) return false;
    for (const Expr& dim : shape.value()) {
      if (!ir::AsInt(dim).has_value() && !dim.as<ir::VarObj>()) return true;
    }
  }
  if (const auto* tuple = type.as<ir::TupleTypeObj>()) {
    for (const Type& field : tuple->fields) {
      if (HasCompoundSizes(field)) return true;
    }
  }
  return false;
}

}  // namespace

ProgramCall OpToProgram(const ir::Call& call, ir::TypeContext& facts) {
  bool compound = false;
  for (const Expr& arg : call->args)
    compound = compound || (arg->ty.defined() && HasCompoundSizes(arg->ty));
  if (compound) {
    // A relation between compound sizes may be what makes the call right; then they are kept as
    // they are.
    try {
      ProgramCall result = Converter(call, facts, /*abstract=*/true).Run();
      if (result.tir_vars.empty()) return result;
    } catch (const ffi::Error&) {
    }
  }
  return Converter(call, facts, /*abstract=*/false).Run();
}

}  // namespace relaxvm::lowering
