// SPDX-License-Identifier: Apache-2.0
// BundleModelParams: the weights of a function (its parameters after the first "num_input") become
// one tuple parameter.  Stage: graph.
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analysis/core_ops.h"
#include "ir/block_builder.h"
#include "ir/visitor.h"
#include "passes/params/bundle.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

class Bundler : public ir::Mutator {
 public:
  Bundler(const ir::Function& f, size_t first, const BundleOptions& options)
      : f_(f), first_(first), options_(options) {
    for (size_t i = first; i < f->params.size(); ++i) {
      index_.emplace(f->params[i].get(), static_cast<int64_t>(i - first));
    }
  }

  ir::Function Run() {
    tuple_ = Var(options_.name, ir::TupleType(FieldTypes()));
    ffi::Array<Var> params(f_->params.begin(), f_->params.begin() + first_);
    params.push_back(tuple_);
    // Other items may have sizes that are items themselves: those are read before everything.
    ffi::Array<ir::Binding> sizes;
    out_ = &sizes;
    for (size_t i = first_; i < f_->params.size(); ++i) {
      if (f_->params[i]->ty.as<ir::PrimTypeObj>()) Item(f_->params[i]);
    }
    ir::SeqExpr body = Mutate(f_->body).as<ir::SeqExpr>().value();
    if (!sizes.empty()) {
      ffi::Array<ir::BindingBlock> blocks = body->blocks;
      if (!blocks.empty() && !blocks[0].as<ir::DataflowBlockObj>()) {
        ffi::Array<ir::Binding> all = sizes;
        for (const ir::Binding& b : blocks[0]->bindings) all.push_back(b);
        blocks.Set(0, ir::BindingBlock(all, blocks[0]->span));
      } else {
        blocks.insert(blocks.begin(), ir::BindingBlock(sizes));
      }
      body = ir::SeqExpr(blocks, body->body, body->span);
    }
    return ir::Function(params, body, Visible(MutateType(f_->ret_ty), params), f_->is_pure,
                        f_->attrs, f_->span);
  }

  Expr MutateVar(const Var& v) override {
    if (!index_.count(v.get())) return ir::Mutator::MutateVar(v);
    // A shape is known by its sizes.
    if (auto* shape = v->ty.as<ir::ShapeTypeObj>(); shape != nullptr && shape->values) {
      return Mutate(ir::ShapeExpr(shape->values.value()));
    }
    return Item(v);
  }

  Expr MutateSeq(const ir::SeqExpr& seq) override {
    auto outer = items_;
    auto* outer_out = out_;
    ffi::Array<ir::BindingBlock> blocks;
    bool changed = false;
    for (const ir::BindingBlock& block : seq->blocks) {
      ir::BindingBlock made = MutateBlock(block);
      changed |= !made.same_as(block);
      blocks.push_back(made);
    }
    ffi::Array<ir::Binding> last;
    out_ = &last;
    dataflow_ = false;
    Expr body = Mutate(seq->body);
    if (!last.empty()) blocks.push_back(ir::BindingBlock(last));
    changed |= !last.empty() || !body.same_as(seq->body);
    out_ = outer_out;
    items_ = std::move(outer);
    return changed ? ir::SeqExpr(blocks, body, seq->span) : seq;
  }

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    const bool dataflow = block.as<ir::DataflowBlockObj>() != nullptr;
    auto before = items_;
    ffi::Array<ir::Binding> bindings;
    for (const ir::Binding& b : block->bindings) {
      ffi::Array<ir::Binding> reads, made;
      out_ = &reads;
      dataflow_ = dataflow;
      MutateBinding(b, &made);
      for (const ir::Binding& r : reads) bindings.push_back(r);
      for (const ir::Binding& m : made) bindings.push_back(m);
    }
    // What a dataflow block read is its own.
    if (dataflow) items_ = std::move(before);
    bool same = bindings.size() == block->bindings.size();
    for (size_t i = 0; same && i < bindings.size(); ++i) {
      same = bindings[i].same_as(block->bindings[i]);
    }
    if (same) return block;
    return dataflow ? ir::BindingBlock(ir::DataflowBlock(bindings, block->span))
                    : ir::BindingBlock(bindings, block->span);
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  ffi::Array<ir::Type> FieldTypes() {
    std::unordered_set<const ffi::Object*> sizes;
    for (const auto& [param, index] : index_) sizes.insert(param);
    ffi::Array<ir::Type> fields;
    for (size_t i = first_; i < f_->params.size(); ++i) {
      fields.push_back(ir::EraseToVisible(f_->params[i]->ty,
                                          [&](const Var& v) { return !sizes.count(v.get()); }));
    }
    return fields;
  }

