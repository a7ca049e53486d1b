// SPDX-License-Identifier: Apache-2.0
// AdjustMatmulOrder: of a @ (b @ c) and (a @ b) @ c takes the one with fewer multiplications, or
// the one whose inner product depends on weights alone, so that it can be computed once.  A
// transposed inner product is taken apart too.  Stage: graph.
#include <unordered_set>

#include "arith/analyzer.h"
#include "ir/visitor.h"
#include "passes/rewrite/rules.h"

namespace relaxvm::passes {
namespace {

using analysis::PatternMatcher;
using ir::Expr;

constexpr int kMaxDepth = 16;  // of values looked at to find out that they are weights

// Weights of a function, and what is computed from them.
class Weights {
 public:
  explicit Weights(const ir::Function& func) {
    const auto num_input = ir::GetAttr<int64_t>(func->attrs, ir::attr::kNumInput,
                                                static_cast<int64_t>(func->params.size()));
    for (size_t i = static_cast<size_t>(num_input); i < func->params.size(); ++i) {
      params_.insert(func->params[i].get());
    }
  }
  bool Has(const Expr& e, const PatternMatcher& matched, int depth = 0) const {
    if (depth > kMaxDepth) return false;
    if (e.as<ir::ConstantObj>() || params_.count(e.get()) || ir::IsPrim(e)) return true;
    const Expr value = matched.LookThrough(e);
    if (params_.count(value.get()) || value.as<ir::ConstantObj>()) return true;
    if (auto* item = value.as<ir::TupleGetItemObj>()) {
      return Has(item->tuple_value, matched, depth + 1);
    }
    const auto* call = value.as<ir::CallObj>();
    if (call == nullptr || ir::CalledOp(call) == nullptr) return false;
    for (const Expr& arg : call->args) {
      const bool leaf = arg.as<ir::ShapeExprObj>() || arg.as<ir::StringImmObj>();
      if (!leaf && !Has(arg, matched, depth + 1)) return false;
    }
    return true;
  }

 private:
  std::unordered_set<const ffi::Object*> params_;
};

Expr Matmul(const Expr& x, const Expr& y, ffi::Any out_dtype = nullptr) {
  return ops::MakeCall("matmul", {x, y}, {{"out_dtype", std::move(out_dtype)}});
}
Expr Transposed(const Expr& x) { return ops::MakeCall("permute_dims", {x}); }

// Two factors of a product, perhaps of its transpose; null when `e` is none.
struct Factors {
  Expr first, second;
  bool flipped = false;
};
Factors FactorsOf(const Expr& e, const PatternMatcher& matched) {
  if (const auto* product = AsCallOf(matched, e, "matmul")) {
    return {product->args[0], product->args[1]};
  }
  const auto* permute = AsCallOf(matched, e, "permute_dims");
  if (permute == nullptr || RankOf(permute->args[0]) != 2) return {};
  if (auto axes = permute->attrs.Get("axes").as<ffi::Array<ffi::Any>>()) {
    auto first = axes.value()[0].cast<int64_t>();
    if (first != 1 && first != -1) return {};
  }
  const auto* product = AsCallOf(matched, permute->args[0], "matmul");
  if (product == nullptr || RankOf(product->args[0]) != 2 || RankOf(product->args[1]) != 2) {
    return {};
  }
  return {product->args[1], product->args[0], true};
}

// Rows and columns of a factor, as it stands in a product of three; a vector is one row or column.
// The matrices of an outer factor with more dimensions count as one with all their rows or columns.
struct Matrix {
  Expr rows, columns;
};
std::optional<Matrix> SizeOf(const Expr& e, bool flipped, bool last) {
  auto dims = DimsOf(e);
  if (!dims || dims.value().empty()) return std::nullopt;
  const ffi::Array<Expr> d = dims.value();
  const size_t n = d.size();
  if (n == 1) return last ? Matrix{d[0], Expr(1)} : Matrix{Expr(1), d[0]};
  if (flipped) return Matrix{d[n - 1], d[n - 2]};
  Matrix matrix{d[n - 2], d[n - 1]};
  for (size_t i = 0; i + 2 < n; ++i) {
    Expr& side = last ? matrix.columns : matrix.rows;
    side = side * d[i];
  }
  return matrix;
}

class Orderer {
 public:
  explicit Orderer(const ir::Function& func) : weights_(func) {}

