// SPDX-License-Identifier: Apache-2.0
// Reads ELF headers with bounds checks; dlopen, dlsym.
#include "runtime/platform/library.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/platform/memory.h"
#include "support/byte_stream.h"
#include "support/error.h"
#include "support/hash.h"

namespace relaxvm::runtime {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
constexpr const char* kMachineName = "x86-64";
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
constexpr const char* kMachineName = "AArch64";
#else
#error "relaxvm runs on x86-64 and aarch64"
#endif

constexpr uint64_t kSealMagic = 0x4c4145534d565852;  // "RXVMSEAL"
constexpr size_t kSealBytes = 24;                    // magic, length, hash
// In e_flags, which no loader reads: there is a seal at the end, so a file without one is damaged.
constexpr Elf64_Word kSealedFlag = 0x4c415358;

[[noreturn]] void RefuseLibrary(const std::string& path, const std::string& reason) {
  Fail(ErrorKind::kValueError, path, ": ", reason, "; export or download it again");
}

bool IsSealed(std::string_view bytes) {
  if (bytes.size() < kSealBytes) return false;
  uint64_t magic, length;
  std::memcpy(&magic, bytes.data() + bytes.size() - kSealBytes, 8);
  std::memcpy(&length, bytes.data() + bytes.size() - kSealBytes + 8, 8);
  return magic == kSealMagic && length == bytes.size() - kSealBytes;
}

bool Within(uint64_t start, uint64_t size, uint64_t limit) {
  return start <= limit && size <= limit - start;
}

void CheckElf(std::string_view bytes, bool sealed, const std::string& path) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof(header) || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0) {
    RefuseLibrary(path, "is no shared library (no ELF header)");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_type != ET_DYN) {
    RefuseLibrary(path, "is no 64-bit little-endian shared library");
  }
  if (header.e_machine != kMachine) {
    const char* other = header.e_machine == EM_X86_64    ? "x86-64"
                        : header.e_machine == EM_AARCH64 ? "AArch64"
                                                         : "another kind of processor";
    Fail(ErrorKind::kValueError, path, ": is a library for ", other, ", this process runs on ",
         kMachineName, "; load it there, or compile the model with target=\"llvm\" here");
  }
  if (header.e_flags == kSealedFlag && !sealed) {
    RefuseLibrary(path, "is truncated or damaged (its checksum is missing)");
  }
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
      !Within(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr), bytes.size())) {
    RefuseLibrary(path, "is truncated or damaged (program headers)");
  }
  // The section table is the last thing in a file: what is cut off lacks it.
  if (header.e_shnum != 0 &&
      !Within(header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize, bytes.size())) {
    RefuseLibrary(path, "is truncated or damaged (section headers)");
  }
  bool has_dynamic = false;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof(segment), sizeof(segment));
    has_dynamic |= segment.p_type == PT_DYNAMIC;
    bool is_read =
        segment.p_type == PT_LOAD || segment.p_type == PT_DYNAMIC || segment.p_type == PT_NOTE;
    if (is_read && !Within(segment.p_offset, segment.p_filesz, bytes.size())) {
      RefuseLibrary(path, "is truncated or damaged (segment " + std::to_string(i) + ")");
    }
    if (segment.p_type == PT_LOAD && segment.p_memsz < segment.p_filesz) {
      RefuseLibrary(path, "is damaged (segment " + std::to_string(i) + ")");
    }
  }
  if (!has_dynamic) RefuseLibrary(path, "is no shared library (no dynamic segment)");
}

}  // namespace

MappedFile::MappedFile(const std::string& path, Mode mode) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) Fail(ErrorKind::kRuntimeError, "cannot open ", path, ": ", std::strerror(errno));
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    Fail(ErrorKind::kRuntimeError, "cannot read ", path, ": it is no file");
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ > 0) {
    // No swap is set aside for pages that could be written: hardly any is.
    int access = PROT_READ | (mode == Mode::kCopyOnWrite ? PROT_WRITE : 0);
    void* data = mmap(nullptr, size_, access, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (data == MAP_FAILED) {
      int error = errno;
      close(fd);
      Fail(ErrorKind::kRuntimeError, "cannot map ", path, ": ", std::strerror(error));
    }
    data_ = static_cast<const char*>(data);
  }
  close(fd);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

namespace {

// HashBytes of a mapped file, of which hardly anything stays in this process's memory.
uint64_t HashPages(std::string_view bytes) {
  constexpr size_t kPieceBytes = size_t{8} << 20;
  HashStream stream;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(kPieceBytes, bytes.size()))) {
    const FilePages piece(bytes.substr(0, kPieceBytes));
    stream.Add(bytes.substr(0, kPieceBytes));
  }
  return stream.Finish();
}

}  // namespace

