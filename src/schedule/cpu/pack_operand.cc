// SPDX-License-Identifier: Apache-2.0
// PackOperand: a program whose weight is given in panels, and the program that makes them.
#include <algorithm>

#include "schedule/cpu/cpu.h"
#include "schedule/cpu/winograd.h"
#include "target/packed.h"
#include "tir/tensor.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoad;
using tir::BufferLoadObj;

// Where and how a contraction reads a parameter along the axis that runs contiguously through its
// result.
struct Use {
  size_t dim;  // of the parameter
  int64_t columns;
  DLDataType acc;
};

// Absent unless `load` reads along that axis with one index, and the other operand does not know
// it.
std::optional<Use> UseOf(const Stage& stage, const BufferLoadObj* load, const Expr& other) {
  if (stage.indices.empty()) return std::nullopt;
  auto column = stage.indices.back().as<Var>();
  if (!column.has_value() || UsesVar(other, *column)) return std::nullopt;
  const auto is_axis = [&](const Axis& axis) { return axis.var.same_as(*column); };
  const auto axis = std::find_if(stage.spatial.begin(), stage.spatial.end(), is_axis);
  if (axis == stage.spatial.end()) return std::nullopt;
  const auto columns = ir::AsInt(axis->extent);
  if (!columns.has_value()) return std::nullopt;
  std::optional<size_t> dim;
  for (size_t i = 0; i < load->indices.size(); ++i) {
    if (!UsesVar(load->indices[i], *column)) continue;
    if (dim.has_value() || !load->indices[i].same_as(*column)) return std::nullopt;
    dim = i;
  }
  if (!dim.has_value()) return std::nullopt;
  return Use{*dim, columns.value(), stage.value.dtype()};
}

int CountLoads(const Stage& stage, const Var& buffer) {
  int count = 0;
  auto visit = [&](const ffi::ObjectRef& node) {
    const auto* load = node.as<BufferLoadObj>();
    count += load != nullptr && load->buffer.same_as(buffer);
  };
  tir::PostOrderVisit(stage.IsOpaque() ? stage.opaque : tir::Stmt(tir::Evaluate(stage.value)),
                      visit);
  return count;
}

// The only load of `buffer` in the program, when a contraction has it as an operand.
std::optional<Use> FindUse(const Program& program, const Var& buffer) {
  std::optional<Use> use;
  int loads = 0;
  for (const Stage& stage : program.stages) {
    const int here = CountLoads(stage, buffer);
    loads += here;
    if (here != 1 || !IsContraction(stage)) continue;
    const auto* times = StripCasts(stage.value).as<ir::BinaryObj>();
    for (bool left : {true, false}) {
      const auto* load = StripCasts(left ? times->a : times->b).as<BufferLoadObj>();
      if (load == nullptr || !load->buffer.same_as(buffer)) continue;
      use = UseOf(stage, load, left ? times->b : times->a);
    }
  }
  return loads == 1 ? use : std::nullopt;
}

// [.., n at dim, ..] -> [n / width, .., width]
class PanelReader : public tir::StmtMutator {
 public:
  PanelReader(const Buffer& from, const Buffer& to, size_t dim, int64_t width)
      : from_(from), to_(to), dim_(dim), width_(width) {}

  Expr MutateBufferLoad(const BufferLoad& load) override {
    if (!load->buffer.same_as(from_)) return StmtMutator::MutateBufferLoad(load);
    const Expr& column = load->indices[static_cast<int64_t>(dim_)];
    ffi::Array<Expr> indices = {ir::FloorDiv(column, width_)};
    for (size_t i = 0; i < load->indices.size(); ++i) {
      if (i != dim_) indices.push_back(load->indices[i]);
    }
    indices.push_back(ir::FloorMod(column, width_));
    return BufferLoad(to_, indices, load->predicate, load->span);
  }

  // What a block says of the weight is widened to all of it.
  Stmt MutateSBlock(const tir::SBlock& block) override {
    auto copy = ffi::make_object<tir::SBlockObj>(*block.get());
    copy->reads = block->reads.Map([&](const tir::BufferRegion& region) {
      if (!region->buffer.same_as(from_)) return region;
      ffi::Array<Expr> mins;
      for (size_t i = 0; i < to_.shape().size(); ++i) mins.push_back(0);
      return tir::BufferRegion(to_, mins, to_.shape());
    });
    return StmtMutator::MutateSBlock(ir::NodeRef<tir::SBlock>(std::move(copy)));
  }

 private:
  const Buffer& from_;
  const Buffer& to_;
  size_t dim_;
  int64_t width_;
};

PrimFunc PackProgram(const Buffer& plain, const Buffer& packed, size_t dim, int64_t width) {
  tir::Tensor x("plain", plain.shape(), plain.elem_dtype());
  tir::Tensor panels = tir::Compute(
      packed.shape(),
      [&](const tir::Indices& i) {
        Expr column = i[0] * Expr(width) + i[i.size() - 1];
        tir::Indices at;
        for (size_t d = 0; d < plain.shape().size(); ++d)
          at.push_back(d == dim ? column : i[static_cast<int64_t>(d < dim ? d + 1 : d)]);
        return ir::IfThenElse(ir::Less(column, plain.shape()[static_cast<int64_t>(dim)]), x(at),
                              ir::Const(plain.elem_dtype(), 0));
      },
      "panels");
  return tir::CreatePrimFunc({x}, {panels});
}

}  // namespace

std::optional<PackedOperand> PackOperand(const PrimFunc& func, size_t param,
                                         const Machine& machine) {
  if (!tir::IsBuffer(func->params[static_cast<int64_t>(param)])) return std::nullopt;
  const Buffer plain(func->params[static_cast<int64_t>(param)]);
  for (const Expr& dim : plain.shape()) {
    if (!ir::AsInt(dim).has_value()) return std::nullopt;
  }
  if (!plain.type()->strides.empty()) return std::nullopt;
  if (auto transformed = WinogradOperand(func, param, machine)) return transformed;
  std::optional<Program> program = ParseProgram(func);
  if (!program.has_value()) return std::nullopt;
  const std::optional<Use> use = FindUse(*program, plain);
  if (!use.has_value()) return std::nullopt;
  const int64_t bytes = SizeInBytes(use->acc);
  const int64_t width = target::PanelVectors(machine, use->columns, bytes) * machine.Lanes(bytes);
  // One panel whose columns are neighbours already is what tiles read well.
  if (use->dim + 1 == plain.shape().size() && use->columns <= width) return std::nullopt;

  ffi::Array<Expr> shape = {Expr((use->columns + width - 1) / width)};
  for (size_t i = 0; i < plain.shape().size(); ++i) {
    if (i != use->dim) shape.push_back(plain.shape()[static_cast<int64_t>(i)]);
  }
  shape.push_back(Expr(width));
  const Buffer packed(plain->name, shape, plain.elem_dtype());
  auto copy = ffi::make_object<tir::PrimFuncObj>(*func.get());
  copy->params.Set(static_cast<int64_t>(param), packed);
  copy->body = PanelReader(plain, packed, use->dim, width).Mutate(func->body);
  return PackedOperand{ir::NodeRef<PrimFunc>(std::move(copy)),
                       PackProgram(plain, packed, use->dim, width), shape};
}

}  // namespace relaxvm::schedule::cpu
