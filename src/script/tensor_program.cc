// SPDX-License-Identifier: Apache-2.0
// Tensor programs as script.
#include "ir/visitor.h"
#include "script/printer.h"

namespace relaxvm::script {

namespace {

std::string Text(const ffi::String& s) { return std::string(s.data(), s.size()); }

bool NamesVariables(const ffi::Array<Expr>& list) {
  bool found = false;
  for (const Expr& e : list) {
    ir::PostOrderVisit(e, [&found](const Expr& part) { found = found || part.as<ir::VarObj>(); });
  }
  return found;
}

bool NamesVariables(const tir::BufferTypeObj* t) {
  return NamesVariables(t->shape) || NamesVariables(t->strides) ||
         (t->elem_offset.defined() && NamesVariables({t->elem_offset}));
}

bool IsTrue(const Expr& e) { return ir::IsIntValue(e, 1) && IsBool(e.dtype()); }
bool IsZero(const Expr& e) { return ir::IsIntValue(e, 0); }

}  // namespace

ir::Expr ExtentBetween(const Expr& start, const Expr& stop) {
  if (IsZero(start)) return stop;
  const auto* sum = stop.as<ir::BinaryObj>();
  if (sum != nullptr && sum->op == ir::BinaryOp::kAdd && ir::StructuralEqual(sum->a, start)) {
    return sum->b;
  }
  return ir::Sub(stop, start);
}

std::string Printer::BufferArguments(const tir::BufferTypeObj* t) {
  std::string text = Tuple(t->shape) + ", " + Quoted(DTypeName(t->dtype));
  if (!t->strides.empty()) text += ", strides=" + Tuple(t->strides);
  if (t->elem_offset.defined()) text += ", elem_offset=" + Scalar(t->elem_offset);
  if (t->storage_scope != "global") text += ", scope=" + Quoted(Text(t->storage_scope));
  if (t->data_alignment != 64) text += ", align=" + std::to_string(t->data_alignment);
  return text;
}

void Printer::TensorProgram(const tir::PrimFuncObj* func, const std::string& name,
                            const std::string& in_module) {
  StartFunction();
  const bool outer = in_program_;
  in_program_ = true;
  std::vector<std::string> params;
  std::vector<Var> matched;  // buffers whose type speaks of variables
  for (const Var& p : func->params) {
    const auto* type = p->ty.as<tir::BufferTypeObj>();
    if (type != nullptr && NamesVariables(type)) {
      params.push_back(FreshName("var_" + Text(p->name)) + ": T.handle");
      matched.push_back(p);
      continue;
    }
    std::string text;
    if (type != nullptr) {
      text = "T.Buffer(" + BufferArguments(type) + ")";
    } else if (const auto* prim = p->ty.as<ir::PrimTypeObj>()) {
      text = "T." + DTypeName(prim->dtype);
    } else {
      text = TypeText(p->ty);
    }
    params.push_back(Define(p.get(), Text(p->name)) + ": " + text);
  }
  auto symbol = func->attrs.find(ir::attr::kGlobalSymbol);
  const bool is_private = symbol == func->attrs.end();
  Line(std::string("@T.prim_func") + (is_private ? "(private=True)" : ""));
  std::string ret;
  if (func->ret_type.defined() && !ir::IsVoidType(func->ret_type)) {
    const auto* prim = func->ret_type.as<ir::PrimTypeObj>();
    ret = " -> " + (prim != nullptr ? "T." + DTypeName(prim->dtype) : TypeText(func->ret_type));
  }
  Line("def " + name + "(" + Join(params) + ")" + ret + ":");
  Indent indent(this);
  std::unordered_set<std::string> implied;
  if (!is_private) {
    auto text = (*symbol).second.as<ffi::String>();
    if (text && Text(*text) == name) implied.insert(ir::attr::kGlobalSymbol);
  }
  std::string attrs = Dictionary(func->attrs, implied);
  if (attrs != "{}") Line("T.func_attr(" + attrs + ")");
  size_t next = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    if (next == matched.size() || !matched[next].same_as(func->params[i])) continue;
    const Var& buffer = matched[next++];
    std::string arguments = BufferArguments(buffer->ty.as<tir::BufferTypeObj>());
    std::string handle = params[i].substr(0, params[i].find(':'));
    Line(Define(buffer.get(), Text(buffer->name)) + " = T.match_buffer(" + handle + ", " +
         arguments + ")");
  }
  // `cls` is bound where it is used; whether that is so shows only afterwards.
  const size_t at = out_.size();
  uses_cls_ = false;
  StatementOrPass(func->body);
  if (uses_cls_) out_.insert(at, std::string(indent_, ' ') + "cls = " + in_module + "\n");
  in_program_ = outer;
}

void Printer::StatementOrPass(const Stmt& s) {
  const size_t before = out_.size();
  if (s.defined()) Statement(s);
  if (out_.size() == before) Line("pass");
}

