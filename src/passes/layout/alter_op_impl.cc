// SPDX-License-Identifier: Apache-2.0
// AlterOpImpl: tensor programs with attribute "operator_name" are replaced by given ones, whose
// buffers may lie in other layouts; changes of layout go around each call.  Where the new layout
// has padding, a program "remove_pad" takes it off the results.  Stage: lowered.
#include <algorithm>
#include <string>
#include <utility>

#include "analysis/calls.h"
#include "arith/analyzer.h"
#include "ops/op_def.h"
#include "passes/layout/emit.h"
#include "passes/pass.h"
#include "tir/functor.h"
#include "tir/index_map.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::TensorType;
using ir::Type;
using ir::Var;
using tir::IndexMap;

constexpr const char* kOperatorName = "operator_name";

using Programs = ffi::Map<ffi::String, tir::PrimFunc>;
// For each buffer of a program its new layout, or None; none at all: every layout stays.
using Layouts = ffi::Map<ffi::String, ffi::Array<ffi::Any>>;

// The first `rank` dimensions' worth of elements, from the start of each axis.
tir::PrimFunc RemovePad(size_t rank, DLDataType dtype) {
  ffi::Array<Expr> padded, shape;
  for (size_t d = 0; d < rank; ++d) {
    padded.push_back(Var("p" + std::to_string(d), Int(64)));
    shape.push_back(Var("i" + std::to_string(d), Int(64)));
  }
  tir::Tensor input("input", padded, dtype);
  tir::Tensor output =
      tir::Compute(shape, [&](const tir::Indices& i) { return input(i); }, "output");
  tir::PrimFunc program = tir::CreatePrimFunc({input}, {output});
  program = ir::WithAttr(program, kOperatorName, ffi::String("remove_pad"));
  return ir::WithAttr(program, tir::attr::kNoAlias, true);
}

