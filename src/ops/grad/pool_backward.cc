// SPDX-License-Identifier: Apache-2.0
// grad.max_pool2d_backward and grad.avg_pool2d_backward: each window's gradient goes to its
// greatest element (the first of equal ones), or in equal parts to all of its elements.
#include "ops/loops.h"
#include "ops/nn/spatial.h"

namespace relaxvm::ops {
namespace {

struct Pool {
  Ints pool_size = {1, 1};
  Ints strides = {1, 1};
  Ints padding = {0, 0, 0, 0};
  Ints dilation = {1, 1};
  bool ceil_mode = false;
  bool count_include_pad = false;
  std::string layout = "NCHW";
  std::optional<std::string> out_layout;
};

Type InferPool(TypeCtx& ctx, const Pool& a) {
  ctx.Float(0);
  TensorType x = ctx.Float(1);
  Layout data(ctx, a.layout, "NCHW", "layout");
  Layout out(ctx, a.out_layout.value_or(a.layout), "NCHW", "out_layout");
  ctx.CheckRank(0, static_cast<int64_t>(out.size()));
  ctx.CheckRank(1, static_cast<int64_t>(data.size()));
  CheckSpatial(ctx, "pool_size", a.pool_size, 2, 1);
  CheckSpatial(ctx, "strides", a.strides, 2, 1);
  CheckSpatial(ctx, "padding", a.padding, 4, 0);
  CheckSpatial(ctx, "dilation", a.dilation, 2, 1);
  return x;
}

class Backward {
 public:
  Backward(const Pool& a, const std::vector<Buffer>& ins, const Buffer& out)
      : a_(a),
        data_layout_(a.layout),
        grad_layout_(a.out_layout.value_or(a.layout)),
        grad_(ins[0]),
        data_(ins.size() > 1 ? ins[1] : out),
        out_(out),
        real_(WideDtype(out.elem_dtype())) {}

  // Images and channels are independent: one loop over both, split over threads.
  Stmt Run(bool average) const {
    Dims shape = out_.shape();
    Expr batch = data_layout_.Extent(shape, 'N'), channels = data_layout_.Extent(shape, 'C');
    Expr height = grad_layout_.Extent(grad_.shape(), 'H');
    Expr width = grad_layout_.Extent(grad_.shape(), 'W');
    ir::Var plane("plane", Int(64)), n("n", Int(64)), c("c", Int(64));
    Stmt clear = LoopNest(
        {Extent('H'), Extent('W')},
        [&](const Indices& i) {
          return tir::BufferStore(out_, Number(out_.elem_dtype(), 0), Place(n, c, i[0], i[1]));
        },
        "z");
    Stmt windows = LoopNest(
        {height, width},
        [&](const Indices& w) {
          Expr grad = ir::Cast(real_, grad_.Load(grad_layout_.Order([&](char letter) -> Expr {
            return letter == 'N' ? Expr(n) : letter == 'C' ? Expr(c) : letter == 'H' ? w[0] : w[1];
          })));
          return average ? Average(n, c, w, grad) : Greatest(n, c, w, grad);
        },
        "w");
    ir::DictAttrs annotations;
    annotations.Set("most_threads",
                    ir::FloorDiv(batch * channels * Extent('H') * Extent('W'), Expr(4096)));
    Stmt all = Sequence({tir::Bind(n, ir::FloorDiv(plane, channels)),
                         tir::Bind(c, ir::FloorMod(plane, channels)), clear, windows});
    return tir::For(plane, Expr(0), batch * channels, tir::ForKind::kParallel, all, "",
                    annotations);
  }

 private:
  Expr Extent(char letter) const { return data_layout_.Extent(out_.shape(), letter); }
  Indices Place(const Expr& n, const Expr& c, const Expr& y, const Expr& x) const {
    return data_layout_.Order([&](char letter) -> Expr {
      return letter == 'N' ? n : letter == 'C' ? c : letter == 'H' ? y : x;
    });
  }

  // for each element (y, x) of data under window `w`: body(y, x)
  Stmt Taps(const Indices& w, const std::function<Stmt(const Expr&, const Expr&)>& body) const {
    return LoopNest(
        {Expr(a_.pool_size[0]), Expr(a_.pool_size[1])},
        [&](const Indices& k) -> Stmt {
          ir::Var y("y", Int(64)), x("x", Int(64));
          auto at = [&](size_t s) {
            return w[s] * Expr(a_.strides[s]) + k[s] * Expr(a_.dilation[s]) - Expr(a_.padding[s]);
          };
          auto inside = [&](const Expr& e, char letter) {
            return ir::And(ir::GreaterEqual(e, Expr(0)), ir::Less(e, Extent(letter)));
          };
          return Sequence({tir::Bind(y, at(0)), tir::Bind(x, at(1)),
                           tir::IfThenElse(ir::And(inside(y, 'H'), inside(x, 'W')), body(y, x))});
        },
        "k");
  }

  Stmt Add(const Indices& to, const Expr& value) const {
    DLDataType dtype = out_.elem_dtype();
    return tir::BufferStore(out_, out_.Load(to) + ir::Cast(dtype, value), to);
  }

