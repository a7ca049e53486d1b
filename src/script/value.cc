// SPDX-License-Identifier: Apache-2.0
// Attribute values and constants as script.
#include <cstring>

#include "ir/node_kind.h"
#include "script/printer.h"

namespace relaxvm::script {

namespace {

constexpr int64_t kMaxInlineElems = 16;  // larger constants stand in the metadata
constexpr const char* kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int64_t NumElems(const ffi::Tensor& data) {
  int64_t n = 1;
  for (int64_t d : data.shape()) n *= d;
  return n;
}

// Element `i` as a Python literal; "" when the literal would not give the same bits.
std::string Element(const ffi::Tensor& data, int64_t i) {
  const DLDataType dtype = data.dtype();
  const char* p = static_cast<const char*>(data.data_ptr()) + i * (dtype.bits / 8);
  auto read = [p](auto value) {
    std::memcpy(&value, p, sizeof(value));
    return value;
  };
  auto floating = [](double v) {
    uint64_t bits;
    std::memcpy(&bits, &v, sizeof(bits));
    return v != v && bits != 0x7ff8000000000000ULL ? std::string() : FloatText(v);
  };
  if (dtype == Bool()) return read(uint8_t{}) ? "True" : "False";
  if (dtype == Float(32)) return floating(read(float{}));
  if (dtype == Float(64)) return floating(read(double{}));
  if (dtype == Int(8)) return std::to_string(read(int8_t{}));
  if (dtype == Int(16)) return std::to_string(read(int16_t{}));
  if (dtype == Int(32)) return std::to_string(read(int32_t{}));
  if (dtype == Int(64)) return std::to_string(read(int64_t{}));
  if (dtype == UInt(8)) return std::to_string(read(uint8_t{}));
  if (dtype == UInt(16)) return std::to_string(read(uint16_t{}));
  if (dtype == UInt(32)) return std::to_string(read(uint32_t{}));
  if (dtype == UInt(64)) return std::to_string(read(uint64_t{}));
  return "";
}

// A nested list over dimensions from `axis`; false when an element has no literal.
bool NestedList(const ffi::Tensor& data, int axis, int64_t* next, std::string* out) {
  if (axis == data.ndim()) {
    std::string element = Element(data, (*next)++);
    *out += element;
    return !element.empty();
  }
  *out += "[";
  for (int64_t i = 0; i < data.size(axis); ++i) {
    if (i != 0) *out += ", ";
    if (!NestedList(data, axis + 1, next, out)) return false;
  }
  *out += "]";
  return true;
}

}  // namespace

std::string Quoted(std::string_view text) {
  constexpr const char* kHex = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += std::string("\\x") + kHex[(c >> 4) & 15] + kHex[c & 15];
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string EncodeTensor(const ffi::Tensor& data) {
  const size_t size = static_cast<size_t>(SizeInBytes(data.dtype(), NumElems(data)));
  const auto* p = static_cast<const uint8_t*>(data.data_ptr());
  std::string out;
  out.reserve((size + 2) / 3 * 4);
  for (size_t i = 0; i < size; i += 3) {
    const size_t n = std::min<size_t>(3, size - i);
    const uint32_t v = p[i] << 16 | (n > 1 ? p[i + 1] << 8 : 0) | (n > 2 ? p[i + 2] : 0);
    out += kAlphabet[v >> 18];
    out += kAlphabet[v >> 12 & 63];
    out += n > 1 ? kAlphabet[v >> 6 & 63] : '=';
    out += n > 2 ? kAlphabet[v & 63] : '=';
  }
  return out;
}

void DecodeTensor(const std::string& text, const ffi::Tensor& data) {
  const size_t size = static_cast<size_t>(SizeInBytes(data.dtype(), NumElems(data)));
  if (text.size() != (size + 2) / 3 * 4) {
    Fail(ErrorKind::kValueError, "metadata: a constant of ", size, " bytes is written with ",
         text.size(), " characters; it is cut off or belongs to another shape");
  }
  auto digit = [](char c) -> uint32_t {
    if (c == '=') return 0;
    const char* at = c == '\0' ? nullptr : std::strchr(kAlphabet, c);
    if (at == nullptr) {
      Fail(ErrorKind::kValueError, "metadata: '", c, "' is no base64 character");
    }
    return static_cast<uint32_t>(at - kAlphabet);
  };
  auto* p = static_cast<uint8_t*>(data.data_ptr());
  for (size_t i = 0, k = 0; i < text.size(); i += 4) {
    const uint32_t v = digit(text[i]) << 18 | digit(text[i + 1]) << 12 | digit(text[i + 2]) << 6 |
                       digit(text[i + 3]);
    for (int shift = 16; shift >= 0 && k < size; shift -= 8)
      p[k++] = static_cast<uint8_t>(v >> shift);
  }
}

std::string Printer::ConstantValue(const ffi::Tensor& data) {
  if (data.device().device_type == kDLCPU && data.IsContiguous() &&
      NumElems(data) <= kMaxInlineElems) {
    std::string list;
    int64_t next = 0;
    // A list with an empty dimension has lost the dimensions behind it.
    const bool whole = NumElems(data) > 0 || data.ndim() == 1;
    if (whole && NestedList(data, 0, &next, &list)) {
      return "R.const(" + list + ", " + Quoted(DTypeName(data.dtype())) + ")";
    }
  }
  auto [it, fresh] = large_index_.emplace(data.data_ptr(), large_.size());
  if (fresh) large_.push_back(data);
  return "metadata[\"relax.expr.Constant\"][" + std::to_string(it->second) + "]";
}

std::string Printer::Metadata() const {
  if (large_.empty()) return "";
  if (!options_.show_meta) {
    return "# " + std::to_string(large_.size()) +
           " large constants are left out; print with show_meta=True to have them.\n";
  }
  std::string text = "metadata = I.metadata({\"relax.expr.Constant\": [\n";
  for (const ffi::Tensor& data : large_) {
    std::vector<std::string> dims;
    for (int64_t d : data.shape()) dims.push_back(std::to_string(d));
    text += "    (" + Quoted(DTypeName(data.dtype())) + ", [" + Join(dims) + "], \"" +
            EncodeTensor(data) + "\"),\n";
  }
  return text + "]})\n";
}

std::string Printer::Dictionary(const ir::DictAttrs& attrs,
                                const std::unordered_set<std::string>& without) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : attrs) {
    const std::string name(key);
    if (!without.count(name)) parts.push_back(Quoted(name) + ": " + AnyValue(value));
  }
  return "{" + Join(parts) + "}";
}

