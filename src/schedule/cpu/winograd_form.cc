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

// i: a, b, n, y, x, channel; r: the place in the input tile.
Expr InputValue(const Load& data, const ffi::Array<Expr>& shape, const Indices& i,
                const Indices& r) {
  const Expr y = i[3] * Expr(kTile) + r[0], x = i[4] * Expr(kTile) + r[1];
  const Expr inside = ir::And(ir::Less(y, shape[1]), ir::Less(x, shape[2]));
  return At(kInput, i[0], r[0]) * At(kInput, i[1], r[1]) *
         ir::IfThenElse(inside, ir::Cast(Float(32), data({i[2], y, x, i[5]})),
                        ir::ConstFloat(Float(32), 0));
}

// i: a, b, n, y, x, filter
Expr ProductValue(const Load& input, const Load& weight, int64_t width, const Indices& i,
                  const Indices& r) {
  return input({i[0], i[1], i[2], i[3], i[4], r[0]}) *
         weight({i[0], i[1], ir::FloorDiv(i[5], width), r[0], ir::FloorMod(i[5], width)});
}

// i: n, h, w, filter; r: a, b
Expr OutputValue(const Load& product, const Indices& i, const Indices& r) {
  return At(kOutput, ir::FloorMod(i[1], kTile), r[0]) *
         At(kOutput, ir::FloorMod(i[2], kTile), r[1]) *
         product({r[0], r[1], i[0], ir::FloorDiv(i[1], kTile), ir::FloorDiv(i[2], kTile), i[3]});
}

Load LoadsOf(const Tensor& tensor) {
  return [&tensor](const Indices& i) { return tensor(i); };
}
Load LoadsOf(const Buffer& buffer) {
  return [&buffer](const Indices& i) { return buffer.Load(i); };
}

// out[n, h, w, f] = sum over c, i, j of data[n, h + i, w + j, c] * weight[i, j, c, f], added up in
// float32; data and weights may be narrower
struct Convolution {
  Buffer data, weight, out;
  int64_t channels, filters;
  int64_t group = 1;  // neighbouring channels of an instruction where it is computed directly
};

bool IsCompact(const Buffer& buffer) { return buffer.type()->strides.empty(); }
bool IsAtMostFloat32(DLDataType type) {
  return IsFloat(type) && type.bits <= 32 && type.bits >= 16;
}

