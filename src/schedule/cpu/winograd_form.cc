// SPDX-License-Identifier: Apache-2.0
// WinogradOperand: from a convolution to the three stages of its Winograd form, and back
// (ReadWinograd).
#include <algorithm>

#include "schedule/cpu/context.h"
#include "schedule/cpu/convolution.h"
#include "schedule/cpu/winograd.h"
#include "schedule/cpu/winograd_values.h"
#include "target/packed.h"
#include "tir/tensor.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoadObj;
using tir::Indices;
using tir::Tensor;

WinogradLoad LoadsOf(const Tensor& tensor) {
  return [&tensor](const Indices& i) { return tensor(i); };
}
WinogradLoad LoadsOf(const Buffer& buffer) {
  return [&buffer](const Indices& i) { return buffer.Load(i); };
}

// Groups of filters that leave half a vector and more empty are put together, with weights of 0
// between them.
WinogradForm FormOf(const Convolution& c, const Machine& machine) {
  const int64_t fit = c.of_bytes ? 1 : machine.Lanes(4) / c.filters;
  const int64_t together = std::clamp<int64_t>(fit, 1, c.groups);
  const int64_t channels = together * c.channels, filters = together * c.filters;
  const int64_t width = target::PanelVectors(machine, filters, 4, c.of_bytes) * machine.Lanes(4);
  const int64_t groups = (c.groups + together - 1) / together;
  WinogradForm form{channels, filters, width, groups, c.dilation, c.before};
  form.of_bytes = c.of_bytes;
  if (c.of_bytes) form.tile = 2;
  return form;
}

PrimFunc TransformWeights(const Convolution& c, const WinogradForm& form, const Buffer& plain,
                          const ffi::Array<Expr>& shape) {
  Tensor x("plain", plain.shape(), plain.elem_dtype());
  Tensor transformed = tir::Compute(
      shape,
      [&](const Indices& i) {
        const int64_t panels = form.PanelsOfGroup();
        const Expr of_group = ir::FloorMod(i[0], panels) * Expr(form.width) + i[3];
        const Expr filter = ir::FloorDiv(i[0], panels) * Expr(form.filters) + of_group;
        Expr channel = ir::FloorMod(i[2], form.Depth()), inside = ir::Less(of_group, form.filters);
        if (form.groups != c.groups) {
          const Expr in_data = ir::Less(filter, c.groups * c.filters);
          const Expr is_own =
              ir::Equal(ir::FloorDiv(channel, c.channels), ir::FloorDiv(of_group, c.filters));
          inside = ir::And(inside, ir::And(in_data, is_own));
          channel = ir::FloorMod(channel, c.channels);
        }
        if (form.of_bytes) {
          channel = channel * Expr(form.Pair()) + i[4];
          inside = ir::And(inside, ir::Less(channel, form.channels));
        }
        Expr value = WinogradWeight(
            form,
            [&](const Indices& at) {
              Indices from = {at[0], at[1], channel, filter};
              if (c.has_depth)
                from = {ir::FloorDiv(i[2], c.channels), at[0], at[1], channel, filter};
              return x(from);
            },
            ir::FloorDiv(i[1], form.Size()), ir::FloorMod(i[1], form.Size()));
        if (form.has_plain) {
          const Expr element = i[1] - Expr(form.Points());
          const Expr plain_value =
              x({ir::FloorDiv(element, 3), ir::FloorMod(element, 3), channel, filter});
          value = ir::IfThenElse(ir::Less(element, 0), value,
                                 ir::Cast(form.Transformed(), plain_value));
        }
        return ir::IfThenElse(inside, value, ir::Const(form.Transformed(), 0));
      },
      "transformed");
  return tir::CreatePrimFunc({x}, {transformed});
}

