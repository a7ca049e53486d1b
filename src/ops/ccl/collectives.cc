// SPDX-License-Identifier: Apache-2.0
// Collective operators: what the workers of one program, each on a part of the data, tell each
// other.  They become calls of the packed functions runtime.disco.*, which a host supplies.
#include <iterator>

#include "ops/op_def.h"

namespace relaxvm::ops {
namespace {

// Their positions are what runtime.disco.allreduce takes.
constexpr const char* kReductions[] = {"sum", "prod", "min", "max", "avg"};

struct AllReduce {
  std::string op_type = "sum";
  bool in_group = true;
};
struct AllGather {
  int64_t num_workers = 0;
  bool in_group = true;
};
struct Scatter {
  int64_t num_workers = 0;
  int64_t axis = 0;
};

Expr Flag(bool value) { return ir::BoolImm(value); }

// runtime.disco.<name>(args..., out)
Expr Packed(const char* name, ffi::Array<Expr> args, const Call& call) {
  ir::ExternFunc func(std::string("runtime.disco.") + name);
  return MakeCall("call_dps_packed", {func, ir::Tuple(std::move(args))}, {}, {call->ty},
                  call->span);
}

int64_t PositionOf(const std::string& reduction) {
  auto it = std::find(std::begin(kReductions), std::end(kReductions), reduction);
  return it - std::begin(kReductions);
}

Type InferAllReduce(TypeCtx& ctx, const AllReduce& a) {
  if (PositionOf(a.op_type) == std::ssize(kReductions)) {
    ctx.Error(ErrorKind::kValueError, "op_type must be one of sum, prod, min, max, avg, got \"",
              a.op_type, "\"");
  }
  return ctx.Tensor(0);
}

void CheckWorkers(TypeCtx& ctx, int64_t num_workers) {
  if (num_workers < 1)
    ctx.Error(ErrorKind::kValueError, "num_workers must be at least 1, got ", num_workers);
}

Type InferAllGather(TypeCtx& ctx, const AllGather& a) {
  CheckWorkers(ctx, a.num_workers);
  TensorType x = ctx.Tensor(0);
  std::optional<Dims> dims = ctx.Shape(0);
  if (!dims) return ctx.Result(std::nullopt, x->ndim, x->dtype);
  if (dims->empty()) ctx.Error(ErrorKind::kValueError, "x must have a dimension to gather along");
  dims->Set(0, ctx.Simplify((*dims)[0] * Expr(a.num_workers)));
  return ctx.Result(*dims, x->dtype);
}

Type InferScatter(TypeCtx& ctx, const Scatter& a) {
  CheckWorkers(ctx, a.num_workers);
  TensorType x = ctx.Tensor(0);
  std::optional<Dims> dims = ctx.Shape(0);
  if (!dims) {
    ctx.Error(ErrorKind::kValueError,
              "the shape of x must be known; match_cast it to one with known dimensions first");
  }
  const int64_t axis = ctx.Axis(a.axis, x->ndim);
  const Expr extent = (*dims)[axis];
  if (!ctx.Equal(ir::FloorMod(extent, Expr(a.num_workers)), Expr(0))) {
    ctx.Error(ErrorKind::kValueError, "the extent of axis ", axis, " must be a multiple of the ",
              a.num_workers, " workers, got ", DescribeExpr(extent));
  }
  dims->Set(axis, ctx.Simplify(ir::FloorDiv(extent, Expr(a.num_workers))));
  return ctx.Result(*dims, x->dtype);
}

// The part of each worker lies in one piece: the axis of parts comes first.
Expr DecomposeScatter(ir::BlockBuilder& b, const Call& call, const Scatter& a) {
  const auto* x = call->args[0]->ty.as<ir::TensorTypeObj>();
  const Dims dims = x->GetShape().value();
  const int64_t axis = a.axis < 0 ? a.axis + x->ndim : a.axis;
  Dims split;
  for (int64_t d = 0; d < x->ndim; ++d) {
    if (d != axis) {
      split.push_back(dims[d]);
      continue;
    }
    split.push_back(Expr(a.num_workers));
    split.push_back(call->ty.as<ir::TensorTypeObj>()->GetShape().value()[d]);
  }
  Expr parts =
      b.Emit(MakeCall("reshape", {call->args[0], ir::ShapeExpr(split)}, {}, {}, call->span));
  if (axis != 0) {
    ffi::Array<int64_t> axes = {axis};
    for (int64_t d = 0; d <= x->ndim; ++d) {
      if (d != axis) axes.push_back(d);
    }
    parts = b.Emit(MakeCall("permute_dims", {parts}, {{"axes", axes}}, {}, call->span));
  }
  return Packed("scatter_from_worker0", {parts, Flag(false)}, call);
}

}  // namespace

OpDef ccl_allreduce() {
  return Define<AllReduce>({
      .name = "ccl.allreduce",
      .doc = "The sum, product, least, greatest or average of what all workers have.",
      .args = {{"x", "What this worker has."}},
      .attrs = {{"op_type", &AllReduce::op_type, "\"sum\", \"prod\", \"min\", \"max\" or \"avg\"."},
                {"in_group", &AllReduce::in_group, "Among the workers of a group, or among all."}},
      .type = InferAllReduce,
      .decompose = [](ir::BlockBuilder&, const Call& call, const AllReduce& a) -> Expr {
        return Packed(
            "allreduce",
            {call->args[0], ir::ShapeExpr({Expr(PositionOf(a.op_type))}), Flag(a.in_group)}, call);
      },
  });
}

OpDef ccl_allgather() {
  return Define<AllGather>({
      .name = "ccl.allgather",
      .doc = "What all workers have, joined along the first axis.",
      .args = {{"x", "What this worker has."}},
      .attrs = {{"num_workers", &AllGather::num_workers, "How many there are.", /*required=*/true},
                {"in_group", &AllGather::in_group, "Among the workers of a group, or among all."}},
      .type = InferAllGather,
      .decompose = [](ir::BlockBuilder&, const Call& call, const AllGather& a) -> Expr {
        return Packed("allgather", {call->args[0], Flag(a.in_group)}, call);
      },
  });
}

OpDef ccl_broadcast_from_worker0() {
  return Define<NoAttrs>({
      .name = "ccl.broadcast_from_worker0",
      .doc = "What the first worker has, at every worker.",
      .args = {{"x", "What the first worker has."}},
      .type = [](TypeCtx& ctx, const NoAttrs&) -> Type { return ctx.Tensor(0); },
      .decompose = [](ir::BlockBuilder&, const Call& call, const NoAttrs&) -> Expr {
        return Packed("broadcast_from_worker0", {call->args[0], Flag(false)}, call);
      },
  });
}

OpDef ccl_scatter_from_worker0() {
  return Define<Scatter>({
      .name = "ccl.scatter_from_worker0",
      .doc = "A part for each worker of what the first one has, along one axis.",
      .args = {{"x", "What the first worker has."}},
      .attrs = {{"num_workers", &Scatter::num_workers, "How many there are.", /*required=*/true},
                {"axis", &Scatter::axis, "The axis that is divided."}},
      .type = InferScatter,
      .decompose = DecomposeScatter,
  });
}

}  // namespace relaxvm::ops
