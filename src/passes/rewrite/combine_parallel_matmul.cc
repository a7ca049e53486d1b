// SPDX-License-Identifier: Apache-2.0
// CombineParallelMatmul: products of one value with several matrices become one product with the
// matrices side by side, and a split of its result.  What follows every product alike comes along:
// a bias, then an activation.  Stage: graph, dataflow blocks.  Option `check`: a function of (the
// value, the matrices, the biases or None, the bindings by variable) that may refuse a group.
#include <tvm/ffi/function.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/reads.h"
#include "ir/block_builder.h"
#include "passes/rewrite/rules.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

constexpr const char* kActivations[] = {"relax.nn.relu", "relax.nn.gelu", "relax.nn.silu"};

// One product and what follows it; `last` is the variable that others read.
struct Branch {
  size_t at;  // of the product, in the block
  const ir::CallObj* matmul;
  Expr bias;                                // or null
  const ir::CallObj* activation = nullptr;  // or null
  Var last = Var(ffi::UnsafeInit{});
  std::vector<const ffi::Object*> made;  // the variables that the combination replaces
};

class Combiner {
 public:
  Combiner(ir::BlockBuilder& builder, const ffi::Any& check, const ffi::Map<Var, Expr>& bindings)
      : builder_(builder), bindings_(bindings) {
    if (check != nullptr) check_ = check.cast<ffi::Function>();
  }

  ir::BindingBlock Run(const ir::DataflowBlock& block) {
    block_ = block;
    Index();
    FindGroups();
    if (first_of_.empty()) return block;
    builder_.BeginBlock(/*dataflow=*/true);
    Renamer renamer;
    for (size_t i = 0; i < block->bindings.size(); ++i) {
      const ir::Binding& b = block->bindings[i];
      if (auto it = first_of_.find(i); it != first_of_.end()) EmitGroup(it->second, &renamer);
      if (replaced_.count(b->var.get())) continue;
      ffi::Array<ir::Binding> made;
      renamer.MutateBinding(b, &made);
      for (const ir::Binding& m : made) builder_.EmitBinding(m);
    }
    return builder_.EndBlock();
  }

 private:
  class Renamer : public ir::Mutator {
   public:
    using ir::Mutator::Replace;
    Expr MutateOther(const Expr& e) override { return e; }
  };

  void Index() {
    for (size_t i = 0; i < block_->bindings.size(); ++i) {
      const ir::Binding& b = block_->bindings[i];
      index_[b->var.get()] = i;
      analysis::VarsIn uses;
      uses.Visit(b->value);
      for (const ir::VarObj* v : uses.found) users_[v].push_back(i);
    }
  }

  const ir::CallObj* CallAt(size_t i, const char* name) const {
    const auto* bound = block_->bindings[i].as<ir::VarBindingObj>();
    const auto* call = bound == nullptr ? nullptr : bound->value.as<ir::CallObj>();
    const ir::OpObj* op = call == nullptr ? nullptr : ir::CalledOp(call);
    return op != nullptr && op->name == std::string(name) ? call : nullptr;
  }

  // The one binding that reads `var`, a variable of this block; -1 when there are others.
  int64_t OnlyUser(const Var& var) const {
    auto it = users_.find(var.get());
    if (!var.as<ir::DataflowVarObj>() || it == users_.end() || it->second.size() != 1) return -1;
    return static_cast<int64_t>(it->second[0]);
  }

  Branch BranchFrom(size_t i, const ir::CallObj* matmul) const {
    Branch branch{i, matmul, Expr()};
    branch.last = block_->bindings[i]->var;
    branch.made.push_back(branch.last.get());
    int64_t next = OnlyUser(branch.last);
    if (const auto* add = next < 0 ? nullptr : CallAt(static_cast<size_t>(next), "relax.add")) {
      const Expr& bias = add->args[1];
      auto width = DimsOf(matmul->args[1]), dims = DimsOf(bias);
      const bool fits = add->args[0].same_as(branch.last) && RankOf(bias) == 1 && dims &&
                        facts_->ProveEqual(dims.value()[0], width.value().back());
      if (fits) {
        branch.bias = bias;
        Follow(&branch, static_cast<size_t>(next));
        next = OnlyUser(branch.last);
      }
    }
    for (const char* name : kActivations) {
      const auto* call = next < 0 ? nullptr : CallAt(static_cast<size_t>(next), name);
      if (call == nullptr) continue;
      branch.activation = call;
      Follow(&branch, static_cast<size_t>(next));
      break;
    }
    return branch;
  }
  void Follow(Branch* branch, size_t to) const {
    branch->last = block_->bindings[to]->var;
    branch->made.push_back(branch->last.get());
  }

