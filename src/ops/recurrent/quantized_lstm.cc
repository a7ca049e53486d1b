// SPDX-License-Identifier: Apache-2.0
// rvm.quantized_lstm: an LSTM whose recurrent weights are bytes; the states of the whole batch
// become bytes once a step, with the range that they have together.
//   q = round(h / s) + z   p = s s_r (sum(q r) - z sum(r) - z_r sum(q - z))
// The formulas behind p are those of rvm.lstm.  A step has two phases: bytes of the states, then
// each block of units, from its sums to its states.
#include "ops/recurrent/recurrent.h"
#include "tir/dot.h"

namespace relaxvm::ops {
namespace {

constexpr int64_t kGates = 4, kWidth = 16, kBytes = 4;
constexpr int64_t kInput = 0, kOutput = 1, kForget = 2, kCell = 3;
constexpr int64_t kRowsAtOnce = 4;
constexpr int64_t kWorthAThread = 1 << 16;  // products of bytes of a step
constexpr size_t kX = 0, kR = 1, kSums = 2, kScales = 3, kZeros = 4, kH = 5, kC = 6, kLengths = 7,
                 kPeepholes = 8;

using Attrs = RecurrentAttrs;

Type InferQuantizedLstm(TypeCtx& ctx, const Attrs& a) {
  TensorType x = ctx.Float(kX), h = ctx.Float(kH);
  auto is_f32 = [](DLDataType t) { return t == Float(32); };
  auto is_i32 = [](DLDataType t) { return t == Int(32); };
  for (size_t i : {kX, kScales, kH, kC}) ctx.TensorOf(i, is_f32, "a tensor of float32");
  for (size_t i : {kR, kSums, kZeros}) ctx.TensorOf(i, is_i32, "a tensor of int32");
  ctx.CheckRank(kX, 6);
  ctx.CheckRank(kR, 5);
  for (size_t i : {kSums, kScales, kZeros}) ctx.CheckRank(i, 4);
  for (size_t i : {kH, kC}) ctx.CheckRank(i, 3);
  if (ctx.Has(kLengths)) {
    ctx.TensorOf(kLengths, IsInteger, "a tensor of integers");
    ctx.CheckRank(kLengths, 1);
  }
  CheckActivations(ctx, a, 3);
  auto xs = x->GetShape(), rs = ctx.Tensor(kR)->GetShape(), hs = h->GetShape();
  if (!xs || !rs || !hs) {
    return ir::TupleType({ctx.Result(std::nullopt, 4, x->dtype), ctx.Like(h), ctx.Like(h)});
  }
  auto same = [&](size_t i, const Dims& want) {
    auto have = ctx.Tensor(i)->GetShape();
    bool fits = have.has_value() && have->size() == want.size();
    for (size_t d = 0; fits && d < want.size(); ++d) fits = ctx.Equal((*have)[d], want[d]);
    if (!fits) {
      ctx.Error(ErrorKind::kValueError, ctx.Describe(i), " must have the shape ",
                DescribeDims(want));
    }
  };
  const Expr blocks = (*xs)[3], width(kWidth), gates(kGates);
  same(kX, {(*xs)[0], (*hs)[1], (*hs)[0], ir::FloorDiv((*hs)[2] + Expr(kWidth - 1), width), gates,
            width});
  same(kR, {(*hs)[0], blocks, blocks * Expr(kWidth / kBytes), gates, width});
  for (size_t i : {kSums, kScales, kZeros}) same(i, {(*hs)[0], blocks, gates, width});
  same(kC, *hs);
  if (ctx.Has(kPeepholes)) same(kPeepholes, {(*hs)[0], blocks, Expr(3), width});
  Type y = ctx.Result(Dims{(*xs)[0], (*hs)[0], (*hs)[1], (*hs)[2]}, x->dtype);
  return ir::TupleType({y, ctx.Like(h), ctx.Like(h)});
}

Expr F32(double value) { return Number(Float(32), value); }
Expr I32(int64_t value) { return ir::Const(Int(32), value); }

class QuantizedLoop {
 public:
  QuantizedLoop(const Attrs& a, const std::vector<Buffer>& inputs,
                const std::vector<Buffer>& outputs)
      : attrs_(a),
        in_(inputs),
        out_(outputs),
        steps_(inputs[kX].shape()[0]),
        directions_(inputs[kH].shape()[0]),
        batch_(inputs[kH].shape()[1]),
        hidden_(inputs[kH].shape()[2]),
        blocks_(inputs[kR].shape()[1]),
        words_(inputs[kR].shape()[2]) {}

