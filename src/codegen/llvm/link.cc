// SPDX-License-Identifier: Apache-2.0
// Links compiled objects to a shared library with a linker of the machine.  Everything happens in a
// folder beside the result, which is renamed into place: the path holds a whole library, or what it
// held before.
#include <llvm/BinaryFormat/ELF.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/Path.h>
#include <llvm/Support/Program.h>
#include <llvm/Support/raw_ostream.h>

#include <optional>
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

std::optional<Linker> FindLinker(const WorkFolder& folder) {
  for (const char* name : {"ld.lld", "ld"}) {
    if (auto path = FindProgram(name)) return Linker{{*path}, false};
  }
  if (auto path = FindProgram("cc")) return Linker{{*path}, true};
  for (const char* name : {"python3", "python"}) {
    auto python = FindProgram(name);
    if (!python) continue;
    if (Execute({*python, "-m", "ziglang", "version"}, folder.File("probe.log"), kProbeSeconds)
            .status == 0) {
      return Linker{{*python, "-m", "ziglang", "cc"}, true};
    }
  }
  return std::nullopt;
}

int ElfMachine(const std::string& triple) {
  return llvm::Triple(triple).isAArch64() ? llvm::ELF::EM_AARCH64 : llvm::ELF::EM_X86_64;
}

}  // namespace

void LinkLibrary(const KernelSet& kernels, const std::string& library_bin,
                 const std::string& path) {
  if (fs::is_directory(path)) CannotWrite(path, "it is a folder");
  WorkFolder folder(path);
  std::string inputs;
  auto add_input = [&inputs](const std::string& file) { inputs += "\"" + file + "\"\n"; };
  // The blob first: a linker that does not know large sections lays it out before the constants of
  // the code, which must stay within 2 GB of the code.
  if (!library_bin.empty()) {
    std::string file = folder.File("library_bin.o");
    std::string reason = WriteBlobObject(file, kLibraryBinSymbol, library_bin,
                                         ElfMachine(Compiler(kernels.target).triple()));
    if (!reason.empty()) CannotWrite(path, reason);
    add_input(file);
  }
  for (size_t i = 0; i < kernels.objects.size(); ++i) {
    add_input(folder.Write(std::to_string(i) + ".o", kernels.objects[i].bytes));
  }
  std::optional<Linker> linker = FindLinker(folder);
  if (!linker) {
    Fail(ErrorKind::kRuntimeError, "cannot write ", path,
         ": no linker was found; install ld.lld, ld or cc (package binutils or lld), or run: pip "
         "install ziglang");
  }
  std::vector<std::string> words = linker->command;
  std::string prefix = linker->is_driver ? "-Wl," : "";
  if (linker->is_driver) words.push_back("-nostdlib");
  words.push_back("-shared");
  words.push_back(prefix + "--version-script=" + folder.Write("exports.map", kExports));
  for (const char* option : {"--hash-style=gnu", "--build-id=none"})
    words.push_back(prefix + option);
  for (const char* keyword : {"noexecstack", "now", "relro"}) {
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
  if (std::error_code error = fs::rename(result, path)) CannotWrite(path, error.message());
}

}  // namespace relaxvm::codegen
