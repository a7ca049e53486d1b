// SPDX-License-Identifier: Apache-2.0
// WinogradOperand: from a convolution to the three stages of its Winograd form, and back
// (IsWinograd).
#include <algorithm>
#include <array>

#include "schedule/cpu/context.h"
#include "schedule/cpu/contraction.h"
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

// i: a, b, n, [z,] y, x, channel; r: the place in the input tile.
Expr InputValue(const Load& data, const ffi::Array<Expr>& shape, const Indices& i,
                const Indices& r) {
  const int64_t at = HasDepth(i) ? 4 : 3;
  const Expr y = i[at] * Expr(kTile) + r[0], x = i[at + 1] * Expr(kTile) + r[1];
  const Expr inside = ir::And(ir::Less(y, shape[at - 2]), ir::Less(x, shape[at - 1]));
  Indices from = {i[2]};
  if (HasDepth(i)) from.push_back(i[3]);
  for (const Expr& e : {y, x, i[at + 2]}) from.push_back(e);
  return At(kInput, i[0], r[0]) * At(kInput, i[1], r[1]) *
         ir::IfThenElse(inside, ir::Cast(Float(32), data(from)), ir::ConstFloat(Float(32), 0));
}

// i: a, b, n, [z,] y, x, filter; r: [layer of the kernel,] channel
Expr ProductValue(const Load& input, const Load& weight, int64_t channels, int64_t width,
                  const Indices& i, const Indices& r) {
  Indices from = {i[0], i[1], i[2]};
  if (HasDepth(i)) from.push_back(i[3] + r[0]);
  for (int64_t d = HasDepth(i) ? 4 : 3; d < static_cast<int64_t>(i.size()) - 1; ++d)
    from.push_back(i[d]);
  from.push_back(r[r.size() - 1]);
  const Expr k = HasDepth(i) ? r[0] * Expr(channels) + r[1] : r[0];
  const Expr filter = i[i.size() - 1];
  return input(from) *
         weight({i[0], i[1], ir::FloorDiv(filter, width), k, ir::FloorMod(filter, width)});
}

// i: n, [z,] h, w, filter; r: a, b
Expr OutputValue(const Load& product, const Indices& i, const Indices& r) {
  const int64_t at = i.size() == 5 ? 2 : 1;
  Indices from = {r[0], r[1], i[0]};
  if (at == 2) from.push_back(i[1]);
  for (const Expr& e : {ir::FloorDiv(i[at], kTile), ir::FloorDiv(i[at + 1], kTile), i[at + 2]})
    from.push_back(e);
  return At(kOutput, ir::FloorMod(i[at], kTile), r[0]) *
         At(kOutput, ir::FloorMod(i[at + 1], kTile), r[1]) * product(from);
}

Load LoadsOf(const Tensor& tensor) {
  return [&tensor](const Indices& i) { return tensor(i); };
}
Load LoadsOf(const Buffer& buffer) {
  return [&buffer](const Indices& i) { return buffer.Load(i); };
}

// out[n, h, w, f] = sum over c, i, j of data[n, h + i, w + j, c] * weight[i, j, c, f], added up in
// float32; data and weights may be narrower.  In volumes there is z before h, and the kernel is
// `layers` deep.
struct Convolution {
  Buffer data, weight, out;
  bool has_depth;
  int64_t layers, channels, filters;
  int64_t group = 1;  // neighbouring channels of an instruction where it is computed directly
};

bool IsCompact(const Buffer& buffer) { return buffer.type()->strides.empty(); }
bool IsAtMostFloat32(DLDataType type) {
  return IsFloat(type) && type.bits <= 32 && type.bits >= 16;
}