  Stmt Run() { return ir::IsIntValue(directions_, 1) ? Shared() : Apart(); }

 private:
  static Stmt Each(const char* name, const Expr& extent,
                   const std::function<Stmt(const Expr&)>& body) {
    ir::Var at(name, Int(64));
    return tir::For(at, Expr(0), extent, tir::ForKind::kSerial, body(at));
  }
  static Stmt Lanes(const std::function<Stmt(const Expr&)>& body) {
    ir::Var lane("lane", Int(64));
    return tir::For(lane, Expr(0), Expr(kWidth), tir::ForKind::kVectorized, body(lane));
  }

  // One direction: threads share the blocks of each step.
  Stmt Shared() {
    direction_ = Expr(0);
    ir::Var task("task", Int(64)), block("block", Int(64)), group("group", Int(64)),
        step("step", Int(64));
    Stmt bytes = tir::IfThenElse(ir::Equal(block, Expr(0)), Quantize());
    Stmt phases = tir::IfThenElse(ir::Equal(ir::FloorMod(group, Expr(2)), Expr(0)), bytes,
                                  Block(step, block));
    Stmt body = Sequence({tir::Bind(group, ir::FloorDiv(task, blocks_)),
                          tir::Bind(block, ir::FloorMod(task, blocks_)),
                          tir::Bind(step, ir::FloorDiv(group, Expr(2))), phases});
    ffi::Map<ffi::String, ffi::Any> annotations;
    Expr work = batch_ * hidden_ * hidden_ * Expr(kGates);
    annotations.Set("most_threads", ir::FloorDiv(work, Expr(kWorthAThread)));
    annotations.Set("in_steps", Expr(used_) * Expr(2));
    return Whole(tir::For(task, Expr(0), Expr(used_) * Expr(2) * blocks_, tir::ForKind::kParallel,
                          body, "", ir::DictAttrs(annotations)));
  }

  // Each direction is a task.
  Stmt Apart() {
    ir::Var direction("direction", Int(64));
    direction_ = direction;
    Stmt steps = Each("step", used_, [&](const Expr& step) {
      return Sequence({Quantize(), Each("block", blocks_,
                                        [&](const Expr& block) { return Block(step, block); })});
    });
    return tir::For(direction, Expr(0), directions_, tir::ForKind::kParallel, Whole(steps));
  }

  Stmt Whole(const Stmt& steps) {
    ffi::Array<Stmt> all;
    for (const Buffer& b : {h_, last_, c_, q_, q_sum_, scale_, zero_})
      all.push_back(tir::AllocBuffer(b));
    if (HasLengths()) {  // no row goes on past the longest one
      Buffer longest("longest", {Expr(1)}, Int(64), "local");
      Expr at = longest.Load({Expr(0)});
      all.push_back(tir::AllocBuffer(longest));
      all.push_back(tir::BufferStore(longest, Expr(0), {Expr(0)}));
      all.push_back(Each("row", batch_, [&](const Expr& row) {
        Expr length = ir::Cast(Int(64), in_[kLengths].Load({row}));
        return tir::BufferStore(longest, ir::Max(at, length), {Expr(0)});
      }));
      all.push_back(tir::Bind(used_, ir::Min(at, steps_)));
    } else {
      all.push_back(tir::Bind(used_, steps_));
    }
    for (const Stmt& part : {Load(), steps, StoreLast()}) all.push_back(part);
    if (HasLengths()) all.push_back(ClearRest());
    return Sequence(all);
  }

  // The results behind the last step that a row takes are 0.
  Stmt ClearRest() {
    return Each("step", steps_ - Expr(used_), [&](const Expr& step) {
      return ForUnits([&](const Expr& row, const Expr& unit) {
        Indices at{Expr(used_) + step, direction_, row, unit};
        return tir::IfThenElse(ir::Less(unit, hidden_), tir::BufferStore(out_[0], F32(0), at));
      });
    });
  }

