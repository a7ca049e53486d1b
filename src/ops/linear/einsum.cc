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
  std::string summed;
  Dims reduced;
  for (const auto& [c, extent] : extents) {
    if (s.result.find(c) != std::string::npos) continue;
    summed += c;
    reduced.push_back(extent);
  }
  DLDataType dtype = in.OutDtype();
  DLDataType wide = WideDtype(dtype);
  auto product = [&](const Indices& i, const Indices& r) {
    Expr value;
    for (size_t n = 0; n < operands.size(); ++n) {
      Indices at;
      for (size_t d = 0; d < shapes[n].size(); ++d) {
        char c = s.operands[n][d];
        size_t kept = s.result.find(c);
        Expr index = kept != std::string::npos ? i[kept] : r[summed.find(c)];
        bool repeated = ir::IsIntValue(shapes[n][d], 1) && !ir::IsIntValue(extents[c], 1);
        at.push_back(repeated ? Expr(0) : index);
      }
      Expr factor = Widen(operands[n](at));
      value = value.defined() ? value * factor : factor;
    }
    return value;
  };
  if (reduced.empty()) {
    auto formula = [&](const Indices& i) { return ir::Cast(dtype, product(i, {})); };
    return {tir::Compute(in.OutShape(), formula, "einsum")};
  }
  Tensor sum = tir::Reduce(in.OutShape(), reduced, tir::SumReducer(wide), product, "einsum");
  if (wide == dtype) return {sum};
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