  Stmt Greatest(const Expr& n, const Expr& c, const Indices& w, const Expr& grad) const {
    Cell best("best", real_), row("row", Int(64)), column("column", Int(64));
    Stmt look = Taps(w, [&](const Expr& y, const Expr& x) -> Stmt {
      Expr value = ir::Cast(real_, data_.Load(Place(n, c, y, x)));
      Expr better = ir::Or(ir::Less(row.Get(), Expr(0)), ir::Greater(value, best.Get()));
      return tir::IfThenElse(better, Sequence({best.Set(value), row.Set(y), column.Set(x)}));
    });
    Stmt add = tir::IfThenElse(ir::GreaterEqual(row.Get(), Expr(0)),
                               Add(Place(n, c, row.Get(), column.Get()), grad));
    return Sequence({best.Alloc(), row.Alloc(), column.Alloc(), best.Set(Number(real_, 0)),
                     row.Set(Expr(-1)), column.Set(Expr(0)), look, add});
  }

  Stmt Average(const Expr& n, const Expr& c, const Indices& w, const Expr& grad) const {
    Cell count("count", Int(64));
    Stmt number = count.Set(Expr(a_.pool_size[0] * a_.pool_size[1]));
    if (!a_.count_include_pad) {
      number = Sequence({count.Set(Expr(0)), Taps(w, [&](const Expr&, const Expr&) {
                           return count.Set(count.Get() + Expr(1));
                         })});
    }
    ir::Var part("part", real_);
    Expr share = ir::Div(grad, ir::Cast(real_, ir::Max(count.Get(), Expr(1))));
    Stmt add = Taps(w, [&](const Expr& y, const Expr& x) { return Add(Place(n, c, y, x), part); });
    return Sequence({count.Alloc(), number, tir::Bind(part, share), add});
  }

  const Pool& a_;
  Layout data_layout_, grad_layout_;
  Buffer grad_, data_, out_;
  DLDataType real_;
};

OpDef PoolBackward(const char* name, const char* doc, bool average) {
  return Define<Pool>({
      .name = name,
      .doc = doc,
      .args = {{"output_grad", "The gradient of the pooling's result."},
               {"data", "The pooling's data."}},
      .attrs = {{"pool_size", &Pool::pool_size, "Extents of the window."},
                {"strides", &Pool::strides, "Steps between windows."},
                {"padding", &Pool::padding, "Around data."},
                {"dilation", &Pool::dilation, "Steps between elements of a window."},
                {"ceil_mode", &Pool::ceil_mode, "A last window may hang over the end."},
                {"count_include_pad", &Pool::count_include_pad, "An average counts the padding."},
                {"layout", &Pool::layout, "Order of data's dimensions."},
                {"out_layout", &Pool::out_layout, "Order of the gradient's; None: as data."}},
      .reference = average ? "out = pool_backward(output_grad, data, pool_size, strides, padding, "
                             "dilation, layout, True, count_include_pad)"
                           : "out = pool_backward(output_grad, data, pool_size, strides, padding, "
                             "dilation, layout, False, False)",
      .samples = {{{"output_grad: f32[=2, 3, =4, =4]", "data: f32[=2, 3, =8, =8]", "pool_size=2",
                    "strides=2"}},
                  {{"output_grad: f32[=2, 3, =5, =4]", "data: f32[=2, 3, =9, =7]",
                    "pool_size=[3, 2]", "strides=2", "padding=[1, 0, 1, 1]"}},
                  {{"output_grad: f32[=1, =3, =3, 5]", "data: f32[=1, =7, =7, 5]", "pool_size=3",
                    "strides=2", "layout='NHWC'", "count_include_pad=True"}}},
      .type = InferPool,
      .compute = [average, name](const ComputeArgs& in, const Pool& a) -> Tensors {
        auto body = [a, average](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
          return Backward(a, ins, outs[0]).Run(average);
        };
        Tensors inputs{in[0]};
        if (!average) inputs.push_back(in[1]);
        return tir::Opaque({{"gradient", in.OutShape(), in.OutDtype()}}, inputs, body, name);
      },
      .complete =
          [name](Pool& a) {
            SpreadTo(a.pool_size, 2);
            SpreadTo(a.strides, 2);
            SpreadTo(a.dilation, 2);
            SpreadPadding(a.padding, 2);
            RequireCount(name, "pool_size", a.pool_size, 2);
            RequireCount(name, "strides", a.strides, 2);
            RequireCount(name, "dilation", a.dilation, 2);
            RequireCount(name, "padding", a.padding, 4);
            if (!a.out_layout || a.out_layout->empty()) a.out_layout = a.layout;
          },
      .exceptions = {{"f16", "sums of rounded numbers"}, {"bf16", "sums of rounded numbers"}},
  });
}

}  // namespace

std::vector<OpDef> grad_pool_backward() {
  return {PoolBackward("grad.max_pool2d_backward",
                       "The gradient of nn.max_pool2d with respect to its data.", false),
          PoolBackward("grad.avg_pool2d_backward",
                       "The gradient of nn.avg_pool2d with respect to its data.", true)};
}

}  // namespace relaxvm::ops
