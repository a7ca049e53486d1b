// SPDX-License-Identifier: Apache-2.0
// File: header, bytes (page aligned), symbol table, strings, section headers.
#include "codegen/llvm/elf_blob.h"

#include <llvm/BinaryFormat/ELF.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/raw_ostream.h>

#include <cstring>

namespace relaxvm::codegen {
namespace {

namespace elf = llvm::ELF;

// Weights inside the bytes are aligned relative to their start.
constexpr uint64_t kAlignment = 4096;

template <typename T>
void Append(std::string* out, const T& value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

elf::Elf64_Shdr Section(uint32_t name, uint32_t type, uint64_t flags, uint64_t offset,
                        uint64_t size, uint64_t align) {
  elf::Elf64_Shdr section{};
  section.sh_name = name;
  section.sh_type = type;
  section.sh_flags = flags;
  section.sh_offset = offset;
  section.sh_size = size;
  section.sh_addralign = align;
  return section;
}

}  // namespace

std::string WriteBlobObject(const std::string& path, const std::string& symbol,
                            const std::string& bytes, int elf_machine) {
  // A large section is placed away from the code, which reaches its own data with 32 bits.
  bool x86 = elf_machine == elf::EM_X86_64;
  std::string names = std::string("\0", 1) + (x86 ? ".lrodata" : ".rodata") + '\0' + ".symtab" +
                      '\0' + ".strtab" + '\0' + ".shstrtab" + '\0' + ".note.GNU-stack" + '\0';
  auto name_at = [&names](const char* name) {
    return static_cast<uint32_t>(names.find(name, 0, std::strlen(name) + 1));
  };
  std::string strings = std::string("\0", 1) + symbol + '\0';

  elf::Elf64_Sym none{}, blob{};
  blob.st_name = 1;
  blob.setBindingAndType(elf::STB_GLOBAL, elf::STT_OBJECT);
  blob.st_shndx = 1;
  blob.st_size = bytes.size();
  std::string tail;
  uint64_t data_end = kAlignment + bytes.size();
  tail.append((8 - data_end % 8) % 8, '\0');
  uint64_t symbols_at = data_end + tail.size();
  Append(&tail, none);
  Append(&tail, blob);
  uint64_t strings_at = data_end + tail.size();
  tail += strings;
  uint64_t names_at = data_end + tail.size();
  tail += names;
  tail.append((8 - (data_end + tail.size()) % 8) % 8, '\0');
  uint64_t sections_at = data_end + tail.size();

  uint64_t flags = elf::SHF_ALLOC | (x86 ? uint64_t{elf::SHF_X86_64_LARGE} : 0);
  Append(&tail, elf::Elf64_Shdr{});
  Append(&tail, Section(name_at(x86 ? ".lrodata" : ".rodata"), elf::SHT_PROGBITS, flags, kAlignment,
                        bytes.size(), kAlignment));
  elf::Elf64_Shdr symtab =
      Section(name_at(".symtab"), elf::SHT_SYMTAB, 0, symbols_at, 2 * sizeof(elf::Elf64_Sym), 8);
  symtab.sh_link = 3;
  symtab.sh_info = 1;
  symtab.sh_entsize = sizeof(elf::Elf64_Sym);
  Append(&tail, symtab);
  Append(&tail, Section(name_at(".strtab"), elf::SHT_STRTAB, 0, strings_at, strings.size(), 1));
  Append(&tail, Section(name_at(".shstrtab"), elf::SHT_STRTAB, 0, names_at, names.size(), 1));
  Append(&tail, Section(name_at(".note.GNU-stack"), elf::SHT_PROGBITS, 0, names_at, 0, 1));

  elf::Elf64_Ehdr header{};
  std::memcpy(header.e_ident,
              "\x7f"
              "ELF",
              4);
  header.e_ident[elf::EI_CLASS] = elf::ELFCLASS64;
  header.e_ident[elf::EI_DATA] = elf::ELFDATA2LSB;
  header.e_ident[elf::EI_VERSION] = elf::EV_CURRENT;
  header.e_type = elf::ET_REL;
  header.e_machine = static_cast<uint16_t>(elf_machine);
  header.e_version = elf::EV_CURRENT;
  header.e_shoff = sections_at;
  header.e_ehsize = sizeof(header);
  header.e_shentsize = sizeof(elf::Elf64_Shdr);
  header.e_shnum = 6;
  header.e_shstrndx = 4;
  std::string head;
  Append(&head, header);
  head.resize(kAlignment, '\0');

  std::error_code error;
  llvm::raw_fd_ostream file(path, error);
  if (error) return error.message();
  file.write(head.data(), head.size());
  file.write(bytes.data(), bytes.size());
  file.write(tail.data(), tail.size());
  file.close();
  if (!file.has_error()) return "";
  std::string reason = file.error().message();
  file.clear_error();
  return reason;
}

}  // namespace relaxvm::codegen
