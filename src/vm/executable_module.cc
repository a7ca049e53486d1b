// SPDX-License-Identifier: Apache-2.0
// Executables: verification, look-ups, loading from files.
#include "vm/executable_module.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include "bytecode/disassemble.h"
#include "bytecode/serialize.h"
#include "bytecode/verify.h"
#include "runtime/constant_arena.h"
#include "runtime/kernel_context.h"
#include "runtime/platform/library.h"
#include "runtime/platform/memory.h"
#include "runtime/tensor.h"
#include "runtime/weights_file.h"
#include "support/error.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;

ExecutableModule::ExecutableModule(bytecode::ExecutableData data, const std::string& what) {
  bytecode::Verify(data, what);
  data_ = std::make_shared<const bytecode::ExecutableData>(std::move(data));
}

ExecutableModule* ExecutableModule::From(const ffi::Module& module) {
  return dynamic_cast<ExecutableModule*>(const_cast<ffi::ModuleObj*>(module.operator->()));
}

ffi::Optional<ffi::Function> ExecutableModule::GetFunction(const ffi::String& name) {
  // Functions keep the module alive.
  auto self = ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<ExecutableModule>(this);
  if (name == "as_text")
    return ffi::Function::FromTyped([self] { return ffi::String(bytecode::AsText(self->data())); });
  if (name == "as_python")
    return ffi::Function::FromTyped(
        [self] { return ffi::String(bytecode::AsPython(self->data())); });
  if (name == "stats")
    return ffi::Function::FromTyped([self] { return ffi::String(bytecode::Stats(self->data())); });
  if (name == "has_function") {
    return ffi::Function::FromTyped([self](ffi::String function) {
      const bytecode::FuncInfo* info = self->data().FindFunction(std::string(function));
      return info != nullptr && info->kind != bytecode::FuncKind::kPackedFunc;
    });
  }
  if (name == "get_constant") {
    return ffi::Function::FromTyped([self](int64_t index) {
      if (index < 0 || static_cast<size_t>(index) >= self->data().constants.size()) {
        Fail(ErrorKind::kIndexError, "constant ", index, " of ", self->data().constants.size());
      }
      return self->data().constants[static_cast<size_t>(index)];
    });
  }
  if (name == "function_names") {
    return ffi::Function::FromTyped([self] {
      ffi::Array<ffi::String> names;
      for (const bytecode::FuncInfo& info : self->data().func_table) {
        if (info.kind != bytecode::FuncKind::kPackedFunc) names.push_back(info.name);
      }
      return names;
    });
  }
  return std::nullopt;
}

ffi::Bytes ExecutableModule::SaveToBytes() const {
  return ffi::Bytes(bytecode::Serialize(*data_).Join());
}

namespace {

// Depth first over imports, each module once.
template <typename Visit>
bool VisitImports(const ffi::ModuleObj* module, const Visit& visit, int depth = 0) {
  constexpr int kMaxDepth = 64;
  if (depth > kMaxDepth)
    Fail(ErrorKind::kValueError, "modules import each other more than ", kMaxDepth, " deep");
  for (const ffi::Any& any : module->imports()) {
    ffi::Module import = any.cast<ffi::Module>();
    auto* object = const_cast<ffi::ModuleObj*>(import.operator->());
    if (visit(object) || VisitImports(object, visit, depth + 1)) return true;
  }
  return false;
}

}  // namespace

const RelaxvmKernelEntry* ExecutableModule::FindKernel(const std::string& name) const {
  const RelaxvmKernelEntry* result = nullptr;
  VisitImports(this, [&](ffi::ModuleObj* module) {
    if (auto* library = dynamic_cast<runtime::KernelLibrary*>(module))
      result = library->FindKernel(name);
    // The first module that has the function is the one that FindImport takes.
    return result != nullptr || module->GetFunction(name).has_value();
  });
  return result;
}

RelaxvmNative ExecutableModule::FindNative(const std::string& name) const {
  RelaxvmNative result = nullptr;
  VisitImports(this, [&](ffi::ModuleObj* module) {
    if (auto* library = dynamic_cast<runtime::KernelLibrary*>(module))
      result = library->FindNative(name);
    return result != nullptr;
  });
  return result;
}

const runtime::KernelWork* ExecutableModule::FindWork(const std::string& name) const {
  const runtime::KernelWork* result = nullptr;
  VisitImports(this, [&](ffi::ModuleObj* module) {
    if (auto* library = dynamic_cast<runtime::KernelLibrary*>(module))
      result = library->FindWork(name);
    return result != nullptr;
  });
  return result;
}

std::optional<ffi::Function> ExecutableModule::FindImport(const std::string& name) const {
  std::optional<ffi::Function> result;
  VisitImports(this, [&](ffi::ModuleObj* module) {
    if (auto function = module->GetFunction(name)) result = *function;
    return result.has_value();
  });
  return result;
}

