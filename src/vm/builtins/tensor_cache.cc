// SPDX-License-Identifier: Apache-2.0
// Tensors by name, for the whole process: parameters that are loaded once and shared by
// executables. A folder of them holds tensor-cache.json, which lists files and what lies where in
// each:
//   {"records": [{"dataPath": "params_shard_0.bin", "nbytes": 24, "records":
//     [{"name": "w", "shape": [2, 3], "dtype": "float32", "format": "raw", "byteOffset": 0,
//     "nbytes": 24}]}]}
#include <tvm/ffi/extra/json.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include "runtime/device.h"
#include "runtime/platform/library.h"
#include "support/dtype.h"
#include "vm/builtins/builtins.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

// Guards itself: any thread may call.
class TensorCache {
 public:
  static TensorCache& Global() {
    static TensorCache cache;
    return cache;
  }
  std::optional<ffi::Tensor> Get(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto at = tensors_.find(name);
    if (at == tensors_.end()) return std::nullopt;
    return at->second;
  }
  ffi::Tensor Need(const std::string& name) {
    auto tensor = Get(name);
    if (!tensor) {
      Fail(ErrorKind::kKeyError, "the tensor cache holds no '", name,
           "'; load it with vm.builtin.tensor_cache.load");
    }
    return *tensor;
  }
  void Set(const std::string& name, ffi::Tensor tensor, bool override_old) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!override_old && tensors_.count(name) != 0) {
      Fail(ErrorKind::kValueError, "the tensor cache holds '", name, "' already; pass override");
    }
    tensors_.insert_or_assign(name, std::move(tensor));
  }
  void Remove(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    tensors_.erase(name);
  }
  void Clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    tensors_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, ffi::Tensor> tensors_;
};

// ---- tensor-cache.json ----

// One object of the file; errors name the file and the key.
class Entry {
 public:
  Entry(const ffi::Any& value, const std::string& file) : file_(file) {
    auto object = value.as<ffi::json::Object>();
    if (!object) Wrong("an entry is no object");
    object_ = *object;
  }
  std::string Text(const char* key) const {
    auto text = At(key).try_cast<ffi::String>();
    if (!text) Wrong(std::string(key) + " must be a string");
    return std::string(*text);
  }
  int64_t Size(const char* key) const {
    auto size = At(key).try_cast<int64_t>();
    if (!size || *size < 0) Wrong(std::string(key) + " must be a size");
    return *size;
  }
  ffi::json::Array List(const char* key) const {
    auto list = At(key).as<ffi::json::Array>();
    if (!list) Wrong(std::string(key) + " must be a list");
    return *list;
  }
  std::vector<int64_t> Sizes(const char* key) const {
    std::vector<int64_t> sizes;
    for (const ffi::Any& item : List(key)) {
      auto size = item.try_cast<int64_t>();
      if (!size || *size < 0) Wrong(std::string(key) + " must be a list of sizes");
      sizes.push_back(*size);
    }
    return sizes;
  }
  [[noreturn]] void Wrong(const std::string& what) const {
    Fail(ErrorKind::kValueError, file_, ": ", what, "; write the folder again");
  }

 private:
  ffi::Any At(const char* key) const {
    auto at = object_.find(ffi::String(key));
    if (at == object_.end()) Wrong(std::string(key) + " is missing");
    return (*at).second;
  }

  const std::string& file_;
  ffi::json::Object object_;
};

// The upper halves of floats, as they are kept on disk.
void FloatsOfHalves(const char* from, int64_t count, char* to) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t upper;
    std::memcpy(&upper, from + 2 * i, 2);
    const uint32_t bits = static_cast<uint32_t>(upper) << 16;
    std::memcpy(to + 4 * i, &bits, 4);
  }
}

ffi::Tensor ReadTensor(const Entry& entry, std::string_view bytes) {
  const std::vector<int64_t> shape = entry.Sizes("shape");
  const DLDataType dtype = ParseDType(entry.Text("dtype"));
  const std::string format = entry.Text("format");
  const bool halves = format == "f32-to-bf16" && dtype == Float(32);
  if (!halves && format != "raw" && format != "f32-to-bf16") {
    entry.Wrong("the format " + format + " is unknown (raw and f32-to-bf16 are known)");
  }
  int64_t room = static_cast<int64_t>(bytes.size());
  for (int64_t size : shape) {
    // Sizes are bounded by the file before any memory is asked for.
    if (size > 0 && (room /= size) == 0) entry.Wrong("a shape is larger than its file");
  }
  ffi::ShapeView view(shape.data(), shape.size());
  const int64_t num_bytes = runtime::TensorBytes(view, dtype) / (halves ? 2 : 1);
  const int64_t offset = entry.Size("byteOffset");
  if (entry.Size("nbytes") != num_bytes || offset > static_cast<int64_t>(bytes.size()) ||
      num_bytes > static_cast<int64_t>(bytes.size()) - offset) {
    entry.Wrong("the place of " + entry.Text("name") + " is not inside its file");
  }
  ffi::Tensor tensor = runtime::EmptyHostTensor(view, dtype);
  char* data = static_cast<char*>(tensor.data_ptr());
  if (halves) {
    FloatsOfHalves(bytes.data() + offset, num_bytes / 2, data);
  } else if (num_bytes > 0) {
    std::memcpy(data, bytes.data() + offset, static_cast<size_t>(num_bytes));
  }
  return tensor;
}

