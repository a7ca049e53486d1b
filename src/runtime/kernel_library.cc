// SPDX-License-Identifier: Apache-2.0
// Checks a kernel table before anything of it is called.
#include "runtime/kernel_library.h"

#include <tvm/ffi/function.h>

#include <bit>
#include <cstring>
#include <vector>

#include "runtime/device.h"
#include "runtime/kernel_context.h"
#include "runtime/kernel_launch.h"
#include "runtime/platform/cpus.h"
#include "runtime/tvm_host.h"
#include "support/error.h"

namespace relaxvm::runtime {
namespace ffi = tvm::ffi;
namespace {

constexpr int32_t kMaxKernels = 1 << 20;

// A function on a symbol of a library that it keeps alive.  A kernel with a direct entry runs where
// its tensors are.
class LibraryFunction : public ffi::FunctionObj {
 public:
  LibraryFunction(TVMFFISafeCallType entry, const RelaxvmKernelEntry* kernel,
                  ffi::ObjectPtr<KernelLibrary> library)
      : entry_(entry), kernel_(kernel), library_(std::move(library)) {
    safe_call = Call;
    cpp_call = nullptr;
  }

 private:
  static int Call(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
    const auto* function = static_cast<const LibraryFunction*>(self);
    if (function->kernel_ != nullptr) {
      for (int32_t i = 0; i < num_args; ++i) {
        if (IsElsewhere(args[i])) return function->CallElsewhere(args, num_args);
      }
    }
    return function->entry_(nullptr, args, num_args, result);
  }

  static const DLTensor* TensorOf(const TVMFFIAny& arg) {
    if (arg.type_index == kTVMFFIDLTensorPtr) return static_cast<const DLTensor*>(arg.v_ptr);
    if (arg.type_index != kTVMFFITensor) return nullptr;
    return reinterpret_cast<const DLTensor*>(reinterpret_cast<const char*>(arg.v_obj) +
                                             sizeof(TVMFFIObject));
  }

  // Not in the host's memory, where the packed entry runs at once.
  static bool IsElsewhere(const TVMFFIAny& arg) {
    const DLTensor* tensor = TensorOf(arg);
    return tensor != nullptr && !SameDevice(tensor->device, DLDevice{kDLCPU, 0});
  }

  int CallElsewhere(const TVMFFIAny* args, int32_t num_args) const {
    try {
      size_t num_params = std::strlen(kernel_->params);
      if (static_cast<size_t>(num_args) != num_params) {
        Fail(ErrorKind::kTypeError, kernel_->name, ": expected ", num_params, " arguments");
      }
      std::vector<const DLTensor*> tensors;
      std::vector<int64_t> scalars;
      for (size_t i = 0; i < num_params; ++i) {
        const TVMFFIAny& arg = args[i];
        bool is_int = arg.type_index == kTVMFFIInt || arg.type_index == kTVMFFIBool;
        if (kernel_->params[i] == 't') {
          tensors.push_back(TensorOf(arg));
          if (tensors.back() == nullptr) WrongArgument(i, "a tensor");
        } else if (kernel_->params[i] == 'i') {
          if (!is_int) WrongArgument(i, "an integer");
          scalars.push_back(arg.v_int64);
        } else {
          if (!is_int && arg.type_index != kTVMFFIFloat) WrongArgument(i, "a number");
          double number = is_int ? static_cast<double>(arg.v_int64) : arg.v_float64;
          scalars.push_back(std::bit_cast<int64_t>(number));
        }
      }
      // Its error slot is tvm-ffi's: set when this returns nonzero.
      return RunKernel(*kernel_, tensors, scalars, DefaultKernelContext(),
                       ffi::Module(ffi::ObjectPtr<ffi::ModuleObj>(library_)));
    } catch (const ffi::Error& error) {
      ffi::detail::SetSafeCallRaised(error);
      return -1;
    }
  }

  [[noreturn]] void WrongArgument(size_t i, const char* expected) const {
    Fail(ErrorKind::kTypeError, kernel_->name, ": argument ", i, " must be ", expected);
  }

  TVMFFISafeCallType entry_;
  const RelaxvmKernelEntry* kernel_;  // null for other symbols
  ffi::ObjectPtr<KernelLibrary> library_;
};

}  // namespace

KernelLibrary::KernelLibrary(const RelaxvmKernelTable* table, ffi::Any keep_alive,
                             const RelaxvmKernelContext** context_slot, const char* work)
    : keep_alive_(std::move(keep_alive)) {
  AdoptTable(table);
  if (work != nullptr) work_ = ParseWorkTable(work);
  if (context_slot != nullptr) *context_slot = DefaultKernelContext();
}

KernelLibrary::KernelLibrary(std::unique_ptr<SharedLibrary> library)
    : library_(std::move(library)) {
  if (void* table = library_->Symbol(kKernelTableSymbol))
    AdoptTable(static_cast<const RelaxvmKernelTable*>(table));
  work_ = ParseWorkTable(library_->SymbolBytes(kKernelWorkSymbol));
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

const KernelWork* KernelLibrary::FindWork(const std::string& name) const {
  auto it = work_.find(name);
  return it == work_.end() ? nullptr : &it->second;
}

void* KernelLibrary::Symbol(const std::string& name) const {
  return library_ != nullptr ? library_->Symbol(name) : nullptr;
}

ffi::Optional<ffi::Function> KernelLibrary::GetFunction(const ffi::String& name) {
  TVMFFISafeCallType entry = nullptr;
  const RelaxvmKernelEntry* kernel = nullptr;
  if (auto it = kernels_.find(std::string(name)); it != kernels_.end()) {
    entry = reinterpret_cast<TVMFFISafeCallType>(it->second->packed);
    kernel = FindKernel(it->first);
  } else if (library_ != nullptr) {
    entry = reinterpret_cast<TVMFFISafeCallType>(
        library_->Symbol(std::string(kPackedPrefix) + std::string(name)));
  }
  if (entry == nullptr) return std::nullopt;
  auto self = ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<KernelLibrary>(this);
  return ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<ffi::Function>(
      ffi::ObjectPtr<ffi::Object>(
          ffi::make_object<LibraryFunction>(entry, kernel, std::move(self))));
}

KernelLibraryPtr LoadKernelLibrary(const std::string& path) {
  return ffi::make_object<KernelLibrary>(std::make_unique<SharedLibrary>(path));
}

}  // namespace relaxvm::runtime
