// SPDX-License-Identifier: Apache-2.0
// einsum: sums of products over the letters that the result does not name.
#include <algorithm>
#include <map>

#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

struct Einsum {
  std::string subscripts;
};

// Labels of the dimensions: letters; the dimensions of "..." are the digits '0', '1'... from the
// last one on.
struct Subscripts {
  std::vector<std::string> operands;
  std::string result;
};

using Report = std::function<void(const std::string& what)>;

// One operand's part: `ndim` dimensions.
std::string ParseOperand(const std::string& text, int64_t ndim, const Report& report) {
  size_t dots = text.find("...");
  std::string letters = text;
  if (dots != std::string::npos) letters.erase(dots, 3);
  for (char c : letters) {
    if (!std::isalpha(static_cast<unsigned char>(c))) {
      report("subscripts may hold letters, ',', '->' and '...', got '" + text + "'");
    }
  }
  auto hidden = ndim - static_cast<int64_t>(letters.size());
  if (hidden < 0 || (dots == std::string::npos && hidden != 0)) {
    report("'" + text + "' stands for an operand with " + std::to_string(ndim) + " dimensions");
  }
  if (hidden > 9) report("'...' may stand for at most 9 dimensions");
  if (dots == std::string::npos) return letters;
  std::string digits;
  for (int64_t d = hidden; d-- > 0;) digits += static_cast<char>('0' + d);
  return letters.insert(dots, digits);
}

Subscripts Parse(std::string text, const std::vector<int64_t>& ndims, const Report& report) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  Subscripts s;
  size_t arrow = text.find("->");
  std::string inputs = text.substr(0, arrow);
  size_t begin = 0;
  while (true) {
    size_t comma = inputs.find(',', begin);
    std::string part = inputs.substr(begin, comma - begin);
    if (s.operands.size() >= ndims.size()) {
      report("subscripts name more operands than the " + std::to_string(ndims.size()) + " given");
    }
    s.operands.push_back(ParseOperand(part, ndims[s.operands.size()], report));
    if (comma == std::string::npos) break;
    begin = comma + 1;
  }
  if (s.operands.size() != ndims.size()) {
    report("subscripts name " + std::to_string(s.operands.size()) + " operands, there are " +
           std::to_string(ndims.size()));
  }
  std::map<char, int> uses;
  std::string digits;
  for (const std::string& o : s.operands) {
    for (char c : o) ++uses[c];
  }
  for (auto it = uses.rbegin(); it != uses.rend(); ++it) {
    if (std::isdigit(static_cast<unsigned char>(it->first))) digits += it->first;
  }
  if (arrow == std::string::npos) {  // letters that stand once, in alphabetical order
    s.result = digits;
    for (const auto& [c, count] : uses) {
      if (count == 1 && !std::isdigit(static_cast<unsigned char>(c))) s.result += c;
    }
    return s;
  }
  std::string out = text.substr(arrow + 2);
  if (size_t dots = out.find("..."); dots != std::string::npos) out.replace(dots, 3, digits);
  for (char c : out) {
    if (uses.count(c) == 0)
      report(std::string("no operand has '") + c + "', which the result names");
    if (std::count(out.begin(), out.end(), c) > 1) {
      report(std::string("the result names '") + c + "' twice");
    }
  }
  s.result = out;
  return s;
}

// The extent of every label: of those given, one that is not 1.
std::map<char, Expr> Extents(const Subscripts& s, const std::vector<Dims>& shapes,
                             const std::function<void(char, const Expr&, const Expr&)>& meet) {
  std::map<char, Expr> extents;
  for (size_t n = 0; n < shapes.size(); ++n) {
    for (size_t d = 0; d < shapes[n].size(); ++d) {
      char c = s.operands[n][d];
      Expr& extent = extents[c];
      if (!extent.defined() || ir::IsIntValue(extent, 1)) {
        extent = shapes[n][d];
      } else if (!ir::IsIntValue(shapes[n][d], 1)) {
        meet(c, extent, shapes[n][d]);
      }
    }
  }
  return extents;
}

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

