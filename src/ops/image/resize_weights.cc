// SPDX-License-Identifier: Apache-2.0
// rvm.resize_weights: how much each element of an axis adds to each element of the resized axis.
// Serves what image.resize2d cannot: antialiasing, scales and windows that are known only while
// running.
#include "ops/loops.h"

namespace relaxvm::ops {
namespace {

using ir::CallIntrin;

struct ResizeWeights {
  std::string mode = "linear";
  std::string coordinates = "half_pixel";
  std::string rounding = "round_prefer_floor";
  double cubic_alpha = -0.75;
  bool exclude_outside = false;
  bool antialias = false;
};

Type InferResizeWeights(TypeCtx& ctx, const ResizeWeights& a) {
  for (size_t i = 0; i < 2; ++i) {
    ctx.TensorOf(i, [](DLDataType t) { return t == Float(32); }, "a float32 tensor");
  }
  ctx.CheckRank(0, 0);
  ctx.CheckRank(1, 1);
  ctx.CheckRank(2, 2);
  auto one_of = [&](const char* attr, const std::string& value,
                    std::initializer_list<const char*> allowed) {
    for (const char* name : allowed) {
      if (value == name) return;
    }
    ctx.Error(ErrorKind::kValueError, attr, " '", value, "' is unknown");
  };
  one_of("mode", a.mode, {"nearest", "linear", "cubic"});
  one_of("coordinates", a.coordinates,
         {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
          "tf_half_pixel_for_nn", "tf_crop_and_resize"});
  one_of("rounding", a.rounding, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  auto size = ctx.Shape(2);
  if (!size) ctx.Error(ErrorKind::kValueError, "sizes must be a shape that is written down");
  return ir::TupleType({ctx.Result(*size, Float(32)), ctx.Result(Dims{(*size)[1]}, Float(32))});
}

class Weights {
 public:
  Weights(const ResizeWeights& a, const Buffer& scale, const Buffer& window, const Buffer& matrix,
          const Buffer& outside)
      : a_(a),
        matrix_(matrix),
        outside_(outside),
        size_(matrix.shape()[0]),
        out_(matrix.shape()[1]),
        scale_(scale.Load({})),
        begin_(window.Load({Expr(0)})),
        end_(window.Load({Expr(1)})) {}

  Stmt Run() {
    return LoopNest({out_}, [&](const Indices& i) { return Column(i[0]); }, "o");
  }

 private:
  static Expr Real(double v) { return ir::ConstFloat(Float(32), v); }
  static Expr Real(const Expr& e) { return ir::Cast(Float(32), e); }
  static Expr Floor(const Expr& e) { return CallIntrin(Intrin::kFloor, {e}); }

  Expr Position(const Expr& o) const {
    Expr at = Real(o), size = Real(size_), half = Real(0.5);
    const std::string& mode = a_.coordinates;
    if (mode == "asymmetric") return ir::Div(at, scale_);
    Expr spread = ir::Div(at + half, scale_) - half;
    if (mode == "half_pixel") return spread;
    if (mode == "tf_half_pixel_for_nn") return ir::Div(at + half, scale_);
    if (mode == "pytorch_half_pixel") {
      return ir::Select(ir::Greater(scale_ * size, Real(1)), spread, Real(0));
    }
    if (mode == "half_pixel_symmetric") {
      Expr adjustment = ir::Div(Real(out_), scale_ * size);
      return size * half * (Real(1) - adjustment) + spread;
    }
    if (mode == "align_corners") {
      Expr length = scale_ * size - Real(1);
      return ir::Select(ir::Equal(length, Real(0)), Real(0),
                        ir::Div(at * (size - Real(1)), length));
    }
    // tf_crop_and_resize
    Expr reach = size - Real(1), steps = Real(ir::Max(out_ - Expr(1), Expr(1)));
    Expr several = begin_ * reach + ir::Div(at * (end_ - begin_) * reach, steps);
    return ir::Select(ir::Greater(out_, Expr(1)), several, half * (begin_ + end_) * reach);
  }

  Expr Rounded(const Expr& x) const {
    if (a_.rounding == "floor") return Floor(x);
    if (a_.rounding == "ceil") return CallIntrin(Intrin::kCeil, {x});
    if (a_.rounding == "round_prefer_floor") return CallIntrin(Intrin::kCeil, {x - Real(0.5)});
    return Floor(x + Real(0.5));
  }

  Expr Kernel(const Expr& distance) const {
    Expr d = CallIntrin(Intrin::kAbs, {distance});
    if (a_.mode == "linear") return ir::Max(Real(1) - d, Real(0));
    const double k = a_.cubic_alpha;
    Expr near = ((Real(k + 2) * d - Real(k + 3)) * d) * d + Real(1);
    Expr far = ((Real(k) * d - Real(5 * k)) * d + Real(8 * k)) * d - Real(4 * k);
    return ir::Select(ir::LessEqual(d, Real(1)), near,
                      ir::Select(ir::Less(d, Real(2)), far, Real(0)));
  }

  Expr Clamped(const Expr& i) const { return ir::Max(ir::Min(i, size_ - Expr(1)), Expr(0)); }

  Stmt Clear(const Expr& o) const {
    return LoopNest({size_}, [&](const Indices& i) -> Stmt {
      return tir::BufferStore(matrix_, Real(0), {i[0], o});
    });
  }

  Stmt Column(const Expr& o) const {
    ir::Var x("x", Float(32)), bounded("bounded", Float(32));
    // Far outside nothing is read, and integers hold what is left.
    Expr limit = Real(size_) + Real(16);
    ffi::Array<Stmt> parts{Clear(o), tir::Bind(x, Position(o)),
                           tir::Bind(bounded, ir::Max(ir::Min(x, limit), Real(-16)))};
    Expr outside = ir::BoolImm(false);
    if (a_.coordinates == "tf_crop_and_resize") {
      outside = ir::Or(ir::Less(x, Real(0)), ir::Greater(x, Real(size_ - Expr(1))));
    }
    parts.push_back(tir::BufferStore(outside_, ir::Select(outside, Real(1), Real(0)), {o}));
    Stmt fill = a_.mode == "nearest" ? Nearest(bounded, o) : Spread(bounded, o);
    Expr some = ir::And(ir::Not(outside), ir::Greater(size_, Expr(0)));
    parts.push_back(tir::IfThenElse(some, fill));
    return Sequence(parts);
  }

  Stmt Nearest(const Expr& x, const Expr& o) const {
    return tir::BufferStore(matrix_, Real(1), {Clamped(ir::Cast(Int(64), Rounded(x))), o});
  }

  Stmt Spread(const Expr& x, const Expr& o) const {
    Expr shrink = a_.antialias ? ir::Min(scale_, Real(1)) : Real(1);
    Expr support = ir::Div(Real(a_.mode == "linear" ? 1 : 2), shrink);
    ir::Var first("first", Int(64)), count("count", Int(64)), t("t", Int(64));
    Expr low = ir::Cast(Int(64), Floor(x - support)) + Expr(1);
    Expr high = ir::Cast(Int(64), CallIntrin(Intrin::kCeil, {x + support}));
    Cell total("total", Float(32));
    ir::Var tap("tap", Int(64)), share("share", Float(32));
    Expr weight = Kernel((Real(tap) - x) * shrink);
    if (a_.exclude_outside) {
      Expr inside = ir::And(ir::GreaterEqual(tap, Expr(0)), ir::Less(tap, size_));
      weight = ir::Select(inside, weight, Real(0));
    }
    Indices at{Clamped(tap), o};
    Stmt add = Sequence({tir::Bind(tap, Expr(first) + Expr(t)), tir::Bind(share, weight),
                         total.Set(total.Get() + Expr(share)),
                         tir::BufferStore(matrix_, matrix_.Load(at) + Expr(share), at)});
    ffi::Array<Stmt> parts{total.Alloc(), total.Set(Real(0)), tir::Bind(first, low),
                           tir::Bind(count, ir::Max(high - Expr(first), Expr(0))),
                           tir::For(t, Expr(0), count, tir::ForKind::kSerial, add)};
    if (a_.exclude_outside || a_.antialias) {
      parts.push_back(LoopNest({size_}, [&](const Indices& i) -> Stmt {
        return tir::BufferStore(matrix_, ir::Div(matrix_.Load({i[0], o}), total.Get()), {i[0], o});
      }));
    }
    return Sequence(parts);
  }

  const ResizeWeights& a_;
  Buffer matrix_, outside_;
  Expr size_, out_, scale_, begin_, end_;
};

Tensors ComputeResizeWeights(const ComputeArgs& in, const ResizeWeights& a) {
  auto body = [a](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    return Weights(a, ins[0], ins[1], outs[0], outs[1]).Run();
  };
  return tir::Opaque(
      {{"matrix", in.OutShape(0), Float(32)}, {"outside", in.OutShape(1), Float(32)}},
      {in[0], in[1]}, body, "resize_weights");
}

}  // namespace

OpDef rvm_resize_weights() {
  return Define<ResizeWeights>({
      .name = "rvm.resize_weights",
      .doc = "How much each element of an axis adds to each element of the resized axis, and 1 "
             "for each of these that lies outside of the axis.",
      .args = {{"scale", "The resized extent divided by the old one, a float32 scalar."},
               {"window",
                "Begin and end of the part to resize, of the extent; read only for "
                "tf_crop_and_resize."},
               {"sizes", "The old and the new extent.", ArgKind::kShape}},
      .attrs = {{"mode", &ResizeWeights::mode, "'nearest', 'linear' or 'cubic'."},
                {"coordinates", &ResizeWeights::coordinates,
                 "How places of the result map to the axis; ONNX's names."},
                {"rounding", &ResizeWeights::rounding, "Which element is the nearest."},
                {"cubic_alpha", &ResizeWeights::cubic_alpha, "Keys' coefficient."},
                {"exclude_outside", &ResizeWeights::exclude_outside,
                 "Elements outside have no weight, instead of that of the border."},
                {"antialias", &ResizeWeights::antialias,
                 "The kernel is as wide as what it is shrunk to."}},
      .reference = "out = resize_weights(scale, window, sizes, mode, coordinates, rounding, "
                   "cubic_alpha, exclude_outside, antialias)",
      .samples = {{{"scale: f32[] in 1.9..1.9", "window: f32[=2]", "sizes=[5, 9]"}},
                  {{"scale: f32[] in 0.47..0.47", "window: f32[=2]", "sizes=[9, 4]", "mode='cubic'",
                    "antialias=True"}},
                  {{"scale: f32[] in 0.61..0.61", "window: f32[=2]", "sizes=[8, 4]", "mode='cubic'",
                    "exclude_outside=True", "coordinates='align_corners'"}},
                  {{"scale: f32[] in 0.7..0.7", "window: f32[=2] in 0.2..0.9", "sizes=[7, 4]",
                    "coordinates='tf_crop_and_resize'"}},
                  {{"scale: f32[] in 1.6..1.6", "window: f32[=2]", "sizes=[5, 8]", "mode='nearest'",
                    "coordinates='half_pixel_symmetric'", "rounding='round_prefer_ceil'"}}},
      .type = InferResizeWeights,
      .compute = ComputeResizeWeights,
  });
}

}  // namespace relaxvm::ops