std::optional<Convolution> ReadConvolution(const Stage& s, const Var& weight,
                                           const Machine& machine) {
  const size_t rank = s.spatial.size();
  if (s.IsOpaque() || s.combine != Combine::kSum || rank < 4 || rank > 5 ||
      s.reduce.size() + 1 != rank || s.finish.defined() || s.indices.size() != rank)
    return std::nullopt;
  const auto* times = s.value.as<ir::BinaryObj>();
  if (times == nullptr || times->op != ir::BinaryOp::kMul) return std::nullopt;
  const auto* a = StripCasts(times->a).as<BufferLoadObj>();
  const auto* b = StripCasts(times->b).as<BufferLoadObj>();
  if (a == nullptr || b == nullptr || !b->buffer.same_as(weight) || a->buffer.same_as(weight) ||
      a->indices.size() != rank || b->indices.size() != rank)
    return std::nullopt;
  Convolution c{Buffer(a->buffer), Buffer(b->buffer), *s.out, rank == 5, 1, 0, 0};
  for (const Buffer* buffer : {&c.data, &c.weight}) {
    if (!IsAtMostFloat32(buffer->elem_dtype()) || !IsCompact(*buffer)) return std::nullopt;
  }
  if (s.value.dtype() != Float(32) || c.out.elem_dtype() != Float(32) || !IsCompact(c.out))
    return std::nullopt;
  c.group = GroupOf(machine, times->a, times->b, Float(32));
  for (size_t d = 0; d < rank; ++d) {
    if (!s.indices[static_cast<int64_t>(d)].same_as(s.spatial[d].var)) return std::nullopt;
  }
  std::vector<Axis> all = s.spatial;
  all.insert(all.end(), s.reduce.begin(), s.reduce.end());
  // Is `e` the sum of these axes?
  auto is_sum = [&](const Expr& e, const std::vector<Expr>& axes) {
    auto linear = LinearOffset::Of(e, all);
    if (!linear.has_value() || !ir::IsIntValue(linear->rest(), 0)) return false;
    for (const Axis& axis : all) {
      const bool wanted =
          std::any_of(axes.begin(), axes.end(), [&](const Expr& v) { return v.same_as(axis.var); });
      if (!ir::IsIntValue(linear->Coeff(axis.var), wanted ? 1 : 0)) return false;
    }
    return true;
  };
  auto is_reduced = [&](const Expr& e) {
    return std::any_of(s.reduce.begin(), s.reduce.end(),
                       [&](const Axis& axis) { return axis.var.same_as(e); });
  };
  // weight[.., window, .., k, f], data[n, .., place + window, .., k]
  const auto last = static_cast<int64_t>(rank) - 1;
  if (!is_sum(a->indices[0], {s.spatial[0].var}) ||
      !is_sum(a->indices[last], {b->indices[last - 1]}) || !is_reduced(b->indices[last - 1]) ||
      !b->indices[last].same_as(s.spatial[rank - 1].var))
    return std::nullopt;
  for (int64_t d = 1; d < last; ++d) {
    const Expr& window = b->indices[d - 1];
    if (!is_reduced(window) ||
        !is_sum(a->indices[d], {s.spatial[static_cast<size_t>(d)].var, window}))
      return std::nullopt;
  }
  const ffi::Array<Expr>& sizes = c.weight.shape();
  if (!ir::IsIntValue(sizes[last - 3], 3) || !ir::IsIntValue(sizes[last - 2], 3))
    return std::nullopt;
  c.layers = c.has_depth ? ir::AsInt(sizes[0]).value_or(0) : 1;
  c.channels = ir::AsInt(sizes[last - 1]).value_or(0);
  c.filters = ir::AsInt(sizes[last]).value_or(0);
  return c.layers > 0 && c.channels > 0 && c.filters > 0 ? std::optional(c) : std::nullopt;
}

constexpr int64_t kUsualDepth = 16;  // of a volume whose size is not known