  bool DefinedBefore(const Expr& e, size_t at) const {
    auto it = index_.find(e.get());
    return it == index_.end() || it->second < at;
  }

  // May `b` stand beside `a`?  Everything but the number of columns is alike.
  bool Alike(const Branch& a, const Branch& b) const {
    auto x = DimsOf(a.matmul->args[1]).value(), y = DimsOf(b.matmul->args[1]).value();
    if (x.size() != y.size() || a.bias.defined() != b.bias.defined()) return false;
    for (size_t i = 0; i + 1 < x.size(); ++i) {
      if (!facts_->ProveEqual(x[i], y[i])) return false;
    }
    if (DTypeOf(a.matmul->args[1]) != DTypeOf(b.matmul->args[1])) return false;
    if (DTypeOf(block_->bindings[a.at]->var) != DTypeOf(block_->bindings[b.at]->var)) return false;
    if ((a.activation == nullptr) != (b.activation == nullptr)) return false;
    if (a.activation != nullptr && (!a.activation->op.same_as(b.activation->op) ||
                                    !ir::StructuralEqual(a.activation->attrs, b.activation->attrs)))
      return false;
    if (a.bias.defined() && DTypeOf(a.bias) != DTypeOf(b.bias)) return false;
    return DefinedBefore(b.matmul->args[1], a.at) &&
           (!b.bias.defined() || DefinedBefore(b.bias, a.at));
  }
  static DLDataType DTypeOf(const Expr& e) {
    const auto* tensor = e->ty.as<ir::TensorTypeObj>();
    return tensor == nullptr ? Void() : tensor->dtype;
  }

  void FindGroups() {
    std::vector<std::vector<Branch>> groups;
    for (size_t i = 0; i < block_->bindings.size(); ++i) {
      const ir::CallObj* matmul = CallAt(i, "relax.matmul");
      if (matmul == nullptr || RankOf(matmul->args[0]) < 1 || RankOf(matmul->args[1]) < 2 ||
          !DimsOf(matmul->args[1]) || !HasKnownWidth(matmul->args[1])) {
        continue;
      }
      Branch branch = BranchFrom(i, matmul);
      auto fits = [&](const std::vector<Branch>& group) {
        return group[0].matmul->args[0].same_as(matmul->args[0]) && Alike(group[0], branch);
      };
      auto it = std::find_if(groups.begin(), groups.end(), fits);
      if (it != groups.end()) {
        it->push_back(std::move(branch));
      } else if (!branch.bias.defined() || DefinedBefore(branch.bias, i)) {
        groups.push_back({std::move(branch)});
      }
    }
    for (std::vector<Branch>& group : groups) {
      if (group.size() < 2 || !Accepted(group)) continue;
      for (const Branch& b : group) replaced_.insert(b.made.begin(), b.made.end());
      first_of_.emplace(group[0].at, std::move(group));
    }
  }
  // Where a split cuts must be a number.
  static bool HasKnownWidth(const Expr& matrix) {
    return DimsOf(matrix).value().back().as<ir::IntImmObj>() != nullptr;
  }

  bool Accepted(const std::vector<Branch>& group) const {
    if (!check_) return true;
    ffi::Array<Expr> matrices, biases;
    for (const Branch& b : group) {
      matrices.push_back(b.matmul->args[1]);
      if (b.bias.defined()) biases.push_back(b.bias);
    }
    const ffi::Any bias = biases.empty() ? ffi::Any(nullptr) : ffi::Any(biases);
    return (*check_)(group[0].matmul->args[0], matrices, bias, bindings_).cast<bool>();
  }

