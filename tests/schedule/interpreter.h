// SPDX-License-Identifier: Apache-2.0
// Runs tensor programs by walking them, in doubles: slow, obvious, and independent of code
// generation. Takes unscheduled programs (blocks) and scheduled ones (vector loops run lane by
// lane, parallel loops in order, or a share of each).
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tir/functor.h"

namespace relaxvm::testing {

namespace ffi = tvm::ffi;
using Lanes = std::vector<double>;

// Elements of a parameter, at `sizes`.
inline int64_t NumElements(const ir::Var& param, const std::map<std::string, int64_t>& sizes) {
  int64_t count = 1;
  for (const ir::Expr& d : tir::Buffer(param).shape()) {
    ffi::Map<ir::Var, ir::Expr> map;
    for (const ir::Var& v : ir::FreeVars(d)) map.Set(v, sizes.at(std::string(v->name)));
    count *= ir::AsInt(ir::Substitute(d, map)).value();
  }
  return count;
}

class Interpreter {
 public:
  // Memory of each parameter, in order; scalars have one element.  Sizes are bound from `sizes`.
  void Run(const tir::PrimFunc& func, const std::vector<std::vector<double>*>& memory,
           const std::map<std::string, int64_t>& sizes) {
    named_ = &sizes;
    for (size_t i = 0; i < func->params.size(); ++i) memory_[func->params[i].get()] = memory[i];
    Exec(func->body);
  }
  // Reads or writes outside of a buffer.
  int num_out_of_bounds = 0;
  // Of each parallel loop, this one of so many shares runs.
  int64_t share = 0, num_shares = 1;

 private:
  int64_t Int(const ir::Expr& e) { return static_cast<int64_t>(Eval(e)[0]); }

  double* Element(const ir::Var& buffer, const ffi::Array<ir::Expr>& indices, size_t lane) {
    tir::Buffer b(buffer);
    int64_t offset = 0;
    if (indices.size() == b.shape().size()) {
      for (size_t i = 0; i < indices.size(); ++i) {
        Lanes at = Eval(indices[i]);
        offset = offset * Int(b.shape()[i]) + static_cast<int64_t>(at[lane % at.size()]);
      }
    } else {
      Lanes at = Eval(indices[0]);
      offset = static_cast<int64_t>(at[lane % at.size()]);
    }
    std::vector<double>& data = *memory_.at(buffer.get());
    if (offset < 0 || offset >= static_cast<int64_t>(data.size())) {
      ++num_out_of_bounds;
      return nullptr;
    }
    return &data[static_cast<size_t>(offset)];
  }

  static double Binary(ir::BinaryOp op, double a, double b, bool integer) {
    using ir::BinaryOp;
    switch (op) {
      case BinaryOp::kAdd: return a + b;
      case BinaryOp::kSub: return a - b;
      case BinaryOp::kMul: return a * b;
      case BinaryOp::kDiv: return integer ? std::trunc(a / b) : a / b;
      case BinaryOp::kMod: return std::fmod(a, b);
      case BinaryOp::kFloorDiv: return std::floor(a / b);
      case BinaryOp::kFloorMod: return a - b * std::floor(a / b);
      case BinaryOp::kMin: return std::min(a, b);
      case BinaryOp::kMax: return std::max(a, b);
      case BinaryOp::kEQ: return a == b;
      case BinaryOp::kNE: return a != b;
      case BinaryOp::kLT: return a < b;
      case BinaryOp::kLE: return a <= b;
      case BinaryOp::kGT: return a > b;
      case BinaryOp::kGE: return a >= b;
      case BinaryOp::kAnd: return a != 0 && b != 0;
      case BinaryOp::kOr: return a != 0 || b != 0;
      default: break;
    }
    RELAXVM_CHECK(false) << "operator not known to the test interpreter";
    return 0;
  }

