// SPDX-License-Identifier: Apache-2.0
// ConvertLayout: runs chosen operators (convolutions) in a wanted layout and lets the operators
// between them follow, so that no conversion stands between neighbours. Stage: graph.  Keeps:
// meaning, names of functions, spans.
//
// Each variable may exist in several permutations of its axes.  A conversion is emitted only when
// somebody asks for a permutation that is not there yet; weights are converted by ordinary
// operators that FoldConstant evaluates.
#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ops/layout_rule.h"
#include "ops/op_def.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Call;
using ir::Expr;
using ir::Var;
using ops::LayoutRule;

// perm[i] is the original axis at place i.
using Perm = std::vector<int64_t>;

bool IsIdentity(const Perm& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}
Perm Identity(size_t n) {
  Perm perm(n);
  std::iota(perm.begin(), perm.end(), 0);
  return perm;
}
Perm Inverse(const Perm& perm) {
  Perm inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = static_cast<int64_t>(i);
  return inverse;
}
// Applied one after the other: first `a`, then `b`.
Perm Then(const Perm& a, const Perm& b) {
  Perm result(b.size());
  for (size_t i = 0; i < b.size(); ++i) result[i] = a[b[i]];
  return result;
}

// "NCHW" -> "NHWC" is {0, 2, 3, 1}; empty when one has letters that the other lacks (blocked
// layouts).
Perm PermBetween(const std::string& from, const std::string& to) {
  if (from.size() != to.size()) return {};
  Perm perm;
  for (char letter : to) {
    const size_t at = from.find(letter);
    if (at == std::string::npos) return {};
    perm.push_back(static_cast<int64_t>(at));
  }
  return perm;
}
std::string Permuted(const std::string& letters, const Perm& perm) {
  std::string result;
  for (int64_t p : perm) result += letters[p];
  return result;
}

int64_t RankOf(const Expr& e) {
  const auto* tensor = e->ty.defined() ? e->ty.as<ir::TensorTypeObj>() : nullptr;
  return tensor == nullptr ? -1 : tensor->ndim;
}

std::string StringAttr(const Call& call, const char* name) {
  auto text = call->attrs.Get(name).as<ffi::String>();
  return text.has_value() ? std::string(text.value()) : std::string();
}

struct Wanted {
  std::string data;
  std::string kernel;
};

// The layouts that are wanted of a call; absent when none are.
using Chooser = std::function<std::optional<Wanted>(const Call& call, const std::string& name)>;

// Variables of dataflow blocks that the pass made visible outside of them, in case a later block
// reads them: those that none does become the block's own.
class OutputNarrower : public ir::Mutator {
 public:
  // `home`: each such variable and its block.
  explicit OutputNarrower(std::unordered_map<const ffi::Object*, const ffi::Object*> home)
      : home_(std::move(home)) {}

  ir::Function Run(const ir::Function& func) {
    class Outside : public ir::Visitor {
     public:
      explicit Outside(std::unordered_map<const ffi::Object*, const ffi::Object*>* home)
          : home_(home) {}
      void VisitBlock(const ir::BindingBlock& block) override {
        const ffi::Object* outer = std::exchange(block_, block.get());
        ir::Visitor::VisitBlock(block);
        block_ = outer;
      }
      void VisitVar(const ir::VarObj* v) override {
        auto it = home_->find(v);
        if (it != home_->end() && it->second != block_) home_->erase(it);
      }

     private:
      std::unordered_map<const ffi::Object*, const ffi::Object*>* home_;
      const ffi::Object* block_ = nullptr;
    } outside(&home_);
    outside.Visit(func);
    return home_.empty() ? func : Mutate(func).as<ir::Function>().value();
  }

  Var MutateDef(const Var& v) override {
    if (home_.count(v.get()) == 0) return ir::Mutator::MutateDef(v);
    Var inner = ir::DataflowVar(v->name, v->ty, v->span);
    Replace(v, inner);
    return inner;
  }

 private:
  std::unordered_map<const ffi::Object*, const ffi::Object*> home_;
};

