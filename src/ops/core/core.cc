// SPDX-License-Identifier: Apache-2.0
// What the core calls share; see the header.
#include "ops/core/core.h"

namespace relaxvm::ops {

Type StatedResult(const Call& call, const Type& none) {
  if (call->ty_args.empty()) return none;
  if (call->ty_args.size() == 1) return call->ty_args[0];
  return ir::TupleType(call->ty_args);
}

DLDataType DtypeArg(const TypeCtx& ctx, size_t i) {
  Expr arg = ctx.arg(i);
  if (const auto* imm = arg.as<ir::DataTypeImmObj>()) return imm->value;
  ctx.Error(ErrorKind::kTypeError, ctx.ArgName(i), " must be an element type, R.dtype(...)");
}

std::vector<Type> FieldsOf(const Type& type) {
  if (const auto* tuple = type.as<ir::TupleTypeObj>()) {
    return std::vector<Type>(tuple->fields.begin(), tuple->fields.end());
  }
  return {type};
}

Call WithArgsAsTuple(const Call& call) {
  if (call->args.size() < 2) return call;
  Expr given = call->args[1];
  if (given.as<ir::TupleObj>() != nullptr) return call;
  ffi::Array<Expr> fields;
  if (const auto* tuple = given->ty.as<ir::TupleTypeObj>()) {
    for (size_t i = 0; i < tuple->fields.size(); ++i) {
      ir::TupleGetItem item(given, static_cast<int64_t>(i));
      item->ty = tuple->fields[i];
      fields.push_back(item);
    }
  } else if (given->ty.IsMissing()) {
    return call;  // completed once the type is known
  } else {
    fields.push_back(given);
  }
  ffi::Array<Expr> args = call->args;
  args.Set(1, ir::Tuple(fields));
  return Call(call->op, args, call->attrs, call->ty_args, call->span, call->ty);
}

void CheckArgsTuple(const TypeCtx& ctx) {
  if (ctx.type(1).as<ir::TupleTypeObj>() != nullptr) return;
  ctx.Error(ErrorKind::kTypeError, ctx.ArgName(1), " must be a tuple of arguments, got ",
            DescribeType(ctx.type(1)));
}

void CheckInplaceIndices(const TypeCtx& ctx, const Ints& indices, const std::vector<Type>& args,
                         const Type& result) {
  std::vector<Type> results = FieldsOf(result);
  if (indices.size() != results.size()) {
    ctx.Error(ErrorKind::kValueError, "inplace_indices has ", indices.size(), " entries for ",
              results.size(), " results; give one for each, -1 for a fresh tensor");
  }
  bool any = false;
  for (size_t n = 0; n < indices.size(); ++n) {
    int64_t i = indices[n];
    if (i == -1) continue;
    any = true;
    if (i < -1 || i >= static_cast<int64_t>(args.size())) {
      ctx.Error(ErrorKind::kValueError, "inplace_indices[", n, "] is ", i, ", but there are ",
                args.size(), " arguments");
    }
    for (size_t m = 0; m < n; ++m) {
      if (indices[m] != i) continue;
      ctx.Error(ErrorKind::kValueError, "results ", m, " and ", n, " both overwrite argument ", i);
    }
    if (args[i].IsMissing()) continue;
    if (ir::FitsType(results[n], args[i], ctx.facts()) == ir::TypeFit::kNever) {
      ctx.Error(ErrorKind::kTypeError, "result ", n, " is ", DescribeType(results[n]),
                " and cannot overwrite argument ", i, ", which is ", DescribeType(args[i]));
    }
  }
  if (!any) {
    ctx.Error(ErrorKind::kValueError, "inplace_indices names no argument to overwrite");
  }
}

}  // namespace relaxvm::ops
