// SPDX-License-Identifier: Apache-2.0
// WinogradOperand: from a convolution to the three stages of its Winograd form, and back
// (ReadWinograd).
#include <algorithm>
#include <array>

#include "schedule/cpu/context.h"
#include "schedule/cpu/convolution.h"
#include "schedule/cpu/winograd.h"
#include "target/packed.h"
#include "tir/tensor.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoadObj;
using tir::Indices;
using tir::Tensor;

constexpr int64_t kTile = kWinogradTile, kSize = kWinogradSize;
constexpr double kNear = kWinogradNear, kFar = kWinogradFar;
using Row = std::array<double, kSize>;

// Row a: the coefficients of the product of (x - point) over all points but the a-th.
constexpr double kNN = kNear * kNear, kFF = kFar * kFar;
constexpr std::array<Row, kSize> kInput = {{{kNN * kFF, 0, -(kNN + kFF), 0, 1, 0},
                                            {0, -kNear * kFF, -kFF, kNear, 1, 0},
                                            {0, kNear * kFF, -kFF, -kNear, 1, 0},
                                            {0, -kFar * kNN, -kNN, kFar, 1, 0},
                                            {0, kFar * kNN, -kNN, -kFar, 1, 0},
                                            {0, kNN * kFF, 0, -(kNN + kFF), 0, 1}}};
// Column a: the powers of the a-th point.
constexpr std::array<Row, kTile> kOutput = {
    {{1, 1, 1, 1, 1, 0},
     {0, kNear, -kNear, kFar, -kFar, 0},
     {0, kNN, kNN, kFF, kFF, 0},
     {0, kNN * kNear, -kNN * kNear, kFF * kFar, -kFF * kFar, 1}}};
// Row i: the i-th powers of the points over the product of their distances to the others.
constexpr double kAtZero = kNN * kFF, kAtNear = 2 * kNN * (kNN - kFF),
                 kAtFar = 2 * kFF * (kFF - kNN);
constexpr std::array<Row, 3> kWeight = {
    {{1 / kAtZero, 1 / kAtNear, 1 / kAtNear, 1 / kAtFar, 1 / kAtFar, 0},
     {0, kNear / kAtNear, -kNear / kAtNear, kFar / kAtFar, -kFar / kAtFar, 0},
     {0, kNN / kAtNear, kNN / kAtNear, kFF / kAtFar, kFF / kAtFar, 1}}};

// row[i]
Expr At(const Row& row, const Expr& i) {
  Expr value = ir::ConstFloat(Float(32), row[kSize - 1]);
  for (size_t at = kSize - 1; at-- > 0;)
    value = ir::Select(ir::Equal(i, static_cast<int64_t>(at)), ir::ConstFloat(Float(32), row[at]),
                       value);
  return value;
}
// rows[i][j]
template <size_t kRows>
Expr At(const std::array<Row, kRows>& rows, const Expr& i, const Expr& j) {
  Expr value = At(rows[kRows - 1], j);
  for (size_t at = kRows - 1; at-- > 0;)
    value = ir::Select(ir::Equal(i, static_cast<int64_t>(at)), At(rows[at], j), value);
  return value;
}

using Load = std::function<Expr(const Indices&)>;

// Indices begin with those of the point, then comes the image, in volumes the layer.
bool HasDepth(const Indices& i) { return i.size() == 7; }

// Where `place` lies among the results of its tile, and which tile that is.
Expr InTile(const WinogradForm& form, const Expr& place) {
  const Expr of_image = form.dilation == 1 ? place : ir::FloorDiv(place, form.dilation);
  return ir::FloorMod(of_image, kTile);
}
Expr TileOf(const WinogradForm& form, const Expr& place) {
  const Expr tile = ir::FloorDiv(place, kTile * form.dilation);
  if (form.dilation == 1) return tile;
  return tile * Expr(form.dilation) + ir::FloorMod(place, form.dilation);
}

