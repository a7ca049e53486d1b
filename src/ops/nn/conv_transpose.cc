// SPDX-License-Identifier: Apache-2.0
// Transposed convolutions: every input element is spread over the results that it reaches.
// Form: no multiplication with inserted zeros.  A result at y meets only the kernel elements
// k = (y + pad) % stride + stride * t, and those the inputs (y + pad) / stride - t: with padded
// data one reduction block over input channels and t.  Written with y / stride and the phase y %
// stride, of which all results of a phase have the same kernel elements; what a phase has not of
// the last t is left out.  An axis with one input has a kernel element for each result.
#include "arith/analyzer.h"
#include "ops/layout_rule.h"
#include "ops/nn/spatial.h"

namespace relaxvm::ops {
namespace {

struct ConvTranspose {
  Ints strides = {1};
  Ints padding = {0};
  Ints output_padding = {0};
  Ints dilation = {1};
  int64_t groups = 1;
  std::string data_layout;
  std::string kernel_layout;
  std::optional<std::string> out_layout;
  std::optional<DLDataType> out_dtype;
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

template <size_t kNumSpatial>
Type InferConvTranspose(TypeCtx& ctx, const ConvTranspose& a) {
  std::string spatial = SpatialLetters(kNumSpatial);
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  TensorType w = ctx.TensorOf(1, IsNumber, "a tensor of numbers");
  if (!a.out_dtype) ctx.SameDtype(0, 1);
  Layout data(ctx, a.data_layout, "NC" + spatial, "data_layout");
  Layout kernel(ctx, a.kernel_layout, "IO" + spatial, "kernel_layout");
  Layout out(ctx, a.out_layout.value_or(a.data_layout), "NC" + spatial, "out_layout");
  ctx.CheckRank(0, data.size());
  ctx.CheckRank(1, kernel.size());
  CheckSpatial(ctx, "strides", a.strides, kNumSpatial, 1);
  CheckSpatial(ctx, "padding", a.padding, 2 * kNumSpatial, 0);
  CheckSpatial(ctx, "output_padding", a.output_padding, kNumSpatial, 0);
  CheckSpatial(ctx, "dilation", a.dilation, kNumSpatial, 1);
  if (a.groups < 1) ctx.Error(ErrorKind::kValueError, "groups must be at least 1, got ", a.groups);
  for (size_t s = 0; s < kNumSpatial; ++s) {
    if (a.output_padding[s] < std::max(a.strides[s], a.dilation[s])) continue;
    ctx.Error(ErrorKind::kValueError,
              "output_padding must be less than the stride or dilation, got ", a.output_padding[s],
              " with stride ", a.strides[s]);
  }
  DLDataType dtype = a.out_dtype.value_or(IsVoid(w->dtype) ? w->dtype : x->dtype);
  auto xs = x->GetShape();
  auto ws = w->GetShape();
  if (!xs.has_value() || !ws.has_value()) return ctx.Result(std::nullopt, out.size(), dtype);

  Expr channels = data.Extent(*xs, 'C');
  if (ctx.Prove(ir::NotEqual(channels, kernel.Extent(*ws, 'I')))) {
    ctx.Error(ErrorKind::kValueError, "data has ", DescribeExpr(channels),
              " channels, but weight takes ", DescribeExpr(kernel.Extent(*ws, 'I')), ": ",
              DescribeType(x), " with ", DescribeType(w));
  }
  if (ctx.Prove(ir::NotEqual(ir::FloorMod(channels, Expr(a.groups)), Expr(0)))) {
    ctx.Error(ErrorKind::kValueError, "data has ", DescribeExpr(channels), " channels, which ",
              a.groups, " groups do not divide");
  }
  auto dim = [&](char letter) -> Expr {
    if (letter == 'N') return data.Extent(*xs, 'N');
    if (letter == 'C') return ctx.Simplify(kernel.Extent(*ws, 'O') * Expr(a.groups));
    size_t s = spatial.find(letter);
    Expr reach = (kernel.Extent(*ws, letter) - Expr(1)) * Expr(a.dilation[s]);
    Expr extent = ctx.Simplify(data.Extent(*xs, letter));  // seen first: it stands first
    Expr size = (extent - Expr(1)) * Expr(a.strides[s]) + reach +
                Expr(a.output_padding[s] + 1 - a.padding[s] - a.padding[kNumSpatial + s]);
    size = ctx.Simplify(size);
    if (ctx.Prove(ir::Less(size, Expr(0)))) {
      ctx.Error(ErrorKind::kValueError, "padding leaves nothing of axis ", std::string(1, letter));
    }
    return size;
  };
  return ctx.Result(out.Shape(dim), dtype);
}

// What the two forms share.
template <size_t kNumSpatial>
struct Parts {
  Parts(const ComputeArgs& in, const ConvTranspose& a)
      : spatial(SpatialLetters(kNumSpatial)),
        data(a.data_layout),
        kernel(a.kernel_layout),
        out(a.out_layout.value_or(a.data_layout)),
        dtype(in.OutDtype()),
        wide(WideDtype(dtype)) {}