// The three stages as statements over the convolution's buffers.
std::vector<tir::Stmt> ThreeStages(const Convolution& c, const WinogradForm& form,
                                   const Buffer& weight) {
  const ffi::Array<Expr>&in = c.data.shape(), &out = c.out.shape();
  const int64_t at = c.has_depth ? 2 : 1;
  const tir::Reducer sum = tir::SumReducer(form.Summed());
  const Expr size = form.Size();
  Tensor data("data", in, c.data.elem_dtype()), u("weight", weight.shape(), form.Transformed());
  auto shape = [&](int64_t layers, int64_t last) {
    ffi::Array<Expr> dims = {size, size, out[0]};
    if (c.has_depth) dims.push_back(out[1] + Expr(layers - 1));
    for (const Expr& dim : {form.TilesOf(out[at]), form.TilesOf(out[at + 1]), Expr(last)})
      dims.push_back(dim);
    return dims;
  };
  Tensor v = tir::Reduce(
      shape(c.layers, form.groups * form.channels), {size, size},
      tir::SumReducer(form.Transformed()),
      [&](const Indices& i, const Indices& r) {
        return WinogradInput(form, LoadsOf(data), in, i, r);
      },
      "winograd_input");
  ffi::Array<Expr> summed = {Expr(form.channels)};
  if (c.has_depth) summed = {Expr(c.layers), Expr(form.channels)};
  Tensor m = tir::Reduce(
      shape(1, form.groups * form.filters), summed, sum,
      [&](const Indices& i, const Indices& r) {
        return WinogradProduct(form, LoadsOf(v), LoadsOf(u), i, r);
      },
      "winograd_product");
  Tensor y = tir::Reduce(
      out, {size, size}, sum,
      [&](const Indices& i, const Indices& r) { return WinogradOutput(form, LoadsOf(m), i, r); },
      "winograd_output");
  if (form.of_bytes) {
    const Tensor sums = y;
    y = tir::Compute(
        out, [&](const Indices& i) { return WinogradResult(form, sums(i)); }, "winograd_result");
  }
  ffi::Array<Var> sizes;
  for (const ffi::Array<Expr>* shape : {&in, &out}) {
    for (const Expr& dim : *shape) {
      for (const Var& var : ir::FreeVars(dim)) {
        if (std::none_of(sizes.begin(), sizes.end(),
                         [&](const Var& known) { return known.same_as(var); }))
          sizes.push_back(var);
      }
    }
  }
  const PrimFunc made = tir::CreatePrimFunc({data, u}, {y}, sizes);

  // Its parameters are new: back to those of the convolution.
  class Replacer : public tir::StmtMutator {
   public:
    using StmtMutator::Replace;
  } replacer;
  replacer.Replace(made->params[0], c.data);
  replacer.Replace(made->params[1], weight);
  replacer.Replace(made->params[2], c.out);
  for (size_t i = 0; i < sizes.size(); ++i)
    replacer.Replace(made->params[static_cast<int64_t>(3 + i)], sizes[static_cast<int64_t>(i)]);
  std::vector<tir::Stmt> parts;
  for (const tir::Stmt& part : made->body.as<tir::SeqStmtObj>()->seq)
    parts.push_back(replacer.Mutate(part));
  return parts;
}

// Is a stage the elements of `buffer`, in place, in another type?
bool RoundsOnly(const Stage& stage, const Buffer& buffer) {
  if (stage.IsOpaque() || !stage.reduce.empty()) return false;
  const auto* load = StripCasts(stage.value).as<BufferLoadObj>();
  if (load == nullptr || !load->buffer.same_as(buffer) ||
      load->indices.size() != stage.indices.size())
    return false;
  for (int64_t d = 0; d < static_cast<int64_t>(load->indices.size()); ++d) {
    if (!load->indices[d].same_as(stage.indices[d])) return false;
  }
  return true;
}

