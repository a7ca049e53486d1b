// SPDX-License-Identifier: Apache-2.0
// Follows an argument through the blocks: as long as every block reads it, and what was made of it,
// at the very element that it writes, no order of elements can read a place after it was
// overwritten.
#include "analysis/program_inplace.h"

#include <unordered_set>

#include "analysis/blocks.h"
#include "ir/visitor.h"

namespace relaxvm::analysis {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;

bool IsIdentity(const ffi::Array<Expr>& indices, const ffi::Array<tir::IterVar>& axes) {
  if (indices.size() != axes.size()) return false;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i].same_as(axes[i]->var) || axes[i]->kind != tir::IterKind::kSpatial) return false;
  }
  return true;
}

bool SameShape(const tir::Buffer& a, const tir::Buffer& b) {
  return a.elem_dtype() == b.elem_dtype() && ir::StructuralEqual(a.shape(), b.shape());
}

// Is `input` used elementwise only?
bool StaysInPlace(const std::vector<std::pair<LeafBlock, BlockStores>>& blocks, const Var& input) {
  std::unordered_set<const ffi::Object*> derived = {input.get()};
  for (const auto& [leaf, body] : blocks) {
    const ffi::Array<tir::IterVar>& axes = leaf.realize->block->iter_vars;
    for (const tir::BufferStore& store : body.stores) {
      bool uses = false;
      for (const tir::BufferLoad& load : LoadsIn(store->value)) {
        if (!derived.count(load->buffer.get())) continue;
        uses = true;
        if (!IsIdentity(load->indices, axes)) return false;
      }
      if (!uses) continue;
      if (!IsIdentity(store->indices, axes)) return false;
      derived.insert(store->buffer.get());
    }
  }
  return true;
}

}  // namespace

std::vector<int64_t> OverwritableParams(const tir::PrimFunc& program) {
  if (ir::GetAttr<int64_t>(program->attrs, tir::attr::kNumOutputs, 1) != 1) return {};
  std::optional<std::vector<LeafBlock>> leaves = LeafBlocks(program->body);
  if (!leaves) return {};
  std::vector<std::pair<LeafBlock, BlockStores>> blocks;
  for (const LeafBlock& leaf : *leaves) {
    std::optional<BlockStores> body = StoresOf(leaf.realize->block);
    if (!body || !body->binds.empty() || body->stores.size() != 1 ||
        leaf.realize->block->init.defined())
      return {};
    if (!IsIdentity(body->stores[0]->indices, leaf.realize->block->iter_vars)) return {};
    blocks.emplace_back(leaf, std::move(*body));
  }
  std::vector<int64_t> buffers;
  for (size_t i = 0; i < program->params.size(); ++i) {
    if (tir::IsBuffer(program->params[i])) buffers.push_back(static_cast<int64_t>(i));
  }
  if (buffers.size() < 2) return {};
  tir::Buffer result(program->params[buffers.back()]);
  buffers.pop_back();
  std::vector<int64_t> found;
  for (int64_t i : buffers) {
    if (SameShape(tir::Buffer(program->params[i]), result) &&
        StaysInPlace(blocks, program->params[i]))
      found.push_back(i);
  }
  return found;
}

}  // namespace relaxvm::analysis