class Converter {
 public:
  Converter(const Chooser& wanted, ir::BlockBuilder* builder)
      : wanted_(wanted), builder_(builder) {}

  ir::Function Run(const ir::Function& func) {
    ffi::Array<ir::BindingBlock> blocks = Blocks(func->body->blocks);
    if (!changed_) return func;
    ir::Function result(func->params,
                        ir::SeqExpr(std::move(blocks), func->body->body, func->body->span),
                        func->ret_ty, func->is_pure, func->attrs, func->span);
    return OutputNarrower(std::move(home_)).Run(result);
  }

 private:
  // ---- scopes

  ffi::Array<ir::BindingBlock> Blocks(const ffi::Array<ir::BindingBlock>& from) {
    ffi::Array<ir::BindingBlock> blocks;
    for (const ir::BindingBlock& block : from) {
      builder_->BeginBlock(block.as<ir::DataflowBlockObj>() != nullptr);
      for (const ir::Binding& binding : block->bindings) Convert(binding);
      ir::BindingBlock done = builder_->EndBlock();
      if (done.as<ir::DataflowBlockObj>() != nullptr) {
        for (const ir::Binding& binding : done->bindings) {
          if (made_.count(binding->var.get()) != 0) home_[binding->var.get()] = done.get();
        }
      }
      if (!done->bindings.empty()) blocks.push_back(std::move(done));
      ForgetInvisible();
    }
    return blocks;
  }

  // After a block: what only the block saw is gone.  Variables seen outside of it exist plainly
  // under their own name, too.
  void ForgetInvisible() {
    tuples_.clear();
    for (auto& [var, versions] : versions_) {
      std::erase_if(versions.values, [](const auto& version) {
        return version.second.template as<ir::DataflowVarObj>() != nullptr;
      });
    }
    std::erase_if(versions_, [](const auto& entry) { return entry.second.values.empty(); });
  }

  // A branch sees the permutations that exist before it; its own end with it.
  ir::SeqExpr Branch(const ir::SeqExpr& branch) {
    auto versions = versions_;
    auto tuples = std::exchange(tuples_, {});
    ffi::Array<ir::BindingBlock> blocks = Blocks(branch->blocks);
    Expr body = Plain(branch->body);
    versions_ = std::move(versions);
    tuples_ = std::move(tuples);
    ir::SeqExpr converted(std::move(blocks), std::move(body), branch->span);
    converted->ty = branch->ty;
    return converted;
  }

  bool ConvertIf(const ir::Binding& binding) {
    const auto* choice = binding->value.as<ir::IfObj>();
    if (choice == nullptr || !binding.as<ir::VarBindingObj>()) return false;
    const bool changed = std::exchange(changed_, false);
    ir::SeqExpr yes = Branch(choice->true_branch), no = Branch(choice->false_branch);
    if (!changed_) {
      changed_ = changed;
      return false;
    }
    ir::If value(Plain(choice->cond), yes, no, choice->span);
    value->ty = choice->ty;
    builder_->EmitBinding(ir::VarBinding(binding->var, value, binding->span));
    return true;
  }

  // ---- values in several permutations

  Expr Permute(const Expr& e, const Perm& perm) {
    if (IsIdentity(perm)) return e;
    ffi::Array<ffi::Any> axes;
    for (int64_t p : perm) axes.push_back(p);
    return builder_->Emit(ops::MakeCall("permute_dims", {e}, {{"axes", axes}}));
  }

  // `e` with its axes permuted by `perm`.
  Expr Get(const Expr& e, const Perm& perm) {
    auto it = versions_.find(e.get());
    if (it == versions_.end()) {
      if (IsIdentity(perm)) return e;
      Expr permuted = Permute(e, perm);
      if (e.as<ir::VarObj>())
        versions_[e.get()] = {e, {{Identity(perm.size()), e}, {perm, permuted}}};
      return permuted;
    }
    for (const auto& [have, value] : it->second.values) {
      if (have == perm) return value;
    }
    const auto [have, value] = it->second.values.front();
    Expr permuted = Permute(value, Then(Inverse(have), perm));
    versions_[e.get()].values.emplace_back(perm, permuted);
    return permuted;
  }

