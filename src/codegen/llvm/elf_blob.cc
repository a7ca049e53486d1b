// SPDX-License-Identifier: Apache-2.0
// Object: header, contents (page aligned), symbol table, strings, section headers.
// Library: what the linker wrote, with one program header and one symbol changed; then the bytes.
#include "codegen/llvm/elf_blob.h"

#include <llvm/BinaryFormat/ELF.h>
#include <llvm/Object/ELF.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <cstring>

namespace relaxvm::codegen {
namespace {

namespace elf = llvm::ELF;
using File = llvm::object::ELFFile<llvm::object::ELF64LE>;
using Segment = llvm::object::ELF64LE::Phdr;
using Symbol = llvm::object::ELF64LE::Sym;

// Weights inside the bytes are aligned relative to their start.
constexpr uint64_t kAlignment = 4096;

template <typename T>
void Append(std::string* out, const T& value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

uint64_t BytesOf(const Pieces& pieces) {
  uint64_t num_bytes = 0;
  for (std::string_view piece : pieces) num_bytes += piece.size();
  return num_bytes;
}

std::string WriteFile(const std::string& path, const Pieces& pieces) {
  std::error_code error;
  llvm::raw_fd_ostream file(path, error);
  if (error) return error.message();
  for (std::string_view piece : pieces) file.write(piece.data(), piece.size());
  file.close();
  if (!file.has_error()) return "";
  std::string reason = file.error().message();
  file.clear_error();
  return reason;
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

// What the symbol is in.
struct Content {
  const char* section;
  uint32_t type;
  uint64_t flags;
  uint64_t align;
  const Pieces& pieces;
};

std::string WriteObject(const std::string& path, const std::string& symbol, uint64_t symbol_bytes,
                        const Content& content, int elf_machine) {
  std::string names = std::string("\0", 1) + content.section + '\0' + ".symtab" + '\0' + ".strtab" +
                      '\0' + ".shstrtab" + '\0' + ".note.GNU-stack" + '\0';
  auto name_at = [&names](const char* name) {
    return static_cast<uint32_t>(names.find(name, 0, std::strlen(name) + 1));
  };
  std::string strings = std::string("\0", 1) + symbol + '\0';

  elf::Elf64_Sym none{}, blob{};
  blob.st_name = 1;
  blob.setBindingAndType(elf::STB_GLOBAL, elf::STT_OBJECT);
  blob.st_shndx = 1;
  blob.st_size = symbol_bytes;
  const uint64_t num_bytes = BytesOf(content.pieces);
  std::string tail;
  uint64_t data_end = kAlignment + num_bytes;
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

  Append(&tail, elf::Elf64_Shdr{});
  Append(&tail, Section(name_at(content.section), content.type, content.flags, kAlignment,
                        num_bytes, content.align));
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

  Pieces all = {head};
  all.insert(all.end(), content.pieces.begin(), content.pieces.end());
  all.push_back(tail);
  return WriteFile(path, all);
}

// The symbols of that name in a library that is `file`: one for the loader, one for debuggers.
llvm::Expected<std::vector<const Symbol*>> FindSymbols(const File& file, const std::string& name) {
  std::vector<const Symbol*> found;
  auto sections = file.sections();
  if (!sections) return sections.takeError();
  for (const auto& section : *sections) {
    if (section.sh_type != elf::SHT_DYNSYM && section.sh_type != elf::SHT_SYMTAB) continue;
    auto symbols = file.symbols(&section);
    if (!symbols) return symbols.takeError();
    auto strings = file.getStringTableForSymtab(section);
    if (!strings) return strings.takeError();
    for (const Symbol& symbol : *symbols) {
      auto is = symbol.getName(*strings);
      if (!is) return is.takeError();
      if (*is == name) found.push_back(&symbol);
    }
  }
  return found;
}

uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Changes `library`, so that `num_bytes` which follow its end, at a multiple of the result, are
// loaded and found as `name`.
llvm::Expected<uint64_t> MakeRoom(llvm::MutableArrayRef<char> library, const std::string& name,
                                  uint64_t num_bytes) {
  auto file = File::create({library.data(), library.size()});
  if (!file) return file.takeError();
  auto symbols = FindSymbols(*file, name);
  if (!symbols) return symbols.takeError();
  auto headers = file->program_headers();
  if (!headers) return headers.takeError();
  // These lie in `library`.
  llvm::MutableArrayRef<Segment> segments(const_cast<Segment*>(headers->begin()), headers->size());
  auto is_note = [&](const Segment& it) {
    return it.p_type == elf::PT_NOTE && !symbols->empty() &&
           symbols->front()->st_value - it.p_vaddr < it.p_memsz;
  };
  Segment* note = llvm::find_if(segments, is_note);
  if (note == segments.end())
    return llvm::createStringError("the linker made no segment of the note for " + name);
  uint64_t end = 0;
  Segment* after = segments.begin();  // behind the last that is loaded: they ascend
  uint64_t alignment = kAlignment;
  for (Segment& it : segments) {
    if (it.p_type != elf::PT_LOAD) continue;
    end = std::max<uint64_t>(end, it.p_vaddr + it.p_memsz);
    alignment = std::max<uint64_t>(alignment, it.p_align);
    after = &it + 1;
  }
  Segment segment{};
  segment.p_type = elf::PT_LOAD;
  segment.p_flags = elf::PF_R;
  segment.p_align = alignment;
  segment.p_offset = AlignUp(library.size(), alignment);
  segment.p_vaddr = AlignUp(end, alignment);
  segment.p_paddr = segment.p_vaddr;
  segment.p_filesz = num_bytes;
  segment.p_memsz = num_bytes;
  if (note < after) {
    std::move(note + 1, after, note);
    *(after - 1) = segment;
  } else {
    std::move_backward(after, note, note + 1);
    *after = segment;
  }
  for (const Symbol* symbol : *symbols) const_cast<Symbol*>(symbol)->st_value = segment.p_vaddr;
  return alignment;
}

}  // namespace

std::string WriteBlobObject(const std::string& path, const std::string& symbol,
                            const Pieces& pieces, int elf_machine) {
  // A large section is placed away from the code, which reaches its own data with 32 bits.
  const bool x86 = elf_machine == elf::EM_X86_64;
  const uint64_t flags = elf::SHF_ALLOC | (x86 ? uint64_t{elf::SHF_X86_64_LARGE} : 0);
  return WriteObject(path, symbol, BytesOf(pieces),
                     {x86 ? ".lrodata" : ".rodata", elf::SHT_PROGBITS, flags, kAlignment, pieces},
                     elf_machine);
}

std::string WriteBlobNote(const std::string& path, const std::string& symbol, const Pieces& pieces,
                          int elf_machine) {
  const char owner[] = "relaxvm";
  std::string note;
  for (uint32_t word : {uint32_t{sizeof(owner)}, 0u, 1u}) Append(&note, word);  // type 1, no text
  note.append(owner, sizeof(owner));
  return WriteObject(path, symbol, BytesOf(pieces),
                     {".note.relaxvm", elf::SHT_NOTE, elf::SHF_ALLOC, 4, {note}}, elf_machine);
}

std::string AppendBlob(const std::string& linked, const std::string& symbol, const Pieces& pieces,
                       const std::string& path) {
  auto library = llvm::WritableMemoryBuffer::getFile(linked);
  if (!library) return library.getError().message();
  auto alignment = MakeRoom((*library)->getBuffer(), symbol, BytesOf(pieces));
  if (!alignment) return llvm::toString(alignment.takeError());
  const std::string gap(-(*library)->getBufferSize() % *alignment, '\0');
  Pieces all = {{(*library)->getBufferStart(), (*library)->getBufferSize()}, gap};
  all.insert(all.end(), pieces.begin(), pieces.end());
  return WriteFile(path, all);
}

}  // namespace relaxvm::codegen
