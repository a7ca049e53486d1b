// SPDX-License-Identifier: Apache-2.0
// From a graph of tensors to a tensor program: producers first, one block per stage, temporaries
// allocated at the front.
#include <tvm/ffi/cast.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tir/functor.h"
#include "tir/stage.h"

namespace relaxvm::tir {
namespace {

// Loads of tensors become loads of the buffers that hold them.
class LoadRewriter : public StmtMutator {
 public:
  explicit LoadRewriter(std::function<Buffer(const Tensor&)> buffer_of)
      : buffer_of_(std::move(buffer_of)) {}

  Expr MutateOther(const Expr& e) override {
    const auto* load = e.as<TensorLoadObj>();
    if (load == nullptr) return StmtMutator::MutateOther(e);
    return BufferLoad(buffer_of_(load->tensor), MutateAll(load->indices), Expr(), e->span);
  }

 private:
  std::function<Buffer(const Tensor&)> buffer_of_;
};

// Tensors that a formula loads, in order of appearance.
class LoadCollector : public StmtVisitor {
 public:
  std::vector<Tensor> tensors;

  void VisitOther(const ir::ExprObj* e) override {
    if (!e->IsInstance<TensorLoadObj>()) return StmtVisitor::VisitOther(e);
    const auto* load = static_cast<const TensorLoadObj*>(e);
    tensors.push_back(load->tensor);
    for (const Expr& index : load->indices) Visit(index);
  }
};

// The regions that an expression reads: single elements, or the whole buffer when an index uses a
// variable that is no axis of the block (bound inside the expression) or loads by itself.
bool SameIndices(const ffi::Array<Expr>& a, const ffi::Array<Expr>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].same_as(b[i])) return false;
  }
  return true;
}

class ReadCollector : public StmtVisitor {
 public:
  std::vector<BufferRegion> regions;

  void VisitBufferLoad(const BufferLoadObj* l) override {
    StmtVisitor::VisitBufferLoad(l);
    bool simple = true;
    for (const Expr& index : l->indices) {
      PostOrderVisit(Evaluate(index), [&](const ffi::ObjectRef& node) {
        if (node.as<BufferLoadObj>()) simple = false;
        if (bound_.count(node.get())) simple = false;
      });
    }
    Buffer buffer(l->buffer);
    ffi::Array<Expr> mins, extents;
    for (size_t i = 0; i < l->indices.size(); ++i) {
      mins.push_back(simple ? l->indices[i] : Expr(0));
      extents.push_back(simple ? Expr(1) : buffer.shape()[i]);
    }
    Add(BufferRegion(buffer, mins, extents));
  }

  void VisitLet(const ir::LetObj* l) override {
    bound_.insert(l->var.get());
    StmtVisitor::VisitLet(l);
  }

 private:
  void Add(BufferRegion region) {
    for (const BufferRegion& known : regions) {
      if (known->buffer.same_as(region->buffer) && SameIndices(known->mins, region->mins)) return;
    }
    regions.push_back(std::move(region));
  }

  std::unordered_set<const ffi::Object*> bound_;
};

ffi::Array<BufferRegion> ToArray(const std::vector<BufferRegion>& regions) {
  return ffi::Array<BufferRegion>(regions.begin(), regions.end());
}

BufferRegion WholeRegion(const Buffer& buffer) {
  ffi::Array<Expr> mins;
  for (size_t i = 0; i < buffer.shape().size(); ++i) mins.push_back(Expr(0));
  return BufferRegion(buffer, mins, buffer.shape());
}

BufferRegion PointRegion(const Buffer& buffer, const ffi::Array<Expr>& indices) {
  ffi::Array<Expr> extents;
  for (size_t i = 0; i < indices.size(); ++i) extents.push_back(Expr(1));
  return BufferRegion(buffer, indices, extents);
}

