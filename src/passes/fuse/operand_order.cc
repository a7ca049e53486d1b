// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse/operand_order.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "analysis/blocks.h"
#include "analysis/program_kind.h"
#include "arith/analyzer.h"
#include "ir/visitor.h"

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

// The one place where a program reads a buffer.
struct OnlyRead {
  tir::SBlock block;
  tir::BufferLoad load;
};
std::optional<OnlyRead> OnlyReadOf(const tir::PrimFunc& program, const tir::Buffer& buffer) {
  std::optional<std::vector<analysis::LeafBlock>> blocks = analysis::LeafBlocks(program->body);
  if (!blocks) return std::nullopt;
  std::optional<OnlyRead> only;
  for (const analysis::LeafBlock& leaf : *blocks) {
    std::optional<analysis::BlockStores> body = analysis::StoresOf(leaf.realize->block);
    if (!body || !body->binds.empty()) return std::nullopt;
    for (const tir::BufferStore& store : body->stores) {
      for (const tir::BufferLoad& load : analysis::LoadsIn(store->value)) {
        if (!load->buffer.same_as(buffer)) continue;
        if (only) return std::nullopt;
        only = OnlyRead{leaf.realize->block, load};
      }
    }
  }
  return only;
}

// Is it a place in a window: not an axis itself, but moved by one of a reduction?
bool IsInWindow(const tir::SBlock& block, const Expr& index) {
  if (KindOfAxis(block, index)) return false;
  const ffi::Array<ir::Var> vars = ir::FreeVars(index);
  return std::any_of(vars.begin(), vars.end(), [&](const ir::Var& var) {
    return KindOfAxis(block, var) == IterKind::kReduce;
  });
}

}  // namespace

bool ReadsWellPermuted(const tir::PrimFunc& permutation, const tir::PrimFunc& product, size_t arg) {
  const std::optional<size_t> dim = DimAlongMemory(permutation);
  const std::vector<tir::Buffer> inputs = analysis::ParamsOf(product).inputs;
  if (!dim || arg >= inputs.size()) return false;
  const std::optional<OnlyRead> read = OnlyReadOf(product, inputs[arg]);
  if (!read) return false;
  const ffi::Array<Expr>& at = read->load->indices;
  std::optional<OneBlock> body = OneBlockOf(product);
  if (!body) return *dim + 1 == at.size();
  if (!AreAxes(body->block, at)) return false;
  const Expr along = at[static_cast<int64_t>(*dim)];
  const Expr column = body->store->indices.back();
  if (KindOfAxis(body->block, along) == IterKind::kReduce) {
    // Groups of narrow elements are made faster out of rows.
    return !Uses(at, column) || inputs[arg].elem_dtype().bits >= 32;
  }
  return along.same_as(column);
}

bool ReadsWellPadded(const tir::PrimFunc& padding, const tir::PrimFunc& product, size_t arg) {
  const std::optional<OneBlock> body = OneBlockOf(padding);
  const std::vector<tir::Buffer> inputs = analysis::ParamsOf(product).inputs;
  if (!body || body->block->init.defined() || arg >= inputs.size()) return false;
  const auto* choice = body->store->value.as<ir::IntrinObj>();
  if (choice == nullptr || choice->intrin != ir::Intrin::kIfThenElse) return false;
  const auto* inside = choice->args[1].as<tir::BufferLoadObj>();
  const ffi::Array<Expr>& to = body->store->indices;
  if (inside == nullptr || inside->indices.size() != to.size() ||
      !analysis::LoadsIn(choice->args[2]).empty() || !AreAxes(body->block, to))
    return false;
  const std::optional<OnlyRead> read = OnlyReadOf(product, inputs[arg]);
  if (!read) return false;
  arith::Analyzer analyzer;
  for (size_t d = 0; d < to.size(); ++d) {
    const auto at = static_cast<int64_t>(d);
    const Expr& from = inside->indices[at];
    const auto* moved = from.as<ir::BinaryObj>();
    const bool is_moved =
        moved != nullptr && moved->op == ir::BinaryOp::kSub && moved->a.same_as(to[at]);
    if (!from.same_as(to[at]) && !is_moved) return false;
    if (!is_moved && analyzer.ProveEqual(tir::Buffer(body->store->buffer).shape()[at],
                                         tir::Buffer(inside->buffer).shape()[at]))
      continue;
    // Along a padded dimension a window passes, which is no stage that pads and no axis of a plain
    // product.
    if (!IsInWindow(read->block, read->load->indices[at])) return false;
  }
  return true;
}

bool ReadsAtSites(const tir::PrimFunc& program, size_t arg) {
  const std::vector<tir::Buffer> inputs = analysis::ParamsOf(program).inputs;
  std::optional<std::vector<analysis::LeafBlock>> blocks = analysis::LeafBlocks(program->body);
  if (!blocks || arg >= inputs.size()) return false;
  auto is_site = [&](const tir::BufferLoad& load) {
    return load->buffer.same_as(inputs[arg]) &&
           std::any_of(load->indices.begin(), load->indices.end(),
                       [](const Expr& index) { return !analysis::LoadsIn(index).empty(); });
  };
  return std::any_of(blocks->begin(), blocks->end(), [&](const analysis::LeafBlock& leaf) {
    std::optional<analysis::BlockStores> body = analysis::StoresOf(leaf.realize->block);
    if (!body) return false;
    return std::any_of(body->stores.begin(), body->stores.end(),
                       [&](const tir::BufferStore& store) {
                         const std::vector<tir::BufferLoad> loads = analysis::LoadsIn(store->value);
                         return std::count_if(loads.begin(), loads.end(), is_site) > 1;
                       });
  });
}

}  // namespace relaxvm::passes
