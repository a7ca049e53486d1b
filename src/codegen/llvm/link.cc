// SPDX-License-Identifier: Apache-2.0
// Links compiled objects to a shared library with a linker of this system, which may have to serve
// another kind of processor, or packs them into a static one without any.  Everything happens in a
// folder beside the result, which is renamed into place: the path holds a whole library, or what it
// held before.
#include <llvm/BinaryFormat/ELF.h>
#include <llvm/Object/ArchiveWriter.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/Path.h>
#include <llvm/Support/Program.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/llvm/compiler.h"
#include "codegen/llvm/elf_blob.h"
#include "codegen/llvm/kernels.h"
#include "support/error.h"

namespace relaxvm::codegen {
namespace {

namespace fs = llvm::sys::fs;

constexpr const char* kLibraryBinSymbol = "__tvm_ffi__library_bin";
constexpr unsigned kLinkSeconds = 600;
constexpr unsigned kProbeSeconds = 60;

// What leaves a library.
constexpr const char* kExports =
    "{ global: __tvm_ffi_*; __vmtir__*; __relaxvm_kernel_*; "
    "__TVMFFI*; local: *; };\n";

[[noreturn]] void CannotWrite(const std::string& path, const std::string& reason) {
  Fail(ErrorKind::kRuntimeError, "cannot write ", path, ": ", reason);
}

// A folder that is removed with all that is in it.
class WorkFolder {
 public:
  explicit WorkFolder(const std::string& path) : target_(path) {
    llvm::SmallString<256> folder(llvm::sys::path::parent_path(path));
    if (folder.empty()) folder = ".";
    if (!fs::is_directory(folder)) CannotWrite(path, "there is no folder " + folder.str().str());
    llvm::SmallString<256> model = folder;
    llvm::sys::path::append(model, ".relaxvm-%%%%%%%%");
    llvm::SmallString<256> made;
    for (int attempt = 0; attempt < 16; ++attempt) {
      fs::createUniquePath(model, made, /*MakeAbsolute=*/false);
      std::error_code error = fs::create_directory(made, /*IgnoreExisting=*/false);
      if (!error) {
        path_ = made.str().str();
        return;
      }
      if (error != std::errc::file_exists) CannotWrite(path, error.message());
    }
    CannotWrite(path, "no temporary folder can be made beside it");
  }
  ~WorkFolder() {
    if (!path_.empty()) fs::remove_directories(path_);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  std::string File(const std::string& name) const { return path_ + "/" + name; }

  std::string Write(const std::string& name, const std::string& bytes) const {
    std::error_code error;
    llvm::raw_fd_ostream file(File(name), error);
    if (!error) {
      file << bytes;
      file.close();
      error = file.error();
      file.clear_error();
    }
    if (error) CannotWrite(target_, error.message());
    return File(name);
  }

 private:
  std::string target_;
  std::string path_;
};

struct Run {
  int status;
  std::string output;  // what it wrote to its error stream
};

Run Execute(const std::vector<std::string>& words, const std::string& log, unsigned seconds) {
  std::vector<llvm::StringRef> args(words.begin(), words.end());
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), llvm::StringRef(log),
                                                llvm::StringRef(log)};
  std::string problem;
  int status =
      llvm::sys::ExecuteAndWait(words[0], args, std::nullopt, redirects, seconds, 0, &problem);
  std::string output;
  if (auto text = llvm::MemoryBuffer::getFile(log))
    output = (*text)->getBuffer().take_front(2000).rtrim().str();
  return {status, problem.empty() ? output : problem + " " + output};
}

struct Linker {
  std::vector<std::string> command;
  bool is_driver;  // a C compiler: options of the linker go through -Wl
};

std::optional<std::string> FindProgram(const char* name) {
  if (auto found = llvm::sys::findProgramByName(name)) return *found;
  return std::nullopt;
}

bool IsForeign(const llvm::Triple& triple) {
  return triple.getArch() != llvm::Triple(llvm::sys::getProcessTriple()).getArch();
}

// "aarch64-linux-gnu": what Debian and others call their tools for it.
std::string ToolPrefix(const llvm::Triple& triple) {
  return triple.getArchName().str() + "-linux-gnu";
}

// lld links for every kind of processor, the others for the one in their name.
std::optional<Linker> FindLinker(const llvm::Triple& triple, const WorkFolder& folder) {
  const std::string prefix = IsForeign(triple) ? ToolPrefix(triple) + "-" : "";
  if (auto path = FindProgram("ld.lld")) return Linker{{*path}, false};
  if (auto path = FindProgram((prefix + "ld").c_str())) return Linker{{*path}, false};
  if (auto path = FindProgram(prefix.empty() ? "cc" : (prefix + "gcc").c_str()))
    return Linker{{*path}, true};
  for (const char* name : {"python3", "python"}) {
    auto python = FindProgram(name);
    if (!python) continue;
    if (Execute({*python, "-m", "ziglang", "version"}, folder.File("probe.log"), kProbeSeconds)
            .status == 0) {
      Linker zig{{*python, "-m", "ziglang", "cc"}, true};
      if (IsForeign(triple)) zig.command.insert(zig.command.end(), {"-target", ToolPrefix(triple)});
      return zig;
    }
  }
  return std::nullopt;
}

[[noreturn]] void FailWithoutLinker(const llvm::Triple& triple, const std::string& path) {
  if (!IsForeign(triple)) {
    Fail(ErrorKind::kRuntimeError, "cannot write ", path,
         ": no linker was found; install ld.lld, ld or cc (package binutils or lld), or run: pip "
         "install ziglang");
  }
  Fail(ErrorKind::kRuntimeError, "cannot write ", path, ": no linker for ", triple.str(),
       " was found; install ld.lld (package lld) or ", ToolPrefix(triple), "-ld (package binutils-",
       ToolPrefix(triple), "), or run: pip install ziglang; a path that ends with .a needs none");
}

int ElfMachine(const llvm::Triple& triple) {
  return triple.isAArch64() ? llvm::ELF::EM_AARCH64 : llvm::ELF::EM_X86_64;
}

// The objects as files of the folder.
std::vector<std::string> WriteObjects(const KernelSet& kernels, const WorkFolder& folder) {
  std::vector<std::string> files;
  for (size_t i = 0; i < kernels.objects.size(); ++i) {
    files.push_back(folder.Write(std::to_string(i) + ".o", kernels.objects[i].bytes));
  }
  return files;
}

// Objects of users may: what runs destructors when a library is unloaded is part of a C compiler's
// start files, which are not linked. Such a library stays until the process ends.
bool RegistersDestructors(const KernelSet& kernels) {
  return std::any_of(kernels.objects.begin(), kernels.objects.end(), [](const KernelObject& o) {
    return o.bytes.find("__cxa_atexit") != std::string::npos;
  });
}

}  // namespace

