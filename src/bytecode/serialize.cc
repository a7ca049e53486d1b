// SPDX-License-Identifier: Apache-2.0
// Writes and reads the byte format of executables.
#include "bytecode/serialize.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/string.h>

#include <cstdlib>

#include "bytecode/constants.h"
#include "support/byte_stream.h"
#include "support/dtype.h"
#include "support/hash.h"

namespace relaxvm::bytecode {
namespace ffi = tvm::ffi;
namespace {

// Bumped when the meaning of what we write changes; an older file stays readable while the number
// is known.
constexpr uint32_t kAbiVersion = 1;
constexpr uint32_t kAbiVersionApart = 2;              // files that have parts
constexpr uint64_t kPartsMagic = 0x504d5658414c4552;  // "RELAXVMP"
// In place of a constant's kind: its elements lie in the weights file.
constexpr int32_t kTensorApart = -70;
constexpr uint64_t kMaxWeightsBytes = uint64_t{1} << 48;
constexpr uint64_t kSmallestApart = 64;
// u64 magic, u32 ABI version, u32 reserved, u64 length of all before, u64 hash of all before and
// these four fields
constexpr size_t kOwnSectionBytes = 32;
constexpr size_t kMaxDims = 64;
// A piece of a file has its price, too.
constexpr uint64_t kSmallestBorrowed = 64 << 10;

void WriteDType(ByteWriter* out, DLDataType t) {
  out->Write<uint8_t>(t.code);
  out->Write<uint8_t>(t.bits);
  out->Write<uint16_t>(t.lanes);
}

DLDataType ReadDType(ByteReader* in) {
  DLDataType t;
  t.code = in->Read<uint8_t>("dtype code");
  t.bits = in->Read<uint8_t>("dtype bits");
  t.lanes = in->Read<uint16_t>("dtype lanes");
  return t;
}

// TVM counts whole bytes per element and leaves lanes out of the size.
uint64_t TensorBytes(DLDataType t, uint64_t num_elems) { return num_elems * ((t.bits + 7u) / 8u); }

bool FitsFormat(DLDataType t) { return t.lanes == 1 && t.bits % 8 == 0; }

void WriteTensor(ByteWriter* out, const ffi::Tensor& tensor) {
  DLDataType dtype = tensor.dtype();
  if (!FitsFormat(dtype)) {
    Fail(
        ErrorKind::kNotImplementedError, "a constant of dtype ", DTypeName(dtype),
        " cannot be saved: the file format has no packed or vector elements; save the weights in a "
        "file of their own, or view it as uint8");
  }
  out->Write<uint64_t>(kTensorMagic);
  out->Write<uint64_t>(0);
  out->Write<int32_t>(kDLCPU);
  out->Write<int32_t>(0);
  out->Write<int32_t>(tensor.ndim());
  WriteDType(out, dtype);
  for (int64_t dim : tensor.shape()) out->Write<int64_t>(dim);
  uint64_t num_bytes = TensorBytes(dtype, static_cast<uint64_t>(tensor.numel()));
  out->Write<int64_t>(static_cast<int64_t>(num_bytes));
  const std::string_view elements(
      static_cast<const char*>(tensor.data_ptr()) + tensor.byte_offset(), num_bytes);
  if (num_bytes < kSmallestBorrowed) {
    out->WriteRaw(elements.data(), num_bytes);
  } else {
    out->Borrow(elements);
  }
}

struct HostAlloc {
  void AllocData(DLTensor* tensor, size_t num_bytes) {
    tensor->data = std::aligned_alloc(64, (num_bytes + 63) / 64 * 64 + 64);
    if (tensor->data == nullptr)
      Fail(ErrorKind::kRuntimeError, "out of memory for a constant of ", num_bytes, " bytes");
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

ffi::Tensor ReadTensor(ByteReader* in, const ConstantReader& read) {
  if (in->Read<uint64_t>("tensor magic") != kTensorMagic)
    in->Damaged("tensor", ": no tensor starts here");
  in->Read<uint64_t>("tensor reserved");
  if (in->Read<int32_t>("tensor device type") != kDLCPU)
    in->Damaged("tensor", ": is not on the CPU");
  in->Read<int32_t>("tensor device");
  int32_t ndim = in->Read<int32_t>("tensor rank");
  if (ndim < 0 || static_cast<size_t>(ndim) > kMaxDims)
    in->Damaged("tensor rank", ": " + std::to_string(ndim));
  DLDataType dtype = ReadDType(in);
  if (dtype.lanes != 1 || dtype.bits == 0 || dtype.bits > 64 || dtype.code > 17)
    in->Damaged("tensor dtype", "");
  std::vector<int64_t> shape(ndim);
  // Bounds the product, so that neither it nor the size in bytes overflows.
  uint64_t num_elems = 1;
  bool is_empty = false;
  for (int64_t& dim : shape) {
    dim = in->Read<int64_t>("tensor shape");
    if (dim < 0) in->Damaged("tensor shape", ": negative dimension");
    is_empty |= dim == 0;
  }
  // An empty tensor has strides all the same.
  const uint64_t limit = is_empty ? uint64_t{1} << 62 : in->left();
  for (int64_t dim : shape) {
    uint64_t factor = is_empty && dim == 0 ? 1 : static_cast<uint64_t>(dim);
    if (factor > limit / num_elems + 1) in->Damaged("tensor shape", ": larger than the file");
    num_elems *= factor;
  }
  if (is_empty) num_elems = 0;
  uint64_t num_bytes = in->Read<uint64_t>("tensor size");
  if (num_bytes != TensorBytes(dtype, num_elems))
    in->Damaged("tensor size", ": does not agree with its shape");
  std::string_view data = in->Take(num_bytes, "tensor data");
  const ffi::ShapeView sizes(shape.data(), shape.size());
  if (read) return read(sizes, dtype, data);
  auto tensor = ffi::Tensor::FromNDAlloc(HostAlloc(), sizes, dtype, DLDevice{kDLCPU, 0},
                                         static_cast<size_t>(num_bytes));
  if (num_bytes > 0) std::memcpy(tensor.data_ptr(), data.data(), num_bytes);
  return tensor;
}

void WriteTensorApart(ByteWriter* out, const ffi::Tensor& tensor, const WeightsPlace& place) {
  out->Write<int32_t>(kTensorApart);
  WriteDType(out, tensor.dtype());
  out->Write<uint64_t>(static_cast<uint64_t>(tensor.ndim()));
  for (int64_t dim : tensor.shape()) out->Write<int64_t>(dim);
  out->Write<uint64_t>(place.offset);
}

// A constant that the weights file holds.
struct TensorApart {
  size_t constant;
  DLDataType dtype;
  std::vector<int64_t> shape;
  uint64_t offset;
  uint64_t num_bytes;
};

TensorApart ReadTensorApart(ByteReader* in, size_t constant) {
  TensorApart result{constant, ReadDType(in), in->ReadVector<int64_t>("tensor shape"), 0, 0};
  DLDataType t = result.dtype;
  if (t.lanes == 0 || t.bits == 0 || t.bits > 64 || t.code > 17) in->Damaged("tensor dtype", "");
  if (result.shape.size() > kMaxDims) in->Damaged("tensor rank", ": is too large");
  uint64_t num_elems = 1;
  for (int64_t dim : result.shape) {
    if (dim < 0 || (dim > 0 && num_elems > kMaxWeightsBytes / static_cast<uint64_t>(dim)))
      in->Damaged("tensor shape", ": is no shape of a weights file");
    num_elems *= static_cast<uint64_t>(dim);
  }
  result.num_bytes = static_cast<uint64_t>(SizeInBytes(t, static_cast<int64_t>(num_elems)));
  result.offset = in->Read<uint64_t>("tensor offset");
  if (result.offset < kWeightsHeaderBytes || result.offset % kWeightsAlignment != 0)
    in->Damaged("tensor offset", ": is not aligned");
  return result;
}

void WriteParts(ByteWriter* out, const Parts& parts) {
  out->Write<uint64_t>(kPartsMagic);
  out->WriteString(parts.weights);
  out->Write<uint64_t>(parts.weights_bytes);
  out->Write<uint64_t>(parts.weights_hash);
  out->WriteString(parts.kernels);
  out->Write<uint64_t>(parts.kernels_hash);
}

// A file name that stays in its folder.
std::string ReadFileName(ByteReader* in) {
  std::string name(in->ReadString("file name"));
  if (name.find('/') != std::string::npos || name.find('\0') != std::string::npos ||
      name.size() > 255) {
    in->Damaged("file name", ": names another folder");
  }
  return name;
}

Parts ReadParts(ByteReader* in) {
  in->Read<uint64_t>("parts");
  Parts parts;
  parts.weights = ReadFileName(in);
  parts.weights_bytes = in->Read<uint64_t>("weights length");
  parts.weights_hash = in->Read<uint64_t>("weights hash");
  parts.kernels = ReadFileName(in);
  parts.kernels_hash = in->Read<uint64_t>("kernels hash");
  return parts;
}

void WriteConstant(ByteWriter* out, const ffi::Any& value) {
  CheckConstant(value);
  if (auto tensor = value.as<ffi::Tensor>()) {
    out->Write<int32_t>(kTVMFFITensor);
    WriteTensor(out, *tensor);
  } else if (auto shape = value.as<ffi::Shape>()) {
    out->Write<int32_t>(kTVMFFIShape);
    out->Write<uint64_t>(shape->size());
    out->WriteRaw(shape->data(), shape->size() * sizeof(int64_t));
  } else if (auto text = value.as<ffi::String>()) {
    out->Write<int32_t>(kTVMFFIStr);
    out->WriteString(std::string_view(text->data(), text->size()));
  } else if (auto number = value.as<double>()) {
    out->Write<int32_t>(kTVMFFIFloat);
    out->Write<double>(*number);
  } else if (auto dtype = value.as<DLDataType>()) {
    out->Write<int32_t>(kTVMFFIDataType);
    WriteDType(out, *dtype);
  } else {
    out->Write<int32_t>(kTVMFFIInt);
    out->Write<int64_t>(value.cast<int64_t>());
  }
}

ffi::Any ReadConstant(ByteReader* in, const ConstantReader& read) {
  switch (in->Read<int32_t>("constant kind")) {
    case kTVMFFITensor: return ReadTensor(in, read);
    case kTVMFFIShape: return ffi::Shape(in->ReadVector<int64_t>("constant shape"));
    case kTVMFFISmallStr:
    case kTVMFFIStr: return ffi::String(std::string(in->ReadString("constant string")));
    case kTVMFFIInt: return in->Read<int64_t>("constant integer");
    case kTVMFFIFloat: return in->Read<double>("constant float");
    case kTVMFFIDataType: return ReadDType(in);
    default: in->Damaged("constant kind", ": is not known");
  }
}

void WriteFunction(ByteWriter* out, const FuncInfo& info) {
  out->Write<int32_t>(static_cast<int32_t>(info.kind));
  out->WriteString(info.name);
  out->Write<int64_t>(info.start_instr);
  out->Write<int64_t>(info.end_instr);
  out->Write<int64_t>(info.num_args);
  out->Write<int64_t>(info.register_file_size);
  out->Write<uint64_t>(info.param_names.size());
  for (const std::string& name : info.param_names) out->WriteString(name);
}

FuncInfo ReadFunction(ByteReader* in) {
  FuncInfo info;
  int32_t kind = in->Read<int32_t>("function kind");
  if (kind < 0 || kind > 2) in->Damaged("function kind", ": is not known");
  info.kind = static_cast<FuncKind>(kind);
  info.name = in->ReadString("function name");
  info.start_instr = in->Read<int64_t>("function start");
  info.end_instr = in->Read<int64_t>("function end");
  info.num_args = in->Read<int64_t>("function arity");
  info.register_file_size = in->Read<int64_t>("function registers");
  uint64_t num_names = in->ReadCount(sizeof(uint64_t), "parameter names");
  for (uint64_t i = 0; i < num_names; ++i)
    info.param_names.emplace_back(in->ReadString("parameter name"));
  return info;
}

// Nothing follows TVM's sections in TVM's files; in ours the own section does, and must be whole
// and right.
void CheckOwnSection(ByteReader* in, std::string_view all, bool is_checked) {
  if (in->left() == 0) return;
  std::string_view before = all.substr(0, in->position());
  if (in->left() != kOwnSectionBytes || in->Read<uint64_t>("own section") != kOwnSectionMagic) {
    in->Damaged("own section", ": unknown bytes follow the code");
  }
  uint32_t version = in->Read<uint32_t>("ABI version");
  in->Read<uint32_t>("reserved");
  uint64_t length = in->Read<uint64_t>("length");
  const uint64_t checksum = in->Read<uint64_t>("checksum");
  auto agrees = [&] {
    return checksum ==
           HashBytes(all.substr(before.size(), kOwnSectionBytes - 8), HashBytes(before));
  };
  if (length != before.size() || (!is_checked && !agrees()))
    in->Damaged("checksum", ": does not agree");
  if (version > kAbiVersionApart) {
    Fail(ErrorKind::kRuntimeError, "the executable has ABI version ", version,
         ", this relaxvm knows ", kAbiVersionApart, "; update relaxvm or export the model again");
  }
}

// The bytes of an executable.  `places` may be null: everything is in the file.
ByteWriter Write(const ExecutableData& data, const std::vector<WeightsPlace>* places,
                 const Parts& parts) {
  ByteWriter out;
  out.Write<uint64_t>(kExecutableMagic);
  out.WriteString(kExecutableVersion);
  out.Write<uint64_t>(data.func_table.size());
  for (const FuncInfo& info : data.func_table) WriteFunction(&out, info);
  out.Write<uint64_t>(data.memory_scopes.size());
  for (const auto& [constant, scope] : data.memory_scopes) {
    out.Write<int64_t>(constant);
    out.WriteString(scope);
  }
  out.Write<uint64_t>(data.constants.size());
  auto place = places != nullptr ? places->begin() : std::vector<WeightsPlace>::const_iterator{};
  for (size_t i = 0; i < data.constants.size(); ++i) {
    if (places != nullptr && place != places->end() && place->constant == static_cast<int64_t>(i)) {
      WriteTensorApart(&out, data.constants[i].cast<ffi::Tensor>(), *place++);
    } else {
      WriteConstant(&out, data.constants[i]);
    }
  }
  out.WriteVector(data.instr_offset);
  out.WriteVector(data.instr_data);
  if (places != nullptr) WriteParts(&out, parts);
  ByteWriter own;
  own.Write<uint64_t>(kOwnSectionMagic);
  own.Write<uint32_t>(places != nullptr ? kAbiVersionApart : kAbiVersion);
  own.Write<uint32_t>(0);
  own.Write<uint64_t>(out.size());
  HashStream hash;
  for (std::string_view piece : out.Pieces()) hash.Add(piece);
  own.Write<uint64_t>(HashBytes(own.Join(), hash.Finish()));
  out.Append(own);
  return out;
}

void ReadWeights(const std::vector<TensorApart>& tensors, const Parts& parts,
                 const WeightsOpener& open_weights, const ByteReader& in, ExecutableData* data) {
  if (tensors.empty()) return;
  if (parts.weights.empty()) in.Damaged("parts", ": name no weights file");
  for (const TensorApart& tensor : tensors) {
    if (tensor.num_bytes > parts.weights_bytes ||
        tensor.offset > parts.weights_bytes - tensor.num_bytes) {
      in.Damaged("tensor offset", ": lies behind the end of the weights file");
    }
  }
  WeightsReader read = open_weights(parts);
  for (const TensorApart& tensor : tensors) {
    data->constants[tensor.constant] =
        read({tensor.shape.data(), tensor.shape.size()}, tensor.dtype, tensor.offset);
  }
}

}  // namespace

ByteWriter Serialize(const ExecutableData& data) { return Write(data, nullptr, {}); }

ByteWriter SerializeApart(const ExecutableData& data, const std::vector<WeightsPlace>& places,
                          const Parts& parts) {
  return Write(data, &places, parts);
}

std::vector<WeightsPlace> PlanWeights(const ExecutableData& data) {
  std::vector<WeightsPlace> places;
  uint64_t offset = kWeightsHeaderBytes;
  for (size_t i = 0; i < data.constants.size(); ++i) {
    auto tensor = data.constants[i].as<ffi::Tensor>();
    if (!tensor) continue;
    auto num_bytes = static_cast<uint64_t>(SizeInBytes(tensor->dtype(), tensor->numel()));
    if (num_bytes < kSmallestApart && FitsFormat(tensor->dtype())) continue;
    places.push_back({static_cast<int64_t>(i), offset, num_bytes});
    offset += (num_bytes + kWeightsAlignment - 1) / kWeightsAlignment * kWeightsAlignment;
  }
  return places;
}

uint64_t WeightsFileBytes(const std::vector<WeightsPlace>& places) {
  if (places.empty()) return kWeightsHeaderBytes;
  const WeightsPlace& last = places.back();
  return last.offset +
         (last.num_bytes + kWeightsAlignment - 1) / kWeightsAlignment * kWeightsAlignment;
}

ExecutableData Deserialize(std::string_view bytes, const std::string& what) {
  return Deserialize(bytes, what, ConstantReader());
}

ExecutableData Deserialize(std::string_view bytes, const std::string& what,
                           const ConstantReader& read, bool is_checked) {
  Parts parts;
  auto refuse = [&](const Parts&) -> WeightsReader {
    Fail(ErrorKind::kValueError, what,
         " has its weights in another file; load it from the folder that holds both");
  };
  return Deserialize(bytes, what, refuse, &parts, read, is_checked);
}

ExecutableData Deserialize(std::string_view bytes, const std::string& what,
                           const WeightsOpener& open_weights, Parts* parts,
                           const ConstantReader& read, bool is_checked) {
  ByteReader in(bytes, what);
  uint64_t magic = in.Read<uint64_t>("magic");
  if (magic != kExecutableMagic && magic != kExecutableMagicV1) {
    Fail(ErrorKind::kValueError, what,
         " is no VM executable: it does not start with the magic number");
  }
  std::string_view version = in.ReadString("version");
  if (version != kExecutableVersion) {
    Fail(ErrorKind::kValueError, what, " has format version '", std::string(version.substr(0, 32)),
         "', expected '", kExecutableVersion, "'; export it again");
  }
  ExecutableData data;
  constexpr size_t kMinFunctionBytes = 4 + 8 + 4 * 8 + 8;
  uint64_t num_functions = in.ReadCount(kMinFunctionBytes, "function table");
  for (uint64_t i = 0; i < num_functions; ++i) {
    data.func_table.push_back(ReadFunction(&in));
    if (!data.func_index.emplace(data.func_table.back().name, static_cast<int64_t>(i)).second) {
      in.Damaged("function table", ": two functions named '" + data.func_table.back().name + "'");
    }
  }
  if (magic == kExecutableMagic) {
    uint64_t num_scopes = in.ReadCount(16, "memory scopes");
    for (uint64_t i = 0; i < num_scopes; ++i) {
      int64_t constant = in.Read<int64_t>("memory scope");
      data.memory_scopes[constant] = in.ReadString("memory scope");
    }
  }
  uint64_t num_constants = in.ReadCount(8, "constants");
  std::vector<TensorApart> apart;
  for (uint64_t i = 0; i < num_constants; ++i) {
    if (in.Peek<int32_t>() == kTensorApart) {
      in.Read<int32_t>("constant kind");
      apart.push_back(ReadTensorApart(&in, i));
      data.constants.emplace_back(nullptr);
    } else {
      data.constants.push_back(ReadConstant(&in, read));
    }
  }
  data.instr_offset = in.ReadVector<int64_t>("instruction offsets");
  data.instr_data = in.ReadVector<int64_t>("instruction words");
  if (in.Peek<uint64_t>() == kPartsMagic) {
    *parts = ReadParts(&in);
    if (in.left() == 0) in.Damaged("own section", ": is missing");
  }
  CheckOwnSection(&in, bytes, is_checked);
  ReadWeights(apart, *parts, open_weights, in, &data);
  return data;
}

std::string PackContainer(const std::vector<ContainerItem>& items) {
  std::vector<uint64_t> row_start = {0}, children;
  for (const ContainerItem& item : items) {
    children.insert(children.end(), item.children.begin(), item.children.end());
    row_start.push_back(children.size());
  }
  ByteWriter body;
  body.WriteVector(row_start);
  body.WriteVector(children);
  for (const ContainerItem& item : items) {
    body.WriteString(item.kind);
    if (item.kind != "_lib") body.WriteString(item.bytes);
  }
  ByteWriter out;
  out.WriteString(body.Join());
  return out.Join();
}

std::vector<ContainerItem> UnpackContainer(std::string_view bytes, const std::string& what) {
  ByteReader outer(bytes, what);
  ByteReader in(outer.ReadString("container"), what);
  std::vector<uint64_t> row_start = in.ReadVector<uint64_t>("import tree");
  std::vector<uint64_t> children = in.ReadVector<uint64_t>("import tree");
  if (row_start.size() < 2 || row_start.front() != 0 || row_start.back() != children.size()) {
    in.Damaged("import tree", ": is not well formed");
  }
  size_t num_items = row_start.size() - 1;
  if (num_items > in.left() / sizeof(uint64_t))
    in.Damaged("import tree", ": counts more modules than there are bytes");
  std::vector<ContainerItem> items(num_items);
  for (size_t i = 0; i < num_items; ++i) {
    items[i].kind = in.ReadString("module kind");
    if (items[i].kind != "_lib") items[i].bytes = in.ReadString("module");
    if (row_start[i] > row_start[i + 1] || row_start[i + 1] > children.size())
      in.Damaged("import tree", ": is not sorted");
    items[i].children.assign(children.begin() + row_start[i], children.begin() + row_start[i + 1]);
    for (uint64_t child : items[i].children) {
      // A child after its parent: no cycle can be written.
      if (child <= i || child >= num_items)
        in.Damaged("import tree", ": names a module that cannot be imported");
    }
  }
  return items;
}

// PackContainer({{kExecutableKind, Serialize(data), {1}}, {"_lib", "", {}}}), with the weights
// borrowed.
ByteWriter PackExecutable(const ExecutableData& data) {
  const ByteWriter executable = Serialize(data);
  ByteWriter body;
  body.WriteVector(std::vector<uint64_t>{0, 1, 1});
  body.WriteVector(std::vector<uint64_t>{1});
  body.WriteString(kExecutableKind);
  body.Write<uint64_t>(executable.size());
  body.Append(executable);
  body.WriteString("_lib");
  ByteWriter out;
  out.Write<uint64_t>(body.size());
  out.Append(body);
  return out;
}

}  // namespace relaxvm::bytecode
