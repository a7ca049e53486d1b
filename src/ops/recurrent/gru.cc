// SPDX-License-Identifier: Apache-2.0
// rvm.gru: gates z, r, h.
//   z = f(x_z + h r_z)   r = f(x_r + h r_r)   h' = (1 - z) * n + z * h
//   n = g(x_h + (r * h) r_h), or with linear_before_reset  n = g(x_h + r * (h r_h + bias))
#include "ops/recurrent/recurrent.h"

namespace relaxvm::ops {
namespace {

constexpr int64_t kUpdate = 0, kReset = 1, kHidden = 2;
constexpr size_t kBias = 3, kLengths = 4;

using Gru = RecurrentAttrs;

Type InferGru(TypeCtx& ctx, const Gru& a) {
  RecurrentTypes types = CheckRecurrent(ctx, a, 3, 1, kLengths);
  CheckActivations(ctx, a, 2);
  ctx.SameDtype(0, kBias);
  if (!types.AreKnown()) return RecurrentResult(ctx, types, 1);
  Dims rs = types.r->GetShape().value(), want{rs[0], rs[1], rs[4]};
  auto have = ctx.Tensor(kBias)->GetShape();
  bool fits = have.has_value() && have->size() == 3;
  for (size_t i = 0; fits && i < 3; ++i) fits = ctx.Equal((*have)[i], want[i]);
  if (!fits) {
    ctx.Error(ErrorKind::kValueError, ctx.Describe(kBias), " must have the shape ",
              DescribeDims(want));
  }
  return RecurrentResult(ctx, types, 1);
}

class GruLoop : public Recurrence {
 public:
  GruLoop(const Gru& a, const std::vector<Buffer>& inputs, const std::vector<Buffer>& outputs)
      : Recurrence(a, inputs, outputs, 1, inputs.size() > kLengths ? int64_t{kLengths} : -1),
        linear_before_reset_(a.linear_before_reset) {}

 protected:
  std::vector<Buffer> Scratch() override {
    update_ = RowBuffer("update");
    reset_ = RowBuffer("reset");
    if (linear_before_reset_) return {};
    return {update_, reset_};
  }

  // The reset state of all units is needed before the first new one.
  size_t NumPhases() const override { return linear_before_reset_ ? 1 : 2; }
  Stmt Phase(size_t phase) override {
    if (linear_before_reset_) return OnePass();
    return phase == 0 ? FirstPass() : SecondPass();
  }

 private:
  Expr Gate(const Buffer& acc, const Row& row, int64_t gate, const Expr& lane) {
    return Activate(attrs_, 0, Clipped(acc.Load({row.index, Expr(gate), lane})));
  }
  Stmt Blend(const Row& row, const Expr& unit, const Expr& z, const Expr& n) {
    ir::Var update("z", wide_);
    Expr mixed = (Number(wide_, 1) - Expr(update)) * n + Expr(update) * Old(0, row, unit);
    return Sequence({tir::Bind(update, z), SetNew(0, row, unit, mixed)});
  }

  Stmt OnePass() {
    Buffer acc = Tile("gates", 3);
    auto start = [&](const Row& row, int64_t gate, const Expr& lane) {
      return gate == kHidden ? Wide(inputs_[kBias].Load({direction_, block_, lane}))
                             : Input(row, gate, lane);
    };
    Stmt products = Products(acc, {kUpdate, kReset, kHidden}, start,
                             [&](const Row& row, const Expr& k) { return Old(0, row, k); });
    Stmt cells = ForRows([&](const Row& row) {
      return ForLanes([&](const Expr& lane) {
        Expr hidden = Gate(acc, row, kReset, lane) * acc.Load({row.index, Expr(kHidden), lane});
        Expr n = Activate(attrs_, 1, Clipped(Input(row, kHidden, lane) + hidden));
        return Blend(row, Unit(lane), Gate(acc, row, kUpdate, lane), n);
      });
    });
    return Sequence({tir::AllocBuffer(acc), products, cells});
  }

