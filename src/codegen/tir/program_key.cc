// SPDX-License-Identifier: Apache-2.0
#include "codegen/tir/program_key.h"

#include <cstring>
#include <unordered_map>

#include "tir/functor.h"

namespace relaxvm::codegen {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;

// Every node writes a letter, its own fields, then its children; lists write their length first.
class KeyWriter : public tir::StmtVisitor {
 public:
  std::string Write(const tir::PrimFunc& func) {
    for (const char* name : {tir::attr::kNumOutputs, tir::attr::kNoAlias, tir::attr::kScheduled}) {
      auto it = func->attrs.find(name);
      Tag('@');
      Number(it == func->attrs.end() ? -1 : (*it).second.cast<int64_t>());
    }
    for (const ir::Var& param : func->params) {
      Text(param->name);
      Variable(param.get());
    }
    Visit(func->body);
    return std::move(out_);
  }

  void VisitVar(const ir::VarObj* v) override { Variable(v); }
  void VisitDef(const ir::Var& v) override { Variable(v.get()); }
  void VisitBufferUse(const ir::Var& v) override { Variable(v.get()); }
  void VisitIntImm(const ir::IntImmObj* e) override {
    Node('i', e);
    Number(e->value);
  }
  void VisitFloatImm(const ir::FloatImmObj* e) override {
    Node('f', e);
    int64_t bits;
    std::memcpy(&bits, &e->value, sizeof(bits));
    Number(bits);
  }
  void VisitStringImm(const ir::StringImmObj* e) override {
    Tag('s');
    Text(e->value);
  }
  void VisitCall(const ir::CallObj* e) override {
    Node('x', e);
    const auto* callee = e->op.as<ir::ExternFuncObj>();
    Text(callee != nullptr ? std::string(callee->global_symbol) : "");
    Number(static_cast<int64_t>(e->args.size()));
    StmtVisitor::VisitCall(e);
  }
  void VisitBinary(const ir::BinaryObj* e) override {
    Node('b', e);
    Number(static_cast<int64_t>(e->op));
    StmtVisitor::VisitBinary(e);
  }
  void VisitCast(const ir::CastObj* e) override {
    Node('c', e);
    StmtVisitor::VisitCast(e);
  }
  void VisitSelect(const ir::SelectObj* e) override {
    Node('?', e);
    StmtVisitor::VisitSelect(e);
  }
  void VisitLet(const ir::LetObj* e) override {
    Node('l', e);
    StmtVisitor::VisitLet(e);
  }
  void VisitRamp(const ir::RampObj* e) override {
    Node('r', e);
    StmtVisitor::VisitRamp(e);
  }
  void VisitBroadcast(const ir::BroadcastObj* e) override {
    Node('w', e);
    StmtVisitor::VisitBroadcast(e);
  }
  void VisitShuffle(const ir::ShuffleObj* e) override {
    Node('h', e);
    Number(e->vectors.size());
    for (int64_t index : e->indices) Number(index);
    StmtVisitor::VisitShuffle(e);
  }
  void VisitIntrin(const ir::IntrinObj* e) override {
    Node('n', e);
    Number(static_cast<int64_t>(e->intrin));
    StmtVisitor::VisitIntrin(e);
  }
  void VisitBufferLoad(const tir::BufferLoadObj* e) override {
    Node('L', e);
    Number(e->predicate.defined());
    StmtVisitor::VisitBufferLoad(e);
  }