// Is the form clearly faster?  In cycles of one multiply-add of vectors; measured shares.
bool IsWorthIt(const Convolution& c, int64_t width, const Machine& machine) {
  const int64_t lanes = machine.Lanes(4);
  if (lanes < 4) return false;
  const int64_t at = c.has_depth ? 2 : 1;
  auto size = [&](int64_t dim, int64_t usual) {
    return static_cast<double>(ir::AsInt(c.out.shape()[dim]).value_or(usual));
  };
  const double images = size(0, 1) * (c.has_depth ? size(1, kUsualDepth) : 1);
  const double height = size(at, 64), across = size(at + 1, 64);
  const double tiles =
      images * static_cast<double>((static_cast<int64_t>(height) + kTile - 1) / kTile *
                                   ((static_cast<int64_t>(across) + kTile - 1) / kTile));
  const auto in = static_cast<double>((c.channels + lanes - 1) / lanes),
             out = static_cast<double>((c.filters + lanes - 1) / lanes);
  const auto depth = static_cast<double>(c.channels * c.layers);
  const double direct =
      images * height * across * (9 * depth / static_cast<double>(c.group) * out + 6);
  // 3 cycles of the product's tiles are lost for each register; the transforms move 36 vectors in
  // and out. Where the kernel is deep some layers are transformed for two blocks.
  const double again = c.layers > 1 ? 1.5 : 1;
  const double form = tiles * (36 * (depth + 3) * out + 300 * again * in + 260 * out);
  const int64_t panels = (c.filters + width - 1) / width;
  const double bytes = 4.0 * 36 * static_cast<double>(panels * width) * depth;
  const double cache = static_cast<double>(machine.l3_bytes > 0 ? machine.l3_bytes : 8 << 20);
  // Transformed weights are four times as large; read once for some two dozen tiles.
  const double reading = bytes / 12 * std::max(1.0, tiles / 24);
  return bytes <= cache / 3 && (form + reading) * 1.2 < direct;
}

PrimFunc TransformWeights(const Convolution& c, const Buffer& plain, const ffi::Array<Expr>& shape,
                          int64_t width) {
  Tensor x("plain", plain.shape(), plain.elem_dtype());
  Tensor transformed = tir::Compute(
      shape,
      [&](const Indices& i) {
        const Expr filter = i[2] * Expr(width) + i[4];
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
        return ir::IfThenElse(ir::Less(filter, c.filters), sum, ir::ConstFloat(Float(32), 0));
      },
      "transformed");
  return tir::CreatePrimFunc({x}, {transformed});
}

