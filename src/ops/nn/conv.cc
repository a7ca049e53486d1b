// SPDX-License-Identifier: Apache-2.0
// Convolutions over one, two or three spatial axes, in every layout, with groups and dilation.
// Form: a pad stage where there is padding, and one reduction block over input channels and kernel.
// Where a wide dilation lays much of it on padding, or steps use each element a few times only,
// data is not padded: what lies outside of it is left out of the sum.
#include <algorithm>

#include "arith/analyzer.h"
#include "ops/layout_rule.h"
#include "ops/nn/spatial.h"

namespace relaxvm::ops {
namespace {

struct Conv {
  Ints strides = {1};
  Ints padding = {0};
  Ints dilation = {1};
  int64_t groups = 1;
  std::string data_layout;
  std::string kernel_layout;
  std::optional<std::string> out_layout;
  std::optional<DLDataType> out_dtype;
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

// out[n, o, y..] = sum over i, k.. of  data[n, g * I + i, y * stride + k * dilation - pad..]
//                                      * weight[o, i, k..],   g = o / (O / groups)
template <size_t kNumSpatial>
Type InferConv(TypeCtx& ctx, const Conv& a) {
  std::string spatial = SpatialLetters(kNumSpatial);
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  TensorType w = ctx.TensorOf(1, IsNumber, "a tensor of numbers");
  if (!a.out_dtype) ctx.SameDtype(0, 1);
  Layout data(ctx, a.data_layout, "NC" + spatial, "data_layout");
  Layout kernel(ctx, a.kernel_layout, "OI" + spatial, "kernel_layout");
  Layout out(ctx, a.out_layout.value_or(a.data_layout), "NC" + spatial, "out_layout");
  ctx.CheckRank(0, data.size());
  ctx.CheckRank(1, kernel.size());
  CheckSpatial(ctx, "strides", a.strides, kNumSpatial, 1);
  CheckSpatial(ctx, "padding", a.padding, 2 * kNumSpatial, 0);
  CheckSpatial(ctx, "dilation", a.dilation, kNumSpatial, 1);
  if (a.groups < 1) ctx.Error(ErrorKind::kValueError, "groups must be at least 1, got ", a.groups);
  DLDataType dtype = a.out_dtype.value_or(IsVoid(w->dtype) ? w->dtype : x->dtype);
  auto xs = x->GetShape();
  auto ws = w->GetShape();
  if (!xs.has_value() || !ws.has_value()) return ctx.Result(std::nullopt, out.size(), dtype);

  Expr channels = data.Extent(*xs, 'C');
  Expr filters = kernel.Extent(*ws, 'O');
  Expr per_group = kernel.Extent(*ws, 'I');
  Expr groups(a.groups);
  if (ctx.Prove(ir::NotEqual(channels, per_group * groups))) {
    ctx.Error(ErrorKind::kValueError, "data has ", DescribeExpr(channels),
              " channels, but weight takes ", DescribeExpr(per_group), " in each of ", a.groups,
              a.groups == 1 ? " group: " : " groups: ", DescribeType(x), " with ", DescribeType(w));
  }
  if (ctx.Prove(ir::NotEqual(ir::FloorMod(filters, groups), Expr(0)))) {
    ctx.Error(ErrorKind::kValueError, "weight has ", DescribeExpr(filters), " filters, which ",
              a.groups, " groups do not divide");
  }
  auto dim = [&](char letter) -> Expr {
    if (letter == 'N') return data.Extent(*xs, 'N');
    if (letter == 'C') return filters;
    size_t s = spatial.find(letter);
    Expr span = data.Extent(*xs, letter) + Expr(a.padding[s] + a.padding[kNumSpatial + s]);
    Expr reach = (kernel.Extent(*ws, letter) - Expr(1)) * Expr(a.dilation[s]) + Expr(1);
    Expr size = ctx.Simplify(ir::FloorDiv(span - reach, Expr(a.strides[s])) + Expr(1));
    if (ctx.Prove(ir::Less(ctx.Simplify(span), ctx.Simplify(reach)))) {
      ctx.Error(ErrorKind::kValueError, "the kernel reaches over ",
                DescribeExpr(ctx.Simplify(reach)), " elements of axis ", std::string(1, letter),
                ", but padded data has ", DescribeExpr(ctx.Simplify(span)));
    }
    return size;
  };
  return ctx.Result(out.Shape(dim), dtype);
}

// From this dilation on, kernel elements that lie on padding for all windows are looked for where
// sizes are not known, too.
constexpr int64_t kWideDilation = 6;
// Products with padding are left out window by window where that leaves no more than this share.
constexpr double kShareWorthGuards = 0.9;
constexpr double kUsualShare = 0.6;  // of a dilated axis whose size is not known
// And for lines of windows as a whole, across rows of pixels, where that leaves no more than this.
constexpr double kShareWorthLines = 0.97;
// Larger weights, in bytes, are rather read once for several lines.
constexpr double kWeightsOfLines = 2 << 20;
// Along an axis with a step, a padded copy of data that so few products use costs more than rows
// of windows that begin and end with others of their own; of shorter rows these are too many.
constexpr int64_t kFewProducts = 600;  // of an element
constexpr int64_t kShortRow = 28;      // windows
constexpr int64_t kShortRowOfGroups = 14;
// So few filters take less time than the copy does.
constexpr int64_t kFewFilters = 4, kFewElements = 5;  // of the kernel, along an axis
// Of more elements along an axis, rows have too many ranges (schedule/cpu/contraction/cut_rows.cc).
constexpr int64_t kMostGuardedTaps = 16;

// Along one axis, the kernel elements that some window lays on data, and where padding is needed
// for those.  A wide dilation lays most of them on padding alone.
struct Taps {
  Expr first, count;
  Expr before, after;  // padding
  Expr shift;          // of the first one's place in the padded data
  double share = 1;    // of windows and kernel elements, what lies on data; 1 without dilation
  double share_of_lines = 1;  // the same, whatever the dilation
  bool guarded = false;  // not padded: what does not lie on data is left out of each window's sum
};

// The share of windows and kernel elements [first, first + count) that lie on data.
double ShareOnData(const Conv& a, size_t s, int64_t size, int64_t windows, int64_t first,
                   int64_t count) {
  int64_t on_data = 0;
  for (int64_t k = first; k < first + count; ++k) {
    const int64_t place = k * a.dilation[s] - a.padding[s];  // in the first window
    const int64_t begin = place < 0 ? (a.strides[s] - 1 - place) / a.strides[s] : 0;
    const int64_t end = place < size ? (size - 1 - place) / a.strides[s] + 1 : 0;
    on_data += std::max<int64_t>(0, std::min(end, windows) - begin);
  }
  return static_cast<double>(on_data) / static_cast<double>(count * windows);
}

Taps TapsOf(const Conv& a, size_t s, size_t num_spatial, const Expr& size, const Expr& kernel,
            const Expr& out) {
  const Expr before = a.padding[s], after = a.padding[num_spatial + s], step = a.dilation[s];
  Taps all{0, kernel, before, after, 0};
  const auto taps = ir::AsInt(kernel), data = ir::AsInt(size), windows = ir::AsInt(out);
  if (a.padding[s] + a.padding[num_spatial + s] == 0 || taps.value_or(0) < 1) return all;
  const bool known = data.has_value() && windows.value_or(0) > 0;
  if (known) all.share_of_lines = ShareOnData(a, s, *data, *windows, 0, *taps);
  if (a.dilation[s] > 1) all.share = known ? all.share_of_lines : kUsualShare;
  if (!known && a.dilation[s] < kWideDilation) return all;
  arith::Analyzer analyzer;
  auto simple = [&](const Expr& e) { return analyzer.Simplify(e); };
  const Expr reach = (out - 1) * Expr(a.strides[s]);  // from the first window to the last one
  const Expr first = simple(ir::Max(0, ir::CeilDiv(before - reach, step)));
  const Expr last = simple(ir::Min(kernel - 1, ir::FloorDiv(size - 1 + before, step)));
  const Expr count = simple(ir::Max(0, last - first + 1));
  if (ir::IsIntValue(count, 0) || analyzer.ProveEqual(count, kernel)) return all;
  const Expr place = simple(first * step - before);
  const Expr end = simple(reach + last * step - before);
  const Expr needed = simple(ir::Max(0, 0 - place));
  const auto from = ir::AsInt(first), left = ir::AsInt(count);
  const bool fixed = known && from.has_value() && left.has_value();
  return {first,
          count,
          needed,
          simple(ir::Max(0, end - size + 1)),
          simple(place + needed),
          fixed ? ShareOnData(a, s, *data, *windows, *from, *left) : kUsualShare};
}

// Would a padded copy of the data take a good part of the time?
bool IsCopyFelt(const Conv& a, size_t num_spatial, const Layout& out, const Layout& kernel,
                const ComputeArgs& in) {
  const std::string spatial = SpatialLetters(num_spatial);
  int64_t steps = 1, taps = 1, most_taps = 1, longest = 0;
  bool is_known = true;
  for (size_t s = 0; s < num_spatial; ++s) {
    const auto windows = ir::AsInt(out.Extent(in.OutShape(), spatial[s]));
    is_known = is_known && windows.has_value();
    longest = std::max(longest, windows.value_or(0));
    steps *= a.strides[s];
    const auto of_axis = ir::AsInt(kernel.Extent(in[1]->shape, spatial[s]));
    if (of_axis.value_or(kFewProducts) > kMostGuardedTaps) return false;
    taps *= *of_axis;
    most_taps = std::max(most_taps, *of_axis);
  }
  const int64_t filters = ir::AsInt(kernel.Extent(in[1]->shape, 'O')).value_or(kFewProducts);
  const bool are_few = num_spatial > 1 && filters <= kFewFilters && most_taps <= kFewElements;
  // Narrower elements are copied in less time, and what multiplies them takes rows of one length.
  if ((steps == 1 && a.groups == 1 && !are_few) || SizeInBytes(in[0].dtype()) < 4) return false;
  return is_known ? longest >= (a.groups > 1 ? kShortRowOfGroups : kShortRow)
                  : filters / a.groups * taps / steps <= kFewProducts;
}

// Which spatial axis the rows of tiles lie along (schedule/cpu/contraction/read.cc); as many as
// there are: images.  Windows along another one leave the same elements of the kernel out.
size_t AxisOfRows(const Expr& images, const std::vector<Expr>& windows) {
  constexpr int64_t kLongRow = 16;
  size_t best = windows.size() - 1;
  auto length = [&](size_t i) {
    return ir::AsInt(i < windows.size() ? windows[i] : images).value_or(0);
  };
  auto compare = [&](size_t i) {
    if (length(i) > length(best) && length(best) < kLongRow) best = i;
  };
  for (size_t i = windows.size() - 1; i-- > 0;) compare(i);
  compare(windows.size());
  return best;
}

// Do lines of windows of float32 leave out padding as a whole, each reading all weights?
bool AreLinesCheap(const Tensor& data, const Tensor& weight) {
  constexpr int64_t kUnknownExtent = 1 << 20;
  double bytes = 4;
  for (const Expr& extent : weight->shape)
    bytes *= static_cast<double>(ir::AsInt(extent).value_or(kUnknownExtent));
  return SizeInBytes(data.dtype()) == 4 && bytes <= kWeightsOfLines;
}

// Along which axes products with padding are left out: where rows of pixels are read and channels
// are written, which is what register tiles can take.
template <size_t kNumSpatial>
void ChooseGuards(const Conv& a, const Layout& data, const Layout& out, const Layout& kernel,
                  const ComputeArgs& in, std::vector<Taps>* taps) {
  const bool channels_last = out.At('C') + 1 == out.size() && kernel.At('O') + 1 == kernel.size() &&
                             data.At('C') + 1 == data.size();
  double share = 1;
  for (const Taps& t : *taps) share *= t.share;
  const bool is_copy_felt = IsCopyFelt(a, kNumSpatial, out, kernel, in);
  // Windows of one channel each are read row by row (schedule/cpu/window.cc).
  const bool each_channel = a.groups > 1 && ir::IsIntValue(kernel.Extent(in[1]->shape, 'I'), 1);
  if (each_channel || !channels_last) return;
  const bool are_worth_it = share <= kShareWorthGuards || is_copy_felt;
  const std::string spatial = SpatialLetters(kNumSpatial);
  std::vector<Expr> windows;
  for (char letter : spatial) windows.push_back(out.Extent(in.OutShape(), letter));
  const size_t of_rows = AxisOfRows(out.Extent(in.OutShape(), 'N'), windows);
  const bool are_lines_cheap = AreLinesCheap(in[0], in[1]);
  for (size_t s = 0; s < kNumSpatial; ++s) {
    Taps& t = (*taps)[s];
    const bool is_padded = a.padding[s] + a.padding[kNumSpatial + s] > 0;
    const bool is_guarded =
        are_worth_it ? t.share < 1 || (is_copy_felt && is_padded)
                     : are_lines_cheap && s != of_rows && t.share_of_lines <= kShareWorthLines;
    if (!is_guarded) continue;
    const bool is_open = !ir::AsInt(t.count).has_value();
    const Expr elements = is_open ? kernel.Extent(in[1]->shape, spatial[s]) : t.count;
    if (ir::AsInt(elements).value_or(kMostGuardedTaps + 1) > kMostGuardedTaps) continue;
    t.guarded = true;
    if (is_open) t.first = 0;  // the guard leaves out whole kernel elements as well
    t.count = elements;
    t.before = t.after = 0;
    t.shift = t.first * Expr(a.dilation[s]) - Expr(a.padding[s]);
  }
}

template <size_t kNumSpatial>
Tensors ComputeConv(const ComputeArgs& in, const Conv& a) {
  std::string spatial = SpatialLetters(kNumSpatial);
  Layout data(a.data_layout), kernel(a.kernel_layout);
  Layout out(a.out_layout.value_or(a.data_layout));
  const Tensor& w = in[1];
  DLDataType dtype = in.OutDtype();
  DLDataType wide = WideDtype(dtype);

  PadAmounts pads{std::vector<Expr>(data.size(), Expr(0)), std::vector<Expr>(data.size(), Expr(0))};
  std::vector<Taps> taps;
  for (size_t s = 0; s < kNumSpatial; ++s) {
    taps.push_back(TapsOf(a, s, kNumSpatial, data.Extent(in[0]->shape, spatial[s]),
                          kernel.Extent(w->shape, spatial[s]),
                          out.Extent(in.OutShape(), spatial[s])));
  }
  ChooseGuards<kNumSpatial>(a, data, out, kernel, in, &taps);
  for (size_t s = 0; s < kNumSpatial; ++s) {
    pads.before[data.At(spatial[s])] = taps[s].before;
    pads.after[data.At(spatial[s])] = taps[s].after;
  }
  Tensor x = PadStage(in[0], pads, Number(in[0].dtype(), 0));

  Expr per_group = kernel.Extent(w->shape, 'I');
  Expr filters_per_group = ir::FloorDiv(kernel.Extent(w->shape, 'O'), Expr(a.groups));
  Dims reduced{per_group};
  for (const Taps& t : taps) reduced.push_back(t.count);
  auto formula = [&](const Indices& i, const Indices& r) {
    Expr filter = out.Index(i, 'C');
    auto of_data = [&](char letter) -> Expr {
      if (letter == 'N') return out.Index(i, 'N');
      if (letter == 'C') {
        return a.groups == 1 ? r[0] : ir::FloorDiv(filter, filters_per_group) * per_group + r[0];
      }
      size_t s = spatial.find(letter);
      return out.Index(i, letter) * Expr(a.strides[s]) + r[1 + s] * Expr(a.dilation[s]) +
             taps[s].shift;
    };
    auto of_kernel = [&](char letter) -> Expr {
      if (letter == 'O') return filter;
      const size_t s = spatial.find(letter);
      return letter == 'I' ? r[0] : r[1 + s] + taps[s].first;
    };
    const Expr product =
        ir::Cast(wide, x(data.Order(of_data))) * ir::Cast(wide, w(kernel.Order(of_kernel)));
    Expr on_data;  // null: always
    for (size_t s = 0; s < kNumSpatial; ++s) {
      if (!taps[s].guarded) continue;
      const Expr at = of_data(spatial[s]);
      const Expr inside =
          ir::And(ir::LessEqual(0, at), ir::Less(at, data.Extent(in[0]->shape, spatial[s])));
      on_data = on_data.defined() ? ir::And(on_data, inside) : inside;
    }
    return on_data.defined() ? ir::IfThenElse(on_data, product, Number(wide, 0)) : product;
  };
  std::string name = "conv" + std::to_string(kNumSpatial) + "d";
  Tensor result = tir::Reduce(in.OutShape(), reduced, tir::SumReducer(wide), formula, name);
  if (wide == dtype) return {result};
  return {tir::Map(result, [&](const Expr& e) { return ir::Cast(dtype, e); }, "cast")};
}

// `t0`, `t1`: the samples' layouts; the rest of the record is the same for all three.
template <size_t kNumSpatial>
OpDef ConvOp(const char* name, const char* doc, const char* data_layout, const char* kernel_layout,
             std::vector<Sample> samples) {
  std::vector<AttrMember<Conv>> attrs = {
      {"strides", &Conv::strides, "Steps between results."},
      {"padding", &Conv::padding, "Zeros around: one value, one per axis, or begins and ends."},
      {"dilation", &Conv::dilation, "Steps between elements that meet neighbours in the kernel."},
      {"groups", &Conv::groups, "Channels and filters are cut into so many independent groups."},
      {"data_layout", &Conv::data_layout, "Order of data's dimensions."},
      {"kernel_layout", &Conv::kernel_layout, "Order of weight's dimensions."},
      {"out_layout", &Conv::out_layout, "Order of the result's dimensions; None: as data."},
      {"out_dtype", &Conv::out_dtype, "Element type of the result and the sums; None: as data."}};
  attrs[4].field.default_value = ffi::String(data_layout);
  attrs[5].field.default_value = ffi::String(kernel_layout);
  return Define<Conv>({
      .name = name,
      .doc = doc,
      .args = {{"data", "The input."}, {"weight", "The filters."}},
      .attrs = attrs,
      .reference = "out = conv(data, weight, strides, padding, dilation, groups, data_layout, "
                   "kernel_layout, out_layout, out_dtype)",
      .samples = std::move(samples),
      .type = InferConv<kNumSpatial>,
      .compute = ComputeConv<kNumSpatial>,
      .complete =
          [name, data_layout = std::string(data_layout),
           kernel_layout = std::string(kernel_layout)](Conv& a) {
            SpreadTo(a.strides, kNumSpatial);
            SpreadTo(a.dilation, kNumSpatial);
            SpreadPadding(a.padding, kNumSpatial);
            RequireCount(name, "strides", a.strides, kNumSpatial);
            RequireCount(name, "dilation", a.dilation, kNumSpatial);
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

OpDef nn_conv1d() {
  return ConvOp<1>("nn.conv1d", "Convolution over one axis.", "NCW", "OIW",
                   {{{"data: f32[2, 3, 17]", "weight: f32[4, 3, =3]", "padding=1"}},
                    {{"data: f32[2, 12, =4]", "weight: f32[=6, =2, =3]", "strides=2", "dilation=2",
                      "groups=2", "data_layout='NWC'", "kernel_layout='OIW'"}}});
}

OpDef nn_conv2d() {
  return ConvOp<2>(
      "nn.conv2d", "Convolution over two axes.", "NCHW", "OIHW",
      {{{"data: f32[2, 3, 9, 10]", "weight: f32[4, 3, =3, =3]", "padding=1"}},
       {{"data: f32[1, 8, 8, 4]", "weight: f32[=3, =3, 4, 5]", "strides=[2, 1]",
         "padding=[0, 1, 2, 1]", "data_layout='NHWC'", "kernel_layout='HWIO'"}},
       {{"data: f32[1, =6, 7, 8]", "weight: f32[=6, 1, =3, =3]", "groups=6", "padding=1"}},
       {{"data: f32[1, =4, 9, 10]", "weight: f32[=6, =2, =2, =2]", "groups=2", "dilation=[2, 3]",
         "out_layout='NHWC'"}},
       {{"data: f32[1, =4, 5, 6]", "weight: f32[=3, =4, =3, =5]", "padding=[8, 9, 7, 9]",
         "dilation=[7, 4]"}},
       {{"data: f32[1, =2, 7, 8, =4]", "weight: f32[=2, =8, =3, =3, =3]", "padding=1",
         "data_layout='NCHW4c'", "kernel_layout='OIHW3o'", "out_layout='NHWC2c'"}},
       {{"data: i8[1, 2, 4, 4]", "weight: i8[3, 2, 1, 1]", "out_dtype='int32'"}}});
}

OpDef nn_conv3d() {
  return ConvOp<3>("nn.conv3d", "Convolution over three axes.", "NCDHW", "OIDHW",
                   {{{"data: f32[1, =2, 5, 6, 7]", "weight: f32[=3, =2, =2, =3, =2]", "padding=1",
                      "strides=[1, 2, 1]"}}});
}

}  // namespace relaxvm::ops
