// The relocations of the x86-64 psABI that kernels use: which helpers each
// needs and how it patches. Private to the ELF loader.
#pragma once

#include "runtime/base/Status.h"

#include <cstdint>
#include <string_view>

namespace llmopt::runtime {

/// What a relocation type asks of the loader.
struct RelocationNeeds {
  bool known = false;
  bool got = false;       ///< an entry of the global offset table
  bool thunk = false;     ///< a call thunk, if the symbol is external
  bool lowMemory = false; ///< addresses below 2 GiB
};

RelocationNeeds needsOf(uint32_t type);

/// "R_X86_64_PC32", or "type 77".
std::string relocationName(uint32_t type);

/// Why an unsupported type is unsupported, for the message.
std::string_view reasonAgainst(uint32_t type);

/// Bytes that the relocation writes; 0 for R_X86_64_NONE.
uint32_t patchBytes(uint32_t type);

/// Patches `place` (writable), which will run at `address`. `target` is the
/// symbol, its thunk or its table entry. Refuses a value that does not fit the
/// field.
Status patch(uint8_t *place, uint64_t address, uint32_t type, uint64_t target, int64_t addend);

} // namespace llmopt::runtime