  // The permutation that `e` is already in; the identity when it is plain.
  Perm PermOf(const Expr& e) const {
    auto it = versions_.find(e.get());
    const int64_t rank = RankOf(e);
    if (it == versions_.end()) return Identity(static_cast<size_t>(std::max<int64_t>(rank, 0)));
    for (const auto& [have, value] : it->second.values) {
      if (!IsIdentity(have)) return have;
    }
    return Identity(static_cast<size_t>(rank));
  }

  // Arguments as they were before: plain.
  Expr Plain(const Expr& e) {
    if (const auto* tuple = e.as<ir::TupleObj>()) {
      ffi::Array<Expr> fields = tuple->fields.Map([this](const Expr& f) { return Plain(f); });
      return fields.same_as(tuple->fields) ? e : Expr(ir::Tuple(std::move(fields), tuple->span));
    }
    if (auto tuple = tuples_.find(e.get()); tuple != tuples_.end()) {
      ffi::Array<Expr> fields;
      for (size_t i = 0; i < tuple->second.perms.size(); ++i) {
        Expr item = builder_->Emit(ir::TupleGetItem(tuple->second.value, static_cast<int64_t>(i)));
        const Perm& perm = tuple->second.perms[i];
        fields.push_back(perm.empty() ? item : Permute(item, Inverse(perm)));
      }
      return ir::Tuple(fields);
    }
    auto it = versions_.find(e.get());
    return it == versions_.end() ? e : Get(e, Identity(static_cast<size_t>(RankOf(e))));
  }

  // `first`, and the other arguments as they were before.
  ffi::Array<Expr> WithFirst(Expr first, const ffi::Array<Expr>& args) {
    ffi::Array<Expr> result = {std::move(first)};
    for (size_t i = 1; i < args.size(); ++i) result.push_back(Plain(args[i]));
    return result;
  }

  // Binds the result of a converted call to what `var` stood for.
  void Define(const Var& var, const Call& call, const Perm& perm) {
    changed_ = true;
    call->span = var->span;
    if (IsIdentity(perm)) {
      return builder_->EmitBinding(ir::VarBinding(var, builder_->Normalize(call), var->span));
    }
    DefineAs(var, EmitLike(var, call), perm);
  }

  // A variable that is seen as far as `var`.
  Expr EmitLike(const Var& var, const Expr& value) {
    if (var.as<ir::DataflowVarObj>()) return builder_->Emit(value, var->name);
    Var made = builder_->EmitOutput(value, var->name);
    made_.insert(made.get());
    return made;
  }

  // `value` is what `var` stood for, permuted.
  void DefineAs(const Var& var, const Expr& value, const Perm& perm) {
    changed_ = true;
    versions_[var.get()] = {var, {{perm, value}}};
    // Visible outside of its block, or read where nobody converts: the plain one must exist under
    // its own name.
    if (!var.as<ir::DataflowVarObj>()) {
      ffi::Array<ffi::Any> axes;
      for (int64_t p : Inverse(perm)) axes.push_back(p);
      Expr plain = builder_->Normalize(ops::MakeCall("permute_dims", {value}, {{"axes", axes}}));
      builder_->EmitBinding(ir::VarBinding(var, plain, var->span));
      versions_[var.get()].values.emplace_back(Identity(perm.size()), var);
    }
  }

  // The same for a call that gives a tuple; an empty permutation for fields that stay.  False when
  // the tuple is visible outside of its block.
  bool DefineTuple(const Var& var, const Call& call, std::vector<Perm> perms) {
    if (!var.as<ir::DataflowVarObj>()) return false;
    changed_ = true;
    call->span = var->span;
    Expr value = builder_->Emit(call, var->name);
    tuples_[var.get()] = {var, value, std::move(perms)};
    return true;
  }

