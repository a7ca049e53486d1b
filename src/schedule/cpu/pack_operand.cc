// SPDX-License-Identifier: Apache-2.0
// PackOperand: a program whose weight is given in panels, and the program that makes them.
#include <algorithm>

#include "schedule/cpu/contraction/contraction.h"
#include "schedule/cpu/winograd.h"
#include "target/packed.h"
#include "tir/dot.h"
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
  // How many neighbours along the sum lie behind each other in a panel (1: they do not), and which
  // dimension of the parameter runs along the sum then.
  int64_t group = 1;
  size_t depth_dim = 0;
  // Columns that share a left side, where the left side depends on the column as column // count (a
  // convolution in groups); 0: all do.
  int64_t columns_a_group = 0;
  // Groups of unsigned by signed bytes, of one convolution or matrix product: their panels may have
  // notes, one for each `block` groups (0: none).
  bool takes_notes = false;
  int64_t groups = 0, block = 0;
  int64_t rows = 0;  // that the weight is multiplied with; 0: not known

  // Where panels have the dimension that runs along the sum.
  int64_t DepthInPanels() const {
    const size_t lead = columns_a_group > 0 ? 2 : 1;
    return static_cast<int64_t>(depth_dim < dim ? depth_dim + lead : depth_dim + lead - 1);
  }

  // Panels are those of one group, or of all columns.
  int64_t ColumnsInPanels() const { return columns_a_group > 0 ? columns_a_group : columns; }
};

// The c of column // c, in which form alone `e` uses `column`; 0: in another one.
int64_t DivisorOf(const Expr& e, const Var& column) {
  int64_t divisor = 0;
  int uses = 0, divided = 0;
  tir::PostOrderVisit(tir::Evaluate(e), [&](const ffi::ObjectRef& node) {
    uses += node.same_as(column);
    const auto* division = node.as<ir::BinaryObj>();
    if (division == nullptr || division->op != ir::BinaryOp::kFloorDiv ||
        !division->a.same_as(column))
      return;
    const int64_t by = ir::AsInt(division->b).value_or(0);
    divided += divisor == 0 || divisor == by;
    divisor = by;
  });
  return uses == divided ? divisor : 0;
}