  Lanes Eval(const ir::Expr& e) {
    if (const auto* imm = e.as<ir::IntImmObj>()) return {static_cast<double>(imm->value)};
    if (const auto* imm = e.as<ir::FloatImmObj>()) return {imm->value};
    if (const auto* v = e.as<ir::VarObj>()) {
      auto it = vars_.find(v);
      if (it != vars_.end()) return it->second;
      return {static_cast<double>(named_->at(std::string(v->name)))};
    }
    if (const auto* b = e.as<ir::BinaryObj>()) {
      Lanes x = Eval(b->a), y = Eval(b->b), out(std::max(x.size(), y.size()));
      const bool integer = !IsFloat(b->a.dtype());
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = Binary(b->op, x[i % x.size()], y[i % y.size()], integer);
      return out;
    }
    if (const auto* c = e.as<ir::CastObj>()) {
      Lanes v = Eval(c->value);
      if (!IsFloat(e.dtype())) {
        for (double& x : v) x = std::trunc(x);
      }
      return v;
    }
    if (const auto* s = e.as<ir::SelectObj>())
      return Eval(Eval(s->condition)[0] != 0 ? s->true_value : s->false_value);
    if (const auto* r = e.as<ir::RampObj>()) {
      Lanes out;
      const double base = Eval(r->base)[0], stride = Eval(r->stride)[0];
      for (int64_t i = 0; i < r->lanes; ++i) out.push_back(base + stride * static_cast<double>(i));
      return out;
    }
    if (const auto* b = e.as<ir::BroadcastObj>())
      return Lanes(static_cast<size_t>(b->lanes), Eval(b->value)[0]);
    if (const auto* s = e.as<ir::ShuffleObj>()) {
      Lanes all, out;
      for (const ir::Expr& vector : s->vectors) {
        const Lanes part = Eval(vector);
        all.insert(all.end(), part.begin(), part.end());
      }
      for (int64_t index : s->indices) out.push_back(all.at(static_cast<size_t>(index)));
      return out;
    }
    if (const auto* i = e.as<ir::IntrinObj>()) return EvalIntrin(i);
    const auto* load = e.as<tir::BufferLoadObj>();
    RELAXVM_CHECK(load != nullptr) << e->GetTypeKey();
    size_t lanes = 1;
    for (const ir::Expr& index : load->indices)
      lanes = std::max<size_t>(lanes, index.dtype().lanes);
    Lanes out;
    for (size_t i = 0; i < lanes; ++i) {
      if (load->predicate.defined() && Eval(load->predicate)[0] == 0) {
        out.push_back(0);
        continue;
      }
      const double* at = Element(load->buffer, load->indices, i);
      out.push_back(at == nullptr ? NAN : *at);
    }
    return out;
  }

  Lanes EvalIntrin(const ir::IntrinObj* i) {
    using ir::Intrin;
    if (i->intrin == Intrin::kIfThenElse)
      return Eval(Eval(i->args[0])[0] != 0 ? i->args[1] : i->args[2]);
    Lanes a = Eval(i->args[0]);
    switch (i->intrin) {
      case Intrin::kNot: return {a[0] == 0 ? 1.0 : 0.0};
      case Intrin::kExp:
      case Intrin::kExpOfNegative: return {std::exp(a[0])};
      case Intrin::kSqrt: return {std::sqrt(a[0])};
      case Intrin::kFma: return {a[0] * Eval(i->args[1])[0] + Eval(i->args[2])[0]};
      case Intrin::kReduceAdd: {
        double sum = 0;
        for (double x : a) sum += x;
        return {sum};
      }
      case Intrin::kReduceMax: {
        double best = a[0];
        for (double x : a) best = std::max(best, x);
        return {best};
      }
      default: break;
    }
    RELAXVM_CHECK(false) << ir::IntrinName(i->intrin) << " is not known to the test interpreter";
    return {};
  }