  Stmt ForUnits(const std::function<Stmt(const Expr& row, const Expr& unit)>& body) {
    return Each("row", batch_, [&](const Expr& row) {
      return Each("block", blocks_, [&](const Expr& block) {
        return Lanes([&](const Expr& lane) { return body(row, block * Expr(kWidth) + lane); });
      });
    });
  }

  Stmt Load() {
    return ForUnits([&](const Expr& row, const Expr& unit) {
      auto given = [&](size_t i) {
        return ir::IfThenElse(ir::Less(unit, hidden_), in_[i].Load({direction_, row, unit}),
                              F32(0));
      };
      return Sequence({tir::BufferStore(h_, given(kH), {row, unit}),
                       tir::BufferStore(last_, given(kH), {row, unit}),
                       tir::BufferStore(c_, given(kC), {row, unit})});
    });
  }

  Stmt StoreLast() {
    return ForUnits([&](const Expr& row, const Expr& unit) {
      Indices at{direction_, row, unit};
      Stmt both = Sequence({tir::BufferStore(out_[1], last_.Load({row, unit}), at),
                            tir::BufferStore(out_[2], c_.Load({row, unit}), at)});
      return tir::IfThenElse(ir::Less(unit, hidden_), both);
    });
  }

  // scale_, zero_, q_ and q_sum_ of h_.  A word holds the units j, j + words, j + 2 words, j + 3
  // words.
  Stmt Quantize() {
    Buffer low("low", {Expr(kWidth)}, Float(32), "local");
    Buffer high("high", {Expr(kWidth)}, Float(32), "local");
    auto both = [&](const Expr& lane, const Expr& l, const Expr& h) {
      return Sequence({tir::BufferStore(low, l, {lane}), tir::BufferStore(high, h, {lane})});
    };
    Stmt clear = Lanes([&](const Expr& lane) { return both(lane, F32(0), F32(0)); });
    Stmt range = Each("row", batch_, [&](const Expr& row) {
      return Each("block", blocks_, [&](const Expr& block) {
        return Lanes([&](const Expr& lane) {
          Expr value = h_.Load({row, block * Expr(kWidth) + lane});
          return both(lane, ir::Min(low.Load({lane}), value), ir::Max(high.Load({lane}), value));
        });
      });
    });
    const Expr lanes = ir::RampExpr(Expr(0), Expr(1), kWidth);
    Expr least = ir::CallIntrin(Float(32), Intrin::kReduceMin, {low.Load({lanes})});
    Expr greatest = ir::CallIntrin(Float(32), Intrin::kReduceMax, {high.Load({lanes})});
    ir::Var l("least", Float(32)), g("greatest", Float(32)), scale("scale", Float(32));
    ir::Var zero("zero", Int(32));
    Expr width = ir::Div(Expr(g) - Expr(l), F32(255));
    Expr at_zero = ir::Div(F32(0) - Expr(l), Expr(scale));
    Stmt words = Each("row", batch_, [&](const Expr& row) { return Words(row, scale, zero); });
    return Sequence({tir::AllocBuffer(low), tir::AllocBuffer(high), clear, range,
                     tir::Bind(l, least), tir::Bind(g, greatest),
                     // All states are 0: any scale does.
                     tir::Bind(scale, ir::Select(ir::Equal(l, g), F32(1), width)),
                     tir::Bind(zero, Byte(at_zero, I32(0))),
                     tir::BufferStore(scale_, scale, {Expr(0)}),
                     tir::BufferStore(zero_, zero, {Expr(0)}), words});
  }

  static Expr Byte(const Expr& x, const Expr& zero) {
    Expr rounded = ir::Cast(Int(32), ir::CallIntrin(Intrin::kRound, {x}));
    return ir::Max(ir::Min(rounded + zero, I32(255)), I32(0));
  }