  bool ConvertItem(const ir::Binding& binding) {
    const auto* item = binding->value.as<ir::TupleGetItemObj>();
    if (item == nullptr || !binding.as<ir::VarBindingObj>()) return false;
    auto it = tuples_.find(item->tuple_value.get());
    if (it == tuples_.end()) return false;
    Expr value = ir::TupleGetItem(it->second.value, item->index, item->span);
    const Perm& perm = it->second.perms[item->index];
    if (perm.empty()) {
      builder_->EmitBinding(
          ir::VarBinding(binding->var, builder_->Normalize(value), binding->span));
      return true;
    }
    DefineAs(binding->var, EmitLike(binding->var, value), perm);
    return true;
  }

  // ---- bindings

  void Convert(const ir::Binding& binding) {
    if (const auto* cast = binding.as<ir::MatchCastObj>();
        cast != nullptr && ConvertMatchCast(binding, cast))
      return;
    auto call = binding->value.as<Call>();
    if (call.has_value() && binding.as<ir::VarBindingObj>()) {
      const ir::OpObj* op = ir::CalledOp(call.value().get());
      if (op != nullptr && op->record != nullptr) {
        const LayoutRule* rule = ops::RecordOf(op).layout.get();
        if (rule != nullptr && ConvertCall(binding->var, call.value(), op, *rule)) return;
      }
    }
    if (ConvertItem(binding) || ConvertIf(binding)) return;
    Keep(binding);
  }

  // The sizes of a permuted value are matched in its own order.
  bool ConvertMatchCast(const ir::Binding& binding, const ir::MatchCastObj* cast) {
    const auto* type = cast->ty.as<ir::TensorTypeObj>();
    const Perm perm = PermOf(cast->value);
    if (type == nullptr || IsIdentity(perm) || !type->GetShape().has_value()) return false;
    const ffi::Array<Expr> dims = type->GetShape().value();
    if (dims.size() != perm.size()) return false;
    ffi::Array<Expr> moved;
    for (int64_t p : perm) moved.push_back(dims[p]);
    ir::TensorType permuted(moved, type->dtype, type->vdevice);
    Var matched = binding->var.as<ir::DataflowVarObj>() != nullptr
                      ? Var(ir::DataflowVar(binding->var->name, permuted))
                      : Var(binding->var->name, permuted);
    builder_->EmitBinding(ir::MatchCast(matched, Get(cast->value, perm), permuted, binding->span));
    DefineAs(binding->var, matched, perm);
    return true;
  }

  Expr WithPlainVars(const Expr& e) {
    class Plainer : public ir::Mutator {
     public:
      explicit Plainer(Converter* converter) : converter_(converter) {}
      Expr MutateVar(const Var& v) override { return converter_->Plain(v); }
      Var MutateDef(const Var& v) override { return v; }

     private:
      Converter* converter_;
    };
    return Plainer(this).Mutate(e);
  }

  void Keep(const ir::Binding& binding) {
    Expr value = WithPlainVars(binding->value);
    if (value.same_as(binding->value)) return builder_->EmitBinding(binding);
    changed_ = true;
    if (const auto* cast = binding.as<ir::MatchCastObj>()) {
      return builder_->EmitBinding(ir::MatchCast(cast->var, value, cast->ty, cast->span));
    }
    builder_->EmitBinding(ir::VarBinding(binding->var, value, binding->span));
  }

