// SPDX-License-Identifier: Apache-2.0
// Reads of a table that has an element for each byte: always inside, and cheap where a machine
// picks bytes out of registers.
#pragma once

#include "tir/stmt.h"

namespace relaxvm::tir {

// Is it table[e], a compact table of 256 bytes, with an unsigned byte `e`?
inline bool IsByteTable(const BufferLoad& load) {
  const BufferTypeObj* type = Buffer(load->buffer).type();
  if (load->indices.size() != 1 || type->shape.size() != 1 || !type->strides.empty()) return false;
  const auto* cast = load->indices[0].as<ir::CastObj>();
  return cast != nullptr && IsUInt(cast->value.dtype()) && cast->value.dtype().bits == 8 &&
         IsInteger(type->dtype) && type->dtype.bits == 8 && ir::IsIntValue(type->shape[0], 256);
}

}  // namespace relaxvm::tir