// The form that such stages have, if they are those of any.
std::optional<WinogradForm> CandidateOf(const Stage& input, const Stage& product,
                                        const Stage& output, const Buffer& source,
                                        const Buffer& weight) {
  auto extent = [](const Axis& axis) { return ir::AsInt(axis.extent).value_or(0); };
  WinogradForm form{extent(product.reduce.back()), 0, ir::AsInt(weight.shape()[3]).value_or(0)};
  form.of_bytes = weight.elem_dtype() == Int(16);
  form.tile = extent(output.reduce[0]) - 2;
  if (form.tile != 2 && (form.tile != 4 || form.of_bytes)) return std::nullopt;
  form.has_plain = !ir::IsIntValue(weight.shape()[1], form.Points());
  if (!ir::IsIntValue(weight.shape()[1], form.PointsAndPlain())) return std::nullopt;
  const int64_t channels = extent(input.spatial.back()), filters = extent(product.spatial.back());
  if (form.channels < 1 || form.width < 1 || channels % form.channels != 0 ||
      extent(output.spatial.back()) < 1 || !ir::AsInt(source.shape().back()).has_value())
    return std::nullopt;
  form.groups = channels / form.channels;
  if (form.groups < 1 || filters < 1 || filters % form.groups != 0) return std::nullopt;
  form.filters = filters / form.groups;

  // The first tile's first element of data, and the next one.
  ffi::Map<Var, Expr> first, next;
  for (const auto* axes : {&input.spatial, &input.reduce}) {
    for (const Axis& axis : *axes) {
      first.Set(axis.var, Expr(0));
      next.Set(axis.var, Expr(axes == &input.reduce ? 1 : 0));
    }
  }
  const BufferLoadObj* load = nullptr;
  tir::PostOrderVisit(tir::Evaluate(input.value), [&](const ffi::ObjectRef& node) {
    const auto* here = node.as<BufferLoadObj>();
    if (here != nullptr && here->buffer.same_as(source)) load = here;
  });
  arith::Analyzer analyzer;
  const size_t rank = load->indices.size();
  for (size_t d = 1; d + 1 < rank; ++d) {
    const Expr& index = load->indices[static_cast<int64_t>(d)];
    const auto from = ir::AsInt(analyzer.Simplify(tir::Substitute(index, first))),
               to = ir::AsInt(analyzer.Simplify(tir::Substitute(index, next)));
    if (!from.has_value() || !to.has_value()) return std::nullopt;
    form.before[d + 4 - rank] = -*from;
    form.dilation = *to - *from;
  }
  return form.dilation < 1 ? std::nullopt : std::optional(form);
}

}  // namespace

std::optional<PackedOperand> WinogradOperand(const PrimFunc& func, size_t param,
                                             const Machine& machine) {
  if (!tir::IsBuffer(func->params[static_cast<int64_t>(param)])) return std::nullopt;
  const Buffer plain(func->params[static_cast<int64_t>(param)]);
  std::optional<Program> program = ParseProgram(func);
  const auto* parts = func->body.as<tir::SeqStmtObj>();
  if (!program.has_value()) return std::nullopt;
  const auto at = std::find_if(program->stages.begin(), program->stages.end(),
                               [&](const Stage& stage) { return ReadsBuffer(stage, plain); });
  if (at == program->stages.end() || (parts == nullptr && program->stages.size() != 1))
    return std::nullopt;
  const auto number = static_cast<size_t>(at - program->stages.begin());
  std::optional<Convolution> c = ReadConvolution(*program, number, plain, machine);
  // Nothing but padding comes before; the convolution is the result, or what it is rounded to.
  if (!c.has_value() || number != (c->is_padded ? 1U : 0U)) return std::nullopt;
  for (auto after = at + 1; after != program->stages.end(); ++after) {
    if (after != at + 1 || !RoundsOnly(*after, c->out) || ReadsBuffer(*after, plain))
      return std::nullopt;
  }
  const Stage& last = program->stages.back();
  if (last.IsOpaque() || !last.out.has_value() || !func->params.back().same_as(*last.out))
    return std::nullopt;
  WinogradForm form = FormOf(*c, machine);
  form.tile = TileWorthIt(*c, form, machine);
  if (form.tile == 0) return std::nullopt;
  form.has_plain = NeedsPlain(*c, form);

  ffi::Array<Expr> shape = {form.groups * form.PanelsOfGroup(), form.PointsAndPlain(),
                            c->layers * form.Depth(), form.width};
  if (form.of_bytes) shape.push_back(form.Pair());
  const Buffer weight(plain->name, shape, form.Transformed());
  ffi::Array<tir::Stmt> allocs = program->checks, nests;
  auto add = [&](const tir::Stmt& part) {
    (part.as<tir::AllocBufferObj>() ? allocs : nests).push_back(part);
  };
  for (const tir::Stmt& part : ThreeStages(*c, form, weight)) add(part);
  if (parts != nullptr) {
    size_t stage = 0;
    for (const tir::Stmt& part : parts->seq) {
      if (part.as<tir::AssertStmtObj>()) continue;
      const auto* alloc = part.as<tir::AllocBufferObj>();
      const bool gone = alloc != nullptr ? c->is_padded && Writes(program->stages[0], alloc->buffer)
                                         : stage++ <= number;
      if (!gone) add(part);
    }
  }
  for (const tir::Stmt& nest : nests) allocs.push_back(nest);
  auto copy = ffi::make_object<tir::PrimFuncObj>(*func.get());
  copy->params.Set(static_cast<int64_t>(param), weight);
  copy->body = tir::SeqStmt::Flatten(allocs);
  return PackedOperand{ir::NodeRef<PrimFunc>(std::move(copy)),
                       TransformWeights(*c, form, plain, shape), shape, form.Transformed()};
}

