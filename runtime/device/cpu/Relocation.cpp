#include "runtime/device/cpu/Relocation.h"

#include <cstring>
#include <elf.h>
#include <limits>

namespace llmopt::runtime {

RelocationNeeds needsOf(uint32_t type) {
  switch (type) {
  case R_X86_64_NONE:
  case R_X86_64_64:
  case R_X86_64_PC64:
    return {.known = true};
  // A 32-bit field rarely reaches an external function; its thunk is always near
  // and serves as its address too.
  case R_X86_64_PC32:
  case R_X86_64_PLT32:
    return {.known = true, .thunk = true};
  case R_X86_64_32:
  case R_X86_64_32S:
    return {.known = true, .thunk = true, .lowMemory = true};
  case R_X86_64_GOTPCREL:
  case R_X86_64_GOTPCRELX:
  case R_X86_64_REX_GOTPCRELX:
    return {.known = true, .got = true};
  default:
    return {};
  }
}

std::string relocationName(uint32_t type) {
  switch (type) {
#define LLMOPT_NAME(name)                                                                          \
  case name:                                                                                       \
    return #name;
    LLMOPT_NAME(R_X86_64_NONE)
    LLMOPT_NAME(R_X86_64_64)
    LLMOPT_NAME(R_X86_64_PC32)
    LLMOPT_NAME(R_X86_64_PC64)
    LLMOPT_NAME(R_X86_64_PLT32)
    LLMOPT_NAME(R_X86_64_32)
    LLMOPT_NAME(R_X86_64_32S)
    LLMOPT_NAME(R_X86_64_GOTPCREL)
    LLMOPT_NAME(R_X86_64_GOTPCRELX)
    LLMOPT_NAME(R_X86_64_REX_GOTPCRELX)
    LLMOPT_NAME(R_X86_64_TPOFF32)
    LLMOPT_NAME(R_X86_64_TPOFF64)
    LLMOPT_NAME(R_X86_64_GOTTPOFF)
    LLMOPT_NAME(R_X86_64_TLSGD)
    LLMOPT_NAME(R_X86_64_TLSLD)
    LLMOPT_NAME(R_X86_64_GOTOFF64)
    LLMOPT_NAME(R_X86_64_GOTPC32)
#undef LLMOPT_NAME
  default:
    return fmt::format("type {}", type);
  }
}

std::string_view reasonAgainst(uint32_t type) {
  switch (type) {
  case R_X86_64_TPOFF32:
  case R_X86_64_TPOFF64:
  case R_X86_64_DTPOFF32:
  case R_X86_64_DTPOFF64:
  case R_X86_64_GOTTPOFF:
  case R_X86_64_TLSGD:
  case R_X86_64_TLSLD:
    return "thread-local variables are not allowed in kernels";
  default:
    return "compile for the small code model";
  }
}

uint32_t patchBytes(uint32_t type) {
  switch (type) {
  case R_X86_64_NONE:
    return 0;
  case R_X86_64_64:
  case R_X86_64_PC64:
    return 8;
  default:
    return 4;
  }
}

Status patch(uint8_t *place, uint64_t address, uint32_t type, uint64_t target, int64_t addend) {
  // Unsigned arithmetic wraps, as the psABI means it.
  uint64_t value = target + static_cast<uint64_t>(addend);
  bool relative = type != R_X86_64_64 && type != R_X86_64_32 && type != R_X86_64_32S;
  if (relative)
    value -= address;
  uint32_t bytes = patchBytes(type);
  if (bytes == 8) {
    std::memcpy(place, &value, 8);
    return {};
  }
  if (bytes == 0)
    return {};
  auto asSigned = static_cast<int64_t>(value);
  bool fits = type == R_X86_64_32 ? value <= std::numeric_limits<uint32_t>::max()
                                  : asSigned >= std::numeric_limits<int32_t>::min() &&
                                        asSigned <= std::numeric_limits<int32_t>::max();
  if (!fits)
    return makeStatus(StatusCode::Unsupported,
                      "{} gives {:#x}, which does not fit 32 bits; compile as position "
                      "independent code",
                      relocationName(type), value);
  auto field = static_cast<uint32_t>(value);
  std::memcpy(place, &field, 4);
  return {};
}

} // namespace llmopt::runtime
