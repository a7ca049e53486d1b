// SPDX-License-Identifier: Apache-2.0
// Attributes of operators between C++ values and tvm-ffi's Any.  Decoding takes what Python and the
// parser naturally give: integers for floats, lists or tuples, names of element types.
#include <cstring>
#include <sstream>

#include "ir/prim.h"
#include "ops/op_def.h"

namespace relaxvm::ops {
namespace {

std::optional<DLDataType> ParseName(const std::string& name) {
  try {
    return ParseDType(name);
  } catch (const ffi::Error&) {
    return std::nullopt;
  }
}

const char* Expected(const char* type) {
  struct Row {
    const char* type;
    const char* text;
  };
  static constexpr Row kRows[] = {
      {"int", "an integer"},           {"float", "a number"},
      {"bool", "True or False"},       {"str", "a string"},
      {"dtype", "an element type"},    {"ints", "an integer or a list of integers"},
      {"floats", "a list of numbers"},
  };
  for (const Row& row : kRows) {
    if (std::strncmp(type, row.type, std::strlen(row.type)) == 0 &&
        (type[std::strlen(row.type)] == '\0' || type[std::strlen(row.type)] == '?')) {
      return row.text;
    }
  }
  return "another value";
}

}  // namespace

ffi::Any AttrCodec<int64_t>::Encode(const int64_t& value) { return value; }
std::optional<int64_t> AttrCodec<int64_t>::Decode(const ffi::Any& value) {
  if (value.type_index() == ffi::TypeIndex::kTVMFFIInt) return value.cast<int64_t>();
  if (const auto* imm = value.as<ir::IntImmObj>()) return imm->value;
  return std::nullopt;
}

ffi::Any AttrCodec<double>::Encode(const double& value) { return value; }
std::optional<double> AttrCodec<double>::Decode(const ffi::Any& value) {
  if (value.type_index() == ffi::TypeIndex::kTVMFFIFloat) return value.cast<double>();
  if (const auto* imm = value.as<ir::FloatImmObj>()) return imm->value;
  if (auto integer = AttrCodec<int64_t>::Decode(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

ffi::Any AttrCodec<bool>::Encode(const bool& value) { return value; }
std::optional<bool> AttrCodec<bool>::Decode(const ffi::Any& value) {
  if (value.type_index() == ffi::TypeIndex::kTVMFFIBool) return value.cast<bool>();
  if (auto integer = AttrCodec<int64_t>::Decode(value)) {
    if (*integer == 0 || *integer == 1) return *integer == 1;
  }
  return std::nullopt;
}

ffi::Any AttrCodec<std::string>::Encode(const std::string& value) { return ffi::String(value); }
std::optional<std::string> AttrCodec<std::string>::Decode(const ffi::Any& value) {
  if (auto text = value.try_cast<ffi::String>()) return std::string(*text);
  return std::nullopt;
}

ffi::Any AttrCodec<DLDataType>::Encode(const DLDataType& value) { return value; }
std::optional<DLDataType> AttrCodec<DLDataType>::Decode(const ffi::Any& value) {
  if (value.type_index() == ffi::TypeIndex::kTVMFFIDataType) return value.cast<DLDataType>();
  if (const auto* imm = value.as<ir::DataTypeImmObj>()) return imm->value;
  if (auto text = AttrCodec<std::string>::Decode(value)) return ParseName(*text);
  return std::nullopt;
}

ffi::Any AttrCodec<Ints>::Encode(const Ints& value) {
  return ffi::Array<int64_t>(value.begin(), value.end());
}
std::optional<Ints> AttrCodec<Ints>::Decode(const ffi::Any& value) {
  if (auto one = AttrCodec<int64_t>::Decode(value)) return Ints{*one};
  auto list = value.try_cast<ffi::Array<ffi::Any>>();
  if (!list) return std::nullopt;
  Ints result;
  for (const ffi::Any& item : *list) {
    auto integer = AttrCodec<int64_t>::Decode(item);
    if (!integer) return std::nullopt;
    result.push_back(*integer);
  }
  return result;
}

ffi::Any AttrCodec<std::vector<double>>::Encode(const std::vector<double>& value) {
  return ffi::Array<double>(value.begin(), value.end());
}
std::optional<std::vector<double>> AttrCodec<std::vector<double>>::Decode(const ffi::Any& value) {
  if (auto one = AttrCodec<double>::Decode(value)) return std::vector<double>{*one};
  auto list = value.try_cast<ffi::Array<ffi::Any>>();
  if (!list) return std::nullopt;
  std::vector<double> result;
  for (const ffi::Any& item : *list) {
    auto number = AttrCodec<double>::Decode(item);
    if (!number) return std::nullopt;
    result.push_back(*number);
  }
  return result;
}

ffi::Any AttrCodec<ffi::Any>::Encode(const ffi::Any& value) { return value; }
std::optional<ffi::Any> AttrCodec<ffi::Any>::Decode(const ffi::Any& value) { return value; }

void FailAttr(const char* op, const AttrField& field, const ffi::Any& value) {
  std::string text = value.GetTypeKey();
  if (auto string = value.try_cast<ffi::String>()) text = "'" + std::string(*string) + "'";
  Fail(ErrorKind::kTypeError, op, ": attribute ", field.name, " must be ", Expected(field.type),
       std::strchr(field.type, '?') != nullptr ? " or None" : "", ", got ", text);
}

}  // namespace relaxvm::ops
