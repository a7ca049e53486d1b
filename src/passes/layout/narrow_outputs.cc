// SPDX-License-Identifier: Apache-2.0
// Variables that no other block reads become their block's own; see the header.
#include "passes/layout/narrow_outputs.h"

#include <utility>

namespace relaxvm::passes::layout {
namespace {

using Homes = std::unordered_map<const ffi::Object*, const ffi::Object*>;
using ir::Var;

// Takes those out that are read outside of their blocks.
class OutsideReads : public ir::Visitor {
 public:
  explicit OutsideReads(Homes* home) : home_(home) {}
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
  Homes* home_;
  const ffi::Object* block_ = nullptr;
};

class Narrower : public ir::Mutator {
 public:
  explicit Narrower(const Homes& home) : home_(home) {}
  Var MutateDef(const Var& v) override {
    if (home_.count(v.get()) == 0) return ir::Mutator::MutateDef(v);
    Var inner = ir::DataflowVar(v->name, v->ty, v->span);
    Replace(v, inner);
    return inner;
  }

 private:
  const Homes& home_;
};

}  // namespace

ir::Function NarrowOutputs(const ir::Function& func, Homes home) {
  OutsideReads(&home).Visit(func);
  return home.empty() ? func : Narrower(home).Mutate(func).as<ir::Function>().value();
}

}  // namespace relaxvm::passes::layout
