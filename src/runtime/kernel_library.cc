// SPDX-License-Identifier: Apache-2.0
// Checks a kernel table before anything of it is called.
#include "runtime/kernel_library.h"

#include <tvm/ffi/function.h>

#include <cstring>

#include "runtime/kernel_context.h"
#include "runtime/platform/cpus.h"
#include "runtime/tvm_host.h"
#include "support/error.h"

namespace relaxvm::runtime {
namespace ffi = tvm::ffi;
namespace {

constexpr int32_t kMaxKernels = 1 << 20;

// A function on a symbol of a library that it keeps alive.
class LibraryFunction : public ffi::FunctionObj {
 public:
  LibraryFunction(TVMFFISafeCallType entry, ffi::ObjectPtr<KernelLibrary> library)
      : entry_(entry), library_(std::move(library)) {
    safe_call = Call;
    cpp_call = nullptr;
  }

 private:
  static int Call(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
    return static_cast<LibraryFunction*>(self)->entry_(nullptr, args, num_args, result);
  }
  TVMFFISafeCallType entry_;
  ffi::ObjectPtr<KernelLibrary> library_;
};

}  // namespace

KernelLibrary::KernelLibrary(const RelaxvmKernelTable* table, ffi::Any keep_alive,
                             const RelaxvmKernelContext** context_slot)
    : keep_alive_(std::move(keep_alive)) {
  AdoptTable(table);
  if (context_slot != nullptr) *context_slot = DefaultKernelContext();
}

KernelLibrary::KernelLibrary(std::unique_ptr<SharedLibrary> library)
    : library_(std::move(library)) {
  if (void* table = library_->Symbol(kKernelTableSymbol))
    AdoptTable(static_cast<const RelaxvmKernelTable*>(table));
  if (void* slot = library_->Symbol(kKernelContextSymbol)) {
    *static_cast<const RelaxvmKernelContext**>(slot) = DefaultKernelContext();
  }
  FillTvmSlots(*library_, static_cast<ffi::ModuleObj*>(this));
}

void KernelLibrary::AdoptTable(const RelaxvmKernelTable* table) {
  std::string where = library_ != nullptr ? library_->path() : "the kernel table";
  if (table->abi_version != kKernelAbiVersion) {
    Fail(ErrorKind::kRuntimeError, where, " was compiled for kernel ABI ", table->abi_version,
         ", this relaxvm has ", kKernelAbiVersion, "; compile the model again");
  }
  if (table->num_kernels < 0 || table->num_kernels > kMaxKernels) {
    Fail(ErrorKind::kValueError, where, " is damaged: it counts ", table->num_kernels, " kernels");
  }
  if (table->cpu_features != nullptr) {
    std::vector<std::string> missing = MissingCpuFeatures(table->cpu_features);
    if (!missing.empty()) {
      std::string list;
      for (const std::string& name : missing) list += (list.empty() ? "" : ", ") + name;
      Fail(ErrorKind::kRuntimeError, where, " was compiled for the CPU ",
           table->cpu != nullptr ? table->cpu : "?", "; this machine lacks ", list,
           ": compile the model with target=\"llvm -mcpu=...\" for this machine");
    }
  }
  for (int32_t i = 0; i < table->num_kernels; ++i) {
    const RelaxvmKernelEntry* entry = &table->kernels[i];
    bool is_whole = entry->name != nullptr && entry->params != nullptr &&
                    entry->direct != nullptr && entry->packed != nullptr;
    if (!is_whole) Fail(ErrorKind::kValueError, where, " is damaged: kernel ", i, " is not whole");
    kernels_.emplace(entry->name, entry);
  }
}

const RelaxvmKernelEntry* KernelLibrary::FindKernel(const std::string& name) const {
  auto it = kernels_.find(name);
  if (it == kernels_.end() || it->second->direct == nullptr) return nullptr;
  return it->second->params[0] == kNativeParams[0] ? nullptr : it->second;
}

RelaxvmNative KernelLibrary::FindNative(const std::string& name) const {
  auto it = kernels_.find(name);
  if (it == kernels_.end() || it->second->params[0] != kNativeParams[0]) return nullptr;
  if (std::strcmp(it->second->params, kNativeParams) != 0) {
    Fail(ErrorKind::kRuntimeError, "the compiled function ", name,
         " is of another version of relaxvm; compile the model again");
  }
  // A row of this kind holds another type of function.
  return reinterpret_cast<RelaxvmNative>(reinterpret_cast<void*>(it->second->direct));
}

void* KernelLibrary::Symbol(const std::string& name) const {
  return library_ != nullptr ? library_->Symbol(name) : nullptr;
}

ffi::Optional<ffi::Function> KernelLibrary::GetFunction(const ffi::String& name) {
  TVMFFISafeCallType entry = nullptr;
  if (auto it = kernels_.find(std::string(name)); it != kernels_.end()) {
    entry = reinterpret_cast<TVMFFISafeCallType>(it->second->packed);
  } else if (library_ != nullptr) {
    entry = reinterpret_cast<TVMFFISafeCallType>(
        library_->Symbol(std::string(kPackedPrefix) + std::string(name)));
  }
  if (entry == nullptr) return std::nullopt;
  auto self = ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<KernelLibrary>(this);
  return ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<ffi::Function>(
      ffi::ObjectPtr<ffi::Object>(ffi::make_object<LibraryFunction>(entry, std::move(self))));
}

KernelLibraryPtr LoadKernelLibrary(const std::string& path) {
  return ffi::make_object<KernelLibrary>(std::make_unique<SharedLibrary>(path));
}

}  // namespace relaxvm::runtime
