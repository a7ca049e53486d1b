// SPDX-License-Identifier: Apache-2.0
// A convolution whose sizes are not known, where it turns out to be small: its weights are read as
// they are, as the transformed ones are four times as many.
#include "schedule/cpu/winograd.h"

namespace relaxvm::schedule::cpu {
namespace {

// The kernel is 3x3.
constexpr int64_t kTaps = 3;

}  // namespace

Stage PlainStage(const WinogradForm& form, const Stage& input, const Stage& product,
                 const Stage& output) {
  const std::vector<Var> reads = ReadsOf(product);
  const Buffer weight(reads[reads[0].same_as(*input.out) ? 1 : 0]), data(ReadsOf(input)[0]);
  const Axis down{Var("down", Int(64)), kTaps}, across{Var("across", Int(64)), kTaps},
      channel{Var("channel", Int(64)), form.channels};
  const Expr y = output.spatial[1].var + down.var * Expr(form.dilation) - Expr(form.before[1]),
             x = output.spatial[2].var + across.var * Expr(form.dilation) - Expr(form.before[2]);
  const Expr of_all = output.spatial[3].var;
  const Expr group = form.groups > 1 ? ir::FloorDiv(of_all, form.filters) : Expr(0),
             filter = form.groups > 1 ? ir::FloorMod(of_all, form.filters) : of_all;
  auto on_data = [&](const Expr& place, int64_t d) {
    return ir::And(ir::LessEqual(0, place), ir::Less(place, data.shape()[d]));
  };
  const Expr point = Expr(form.Points()) + down.var * Expr(kTaps) + across.var;
  const Expr times =
      ir::Cast(form.Summed(), data.Load({output.spatial[0].var, y, x,
                                         group * Expr(form.channels) + channel.var})) *
      weight.Load({group * Expr(form.PanelsOfGroup()) + ir::FloorDiv(filter, form.width), point,
                   channel.var, ir::FloorMod(filter, form.width)});
  Stage plain = output;
  plain.reduce = {down, across, channel};
  plain.value =
      ir::IfThenElse(ir::And(on_data(y, 1), on_data(x, 2)), times, ir::Const(form.Summed(), 0));
  return plain;
}

}  // namespace relaxvm::schedule::cpu
