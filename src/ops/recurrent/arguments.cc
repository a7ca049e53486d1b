// SPDX-License-Identifier: Apache-2.0
// What LSTM, GRU and RNN are given: types, activations by name.
#include <sstream>

#include "ops/recurrent/recurrent.h"

namespace relaxvm::ops {
namespace {

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

struct Activation {
  const char* name;
  double alpha;
  double beta;
  Expr (*apply)(const Expr& x, const Expr& alpha, const Expr& beta);
};

Expr Unary(Intrin intrin, const Expr& x) { return ir::CallIntrin(intrin, {x}); }
Expr Like(const Expr& x, double value) { return Number(x.dtype(), value); }

// log(1 + exp(x)) without overflow
Expr Softplus(const Expr& x) {
  Expr tail = Unary(Intrin::kExp, Like(x, 0) - Unary(Intrin::kAbs, x));
  return ir::Max(x, Like(x, 0)) + Unary(Intrin::kLog1p, tail);
}

constexpr Activation kActivations[] = {
    {"Relu", 0, 0, [](const Expr& x, const Expr&, const Expr&) { return ir::Max(x, Like(x, 0)); }},
    {"Tanh", 0, 0, [](const Expr& x, const Expr&, const Expr&) { return Unary(Intrin::kTanh, x); }},
    {"Sigmoid", 0, 0,
     [](const Expr& x, const Expr&, const Expr&) { return Unary(Intrin::kSigmoid, x); }},
    {"Affine", 1, 0, [](const Expr& x, const Expr& a, const Expr& b) { return a * x + b; }},
    {"LeakyRelu", 0.01, 0,
     [](const Expr& x, const Expr& a, const Expr&) {
       return ir::Select(ir::Less(x, Like(x, 0)), a * x, x);
     }},
    {"ThresholdedRelu", 1, 0,
     [](const Expr& x, const Expr& a, const Expr&) {
       return ir::Select(ir::Greater(x, a), x, Like(x, 0));
     }},
    {"ScaledTanh", 1, 1,
     [](const Expr& x, const Expr& a, const Expr& b) { return a * Unary(Intrin::kTanh, b * x); }},
    {"HardSigmoid", 0.2, 0.5,
     [](const Expr& x, const Expr& a, const Expr& b) {
       return ir::Max(ir::Min(a * x + b, Like(x, 1)), Like(x, 0));
     }},
    {"Elu", 1, 0,
     [](const Expr& x, const Expr& a, const Expr&) {
       Expr below = a * (Unary(Intrin::kExp, ir::Min(x, Like(x, 0))) - Like(x, 1));
       return ir::Select(ir::Less(x, Like(x, 0)), below, x);
     }},
    {"Softsign", 0, 0,
     [](const Expr& x, const Expr&, const Expr&) {
       return ir::Div(x, Like(x, 1) + Unary(Intrin::kAbs, x));
     }},
    {"Softplus", 0, 0, [](const Expr& x, const Expr&, const Expr&) { return Softplus(x); }},
};

const Activation* FindActivation(const std::string& name) {
  for (const Activation& a : kActivations) {
    if (name == a.name) return &a;
  }
  return nullptr;
}

}  // namespace

void CheckActivations(const TypeCtx& ctx, const RecurrentAttrs& a, int64_t count) {
  const std::vector<std::string> names = Words(a.activations);
  for (const std::string& name : names) {
    if (FindActivation(name) == nullptr) {
      ctx.Error(ErrorKind::kValueError, "there is no activation '", name, "'");
    }
  }
  if (a.direction != "forward" && a.direction != "reverse" && a.direction != "bidirectional") {
    ctx.Error(ErrorKind::kValueError,
              "direction must be 'forward', 'reverse' or 'bidirectional', got '", a.direction, "'");
  }
  if (static_cast<int64_t>(names.size()) != count) {
    ctx.Error(ErrorKind::kValueError, "activations must name ", count, ", got '", a.activations,
              "'");
  }
}

Expr Activate(const RecurrentAttrs& a, size_t index, Expr x) {
  const Activation* activation = FindActivation(Words(a.activations).at(index));
  double alpha = index < a.alpha.size() ? a.alpha[index] : activation->alpha;
  double beta = index < a.beta.size() ? a.beta[index] : activation->beta;
  return activation->apply(x, Like(x, alpha), Like(x, beta));
}

RecurrentTypes CheckRecurrent(const TypeCtx& ctx, const RecurrentAttrs& a, int64_t gates,
                              size_t num_states, size_t lengths) {
  RecurrentTypes types{ctx.Float(0), ctx.Float(1), ctx.Float(2)};
  ctx.CheckRank(0, 6);
  ctx.CheckRank(1, 5);
  for (size_t i = 1; i < 2 + num_states; ++i) ctx.SameDtype(0, i);
  for (size_t i = 2; i < 2 + num_states; ++i) ctx.CheckRank(i, 3);
  if (ctx.Has(lengths)) {
    ctx.TensorOf(lengths, IsInteger, "a tensor of integers");
    ctx.CheckRank(lengths, 1);
  }
  if (!types.AreKnown()) return types;
  auto xs = types.x->GetShape(), rs = types.r->GetShape(), hs = types.state->GetShape();
  auto same = [&](const Expr& left, const Expr& right, const char* what) {
    if (!ctx.Equal(left, right)) {
      ctx.Error(ErrorKind::kValueError, what, " must agree: ", DescribeType(types.x), ", ",
                DescribeType(types.r), ", ", DescribeType(types.state));
    }
  };
  auto is_small = [](const Expr& e) { return ir::AsInt(e).has_value() && *ir::AsInt(e) <= 64; };
  if (!ir::IsIntValue((*rs)[3], gates) || !is_small((*rs)[4])) {
    ctx.Error(ErrorKind::kValueError, "r must have ", gates,
              " gates and a constant width of at most 64, got ", DescribeType(types.r));
  }
  same((*xs)[2], (*rs)[0], "directions");
  same((*xs)[2], (*hs)[0], "directions");
  same((*xs)[3], (*rs)[1], "blocks");
  same((*xs)[4], (*rs)[3], "gates");
  same((*xs)[5], (*rs)[4], "widths");
  same((*xs)[1], (*hs)[1], "batches");
  same((*rs)[2], (*hs)[2], "hidden sizes");
  same((*rs)[1], ir::FloorDiv((*hs)[2] + (*rs)[4] - Expr(1), (*rs)[4]), "blocks and hidden size");
  return types;
}

Type RecurrentResult(TypeCtx& ctx, const RecurrentTypes& types, size_t num_states) {
  std::optional<Dims> sequence;
  if (types.AreKnown()) {
    Dims xs = types.x->GetShape().value(), hs = types.state->GetShape().value();
    sequence = Dims{xs[0], hs[0], hs[1], hs[2]};
  }
  ffi::Array<Type> results{ctx.Result(sequence, 4, types.x->dtype)};
  for (size_t i = 0; i < num_states; ++i) results.push_back(ctx.Like(types.state));
  return ir::TupleType(results);
}

}  // namespace relaxvm::ops