  Stmt Words(const Expr& row, const Expr& scale, const Expr& zero) {
    Buffer sums("sums", {Expr(kWidth)}, Int(32), "local");
    Stmt clear = Lanes([&](const Expr& lane) { return tir::BufferStore(sums, I32(0), {lane}); });
    Expr groups = ir::FloorDiv(words_ + Expr(kWidth - 1), Expr(kWidth));
    Stmt all = Each("group", groups, [&](const Expr& group) {
      return Lanes([&](const Expr& lane) {
        Expr j = group * Expr(kWidth) + lane, word = I32(0), sum = sums.Load({lane});
        ffi::Array<Stmt> parts;
        for (int64_t i = 0; i < kBytes; ++i) {
          ir::Var byte("byte", Int(32));
          Expr value = h_.Load({row, j + words_ * Expr(i)});
          parts.push_back(tir::Bind(byte, Byte(ir::Div(value, scale), zero)));
          word = word + Expr(byte) * I32(int64_t{1} << (8 * i));
          sum = sum + byte;
        }
        parts.push_back(tir::BufferStore(q_, word, {row, j}));
        parts.push_back(tir::BufferStore(sums, sum, {lane}));
        return tir::IfThenElse(ir::Less(j, words_), Sequence(parts));
      });
    });
    const Expr lanes = ir::RampExpr(Expr(0), Expr(1), kWidth);
    Expr total = ir::CallIntrin(Int(32), Intrin::kReduceAdd, {sums.Load({lanes})});
    Expr zeros = zero * ir::Cast(Int(32), words_ * Expr(kBytes));
    return Sequence(
        {tir::AllocBuffer(sums), clear, all, tir::BufferStore(q_sum_, total - zeros, {row})});
  }

  // The new states of a block's units.
  Stmt Block(const Expr& step, const Expr& block) {
    Expr tiles = ir::FloorDiv(batch_, Expr(kRowsAtOnce));
    Stmt full = Each("tile", tiles, [&](const Expr& tile) {
      return Rows(step, block, tile * Expr(kRowsAtOnce), kRowsAtOnce);
    });
    Stmt rest = Each("row", batch_ - tiles * Expr(kRowsAtOnce), [&](const Expr& row) {
      return Rows(step, block, tiles * Expr(kRowsAtOnce) + row, 1);
    });
    return Sequence({full, rest});
  }

  Stmt Rows(const Expr& step, const Expr& block, const Expr& first, int64_t count) {
    Buffer acc("acc", {Expr(count), Expr(kGates), Expr(kWidth)}, Int(32), "local");
    auto each = [&](const std::function<Stmt(int64_t row, int64_t gate, const Expr& lane)>& body) {
      ffi::Array<Stmt> all;
      for (int64_t gate = 0; gate < kGates; ++gate) {
        for (int64_t row = 0; row < count; ++row)
          all.push_back(Lanes([&](const Expr& lane) { return body(row, gate, lane); }));
      }
      return Sequence(all);
    };
    Stmt clear = each([&](int64_t row, int64_t gate, const Expr& lane) {
      return tir::BufferStore(acc, I32(0), {Expr(row), Expr(gate), lane});
    });
    Stmt add = Each("k", words_, [&](const Expr& k) { return Products(acc, block, first, k); });
    ffi::Array<Stmt> all{tir::AllocBuffer(acc), clear, add};
    for (int64_t row = 0; row < count; ++row)
      all.push_back(Cells(acc, step, block, first + Expr(row), row));
    return Sequence(all);
  }

  // The products of a word of each row's state.  Vectors are written out: code generation knows
  // the dot product of whole vectors only.
  Stmt Products(const Buffer& acc, const Expr& block, const Expr& first, const Expr& k) {
    const Expr lanes = ir::RampExpr(Expr(0), Expr(1), kWidth);
    ffi::Array<Stmt> step;
    std::vector<ir::Var> weights;
    for (int64_t gate = 0; gate < kGates; ++gate) {
      weights.emplace_back("weight", Int(32, kWidth));
      step.push_back(
          tir::Bind(weights.back(), in_[kR].Load({direction_, block, k, Expr(gate), lanes})));
    }
    for (int64_t row = 0; row < *ir::AsInt(acc.shape()[0]); ++row) {
      ir::Var state("state", Int(32));
      step.push_back(tir::Bind(state, q_.Load({first + Expr(row), k})));
      for (int64_t gate = 0; gate < kGates; ++gate) {
        Indices at{Expr(row), Expr(gate), lanes};
        Expr sum = tir::DotOfBytes(acc.Load(at), ir::BroadcastExpr(state, kWidth),
                                   weights[static_cast<size_t>(gate)]);
        step.push_back(tir::BufferStore(acc, sum, at));
      }
    }
    return Sequence(step);
  }