  static ir::Type Visible(const ir::Type& type, const ffi::Array<Var>& params) {
    std::unordered_set<const ffi::Object*> known;
    for (const Var& p : params) {
      known.insert(p.get());
      for (const Var& v : ir::DefinableSymbolicVars(p->ty)) known.insert(v.get());
    }
    return ir::EraseToVisible(type, [&](const Var& v) { return known.count(v.get()) != 0; });
  }

  Var Named(const Var& like, const ir::Type& type) {
    return dataflow_ ? Var(ir::DataflowVar(like->name, type, like->span))
                     : Var(like->name, type, like->span);
  }

  Expr Item(const Var& param) {
    if (auto it = items_.find(param.get()); it != items_.end()) return it->second;
    const int64_t index = index_.at(param.get());
    const ir::Type field = tuple_->ty.as<ir::TupleTypeObj>()->fields[index];
    const ir::Type type = MutateType(param->ty);
    Expr item = ir::TupleGetItem(tuple_, index, param->span);
    item->ty = field;
    Var var = Named(param, field);
    if (ir::StructuralEqual(type, field)) {
      out_->push_back(ir::VarBinding(var, item, param->span));
    } else {
      out_->push_back(ir::VarBinding(var, item, param->span));
      Var checked = Named(param, type);
      out_->push_back(ir::MatchCast(checked, var, type, param->span));
      var = checked;
    }
    if (options_.consume) Reset(index);
    items_.insert_or_assign(param.get(), var);
    return var;
  }

  void Reset(int64_t index) {
    ir::Type none = ir::VoidType();
    Expr call = ir::Call(
        analysis::GetCoreOp(analysis::CoreOp::kCallPurePacked),
        {ir::ExternFunc("vm.builtin.tuple_reset_item"), tuple_, ir::IntImm(Int(32), index)},
        ir::Attrs(), {none}, ir::Span(), none);
    Var var = dataflow_ ? Var(ir::DataflowVar("_", none)) : Var("_", none);
    out_->push_back(ir::VarBinding(var, call));
  }

  const ir::Function& f_;
  const size_t first_;
  const BundleOptions& options_;
  std::unordered_map<const ffi::Object*, int64_t> index_;
  std::unordered_map<const ffi::Object*, Var> items_;
  Var tuple_ = Var(ffi::UnsafeInit{});
  ffi::Array<ir::Binding>* out_ = nullptr;
  bool dataflow_ = false;
};

}  // namespace

ir::Function BundleParams(const ir::Function& f, size_t first, const BundleOptions& options) {
  return Bundler(f, first, options).Run();
}

IRModule BundleModelParams(IRModule mod, const PassContext& context) {
  BundleOptions options;
  if (auto name = context.options["param_tuple_name"].as<ffi::String>()) options.name = *name;
  return ir::MutateFunctions(std::move(mod), [&](const ir::GlobalVar&, const ir::Function& f) {
    const int64_t inputs = ir::GetAttr<int64_t>(f->attrs, ir::attr::kNumInput, -1);
    if (inputs < 0) return f;
    if (inputs > static_cast<int64_t>(f->params.size())) {
      Fail(ErrorKind::kValueError, f->span.Place(), "BundleModelParams: num_input is ", inputs,
           ", but the function has ", f->params.size(), " parameters");
    }
    return BundleParams(f, static_cast<size_t>(inputs), options);
  });
}

}  // namespace relaxvm::passes
