// SPDX-License-Identifier: Apache-2.0
// What the core calls share: results given by type arguments, arguments as a tuple.
#pragma once

#include "ops/op_def.h"

namespace relaxvm::ops {

// The result that `ty_args` state: one type, or several as a tuple; `none` when there are none.
Type StatedResult(const Call& call, const Type& none);
// The element type of an R.dtype(...) argument.
DLDataType DtypeArg(const TypeCtx& ctx, size_t i);
// Makes the argument at 1 a literal tuple: a single value becomes a tuple of one, a variable of
// tuple type a tuple of its items.
Call WithArgsAsTuple(const Call& call);
// Reports an argument at 1 that is no tuple.
void CheckArgsTuple(const TypeCtx& ctx);
// `indices` (one per result: which argument it overwrites, -1 for a fresh tensor) against the
// arguments' and the results' types.
void CheckInplaceIndices(const TypeCtx& ctx, const Ints& indices, const std::vector<Type>& args,
                         const Type& result);
// The fields of a tuple type; a list of one for another type.
std::vector<Type> FieldsOf(const Type& type);

}  // namespace relaxvm::ops