  Stmt Cells(const Buffer& acc, const Expr& step, const Expr& block, const Expr& row,
             int64_t in_tile) {
    ir::Var time("time", Int(64)), active("active", Bool()), zero("zero", Int(32)),
        sum("sum", Int(32)), scale("scale", Float(32));
    Expr length = steps_;
    if (HasLengths()) length = ir::Min(ir::Cast(Int(64), in_[kLengths].Load({row})), steps_);
    Expr reversed = attrs_.direction == "bidirectional"
                        ? ir::Equal(direction_, Expr(1))
                        : Expr(ir::BoolImm(attrs_.direction == "reverse"));
    Expr at = ir::Select(ir::And(reversed, active), length - Expr(1) - step, step);
    Stmt lanes = Lanes([&](const Expr& lane) {
      auto gate = [&](int64_t g) {
        Indices of{direction_, block, Expr(g), lane};
        Expr dot = acc.Load({Expr(in_tile), Expr(g), lane}) - Expr(zero) * in_[kSums].Load(of) -
                   in_[kZeros].Load(of) * Expr(sum);
        Expr part = ir::Cast(Float(32), dot) * (Expr(scale) * in_[kScales].Load(of));
        return in_[kX].Load({time, row, direction_, block, Expr(g), lane}) + part;
      };
      return Cell(gate, active, time, row, block, lane);
    });
    return Sequence({tir::Bind(active, ir::Less(step, length)), tir::Bind(time, at),
                     tir::Bind(zero, zero_.Load({Expr(0)})), tir::Bind(sum, q_sum_.Load({row})),
                     tir::Bind(scale, scale_.Load({Expr(0)})), lanes});
  }

  Stmt Cell(const std::function<Expr(int64_t gate)>& gate, const Expr& active, const Expr& time,
            const Expr& row, const Expr& block, const Expr& lane) {
    ir::Var in("input", Float(32)), forget("forget", Float(32)), cell("cell", Float(32)),
        old("old", Float(32)), out("out", Float(32));
    auto activated = [&](int64_t g, const Expr& state) {
      Expr value = gate(g);
      if (g != kCell && in_.size() > kPeepholes)
        value = value + in_[kPeepholes].Load({direction_, block, Expr(g), lane}) * state;
      if (attrs_.clip > 0) value = ir::Max(ir::Min(value, F32(attrs_.clip)), F32(-attrs_.clip));
      return Activate(attrs_, g == kCell ? 1 : 0, value);
    };
    Expr unit = block * Expr(kWidth) + lane;
    Expr kept = attrs_.input_forget ? F32(1) - Expr(in) : activated(kForget, old);
    Expr next = Expr(forget) * Expr(old) + Expr(in) * activated(kCell, old);
    Expr result = activated(kOutput, cell) * Activate(attrs_, 2, cell);
    // Units past the last one, and rows past their ends, have no part in the range of the states.
    Expr counts = ir::And(active, ir::Less(unit, hidden_));
    Expr state = ir::Select(counts, out, F32(0));
    auto keep = [&](const Buffer& b, const Expr& value) {
      Expr v = HasLengths() ? ir::Select(active, value, b.Load({row, unit})) : value;
      return tir::BufferStore(b, v, {row, unit});
    };
    return Sequence(
        {tir::Bind(old, c_.Load({row, unit})), tir::Bind(in, activated(kInput, old)),
         tir::Bind(forget, kept), tir::Bind(cell, next), tir::Bind(out, result), keep(c_, cell),
         keep(last_, out), tir::BufferStore(h_, state, {row, unit}),
         tir::IfThenElse(ir::Less(unit, hidden_),
                         tir::BufferStore(out_[0], state, {time, direction_, row, unit}))});
  }

  bool HasLengths() const { return in_.size() > kLengths; }
  Buffer Rowwise(const char* name, const Expr& units, DLDataType dtype) const {
    return Buffer(name, {batch_, units}, dtype, "global");
  }