// i: a, b, n, [z,] y, x, channel; r: the place in the input tile.
Expr InputValue(const WinogradForm& form, const Load& data, const ffi::Array<Expr>& shape,
                const Indices& i, const Indices& r) {
  const int64_t at = HasDepth(i) ? 4 : 3;
  Indices from = {i[2]};
  if (HasDepth(i)) from.push_back(i[3] - Expr(form.before[0]));
  for (int64_t d = 0; d < 2; ++d)
    from.push_back(form.PlaceOf(i[at + d]) + r[d] * Expr(form.dilation) -
                   Expr(form.before[static_cast<size_t>(1 + d)]));
  Expr inside = ir::BoolImm(true);
  for (int64_t d = 1; d < static_cast<int64_t>(from.size()); ++d)
    inside = ir::And(inside, ir::And(ir::LessEqual(0, from[d]), ir::Less(from[d], shape[d])));
  from.push_back(i[at + 2]);
  return At(kInput, i[0], r[0]) * At(kInput, i[1], r[1]) *
         ir::IfThenElse(inside, ir::Cast(Float(32), data(from)), ir::ConstFloat(Float(32), 0));
}

// i: a, b, n, [z,] y, x, filter; r: [layer of the kernel,] channel
Expr ProductValue(const WinogradForm& form, const Load& input, const Load& weight, const Indices& i,
                  const Indices& r) {
  Indices from = {i[0], i[1], i[2]};
  if (HasDepth(i)) from.push_back(i[3] + r[0]);
  for (int64_t d = HasDepth(i) ? 4 : 3; d < static_cast<int64_t>(i.size()) - 1; ++d)
    from.push_back(i[d]);
  const Expr& channel = r[r.size() - 1];
  const Expr k = HasDepth(i) ? r[0] * Expr(form.channels) + channel : channel;
  Expr filter = i[i.size() - 1], panel;
  if (form.groups == 1) {
    from.push_back(channel);
    panel = ir::FloorDiv(filter, form.width);
  } else {
    const Expr group = ir::FloorDiv(filter, form.filters);
    filter = ir::FloorMod(filter, form.filters);
    from.push_back(group * Expr(form.channels) + channel);
    panel = group * Expr(form.PanelsOfGroup()) + ir::FloorDiv(filter, form.width);
  }
  return input(from) * weight({i[0], i[1], panel, k, ir::FloorMod(filter, form.width)});
}

// i: n, [z,] h, w, filter; r: a, b
Expr OutputValue(const WinogradForm& form, const Load& product, const Indices& i,
                 const Indices& r) {
  const int64_t at = i.size() == 5 ? 2 : 1;
  Indices from = {r[0], r[1], i[0]};
  if (at == 2) from.push_back(i[1]);
  for (const Expr& e : {TileOf(form, i[at]), TileOf(form, i[at + 1]), i[at + 2]}) from.push_back(e);
  return At(kOutput, InTile(form, i[at]), r[0]) * At(kOutput, InTile(form, i[at + 1]), r[1]) *
         product(from);
}

Load LoadsOf(const Tensor& tensor) {
  return [&tensor](const Indices& i) { return tensor(i); };
}
Load LoadsOf(const Buffer& buffer) {
  return [&buffer](const Indices& i) { return buffer.Load(i); };
}

WinogradForm FormOf(const Convolution& c, const Machine& machine) {
  const int64_t width = target::PanelVectors(machine, c.filters, 4) * machine.Lanes(4);
  return {c.channels, c.filters, width, c.groups, c.dilation, c.before};
}

// That a core gets in the time of one multiply-add of vectors.
constexpr double kBytesFromMemory = 3, kBytesFromCache = 12;

constexpr int64_t kUsualDepth = 16;  // of a volume whose size is not known
constexpr int64_t kUsualSize = 64;

// Of the windows along dimension `d` and three elements of the kernel, the share on data.
double ShareOnData(const Convolution& c, int64_t d, size_t spatial) {
  const int64_t size = ir::AsInt(c.data.shape()[d]).value_or(kUsualSize),
                windows = ir::AsInt(c.out.shape()[d]).value_or(kUsualSize);
  int64_t on_data = 0;
  for (int64_t k = 0; k < 3; ++k) {
    const int64_t place = k * c.dilation - c.before[spatial];  // in the first window
    on_data +=
        std::max<int64_t>(0, std::min(windows, size - place) - std::max<int64_t>(0, 0 - place));
  }
  return static_cast<double>(on_data) / static_cast<double>(3 * windows);
}