std::optional<Convolution> ReadConvolution(const Stage& s, const Var& weight,
                                           const Machine& machine) {
  if (s.IsOpaque() || s.combine != Combine::kSum || s.spatial.size() != 4 || s.reduce.size() != 3 ||
      s.finish.defined() || s.indices.size() != 4)
    return std::nullopt;
  const auto* times = s.value.as<ir::BinaryObj>();
  if (times == nullptr || times->op != ir::BinaryOp::kMul) return std::nullopt;
  const auto* a = StripCasts(times->a).as<BufferLoadObj>();
  const auto* b = StripCasts(times->b).as<BufferLoadObj>();
  if (a == nullptr || b == nullptr || !b->buffer.same_as(weight) || a->buffer.same_as(weight) ||
      a->indices.size() != 4 || b->indices.size() != 4)
    return std::nullopt;
  Convolution c{Buffer(a->buffer), Buffer(b->buffer), *s.out, 0, 0};
  for (const Buffer* buffer : {&c.data, &c.weight}) {
    if (!IsAtMostFloat32(buffer->elem_dtype()) || !IsCompact(*buffer)) return std::nullopt;
  }
  if (s.value.dtype() != Float(32) || c.out.elem_dtype() != Float(32) || !IsCompact(c.out))
    return std::nullopt;
  c.group = GroupOf(machine, times->a, times->b, Float(32));
  for (size_t d = 0; d < 4; ++d) {
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
  const Expr n = s.spatial[0].var, h = s.spatial[1].var, w = s.spatial[2].var, f = s.spatial[3].var;
  const Expr &i = b->indices[0], &j = b->indices[1], &k = b->indices[2];
  auto is_reduced = [&](const Expr& e) {
    return std::any_of(s.reduce.begin(), s.reduce.end(),
                       [&](const Axis& axis) { return axis.var.same_as(e); });
  };
  if (!is_reduced(i) || !is_reduced(j) || !is_reduced(k) || !b->indices[3].same_as(f))
    return std::nullopt;
  if (!is_sum(a->indices[0], {n}) || !is_sum(a->indices[1], {h, i}) ||
      !is_sum(a->indices[2], {w, j}) || !is_sum(a->indices[3], {k}))
    return std::nullopt;
  const ffi::Array<Expr>& sizes = c.weight.shape();
  if (!ir::IsIntValue(sizes[0], 3) || !ir::IsIntValue(sizes[1], 3)) return std::nullopt;
  c.channels = ir::AsInt(sizes[2]).value_or(0);
  c.filters = ir::AsInt(sizes[3]).value_or(0);
  return c.channels > 0 && c.filters > 0 ? std::optional(c) : std::nullopt;
}

// Is the form clearly faster?  In cycles of one multiply-add of vectors; measured shares.
bool IsWorthIt(const Convolution& c, int64_t width, const Machine& machine) {
  const int64_t lanes = machine.Lanes(4);
  if (lanes < 4) return false;
  const auto images = static_cast<double>(ir::AsInt(c.out.shape()[0]).value_or(1));
  const double height = static_cast<double>(ir::AsInt(c.out.shape()[1]).value_or(64)),
               across = static_cast<double>(ir::AsInt(c.out.shape()[2]).value_or(64));
  const double tiles =
      images * static_cast<double>((static_cast<int64_t>(height) + kTile - 1) / kTile *
                                   ((static_cast<int64_t>(across) + kTile - 1) / kTile));
  const auto in = static_cast<double>((c.channels + lanes - 1) / lanes),
             out = static_cast<double>((c.filters + lanes - 1) / lanes);
  const auto channels = static_cast<double>(c.channels);
  const double direct =
      images * height * across * (9 * channels / static_cast<double>(c.group) * out + 6);
  // 3 cycles of the product's tiles are lost for each register; the transforms move 36 vectors in
  // and out.
  const double form = tiles * (36 * (channels + 3) * out + 300 * in + 260 * out);
  const int64_t panels = (c.filters + width - 1) / width;
  const double bytes = 4.0 * 36 * static_cast<double>(panels * width) * channels;
  const double cache = static_cast<double>(machine.l3_bytes > 0 ? machine.l3_bytes : 8 << 20);
  // Transformed weights are four times as large; read once for some two dozen tiles.
  const double reading = bytes / 12 * std::max(1.0, tiles / 24);
  return bytes <= cache / 3 && (form + reading) * 1.2 < direct;
}

PrimFunc TransformWeights(const Buffer& plain, const ffi::Array<Expr>& shape, int64_t width) {
  Tensor x("plain", plain.shape(), plain.elem_dtype());
  Tensor transformed = tir::Compute(
      shape,
      [&](const Indices& i) {
        const Expr filter = i[2] * Expr(width) + i[4];
        Expr sum;
        for (size_t h = 0; h < 3; ++h) {
          Expr line;
          for (size_t w = 0; w < 3; ++w) {
            Expr part =
                At(kWeight[w], i[1]) *
                ir::Cast(Float(32),
                         x({static_cast<int64_t>(h), static_cast<int64_t>(w), i[3], filter}));
            line = line.defined() ? line + part : part;
          }
          line = At(kWeight[h], i[0]) * line;
          sum = sum.defined() ? sum + line : line;
        }
        return ir::IfThenElse(ir::Less(filter, plain.shape()[3]), sum,
                              ir::ConstFloat(Float(32), 0));
      },
      "transformed");
  return tir::CreatePrimFunc({x}, {transformed});
}

// The three stages as statements over the convolution's buffers.
std::vector<tir::Stmt> ThreeStages(const Convolution& c, const Buffer& weight, int64_t width) {
  const ffi::Array<Expr>&in = c.data.shape(), &out = c.out.shape();
  const Expr rows = ir::CeilDiv(out[1], kTile), columns = ir::CeilDiv(out[2], kTile);
  const tir::Reducer sum = tir::SumReducer(Float(32));
  Tensor data("data", in, c.data.elem_dtype()), u("weight", weight.shape(), Float(32));
  Tensor v = tir::Reduce(
      {kSize, kSize, out[0], rows, columns, c.channels}, {kSize, kSize}, sum,
      [&](const Indices& i, const Indices& r) { return InputValue(LoadsOf(data), in, i, r); },
      "winograd_input");
  Tensor m = tir::Reduce(
      {kSize, kSize, out[0], rows, columns, c.filters}, {c.channels}, sum,
      [&](const Indices& i, const Indices& r) {
        return ProductValue(LoadsOf(v), LoadsOf(u), width, i, r);
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
                                  Expr(c->channels), Expr(width)};
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
                       TransformWeights(plain, shape, width), shape, Float(32)};
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
      output.name != "winograd_output" || input.spatial.size() != 6 || input.reduce.size() != 2 ||
      product.spatial.size() != 6 || product.reduce.size() != 1 || output.spatial.size() != 4 ||
      output.reduce.size() != 2)
    return false;
  const std::vector<Var> data = ReadsOf(input), weights = ReadsOf(product);
  if (data.size() != 1 || weights.size() != 2) return false;
  const Buffer source(data[0]), weight(weights[weights[0].same_as(*input.out) ? 1 : 0]);
  if (weight.shape().size() != 5 || source.shape().size() != 4) return false;
  auto vars = [](const std::vector<Axis>& axes) {
    Indices all;
    for (const Axis& axis : axes) all.push_back(axis.var);
    return all;
  };
  const int64_t width = ir::AsInt(weight.shape()[4]).value_or(0);
  return width > 0 &&
         ir::StructuralEqual(
             InputValue(LoadsOf(source), source.shape(), vars(input.spatial), vars(input.reduce)),
             input.value) &&
         ir::StructuralEqual(ProductValue(LoadsOf(*input.out), LoadsOf(weight), width,
                                          vars(product.spatial), vars(product.reduce)),
                             product.value) &&
         ir::StructuralEqual(
             OutputValue(LoadsOf(*product.out), vars(output.spatial), vars(output.reduce)),
             output.value);
}

}  // namespace relaxvm::schedule::cpu