std::string Printer::Range(const Expr& min, const Expr& extent) {
  if (IsZero(min)) return Scalar(extent);
  Expr stop = ir::Add(min, extent);
  if (ir::StructuralEqual(ExtentBetween(min, stop), extent)) {
    return Scalar(min) + ", " + Scalar(stop);
  }
  return Scalar(min) + ", extent=" + Scalar(extent);
}

// Perfectly nested plain loops are one T.grid.
void Printer::Loop(const Stmt& s) {
  const auto* loop = s.as<tir::ForObj>();
  auto plain = [](const tir::ForObj* f) {
    return f->kind == tir::ForKind::kSerial && f->annotations.empty() && IsZero(f->min) &&
           f->loop_var.dtype() == f->extent.dtype();
  };
  std::vector<const tir::ForObj*> nest = {loop};
  std::unordered_set<const ffi::Object*> vars = {loop->loop_var.get()};
  while (plain(nest.back())) {
    const auto* inner = nest.back()->body.as<tir::ForObj>();
    if (inner == nullptr || !plain(inner)) break;
    bool uses = false;
    ir::PostOrderVisit(inner->extent, [&](const Expr& e) { uses = uses || vars.count(e.get()); });
    if (uses) break;
    vars.insert(inner->loop_var.get());
    nest.push_back(inner);
  }
  std::vector<std::string> names, extents;
  std::string head;
  if (nest.size() > 1) {
    for (const tir::ForObj* f : nest) extents.push_back(Scalar(f->extent));
    head = "T.grid(" + Join(extents) + ")";
  } else {
    static constexpr const char* kNames[] = {"serial", "parallel", "vectorized", "unroll",
                                             "thread_binding"};
    std::string arguments = Range(loop->min, loop->extent);
    if (loop->loop_var.dtype() != loop->extent.dtype()) {
      arguments += ", dtype=" + Quoted(DTypeName(loop->loop_var.dtype()));
    }
    if (!loop->thread_tag.empty()) arguments += ", thread=" + Quoted(Text(loop->thread_tag));
    if (!loop->annotations.empty()) arguments += ", annotations=" + Dictionary(loop->annotations);
    head = plain(loop)
               ? "range(" + arguments + ")"
               : std::string("T.") + kNames[static_cast<int>(loop->kind)] + "(" + arguments + ")";
  }
  for (const tir::ForObj* f : nest) {
    names.push_back(Define(f->loop_var.get(), Text(f->loop_var->name)));
    loops_[f->loop_var.get()] = f;
  }
  Line("for " + Join(names) + " in " + head + ":");
  {
    Indent indent(this);
    StatementOrPass(nest.back()->body);
  }
  for (const tir::ForObj* f : nest) loops_.erase(f->loop_var.get());
}

std::string Printer::Region(const tir::BufferRegion& region) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < region->mins.size(); ++i) {
    const Expr& min = region->mins[i];
    const Expr& extent = region->extents[i];
    if (ir::IsIntValue(extent, 1) && extent.dtype() == min.dtype()) {
      parts.push_back(Scalar(min));
      continue;
    }
    Expr stop = ir::Add(min, extent);
    if (!ir::StructuralEqual(ExtentBetween(min, stop), extent)) {
      return "T.region(" + NameOf(region->buffer) + ", [" + Scalars(region->mins) + "], [" +
             Scalars(region->extents) + "])";
    }
    parts.push_back(Scalar(min) + ":" + Scalar(stop));
  }
  return NameOf(region->buffer) + "[" + (parts.empty() ? "()" : Join(parts)) + "]";
}

std::string Printer::Regions(const ffi::Array<tir::BufferRegion>& regions) {
  std::vector<std::string> parts;
  for (const tir::BufferRegion& r : regions) parts.push_back(Region(r));
  return Join(parts);
}

// Axes that run over a whole enclosing loop are written together: T.axis.remap("SR", [i, k]).
void Printer::Axes(const tir::SBlockRealizeObj* realize) {
  static constexpr const char* kNames[] = {"spatial", "reduce", "opaque"};
  static constexpr char kLetters[] = {'S', 'R'};
  std::vector<std::string> names, values;
  std::string letters;
  auto flush = [&] {
    if (!names.empty()) {
      Line(Join(names) + " = T.axis.remap(" + Quoted(letters) + ", [" + Join(values) + "])");
    }
    names.clear(), values.clear(), letters.clear();
  };
  for (size_t i = 0; i < realize->block->iter_vars.size(); ++i) {
    const tir::IterVar& axis = realize->block->iter_vars[i];
    const Expr& value = realize->iter_values[i];
    auto loop = loops_.find(value.get());
    const bool whole = loop != loops_.end() && axis->kind != tir::IterKind::kOpaque &&
                       axis->var.dtype() == loop->second->loop_var.dtype() &&
                       ir::StructuralEqual(axis->min, loop->second->min) &&
                       ir::StructuralEqual(axis->extent, loop->second->extent);
    if (whole) {
      values.push_back(Scalar(value));
      names.push_back(Define(axis->var.get(), Text(axis->var->name)));
      letters += kLetters[static_cast<int>(axis->kind)];
      continue;
    }
    flush();
    std::string domain =
        IsZero(axis->min) && axis->min.dtype() == axis->extent.dtype()
            ? Scalar(axis->extent)
            : "I.Range(" + Scalar(axis->min) + ", extent=" + Scalar(axis->extent) + ")";
    std::string text = std::string("T.axis.") + kNames[static_cast<int>(axis->kind)] + "(" +
                       domain + ", " + Scalar(value);
    if (axis->var.dtype() != axis->extent.dtype()) {
      text += ", dtype=" + Quoted(DTypeName(axis->var.dtype()));
    }
    Line(Define(axis->var.get(), Text(axis->var->name)) + " = " + text + ")");
  }
  flush();
}