  void VisitBufferStore(const tir::BufferStoreObj* s) override {
    Tag('S');
    Number(s->predicate.defined());
    StmtVisitor::VisitBufferStore(s);
  }
  void VisitBind(const tir::BindObj* s) override {
    Tag('B');
    StmtVisitor::VisitBind(s);
  }
  void VisitAllocBuffer(const tir::AllocBufferObj* s) override {
    Tag('A');
    StmtVisitor::VisitAllocBuffer(s);
  }
  void VisitAssert(const tir::AssertStmtObj* s) override {
    Tag('!');
    Text(s->error_kind);
    Text(s->message);
    StmtVisitor::VisitAssert(s);
  }
  void VisitSeqStmt(const tir::SeqStmtObj* s) override {
    Tag('{');
    Number(s->seq.size());
    StmtVisitor::VisitSeqStmt(s);
  }
  void VisitEvaluate(const tir::EvaluateObj* s) override {
    Tag('E');
    StmtVisitor::VisitEvaluate(s);
  }
  void VisitIfThenElse(const tir::IfThenElseObj* s) override {
    Tag('I');
    Number(s->else_case.defined());
    StmtVisitor::VisitIfThenElse(s);
  }
  void VisitFor(const tir::ForObj* s) override {
    Tag('F');
    Number(static_cast<int64_t>(s->kind));
    Text(s->thread_tag);
    Annotations(s->annotations);
    StmtVisitor::VisitFor(s);
  }
  void VisitWhile(const tir::WhileObj* s) override {
    Tag('W');
    StmtVisitor::VisitWhile(s);
  }
  void VisitSBlock(const tir::SBlockObj* s) override {
    Tag('K');
    Number(s->init.defined());
    Number(s->alloc_buffers.size());
    for (const tir::IterVar& iter : s->iter_vars) Number(static_cast<int64_t>(iter->kind));
    for (const tir::IterVar& iter : s->iter_vars) VisitDef(iter->var);
    for (const ir::Var& buffer : s->alloc_buffers) VisitDef(buffer);
    Visit(s->init);  // regions say nothing that code depends on
    Visit(s->body);
  }
  void VisitSBlockRealize(const tir::SBlockRealizeObj* s) override {
    Tag('R');
    Number(s->iter_values.size());
    StmtVisitor::VisitSBlockRealize(s);
  }

 private:
  void Tag(char c) { out_ += c; }
  void Number(int64_t value) {
    out_ += std::to_string(value);
    out_ += ',';
  }
  void Text(const std::string& text) {
    Number(static_cast<int64_t>(text.size()));
    out_ += text;
  }
  void Dtype(DLDataType t) { Number(t.code << 24 | t.bits << 16 | t.lanes); }
  void Node(char c, const ir::ExprObj* e) {
    Tag(c);
    Dtype(static_cast<const ir::PrimTypeObj*>(e->ty.get())->dtype);
  }

  // The first time: its type too.
  void Variable(const ir::VarObj* v) {
    Tag('v');
    auto [it, fresh] = numbers_.emplace(v, static_cast<int64_t>(numbers_.size()));
    Number(it->second);
    if (!fresh) return;
    const auto* buffer = v->ty.as<tir::BufferTypeObj>();
    if (buffer == nullptr) return Dtype(static_cast<const ir::PrimTypeObj*>(v->ty.get())->dtype);
    Tag('[');
    Dtype(buffer->dtype);
    Text(buffer->storage_scope);
    Number(static_cast<int64_t>(buffer->shape.size()));
    Number(static_cast<int64_t>(buffer->strides.size()));
    Number(buffer->elem_offset.defined());
    VisitType(v->ty);
  }

  void Annotations(const ir::DictAttrs& annotations) {
    Number(static_cast<int64_t>(annotations.size()));
    for (const auto& [name, value] : annotations) {
      Text(name);
      if (auto number = value.as<int64_t>()) {
        Number(*number);
      } else if (auto text = value.as<ffi::String>()) {
        Text(*text);
      } else if (auto e = value.as<Expr>()) {
        Visit(*e);
      } else {
        Fail(ErrorKind::kTypeError, "loop annotation ", std::string(name),
             " is neither an integer, a string nor an expression");
      }
    }
  }

  std::string out_;
  std::unordered_map<const ir::VarObj*, int64_t> numbers_;
};

}  // namespace

std::string ProgramKey(const tir::PrimFunc& func) { return KeyWriter().Write(func); }

}  // namespace relaxvm::codegen
