// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse/operand_order.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "analysis/blocks.h"
#include "analysis/program_kind.h"

namespace relaxvm::passes {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;
using tir::IterKind;

// The one block of a program, and what it stores.
struct OneBlock {
  tir::SBlock block;
  tir::BufferStore store;
};
std::optional<OneBlock> OneBlockOf(const tir::PrimFunc& program) {
  std::optional<std::vector<analysis::LeafBlock>> blocks = analysis::LeafBlocks(program->body);
  if (!blocks || blocks->size() != 1) return std::nullopt;
  const tir::SBlockRealize& realize = blocks->front().realize;
  std::optional<analysis::BlockStores> body = analysis::StoresOf(realize->block);
  if (!body || body->stores.size() != 1 || !body->binds.empty() ||
      !ir::IsIntValue(realize->predicate, 1) || body->stores[0]->indices.empty())
    return std::nullopt;
  return OneBlock{realize->block, body->stores[0]};
}

std::optional<IterKind> KindOfAxis(const tir::SBlock& block, const Expr& index) {
  for (const tir::IterVar& iter : block->iter_vars) {
    if (iter->var.same_as(index)) return iter->kind;
  }
  return std::nullopt;
}

// Axes of the block or fixed places, no axis twice.
bool AreAxes(const tir::SBlock& block, const ffi::Array<Expr>& indices) {
  for (size_t i = 0; i < indices.size(); ++i) {
    if (ir::AsInt(indices[i])) continue;
    if (!KindOfAxis(block, indices[i])) return false;
    for (size_t before = 0; before < i; ++before) {
      if (indices[before].same_as(indices[i])) return false;
    }
  }
  return true;
}

bool Uses(const ffi::Array<Expr>& indices, const Expr& axis) {
  return std::any_of(indices.begin(), indices.end(),
                     [&](const Expr& index) { return index.same_as(axis); });
}

// The dimension of a permutation's result along which the memory of its argument runs.
std::optional<size_t> DimAlongMemory(const tir::PrimFunc& permutation) {
  std::optional<OneBlock> body = OneBlockOf(permutation);
  if (!body || body->block->init.defined()) return std::nullopt;
  const auto* load = body->store->value.as<tir::BufferLoadObj>();
  const ffi::Array<Expr>& to = body->store->indices;
  if (load == nullptr || load->predicate.defined() || load->indices.size() != to.size() ||
      !AreAxes(body->block, load->indices) || !AreAxes(body->block, to))
    return std::nullopt;
  for (const Expr& index : load->indices) {
    if (!Uses(to, index)) return std::nullopt;
  }
  for (size_t dim = 0; dim < to.size(); ++dim) {
    if (to[dim].same_as(load->indices.back())) return dim;
  }
  return std::nullopt;
}

// The one place where a program reads `buffer`.
std::optional<tir::BufferLoad> OnlyLoad(const tir::PrimFunc& program, const tir::Buffer& buffer) {
  std::optional<std::vector<analysis::LeafBlock>> blocks = analysis::LeafBlocks(program->body);
  if (!blocks) return std::nullopt;
  std::optional<tir::BufferLoad> only;
  for (const analysis::LeafBlock& leaf : *blocks) {
    std::optional<analysis::BlockStores> body = analysis::StoresOf(leaf.realize->block);
    if (!body || !body->binds.empty()) return std::nullopt;
    for (const tir::BufferStore& store : body->stores) {
      for (const tir::BufferLoad& load : analysis::LoadsIn(store->value)) {
        if (!load->buffer.same_as(buffer)) continue;
        if (only) return std::nullopt;
        only = load;
      }
    }
  }
  return only;
}

}  // namespace

bool ReadsWellPermuted(const tir::PrimFunc& permutation, const tir::PrimFunc& product, size_t arg) {
  const std::optional<size_t> dim = DimAlongMemory(permutation);
  const std::vector<tir::Buffer> inputs = analysis::ParamsOf(product).inputs;
  if (!dim || arg >= inputs.size()) return false;
  std::optional<tir::BufferLoad> load = OnlyLoad(product, inputs[arg]);
  if (!load) return false;
  std::optional<OneBlock> body = OneBlockOf(product);
  if (!body) return *dim + 1 == (*load)->indices.size();
  if (!AreAxes(body->block, (*load)->indices)) return false;
  const Expr along = (*load)->indices[static_cast<int64_t>(*dim)];
  const Expr column = body->store->indices.back();
  if (KindOfAxis(body->block, along) == IterKind::kReduce) {
    // Groups of narrow elements are made faster out of rows.
    return !Uses((*load)->indices, column) || inputs[arg].elem_dtype().bits >= 32;
  }
  return along.same_as(column);
}

}  // namespace relaxvm::passes
