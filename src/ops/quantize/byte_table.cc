// SPDX-License-Identifier: Apache-2.0
// rvm.byte_table: a function of bytes by the table of its values.
#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

struct ByteTable {};

Type Infer(TypeCtx& ctx, const ByteTable&) {
  TensorType x = ctx.TensorOf(0, IsByte, "a tensor of bytes");
  TensorType table = ctx.TensorOf(1, IsByte, "a tensor of bytes");
  ctx.CheckRank(1, 1);
  auto dims = table->GetShape();
  if (dims.has_value() && ctx.Prove(ir::NotEqual((*dims)[0], 256))) {
    ctx.Error(ErrorKind::kValueError, ctx.ArgName(1), " needs 256 values, got ",
              DescribeExpr((*dims)[0]));
  }
  return ctx.Like(x, table->dtype);
}

Tensors Compute(const ComputeArgs& in, const ByteTable&) {
  auto formula = [&](const Indices& i) {
    return in[1]({ir::Cast(Int(64), ir::Cast(UInt(8), in[0](i)))});
  };
  return {tir::Compute(in[0]->shape, formula, "byte_table")};
}

}  // namespace

OpDef rvm_byte_table() {
  return Define<ByteTable>({
      .name = "rvm.byte_table",
      .doc = "The value that a table has for each byte.",
      .args = {{"x", "Bytes; a negative one stands for itself plus 256."},
               {"table", "256 bytes: the results."}},
      .reference = "out = table[x.astype(np.uint8)]",
      .samples = {{{"x: u8[4, 8]", "table: u8[=256]"}}, {{"x: i8[3, 5]", "table: i8[=256]"}}},
      .type = Infer,
      .compute = Compute,
      .layout = FirstLayout({}),
  });
}

}  // namespace relaxvm::ops