class ProgramReplacer : public EmittingMutator {
 public:
  ProgramReplacer(ir::BlockBuilder* builder, Programs programs, Layouts layouts)
      : EmittingMutator(builder), programs_(std::move(programs)), layouts_(std::move(layouts)) {}

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    auto call = analysis::AsCallTir(binding->value);
    const std::string name = call ? OperatorName(call->func) : "";
    if (name.empty() || !programs_.count(name) || !binding.as<ir::VarBindingObj>())
      return ir::Mutator::MutateBinding(binding, out);
    span_ = call->call->span.defined() ? call->call->span : binding->span;
    const Type result = call->call->ty_args[0];
    const Expr args = Mutate(call->call->args[1]);
    ffi::Array<Expr> inputs = args.as<ir::TupleObj>()->fields;
    const ffi::Array<ffi::Any> layouts = LayoutsOf(name, inputs.size() + NumTensors(result));
    for (size_t i = 0; i < inputs.size() && !layouts.empty(); ++i) {
      if (auto map = layouts[i].as<IndexMap>())
        inputs.Set(i, Emit(Transform(inputs[i], *map), "lv", span_, out));
    }
    ffi::Array<Expr> call_args = {Replacement(name), ir::Tuple(inputs)};
    for (size_t i = 2; i < call->call->args.size(); ++i)
      call_args.push_back(Mutate(call->call->args[i]));
    auto layout_of = [&](size_t i) -> ffi::Any {
      return layouts.empty() ? ffi::Any(nullptr) : layouts[inputs.size() + i];
    };
    ir::Call made(call->call->op, call_args, call->call->attrs, {NewResult(result, layout_of)},
                  call->call->span);
    TakeBack(binding, made, result, layout_of, out);
  }

 private:
  std::string OperatorName(const ir::GlobalVar& func) const {
    auto found = builder()->module()->functions.find(func);
    if (found == builder()->module()->functions.end()) return "";
    const auto* program = (*found).second.as<tir::PrimFuncObj>();
    if (program == nullptr) return "";
    return std::string(ir::GetAttr<ffi::String>(program->attrs, kOperatorName, ""));
  }

  static size_t NumTensors(const Type& type) {
    const auto* tuple = type.as<ir::TupleTypeObj>();
    return tuple == nullptr ? 1 : tuple->fields.size();
  }

  // `num_buffers`: of the call; scalars have no layout.
  ffi::Array<ffi::Any> LayoutsOf(const std::string& name, size_t num_buffers) const {
    auto found = layouts_.find(name);
    if (found == layouts_.end()) {
      Fail(ErrorKind::kValueError, span_.Place(),
           "AlterOpImpl: op_buffer_transforms says nothing of ", name,
           "; give [] when its buffers keep their layouts");
    }
    const size_t wanted = programs_[name]->params.size(), given = (*found).second.size();
    if (given != 0 && (given != wanted || given < num_buffers)) {
      Fail(ErrorKind::kValueError, span_.Place(), "AlterOpImpl: op_buffer_transforms has ", given,
           " layouts for ", name, ", whose replacement has ", wanted,
           " parameters and whose call has ", num_buffers, " tensors; give one for each, or none");
    }
    return (*found).second;
  }

  ir::GlobalVar Replacement(const std::string& name) {
    auto program = ffi::make_object<tir::PrimFuncObj>(*programs_[name].get());
    program->attrs.Set(kOperatorName, ffi::String(name));
    program->attrs.erase(ir::attr::kGlobalSymbol);  // it is called from inside the module
    std::string hint = name + "_replacement";
    std::replace(hint.begin(), hint.end(), '.', '_');
    return builder()->AddFunction(tir::RenewDefs(ir::NodeRef<tir::PrimFunc>(std::move(program))),
                                  hint);
  }

  static Expr Transform(const Expr& x, const IndexMap& map) {
    return ops::MakeCall("relax.layout_transform", {x},
                         {{"index_map", map}, {"pad_value", nullptr}});
  }

  tir::MappedShape Mapped(const Type& type, const IndexMap& map) const {
    const auto* tensor = type.as<ir::TensorTypeObj>();
    auto dims = tensor == nullptr ? std::nullopt : tensor->GetShape();
    arith::Analyzer analyzer;
    std::optional<tir::MappedShape> mapped;
    if (dims.has_value() && dims.value().size() == map->initial_indices.size())
      mapped = tir::MapShape(map, dims.value(), &analyzer);
    if (!mapped) {
      Fail(ErrorKind::kValueError, span_.Place(), "AlterOpImpl: the layout of a result of type ",
           ops::DescribeType(type), " has ", map->initial_indices.size(),
           " indices and no way back; every index must be used once, cut by // and % and joined as "
           "a * n + b");
    }
    return *mapped;
  }

  template <typename LayoutOf>
  Type NewResult(const Type& type, const LayoutOf& layout_of) const {
    if (const auto* tuple = type.as<ir::TupleTypeObj>()) {
      ffi::Array<Type> fields;
      for (size_t i = 0; i < tuple->fields.size(); ++i)
        fields.push_back(NewTensor(tuple->fields[i], layout_of(i)));
      return ir::TupleType(fields);
    }
    return NewTensor(type, layout_of(0));
  }
  Type NewTensor(const Type& type, const ffi::Any& layout) const {
    auto map = layout.as<IndexMap>();
    if (!map) return type;
    const auto* tensor = type.as<ir::TensorTypeObj>();
    return TensorType(Mapped(type, *map).extents, tensor->dtype, tensor->vdevice);
  }

  // Binds the variable of `binding` to the result of `call` in its old layout.
  template <typename LayoutOf>
  void TakeBack(const ir::Binding& binding, const ir::Call& call, const Type& old,
                const LayoutOf& layout_of, ffi::Array<ir::Binding>* out) {
    const auto* tuple = old.as<ir::TupleTypeObj>();
    const size_t num_outputs = NumTensors(old);
    bool stays = true;
    for (size_t i = 0; i < num_outputs; ++i) stays = stays && !layout_of(i).template as<IndexMap>();
    if (stays) return Rebind(binding, call, out);
    const Var result = Emit(call, "lv", span_, out);
    if (tuple == nullptr) return Rebind(binding, InOldLayout(result, old, layout_of(0), out), out);
    ffi::Array<Expr> fields;
    for (size_t i = 0; i < num_outputs; ++i) {
      Expr field = Emit(ir::TupleGetItem(result, static_cast<int64_t>(i)), "lv", span_, out);
      if (layout_of(i).template as<IndexMap>())
        field = Emit(InOldLayout(field, tuple->fields[i], layout_of(i), out), "lv", span_, out);
      fields.push_back(field);
    }
    Rebind(binding, ir::Tuple(fields), out);
  }

  Expr InOldLayout(const Expr& x, const Type& old, const ffi::Any& layout,
                   ffi::Array<ir::Binding>* out) {
    const tir::MappedShape mapped = Mapped(old, layout.cast<IndexMap>());
    const IndexMap back(mapped.indices, mapped.origin);
    const Expr whole = Transform(x, back);
    const auto* tensor = old.as<ir::TensorTypeObj>();
    const auto dims = tensor->GetShape().value();
    const auto extents = Mapped(x->ty, back).extents;
    arith::Analyzer analyzer;
    bool same = true;
    for (size_t d = 0; d < dims.size(); ++d)
      same = same && analyzer.ProveEqual(dims[d], extents[d]);
    if (same) return whole;
    const Var padded = Emit(whole, "lv", span_, out);
    const auto func = builder()->AddFunction(RemovePad(dims.size(), tensor->dtype), "remove_pad");
    return ops::MakeCall("relax.call_tir", {func, ir::Tuple({padded})}, {}, {old});
  }

  const Programs programs_;
  const Layouts layouts_;
  ir::Span span_;  // of the call at hand
};

}  // namespace

IRModule AlterOpImpl(IRModule mod, const PassContext& context) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  ir::BlockBuilder builder(facts.get(), mod);
  ProgramReplacer replacer(&builder, context.Option<Programs>("op_impl_map"),
                           context.Option<Layouts>("op_buffer_transforms"));
  for (const auto& [var, func] : mod->functions) {
    auto function = func.as<ir::Function>();
    if (!function) continue;
    Expr made = replacer.MutateFunction(*function);
    if (!made.same_as(func)) builder.UpdateFunction(var, made.as<ir::Function>().value());
  }
  return builder.module();
}

}  // namespace relaxvm::passes