std::string Printer::MapText(const tir::IndexMap& map) {
  std::vector<std::string> names, places;
  for (const Var& v : map->initial_indices) names.push_back(Define(v.get(), v->name));
  for (const Expr& e : map->final_indices) places.push_back(Scalar(e));
  const std::string lambda = std::string(names.empty() ? "lambda" : "lambda ") + Join(names);
  std::string text =
      "T.index_map(" + lambda + ": (" + Join(places) + (places.size() == 1 ? ",)" : ")");
  if (!names.empty() && map->initial_indices[0].dtype() != Int(64))
    text += ", index_dtype=" + Quoted(DTypeName(map->initial_indices[0].dtype()));
  return text + ")";
}

std::string Printer::AnyValue(const ffi::Any& value) {
  switch (value.type_index()) {
    case ffi::TypeIndex::kTVMFFINone: return "None";
    case ffi::TypeIndex::kTVMFFIBool: return value.cast<bool>() ? "True" : "False";
    case ffi::TypeIndex::kTVMFFIInt: return std::to_string(value.cast<int64_t>());
    case ffi::TypeIndex::kTVMFFIFloat: return FloatText(value.cast<double>());
    case ffi::TypeIndex::kTVMFFIDataType:
      return "I.dtype(" + Quoted(DTypeName(value.cast<DLDataType>())) + ")";
    default: break;
  }
  if (auto text = value.as<ffi::String>()) {
    return Quoted(std::string_view(text->data(), text->size()));
  }
  if (auto list = value.as<ffi::Array<ffi::Any>>()) {
    std::vector<std::string> parts;
    for (const ffi::Any& v : *list) parts.push_back(AnyValue(v));
    return "[" + Join(parts) + "]";
  }
  if (auto map = value.as<ffi::Map<ffi::Any, ffi::Any>>()) {
    std::vector<std::string> parts;
    for (const auto& [k, v] : *map) parts.push_back(AnyValue(k) + ": " + AnyValue(v));
    return "{" + Join(parts) + "}";
  }
  if (auto shape = value.as<ffi::Shape>()) {
    std::vector<std::string> parts;
    for (int64_t v : *shape) parts.push_back(std::to_string(v));
    return "I.Shape([" + Join(parts) + "])";
  }
  if (auto type = value.as<Type>()) return TypeText(*type);
  if (auto device = value.as<ir::VDevice>()) return DeviceText(*device);
  if (auto map = value.as<tir::IndexMap>()) return MapText(*map);
  if (auto e = value.as<Expr>()) {
    if (const auto* imm = e->as<ir::IntImmObj>(); imm != nullptr && !IsBool(e->dtype())) {
      return "T." + DTypeName(e->dtype()) + "(" + std::to_string(imm->value) + ")";
    }
    if (const auto* imm = e->as<ir::FloatImmObj>()) {
      return "T." + DTypeName(e->dtype()) + "(" + FloatText(imm->value) + ")";
    }
    return Value(*e);
  }
  return "I.unprintable(" + Quoted(value.GetTypeKey()) + ")";
}

}  // namespace relaxvm::script
