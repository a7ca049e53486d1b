// SPDX-License-Identifier: Apache-2.0
// ReadConvolution: from a stage, and the stage that pads its data, to a Convolution.
#include <algorithm>

#include "schedule/cpu/contraction/contraction.h"
#include "schedule/cpu/convolution.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoadObj;

// Matrix registers take in a multiple of what vectors do; not all of it is left behind their
// finish.
constexpr int64_t kNeighboursOfMatrices = 8;

bool IsCompact(const Buffer& buffer) { return buffer.type()->strides.empty(); }
bool IsAtMostFloat32(DLDataType type) {
  return IsFloat(type) && type.bits <= 32 && type.bits >= 16;
}
bool StoresInOrder(const Stage& s) {
  if (s.indices.size() != s.spatial.size()) return false;
  for (size_t d = 0; d < s.spatial.size(); ++d) {
    if (!s.indices[static_cast<int64_t>(d)].same_as(s.spatial[d].var)) return false;
  }
  return true;
}

// Does `condition` ask for nothing but that `load` stays within its buffer?
bool AsksForBounds(const Expr& condition, const BufferLoadObj* load, arith::Analyzer* analyzer) {
  const auto* both = condition.as<ir::BinaryObj>();
  if (both != nullptr && both->op == ir::BinaryOp::kAnd)
    return AsksForBounds(both->a, load, analyzer) && AsksForBounds(both->b, load, analyzer);
  if (ir::IsIntValue(condition, 1)) return true;
  const Expr left = AtLeastZero(condition);
  if (!left.defined()) return false;
  const ffi::Array<Expr>& shape = Buffer(load->buffer).shape();
  for (size_t d = 0; d < load->indices.size(); ++d) {
    const Expr &index = load->indices[d], &size = shape[static_cast<int64_t>(d)];
    if (analyzer->ProveEqual(left, index) || analyzer->ProveEqual(left, size - 1 - index))
      return true;
  }
  return false;
}

// What a stage that only pads reads, and how many zeros it puts before each dimension.
struct Padding {
  Buffer from;
  std::vector<int64_t> before;
};
std::optional<Padding> PaddingOf(const Stage& s, arith::Analyzer* analyzer) {
  if (s.IsOpaque() || s.combine != Combine::kNone || !StoresInOrder(s)) return std::nullopt;
  const auto* choice = s.value.as<ir::IntrinObj>();
  if (choice == nullptr || choice->intrin != ir::Intrin::kIfThenElse) return std::nullopt;
  const auto* load = choice->args[1].as<BufferLoadObj>();
  const auto* zero = choice->args[2].as<ir::FloatImmObj>();
  const bool is_zero = zero != nullptr ? zero->value == 0 : ir::IsIntValue(choice->args[2], 0);
  if (load == nullptr || !is_zero || load->indices.size() != s.spatial.size() ||
      !AsksForBounds(choice->args[0], load, analyzer))
    return std::nullopt;
  Padding padding{Buffer(load->buffer), {}};
  for (size_t d = 0; d < s.spatial.size(); ++d) {
    const Expr before = s.spatial[d].var - load->indices[static_cast<int64_t>(d)];
    const auto known = ir::AsInt(analyzer->Simplify(before));
    if (!known.has_value()) return std::nullopt;
    padding.before.push_back(*known);
  }
  return padding;
}

class Reader {
 public:
  Reader(const Stage& stage, const Machine& machine, arith::Analyzer* analyzer)
      : s_(stage),
        machine_(machine),
        analyzer_(analyzer),
        last_(static_cast<int64_t>(stage.spatial.size()) - 1) {}

  std::optional<Convolution> Read(const Var& weight) {
    const auto rank = static_cast<size_t>(last_ + 1);
    if (s_.IsOpaque() || s_.combine != Combine::kSum || rank < 4 || rank > 5 ||
        s_.reduce.size() + 1 != rank || s_.finish.defined() || !StoresInOrder(s_))
      return std::nullopt;
    const DLDataType acc = s_.value.dtype();
    if (acc != Float(32) && acc != Int(32)) return std::nullopt;
    const auto times = ProductOf(s_.value);
    if (!times.has_value() || times->a.dtype() != acc) return std::nullopt;
    a_ = StripCasts(times->a).as<BufferLoadObj>();
    b_ = StripCasts(times->b).as<BufferLoadObj>();
    if (a_ == nullptr || b_ == nullptr || !b_->buffer.same_as(weight) ||
        a_->buffer.same_as(weight) || a_->indices.size() != rank || b_->indices.size() != rank)
      return std::nullopt;
    if (times->guard.defined() && !AsksForBounds(times->guard, a_, analyzer_)) return std::nullopt;
    Convolution c{Buffer(a_->buffer), Buffer(b_->buffer), *s_.out, rank == 5};
    c.of_bytes = acc == Int(32);
    for (const Buffer* buffer : {&c.data, &c.weight}) {
      const DLDataType type = buffer->elem_dtype();
      const bool is_narrow = c.of_bytes ? IsByte(type) : IsAtMostFloat32(type);
      if (!is_narrow || !IsCompact(*buffer)) return std::nullopt;
    }
    if (c.out.elem_dtype() != acc || !IsCompact(c.out)) return std::nullopt;
    c.neighbours = GroupOf(machine_, times->a, times->b, acc);
    if (c.neighbours == 2 && machine_.matrix_bf16) c.neighbours = kNeighboursOfMatrices;
    auto leaves_out = [&](int64_t d) {
      return times->guard.defined() &&
             UsesVar(times->guard, s_.spatial[static_cast<size_t>(d)].var);
    };
    c.leaves_y_out = leaves_out(last_ - 2);
    c.leaves_x_out = leaves_out(last_ - 1);
    if (!ReadSizes(&c) || !ReadPlaces(&c) || !ReadChannels(c)) return std::nullopt;
    return c;
  }