// Absent unless `load` reads along that axis with one index, and the other operand does not know
// it, or its group alone.
std::optional<Use> UseOf(const Stage& stage, const BufferLoadObj* load, const Expr& other) {
  if (stage.indices.empty()) return std::nullopt;
  auto column = stage.indices.back().as<Var>();
  if (!column.has_value()) return std::nullopt;
  const int64_t columns_a_group = UsesVar(other, *column) ? DivisorOf(other, *column) : 0;
  if (UsesVar(other, *column) && columns_a_group == 0) return std::nullopt;
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
  Use use{*dim, columns.value(), stage.value.dtype()};
  use.columns_a_group = columns_a_group;
  use.rows = 1;
  for (const Axis& row : stage.spatial) {
    if (UsesVar(BufferLoad(load->buffer, load->indices), row.var)) continue;
    use.rows *= ir::AsInt(row.extent).value_or(0);
  }
  return use;
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

bool HasAnotherAxis(const Stage& stage, const Axis& axis) {
  return std::any_of(stage.reduce.begin(), stage.reduce.end(), [&](const Axis& other) {
    return !other.var.same_as(axis.var) && !ir::IsIntValue(other.extent, 1);
  });
}

// Takes the neighbours together that one instruction does: along an axis of the sum that is the
// last dimension of the other operand, in plain steps on both sides.
void AddGroup(const Stage& stage, const BufferLoadObj* load, const Expr& other,
              const Machine& machine, Use* use) {
  const GuardedProduct times = *ProductOf(stage.value);
  const int64_t group = GroupOf(machine, times.a, times.b, use->acc);
  const auto* left = StripCasts(other).as<BufferLoadObj>();
  if (group < 2 || left == nullptr || left->indices.empty()) return;
  for (const Axis& axis : stage.reduce) {
    const auto extent = ir::AsInt(axis.extent);
    if (!WalksAlong(left->indices.back(), axis) || !extent || *extent % group != 0) continue;
    if (*extent == group && !HasAnotherAxis(stage, axis)) continue;
    int found = 0;
    for (size_t i = 0; i < load->indices.size(); ++i) {
      if (!UsesVar(load->indices[static_cast<int64_t>(i)], axis.var)) continue;
      found += load->indices[static_cast<int64_t>(i)].same_as(axis.var) ? 1 : 2;
      use->depth_dim = i;
    }
    if (found != 1) continue;
    use->group = group;
    use->takes_notes = machine.byte_pairs && group == 4 &&
                       IsUInt(Buffer(left->buffer).elem_dtype()) &&
                       IsInt(Buffer(load->buffer).elem_dtype()) && use->columns_a_group == 0;
  }
}

// The only load of `buffer` in the program, when a contraction has it as an operand.
std::optional<Use> FindUse(const Program& program, const Var& buffer, const Machine& machine) {
  std::optional<Use> use;
  arith::Analyzer analyzer;
  int loads = 0;
  for (const Stage& stage : program.stages) {
    const int here = CountLoads(stage, buffer);
    loads += here;
    if (here != 1 || !IsContraction(SplitAxes(stage, &analyzer))) continue;
    const GuardedProduct times = *ProductOf(stage.value);
    for (bool left : {true, false}) {
      const auto* load = StripCasts(left ? times.a : times.b).as<BufferLoadObj>();
      if (load == nullptr || !load->buffer.same_as(buffer)) continue;
      const Expr& other = left ? times.b : times.a;
      use = UseOf(stage, load, other);
      if (use) AddGroup(stage, load, other, machine, &*use);
    }
  }
  return loads == 1 ? use : std::nullopt;
}

// The columns of a panel; 0: no form that tiles read well.
int64_t ChooseWidth(Use* use, const Machine& machine) {
  const int64_t bytes = SizeInBytes(use->acc), lanes = machine.Lanes(bytes);
  const int64_t of_group = use->columns_a_group;
  if (of_group > 0 && of_group < lanes) {
    // One panel for all groups where several fill a vector.
    use->columns_a_group = 0;
    return use->group > 1 && lanes % of_group == 0 ? use->columns : 0;
  }
  return target::PanelVectors(machine, use->ColumnsInPanels(), bytes, use->group > 1) * lanes;
}

// [.., n at dim, ..] -> [n / width, .., width]; where neighbours along the sum lie behind each
// other [n / width, .., k / group, .., width, group]; panels of groups of columns stand behind an
// index of the group.
class PanelReader : public tir::StmtMutator {
 public:
  PanelReader(const Buffer& from, const Buffer& to, const Use& use, int64_t width)
      : from_(from), to_(to), use_(use), width_(width) {}

  Expr MutateBufferLoad(const BufferLoad& load) override {
    if (!load->buffer.same_as(from_)) return StmtMutator::MutateBufferLoad(load);
    Expr column = load->indices[static_cast<int64_t>(use_.dim)];
    const bool single = use_.ColumnsInPanels() <= width_;
    ffi::Array<Expr> indices;
    if (use_.columns_a_group > 0) {
      indices.push_back(ir::FloorDiv(column, use_.columns_a_group));
      column = ir::FloorMod(column, use_.columns_a_group);
    }
    indices.push_back(single ? Expr(0) : ir::FloorDiv(column, width_));
    for (size_t i = 0; i < load->indices.size(); ++i) {
      const Expr& index = load->indices[static_cast<int64_t>(i)];
      if (i == use_.dim) continue;
      const bool grouped = use_.group > 1 && i == use_.depth_dim;
      indices.push_back(grouped ? ir::FloorDiv(index, use_.group) : index);
    }
    indices.push_back(single ? column : ir::FloorMod(column, width_));
    if (use_.group > 1) {
      const Expr& k = load->indices[static_cast<int64_t>(use_.depth_dim)];
      indices.push_back(ir::FloorMod(k, use_.group));
    }
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
    const bool reads =
        std::any_of(block->reads.begin(), block->reads.end(),
                    [&](const tir::BufferRegion& region) { return region->buffer.same_as(from_); });
    if (reads && use_.block > 0)
      copy->annotations.Set(kPairNotes,
                            ffi::Array<int64_t>{use_.groups, use_.block, use_.DepthInPanels()});
    return StmtMutator::MutateSBlock(ir::NodeRef<tir::SBlock>(std::move(copy)));
  }

 private:
  const Buffer& from_;
  const Buffer& to_;
  const Use& use_;
  int64_t width_;
};

// Reads elements as wide as formulas widened them to.
class WideReader : public tir::StmtMutator {
 public:
  WideReader(const Buffer& from, const Buffer& to) : from_(from), to_(to) {}

  Expr MutateCast(const ir::CastExpr& e) override {
    const auto* load = e->value.as<BufferLoadObj>();
    if (load == nullptr || !load->buffer.same_as(from_)) return StmtMutator::MutateCast(e);
    return BufferLoad(to_, MutateAll(load->indices), load->predicate, load->span);
  }
  Stmt MutateSBlock(const tir::SBlock& block) override {
    auto copy = ffi::make_object<tir::SBlockObj>(*block.get());
    copy->reads = block->reads.Map([&](const tir::BufferRegion& region) {
      return region->buffer.same_as(from_) ? tir::BufferRegion(to_, region->mins, region->extents)
                                           : region;
    });
    return StmtMutator::MutateSBlock(ir::NodeRef<tir::SBlock>(std::move(copy)));
  }

 private:
  const Buffer& from_;
  const Buffer& to_;
};

// Are all elements that the program reads of `buffer` widened to float32?
bool IsWidened(const PrimFunc& func, const Buffer& buffer) {
  int loads = 0, widened = 0;
  auto is_load = [&](const ffi::ObjectRef& node) {
    const auto* load = node.as<BufferLoadObj>();
    return load != nullptr && load->buffer.same_as(buffer);
  };
  tir::PostOrderVisit(func->body, [&](const ffi::ObjectRef& node) {
    loads += is_load(node);
    const auto cast = node.as<ir::CastExpr>();
    widened += cast.has_value() && is_load((*cast)->value) && cast->dtype() == Float(32);
  });
  return loads > 0 && loads == widened;
}

// Of a weight of halves: small ones are, and those whose program widens them for few rows, where
// that takes a fifth of the time.  Others would take memory.
bool WorthWidening(const PrimFunc& func, const Buffer& plain, const std::optional<Use>& use) {
  constexpr int64_t kSmall = 64 << 10, kLarge = 8 << 20;  // bytes
  constexpr int64_t kFewestRows = 9, kMostRows = 128;     // fewer wait for memory
  const DLDataType type = plain.elem_dtype();
  if (!IsFloat(type) || type.bits != 16 || (use.has_value() && use->group > 1) ||
      !IsWidened(func, plain))
    return false;
  int64_t bytes = SizeInBytes(type);
  for (const Expr& dim : plain.shape()) bytes *= ir::AsInt(dim).value();
  const bool few = use.has_value() && use->rows >= kFewestRows && use->rows < kMostRows;
  return bytes <= kSmall || (few && bytes <= kLarge);
}

// As it lies, in float32.
PackedOperand Widened(const PrimFunc& func, size_t param) {
  const Buffer plain(func->params[static_cast<int64_t>(param)]);
  const Buffer wide(plain->name, plain.shape(), Float(32));
  auto copy = ffi::make_object<tir::PrimFuncObj>(*func.get());
  copy->params.Set(static_cast<int64_t>(param), wide);
  copy->body = WideReader(plain, wide).Mutate(func->body);
  const tir::Tensor x("plain", plain.shape(), plain.elem_dtype());
  auto formula = [&](const tir::Indices& i) { return ir::Cast(Float(32), x(i)); };
  return {ir::NodeRef<PrimFunc>(std::move(copy)),
          tir::CreatePrimFunc({x}, {tir::Compute(plain.shape(), formula, "wide")}), plain.shape(),
          Float(32), true};
}

// Makes panels of the weight, with elements of `dtype`.
class Panels {
 public:
  Panels(const Buffer& plain, const ffi::Array<Expr>& shape, DLDataType dtype, const Use& use,
         int64_t width)
      : x_("plain", plain.shape(), plain.elem_dtype()),
        shape_(shape),
        dtype_(dtype),
        use_(use),
        width_(width) {
    lead_ = use.columns_a_group > 0 ? 2 : 1;
    depth_at_ = PlaceOf(use.depth_dim);
  }

  PrimFunc Program() const {
    tir::Tensor notes;
    if (use_.block > 0) notes = Notes();
    auto formula = [&](const tir::Indices& i) -> Expr {
      if (use_.block == 0) return Element(i);
      const Expr row = i[depth_at_] - Expr(Groups());
      const Expr at = (row * Expr(width_) + i[i.size() - 2]) * Expr(use_.group) + i[i.size() - 1];
      tir::Indices of_block(i.begin(), i.end() - 2);
      of_block.Set(depth_at_, at);
      const Expr none = ir::Const(x_.dtype(), 0);
      const Expr note = ir::IfThenElse(ir::Less(at, Groups() / use_.block), notes(of_block), none);
      return ir::IfThenElse(ir::Less(row, 0), Element(i), note);
    };
    return tir::CreatePrimFunc({x_}, {tir::Compute(shape_, formula, "panels")});
  }

 private:
  // Of a dimension of the weight other than that of the columns, in panels.
  int64_t PlaceOf(size_t d) const {
    return static_cast<int64_t>(d < use_.dim ? d + lead_ : d + lead_ - 1);
  }
  int64_t Groups() const {
    return ir::AsInt(x_.dim(static_cast<int>(use_.depth_dim))).value() / use_.group;
  }

  Expr Element(const tir::Indices& i) const {
    const bool grouped = use_.group > 1;
    Expr column =
        i[static_cast<int64_t>(lead_ - 1)] * Expr(width_) + i[i.size() - (grouped ? 2 : 1)];
    const Expr inside = ir::Less(column, use_.ColumnsInPanels());
    if (lead_ == 2) column = i[0] * Expr(use_.columns_a_group) + column;
    tir::Indices at;
    for (size_t d = 0; d < static_cast<size_t>(x_.ndim()); ++d)
      at.push_back(d == use_.dim ? column : i[PlaceOf(d)]);
    if (grouped) {
      const auto k = static_cast<int64_t>(use_.depth_dim);
      at.Set(k, at[k] * Expr(use_.group) + i[i.size() - 1]);
    }
    return ir::IfThenElse(inside, ir::Cast(dtype_, x_(at)), ir::Const(dtype_, 0));
  }

  // For each block of each panel: 0 where all pairs keep to 16 bits, 1 elsewhere.
  tir::Tensor Notes() const {
    tir::Indices shape(shape_.begin(), shape_.end() - 2);
    shape.Set(depth_at_, Expr(Groups() / use_.block));
    const tir::Indices of_block = {Expr(use_.block), Expr(width_), Expr(use_.group / 2)};
    auto formula = [&](const tir::Indices& i, const tir::Indices& r) -> Expr {
      tir::Indices at = i;
      at.Set(depth_at_, i[depth_at_] * Expr(use_.block) + r[0]);
      at.push_back(r[1]);
      Expr above = 0, below = 0;
      for (int64_t of_pair = 0; of_pair < 2; ++of_pair) {
        tir::Indices byte = at;
        byte.push_back(r[2] * Expr(2) + Expr(of_pair));
        const Expr value = ir::Cast(Int(64), Element(byte));
        above = above + ir::Max(value, 0);
        below = below + ir::Min(value, 0);
      }
      const Expr keeps = ir::And(ir::LessEqual(above, tir::kMostOfBytePair),
                                 ir::GreaterEqual(below, -tir::kMostOfBytePair));
      return ir::Select(keeps, ir::Const(x_.dtype(), 0), ir::Const(x_.dtype(), 1));
    };
    return tir::Reduce(shape, of_block, tir::MaxReducer(x_.dtype()), formula, "notes");
  }

  tir::Tensor x_;
  const ffi::Array<Expr>& shape_;
  DLDataType dtype_;
  const Use& use_;
  int64_t width_;
  size_t lead_;
  int64_t depth_at_;
};

// Groups whose notes fit into one row of any panel.
constexpr int64_t kLongestAcross = 128;

// Groups for each note: few, as one pair that does not keep to 16 bits makes all of a block slow.
int64_t BlockOfNotes(int64_t groups, const Machine& machine) {
  constexpr int64_t kUsual = 8, kFewest = 4;
  const int64_t usual = std::max(kUsual, machine.Lanes(4));
  if (groups % usual == 0) return usual;
  for (int64_t block = 2 * kUsual; block >= kFewest; --block) {
    if (groups % block == 0) return block;
  }
  return 0;
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
  std::optional<Use> use = FindUse(*program, plain, machine);
  const int64_t width = use.has_value() ? ChooseWidth(&*use, machine) : 0;
  // One panel whose columns are neighbours already is what tiles read well.
  const bool is_panel = width > 0 && use->dim + 1 == plain.shape().size() && use->columns <= width;
  const bool is_wide = WorthWidening(func, plain, use);
  if (width == 0 || (use->group == 1 && is_panel))
    return is_wide ? std::optional(Widened(func, param)) : std::nullopt;

  const Expr& depth = plain.shape()[static_cast<int64_t>(use->depth_dim)];
  const int64_t groups = ir::AsInt(depth).value() / use->group;
  use->groups = groups;
  // Several rows of notes are to follow each other.
  const bool is_last = use->DepthInPanels() + 1 == static_cast<int64_t>(plain.shape().size());
  use->takes_notes = use->takes_notes && (is_last || groups <= kLongestAcross);
  if (use->takes_notes) use->block = BlockOfNotes(groups, machine);
  const int64_t in_row = width * use->group;
  const int64_t rows_of_notes = use->block > 0 ? (groups / use->block + in_row - 1) / in_row : 0;

  ffi::Array<Expr> shape;
  if (use->columns_a_group > 0) shape.push_back(Expr(use->columns / use->columns_a_group));
  shape.push_back(Expr((use->ColumnsInPanels() + width - 1) / width));
  for (size_t i = 0; i < plain.shape().size(); ++i) {
    const Expr& dim = plain.shape()[static_cast<int64_t>(i)];
    if (i == use->dim) continue;
    const bool grouped = use->group > 1 && i == use->depth_dim;
    shape.push_back(grouped ? Expr(groups + rows_of_notes) : dim);
  }
  shape.push_back(Expr(width));
  if (use->group > 1) shape.push_back(Expr(use->group));
  const DLDataType dtype = is_wide ? Float(32) : plain.elem_dtype();
  const Buffer packed(plain->name, shape, dtype);
  const Buffer wide(plain->name, plain.shape(), dtype);
  auto copy = ffi::make_object<tir::PrimFuncObj>(*func.get());
  copy->params.Set(static_cast<int64_t>(param), packed);
  copy->body = is_wide ? PanelReader(wide, packed, *use, width)
                             .Mutate(WideReader(plain, wide).Mutate(func->body))
                       : PanelReader(plain, packed, *use, width).Mutate(func->body);
  return PackedOperand{ir::NodeRef<PrimFunc>(std::move(copy)),
                       Panels(plain, shape, dtype, *use, width).Program(), shape, dtype};
}

}  // namespace relaxvm::schedule::cpu