  // Indices from those of the spatial letters; `channel` runs over the channels of one group.
  template <typename Value>
  Indices OfData(const Indices& i, const Expr& channel, const Value& at) const {
    return data.Order([&](char letter) -> Expr {
      if (letter == 'N') return out.Index(i, 'N');
      return letter == 'C' ? channel : at(spatial.find(letter));
    });
  }
  template <typename Value>
  Indices OfKernel(const Expr& channel, const Expr& filter, const Value& at) const {
    return kernel.Order([&](char letter) -> Expr {
      if (letter == 'I') return channel;
      return letter == 'O' ? filter : at(spatial.find(letter));
    });
  }

  std::string spatial;
  Layout data, kernel, out;
  DLDataType dtype, wide;
};

// Which input channel and which filter of the group meet in a result's channel.
struct Channels {
  Expr input, filter;
};
Channels ChannelsOf(const Expr& out_channel, const Expr& r, const Expr& filters, const Expr& inputs,
                    int64_t groups) {
  if (groups == 1) return {r, out_channel};
  Expr group = ir::FloorDiv(out_channel, filters);
  return {group * inputs + r, ir::FloorMod(out_channel, filters)};
}

template <size_t kNumSpatial>
Tensor StepForm(const ComputeArgs& in, const ConvTranspose& a, const Parts<kNumSpatial>& p) {
  const Tensor& w = in[1];
  Dims out_shape = in.OutShape();
  Expr inputs = ir::FloorDiv(p.data.Extent(in[0]->shape, 'C'), Expr(a.groups));
  Expr filters = p.kernel.Extent(w->shape, 'O');
  auto none = [](size_t ndim) {
    return PadAmounts{std::vector<Expr>(ndim, Expr(0)), std::vector<Expr>(ndim, Expr(0))};
  };
  arith::Analyzer analyzer;
  PadAmounts data_pads = none(p.data.size());
  Dims whole = out_shape;  // whole steps
  bool is_cut = false;
  std::vector<Expr> taps;
  auto is_single = [&](size_t s) {
    return ir::IsIntValue(p.data.Extent(in[0]->shape, p.spatial[s]), 1);
  };
  for (size_t s = 0; s < kNumSpatial; ++s) {
    if (is_single(s)) {
      taps.push_back(Expr(1));
      continue;
    }
    Expr stride(a.strides[s]);
    Expr extent = p.kernel.Extent(w->shape, p.spatial[s]);
    taps.push_back(analyzer.Simplify(ir::CeilDiv(extent, stride)));
    Expr results = p.out.Extent(out_shape, p.spatial[s]);
    if (!analyzer.ProveEqual(ir::FloorMod(results, stride), 0)) {
      results = analyzer.Simplify(ir::CeilDiv(results, stride) * stride);
      whole.Set(static_cast<int64_t>(p.out.At(p.spatial[s])), results);
      is_cut = true;
    }
    // Input t - 1 before the first one up to that of the last result.
    Expr have = p.data.Extent(in[0]->shape, p.spatial[s]);
    Expr last = ir::FloorDiv(results + Expr(a.padding[s] - 1), stride);
    bool exact = a.padding[s] == 0 && a.padding[kNumSpatial + s] == 0 && a.output_padding[s] == 0 &&
                 ir::IsIntValue(extent, a.strides[s]);
    data_pads.before[p.data.At(p.spatial[s])] = analyzer.Simplify(taps[s] - Expr(1));
    data_pads.after[p.data.At(p.spatial[s])] =
        exact ? Expr(0) : analyzer.Simplify(ir::Max(last + Expr(1) - have, Expr(0)));
  }
  Tensor x = PadStage(in[0], data_pads, Number(in[0].dtype(), 0));
  Dims reduced{inputs};
  for (const Expr& t : taps) reduced.push_back(t);
  auto formula = [&](const Indices& i, const Indices& r) {
    Channels c = ChannelsOf(p.out.Index(i, 'C'), r[0], filters, inputs, a.groups);
    auto moved = [&](size_t s) {
      return ir::FloorMod(p.out.Index(i, p.spatial[s]), Expr(a.strides[s])) + Expr(a.padding[s]);
    };
    Indices at = p.OfData(i, c.input, [&](size_t s) -> Expr {
      if (is_single(s)) return Expr(0);
      const Expr stride(a.strides[s]);
      return ir::FloorDiv(p.out.Index(i, p.spatial[s]), stride) + ir::FloorDiv(moved(s), stride) +
             (taps[s] - Expr(1)) - r[1 + s];
    });
    Expr has;  // null: always
    Indices tap = p.OfKernel(c.input, c.filter, [&](size_t s) {
      const Expr stride(a.strides[s]);
      const Expr extent = p.kernel.Extent(w->shape, p.spatial[s]);
      const Expr result = p.out.Index(i, p.spatial[s]) + Expr(a.padding[s]);
      const Expr place = is_single(s) ? result : ir::FloorMod(moved(s), stride) + r[1 + s] * stride;
      const Expr end = p.out.Extent(out_shape, p.spatial[s]) + Expr(a.padding[s]);
      if (!analyzer.ProveEqual(is_single(s) ? end : taps[s] * stride, extent)) {
        const Expr inside = ir::Less(place, extent);
        has = has.defined() ? ir::And(has, inside) : inside;
      }
      return place;
    });
    const Expr product = ir::Cast(p.wide, x(at)) * ir::Cast(p.wide, w(tap));
    return has.defined() ? ir::IfThenElse(has, product, Number(p.wide, 0)) : product;
  };
  Tensor sums = tir::Reduce(whole, reduced, tir::SumReducer(p.wide), formula, "conv_transpose");
  if (!is_cut) return sums;
  return tir::Compute(out_shape, [&](const Indices& i) { return sums(i); }, "cut");
}

// Few channels of results: those of all phases are the columns of one convolution, and each result
// is picked out of them.  Null where channels fill registers, or phases lie along them anyway.
constexpr int64_t kFewChannels = 8;
constexpr int64_t kMostColumns = 32;

template <size_t kNumSpatial>
std::optional<Tensor> NarrowForm(const ComputeArgs& in, const ConvTranspose& a,
                                 const Parts<kNumSpatial>& p) {
  const Tensor& w = in[1];
  const Expr filters = p.kernel.Extent(w->shape, 'O'), inputs = p.kernel.Extent(w->shape, 'I');
  int64_t columns = ir::AsInt(filters).value_or(kMostColumns);
  bool in_order = kNumSpatial == 1 && columns == 1;
  if (a.groups > 1 || columns >= kFewChannels) return std::nullopt;
  for (size_t s = 0; s < kNumSpatial; ++s) {
    columns *= a.strides[s];
    in_order = in_order && a.padding[s] % a.strides[s] == 0;
    if (ir::IsIntValue(p.data.Extent(in[0]->shape, p.spatial[s]), 1)) return std::nullopt;
  }
  if (in_order || columns > kMostColumns || ir::IsIntValue(filters, columns)) return std::nullopt;
  arith::Analyzer analyzer;
  PadAmounts pads{std::vector<Expr>(p.data.size(), Expr(0)),
                  std::vector<Expr>(p.data.size(), Expr(0))};
  Dims sums{p.data.Extent(in[0]->shape, 'N')}, reduced, weights, phases;
  for (size_t s = 0; s < kNumSpatial; ++s) {
    const Expr stride(a.strides[s]);
    const Expr taps =
        analyzer.Simplify(ir::CeilDiv(p.kernel.Extent(w->shape, p.spatial[s]), stride));
    const Expr have = p.data.Extent(in[0]->shape, p.spatial[s]);
    const Expr moved = p.out.Extent(in.OutShape(), p.spatial[s]) + Expr(a.padding[s]);
    const Expr steps = analyzer.Simplify(ir::CeilDiv(moved, stride));
    pads.before[p.data.At(p.spatial[s])] = analyzer.Simplify(taps - Expr(1));
    pads.after[p.data.At(p.spatial[s])] = analyzer.Simplify(ir::Max(steps - have, Expr(0)));
    sums.push_back(steps);
    phases.push_back(stride);
    reduced.push_back(taps);
  }
  weights = reduced;
  weights.push_back(inputs);
  for (const Expr& phase : phases) {
    weights.push_back(phase);
    sums.push_back(phase);
  }
  weights.push_back(filters);
  sums.push_back(filters);
  reduced.push_back(inputs);
  const Tensor x = PadStage(in[0], pads, Number(in[0].dtype(), 0));
  const Tensor by_phase = tir::Compute(
      weights,
      [&](const Indices& i) {
        Expr has;
        Indices at = p.OfKernel(i[kNumSpatial], i.back(), [&](size_t s) {
          const Expr place = i[s] * Expr(a.strides[s]) + i[kNumSpatial + 1 + s];
          const Expr inside = ir::Less(place, p.kernel.Extent(w->shape, p.spatial[s]));
          has = has.defined() ? ir::And(has, inside) : inside;
          return place;
        });
        return ir::IfThenElse(has, w(at), Number(w.dtype(), 0));
      },
      "by_phase");
  const Tensor all = tir::Reduce(
      sums, reduced, tir::SumReducer(p.wide),
      [&](const Indices& i, const Indices& r) {
        const Indices at = p.data.Order([&](char letter) -> Expr {
          if (letter == 'N') return i[0];
          if (letter == 'C') return r[kNumSpatial];
          const size_t s = p.spatial.find(letter);
          return i[1 + s] + reduced[static_cast<int64_t>(s)] - Expr(1) - r[s];
        });
        Indices of_weight(r.begin(), r.end());
        of_weight.insert(of_weight.end(), i.begin() + 1 + kNumSpatial, i.end());
        return ir::Cast(p.wide, x(at)) * ir::Cast(p.wide, by_phase(of_weight));
      },
      "conv_transpose");
  return tir::Compute(
      in.OutShape(),
      [&](const Indices& i) {
        Indices at{p.out.Index(i, 'N')};
        auto moved = [&](size_t s) { return p.out.Index(i, p.spatial[s]) + Expr(a.padding[s]); };
        for (size_t s = 0; s < kNumSpatial; ++s)
          at.push_back(ir::FloorDiv(moved(s), Expr(a.strides[s])));
        for (size_t s = 0; s < kNumSpatial; ++s)
          at.push_back(ir::FloorMod(moved(s), Expr(a.strides[s])));
        at.push_back(p.out.Index(i, 'C'));
        return all(at);
      },
      "picked");
}

// With dilation: all kernel elements, those that meet no input skipped.
template <size_t kNumSpatial>
Tensor DilatedForm(const ComputeArgs& in, const ConvTranspose& a, const Parts<kNumSpatial>& p) {
  const Tensor& x = in[0];
  const Tensor& w = in[1];
  Expr inputs = ir::FloorDiv(p.data.Extent(x->shape, 'C'), Expr(a.groups));
  Expr filters = p.kernel.Extent(w->shape, 'O');
  Dims reduced{inputs};
  for (char letter : p.spatial) reduced.push_back(p.kernel.Extent(w->shape, letter));
  auto formula = [&](const Indices& i, const Indices& r) {
    Channels c = ChannelsOf(p.out.Index(i, 'C'), r[0], filters, inputs, a.groups);
    Expr meets = ir::BoolImm(true);
    std::vector<Expr> source;
    for (size_t s = 0; s < kNumSpatial; ++s) {
      Expr stride(a.strides[s]);
      Expr from =
          p.out.Index(i, p.spatial[s]) + Expr(a.padding[s]) - r[1 + s] * Expr(a.dilation[s]);
      Expr extent = p.data.Extent(x->shape, p.spatial[s]);
      source.push_back(ir::FloorDiv(from, stride));
      meets = ir::And(meets, ir::Equal(ir::FloorMod(from, stride), Expr(0)));
      meets = ir::And(meets, ir::GreaterEqual(from, Expr(0)));
      meets = ir::And(meets, ir::Less(source[s], extent));
    }
    Indices at = p.OfData(i, c.input, [&](size_t s) { return source[s]; });
    Indices tap = p.OfKernel(c.input, c.filter, [&](size_t s) { return r[1 + s]; });
    Expr product = ir::Cast(p.wide, x(at)) * ir::Cast(p.wide, w(tap));
    return ir::IfThenElse(meets, product, Number(p.wide, 0));
  };
  return tir::Reduce(in.OutShape(), reduced, tir::SumReducer(p.wide), formula, "conv_transpose");
}

template <size_t kNumSpatial>
Tensors ComputeConvTranspose(const ComputeArgs& in, const ConvTranspose& a) {
  Parts<kNumSpatial> p(in, a);
  bool dilated = false;
  for (int64_t d : a.dilation) dilated = dilated || d != 1;
  std::optional<Tensor> narrow;
  if (!dilated) narrow = NarrowForm(in, a, p);
  Tensor result = narrow ? *narrow : dilated ? DilatedForm(in, a, p) : StepForm(in, a, p);
  if (p.wide == p.dtype) return {result};
  return {tir::Map(result, [&](const Expr& e) { return ir::Cast(p.dtype, e); }, "cast")};
}

template <size_t kNumSpatial>
OpDef ConvTransposeOp(const char* name, const char* doc, const char* data_layout,
                      const char* kernel_layout, std::vector<Sample> samples) {
  using A = ConvTranspose;
  std::vector<AttrMember<A>> attrs = {
      {"strides", &A::strides, "Steps between the results of neighbours."},
      {"padding", &A::padding, "What is cut off: one value, one per axis, or begins and ends."},
      {"output_padding", &A::output_padding, "Results added at the end of each axis."},
      {"dilation", &A::dilation, "Steps between the results of neighbours in the kernel."},
      {"groups", &A::groups, "Channels and filters are cut into so many independent groups."},
      {"data_layout", &A::data_layout, "Order of data's dimensions."},
      {"kernel_layout", &A::kernel_layout, "Order of weight's dimensions."},
      {"out_layout", &A::out_layout, "Order of the result's dimensions; None: as data."},
      {"out_dtype", &A::out_dtype, "Element type of the result and the sums; None: as data."}};
  attrs[5].field.default_value = ffi::String(data_layout);
  attrs[6].field.default_value = ffi::String(kernel_layout);
  return Define<A>({
      .name = name,
      .doc = doc,
      .args = {{"data", "The input."}, {"weight", "The filters."}},
      .attrs = attrs,
      .reference = "out = conv_transpose(data, weight, strides, padding, output_padding, dilation, "
                   "groups, data_layout, kernel_layout, out_layout)",
      .samples = std::move(samples),
      .type = InferConvTranspose<kNumSpatial>,
      .compute = ComputeConvTranspose<kNumSpatial>,
      .complete =
          [name, data_layout = std::string(data_layout),
           kernel_layout = std::string(kernel_layout)](A& a) {
            SpreadTo(a.strides, kNumSpatial);
            SpreadTo(a.dilation, kNumSpatial);
            SpreadTo(a.output_padding, kNumSpatial);
            SpreadPadding(a.padding, kNumSpatial);
            RequireCount(name, "strides", a.strides, kNumSpatial);
            RequireCount(name, "dilation", a.dilation, kNumSpatial);
            RequireCount(name, "output_padding", a.output_padding, kNumSpatial);
            RequireCount(name, "padding", a.padding, 2 * kNumSpatial);
            RequireGroups(name, a.groups);
            if (a.data_layout.empty()) a.data_layout = data_layout;
            if (a.kernel_layout.empty()) a.kernel_layout = kernel_layout;
            if (!a.out_layout || a.out_layout->empty()) a.out_layout = a.data_layout;
          },
      .layout = ConvolutionLayout(),
  });
}

}  // namespace

OpDef nn_conv1d_transpose() {
  return ConvTransposeOp<1>(
      "nn.conv1d_transpose", "Transposed convolution over one axis.", "NCW", "IOW",
      {{{"data: f32[2, 3, 7]", "weight: f32[3, 4, =3]", "strides=2", "padding=1"}},
       {{"data: f32[1, =4, 6]", "weight: f32[=4, =2, =5]", "strides=3", "groups=2",
         "output_padding=1"}},
       {{"data: f32[1, 9, =20]", "weight: f32[=20, =24, =8]", "strides=4", "padding=2",
         "data_layout='NWC'"}},
       {{"data: f32[2, 5, =1]", "weight: f32[5, =18, =4]", "strides=3", "padding=1",
         "output_padding=2"}}});
}

OpDef nn_conv2d_transpose() {
  return ConvTransposeOp<2>(
      "nn.conv2d_transpose", "Transposed convolution over two axes.", "NCHW", "IOHW",
      {{{"data: f32[1, 3, 5, 6]", "weight: f32[3, 4, =2, =2]", "strides=2"}},
       {{"data: f32[2, 4, 4, 3]", "weight: f32[3, 2, =3, =4]", "strides=[2, 1]",
         "padding=[1, 0, 1, 2]", "output_padding=[1, 0]", "data_layout='NHWC'",
         "kernel_layout='IOHW'"}},
       {{"data: f32[1, 6, 7, =18]", "weight: f32[=3, =3, =18, =20]", "strides=2", "padding=1",
         "data_layout='NHWC'", "kernel_layout='HWIO'"}},
       {{"data: f32[1, 4, 5, =16]", "weight: f32[=5, =4, =16, =17]", "strides=[3, 2]",
         "padding=[1, 1, 2, 0]", "output_padding=[0, 1]", "data_layout='NHWC'",
         "kernel_layout='HWIO'"}},
       {{"data: f32[1, =4, 5, 6]", "weight: f32[=4, =3, =3, =3]", "groups=2", "dilation=2"}}});
}

OpDef nn_conv3d_transpose() {
  return ConvTransposeOp<3>(
      "nn.conv3d_transpose", "Transposed convolution over three axes.", "NCDHW", "IODHW",
      {{{"data: f32[1, =2, 3, 5, 4]", "weight: f32[=2, =3, =2, =3, =2]", "strides=2"}}});
}

}  // namespace relaxvm::ops