int64_t WinogradForm::Stride(const Machine& machine) const {
  const int64_t lanes = machine.Lanes(SizeInBytes(Transformed()));
  return (channels + lanes - 1) / lanes * lanes;
}

// Among the points of 4x4: the first three, and the last one.
Expr WinogradForm::PlaceOfPoint(const Expr& point) const {
  if (!of_larger) return point;
  auto along = [&](const Expr& at) {
    return at + ir::FloorDiv(at, Size() - 1) * Expr(kWinogradSize - Size());
  };
  return along(ir::FloorDiv(point, Size())) * Expr(kWinogradSize) +
         along(ir::FloorMod(point, Size()));
}

WinogradForm WinogradForm::WithSmallTiles() const {
  WinogradForm small = *this;
  small.tile = 2;
  small.of_larger = true;
  return small;
}

Expr WinogradForm::TilesOf(const Expr& size) const {
  const Expr tiles = ir::CeilDiv(size, tile * dilation);
  return dilation == 1 ? tiles : tiles * Expr(dilation);
}

Expr WinogradForm::PlaceOf(const Expr& at) const {
  if (dilation == 1) return at * Expr(tile);
  return ir::FloorDiv(at, dilation) * Expr(tile * dilation) + ir::FloorMod(at, dilation);
}

std::optional<WinogradForm> ReadWinograd(const Program& program, size_t at) {
  if (at + 3 > program.stages.size()) return std::nullopt;
  const Stage &input = program.stages[at], &product = program.stages[at + 1],
              &output = program.stages[at + 2];
  for (const Stage* s : {&input, &product, &output}) {
    if (s->IsOpaque() || s->combine != Combine::kSum || s->finish.defined()) return std::nullopt;
    for (size_t d = 0; d < s->spatial.size(); ++d) {
      if (d >= s->indices.size() || !s->indices[static_cast<int64_t>(d)].same_as(s->spatial[d].var))
        return std::nullopt;
    }
  }
  if (input.name != "winograd_input" || product.name != "winograd_product" ||
      output.name != "winograd_output" || input.reduce.size() != 2 || output.reduce.size() != 2)
    return std::nullopt;
  const size_t rank = output.spatial.size();
  if (rank < 4 || rank > 5 || input.spatial.size() != rank + 2 ||
      product.spatial.size() != rank + 2 || product.reduce.size() != rank - 3)
    return std::nullopt;
  const std::vector<Var> data = ReadsOf(input), weights = ReadsOf(product);
  if (data.size() != 1 || weights.size() != 2) return std::nullopt;
  const Buffer source(data[0]), weight(weights[weights[0].same_as(*input.out) ? 1 : 0]);
  const bool of_bytes = weight.elem_dtype() == Int(16);
  if (weight.shape().size() != (of_bytes ? 5U : 4U) || source.shape().size() != rank)
    return std::nullopt;
  const auto form = CandidateOf(input, product, output, source, weight);
  if (!form.has_value()) return std::nullopt;
  auto vars = [](const std::vector<Axis>& axes) {
    Indices all;
    for (const Axis& axis : axes) all.push_back(axis.var);
    return all;
  };
  const bool same =
      ir::StructuralEqual(WinogradInput(*form, LoadsOf(source), source.shape(), vars(input.spatial),
                                        vars(input.reduce)),
                          input.value) &&
      ir::StructuralEqual(WinogradProduct(*form, LoadsOf(*input.out), LoadsOf(weight),
                                          vars(product.spatial), vars(product.reduce)),
                          product.value) &&
      ir::StructuralEqual(
          WinogradOutput(*form, LoadsOf(*product.out), vars(output.spatial), vars(output.reduce)),
          output.value);
  return same ? form : std::nullopt;
}

}  // namespace relaxvm::schedule::cpu