ffi::Module LinkExecutable(bytecode::ExecutableData data, const KernelTableRef& kernels,
                           const ffi::Array<ffi::Module>& imports) {
  auto executable = ffi::make_object<ExecutableModule>(std::move(data), "the compiled executable");
  if (kernels.table != nullptr) {
    auto library = ffi::make_object<runtime::KernelLibrary>(kernels.table, kernels.keep_alive,
                                                            kernels.context_slot, kernels.work);
    executable->ImportModule(ffi::Module(ffi::ObjectPtr<ffi::ModuleObj>(library)));
  }
  for (const ffi::Module& import : imports) executable->ImportModule(import);
  return ffi::Module(ffi::ObjectPtr<ffi::ModuleObj>(executable));
}

const bytecode::ExecutableData& ExecutableDataOf(const ffi::Module& module) {
  ExecutableModule* executable = ExecutableModule::From(module);
  if (executable == nullptr)
    Fail(ErrorKind::kTypeError, "a module of kind '", module->kind(), "' is no VM executable");
  return executable->data();
}

std::string FileOfLibrary(const ffi::Module& library) {
  const auto* kernels = dynamic_cast<const runtime::KernelLibrary*>(library.operator->());
  return kernels == nullptr || kernels->library() == nullptr ? "" : kernels->library()->path();
}

bool HasImport(const ffi::Module& executable, const std::string& name) {
  ExecutableDataOf(executable);  // refuses what is none
  return ExecutableModule::From(executable)->FindImport(name).has_value();
}

ffi::Any RunOnce(const ffi::Module& executable, const std::string& function,
                 const std::vector<ffi::Any>& args) {
  ExecutableDataOf(executable);  // refuses what is none
  auto vm =
      VirtualMachine::Create(ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<ExecutableModule>(
                                 ExecutableModule::From(executable)),
                             {{DLDevice{kDLCPU, 0}, runtime::AllocatorKind::kNaive}});
  auto entry = vm->FindFunction(function);
  if (!entry) Fail(ErrorKind::kRuntimeError, "the executable has no function ", function);
  std::vector<ffi::AnyView> views(args.begin(), args.end());
  ffi::Any result;
  entry.value().CallPacked(views.data(), static_cast<int32_t>(views.size()), &result);
  return result;
}

namespace {

// Constants of `bytes`, a range of `pages`, go into one block of memory: with huge pages a kernel
// that reads its weights once runs half as fast again as on small ones.
bytecode::ExecutableData ReadExecutable(std::string_view bytes, const runtime::FilePages& pages,
                                        const std::string& path, bool is_checked) {
  auto arena = ffi::make_object<runtime::ConstantArenaObj>(bytes.size());
  std::vector<runtime::ConstantCopy> copies;
  auto read = [&](ffi::ShapeView shape, DLDataType dtype, std::string_view data) {
    ffi::Tensor tensor = runtime::AllocConstant(arena, shape, dtype, data.size());
    copies.push_back({static_cast<char*>(tensor.data_ptr()), data});
    return tensor;
  };
  bytecode::ExecutableData data = bytecode::Deserialize(bytes, path, read, is_checked);
  runtime::CopyConstants(copies, pages, runtime::DefaultNumThreads());
  return data;
}

ffi::Module FromLibrary(const std::string& path) {
  auto library = std::make_unique<runtime::SharedLibrary>(path);
  std::string_view bytes = library->SymbolBytes(bytecode::kLibraryBinSymbol);
  const bool is_sealed = library->is_sealed();
  std::vector<bytecode::ContainerItem> items;
  if (!bytes.empty()) items = bytecode::UnpackContainer(bytes, path);
  auto kernels = ffi::make_object<runtime::KernelLibrary>(std::move(library));
  ffi::Module kernel_module{ffi::ObjectPtr<ffi::ModuleObj>(kernels)};
  if (items.empty()) return kernel_module;
  const runtime::FilePages pages(bytes);
  std::vector<ffi::Module> modules;
  for (const bytecode::ContainerItem& item : items) {
    if (item.kind == "_lib") {
      modules.push_back(kernel_module);
    } else if (item.kind == bytecode::kExecutableKind) {
      auto executable = ffi::make_object<ExecutableModule>(
          ReadExecutable(item.bytes, pages, path, is_sealed), path);
      modules.push_back(ffi::Module(ffi::ObjectPtr<ffi::ModuleObj>(executable)));
    } else {
      Fail(ErrorKind::kValueError, path, " holds a module of kind '", item.kind,
           "', which relaxvm cannot load");
    }
  }
  for (size_t i = 0; i < items.size(); ++i) {
    for (uint64_t child : items[i].children) {
      const_cast<ffi::ModuleObj*>(modules[i].operator->())->ImportModule(modules[child]);
    }
  }
  return modules[0];
}

}  // namespace

