// SPDX-License-Identifier: Apache-2.0
// SplitLayoutRewritePreproc: a tensor program that first brings its weights into the layout that it
// computes in becomes two, NAME_weight_prepack and NAME_prepacked; the first depends on weights
// alone and can run ahead of time (LiftTransformParams, FoldConstant).  Blocks that prepare carry
// the annotation "meta_schedule.layout_rewrite_preproc".  Stage: lowered.  Programs stay whole that
// prepare anything else than parameters of constant shape, or take scalars.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/calls.h"
#include "ops/op_def.h"
#include "passes/layout/emit.h"
#include "passes/pass.h"
#include "tir/functor.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;
using tir::Stmt;

constexpr const char* kPreproc = "meta_schedule.layout_rewrite_preproc";
constexpr const char* kLayoutFreeBuffers = "layout_free_buffers";
using Objects = std::unordered_set<const ffi::Object*>;

// Buffers that statements use, those that they write, and whether one of their blocks prepares.
class Uses : public tir::StmtVisitor {
 public:
  Objects used, written;
  bool prepares = false;

  void VisitBufferUse(const Var& buffer) override { used.insert(buffer.get()); }
  void VisitBufferStore(const tir::BufferStoreObj* s) override {
    written.insert(s->buffer.get());
    tir::StmtVisitor::VisitBufferStore(s);
  }
  void VisitSBlock(const tir::SBlockObj* s) override {
    prepares = prepares || s->annotations.count(kPreproc) != 0;
    tir::StmtVisitor::VisitSBlock(s);
  }
};

class AnnotationRemover : public tir::StmtMutator {
 public:
  Stmt MutateSBlock(const tir::SBlock& block) override {
    Stmt mutated = tir::StmtMutator::MutateSBlock(block);
    const auto* made = mutated.as<tir::SBlockObj>();
    if (!made->annotations.count(kPreproc)) return mutated;
    auto n = ffi::make_object<tir::SBlockObj>(*made);
    n->annotations.erase(kPreproc);
    return ir::NodeRef<tir::SBlock>(std::move(n));
  }
};

bool HasConstantShape(const Var& buffer) {
  const auto* type = buffer->ty.as<tir::BufferTypeObj>();
  return std::all_of(type->shape.begin(), type->shape.end(),
                     [](const Expr& dim) { return dim.as<ir::IntImmObj>() != nullptr; });
}

struct Parts {
  ir::BaseFunc prepack, prepacked;
  std::vector<size_t> sources;  // the arguments of `prepack`, by place in the whole program
  // The arguments of `prepacked`: of the whole program (first: true), or results of `prepack`.
  std::vector<std::pair<bool, size_t>> args;
  ffi::Array<ir::Type> results;  // of `prepack`
};

class Splitter {
 public:
  Splitter(const tir::PrimFunc& program, size_t num_inputs)
      : program_(program), num_inputs_(num_inputs) {}

  std::optional<Parts> Run() {
    Divide();
    if (preparation_.empty() || !FindResults() || !FindSources()) return std::nullopt;
    Parts parts;
    ffi::Array<Var> prepack_params, params;
    for (size_t i = 0; i < num_inputs_; ++i) AddInput(i, &prepack_params, &params, &parts);
    for (const Var& result : results_) {
      const auto* type = result->ty.as<tir::BufferTypeObj>();
      prepack_params.push_back(result);
      // Dimensions of the graph language are int64.
      auto dims = type->shape.Map([](const Expr& dim) { return ir::Cast(Int(64), dim); });
      parts.results.push_back(ir::TensorType(dims, type->dtype));
    }
    for (size_t i = num_inputs_; i < program_->params.size(); ++i)
      params.push_back(program_->params[i]);
    parts.prepack = Program(prepack_params, preparation_, work_uses_, preparation_uses_);
    parts.prepacked = Program(params, work_, preparation_uses_, work_uses_);
    return parts;
  }

 private:
  void Divide() {
    const auto* seq = program_->body.as<tir::SeqStmtObj>();
    const ffi::Array<Stmt> all = seq != nullptr ? seq->seq : ffi::Array<Stmt>{program_->body};
    for (const Stmt& stmt : all) {
      if (const auto* alloc = stmt.as<tir::AllocBufferObj>()) {
        allocated_.push_back(alloc->buffer);
        continue;
      }
      Uses uses;
      uses.Visit(stmt);
      (uses.prepares ? preparation_ : work_).push_back(stmt);
      (uses.prepares ? preparation_uses_ : work_uses_).Visit(stmt);
    }
  }

  // What the preparation leaves to the rest; false when it writes anything but own memory.
  bool FindResults() {
    for (const Var& buffer : allocated_) {
      if (preparation_uses_.written.count(buffer.get()) && work_uses_.used.count(buffer.get())) {
        if (!HasConstantShape(buffer)) return false;
        results_.push_back(buffer);
      }
    }
    for (const ffi::Object* buffer : preparation_uses_.written) {
      if (!IsAllocated(buffer) || work_uses_.written.count(buffer)) return false;
    }
    return !results_.empty();
  }
  // Each result lies in the place of the first weight that its statements read; false when they
  // read anything but weights and what they wrote.
  bool FindSources() {
    for (const ffi::Object* buffer : preparation_uses_.used) {
      if (preparation_uses_.written.count(buffer)) continue;
      const size_t at = ParamOf(buffer);
      if (at >= num_inputs_ || !HasConstantShape(program_->params[at])) return false;
    }
    for (size_t r = 0; r < results_.size(); ++r) {
      size_t first = num_inputs_;
      for (const Stmt& stmt : preparation_) {
        Uses uses;
        uses.Visit(stmt);
        if (!uses.written.count(results_[r].get())) continue;
        for (const ffi::Object* buffer : uses.used) first = std::min(first, ParamOf(buffer));
      }
      if (first == num_inputs_) return false;
      place_[first].push_back(r);
    }
    return true;
  }
  bool IsAllocated(const ffi::Object* buffer) const {
    return std::any_of(allocated_.begin(), allocated_.end(),
                       [&](const Var& v) { return v.get() == buffer; });
  }
  size_t ParamOf(const ffi::Object* buffer) const {
    size_t i = 0;
    while (i < program_->params.size() && program_->params[i].get() != buffer) ++i;
    return i;
  }