  // Does a nest hold a block with an init?  Notes the loops of its reduce axes.
  bool ReadReduceLoops(const tir::Stmt& nest) {
    bool has_init = false;
    tir::PostOrderVisit(nest, [&](const ffi::ObjectRef& node) {
      const auto* realize = node.as<tir::SBlockRealizeObj>();
      if (realize == nullptr) return;
      has_init = has_init || realize->block->init.defined();
      for (size_t i = 0; i < realize->iter_values.size(); ++i) {
        if (realize->block->iter_vars[i]->kind == tir::IterKind::kReduce)
          reduce_loops_.insert(realize->iter_values[i].get());
      }
    });
    return has_init;
  }

  void Exec(const tir::Stmt& s) {
    if (!s.defined()) return;
    if (const auto* seq = s.as<tir::SeqStmtObj>()) {
      for (const tir::Stmt& part : seq->seq) Exec(part);
    } else if (const auto* alloc = s.as<tir::AllocBufferObj>()) {
      int64_t size = 1;
      for (const ir::Expr& d : tir::Buffer(alloc->buffer).shape()) size *= Int(d);
      owned_.push_back(std::make_unique<std::vector<double>>(static_cast<size_t>(size), NAN));
      memory_[alloc->buffer.get()] = owned_.back().get();
    } else if (const auto* bind = s.as<tir::BindObj>()) {
      vars_[bind->var.get()] = Eval(bind->value);
    } else if (const auto* branch = s.as<tir::IfThenElseObj>()) {
      Exec(Eval(branch->condition)[0] != 0 ? branch->then_case : branch->else_case);
    } else if (const auto* loop = s.as<tir::ForObj>()) {
      if (nest_ == nullptr && ReadReduceLoops(s)) {
        // Every element gets the reduction's identity first, also when there is nothing to add.
        nest_ = loop;
        initializing_ = true;
        Exec(s);
        initializing_ = false;
        Exec(s);
        nest_ = nullptr;
        return;
      }
      const int64_t min = Int(loop->min);
      const int64_t extent =
          initializing_ && reduce_loops_.count(loop->loop_var.get()) ? 1 : Int(loop->extent);
      const bool all = loop->kind != tir::ForKind::kParallel;
      const int64_t begin = all ? 0 : extent * share / num_shares,
                    end = all ? extent : extent * (share + 1) / num_shares;
      for (int64_t i = min + begin; i < min + end; ++i) {
        vars_[loop->loop_var.get()] = {static_cast<double>(i)};
        Exec(loop->body);
      }
    } else if (const auto* realize = s.as<tir::SBlockRealizeObj>()) {
      for (size_t i = 0; i < realize->iter_values.size(); ++i) {
        vars_[realize->block->iter_vars[i]->var.get()] = Eval(realize->iter_values[i]);
      }
      Exec(initializing_ ? realize->block->init : realize->block->body);
    } else if (const auto* evaluate = s.as<tir::EvaluateObj>()) {
      Eval(evaluate->value);  // the body of a loop that only fetches
    } else {
      const auto* store = s.as<tir::BufferStoreObj>();
      RELAXVM_CHECK(store != nullptr) << s->GetTypeKey();
      if (store->predicate.defined() && Eval(store->predicate)[0] == 0) return;
      const Lanes value = Eval(store->value);
      for (size_t lane = 0; lane < value.size(); ++lane) {
        if (double* at = Element(store->buffer, store->indices, lane)) *at = value[lane];
      }
    }
  }

  const std::map<std::string, int64_t>* named_ = nullptr;
  const tir::ForObj* nest_ = nullptr;  // the nest of a block with init that is being run
  bool initializing_ = false;
  std::unordered_set<const ffi::Object*> reduce_loops_;
  std::unordered_map<const ffi::Object*, Lanes> vars_;
  std::unordered_map<const ffi::Object*, std::vector<double>*> memory_;
  std::vector<std::unique_ptr<std::vector<double>>> owned_;
};

}  // namespace relaxvm::testing