// Is the form clearly faster?  In cycles of one multiply-add of vectors; measured shares.
bool IsWorthIt(const Convolution& c, const WinogradForm& form, const Machine& machine) {
  const int64_t lanes = machine.Lanes(4);
  // Groups that do not fill a vector lie side by side in one where they are computed directly.
  if (lanes < 4 || c.kernel[0] != 3 || c.kernel[1] != 3 || (c.groups > 1 && c.filters < lanes))
    return false;
  const int64_t at = c.has_depth ? 2 : 1;
  auto size = [&](int64_t dim, int64_t usual) {
    return ir::AsInt(c.out.shape()[dim]).value_or(usual);
  };
  auto tiles_of = [&](int64_t results) {
    return static_cast<double>(ir::AsInt(form.TilesOf(results)).value());
  };
  const auto images = static_cast<double>(size(0, 1) * (c.has_depth ? size(1, kUsualDepth) : 1));
  const int64_t height = size(at, kUsualSize), across = size(at + 1, kUsualSize);
  const double tiles = images * tiles_of(height) * tiles_of(across);
  const auto in = static_cast<double>((c.channels + lanes - 1) / lanes),
             out = static_cast<double>((c.filters + lanes - 1) / lanes);
  const auto depth = static_cast<double>(c.channels * c.layers);
  const double share =
      c.leaves_padding_out ? ShareOnData(c, at, 1) * ShareOnData(c, at + 1, 2) : 1.0;
  // Weights come from memory in each run, as those of other layers are used between two.
  const double columns = static_cast<double>(form.PanelsOfGroup() * form.width);
  const double bytes = 4.0 * 36 * columns * depth, direct_bytes = bytes / 4;
  const double direct = images * static_cast<double>(height * across) *
                            (9 * share * depth / static_cast<double>(c.neighbours) * out + 6) +
                        direct_bytes / kBytesFromMemory;
  // 3 cycles of the product's tiles are lost for each register; the transforms move 36 vectors in
  // and out. Where the kernel is deep some layers are transformed for two blocks.
  const double again = c.layers > 1 ? 1.5 : 1;
  const double work = tiles * (36 * (depth + 3) * out + 300 * again * in + 260 * out);
  const double cache = static_cast<double>(machine.l3_bytes > 0 ? machine.l3_bytes : 8 << 20);
  // Transformed weights are four times as large; read once more for some two dozen tiles.
  const double reading =
      bytes / kBytesFromMemory + bytes / kBytesFromCache * std::max(0.0, tiles / 24 - 1);
  return bytes * static_cast<double>(c.groups) <= cache / 3 && (work + reading) * 1.2 < direct;
}

PrimFunc TransformWeights(const Convolution& c, const WinogradForm& form, const Buffer& plain,
                          const ffi::Array<Expr>& shape) {
  Tensor x("plain", plain.shape(), plain.elem_dtype());
  Tensor transformed = tir::Compute(
      shape,
      [&](const Indices& i) {
        const int64_t panels = form.PanelsOfGroup();
        const Expr of_group = ir::FloorMod(i[2], panels) * Expr(form.width) + i[4];
        const Expr filter = ir::FloorDiv(i[2], panels) * Expr(form.filters) + of_group;
        Expr sum;
        for (size_t h = 0; h < 3; ++h) {
          Expr line;
          for (size_t w = 0; w < 3; ++w) {
            Indices from = {static_cast<int64_t>(h), static_cast<int64_t>(w), i[3], filter};
            if (c.has_depth)
              from = {ir::FloorDiv(i[3], c.channels), from[0], from[1],
                      ir::FloorMod(i[3], c.channels), filter};
            Expr part = At(kWeight[w], i[1]) * ir::Cast(Float(32), x(from));
            line = line.defined() ? line + part : part;
          }
          line = At(kWeight[h], i[0]) * line;
          sum = sum.defined() ? sum + line : line;
        }
        return ir::IfThenElse(ir::Less(of_group, form.filters), sum, ir::ConstFloat(Float(32), 0));
      },
      "transformed");
  return tir::CreatePrimFunc({x}, {transformed});
}