Type InferEinsum(TypeCtx& ctx, const Einsum& a) {
  std::vector<TensorType> operands = ctx.TensorTuple(0);
  if (operands.empty()) ctx.Error(ErrorKind::kValueError, "operands must not be empty");
  DLDataType dtype = operands[0]->dtype;
  std::vector<int64_t> ndims;
  std::vector<Dims> shapes;
  for (size_t n = 0; n < operands.size(); ++n) {
    const TensorType& t = operands[n];
    if (!t->IsUnknownDtype() && !IsNumber(t->dtype)) {
      ctx.Error(ErrorKind::kTypeError, "operands[", n, "] must be a tensor of numbers, got ",
                DescribeType(t));
    }
    if (!IsVoid(dtype) && !t->IsUnknownDtype() && t->dtype != dtype) {
      ctx.Error(ErrorKind::kTypeError, "all operands must have one dtype, got ", DTypeName(dtype),
                " and ", DTypeName(t->dtype));
    }
    if (t->IsUnknownRank()) return ctx.Result(std::nullopt, -1, dtype);
    ndims.push_back(t->ndim);
    if (auto dims = t->GetShape()) shapes.push_back(*dims);
  }
  Subscripts s = Parse(a.subscripts, ndims, [&](const std::string& what) {
    ctx.Error(ErrorKind::kValueError, "'", a.subscripts, "': ", what);
  });
  if (shapes.size() != operands.size()) {
    return ctx.Result(std::nullopt, static_cast<int64_t>(s.result.size()), dtype);
  }
  auto extents = Extents(s, shapes, [&](char c, const Expr& x, const Expr& y) {
    if (ctx.Prove(ir::NotEqual(x, y))) {
      ctx.Error(ErrorKind::kValueError, "'", a.subscripts, "': '", std::string(1, c),
                "' has extents ", DescribeExpr(x), " and ", DescribeExpr(y));
    }
  });
  Dims result;
  for (char c : s.result) result.push_back(extents[c]);
  return ctx.Result(result, dtype);
}

// Operands and what their dimensions are called.
struct Factors {
  Tensors tensors;
  std::vector<std::string> letters;
};

