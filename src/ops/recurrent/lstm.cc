// SPDX-License-Identifier: Apache-2.0
// rvm.lstm: gates i, o, f, c.
//   i = s(x_i + h r_i + p_i * c)   f = s(x_f + h r_f + p_f * c)   c' = f * c + i * g(x_c + h r_c)
//   o = s(x_o + h r_o + p_o * c')  h' = o * k(c')
#include "ops/recurrent/recurrent.h"

namespace relaxvm::ops {
namespace {

constexpr int64_t kInput = 0, kOutput = 1, kForget = 2, kCell = 3;
constexpr size_t kLengths = 4, kPeepholes = 5;

using Lstm = RecurrentAttrs;

Type InferLstm(TypeCtx& ctx, const Lstm& a) {
  RecurrentTypes types = CheckRecurrent(ctx, a, 4, 2, kLengths);
  CheckActivations(ctx, a, 3);
  if (ctx.Has(kPeepholes) && types.AreKnown()) {
    ctx.SameDtype(0, kPeepholes);
    auto have = ctx.Tensor(kPeepholes)->GetShape();
    Dims rs = types.r->GetShape().value(), want{rs[0], rs[1], Expr(3), rs[4]};
    bool fits = have.has_value() && have->size() == 4;
    for (size_t i = 0; fits && i < 4; ++i) fits = ctx.Equal((*have)[i], want[i]);
    if (!fits) {
      ctx.Error(ErrorKind::kValueError, ctx.Describe(kPeepholes), " must have the shape ",
                DescribeDims(want));
    }
  }
  return RecurrentResult(ctx, types, 2);
}

class LstmLoop : public Recurrence {
 public:
  LstmLoop(const Lstm& a, const std::vector<Buffer>& inputs, const std::vector<Buffer>& outputs)
      : Recurrence(a, inputs, outputs, 2, inputs.size() > kLengths ? int64_t{kLengths} : -1),
        input_forget_(a.input_forget) {}

 protected:
  Stmt Phase(size_t) override {
    Buffer acc = Tile("gates", 4);
    Stmt products = Products(
        acc, {kInput, kOutput, kForget, kCell},
        [&](const Row& row, int64_t gate, const Expr& lane) { return Input(row, gate, lane); },
        [&](const Row& row, const Expr& k) { return Old(0, row, k); });
    Stmt cells = ForRows([&](const Row& row) {
      return ForLanes([&](const Expr& lane) { return Cell(acc, row, lane); });
    });
    return Sequence({tir::AllocBuffer(acc), products, cells});
  }

 private:
  Expr Gate(const Buffer& acc, const Row& row, int64_t gate, const Expr& lane, const Expr& cell) {
    Expr value = acc.Load({row.index, Expr(gate), lane});
    if (gate != kCell && inputs_.size() > kPeepholes) {
      Expr weight = Wide(inputs_[kPeepholes].Load({direction_, block_, Expr(gate), lane}));
      value = ir::CallIntrin(Intrin::kFma, {weight, cell, value});
    }
    return Activate(attrs_, gate == kCell ? 1 : 0, Clipped(value));
  }

  Stmt Cell(const Buffer& acc, const Row& row, const Expr& lane) {
    ir::Var in("input", wide_), forget("forget", wide_), cell("cell", wide_), old("old", wide_);
    Expr unit = Unit(lane);
    Expr kept = input_forget_ ? Number(wide_, 1) - Expr(in) : Gate(acc, row, kForget, lane, old);
    Expr next = Expr(forget) * Expr(old) + Expr(in) * Gate(acc, row, kCell, lane, old);
    Expr out = Gate(acc, row, kOutput, lane, cell) * Activate(attrs_, 2, cell);
    return Sequence({tir::Bind(old, Old(1, row, unit)),
                     tir::Bind(in, Gate(acc, row, kInput, lane, old)), tir::Bind(forget, kept),
                     tir::Bind(cell, next), SetNew(1, row, unit, cell), SetNew(0, row, unit, out)});
  }

  bool input_forget_;
};

Tensors ComputeLstm(const ComputeArgs& in, const Lstm& a) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < in.tensors.size(); ++i) inputs.push_back(in[i]);
  auto body = [a](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    return LstmLoop(a, ins, outs).Run();
  };
  return tir::Opaque({{"y", in.OutShape(0), in.OutDtype(0)},
                      {"h", in.OutShape(1), in.OutDtype(1)},
                      {"c", in.OutShape(2), in.OutDtype(2)}},
                     inputs, body, "lstm");
}

}  // namespace

OpDef rvm_lstm() {
  return Define<Lstm>({
      .name = "rvm.lstm",
      .doc = "Long short-term memory over a sequence, from the projected input on: all states, the "
             "last one, the last cell.",
      .args = {{"x",
                "The projected input [time, batch, directions, blocks, 4, width]; gates input, "
                "output, forget, cell."},
               {"r",
                "Recurrent weights [directions, blocks, hidden, 4, width]; units past hidden "
                "are padding."},
               {"initial_h", "[directions, batch, hidden]."},
               {"initial_c", "[directions, batch, hidden]."},
               {"lengths", "How many steps each row of the batch has.", ArgKind::kTensor, true},
               {"peepholes", "[directions, blocks, 3, width]; gates input, output, forget.",
                ArgKind::kTensor, true}},
      .attrs = {{"activations", &Lstm::activations,
                 "Of the gates, of the new cell, of the result."},
                {"alpha", &Lstm::alpha, "First parameters of the activations; their defaults."},
                {"beta", &Lstm::beta, "Second parameters of the activations; their defaults."},
                {"clip", &Lstm::clip, "Bound of the activations' arguments; 0: none."},
                {"direction", &Lstm::direction, "'forward', 'reverse' or 'bidirectional'."},
                {"input_forget", &Lstm::input_forget, "The forget gate is 1 - the input gate."}},
      .reference = "out = lstm(x, r, initial_h, initial_c, lengths, peepholes, activations, alpha, "
                   "beta, clip, direction, input_forget)",
      .samples = {{{"x: f32[5, 3, =1, =2, =4, =16]", "r: f32[=1, =2, =20, =4, =16] in -0.3..0.3",
                    "initial_h: f32[=1, 3, =20]", "initial_c: f32[=1, 3, =20]"}},
                  {{"x: f32[4, 6, =2, =1, =4, =8]", "r: f32[=2, =1, =8, =4, =8] in -0.3..0.3",
                    "initial_h: f32[=2, 6, =8]", "initial_c: f32[=2, 6, =8]",
                    "lengths: i32[6] in 0..4", "direction='bidirectional'"}},
                  {{"x: f32[4, 2, =1, =1, =4, =8]", "r: f32[=1, =1, =5, =4, =8] in -0.3..0.3",
                    "initial_h: f32[=1, 2, =5]", "initial_c: f32[=1, 2, =5]",
                    "lengths: i32[2] in 0..4", "peepholes: f32[=1, =1, =3, =8]",
                    "direction='reverse'", "activations='HardSigmoid ScaledTanh Softsign'",
                    "alpha=[0.3, 1.5]", "beta=[0.4, 0.7]", "clip=0.5", "input_forget=True"}}},
      .type = InferLstm,
      .compute = ComputeLstm,
      .complete = UsualActivations("Sigmoid Tanh Tanh"),
  });
}

}  // namespace relaxvm::ops
