// SPDX-License-Identifier: Apache-2.0
// The expression classes of ir/ as a closed enum: what Visitor and Mutator switch over.
#pragma once

#include "ir/data_type.h"
#include "ir/op.h"
#include "ir/prim.h"

namespace relaxvm::ir {

enum class Node : uint8_t {
  kOther,  // a class of another folder
  kVar,
  kGlobalVar,
  kOp,
  kCall,
  kConstant,
  kStringImm,
  kDataTypeImm,
  kShape,
  kTuple,
  kTupleGetItem,
  kIf,
  kMatch,
  kConstructor,
  kSeq,
  kFunction,
  kExternFunc,
  kIntImm,
  kFloatImm,
  kBinary,
  kCast,
  kSelect,
  kLet,
  kRamp,
  kBroadcast,
  kShuffle,
  kIntrin,
};

Node NodeOf(const ffi::Object* node);

}  // namespace relaxvm::ir
