// SPDX-License-Identifier: Apache-2.0
// rvm.rnn: h' = f(x + h r)
#include "ops/recurrent/recurrent.h"

namespace relaxvm::ops {
namespace {

constexpr size_t kLengths = 3;

using Rnn = RecurrentAttrs;

Type InferRnn(TypeCtx& ctx, const Rnn& a) {
  RecurrentTypes types = CheckRecurrent(ctx, a, 1, 1, kLengths);
  CheckActivations(ctx, a, 1);
  return RecurrentResult(ctx, types, 1);
}

class RnnLoop : public Recurrence {
 public:
  RnnLoop(const Rnn& a, const std::vector<Buffer>& inputs, const std::vector<Buffer>& outputs)
      : Recurrence(a, inputs, outputs, 1, inputs.size() > kLengths ? int64_t{kLengths} : -1) {}

 protected:
  Stmt Phase(size_t) override {
    Buffer acc = Tile("gate", 1);
    Stmt products = Products(
        acc, {0},
        [&](const Row& row, int64_t gate, const Expr& lane) { return Input(row, gate, lane); },
        [&](const Row& row, const Expr& k) { return Old(0, row, k); });
    Stmt cells = ForRows([&](const Row& row) {
      return ForLanes([&](const Expr& lane) {
        Expr sum = acc.Load({row.index, Expr(0), lane});
        return SetNew(0, row, Unit(lane), Activate(attrs_, 0, Clipped(sum)));
      });
    });
    return Sequence({tir::AllocBuffer(acc), products, cells});
  }
};

Tensors ComputeRnn(const ComputeArgs& in, const Rnn& a) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < in.tensors.size(); ++i) inputs.push_back(in[i]);
  auto body = [a](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    return RnnLoop(a, ins, outs).Run();
  };
  return tir::Opaque({{"y", in.OutShape(0), in.OutDtype(0)}, {"h", in.OutShape(1), in.OutDtype(1)}},
                     inputs, body, "rnn");
}

}  // namespace

OpDef rvm_rnn() {
  return Define<Rnn>({
      .name = "rvm.rnn",
      .doc = "A plain recurrent layer over a sequence, from the projected input on: all states and "
             "the last one.",
      .args = {{"x", "The projected input [time, batch, directions, blocks, 1, width]."},
               {"r",
                "Recurrent weights [directions, blocks, hidden, 1, width]; units past hidden "
                "are padding."},
               {"initial_h", "[directions, batch, hidden]."},
               {"lengths", "How many steps each row of the batch has.", ArgKind::kTensor, true}},
      .attrs = {{"activations", &Rnn::activations, "Of the new state."},
                {"alpha", &Rnn::alpha, "The activation's first parameter; its default."},
                {"beta", &Rnn::beta, "The activation's second parameter; its default."},
                {"clip", &Rnn::clip, "Bound of the activation's argument; 0: none."},
                {"direction", &Rnn::direction, "'forward', 'reverse' or 'bidirectional'."}},
      .reference = "out = rnn(x, r, initial_h, lengths, activations, alpha, beta, clip, direction)",
      .samples = {{{"x: f32[5, 3, =1, =1, =1, =64]", "r: f32[=1, =1, =20, =1, =64] in -0.3..0.3",
                    "initial_h: f32[=1, 3, =20]"}},
                  {{"x: f32[4, 6, =2, =2, =1, =8]", "r: f32[=2, =2, =9, =1, =8] in -0.3..0.3",
                    "initial_h: f32[=2, 6, =9]", "lengths: i32[6] in 0..4",
                    "direction='bidirectional'", "activations='Elu'"}},
                  {{"x: f32[4, 2, =1, =1, =1, =8]", "r: f32[=1, =1, =5, =1, =8] in -0.3..0.3",
                    "initial_h: f32[=1, 2, =5]", "direction='reverse'",
                    "activations='ThresholdedRelu'", "alpha=[0.2]"}},
                  {{"x: f32[3, 2, =1, =1, =1, =8]", "r: f32[=1, =1, =5, =1, =8] in -0.3..0.3",
                    "initial_h: f32[=1, 2, =5]", "activations='Affine'", "alpha=[0.2]",
                    "beta=[0.1]"}},
                  {{"x: f32[3, 2, =1, =1, =1, =8]", "r: f32[=1, =1, =5, =1, =8] in -0.3..0.3",
                    "initial_h: f32[=1, 2, =5]", "activations='Relu'"}}},
      .type = InferRnn,
      .compute = ComputeRnn,
      .complete = UsualActivations("Tanh"),
  });
}

}  // namespace relaxvm::ops