  void EmitGroup(const std::vector<Branch>& group, Renamer* renamer) {
    ffi::Array<Expr> matrices, biases;
    ffi::Array<int64_t> cuts;
    int64_t width = 0;
    for (const Branch& b : group) {
      matrices.push_back(renamer->Mutate(b.matmul->args[1]));
      if (b.bias.defined()) biases.push_back(renamer->Mutate(b.bias));
      if (width > 0) cuts.push_back(width);
      width += DimsOf(b.matmul->args[1]).value().back().as<ir::IntImmObj>()->value;
    }
    const Expr x = renamer->Mutate(group[0].matmul->args[0]);
    const int64_t rank = RankOf(group[0].matmul->args[1]);
    const Var& first = block_->bindings[group[0].at]->var;
    Expr matrix =
        builder_.Emit(ops::MakeCall("concat", {ir::Tuple(matrices)}, {{"axis", rank - 1}}));
    Expr value = builder_.Emit(
        ops::MakeCall("matmul", {x, matrix}, {{"out_dtype", ffi::Any(DTypeOf(first))}}));
    if (!biases.empty()) {
      Expr bias = builder_.Emit(
          ops::MakeCall("concat", {ir::Tuple(biases)}, {{"axis", ffi::Any(int64_t{0})}}));
      value = builder_.Emit(ops::MakeCall("add", {value, bias}));
    }
    if (const ir::CallObj* activation = group[0].activation) {
      value = builder_.Emit(ir::Call(activation->op, {value}, activation->attrs));
    }
    const int64_t axis = std::max(RankOf(group[0].matmul->args[0]), rank) - 1;
    Expr parts = builder_.Emit(
        ops::MakeCall("split", {value}, {{"indices_or_sections", cuts}, {"axis", axis}}));
    for (size_t i = 0; i < group.size(); ++i) {
      Expr item = ir::TupleGetItem(parts, static_cast<int64_t>(i));
      const Var& last = group[i].last;
      if (last.as<ir::DataflowVarObj>()) {
        renamer->Replace(last, builder_.Emit(item, last->name));
      } else {  // an output of the block keeps its variable
        builder_.EmitBinding(ir::VarBinding(last, builder_.Normalize(item)));
      }
    }
  }

  ir::BlockBuilder& builder_;
  std::optional<ffi::Function> check_;
  const ffi::Map<Var, Expr>& bindings_;
  std::unique_ptr<ir::TypeContext> facts_ = ops::MakeTypeContext();
  ir::DataflowBlock block_ = ir::DataflowBlock(ffi::Array<ir::Binding>{});
  std::unordered_map<const ffi::Object*, size_t> index_;
  std::unordered_map<const ffi::Object*, std::vector<size_t>> users_;
  std::map<size_t, std::vector<Branch>> first_of_;  // groups, by the place of their first product
  std::unordered_set<const ffi::Object*> replaced_;
};

class Blocks : public ir::Mutator {
 public:
  Blocks(const IRModule& mod, ffi::Any check)
      : check_(std::move(check)), builder_(facts_.get(), mod) {}

  ir::Function Run(const ir::Function& func) {
    class Values : public ir::Visitor {
     public:
      ffi::Map<Var, Expr> found;
      void VisitBinding(const ir::Binding& b) override {
        found.Set(b->var, b->value);
        ir::Visitor::VisitBinding(b);
      }
      void VisitOther(const ir::ExprObj*) override {}
    } values;
    values.Visit(func);
    bindings_ = values.found;
    return MutateFunction(func).as<ir::Function>().value();
  }
  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    auto dataflow = block.as<ir::DataflowBlock>();
    return dataflow ? Combiner(builder_, check_, bindings_).Run(*dataflow)
                    : ir::Mutator::MutateBlock(block);
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  ffi::Any check_;
  std::unique_ptr<ir::TypeContext> facts_ = ops::MakeTypeContext();
  ir::BlockBuilder builder_;
  ffi::Map<Var, Expr> bindings_;
};

}  // namespace

IRModule CombineParallelMatmul(IRModule mod, const PassContext& context) {
  const ffi::Any check = context.options["check"];
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& func) {
    return Blocks(mod, check).Run(func);
  });
}

}  // namespace relaxvm::passes