  const Attrs& attrs_;
  const std::vector<Buffer>& in_;
  const std::vector<Buffer>& out_;
  Expr steps_, directions_, batch_, hidden_, blocks_, words_, direction_;
  ir::Var used_ = ir::Var("used", Int(64));  // the steps that rows take
  Buffer h_ = Rowwise("h", blocks_* Expr(kWidth), Float(32));
  Buffer last_ = Rowwise("last", blocks_* Expr(kWidth), Float(32));
  Buffer c_ = Rowwise("c", blocks_* Expr(kWidth), Float(32));
  Buffer q_ = Rowwise("q", words_, Int(32));
  Buffer q_sum_ = Buffer("q_sum", {batch_}, Int(32), "global");
  Buffer scale_ = Buffer("scale", {Expr(1)}, Float(32), "global");
  Buffer zero_ = Buffer("zero", {Expr(1)}, Int(32), "global");
};

Tensors ComputeQuantizedLstm(const ComputeArgs& in, const Attrs& a) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < in.tensors.size(); ++i) inputs.push_back(in[i]);
  auto body = [a](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    return QuantizedLoop(a, ins, outs).Run();
  };
  return tir::Opaque({{"y", in.OutShape(0), in.OutDtype(0)},
                      {"h", in.OutShape(1), in.OutDtype(1)},
                      {"c", in.OutShape(2), in.OutDtype(2)}},
                     inputs, body, "quantized_lstm");
}

}  // namespace

OpDef rvm_quantized_lstm() {
  return Define<Attrs>({
      .name = "rvm.quantized_lstm",
      .doc = "Long short-term memory with recurrent weights of bytes, from the projected input on: "
             "all states, the last one, the last cell.",
      .args = {{"x",
                "The projected input [time, batch, directions, blocks, 4, 16]; gates input, "
                "output, forget, cell."},
               {"r",
                "Recurrent weights [directions, blocks, words, 4, 16] of int32, words = 4 blocks: "
                "each holds the signed bytes of the rows j, j + words, j + 2 words, j + 3 words, "
                "the first one lowest."},
               {"sums", "[directions, blocks, 4, 16]: the sum of each column of r."},
               {"scales", "[directions, blocks, 4, 16]: what a byte of each column counts."},
               {"zeros", "[directions, blocks, 4, 16]: the zero point of each column."},
               {"initial_h", "[directions, batch, hidden]."},
               {"initial_c", "[directions, batch, hidden]."},
               {"lengths", "How many steps each row of the batch has.", ArgKind::kTensor, true},
               {"peepholes", "[directions, blocks, 3, 16]; gates input, output, forget.",
                ArgKind::kTensor, true}},
      .attrs = {{"activations", &Attrs::activations,
                 "Of the gates, of the new cell, of the result."},
                {"alpha", &Attrs::alpha, "First parameters of the activations; their defaults."},
                {"beta", &Attrs::beta, "Second parameters of the activations; their defaults."},
                {"clip", &Attrs::clip, "Bound of the activations' arguments; 0: none."},
                {"direction", &Attrs::direction, "'forward', 'reverse' or 'bidirectional'."},
                {"input_forget", &Attrs::input_forget, "The forget gate is 1 - the input gate."}},
      .reference = "out = quantized_lstm(x, r, sums, scales, zeros, initial_h, initial_c, lengths, "
                   "peepholes, activations, alpha, beta, clip, direction, input_forget)",
      .samples =
          {{{"x: f32[5, 6, =1, =2, =4, =16]", "r: i32[=1, =2, =8, =4, =16]",
             "sums: i32[=1, =2, =4, =16] in -9..9", "scales: f32[=1, =2, =4, =16] in 0..0.001",
             "zeros: i32[=1, =2, =4, =16] in -9..9", "initial_h: f32[=1, 6, =20]",
             "initial_c: f32[=1, 6, =20]"}},
           {{"x: f32[4, 3, =2, =1, =4, =16]", "r: i32[=2, =1, =4, =4, =16]",
             "sums: i32[=2, =1, =4, =16] in -9..9", "scales: f32[=2, =1, =4, =16] in 0..0.001",
             "zeros: i32[=2, =1, =4, =16] in -9..9", "initial_h: f32[=2, 3, =8]",
             "initial_c: f32[=2, 3, =8]", "lengths: i32[3] in 0..4",
             "peepholes: f32[=2, =1, =3, =16]", "direction='bidirectional'", "clip=0.5",
             "input_forget=True"}}},
      .type = InferQuantizedLstm,
      .compute = ComputeQuantizedLstm,
      .complete = UsualActivations("Sigmoid Tanh Tanh"),
  });
}

}  // namespace relaxvm::ops