bool CheckSharedLibrary(const std::string& path) {
  MappedFile file(path);
  std::string_view bytes = file.bytes();
  const bool sealed = IsSealed(bytes);
  if (sealed) {
    uint64_t hash;
    std::memcpy(&hash, bytes.data() + bytes.size() - 8, 8);
    bytes.remove_suffix(kSealBytes);
    if (hash != HashPages(bytes)) RefuseLibrary(path, "is damaged (its checksum does not agree)");
  }
  CheckElf(bytes, sealed, path);
  return sealed;
}

void SealSharedLibrary(const std::string& path) {
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offsetof(Elf64_Ehdr, e_flags));
    if (!file.write(reinterpret_cast<const char*>(&kSealedFlag), sizeof(kSealedFlag))) {
      Fail(ErrorKind::kRuntimeError, "cannot write ", path);
    }
  }
  ByteWriter seal;
  size_t length;
  {
    MappedFile file(path);
    std::string_view bytes = file.bytes();
    if (IsSealed(bytes)) bytes.remove_suffix(kSealBytes);
    length = bytes.size();
    seal.Write<uint64_t>(kSealMagic);
    seal.Write<uint64_t>(length);
    seal.Write<uint64_t>(HashPages(bytes));
  }
  std::error_code error;
  std::filesystem::resize_file(path, length, error);
  std::ofstream out(path, std::ios::binary | std::ios::app);
  if (error || !(out << seal.Join()) || !out.flush()) {
    Fail(ErrorKind::kRuntimeError, "cannot write ", path);
  }
}

uint64_t SealOfSharedLibrary(const std::string& path) {
  MappedFile file(path);
  std::string_view bytes = file.bytes();
  uint64_t hash = 0;
  if (IsSealed(bytes)) std::memcpy(&hash, bytes.data() + bytes.size() - 8, sizeof(hash));
  return hash;
}

SharedLibrary::SharedLibrary(const std::string& path)
    : path_(std::filesystem::absolute(path).string()) {
  is_sealed_ = CheckSharedLibrary(path_);
  handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char* reason = dlerror();
    if (reason == nullptr) reason = "unknown reason";
    if (std::strstr(reason, "TVMBackendAnyList") != nullptr) {
      Fail(ErrorKind::kNotImplementedError, "cannot load ", path_,
           ": TVM compiled its functions to native code for its own virtual machine; export it "
           "from TVM with exec_mode=\"bytecode\"");
    }
    Fail(ErrorKind::kRuntimeError, "cannot load ", path_, ": ", reason);
  }
}

SharedLibrary::~SharedLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

void* SharedLibrary::Symbol(const std::string& name) const { return dlsym(handle_, name.c_str()); }

std::string_view SharedLibrary::SymbolBytes(const std::string& name) const {
  void* address = Symbol(name);
  if (address == nullptr) return {};
  Dl_info info;
  const Elf64_Sym* symbol = nullptr;
  if (dladdr1(address, &info, reinterpret_cast<void**>(const_cast<Elf64_Sym**>(&symbol)),
              RTLD_DL_SYMENT) != 0 &&
      symbol != nullptr && info.dli_saddr == address && symbol->st_size > 0) {
    return {static_cast<const char*>(address), symbol->st_size};
  }
  // A linker script or an assembler may leave the size out: the container's own length says it,
  // then.
  uint64_t length;
  std::memcpy(&length, address, sizeof(length));
  return {static_cast<const char*>(address),
          length > (uint64_t{1} << 48) ? 0 : length + sizeof(length)};
}

}  // namespace relaxvm::runtime