 private:
  bool IsReduced(const Expr& e) const {
    return std::any_of(s_.reduce.begin(), s_.reduce.end(),
                       [&](const Axis& axis) { return axis.var.same_as(e); });
  }

  // weight[.., window, .., k, f]
  bool ReadSizes(Convolution* c) const {
    for (int64_t d = 0; d < last_; ++d) {
      if (!IsReduced(b_->indices[d])) return false;
    }
    if (!b_->indices[last_].same_as(s_.spatial.back().var)) return false;
    const ffi::Array<Expr>& sizes = c->weight.shape();
    for (const Expr& size : sizes) {
      if (ir::AsInt(size).value_or(0) <= 0) return false;
    }
    auto size = [&](int64_t d) { return ir::AsInt(sizes[d]).value(); };
    c->layers = c->has_depth ? size(0) : 1;
    c->kernel = {size(last_ - 3), size(last_ - 2)};
    c->channels = size(last_ - 1);
    const auto all = ir::AsInt(c->data.shape()[last_]);
    if (all.value_or(0) <= 0 || *all % c->channels != 0) return false;
    c->groups = *all / c->channels;
    c->filters = size(last_) / c->groups;
    return size(last_) % c->groups == 0;
  }

  // data[n, .., place + window * dilation - before, .., _]
  bool ReadPlaces(Convolution* c) const {
    if (!a_->indices[0].same_as(s_.spatial[0].var)) return false;
    std::vector<Axis> all = s_.spatial;
    all.insert(all.end(), s_.reduce.begin(), s_.reduce.end());
    for (int64_t d = 1; d < last_; ++d) {
      const Var& place = s_.spatial[static_cast<size_t>(d)].var;
      const Expr& window = b_->indices[d - 1];
      auto linear = LinearOffset::Of(a_->indices[d], all);
      if (!linear.has_value()) return false;
      for (const Axis& axis : all) {
        if (axis.var.same_as(window)) continue;
        if (!ir::IsIntValue(linear->Coeff(axis.var), axis.var.same_as(place) ? 1 : 0)) return false;
      }
      const auto rest = ir::AsInt(analyzer_->Simplify(linear->rest()));
      const auto step = ir::AsInt(analyzer_->Simplify(linear->Coeff(window.as<Var>().value())));
      if (!rest.has_value() || step.value_or(0) < 1) return false;
      c->before[static_cast<size_t>(d + 3 - last_)] = -*rest;
      if (d + 2 < last_ && *step != 1) return false;  // layers
      if (d + 2 == last_) c->dilation = *step;
      if (*step != c->dilation && d + 1 == last_) return false;
    }
    return true;
  }

  // data[.., f / filters * channels + k]
  bool ReadChannels(const Convolution& c) const {
    const Expr& k = b_->indices[last_ - 1];
    const Expr group = c.groups == 1 ? Expr(0) : ir::FloorDiv(s_.spatial.back().var, c.filters);
    return analyzer_->ProveEqual(a_->indices[last_], group * Expr(c.channels) + k);
  }

  const Stage& s_;
  const Machine& machine_;
  arith::Analyzer* analyzer_;
  int64_t last_;  // dimension
  const BufferLoadObj* a_ = nullptr;
  const BufferLoadObj* b_ = nullptr;
};

}  // namespace

std::optional<Convolution> ReadConvolution(const Program& program, size_t at, const Var& weight,
                                           const Machine& machine) {
  arith::Analyzer analyzer;
  auto c = Reader(program.stages[at], machine, &analyzer).Read(weight);
  if (!c.has_value() || at == 0 || !Writes(program.stages[at - 1], c->data)) return c;
  const std::optional<Padding> padding = PaddingOf(program.stages[at - 1], &analyzer);
  if (!padding.has_value() || !IsCompact(padding->from)) return c;
  const ffi::Array<Expr>&from = padding->from.shape(), &to = c->data.shape();
  // Images and channels are not padded.
  if (!analyzer.ProveEqual(from[0], to[0]) || !analyzer.ProveEqual(from.back(), to.back()))
    return c;
  const size_t rank = padding->before.size();
  for (size_t d = 1; d + 1 < rank; ++d) c->before[d + 4 - rank] += padding->before[d];
  c->data = padding->from;
  c->is_padded = true;
  return c;
}

}  // namespace relaxvm::schedule::cpu