namespace {

static_assert(bytecode::kWeightsHeaderBytes == runtime::kWeightsHeaderBytes &&
              bytecode::kWeightsAlignment % runtime::kWeightsAlignment == 0);

std::string Beside(const std::string& path, const std::string& name) {
  return (std::filesystem::path(path).parent_path() / name).string();
}

// The bytes of an executable, and the parts that lie apart.
ffi::Module FromBytes(std::string_view bytes, const std::string& path, const OpenOptions& options) {
  auto open_weights = [&](const bytecode::Parts& parts) -> bytecode::WeightsReader {
    auto file = runtime::WeightsFile::Open(
        options.weights.empty() ? Beside(path, parts.weights) : options.weights,
        parts.weights_bytes, parts.weights_hash, options.verify_weights);
    return [file](ffi::ShapeView shape, DLDataType dtype, uint64_t offset) {
      return file.At(offset, shape, dtype);
    };
  };
  bytecode::Parts parts;
  auto executable = ffi::make_object<ExecutableModule>(
      bytecode::Deserialize(bytes, path, open_weights, &parts), path);
  // Kernels that the caller names may be others, made for another machine.
  std::string kernels = options.kernels;
  if (kernels.empty() && !parts.kernels.empty()) {
    kernels = Beside(path, parts.kernels);
    if (runtime::SealOfSharedLibrary(kernels) != parts.kernels_hash) {
      Fail(ErrorKind::kValueError, kernels, " belongs to another model than ", path,
           "; save both again");
    }
  }
  if (!kernels.empty()) {
    executable->ImportModule(
        ffi::Module(ffi::ObjectPtr<ffi::ModuleObj>(ffi::make_object<runtime::KernelLibrary>(
            std::make_unique<runtime::SharedLibrary>(kernels)))));
  }
  return ffi::Module(ffi::ObjectPtr<ffi::ModuleObj>(executable));
}

}  // namespace

ffi::Module LoadExecutable(const std::string& path, const OpenOptions& options) {
  {
    runtime::MappedFile file(path);
    uint64_t magic = 0;
    if (file.bytes().size() >= 8) std::memcpy(&magic, file.bytes().data(), 8);
    if (magic == bytecode::kExecutableMagic || magic == bytecode::kExecutableMagicV1)
      return FromBytes(file.bytes(), path, options);
    constexpr std::string_view kElf = "\x7f\x45\x4c\x46";
    if (!file.bytes().starts_with(kElf)) {
      Fail(ErrorKind::kValueError, path,
           " is neither a shared library nor a VM executable; export the model again");
    }
  }
  if (!options.weights.empty() || !options.kernels.empty()) {
    Fail(ErrorKind::kValueError, path,
         " is a library, which has its weights and kernels inside: give no other files");
  }
  return FromLibrary(path);
}

void SaveExecutable(const ffi::Module& executable, const std::string& path,
                    const SaveOptions& options) {
  const bytecode::ExecutableData& data = ExecutableDataOf(executable);
  for (const std::string& name : {options.weights, options.kernels}) {
    if (name.find('/') != std::string::npos)
      Fail(ErrorKind::kValueError, "save: ", name, " must lie beside ", path, ": give a file name");
  }
  bytecode::Parts parts;
  std::vector<bytecode::WeightsPlace> places;
  std::vector<std::string> partial;
  auto finish = [&](const std::string& target) {
    std::filesystem::rename(target + ".partial", target);
  };
  try {
    if (!options.weights.empty()) {
      const std::string weights = Beside(path, options.weights);
      partial.push_back(weights + ".partial");
      places = bytecode::PlanWeights(data);
      std::vector<runtime::WeightsPiece> pieces;
      for (const bytecode::WeightsPlace& place : places) {
        auto tensor = data.constants[static_cast<size_t>(place.constant)].cast<ffi::Tensor>();
        pieces.push_back({place.offset, place.num_bytes, runtime::DataOf(runtime::Raw(tensor))});
      }
      parts.weights = options.weights;
      parts.weights_bytes = bytecode::WeightsFileBytes(places);
      parts.weights_hash = runtime::WriteWeightsFile(partial.back(), parts.weights_bytes, pieces);
    }
    if (!options.kernels.empty()) {
      parts.kernels = options.kernels;
      parts.kernels_hash = runtime::SealOfSharedLibrary(Beside(path, options.kernels));
    }
    const bool is_apart = !parts.weights.empty() || !parts.kernels.empty();
    const ByteWriter bytes =
        is_apart ? bytecode::SerializeApart(data, places, parts) : bytecode::Serialize(data);
    partial.push_back(path + ".partial");
    std::ofstream out(partial.back(), std::ios::binary | std::ios::trunc);
    for (std::string_view piece : bytes.Pieces()) out << piece;
    if (!out.flush()) Fail(ErrorKind::kRuntimeError, "cannot write ", path);
    out.close();
    // The weights first: a file of bytecode that is there has all that it names.
    if (!options.weights.empty()) finish(Beside(path, options.weights));
    finish(path);
  } catch (...) {
    std::error_code ignored;
    for (const std::string& file : partial) std::filesystem::remove(file, ignored);
    throw;
  }
}

}  // namespace relaxvm::vm