  Stmt FirstPass() {
    Buffer acc = Tile("gates", 2);
    Stmt products = Products(
        acc, {kUpdate, kReset},
        [&](const Row& row, int64_t gate, const Expr& lane) { return Input(row, gate, lane); },
        [&](const Row& row, const Expr& k) { return Old(0, row, k); });
    Stmt cells = ForRows([&](const Row& row) {
      return ForLanes([&](const Expr& lane) {
        Expr unit = Unit(lane), r = row.place;
        Expr reset = Gate(acc, row, kReset, lane) * Old(0, row, unit);
        return Sequence({tir::BufferStore(update_, Gate(acc, row, kUpdate, lane), {r, unit}),
                         tir::BufferStore(reset_, reset, {r, unit})});
      });
    });
    return Sequence({tir::AllocBuffer(acc), products, cells});
  }

  Stmt SecondPass() {
    Buffer last = Tile("gate", 1);
    Stmt products = Products(
        last, {kHidden},
        [&](const Row& row, int64_t gate, const Expr& lane) { return Input(row, gate, lane); },
        [&](const Row& row, const Expr& k) { return reset_.Load({row.place, k}); });
    Stmt cells = ForRows([&](const Row& row) {
      return ForLanes([&](const Expr& lane) {
        Expr n = Activate(attrs_, 1, Clipped(last.Load({row.index, Expr(0), lane})));
        return Blend(row, Unit(lane), update_.Load({row.place, Unit(lane)}), n);
      });
    });
    return Sequence({tir::AllocBuffer(last), products, cells});
  }

  bool linear_before_reset_;
  Buffer update_ = Buffer("update", {Expr(1)}, wide_, "global");
  Buffer reset_ = Buffer("reset", {Expr(1)}, wide_, "global");
};

Tensors ComputeGru(const ComputeArgs& in, const Gru& a) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < in.tensors.size(); ++i) inputs.push_back(in[i]);
  auto body = [a](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    return GruLoop(a, ins, outs).Run();
  };
  return tir::Opaque({{"y", in.OutShape(0), in.OutDtype(0)}, {"h", in.OutShape(1), in.OutDtype(1)}},
                     inputs, body, "gru");
}

}  // namespace

OpDef rvm_gru() {
  return Define<Gru>({
      .name = "rvm.gru",
      .doc = "Gated recurrent units over a sequence, from the projected input on: all states and "
             "the last one.",
      .args = {{"x",
                "The projected input [time, batch, directions, blocks, 3, width]; gates "
                "update, reset, hidden."},
               {"r",
                "Recurrent weights [directions, blocks, hidden, 3, width]; units past hidden "
                "are padding."},
               {"initial_h", "[directions, batch, hidden]."},
               {"bias",
                "[directions, blocks, width]: added to the hidden gate's recurrent product; "
                "read only with linear_before_reset."},
               {"lengths", "How many steps each row of the batch has.", ArgKind::kTensor, true}},
      .attrs = {{"activations", &Gru::activations, "Of the gates and of the new state."},
                {"alpha", &Gru::alpha, "First parameters of the activations; their defaults."},
                {"beta", &Gru::beta, "Second parameters of the activations; their defaults."},
                {"clip", &Gru::clip, "Bound of the activations' arguments; 0: none."},
                {"direction", &Gru::direction, "'forward', 'reverse' or 'bidirectional'."},
                {"linear_before_reset", &Gru::linear_before_reset,
                 "The reset gate scales the recurrent product instead of the state."}},
      .reference = "out = gru(x, r, initial_h, bias, lengths, activations, alpha, beta, clip, "
                   "direction, linear_before_reset)",
      .samples = {{{"x: f32[5, 3, =1, =2, =3, =16]", "r: f32[=1, =2, =20, =3, =16] in -0.3..0.3",
                    "initial_h: f32[=1, 3, =20]", "bias: f32[=1, =2, =16]"}},
                  {{"x: f32[4, 6, =2, =1, =3, =8]", "r: f32[=2, =1, =8, =3, =8] in -0.3..0.3",
                    "initial_h: f32[=2, 6, =8]", "bias: f32[=2, =1, =8]", "lengths: i32[6] in 0..4",
                    "direction='bidirectional'", "linear_before_reset=True"}},
                  {{"x: f32[4, 2, =1, =1, =3, =8]", "r: f32[=1, =1, =5, =3, =8] in -0.3..0.3",
                    "initial_h: f32[=1, 2, =5]", "bias: f32[=1, =1, =8]", "direction='reverse'",
                    "activations='Softplus LeakyRelu'", "clip=0.5"}}},
      .type = InferGru,
      .compute = ComputeGru,
      .complete = UsualActivations("Sigmoid Tanh"),
  });
}

}  // namespace relaxvm::ops