  bool ConvertCall(const Var& var, const Call& call, const ir::OpObj* op, const LayoutRule& rule) {
    const std::string name(op->name);
    switch (rule.kind) {
      case LayoutRule::Kind::kElementwise: return ConvertElementwise(var, call, name);
      case LayoutRule::Kind::kAxes: return ConvertAxes(var, call, name, rule);
      case LayoutRule::Kind::kReduce: return ConvertReduce(var, call, name, rule);
      case LayoutRule::Kind::kImage: return ConvertImage(var, call, name, wanted_(call, name));
      case LayoutRule::Kind::kConvolution: {
        std::optional<Wanted> want = wanted_(call, name);
        return want && ConvertConvolution(var, call, name, *want);
      }
      case LayoutRule::Kind::kFirst:
      case LayoutRule::Kind::kAllAxes: return ConvertNamedAxes(var, call, name, rule);
      case LayoutRule::Kind::kPermute:
      case LayoutRule::Kind::kExpand:
      case LayoutRule::Kind::kSqueeze:
      case LayoutRule::Kind::kTile: return ConvertShape(var, call, name, rule);
      case LayoutRule::Kind::kSlice: return ConvertSlice(var, call, name);
    }
    return false;
  }

  // Axes by attribute; the first argument moves, or all of its rank do.
  bool ConvertNamedAxes(const Var& var, const Call& call, const std::string& name,
                        const LayoutRule& rule) {
    const int64_t rank = RankOf(call->args[0]);
    const bool all = rule.kind == LayoutRule::Kind::kAllAxes;
    Perm perm;
    for (const Expr& arg : call->args) {
      if (all && RankOf(arg) != rank) return false;
      if (Perm have = PermOf(arg); RankOf(arg) == rank && !IsIdentity(have)) perm = have;
      if (!all) break;
    }
    ffi::Map<ffi::String, ffi::Any> attrs = AttrsOf(call);
    const std::string& field = rule.axis_attrs[0];
    if (perm.empty() || attrs[field] == nullptr) return false;
    attrs.Set(field, MapAxes(attrs[field], perm));
    ffi::Array<Expr> args = all ? call->args.Map([&](const Expr& a) { return Get(a, perm); })
                                : WithFirst(Get(call->args[0], perm), call->args);
    Call made = ops::MakeCall(name, args, attrs);
    if (const auto* tuple = var->ty.as<ir::TupleTypeObj>()) {
      std::vector<Perm> perms(tuple->fields.size());
      perms[0] = perm;
      return DefineTuple(var, made, std::move(perms));
    }
    Define(var, made, perm);
    return true;
  }

  bool ConvertShape(const Var& var, const Call& call, const std::string& name,
                    const LayoutRule& rule) {
    const Perm perm = PermOf(call->args[0]);
    if (perm.empty() || IsIdentity(perm)) return false;
    ffi::Map<ffi::String, ffi::Any> attrs = AttrsOf(call);
    const std::string& field = rule.axis_attrs[0];
    const int64_t rank = static_cast<int64_t>(perm.size());
    Perm result;
    ffi::Array<ffi::Any> changed;
    if (rule.kind == LayoutRule::Kind::kPermute) {
      Perm axes = AxesIn(attrs[field], rank), place = Inverse(perm);
      for (int64_t i = rank; attrs[field] == nullptr && i-- > 0;) axes.push_back(i);
      for (int64_t axis : axes) changed.push_back(place[axis]);
      attrs.Set(field, changed);
      result = Identity(perm.size());
    } else if (rule.kind == LayoutRule::Kind::kTile) {
      auto repeats = attrs[field].cast<ffi::Array<ffi::Any>>();
      const size_t missing = perm.size() - std::min(perm.size(), repeats.size());
      if (repeats.size() > perm.size()) return false;
      for (int64_t p : perm) {
        const size_t at = static_cast<size_t>(p);
        changed.push_back(at < missing ? ffi::Any(int64_t{1}) : repeats[at - missing]);
      }
      attrs.Set(field, changed);
      result = perm;
    } else if (rule.kind == LayoutRule::Kind::kExpand) {
      result = Expanded(perm, AxesIn(attrs[field], RankOf(var)), RankOf(var));
    } else {
      if (attrs[field] == nullptr) return false;
      Perm gone = AxesIn(attrs[field], rank);
      attrs.Set(field, MapAxes(attrs[field], perm));
      result = Without(perm, gone);
    }
    Define(var, ops::MakeCall(name, WithFirst(Get(call->args[0], perm), call->args), attrs),
           result);
    return true;
  }