// A file of the folder; paths that lead out of it are refused.
std::filesystem::path Inside(const std::filesystem::path& folder, const Entry& entry) {
  const std::filesystem::path relative(entry.Text("dataPath"));
  bool leaves = relative.is_absolute();
  for (const auto& part : relative) leaves = leaves || part == "..";
  if (leaves) entry.Wrong("dataPath leads out of the folder");
  return folder / relative;
}

ffi::Tensor OnDevice(const ffi::Tensor& tensor, DLDevice device) {
  auto pool = runtime::MemoryPool::Create(device, runtime::AllocatorKind::kNaive);
  ffi::Tensor copy = runtime::EmptyTensor(pool, tensor.shape(), tensor.dtype());
  runtime::CopyTensor(runtime::Raw(tensor), runtime::Raw(copy));
  return copy;
}

ffi::Array<ffi::Any> NamedArray(const std::vector<std::string>& names) {
  ffi::Array<ffi::Any> tensors;
  for (const std::string& name : names) tensors.push_back(TensorCache::Global().Need(name));
  return tensors;
}

}  // namespace

void TensorCacheGet(Args args, ffi::Any* result) {
  auto tensor = TensorCache::Global().Get(args.String(0));
  *result = tensor ? ffi::Any(*tensor) : ffi::Any(nullptr);
}

void TensorCacheUpdate(Args args, ffi::Any* result) {
  const bool override_old = args.size > 2 && args.Int(2) != 0;
  TensorCache::Global().Set(args.String(0), args.Tensor(1), override_old);
  *result = nullptr;
}

void TensorCacheRemove(Args args, ffi::Any* result) {
  TensorCache::Global().Remove(args.String(0));
  *result = nullptr;
}

void TensorCacheClear(Args, ffi::Any* result) {
  TensorCache::Global().Clear();
  *result = nullptr;
}

void TensorCacheLoad(Args args, ffi::Any* result) {
  const std::filesystem::path folder(args.String(0));
  const std::string file = (folder / "tensor-cache.json").string();
  const DLDevice device{static_cast<DLDeviceType>(args.Int(1)), static_cast<int32_t>(args.Int(2))};
  ffi::String problem;
  ffi::json::Value root =
      ffi::json::Parse(ffi::String(std::string(runtime::MappedFile(file).bytes())), &problem);
  if (!problem.empty()) Fail(ErrorKind::kValueError, file, ": ", std::string(problem));
  for (const ffi::Any& shard_value : Entry(root, file).List("records")) {
    const Entry shard(shard_value, file);
    runtime::MappedFile data(Inside(folder, shard).string());
    for (const ffi::Any& value : shard.List("records")) {
      const Entry entry(value, file);
      ffi::Tensor tensor = ReadTensor(entry, data.bytes());
      if (!runtime::IsHost(device)) tensor = OnDevice(tensor, device);
      TensorCache::Global().Set(entry.Text("name"), std::move(tensor), true);
    }
  }
  *result = nullptr;
}

void ParamArrayFromCache(Args args, ffi::Any* result) {
  const std::string prefix = args.String(0);
  const int64_t count = args.Int(1);
  ffi::Array<ffi::Any> tensors;
  for (int64_t i = 0; count < 0 || i < count; ++i) {
    const std::string name = prefix + "_" + std::to_string(i);
    if (count >= 0) {
      tensors.push_back(TensorCache::Global().Need(name));
      continue;
    }
    auto tensor = TensorCache::Global().Get(name);
    if (!tensor) break;
    tensors.push_back(*tensor);
  }
  *result = tensors;
}

void ParamArrayFromCacheByName(Args args, ffi::Any* result) {
  auto names = args.view(0).try_cast<ffi::Array<ffi::String>>();
  if (!names) args.WrongType(0, "an array of strings");
  *result = NamedArray({names->begin(), names->end()});
}

void ParamArrayFromCacheByNameUnpacked(Args args, ffi::Any* result) {
  std::vector<std::string> names;
  for (int32_t i = 0; i < args.size; ++i) names.push_back(args.String(i));
  *result = NamedArray(names);
}

}  // namespace relaxvm::vm::builtins