// The three stages as statements over the convolution's buffers.
std::vector<tir::Stmt> ThreeStages(const Convolution& c, const Buffer& weight, int64_t width) {
  const ffi::Array<Expr>&in = c.data.shape(), &out = c.out.shape();
  const int64_t at = c.has_depth ? 2 : 1;
  const Expr rows = ir::CeilDiv(out[at], kTile), columns = ir::CeilDiv(out[at + 1], kTile);
  const tir::Reducer sum = tir::SumReducer(Float(32));
  Tensor data("data", in, c.data.elem_dtype()), u("weight", weight.shape(), Float(32));
  auto shape = [&](const ffi::Array<Expr>& of, int64_t last) {
    ffi::Array<Expr> dims = {kSize, kSize, out[0]};
    if (c.has_depth) dims.push_back(of[1]);
    for (const Expr& dim : {rows, columns, Expr(last)}) dims.push_back(dim);
    return dims;
  };
  Tensor v = tir::Reduce(
      shape(in, c.channels), {kSize, kSize}, sum,
      [&](const Indices& i, const Indices& r) { return InputValue(LoadsOf(data), in, i, r); },
      "winograd_input");
  ffi::Array<Expr> summed = {Expr(c.channels)};
  if (c.has_depth) summed = {Expr(c.layers), Expr(c.channels)};
  Tensor m = tir::Reduce(
      shape(out, c.filters), summed, sum,
      [&](const Indices& i, const Indices& r) {
        return ProductValue(LoadsOf(v), LoadsOf(u), c.channels, width, i, r);
      },
      "winograd_product");
  Tensor y = tir::Reduce(
      out, {kSize, kSize}, sum,
      [&](const Indices& i, const Indices& r) { return OutputValue(LoadsOf(m), i, r); },
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
  std::optional<Convolution> c = ReadConvolution(*at, plain, machine);
  if (!c.has_value()) return std::nullopt;
  // What comes before (padding) makes the data; the convolution is the result, or what it is
  // rounded to.
  for (auto before = program->stages.begin(); before != at; ++before) {
    if (before + 1 != at || !Writes(*before, c->data) || before->IsOpaque()) return std::nullopt;
  }
  for (auto after = at + 1; after != program->stages.end(); ++after) {
    if (after != at + 1 || !RoundsOnly(*after, c->out) || ReadsBuffer(*after, plain))
      return std::nullopt;
  }
  const Stage& last = program->stages.back();
  if (last.IsOpaque() || !last.out.has_value() || !func->params.back().same_as(*last.out))
    return std::nullopt;
  const int64_t width = target::PanelVectors(machine, c->filters, 4) * machine.Lanes(4);
  if (!IsWorthIt(*c, width, machine)) return std::nullopt;

  const ffi::Array<Expr> shape = {Expr(kSize), Expr(kSize), Expr((c->filters + width - 1) / width),
                                  Expr(c->layers * c->channels), Expr(width)};
  const Buffer weight(plain->name, shape, Float(32));
  const std::vector<tir::Stmt> three = ThreeStages(*c, weight, width);
  const auto number = at - program->stages.begin();
  ffi::Array<tir::Stmt> allocs, nests;
  auto add = [&](const tir::Stmt& part) {
    (part.as<tir::AllocBufferObj>() ? allocs : nests).push_back(part);
  };
  if (parts == nullptr) {
    for (const tir::Stmt& part : three) add(part);
  } else {
    int64_t stage = 0;
    for (const tir::Stmt& part : parts->seq) {
      if (part.as<tir::AllocBufferObj>() || stage++ != number) {
        add(part);
      } else {
        for (const tir::Stmt& each : three) add(each);
      }
    }
  }
  for (const tir::Stmt& nest : nests) allocs.push_back(nest);
  auto copy = ffi::make_object<tir::PrimFuncObj>(*func.get());
  copy->params.Set(static_cast<int64_t>(param), weight);
  copy->body = tir::SeqStmt::Flatten(allocs);
  return PackedOperand{ir::NodeRef<PrimFunc>(std::move(copy)),
                       TransformWeights(*c, plain, shape, width), shape, Float(32)};
}

bool IsWinograd(const Program& program, size_t at) {
  if (at + 3 > program.stages.size()) return false;
  const Stage &input = program.stages[at], &product = program.stages[at + 1],
              &output = program.stages[at + 2];
  for (const Stage* s : {&input, &product, &output}) {
    if (s->IsOpaque() || s->combine != Combine::kSum || s->finish.defined()) return false;
    for (size_t d = 0; d < s->spatial.size(); ++d) {
      if (d >= s->indices.size() || !s->indices[static_cast<int64_t>(d)].same_as(s->spatial[d].var))
        return false;
    }
  }
  if (input.name != "winograd_input" || product.name != "winograd_product" ||
      output.name != "winograd_output" || input.reduce.size() != 2 || output.reduce.size() != 2)
    return false;
  const size_t rank = output.spatial.size();
  if (rank < 4 || rank > 5 || input.spatial.size() != rank + 2 ||
      product.spatial.size() != rank + 2 || product.reduce.size() != rank - 3)
    return false;
  const std::vector<Var> data = ReadsOf(input), weights = ReadsOf(product);
  if (data.size() != 1 || weights.size() != 2) return false;
  const Buffer source(data[0]), weight(weights[weights[0].same_as(*input.out) ? 1 : 0]);
  if (weight.shape().size() != 5 || source.shape().size() != rank) return false;
  auto vars = [](const std::vector<Axis>& axes) {
    Indices all;
    for (const Axis& axis : axes) all.push_back(axis.var);
    return all;
  };
  const int64_t width = ir::AsInt(weight.shape()[4]).value_or(0),
                channels = ir::AsInt(input.spatial.back().extent).value_or(0);
  return width > 0 && channels > 0 &&
         ir::StructuralEqual(
             InputValue(LoadsOf(source), source.shape(), vars(input.spatial), vars(input.reduce)),
             input.value) &&
         ir::StructuralEqual(ProductValue(LoadsOf(*input.out), LoadsOf(weight), channels, width,
                                          vars(product.spatial), vars(product.reduce)),
                             product.value) &&
         ir::StructuralEqual(
             OutputValue(LoadsOf(*product.out), vars(output.spatial), vars(output.reduce)),
             output.value);
}

}  // namespace relaxvm::schedule::cpu
