// SPDX-License-Identifier: Apache-2.0
// Raw register values.  Loads and stores have fixed widths: a value written by parts and read whole
// stalls for 4-5 ns.
//   register <-> register: two 8-byte loads, two 8-byte stores
//   argument slot:         one 16-byte store (callees read 16 bytes)
//   result slot:           read back as 4 + 4 + 8 bytes (callees write by parts)
#pragma once

#include <tvm/ffi/any.h>

#include <cstdint>
#include <cstring>

namespace relaxvm::vm {

using Slot = TVMFFIAny;  // 16 bytes; owned or borrowed, as the place says

struct Value {
  uint64_t tag;  // type_index, and the padding (length of a small string) in the upper half
  uint64_t payload;

  int32_t type_index() const { return static_cast<int32_t>(tag); }
  bool is_object() const { return type_index() >= kTVMFFIStaticObjectBegin; }
  TVMFFIObject* object() const { return reinterpret_cast<TVMFFIObject*>(payload); }
  static Value None() { return {0, 0}; }
};

using AliasedU64 = uint64_t __attribute__((may_alias));
using AliasedU32 = uint32_t __attribute__((may_alias));

// The empty asm keeps the compiler from merging both halves into one wide access.
inline Value Load(const Slot* slot) {
  uint64_t tag = reinterpret_cast<const AliasedU64*>(slot)[0];
  uint64_t payload = reinterpret_cast<const AliasedU64*>(slot)[1];
  asm("" : "+r"(tag), "+r"(payload));
  return {tag, payload};
}

inline void Store(Slot* slot, Value value) {
  asm("" : "+r"(value.tag), "+r"(value.payload));
  reinterpret_cast<AliasedU64*>(slot)[0] = value.tag;
  reinterpret_cast<AliasedU64*>(slot)[1] = value.payload;
}

inline Value LoadResult(const Slot* slot) {
  uint64_t low = reinterpret_cast<const AliasedU32*>(slot)[0];
  uint64_t high = reinterpret_cast<const AliasedU32*>(slot)[1];
  uint64_t payload = reinterpret_cast<const AliasedU64*>(slot)[1];
  asm("" : "+r"(low), "+r"(high), "+r"(payload));
  return {low | (high << 32), payload};
}

inline void StoreArgument(Slot* slot, const Slot* from) {
  typedef long long Vector __attribute__((vector_size(16), aligned(8), may_alias));
  Value value = Load(from);
  *reinterpret_cast<Vector*>(slot) =
      Vector{static_cast<long long>(value.tag), static_cast<long long>(value.payload)};
}

inline void Retain(Value value) {
  if (value.is_object())
    __atomic_fetch_add(&value.object()->combined_ref_count, 1, __ATOMIC_RELAXED);
}

inline void Drop(Value value) {
  if (value.is_object()) tvm::ffi::detail::ObjectUnsafe::DecRefObjectHandle(value.object());
}

inline tvm::ffi::AnyView View(const Slot* slot) {
  return tvm::ffi::AnyView::CopyFromTVMFFIAny(*slot);
}

// Takes the value out of an Any.
inline Value Release(tvm::ffi::Any&& any) {
  TVMFFIAny raw = tvm::ffi::detail::AnyUnsafe::MoveAnyToTVMFFIAny(std::move(any));
  return Load(&raw);
}

}  // namespace relaxvm::vm