  // `perm` of a result with new axes at places `added`; the others in their order.
  static Perm Expanded(const Perm& perm, const Perm& added, int64_t rank) {
    auto is_new = [&](int64_t i) {
      return std::find(added.begin(), added.end(), i) != added.end();
    };
    Perm old_places, result;
    for (int64_t i = 0; i < rank; ++i) {
      if (!is_new(i)) old_places.push_back(i);
    }
    size_t next = 0;
    for (int64_t i = 0; i < rank; ++i) result.push_back(is_new(i) ? i : old_places[perm[next++]]);
    return result;
  }
  // `perm` without the original axes `gone`, counted anew.
  static Perm Without(const Perm& perm, const Perm& gone) {
    Perm kept;
    for (int64_t p : perm) {
      if (std::find(gone.begin(), gone.end(), p) == gone.end()) kept.push_back(p);
    }
    Perm sorted = kept, result;
    std::sort(sorted.begin(), sorted.end());
    for (int64_t k : kept) {
      result.push_back(std::find(sorted.begin(), sorted.end(), k) - sorted.begin());
    }
    return result;
  }

  // The axes are numbers in the second argument.
  bool ConvertSlice(const Var& var, const Call& call, const std::string& name) {
    const Perm perm = PermOf(call->args[0]);
    const auto* axes = call->args[1].as<ir::TupleObj>();
    if (perm.empty() || IsIdentity(perm) || axes == nullptr) return false;
    const Perm place = Inverse(perm);
    ffi::Array<Expr> mapped;
    for (const Expr& axis : axes->fields) {
      auto number = ir::AsInt(axis);
      if (!number) return false;
      const int64_t at = *number < 0 ? *number + static_cast<int64_t>(perm.size()) : *number;
      mapped.push_back(ir::IntImm(axis.dtype(), place[at]));
    }
    ffi::Array<Expr> args = WithFirst(Get(call->args[0], perm), call->args);
    args.Set(1, ir::Tuple(mapped));
    Define(var, ops::MakeCall(name, args, AttrsOf(call)), perm);
    return true;
  }

  bool ConvertConvolution(const Var& var, const Call& call, const std::string& name,
                          const Wanted& want) {
    const std::string data = StringAttr(call, "data_layout"),
                      kernel = StringAttr(call, "kernel_layout");
    std::string out = StringAttr(call, "out_layout");
    if (out.empty()) out = data;
    const Perm data_perm = PermBetween(data, want.data),
               kernel_perm = PermBetween(kernel, want.kernel);
    if (data_perm.empty() || kernel_perm.empty() || out != data || IsIdentity(data_perm))
      return false;
    ffi::Map<ffi::String, ffi::Any> attrs = call->attrs->values;
    attrs.Set("data_layout", ffi::String(want.data));
    attrs.Set("kernel_layout", ffi::String(want.kernel));
    attrs.Set("out_layout", ffi::String(want.data));
    Expr x = Get(call->args[0], data_perm), w = Get(call->args[1], kernel_perm);
    Define(var, ops::MakeCall(name, {x, w}, attrs), data_perm);
    return true;
  }

  bool ConvertImage(const Var& var, const Call& call, const std::string& name,
                    const std::optional<Wanted>& want) {
    ffi::Map<ffi::String, ffi::Any> attrs = call->attrs->values;
    const char* field = attrs.count("data_layout") ? "data_layout" : "layout";
    const std::string letters = StringAttr(call, field);
    const Perm perm = want ? PermBetween(letters, want->data) : PermOf(call->args[0]);
    if (perm.empty() || IsIdentity(perm)) return false;
    const std::string out = StringAttr(call, "out_layout");
    if (letters.size() != perm.size() || (!out.empty() && out != letters)) return false;
    attrs.Set(field, ffi::String(Permuted(letters, perm)));
    if (attrs.count("out_layout")) attrs.Set("out_layout", ffi::String(Permuted(letters, perm)));
    ffi::Array<Expr> args = WithFirst(Get(call->args[0], perm), call->args);
    Define(var, ops::MakeCall(name, args, attrs), perm);
    return true;
  }