void Printer::Block(const tir::SBlockRealizeObj* realize) {
  const tir::SBlock& block = realize->block;
  Line("with T.sblock(" + (block->name_hint.empty() ? "" : Quoted(Text(block->name_hint))) + "):");
  Indent indent(this);
  Axes(realize);
  if (!IsTrue(realize->predicate)) Line("T.where(" + Scalar(realize->predicate) + ")");
  for (const Var& buffer : block->alloc_buffers) {
    std::string arguments = BufferArguments(buffer->ty.as<tir::BufferTypeObj>());
    Line(Define(buffer.get(), Text(buffer->name)) + " = T.sblock_alloc_buffer(" + arguments + ")");
  }
  Line("T.reads(" + Regions(block->reads) + ")");
  Line("T.writes(" + Regions(block->writes) + ")");
  if (!block->annotations.empty()) Line("T.sblock_attr(" + Dictionary(block->annotations) + ")");
  if (block->init.defined()) {
    Line("with T.init():");
    Indent inner(this);
    StatementOrPass(block->init);
  }
  StatementOrPass(block->body);
}

void Printer::Statement(const Stmt& s) {
  if (const auto* seq = s.as<tir::SeqStmtObj>()) {
    for (const Stmt& part : seq->seq) Statement(part);
  } else if (const auto* store = s.as<tir::BufferStoreObj>()) {
    std::string value = Scalar(store->value);
    if (store->predicate.defined()) {
      Line(NameOf(store->buffer) + ".vstore([" + Scalars(store->indices) + "], " + value +
           ", predicate=" + Scalar(store->predicate) + ")");
    } else {
      Line(NameOf(store->buffer) + "[" + Indices(store->indices) + "] = " + value);
    }
  } else if (s.as<tir::ForObj>()) {
    Loop(s);
  } else if (const auto* realize = s.as<tir::SBlockRealizeObj>()) {
    Block(realize);
  } else if (const auto* branch = s.as<tir::IfThenElseObj>()) {
    Line("if " + Scalar(branch->condition) + ":");
    {
      Indent indent(this);
      StatementOrPass(branch->then_case);
    }
    if (!branch->else_case.defined()) return;
    Line("else:");
    Indent indent(this);
    StatementOrPass(branch->else_case);
  } else {
    OtherStatement(s);
  }
}

void Printer::OtherStatement(const Stmt& s) {
  if (const auto* bind = s.as<tir::BindObj>()) {
    std::string value = Scalar(bind->value);
    const auto* prim = bind->var->ty.as<ir::PrimTypeObj>();
    std::string type = prim != nullptr ? "T." + DTypeName(prim->dtype) : TypeText(bind->var->ty);
    Line(Define(bind->var.get(), Text(bind->var->name)) + ": " + type + " = " + value);
  } else if (const auto* alloc = s.as<tir::AllocBufferObj>()) {
    std::string arguments = BufferArguments(alloc->buffer->ty.as<tir::BufferTypeObj>());
    Line(Define(alloc->buffer.get(), Text(alloc->buffer->name)) + " = T.alloc_buffer(" + arguments +
         ")");
  } else if (const auto* check = s.as<tir::AssertStmtObj>()) {
    std::string message = Quoted(Text(check->message));
    if (check->error_kind != "RuntimeError") {
      message = "(" + Quoted(Text(check->error_kind)) + ", " + message + ")";
    }
    Line("assert " + Scalar(check->condition) + ", " + message);
  } else if (const auto* eval = s.as<tir::EvaluateObj>()) {
    const auto* ret = eval->value.as<ir::IntrinObj>();
    if (ret != nullptr && ret->intrin == ir::Intrin::kRet) {
      Line("return " + Scalar(ret->args[0]));
    } else {
      Line("T.evaluate(" + Scalar(eval->value) + ")");
    }
  } else if (const auto* loop = s.as<tir::WhileObj>()) {
    Line("while " + Scalar(loop->condition) + ":");
    Indent indent(this);
    StatementOrPass(loop->body);
  } else if (const auto* block = s.as<tir::SBlockObj>()) {
    ffi::Array<Expr> values;
    for (const tir::IterVar& axis : block->iter_vars) values.push_back(axis->min);
    Block(tir::SBlockRealize(values, ir::BoolImm(true), ffi::GetRef<tir::SBlock>(block)).get());
  } else {
    Line("I.unprintable(" + Quoted(s->GetTypeKey()) + ")");
  }
}

}  // namespace relaxvm::script