void LinkLibrary(const KernelSet& kernels, const Pieces& library_bin, const std::string& path) {
  if (fs::is_directory(path)) CannotWrite(path, "it is a folder");
  WorkFolder folder(path);
  const llvm::Triple triple(Compiler(kernels.target).triple());
  std::vector<std::string> files = WriteObjects(kernels, folder);
  auto check = [&](const std::string& reason) {
    if (!reason.empty()) CannotWrite(path, reason);
  };
  if (!library_bin.empty()) {
    files.push_back(folder.File("library_bin.o"));
    check(WriteBlobNote(files.back(), kLibraryBinSymbol, library_bin, ElfMachine(triple)));
  }
  std::string inputs;
  for (const std::string& file : files) inputs += "\"" + file + "\"\n";
  std::optional<Linker> linker = FindLinker(triple, folder);
  if (!linker) FailWithoutLinker(triple, path);
  std::vector<std::string> words = linker->command;
  std::string prefix = linker->is_driver ? "-Wl," : "";
  if (linker->is_driver) words.push_back("-nostdlib");
  words.push_back("-shared");
  words.push_back(prefix + "--version-script=" + folder.Write("exports.map", kExports));
  for (const char* option : {"--hash-style=gnu", "--build-id=none"})
    words.push_back(prefix + option);
  std::vector<const char*> keywords = {"noexecstack", "now", "relro"};
  if (RegistersDestructors(kernels)) {
    keywords.push_back("nodelete");
    // An address of this library, which start files define otherwise, as some linkers do.
    words.push_back(prefix + "--defsym=__dso_handle=_DYNAMIC");
  }
  for (const char* keyword : keywords) {
    if (linker->is_driver) {
      words.push_back(std::string("-Wl,-z,") + keyword);
    } else {
      words.push_back("-z");
      words.push_back(keyword);
    }
  }
  std::string result = folder.File("library.so");
  words.push_back("-o");
  words.push_back(result);
  words.push_back("@" + folder.Write("inputs.rsp", inputs));
  Run run = Execute(words, folder.File("link.log"), kLinkSeconds);
  if (run.status != 0) {
    Fail(ErrorKind::kRuntimeError, "cannot write ", path, ": ", linker->command[0],
         " failed: ", run.output);
  }
  if (!library_bin.empty()) {
    const std::string linked = std::exchange(result, folder.File("whole.so"));
    check(AppendBlob(linked, kLibraryBinSymbol, library_bin, result));
  }
  if (std::error_code error = fs::rename(result, path)) CannotWrite(path, error.message());
}

void WriteArchive(const KernelSet& kernels, const Pieces& library_bin, const std::string& path) {
  if (fs::is_directory(path)) CannotWrite(path, "it is a folder");
  WorkFolder folder(path);
  const llvm::Triple triple(Compiler(kernels.target).triple());
  std::vector<std::string> files = WriteObjects(kernels, folder);
  if (!library_bin.empty()) {
    files.push_back(folder.File("library_bin.o"));
    std::string reason =
        WriteBlobObject(files.back(), kLibraryBinSymbol, library_bin, ElfMachine(triple));
    if (!reason.empty()) CannotWrite(path, reason);
  }
  std::vector<llvm::NewArchiveMember> members;
  for (const std::string& file : files) {
    auto member = llvm::NewArchiveMember::getFile(file, /*Deterministic=*/true);
    if (!member) CannotWrite(path, llvm::toString(member.takeError()));
    member->MemberName = llvm::sys::path::filename(member->MemberName);
    members.push_back(std::move(*member));
  }
  const std::string result = folder.File("library.a");
  if (llvm::Error error =
          llvm::writeArchive(result, members, llvm::SymtabWritingMode::NormalSymtab,
                             llvm::object::Archive::K_GNU, /*Deterministic=*/true, /*Thin=*/false))
    CannotWrite(path, llvm::toString(std::move(error)));
  if (std::error_code error = fs::rename(result, path)) CannotWrite(path, error.message());
}

}  // namespace relaxvm::codegen