  bool ConvertElementwise(const Var& var, const Call& call, const std::string& name) {
    const int64_t rank = RankOf(var);
    if (rank < 2) return false;
    Perm perm;
    for (const Expr& arg : call->args) {
      if (RankOf(arg) != rank) continue;
      const Perm have = PermOf(arg);
      if (!IsIdentity(have)) perm = have;
    }
    if (perm.empty()) return false;
    ffi::Array<Expr> args;
    for (const Expr& arg : call->args) {
      auto converted = Aligned(arg, perm);
      if (!converted.defined()) return false;
      args.push_back(converted);
    }
    Define(var, ops::MakeCall(name, args, AttrsOf(call)), perm);
    return true;
  }

  // A broadcast operand of an elementwise operator, permuted like the full ones.
  Expr Aligned(const Expr& arg, const Perm& perm) {
    if (ir::IsPrim(arg)) return arg;
    const int64_t rank = RankOf(arg);
    if (rank == 0) return arg;
    if (rank < 0 || rank > static_cast<int64_t>(perm.size())) return Expr();
    if (rank == static_cast<int64_t>(perm.size())) return Get(arg, perm);
    // Missing axes stand at the front: give them back as ones, then permute.
    auto dims = arg->ty.as<ir::TensorTypeObj>()->GetShape();
    if (!dims.has_value()) return Expr();
    ffi::Array<Expr> shape;
    for (size_t i = static_cast<size_t>(rank); i < perm.size(); ++i) shape.push_back(Expr(1));
    for (const Expr& d : dims.value()) shape.push_back(d);
    Expr full = builder_->Emit(ops::MakeCall("reshape", {Plain(arg), ir::ShapeExpr(shape)}));
    return Permute(full, perm);
  }

  static ffi::Map<ffi::String, ffi::Any> AttrsOf(const Call& call) {
    return call->attrs.defined() ? call->attrs->values : ffi::Map<ffi::String, ffi::Any>();
  }

  // The axes that an attribute names, counted from the front; empty for None.
  static std::vector<int64_t> AxesIn(const ffi::Any& value, int64_t rank) {
    std::vector<int64_t> axes;
    if (auto one = value.as<int64_t>())
      axes.push_back(one.value());
    else if (auto many = value.as<ffi::Array<ffi::Any>>()) {
      for (const ffi::Any& axis : many.value()) axes.push_back(axis.cast<int64_t>());
    }
    for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
    return axes;
  }
  static ffi::Any MapAxes(const ffi::Any& value, const Perm& perm) {
    const Perm place = Inverse(perm);
    const int64_t rank = static_cast<int64_t>(perm.size());
    if (auto one = value.as<int64_t>())
      return place[one.value() < 0 ? one.value() + rank : one.value()];
    ffi::Array<ffi::Any> mapped;
    for (int64_t axis : AxesIn(value, rank)) mapped.push_back(place[axis]);
    return mapped;
  }

  bool ConvertAxes(const Var& var, const Call& call, const std::string& name,
                   const LayoutRule& rule) {
    const auto* tuple = call->args[0].as<ir::TupleObj>();
    const ffi::Array<Expr> data =
        tuple != nullptr ? tuple->fields : ffi::Array<Expr>{call->args[0]};
    const auto* results = var->ty.as<ir::TupleTypeObj>();
    if (data.empty()) return false;
    const int64_t rank = results == nullptr ? RankOf(var) : RankOf(data[0]);
    if (rank < 2) return false;
    Perm perm;
    for (const Expr& d : data) {
      if (RankOf(d) != rank) return false;
      if (Perm have = PermOf(d); !IsIdentity(have)) perm = have;
    }
    if (perm.empty()) return false;
    ffi::Map<ffi::String, ffi::Any> attrs = AttrsOf(call);
    for (const std::string& field : rule.axis_attrs) {
      if (attrs[field] == nullptr) return false;  // no axis: flattened first
      attrs.Set(field, MapAxes(attrs[field], perm));
    }
    ffi::Array<Expr> moved = data.Map([&](const Expr& d) { return Get(d, perm); });
    Expr first = tuple != nullptr ? Expr(ir::Tuple(moved)) : moved[0];
    ffi::Array<Expr> args = WithFirst(std::move(first), call->args);
    Call made = ops::MakeCall(name, args, attrs);
    if (results != nullptr) {
      return DefineTuple(var, made, std::vector<Perm>(results->fields.size(), perm));
    }
    Define(var, made, perm);
    return true;
  }