class Creator {
 public:
  PrimFunc Create(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                  const ffi::Array<Var>& scalars) {
    ffi::Array<Var> params;
    for (const Tensor& input : inputs) {
      RELAXVM_CHECK(!input->stage.has_value()) << input->name << " is no placeholder";
      Buffer buffer = NewBuffer(input);
      RELAXVM_CHECK(placeholders_.emplace(input.get(), buffer).second)
          << input->name << " is given twice";
      params.push_back(buffer);
    }
    std::vector<std::pair<Tensor, Buffer>> copies;
    for (const Tensor& output : outputs) {
      Buffer buffer = NewBuffer(output);
      params.push_back(buffer);
      bool fresh = output->stage.has_value() && results_.emplace(Key(output), buffer).second;
      if (!fresh) copies.emplace_back(output, buffer);
    }
    for (const Var& scalar : scalars) params.push_back(scalar);
    for (const Tensor& output : outputs) Visit(output);
    for (const auto& [from, to] : copies) EmitCopy(from, to);

    ffi::Array<Stmt> body = allocs_;
    for (const Stmt& s : stages_) body.push_back(s);
    ir::DictAttrs attrs;
    attrs.Set(attr::kNoAlias, true);
    if (outputs.size() != 1) attrs.Set(attr::kNumOutputs, static_cast<int64_t>(outputs.size()));
    return PrimFunc(params, SeqStmt::Flatten(body), attrs);
  }

 private:
  static const StageObj* StageOf(const Tensor& t) {
    return static_cast<const StageObj*>(t->stage.value().get());
  }
  static std::string Key(const Tensor& t) {
    return std::to_string(reinterpret_cast<uintptr_t>(StageOf(t))) + ":" + std::to_string(t->index);
  }

  Buffer NewBuffer(const Tensor& t) {
    std::string name = t->name;
    int& count = names_[name];
    if (count++ > 0) name += "_" + std::to_string(count - 1);
    return Buffer(name, t->shape, t->dtype);
  }

  Buffer BufferOf(const Tensor& t) {
    if (!t->stage.has_value()) {
      auto it = placeholders_.find(t.get());
      RELAXVM_CHECK(it != placeholders_.end()) << t->name << " is read but is no input";
      return it->second;
    }
    return results_.at(Key(t));
  }

  // Emits the stage of `t` after the stages that it reads.
  void Visit(const Tensor& t) {
    if (!t->stage.has_value()) return;
    const StageObj* stage = StageOf(t);
    if (!visited_.insert(stage).second) return;
    if (stage->kind == StageKind::kOpaque) {
      for (const Tensor& input : stage->inputs) Visit(input);
    } else {
      LoadCollector loads;
      for (const Expr& value : stage->values) loads.Visit(value);
      for (const Tensor& input : loads.tensors) Visit(input);
    }
    for (const Tensor& out : stage->outputs) {
      std::string key =
          std::to_string(reinterpret_cast<uintptr_t>(stage)) + ":" + std::to_string(out->index);
      if (results_.count(key)) continue;
      Buffer buffer = NewBuffer(out);
      results_.emplace(key, buffer);
      allocs_.push_back(AllocBuffer(buffer));
    }
    stages_.push_back(stage->kind == StageKind::kOpaque ? OpaqueStage(stage) : LoopStage(stage));
  }

  std::vector<Buffer> OutputsOf(const StageObj* stage) {
    std::vector<Buffer> buffers;
    for (const Tensor& out : stage->outputs) {
      buffers.push_back(results_.at(std::to_string(reinterpret_cast<uintptr_t>(stage)) + ":" +
                                    std::to_string(out->index)));
    }
    return buffers;
  }

  Stmt OpaqueStage(const StageObj* stage) {
    std::vector<Buffer> inputs, outputs = OutputsOf(stage);
    std::vector<BufferRegion> reads, writes;
    for (const Tensor& t : stage->inputs) {
      inputs.push_back(BufferOf(t));
      reads.push_back(WholeRegion(inputs.back()));
    }
    for (const Buffer& b : outputs) writes.push_back(WholeRegion(b));
    return SBlockRealize(
        {}, ir::BoolImm(true),
        SBlock({}, ToArray(reads), ToArray(writes), stage->name, stage->body(inputs, outputs)));
  }

  Stmt LoopStage(const StageObj* stage) {
    LoadRewriter rewrite([this](const Tensor& t) { return BufferOf(t); });
    std::vector<Expr> values;
    for (const Expr& value : stage->values) values.push_back(rewrite.Mutate(value));
    ReadCollector reads;
    for (const Expr& value : values) reads.Visit(value);
    std::vector<Buffer> outputs = OutputsOf(stage);
    Indices at;
    for (const Var& axis : stage->axes) at.push_back(axis);
    Stmt init, body;
    if (stage->reducer.has_value()) {
      init = InitOf(stage->reducer.value(), outputs, at);
      body = UpdateOf(stage->reducer.value(), outputs, values, at);
    } else {
      body = BufferStore(outputs[0], values[0], at);
    }
    std::vector<BufferRegion> writes;
    for (const Buffer& b : outputs) writes.push_back(PointRegion(b, at));
    return Nest(stage, stage->outputs[0]->shape, reads.regions, writes, init, body);
  }

