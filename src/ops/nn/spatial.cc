// SPDX-License-Identifier: Apache-2.0
// What convolutions, pooling and resizing share; see the header.
#include "ops/nn/spatial.h"

#include <algorithm>

namespace relaxvm::ops {

Layout::Layout(const TypeCtx& ctx, const std::string& text, const std::string& letters,
               const char* attr) {
  const bool readable = Parse(text);
  std::string sorted, wanted = letters;
  for (char letter : letters_) {
    if (letter < 'a') sorted.push_back(letter);
  }
  std::sort(sorted.begin(), sorted.end());
  std::sort(wanted.begin(), wanted.end());
  bool spatial_block = false;
  for (const auto& [letter, size] : blocks_) {
    spatial_block = spatial_block || std::string("NDHW").find(letter) != std::string::npos;
  }
  if (!readable || sorted != wanted || spatial_block) {
    ctx.Error(ErrorKind::kValueError, attr, " must be an order of the letters ", letters, ", got '",
              text, "'; channels may be blocked, as in NCHW16c");
  }
}

bool Layout::Parse(const std::string& text) {
  int64_t size = 0;
  for (char c : text) {
    if (c >= '0' && c <= '9' && size < (1 << 20)) {
      size = size * 10 + (c - '0');
    } else if (c >= 'A' && c <= 'Z' && size == 0) {
      letters_.push_back(c);
    } else if (c >= 'a' && c <= 'z' && size > 0) {
      letters_.push_back(c);
      const char outer = static_cast<char>(c - 'a' + 'A');
      if (At(outer) == std::string::npos || BlockOf(outer) != 0) return false;
      blocks_.emplace_back(outer, size);
      size = 0;
    } else {
      return false;
    }
  }
  return size == 0;
}

int64_t Layout::BlockOf(char letter) const {
  for (const auto& [blocked, size] : blocks_) {
    if (blocked == letter) return size;
  }
  return 0;
}

Expr Layout::Extent(const ffi::Array<Expr>& shape, char letter) const {
  const Expr outer = shape[static_cast<int64_t>(At(letter))];
  const int64_t block = BlockOf(letter);
  return block == 0 ? outer : outer * Expr(block);
}

Expr Layout::Index(const ffi::Array<Expr>& indices, char letter) const {
  const Expr outer = indices[static_cast<int64_t>(At(letter))];
  const int64_t block = BlockOf(letter);
  if (block == 0) return outer;
  const char inner = static_cast<char>(letter - 'A' + 'a');
  return outer * Expr(block) + indices[static_cast<int64_t>(At(inner))];
}

std::string SpatialLetters(size_t count) { return std::string("DHW").substr(3 - count); }

void SpreadTo(Ints& values, size_t count) {
  if (values.size() == 1) values.assign(count, values[0]);
}

void SpreadPadding(Ints& values, size_t count) {
  if (values.size() == 1) values.assign(2 * count, values[0]);
  if (values.size() == count) {
    Ints ends = values;
    values.insert(values.end(), ends.begin(), ends.end());
  }
}

void CheckSpatial(const TypeCtx& ctx, const char* attr, const Ints& values, size_t count,
                  int64_t least) {
  if (values.size() != count) {
    ctx.Error(ErrorKind::kValueError, attr, " needs ", count, " values, got ", values.size());
  }
  for (int64_t v : values) {
    if (v < least) {
      ctx.Error(ErrorKind::kValueError, attr, " must be at least ", least, ", got ", v);
    }
  }
}

void RequireCount(const char* op, const char* attr, const Ints& values, size_t count) {
  if (values.size() == count) return;
  Fail(ErrorKind::kAttribute, op, ": ", attr, " needs ", count, " values, got ", values.size());
}

void RequireGroups(const char* op, int64_t groups) {
  if (groups >= 1) return;
  Fail(ErrorKind::kAttribute, op, ": groups must be at least 1, got ", groups);
}

void CheckSize(const TypeCtx& ctx, size_t i, int64_t count) {
  if (ctx.type(i).as<ir::ShapeTypeObj>() == nullptr) {
    ctx.Error(ErrorKind::kTypeError, ctx.ArgName(i), " must be a shape, got ",
              DescribeType(ctx.type(i)));
  }
  if (ctx.Rank(i) == count) return;
  ctx.Error(ErrorKind::kValueError, ctx.ArgName(i), " must have ", count, " dimensions, got ",
            DescribeType(ctx.type(i)));
}

bool PadAmounts::IsZero() const {
  auto zero = [](const Expr& e) { return ir::IsIntValue(e, 0); };
  return std::all_of(before.begin(), before.end(), zero) &&
         std::all_of(after.begin(), after.end(), zero);
}

Tensor PadStage(const Tensor& x, const PadAmounts& amounts, const Expr& value) {
  if (amounts.IsZero()) return x;
  Dims shape;
  for (size_t d = 0; d < x->shape.size(); ++d) {
    shape.push_back(amounts.before[d] + x->shape[d] + amounts.after[d]);
  }
  auto formula = [&](const Indices& i) {
    Indices at;
    Expr inside = ir::BoolImm(true);
    for (size_t d = 0; d < x->shape.size(); ++d) {
      at.push_back(i[d] - amounts.before[d]);
      if (!ir::IsIntValue(amounts.before[d], 0)) {
        inside = ir::And(inside, ir::GreaterEqual(i[d], amounts.before[d]));
      }
      if (!ir::IsIntValue(amounts.after[d], 0)) {
        inside = ir::And(inside, ir::Less(i[d], amounts.before[d] + x->shape[d]));
      }
    }
    return ir::IfThenElse(inside, x(at), value);
  };
  return tir::Compute(shape, formula, "pad");
}

}  // namespace relaxvm::ops