// The three stages as statements over the convolution's buffers.
std::vector<tir::Stmt> ThreeStages(const Convolution& c, const WinogradForm& form,
                                   const Buffer& weight) {
  const ffi::Array<Expr>&in = c.data.shape(), &out = c.out.shape();
  const int64_t at = c.has_depth ? 2 : 1;
  const tir::Reducer sum = tir::SumReducer(Float(32));
  Tensor data("data", in, c.data.elem_dtype()), u("weight", weight.shape(), Float(32));
  auto shape = [&](int64_t layers, int64_t last) {
    ffi::Array<Expr> dims = {kSize, kSize, out[0]};
    if (c.has_depth) dims.push_back(out[1] + Expr(layers - 1));
    for (const Expr& dim : {form.TilesOf(out[at]), form.TilesOf(out[at + 1]), Expr(last)})
      dims.push_back(dim);
    return dims;
  };
  Tensor v = tir::Reduce(
      shape(c.layers, form.groups * form.channels), {kSize, kSize}, sum,
      [&](const Indices& i, const Indices& r) { return InputValue(form, LoadsOf(data), in, i, r); },
      "winograd_input");
  ffi::Array<Expr> summed = {Expr(form.channels)};
  if (c.has_depth) summed = {Expr(c.layers), Expr(form.channels)};
  Tensor m = tir::Reduce(
      shape(1, form.groups * form.filters), summed, sum,
      [&](const Indices& i, const Indices& r) {
        return ProductValue(form, LoadsOf(v), LoadsOf(u), i, r);
      },
      "winograd_product");
  Tensor y = tir::Reduce(
      out, {kSize, kSize}, sum,
      [&](const Indices& i, const Indices& r) { return OutputValue(form, LoadsOf(m), i, r); },
      "winograd_output");
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
  WinogradForm form{extent(product.reduce.back()), 0, ir::AsInt(weight.shape()[4]).value_or(0)};
  const int64_t channels = extent(input.spatial.back()), filters = extent(output.spatial.back());
  if (form.channels < 1 || form.width < 1 || channels % form.channels != 0) return std::nullopt;
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
  const WinogradForm form = FormOf(*c, machine);
  if (!IsWorthIt(*c, form, machine)) return std::nullopt;

  const ffi::Array<Expr> shape = {Expr(kSize), Expr(kSize),
                                  Expr(form.groups * form.PanelsOfGroup()),
                                  Expr(c->layers * c->channels), Expr(form.width)};
  const Buffer weight(plain->name, shape, Float(32));
  ffi::Array<tir::Stmt> allocs, nests;
  auto add = [&](const tir::Stmt& part) {
    (part.as<tir::AllocBufferObj>() ? allocs : nests).push_back(part);
  };
  for (const tir::Stmt& part : ThreeStages(*c, form, weight)) add(part);
  if (parts != nullptr) {
    size_t stage = 0;
    for (const tir::Stmt& part : parts->seq) {
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
                       TransformWeights(*c, form, plain, shape), shape, Float(32)};
}

Expr WinogradForm::TilesOf(const Expr& size) const {
  const Expr tiles = ir::CeilDiv(size, kTile * dilation);
  return dilation == 1 ? tiles : tiles * Expr(dilation);
}

Expr WinogradForm::PlaceOf(const Expr& tile) const {
  if (dilation == 1) return tile * Expr(kTile);
  return ir::FloorDiv(tile, dilation) * Expr(kTile * dilation) + ir::FloorMod(tile, dilation);
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
  if (weight.shape().size() != 5 || source.shape().size() != rank) return std::nullopt;
  const auto form = CandidateOf(input, product, output, source, weight);
  if (!form.has_value()) return std::nullopt;
  auto vars = [](const std::vector<Axis>& axes) {
    Indices all;
    for (const Axis& axis : axes) all.push_back(axis.var);
    return all;
  };
  const bool same = ir::StructuralEqual(InputValue(*form, LoadsOf(source), source.shape(),
                                                   vars(input.spatial), vars(input.reduce)),
                                        input.value) &&
                    ir::StructuralEqual(ProductValue(*form, LoadsOf(*input.out), LoadsOf(weight),
                                                     vars(product.spatial), vars(product.reduce)),
                                        product.value) &&
                    ir::StructuralEqual(OutputValue(*form, LoadsOf(*product.out),
                                                    vars(output.spatial), vars(output.reduce)),
                                        output.value);
  return same ? form : std::nullopt;
}

}  // namespace relaxvm::schedule::cpu