bool Has(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

// The sum over all letters that `result` lacks, in the dtype that sums have.
Tensor SumOfProducts(const Factors& factors, const std::string& result,
                     const std::map<char, Expr>& extents) {
  std::string summed;
  Dims reduced;
  for (const auto& [c, extent] : extents) {
    auto has = [c = c](const std::string& letters) { return Has(letters, c); };
    if (Has(result, c) || std::none_of(factors.letters.begin(), factors.letters.end(), has))
      continue;
    summed += c;
    reduced.push_back(extent);
  }
  auto product = [&](const Indices& i, const Indices& r) {
    Expr value;
    for (size_t n = 0; n < factors.tensors.size(); ++n) {
      const Tensor& tensor = factors.tensors[n];
      Indices at;
      for (size_t d = 0; d < factors.letters[n].size(); ++d) {
        char c = factors.letters[n][d];
        size_t kept = result.find(c);
        Expr index = kept != std::string::npos ? i[kept] : r[summed.find(c)];
        bool repeated = ir::IsIntValue(tensor->shape[d], 1) && !ir::IsIntValue(extents.at(c), 1);
        at.push_back(repeated ? Expr(0) : index);
      }
      Expr factor = Widen(tensor(at));
      value = value.defined() ? value * factor : factor;
    }
    return value;
  };
  Dims shape;
  for (char c : result) shape.push_back(extents.at(c));
  if (reduced.empty()) {
    return tir::Compute(shape, [&](const Indices& i) { return product(i, {}); }, "einsum");
  }
  DLDataType wide = WideDtype(factors.tensors[0]->dtype);
  return tir::Reduce(shape, reduced, tir::SumReducer(wide), product, "einsum");
}

// How many products a sum over `letters` has; an unknown size counts as 64.
double NumProducts(const std::string& letters, const std::map<char, Expr>& extents) {
  double count = 1;
  for (char c : letters) count *= static_cast<double>(ir::AsInt(extents.at(c)).value_or(64));
  return count;
}

std::string Union(const std::string& a, const std::string& b) {
  std::string both = a;
  for (char c : b) {
    if (!Has(both, c)) both += c;
  }
  return both;
}

// Two factors that become one, and what that has of their letters.
struct Pair {
  size_t first = 0;
  size_t second = 0;
  std::string kept;
  double num_products = 0;
};

// The pair with the fewest products.
Pair CheapestPair(const std::vector<std::string>& letters, const std::string& result,
                  const std::map<char, Expr>& extents) {
  Pair best;
  for (size_t i = 0; i < letters.size(); ++i) {
    for (size_t j = i + 1; j < letters.size(); ++j) {
      std::string both = Union(letters[i], letters[j]);
      double count = NumProducts(both, extents);
      if (best.second != 0 && count >= best.num_products) continue;
      std::string needed = result;
      for (size_t n = 0; n < letters.size(); ++n) {
        if (n != i && n != j) needed += letters[n];
      }
      std::erase_if(both, [&](char c) { return !Has(needed, c); });
      best = {i, j, std::move(both), count};
    }
  }
  return best;
}

// Makes pairs of factors one, the cheapest first, while that takes fewer products than all at once:
// of 'ij,jk,kl->il' with sizes n, 2 n^3 instead of n^4 (the greedy path of Daniel Smith and Gray,
// "opt_einsum", 2018).
void MultiplyPairs(Factors* factors, const std::string& result,
                   const std::map<char, Expr>& extents) {
  std::string all;
  std::vector<std::string> letters = factors->letters;
  std::vector<Pair> pairs;
  double in_pairs = 0;
  for (const std::string& l : letters) all = Union(all, l);
  while (letters.size() > 2) {
    Pair pair = CheapestPair(letters, result, extents);
    in_pairs += pair.num_products;
    letters[pair.first] = pair.kept;
    letters.erase(letters.begin() + static_cast<int64_t>(pair.second));
    pairs.push_back(std::move(pair));
  }
  if (pairs.empty()) return;
  in_pairs += NumProducts(Union(letters[0], letters[1]), extents);
  if (2 * in_pairs > NumProducts(all, extents)) return;
  for (const Pair& pair : pairs) {
    Factors two{{factors->tensors[pair.first], factors->tensors[pair.second]},
                {factors->letters[pair.first], factors->letters[pair.second]}};
    factors->tensors[pair.first] = SumOfProducts(two, pair.kept, extents);
    factors->letters[pair.first] = pair.kept;
    factors->tensors.erase(factors->tensors.begin() + static_cast<int64_t>(pair.second));
    factors->letters.erase(factors->letters.begin() + static_cast<int64_t>(pair.second));
  }
}

Tensors ComputeEinsum(const ComputeArgs& in, const Einsum& a) {
  const Tensors& operands = in.Tuple(0);
  std::vector<int64_t> ndims;
  std::vector<Dims> shapes;
  for (const Tensor& t : operands) {
    ndims.push_back(t.ndim());
    shapes.push_back(t->shape);
  }
  Subscripts s = Parse(a.subscripts, ndims, [](const std::string&) { RELAXVM_UNREACHABLE(); });
  auto extents = Extents(s, shapes, [](char, const Expr&, const Expr&) {});
  Factors factors{operands, s.operands};
  MultiplyPairs(&factors, s.result, extents);
  Tensor sum = SumOfProducts(factors, s.result, extents);
  DLDataType dtype = in.OutDtype();
  if (sum->dtype == dtype) return {sum};
  return {tir::Map(sum, [&](const Expr& e) { return ir::Cast(dtype, e); }, "cast")};
}

}  // namespace

OpDef einsum() {
  return Define<Einsum>({
      .name = "einsum",
      .doc = "Sums of products of elements, by letters for the dimensions.",
      .args = {{"operands", "The tensors.", ArgKind::kTensors}},
      .attrs = {{"subscripts", &Einsum::subscripts, "As NumPy's: 'ij,jk->ik'.", true}},
      .reference = "out = np.einsum(subscripts, *operands)",
      .samples = {{{"operands: (f32[3, 4], f32[4, 5])", "subscripts='ij,jk->ik'"}},
                  {{"operands: (f32[3, 3],)", "subscripts='ii'"}},
                  {{"operands: (f32[2, 3, 4], f32[4, 3])", "subscripts='...ij,ji->...i'"}},
                  {{"operands: (f32[3], f32[4])", "subscripts='a,b->ba'"}}},
      .type = InferEinsum,
      .compute = ComputeEinsum,
      .layout = LayoutOf(LayoutRule::Kind::kEinsum, "subscripts"),
  });
}

}  // namespace relaxvm::ops
