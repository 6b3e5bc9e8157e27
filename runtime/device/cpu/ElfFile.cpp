#include "runtime/device/cpu/ElfFile.h"

#include <cstring>

namespace llmopt::runtime {

namespace {

using Bytes = std::span<const uint8_t>;

/// Part [offset, offset + size) of the file, or an error that names the part.
StatusOr<Bytes> slice(Bytes bytes, uint64_t offset, uint64_t size, std::string_view what) {
  if (offset > bytes.size() || size > bytes.size() - offset)
    return dataLoss("{} lies at {} with {} bytes; the object has {} bytes", what, offset, size,
                    bytes.size());
  return bytes.subspan(offset, size);
}

/// Entry `index` of a table; the caller has checked that it exists. The file
/// need not be aligned, hence the copy.
template <typename T> T entryAt(Bytes table, size_t index) {
  T entry;
  std::memcpy(&entry, table.data() + index * sizeof(T), sizeof(T));
  return entry;
}

/// The zero-terminated string at `offset` of a string table.
StatusOr<std::string_view> stringAt(Bytes table, uint64_t offset) {
  if (table.empty() && offset == 0)
    return std::string_view();
  if (offset >= table.size())
    return dataLoss("name lies at {} of a string table of {} bytes", offset, table.size());
  const char *first = reinterpret_cast<const char *>(table.data() + offset);
  const void *end = std::memchr(first, 0, table.size() - offset);
  if (!end)
    return dataLoss("name at {} of a string table does not end", offset);
  return std::string_view(first, static_cast<const char *>(end));
}

StatusOr<Elf64_Ehdr> readHeader(Bytes bytes) {
  if (bytes.size() < sizeof(Elf64_Ehdr) || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0)
    return dataLoss("image of {} bytes is not an ELF file", bytes.size());
  auto header = entryAt<Elf64_Ehdr>(bytes, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_type != ET_REL || header.e_machine != EM_X86_64)
    return makeStatus(StatusCode::Unsupported,
                      "ELF file has class {}, type {}, machine {}; a relocatable object "
                      "(type {}) for x86-64 (machine {}) is allowed",
                      header.e_ident[EI_CLASS], header.e_type, header.e_machine, ET_REL, EM_X86_64);
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0)
    return dataLoss("ELF file has {} section headers of {} bytes; {} bytes are allowed",
                    header.e_shnum, header.e_shentsize, sizeof(Elf64_Shdr));
  return header;
}

Status readSections(Bytes bytes, const Elf64_Ehdr &header, ElfFile &file) {
  StatusOr<Bytes> table =
      slice(bytes, header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr),
            "section "
            "table");
  if (!table)
    return table.status();
  for (size_t i = 0; i < header.e_shnum; ++i) {
    ElfSection section{.name = {}, .header = entryAt<Elf64_Shdr>(*table, i), .bytes = {}};
    if (section.header.sh_type != SHT_NOBITS && section.header.sh_type != SHT_NULL) {
      StatusOr<Bytes> content = slice(bytes, section.header.sh_offset, section.header.sh_size,
                                      fmt::format("section {}", i));
      if (!content)
        return content.status();
      section.bytes = *content;
    }
    file.sections.push_back(section);
  }
  if (header.e_shstrndx >= file.sections.size())
    return dataLoss("section names lie in section {}; the object has {}", header.e_shstrndx,
                    file.sections.size());
  Bytes names = file.sections[header.e_shstrndx].bytes;
  for (ElfSection &section : file.sections) {
    StatusOr<std::string_view> name = stringAt(names, section.header.sh_name);
    if (!name)
      return name.status();
    section.name = *name;
  }
  return {};
}

Status checkEntrySize(const ElfSection &section, size_t size) {
  if (section.header.sh_entsize != size || section.bytes.size() % size != 0)
    return dataLoss("section '{}' has {} bytes in entries of {}; entries of {} are "
                    "allowed",
                    section.name, section.bytes.size(), section.header.sh_entsize, size);
  return {};
}

Status readSymbols(ElfFile &file) {
  const ElfSection *table = nullptr;
  for (const ElfSection &section : file.sections) {
    if (section.header.sh_type == SHT_SYMTAB_SHNDX)
      return makeStatus(StatusCode::Unsupported,
                        "object has extended section indices; fewer than {} sections are "
                        "allowed",
                        SHN_LORESERVE);
    if (section.header.sh_type != SHT_SYMTAB)
      continue;
    if (table)
      return dataLoss("object has two symbol tables; one is allowed");
    table = &section;
  }
  if (!table)
    return {};
  LLMOPT_RETURN_IF_ERROR(checkEntrySize(*table, sizeof(Elf64_Sym)));
  if (table->header.sh_link >= file.sections.size())
    return dataLoss("symbol names lie in section {}; the object has {}", table->header.sh_link,
                    file.sections.size());
  Bytes names = file.sections[table->header.sh_link].bytes;
  size_t count = table->bytes.size() / sizeof(Elf64_Sym);
  for (size_t i = 0; i < count; ++i) {
    auto entry = entryAt<Elf64_Sym>(table->bytes, i);
    StatusOr<std::string_view> name = stringAt(names, entry.st_name);
    if (!name)
      return name.status();
    if (entry.st_shndx < SHN_LORESERVE && entry.st_shndx >= file.sections.size())
      return dataLoss("symbol '{}' lies in section {}; the object has {}", *name, entry.st_shndx,
                      file.sections.size());
    file.symbols.push_back({*name, entry});
  }
  return {};
}

Status readRelocationsOf(const ElfSection &table, ElfFile &file) {
  uint32_t target = table.header.sh_info;
  if (target >= file.sections.size())
    return dataLoss("section '{}' patches section {}; the object has {}", table.name, target,
                    file.sections.size());
  if (!file.sections[target].isAllocated())
    return {}; // debug information and the like is not loaded
  if (table.header.sh_type == SHT_REL)
    return makeStatus(StatusCode::Unsupported,
                      "section '{}' has relocations without addends; x86-64 objects have "
                      "them with addends",
                      table.name);
  LLMOPT_RETURN_IF_ERROR(checkEntrySize(table, sizeof(Elf64_Rela)));
  size_t count = table.bytes.size() / sizeof(Elf64_Rela);
  for (size_t i = 0; i < count; ++i) {
    ElfRelocation relocation{target, entryAt<Elf64_Rela>(table.bytes, i)};
    if (relocation.symbol() >= file.symbols.size())
      return dataLoss("relocation {} of '{}' names symbol {}; the object has {}", i, table.name,
                      relocation.symbol(), file.symbols.size());
    file.relocations.push_back(relocation);
  }
  return {};
}

} // namespace

StatusOr<ElfFile> ElfFile::parse(Bytes bytes) {
  StatusOr<Elf64_Ehdr> header = readHeader(bytes);
  if (!header)
    return header.status();
  ElfFile file;
  LLMOPT_RETURN_IF_ERROR(readSections(bytes, *header, file));
  LLMOPT_RETURN_IF_ERROR(readSymbols(file));
  for (const ElfSection &section : file.sections)
    if (section.header.sh_type == SHT_RELA || section.header.sh_type == SHT_REL)
      LLMOPT_RETURN_IF_ERROR(readRelocationsOf(section, file));
  return file;
}

} // namespace llmopt::runtime
