// SPDX-License-Identifier: Apache-2.0
// Collects the objects behind an executable and links them.
#include "pipeline/export.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

#include "bytecode/interchange.h"
#include "bytecode/serialize.h"
#include "codegen/llvm/kernels.h"
#include "pipeline/kernel_module.h"
#include "runtime/platform/library.h"
#include "support/error.h"
#include "vm/executable_module.h"

namespace relaxvm::pipeline {

namespace ffi = tvm::ffi;

namespace {

constexpr const char* kWho = "export_library: ";

// An object file of a user, linked alone to be callable in this process.
class ObjectFile final : public ffi::ModuleObj {
 public:
  ObjectFile(std::string bytes, ffi::Module linked)
      : bytes_(std::move(bytes)), linked_(std::move(linked)) {}

  const char* kind() const final { return "relaxvm.ObjectFile"; }
  int GetPropertyMask() const final { return ffi::Module::kRunnable; }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    return linked_->GetFunction(name);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  ffi::Module linked_;
};

// A folder that only this user can read, removed with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    namespace fs = std::filesystem;
    std::random_device random;
    for (int attempt = 0; attempt < 16; ++attempt) {
      path_ = fs::temp_directory_path() / ("relaxvm-" + std::to_string(random()));
      if (!fs::create_directory(path_)) continue;
      fs::permissions(path_, fs::perms::owner_all);
      return;
    }
    Fail(ErrorKind::kRuntimeError, "cannot make a folder in ", fs::temp_directory_path().string());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string File(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Null when `module` is none.
template <typename Class>
const Class* As(const ffi::Module& module) {
  return dynamic_cast<const Class*>(module.operator->());
}

bool IsKernelLibrary(const ffi::Module& module) {
  return std::strcmp(module->kind(), vm::kKernelLibraryKind) == 0;
}

// Everything that can be linked; an import that cannot is an error, never left out.
codegen::KernelSet CollectObjects(const ffi::Module& executable) {
  codegen::KernelSet set;
  set.target = "llvm";
  std::vector<const ObjectFile*> files;
  bool is_compiled = false, has_kernels = false;
  for (const ffi::Any& any : executable->imports()) {
    auto import = any.cast<ffi::Module>();
    if (const auto* objects = As<KernelObjects>(import)) {
      set = objects->kernels();
      is_compiled = true;
    } else if (const auto* file = As<ObjectFile>(import)) {
      files.push_back(file);
    } else if (IsKernelLibrary(import)) {
      has_kernels = true;
      const std::string file = vm::FileOfLibrary(import);
      if (file.empty()) continue;  // code in memory: KernelObjects has what it was made from
      Fail(
          ErrorKind::kValueError, kWho, file,
          " is a shared library, which cannot be linked into another; if it is a model, copy it or "
          "compile again, if it holds functions of your own, import it after loading, or import "
          "its object file");
    } else {
      Fail(ErrorKind::kValueError, kWho, "an imported module of kind '", import->kind(),
           "' cannot be saved; import it after loading");
    }
  }
  if (has_kernels && !is_compiled)
    Fail(ErrorKind::kValueError, kWho, "the executable was not compiled here; compile it again");
  for (const ObjectFile* file : files) set.objects.push_back({{}, file->bytes()});
  return set;
}

// Under another name first: the file is whole, checksum included, or not there.
void Link(const codegen::KernelSet& objects, const std::vector<std::string_view>& library_bin,
          const std::string& path) {
  if (path.ends_with(".a")) return codegen::WriteArchive(objects, library_bin, path);
  const std::string partial = path + ".partial";
  std::error_code error;
  try {
    codegen::LinkLibrary(objects, library_bin, partial);
    runtime::SealSharedLibrary(partial);
    std::filesystem::rename(partial, path, error);
  } catch (...) {
    std::filesystem::remove(partial, error);
    throw;
  }
  if (error) {
    std::filesystem::remove(partial);
    Fail(ErrorKind::kRuntimeError, kWho, "cannot write ", path, ": ", error.message());
  }
}

}  // namespace

void ExportLibrary(const ffi::Module& executable, const std::string& path,
                   Interchange interchange) {
  const bytecode::ExecutableData& data = vm::ExecutableDataOf(executable);
  codegen::KernelSet objects = CollectObjects(executable);
  if (interchange == Interchange::kTvm) {
    bytecode::CheckRunsInTvm(
        data, [&](const std::string& name) { return vm::HasImport(executable, name); });
  }
  Link(objects, bytecode::PackExecutable(data).Pieces(), path);
}

void ExportKernels(const ffi::Module& executable, const std::string& path) {
  vm::ExecutableDataOf(executable);  // refuses what is none
  Link(CollectObjects(executable), {}, path);
}

ffi::Module LoadObjectFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) Fail(ErrorKind::kRuntimeError, "cannot read ", path);
  constexpr std::string_view kElf = "\x7f\x45\x4c\x46";
  if (!bytes.starts_with(kElf))
    Fail(ErrorKind::kValueError, path, " is no object file (no ELF header)");
  TemporaryFolder folder;
  const std::string linked = folder.File("object.so");
  codegen::LinkLibrary({{{{}, bytes}}, "llvm"}, {}, linked);
  // An open library does not need its file any more.
  return ffi::Module(ffi::make_object<ObjectFile>(std::move(bytes), vm::LoadExecutable(linked)));
}

std::string InspectSource(const ir::IRModule& mod, const std::string& name,
                          const std::string& target, const std::string& format) {
  if (format != "asm" && format != "ll")
    Fail(ErrorKind::kValueError, "format ", format, " is unknown; use asm or ll");
  codegen::KernelOptions options;
  options.target = target;
  return codegen::InspectKernel(mod, name, options, format == "asm");
}

}  // namespace relaxvm::pipeline
