// SPDX-License-Identifier: Apache-2.0
// FuseTransposeMatmul: a matrix product whose right side was transposed just for it becomes one
// tensor program, NT_matmul, that reads that side row by row.  Stage: graph, in dataflow blocks.
// Keeps: transposes that others read, and factors of unknown shape.  The groups that it found stay
// behind as private functions that nobody calls; FuseTIR and DeadCodeElimination remove them.
#include <utility>

#include "analysis/pattern.h"
#include "ops/op_def.h"
#include "passes/fuse/composite.h"
#include "passes/pass.h"
#include "tir/tensor.h"

namespace relaxvm::passes {
namespace {

using analysis::Pattern;
using analysis::PatternKind;
using ir::Expr;
using ir::Var;
using Values = ffi::Map<ffi::String, Expr>;

constexpr const char* kName = "transpose_matmul_fuse";

Pattern CallOfOp(const char* op, std::initializer_list<Pattern> args) {
  ffi::Array<ffi::ObjectRef> parts = {Pattern(PatternKind::kExpr, {}, ops::GetOp(op))};
  for (const Pattern& arg : args) parts.push_back(arg);
  return Pattern(PatternKind::kCall, parts, nullptr, "", 0);
}

ffi::Optional<ffi::Array<Expr>> DimsOf(const Expr& e) {
  const auto* tensor = e->ty.as<ir::TensorTypeObj>();
  return tensor == nullptr || tensor->IsUnknownDtype() ? std::nullopt : tensor->GetShape();
}

// Does it exchange the last two dimensions and nothing else?
bool IsTranspose(const ir::CallObj* permute) {
  auto dims = DimsOf(permute->args[0]);
  if (!dims.has_value() || dims.value().size() < 2) return false;
  const auto ndim = static_cast<int64_t>(dims.value().size());
  const auto axes = ops::AttrOf<std::optional<ops::Ints>>(ffi::GetRef<ir::Call>(permute), "axes");
  if (!axes.has_value()) return ndim == 2;
  for (int64_t d = 0; d < ndim; ++d) {
    const int64_t from = d < ndim - 2 ? d : 2 * ndim - 3 - d;
    if (((*axes)[d] + ndim) % ndim != from) return false;
  }
  return true;
}

bool Accepts(const Expr& root, const Values& found, const ffi::Map<Var, Expr>&,
             const ffi::Map<Var, ffi::Array<Var>>& users, const ffi::Map<Expr, Var>& bound) {
  const Expr transpose = found["transpose"];
  auto var = bound.find(transpose);
  if (var == bound.end() || !(*var).second.as<ir::DataflowVarObj>()) return false;
  auto readers = users.find((*var).second);
  if (readers == users.end() || (*readers).second.size() != 1) return false;
  const auto* product = root.as<ir::CallObj>();
  return IsTranspose(transpose.as<ir::CallObj>()) && DimsOf(product->args[0]).has_value() &&
         DimsOf(root).has_value();
}

IRModule FindGroups(IRModule mod) {
  const Pattern x(PatternKind::kWildcard, {}), w(PatternKind::kWildcard, {});
  const Pattern transpose = CallOfOp("relax.permute_dims", {w});
  const Pattern product = CallOfOp("relax.matmul", {x, transpose});
  const ffi::Map<ffi::String, Pattern> names = {{"transpose", transpose}};
  const ffi::Array<ffi::Any> row = {ffi::String(kName), product, names,
                                    ffi::Function::FromTyped(Accepts)};
  PassContext context;
  context.options.Set("patterns", ffi::Array<ffi::Array<ffi::Any>>{row});
  context.options.Set("bind_constants", false);
  context.options.Set("annotate_codegen", false);
  context.options.Set("entry_functions", nullptr);
  return FuseOpsByPattern(std::move(mod), context);
}

// out[batch..., m, n] = sum over k of x[batch..., m, k] * w[batch..., n, k]; a vector x has no m.
tir::PrimFunc Program(const ffi::Array<Expr>& x_dims, DLDataType x_dtype,
                      const ffi::Array<Expr>& w_dims, DLDataType w_dtype,
                      const ir::TensorTypeObj* result, const ffi::Array<Var>& sizes) {
  const tir::Tensor x("x", x_dims, x_dtype), w("w", w_dims, w_dtype);
  const ffi::Array<Expr> out = result->GetShape().value();
  const size_t rows = x_dims.size() > 1 ? 1 : 0;
  const size_t num_batch = out.size() - rows - 1;
  auto batch_index = [&](const ffi::Array<Expr>& dims, const tir::Indices& i) {
    tir::Indices at;
    const size_t own = dims.size() > 2 ? dims.size() - 2 : 0;
    for (size_t d = 0; d < own; ++d) {
      const size_t o = num_batch - own + d;
      const bool repeated = ir::IsIntValue(dims[d], 1) && !ir::IsIntValue(out[o], 1);
      at.push_back(repeated ? Expr(0) : i[o]);
    }
    return at;
  };
  auto formula = [&](const tir::Indices& i, const tir::Indices& k) {
    tir::Indices a = batch_index(x_dims, i), b = batch_index(w_dims, i);
    if (rows != 0) a.push_back(i[num_batch]);
    a.push_back(k[0]);
    b.push_back(i[num_batch + rows]);
    b.push_back(k[0]);
    return ir::Cast(result->dtype, x(a)) * ir::Cast(result->dtype, w(b));
  };
  const tir::Tensor product =
      tir::Reduce(out, {x_dims.back()}, tir::SumReducer(result->dtype), formula, "NT_matmul");
  return tir::CreatePrimFunc({x, w}, {product}, sizes);
}

// Sizes that stand alone in no dimension of a factor: the program gets them as numbers.
ffi::Array<Var> UntoldSizes(const Expr& x, const Expr& w) {
  ffi::Map<Var, Var> told, untold;
  for (const Expr& factor : {x, w}) {
    for (const Var& v : ir::DefinableSymbolicVars(factor->ty)) told.Set(v, v);
  }
  ffi::Array<Var> sizes;
  for (const Expr& factor : {x, w}) {
    for (const Var& v : ir::SymbolicVars(factor->ty)) {
      if (told.count(v) || untold.count(v)) continue;
      untold.Set(v, v);
      sizes.push_back(v);
    }
  }
  return sizes;
}

class GroupReplacer : public ir::Mutator {
 public:
  explicit GroupReplacer(ir::BlockBuilder* builder) : builder_(builder) {}

