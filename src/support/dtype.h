// SPDX-License-Identifier: Apache-2.0
// Element types: makers, questions and the one place that computes sizes in bytes, sub-byte types
// included.
#pragma once

#include <tvm/ffi/dtype.h>  // operator== of DLDataType

#include <cstdint>
#include <string>

namespace relaxvm {

constexpr DLDataType Int(int bits, int lanes = 1) {
  return {kDLInt, static_cast<uint8_t>(bits), static_cast<uint16_t>(lanes)};
}
constexpr DLDataType UInt(int bits, int lanes = 1) {
  return {kDLUInt, static_cast<uint8_t>(bits), static_cast<uint16_t>(lanes)};
}
constexpr DLDataType Float(int bits, int lanes = 1) {
  return {kDLFloat, static_cast<uint8_t>(bits), static_cast<uint16_t>(lanes)};
}
constexpr DLDataType BFloat16(int lanes = 1) {
  return {kDLBfloat, 16, static_cast<uint16_t>(lanes)};
}
constexpr DLDataType Bool(int lanes = 1) { return {kDLBool, 8, static_cast<uint16_t>(lanes)}; }
constexpr DLDataType Handle() { return {kDLOpaqueHandle, 64, 1}; }
// "void": no value, or an element type that is not known.
constexpr DLDataType Void() { return {kDLOpaqueHandle, 0, 0}; }

constexpr bool IsVoid(DLDataType t) { return t.bits == 0; }
constexpr bool IsBool(DLDataType t) { return t.code == kDLBool; }
constexpr bool IsInt(DLDataType t) { return t.code == kDLInt; }
constexpr bool IsUInt(DLDataType t) { return t.code == kDLUInt; }
constexpr bool IsInteger(DLDataType t) { return IsInt(t) || IsUInt(t); }
constexpr bool IsByte(DLDataType t) { return IsInteger(t) && t.bits == 8; }
constexpr bool IsBFloat(DLDataType t) { return t.code == kDLBfloat; }
// IEEE formats, bfloat16, float8 and smaller.
constexpr bool IsFloat(DLDataType t) {
  return t.code == kDLFloat || t.code == kDLBfloat || (t.code >= 7 && t.code <= 17);
}
constexpr DLDataType WithLanes(DLDataType t, int lanes) {
  return {t.code, t.bits, static_cast<uint16_t>(lanes)};
}
constexpr DLDataType ElementOf(DLDataType t) { return WithLanes(t, 1); }

// Bytes that `num_elems` elements take when packed densely: sub-byte elements share bytes.
constexpr int64_t SizeInBytes(DLDataType t, int64_t num_elems = 1) {
  return (num_elems * t.bits * t.lanes + 7) / 8;
}

// "float32", "int64x4", "bool", "void", "handle"
std::string DTypeName(DLDataType t);
// Throws ValueError that names `text` when it is no element type.
DLDataType ParseDType(const std::string& text);

}  // namespace relaxvm