  static Stmt InitOf(const Reducer& reducer, const std::vector<Buffer>& outputs,
                     const Indices& at) {
    ffi::Array<Stmt> stores;
    for (size_t i = 0; i < outputs.size(); ++i) {
      stores.push_back(BufferStore(outputs[i], reducer->identity[i], at));
    }
    return SeqStmt::Flatten(stores);
  }

  // Several values: all are computed from the old ones before any is stored.
  static Stmt UpdateOf(const Reducer& reducer, const std::vector<Buffer>& outputs,
                       const std::vector<Expr>& values, const Indices& at) {
    ffi::Map<Var, Expr> map;
    ffi::Array<Stmt> seq;
    if (outputs.size() == 1) {
      map.Set(reducer->lhs[0], BufferLoad(outputs[0], at));
      map.Set(reducer->rhs[0], values[0]);
      return BufferStore(outputs[0], tir::Substitute(reducer->result[0], map), at);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      Var old("old" + std::to_string(i), reducer->lhs[i]->ty);
      Var next("next" + std::to_string(i), reducer->rhs[i]->ty);
      seq.push_back(Bind(old, BufferLoad(outputs[i], at)));
      seq.push_back(Bind(next, values[i]));
      map.Set(reducer->lhs[i], old);
      map.Set(reducer->rhs[i], next);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      seq.push_back(BufferStore(outputs[i], tir::Substitute(reducer->result[i], map), at));
    }
    return SeqStmt::Flatten(seq);
  }

  static Stmt Nest(const StageObj* stage, const ffi::Array<Expr>& shape,
                   const std::vector<BufferRegion>& reads, const std::vector<BufferRegion>& writes,
                   const Stmt& init, const Stmt& body) {
    ffi::Array<IterVar> iter_vars;
    ffi::Array<Expr> values;
    std::vector<Var> loops;
    auto add_axes = [&](const ffi::Array<Var>& axes, const ffi::Array<Expr>& extents,
                        IterKind kind) {
      for (size_t i = 0; i < axes.size(); ++i) {
        iter_vars.push_back(IterVar(axes[i], Expr(0), extents[i], kind));
        loops.push_back(Var(axes[i]->name, Int(64)));
        values.push_back(loops.back());
      }
    };
    add_axes(stage->axes, shape, IterKind::kSpatial);
    add_axes(stage->reduce_axes, stage->reduce_extents, IterKind::kReduce);
    SBlock block(iter_vars, ToArray(reads), ToArray(writes), stage->name, body, init);
    Stmt nest = SBlockRealize(values, ir::BoolImm(true), block);
    for (size_t i = loops.size(); i-- > 0;) {
      nest = For(loops[i], Expr(0), iter_vars[i]->extent, ForKind::kSerial, nest);
    }
    // Programs may hold a stage twice: each copy has variables of its own.
    return nest;
  }

  void EmitCopy(const Tensor& from, const Buffer& to) {
    Tensor copy = Compute(from->shape, [&](const Indices& i) { return from(i); }, to->name);
    results_.emplace(Key(copy), to);
    Visit(copy);
    kept_.push_back(copy);
  }

  std::unordered_map<const ffi::Object*, Buffer> placeholders_;
  std::unordered_map<std::string, Buffer> results_;  // by stage and index
  std::unordered_set<const ffi::Object*> visited_;
  std::unordered_map<std::string, int> names_;
  std::vector<Tensor> kept_;  // keys hold addresses: these must stay alive
  ffi::Array<Stmt> allocs_;
  std::vector<Stmt> stages_;
};

}  // namespace

PrimFunc CreatePrimFunc(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                        const ffi::Array<Var>& scalars) {
  // The axes of a stage belong to the tensors, which may be used again: the program gets its own.
  return RenewDefs(Creator().Create(inputs, outputs, scalars));
}

}  // namespace relaxvm::tir