  Expr MutateCall(const ir::Call& call) override {
    const ir::FunctionObj* group = GroupCalled(call);
    if (group == nullptr) return ir::Mutator::MutateCall(call);
    // The group is what the pattern says: the transpose, then the product.
    const auto& bindings = group->body->blocks[0]->bindings;
    const auto* transpose = bindings[0]->value.as<ir::CallObj>();
    const auto* product = bindings[1]->value.as<ir::CallObj>();
    const Expr x = ArgumentFor(product->args[0], group, call);
    const Expr w = ArgumentFor(transpose->args[0], group, call);
    const auto* result = call->ty.as<ir::TensorTypeObj>();
    const ffi::Array<Var> sizes = UntoldSizes(x, w);
    const tir::PrimFunc program =
        Program(DimsOf(x).value(), x->ty.as<ir::TensorTypeObj>()->dtype, DimsOf(w).value(),
                w->ty.as<ir::TensorTypeObj>()->dtype, result, sizes);
    ffi::Array<Expr> args = {builder_->AddFunction(program, "NT_matmul"), ir::Tuple({x, w})};
    if (!sizes.empty()) args.push_back(ir::ShapeExpr(ffi::Array<Expr>(sizes.begin(), sizes.end())));
    return builder_->Normalize(ops::MakeCall("relax.call_tir", args, {}, {call->ty}, call->span));
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  const ir::FunctionObj* GroupCalled(const ir::Call& call) const {
    auto var = call->op.as<ir::GlobalVar>();
    if (!var) return nullptr;
    auto func = builder_->module()->functions.find(*var);
    if (func == builder_->module()->functions.end()) return nullptr;
    const auto* group = (*func).second.as<ir::FunctionObj>();
    if (group == nullptr || ir::GetAttr<ffi::String>(group->attrs, kComposite, "") != kName)
      return nullptr;
    return group;
  }
  // What a parameter of the group stands for; constants and values stand for themselves.
  static Expr ArgumentFor(const Expr& e, const ir::FunctionObj* group, const ir::Call& call) {
    for (size_t i = 0; i < group->params.size(); ++i) {
      if (group->params[i].same_as(e)) return call->args[i];
    }
    return e;
  }

  ir::BlockBuilder* builder_;
};

}  // namespace

IRModule FuseTransposeMatmul(IRModule mod, const PassContext& context) {
  IRModule grouped = FindGroups(mod);
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  ir::BlockBuilder builder(facts.get(), grouped);
  GroupReplacer replacer(&builder);
  bool changed = false;
  for (const auto& [var, func] : grouped->functions) {
    auto function = func.as<ir::Function>();
    if (!function || IsComposite(function->get())) continue;
    Expr made = replacer.MutateFunction(*function);
    if (made.same_as(func)) continue;
    builder.UpdateFunction(var, made.as<ir::Function>().value());
    changed = true;
  }
  return changed ? builder.module() : mod;
}

}  // namespace relaxvm::passes