  bool ConvertReduce(const Var& var, const Call& call, const std::string& name,
                     const LayoutRule& rule) {
    const Perm perm = PermOf(call->args[0]);
    if (perm.empty() || IsIdentity(perm)) return false;
    ffi::Map<ffi::String, ffi::Any> attrs = AttrsOf(call);
    const std::string& field = rule.axis_attrs[0];
    const int64_t rank = static_cast<int64_t>(perm.size());
    std::vector<int64_t> axes = AxesIn(attrs[field], rank);
    if (axes.empty()) return false;
    auto keepdims = attrs["keepdims"].as<bool>();
    Perm result = perm;
    if (!keepdims.value_or(false)) {
      result = Without(perm, axes);
    }
    attrs.Set(field, MapAxes(attrs[field], perm));
    Define(var, ops::MakeCall(name, {Get(call->args[0], perm)}, attrs), result);
    return true;
  }

  struct Versions {
    Expr keep_alive;
    std::vector<std::pair<Perm, Expr>> values;
  };
  struct MovedTuple {
    Expr keep_alive;
    Expr value;
    std::vector<Perm> perms;  // of the fields; empty: as it was
  };
  const Chooser& wanted_;
  std::unordered_set<const ffi::Object*> made_;  // seen outside of their blocks, as far as needed
  std::unordered_map<const ffi::Object*, const ffi::Object*> home_;  // of these: their blocks
  ir::BlockBuilder* builder_;
  std::unordered_map<const ffi::Object*, MovedTuple> tuples_;
  std::unordered_map<const ffi::Object*, Versions> versions_;
  bool changed_ = false;
};

}  // namespace

namespace {

using Layouts = ffi::Map<ffi::String, ffi::Array<ffi::String>>;

std::optional<Wanted> WantedIn(const Layouts& layouts, const std::string& op) {
  auto it = layouts.find(op);
  if (it == layouts.end()) return std::nullopt;
  const ffi::Array<ffi::String>& names = (*it).second;
  const bool convolution = op.find("conv") != std::string::npos;
  if (names.empty() || (convolution && names.size() < 2)) {
    Fail(ErrorKind::kValueError, "ConvertLayout: ", op,
         " needs two layouts, data and kernel, for example [\"NHWC\", \"HWIO\"]");
  }
  return Wanted{std::string(names[0]), names.size() > 1 ? std::string(names[1]) : ""};
}

}  // namespace

ir::IRModule ConvertLayout(ir::IRModule mod, const PassContext& context) {
  auto desired = context.Option<Layouts>("desired_layouts");
  for (const auto& [op, layouts] : desired) WantedIn(desired, std::string(op));
  const ffi::Any callback = context.options["layout_cb"];
  Chooser chooser = [&](const Call& call, const std::string& name) {
    if (callback != nullptr) {
      ffi::Any chosen = callback.cast<ffi::Function>()(call);
      if (auto layouts = chosen.as<Layouts>()) {
        if (auto want = WantedIn(layouts.value(), name)) return want;
      }
    }
    return WantedIn(desired, name);
  };
  auto facts = ops::MakeTypeContext();
  return ir::MutateFunctions(std::move(mod), [&](const ir::GlobalVar&, const ir::Function& func) {
    ir::BlockBuilder builder(facts.get());
    return Converter(chooser, &builder).Run(func);
  });
}

}  // namespace relaxvm::passes
