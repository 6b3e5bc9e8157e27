// Reads an x86-64 ELF relocatable object (.o) from memory. Nothing in the file
// is trusted: every offset, size and index is checked against what it points
// into.
#pragma once

#include "runtime/base/Status.h"

#include <cstdint>
#include <elf.h>
#include <span>
#include <string_view>
#include <vector>

namespace llmopt::runtime {

struct ElfSection {
  std::string_view name;
  Elf64_Shdr header;
  std::span<const uint8_t> bytes; ///< empty for SHT_NOBITS

  bool isAllocated() const { return header.sh_flags & SHF_ALLOC; }
  bool isCode() const { return header.sh_flags & SHF_EXECINSTR; }
  bool isWritable() const { return header.sh_flags & SHF_WRITE; }
};

struct ElfSymbol {
  std::string_view name;
  Elf64_Sym entry;

  unsigned type() const { return ELF64_ST_TYPE(entry.st_info); }
  unsigned binding() const { return ELF64_ST_BIND(entry.st_info); }
  bool isUndefined() const { return entry.st_shndx == SHN_UNDEF; }
};

struct ElfRelocation {
  uint32_t section; ///< the section that is patched
  Elf64_Rela entry;

  uint32_t type() const { return ELF64_R_TYPE(entry.r_info); }
  uint32_t symbol() const { return ELF64_R_SYM(entry.r_info); }
};

/// Views into the bytes given to `parse`, which must outlive it.
struct ElfFile {
  std::vector<ElfSection> sections;
  std::vector<ElfSymbol> symbols;
  std::vector<ElfRelocation> relocations; ///< of allocated sections only

  static StatusOr<ElfFile> parse(std::span<const uint8_t> bytes);
};

} // namespace llmopt::runtime