  Expr operator()(const Expr& value, const PatternMatcher& matched) const {
    const auto* outer = value.as<ir::CallObj>();
    const Expr &left = outer->args[0], &right = outer->args[1];
    if (Factors f = FactorsOf(left, matched); f.first.defined()) {
      Expr made = Choose(outer, f.first, f.second, right, f.flipped, false, true, matched);
      if (made.defined()) return made;
    }
    if (Factors f = FactorsOf(right, matched); f.first.defined()) {
      return Choose(outer, left, f.first, f.second, false, f.flipped, false, matched);
    }
    return Expr();
  }

 private:
  // a @ b @ c; `left_first`: how it is computed now.  `ab_flipped`: a and b are transposed first.
  Expr Choose(const ir::CallObj* outer, const Expr& a, const Expr& b, const Expr& c,
              bool ab_flipped, bool bc_flipped, bool left_first,
              const PatternMatcher& matched) const {
    if (RankOf(b) != 2 || RankOf(a) < 1 || RankOf(c) < 1) return Expr();
    if (RankOf(a) > 2 && RankOf(c) > 2) return Expr();
    if ((RankOf(a) > 2 && ab_flipped) || (RankOf(c) > 2 && bc_flipped)) return Expr();
    auto want = WantLeftFirst(a, b, c, ab_flipped, bc_flipped, matched);
    if (!want || *want == left_first) return Expr();
    auto part = [](const Expr& e, bool flipped) { return flipped ? Transposed(e) : e; };
    const Expr x = part(a, ab_flipped), z = part(c, bc_flipped);
    const Expr y = part(b, ab_flipped || bc_flipped);
    const ffi::Any dtype = outer->attrs.Get("out_dtype");
    return *want ? Matmul(Matmul(x, y), z, dtype) : Matmul(x, Matmul(y, z), dtype);
  }

  std::optional<bool> WantLeftFirst(const Expr& a, const Expr& b, const Expr& c, bool ab_flipped,
                                    bool bc_flipped, const PatternMatcher& matched) const {
    const bool weight_b = weights_.Has(b, matched);
    const bool once_ab = weight_b && weights_.Has(a, matched);
    const bool once_bc = weight_b && weights_.Has(c, matched);
    if (once_ab && once_bc) return std::nullopt;  // all of it is computed once
    if (once_ab) return true;
    if (once_bc) return false;
    auto first = SizeOf(a, ab_flipped, false), last = SizeOf(c, bc_flipped, true);
    auto middle = SizeOf(b, ab_flipped || bc_flipped, true);
    if (!first || !middle || !last) return std::nullopt;
    const Expr n = first->rows, r = middle->rows, m = middle->columns, k = last->columns;
    const Expr left = n * r * m + n * m * k, right = r * m * k + n * r * k;
    arith::Analyzer analyzer;
    if (analyzer.Prove(ir::Less(left, right))) return true;
    if (analyzer.Prove(ir::Less(right, left))) return false;
    return std::nullopt;
  }

  Weights weights_;
};

// x @ (a + b)  ->  x @ a + x @ b
class Expander {
 public:
  explicit Expander(const ir::Function& func) : weights_(func) {}
  Expr operator()(const Expr& value, const PatternMatcher& matched) const {
    const auto* outer = value.as<ir::CallObj>();
    const auto* sum = AsCallOf(matched, outer->args[1], "add");
    if (sum == nullptr) return Expr();
    const Expr &a = sum->args[0], &b = sum->args[1];
    // A sum of weights is computed once.
    if (weights_.Has(a, matched) && weights_.Has(b, matched)) return Expr();
    auto x = DimsOf(a), y = DimsOf(b);
    if (!x || !y || x.value().size() != y.value().size() || x.value().size() < 2) return Expr();
    arith::Analyzer analyzer;
    for (size_t i = 0; i < x.value().size(); ++i) {
      if (!analyzer.ProveEqual(x.value()[i], y.value()[i])) return Expr();
    }
    const ffi::Any dtype = outer->attrs.Get("out_dtype");
    return ops::MakeCall("add",
                         {Matmul(outer->args[0], a, dtype), Matmul(outer->args[0], b, dtype)});
  }

 private:
  Weights weights_;
};

template <typename Rule>
IRModule ApplyToMatmuls(IRModule mod) {
  return ir::MutateFunctions(std::move(mod), [](const ir::GlobalVar&, const ir::Function& func) {
    return RewriteFunction(func, {{CallOf("matmul", {AnyValue(), AnyValue()}), Rule(func)}});
  });
}

}  // namespace

IRModule AdjustMatmulOrder(IRModule mod, const PassContext& context) {
  return ApplyToMatmuls<Orderer>(std::move(mod));
}

IRModule ExpandMatmulOfSum(IRModule mod, const PassContext& context) {
  return ApplyToMatmuls<Expander>(std::move(mod));
}

}  // namespace relaxvm::passes
