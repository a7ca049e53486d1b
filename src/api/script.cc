// SPDX-License-Identifier: Apache-2.0
// The printer for Python, and what the parser asks of C++.
#include "script/print.h"

#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include "api/convert.h"
#include "api/register.h"
#include "ir/visitor.h"
#include "tir/functor.h"

namespace relaxvm::api {

namespace refl = tvm::ffi::reflection;
using ffi::Array;
using ir::Expr;
using ir::Var;

namespace {

// Which elements a block touches, when its script does not say: the elements named, and whole
// dimensions where an index depends on what the block itself defines.
class AccessFinder : public tir::StmtVisitor {
 public:
  explicit AccessFinder(const Array<Var>& local) {
    for (const Var& v : local) local_.insert(v.get());
  }

  void VisitBufferLoad(const tir::BufferLoadObj* l) override {
    Add(&reads, l->buffer, l->indices);
    tir::StmtVisitor::VisitBufferLoad(l);
  }
  void VisitBufferStore(const tir::BufferStoreObj* s) override {
    Add(&writes, s->buffer, s->indices);
    tir::StmtVisitor::VisitBufferStore(s);
  }
  void VisitFor(const tir::ForObj* f) override {
    inner_.insert(f->loop_var.get());
    tir::StmtVisitor::VisitFor(f);
  }
  void VisitBind(const tir::BindObj* b) override {
    inner_.insert(b->var.get());
    tir::StmtVisitor::VisitBind(b);
  }
  void VisitAllocBuffer(const tir::AllocBufferObj* a) override { local_.insert(a->buffer.get()); }
  void VisitSBlockRealize(const tir::SBlockRealizeObj* r) override {
    for (const tir::IterVar& axis : r->block->iter_vars) inner_.insert(axis->var.get());
    for (const Var& v : r->block->alloc_buffers) local_.insert(v.get());
    for (const tir::BufferRegion& region : r->block->reads) AddRegion(&reads, region);
    for (const tir::BufferRegion& region : r->block->writes) AddRegion(&writes, region);
  }

  Array<tir::BufferRegion> reads, writes;

 private:
  bool DependsOnInner(const Expr& e) const {
    bool found = false;
    tir::PostOrderVisit(tir::Evaluate(e), [&](const ffi::ObjectRef& part) {
      found = found || inner_.count(part.get());
    });
    return found;
  }

  void AddRegion(Array<tir::BufferRegion>* list, const tir::BufferRegion& region) {
    Array<Expr> mins, extents;
    const auto& shape = region->buffer->ty.as<tir::BufferTypeObj>()->shape;
    for (size_t i = 0; i < region->mins.size(); ++i) {
      const bool whole = DependsOnInner(region->mins[i]) || DependsOnInner(region->extents[i]);
      mins.push_back(whole ? Expr(ir::IntImm(shape[i].dtype(), 0)) : region->mins[i]);
      extents.push_back(whole ? shape[i] : region->extents[i]);
    }
    Insert(list, tir::BufferRegion(region->buffer, mins, extents));
  }

  void Add(Array<tir::BufferRegion>* list, const Var& buffer, const Array<Expr>& indices) {
    Array<Expr> ones;
    for (const Expr& i : indices) ones.push_back(ir::IntImm(ElementOf(i.dtype()), 1));
    AddRegion(list, tir::BufferRegion(buffer, indices, ones));
  }

  void Insert(Array<tir::BufferRegion>* list, const tir::BufferRegion& region) {
    if (local_.count(region->buffer.get())) return;
    for (const tir::BufferRegion& known : *list) {
      if (ir::StructuralEqual(known, region)) return;
    }
    list->push_back(region);
  }

  std::unordered_set<const ffi::Object*> local_;  // buffers of the block itself
  std::unordered_set<const ffi::Object*> inner_;  // variables that only inner statements have
};

// [reads, writes] of a block's statements.  What is written before it is read in the same place (a
// reduction's result) counts as written only.
Array<ffi::Any> BlockAccess(ffi::Optional<tir::Stmt> init, tir::Stmt body, Array<Var> local) {
  AccessFinder finder(local);
  finder.Visit(body);
  Array<tir::BufferRegion> reads;
  if (init.has_value()) {
    AccessFinder before(local);
    before.Visit(init.value());
    for (const tir::BufferRegion& w : before.writes) {
      bool known = false;
      for (const tir::BufferRegion& other : finder.writes)
        known = known || ir::StructuralEqual(other, w);
      if (!known) finder.writes.push_back(w);
    }
    for (const tir::BufferRegion& r : before.reads) finder.reads.push_back(r);
    for (const tir::BufferRegion& r : finder.reads) {
      bool result = false;
      for (const tir::BufferRegion& w : finder.writes)
        result = result || w->buffer.same_as(r->buffer);
      if (!result) reads.push_back(r);
    }
  } else {
    reads = finder.reads;
  }
  return {reads, finder.writes};
}

}  // namespace

void RegisterReprs() {
  const auto text = ffi::Function::FromTyped([](ffi::Any value, const ffi::Function&) {
    return ffi::String(script::Print(value, {.module_name = "Module"}));
  });
  const ffi::AnyView view(text);
  const TVMFFIAny value = view.CopyToTVMFFIAny();
  const ffi::String name("__ffi_repr__");
  const TVMFFIByteArray attr{name.data(), name.size()};
  const std::array<int32_t, 4> printed = {
      ir::ExprObj::RuntimeTypeIndex(), ir::TypeObj::RuntimeTypeIndex(),
      ir::BindingObj::RuntimeTypeIndex(), tir::StmtObj::RuntimeTypeIndex()};
  const auto keys = ffi::Function::GetGlobalRequired("ffi.GetRegisteredTypeKeys")();
  for (const ffi::String& key : keys.cast<Array<ffi::String>>()) {
    if (!std::string_view(key.data(), key.size()).starts_with("relaxvm.")) continue;
    const TVMFFIByteArray bytes{key.data(), key.size()};
    int32_t index = 0;
    TVM_FFI_CHECK_SAFE_CALL(TVMFFITypeKeyToIndex(&bytes, &index));
    const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(index);
    const auto derives = [&](int32_t base) {
      for (int32_t depth = 0; depth < info->type_depth; ++depth) {
        if (info->type_ancestors[depth]->type_index == base) return true;
      }
      return index == base;
    };
    const bool is_printed = std::any_of(printed.begin(), printed.end(), derives);
    if (is_printed) TVM_FFI_CHECK_SAFE_CALL(TVMFFITypeRegisterAttr(index, &attr, &value));
  }
}

void RegisterScript() {
  refl::GlobalDef()
      .def("relaxvm.script.Print",
           [](ffi::Any what, ffi::String module_name, bool show_meta) {
             return ffi::String(script::Print(
                 what, {.module_name = std::string(module_name), .show_meta = show_meta}));
           })
      .def("relaxvm.script.ExtentBetween",
           [](ffi::Any start, ffi::Any stop) {
             return script::ExtentBetween(ToScalar(start, Int(32)), ToScalar(stop, Int(32)));
           })
      .def("relaxvm.script.EncodeTensor",
           [](ffi::Tensor data) { return ffi::String(script::EncodeTensor(data)); })
      .def(
          "relaxvm.script.DecodeTensor",
          [](ffi::String text, ffi::Tensor data) { script::DecodeTensor(std::string(text), data); })
      .def("relaxvm.script.BlockAccess", BlockAccess);
}

}  // namespace relaxvm::api