  // Weights that only the preparation reads make way for its results.
  void AddInput(size_t i, ffi::Array<Var>* prepack_params, ffi::Array<Var>* params, Parts* parts) {
    const Var& param = program_->params[i];
    const bool prepared = preparation_uses_.used.count(param.get()) != 0;
    if (prepared) {
      prepack_params->push_back(param);
      parts->sources.push_back(i);
    }
    if (!prepared || work_uses_.used.count(param.get())) {
      params->push_back(param);
      parts->args.emplace_back(true, i);
    }
    for (size_t r : place_[i]) {
      params->push_back(results_[r]);
      parts->args.emplace_back(false, r);
    }
  }

  // `stmts` as a program of its own; memory that the other part does not use is its own as well.
  ir::BaseFunc Program(const ffi::Array<Var>& params, const std::vector<Stmt>& stmts,
                       const Uses& others, const Uses& own) const {
    ffi::Array<Stmt> body;
    for (const Var& buffer : allocated_) {
      if (own.used.count(buffer.get()) && !others.used.count(buffer.get()))
        body.push_back(tir::AllocBuffer(buffer));
    }
    for (const Stmt& stmt : stmts) body.push_back(AnnotationRemover().Mutate(stmt));
    ir::DictAttrs attrs = program_->attrs;
    attrs.erase(kLayoutFreeBuffers);
    attrs.erase(ir::attr::kGlobalSymbol);
    return tir::RenewDefs(
        tir::PrimFunc(params, tir::SeqStmt::Flatten(body), attrs, program_->span));
  }

  const tir::PrimFunc& program_;
  const size_t num_inputs_;
  std::vector<Stmt> preparation_, work_;
  Uses preparation_uses_, work_uses_;
  std::vector<Var> allocated_, results_;
  std::map<size_t, std::vector<size_t>> place_;  // parameter -> results
};

class CallSplitter : public EmittingMutator {
 public:
  using EmittingMutator::EmittingMutator;

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    auto call = analysis::AsCallTir(binding->value);
    const std::optional<Parts>* parts = call ? PartsOf(*call) : nullptr;
    if (parts == nullptr || !parts->has_value()) return ir::Mutator::MutateBinding(binding, out);
    const ir::Span& span = call->call->span;
    const std::string name = std::string(call->func->name_hint);
    const ffi::Array<Expr> args = Mutate(call->call->args[1]).as<ir::TupleObj>()->fields;
    ffi::Array<Expr> sources;
    for (size_t i : (*parts)->sources) sources.push_back(args[i]);
    const auto prepack = builder()->AddFunction((*parts)->prepack, name + "_weight_prepack");
    const auto prepacked = builder()->AddFunction((*parts)->prepacked, name + "_prepacked");
    const bool single = (*parts)->results.size() == 1;
    const ir::Type result =
        single ? (*parts)->results[0] : ir::Type(ir::TupleType((*parts)->results));
    const Var prepared =
        Emit(ops::MakeCall("relax.call_tir", {prepack, ir::Tuple(sources)}, {}, {result}, span),
             "lv", span, out);
    ffi::Array<Expr> results;
    for (size_t r = 0; r < (*parts)->results.size(); ++r) {
      results.push_back(
          single ? prepared
                 : Emit(ir::TupleGetItem(prepared, static_cast<int64_t>(r)), "lv", span, out));
    }
    ffi::Array<Expr> rest;
    for (const auto& [given, i] : (*parts)->args) rest.push_back(given ? args[i] : results[i]);
    const ir::Call work(call->call->op, {prepacked, ir::Tuple(rest)}, call->call->attrs,
                        call->call->ty_args, span);
    Rebind(binding, Emit(work, "lv", span, out), out);
  }

 private:
  const std::optional<Parts>* PartsOf(const analysis::TirCall& call) {
    if (!call.tir_vars.empty()) return nullptr;
    auto found = builder()->module()->functions.find(call.func);
    if (found == builder()->module()->functions.end()) return nullptr;
    auto program = (*found).second.as<tir::PrimFunc>();
    if (!program) return nullptr;
    auto known = parts_.find(call.func.get());
    if (known == parts_.end()) {
      known = parts_.emplace(call.func.get(), Splitter(*program, call.args.size()).Run()).first;
    }
    return &known->second;
  }

  std::map<const ffi::Object*, std::optional<Parts>> parts_;
};

}  // namespace

IRModule SplitLayoutRewritePreproc(IRModule mod, const PassContext& context) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  ir::BlockBuilder builder(facts.get(), mod);
  CallSplitter splitter(&builder);
  return RewriteFunctions(&builder, [&](const ir::Function& func) {
    return splitter.MutateFunction(func).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
