// SPDX-License-Identifier: Apache-2.0
// Addresses of elements as numbers, and buffers that stand at such an address: one loop can read
// many inputs, one after the other.  A program has them when it is scheduled.
#pragma once

#include "tir/stmt.h"

namespace relaxvm::tir {

// Scope of a buffer that is not allocated: its `elem_offset` is the address of its first element,
// in an input.
inline constexpr const char* kAddressScope = "address";
inline constexpr const char* kAddressOf = "address_of";

// The address of the element that `load` would read, as int64.
inline Expr AddressOf(const BufferLoad& load) {
  const ir::Attrs external(ffi::Map<ffi::String, ffi::Any>{{"extern", true}});
  return ir::Call(ir::ExternFunc(kAddressOf), {load}, external, {}, ir::Span(),
                  ir::PrimType(Int(64)));
}

// The load of such an expression; null: `call` is another one.
inline const BufferLoadObj* LoadOfAddress(const ir::CallObj* call) {
  const auto* callee = call->op.as<ir::ExternFuncObj>();
  if (callee == nullptr || callee->global_symbol != kAddressOf || call->args.size() != 1)
    return nullptr;
  return call->args[0].as<BufferLoadObj>();
}

}  // namespace relaxvm::tir
