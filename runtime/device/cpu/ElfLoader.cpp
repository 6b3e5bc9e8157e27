#include "runtime/device/cpu/ElfLoader.h"

#include "runtime/device/cpu/ElfFile.h"
#include "runtime/device/cpu/Relocation.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace llmopt::runtime {

namespace {

constexpr uint64_t kPage = 4096;
/// Far above any kernel, far below what a 32-bit displacement reaches.
constexpr uint64_t kMaxImageBytes = uint64_t{1} << 28;
constexpr uint64_t kThunkBytes = 16;
constexpr uint64_t kGotBytes = 8;
/// Kept free before the first function: callers built with clang's function
/// sanitizer look for a type signature in the eight bytes before what they
/// call.
constexpr uint64_t kLeadBytes = 64;

uint64_t alignTo(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

enum Part { Code, Constants, Data, PartCount };

bool isUnwindTable(const ElfSection &section) {
  return section.name == ".eh_frame" || section.header.sh_type == SHT_X86_64_UNWIND;
}

bool isLoaded(const ElfSection &section) {
  return section.isAllocated() && !isUnwindTable(section) && section.header.sh_type != SHT_NOTE;
}

Part partOf(const ElfSection &section) {
  return section.isCode() ? Code : section.isWritable() ? Data : Constants;
}

Status refuse(std::string message) { return Status(StatusCode::Unsupported, std::move(message)); }

} // namespace

/// Lays one object out, maps it and resolves it. Used once.
class ObjectLinker {
public:
  ObjectLinker(const ElfFile &file, const SymbolResolver &resolve) : file(file), resolve(resolve) {}

  StatusOr<LoadedObject> link() {
    LLMOPT_RETURN_IF_ERROR(checkSections());
    LLMOPT_RETURN_IF_ERROR(checkSymbols());
    LLMOPT_RETURN_IF_ERROR(findNeeds());
    LLMOPT_RETURN_IF_ERROR(layOut());
    LLMOPT_RETURN_IF_ERROR(map());
    copySections();
    LLMOPT_RETURN_IF_ERROR(fillGot());
    fillThunks();
    LLMOPT_RETURN_IF_ERROR(relocate());
    LLMOPT_RETURN_IF_ERROR(protect());
    exportSymbols();
    return std::move(object);
  }

private:
  struct PartLayout {
    uint64_t begin = 0, end = 0; ///< offsets in the mapping, page aligned
  };

  Status checkSections() const;
  Status checkSymbols() const;
  Status findNeeds();
  Status needsOfOne(const ElfRelocation &relocation);
  Status layOut();
  Status map();
  void copySections();
  Status fillGot();
  void fillThunks();
  Status relocate();
  Status relocateOne(const ElfRelocation &relocation);
  Status protect();
  void exportSymbols();
  StatusOr<uint64_t> addressOf(uint32_t symbol) const;

  uint8_t *at(uint64_t offset) { return static_cast<uint8_t *>(object.base) + offset; }
  uint64_t addressAt(uint64_t offset) const {
    return reinterpret_cast<uint64_t>(object.base) + offset;
  }

  const ElfFile &file;
  const SymbolResolver &resolve;
  bool lowMemory = false;
  /// Offset in the mapping of each loaded section, and of each symbol's
  /// helpers.
  std::vector<std::optional<uint64_t>> sectionAt, gotAt, thunkAt;
  std::array<PartLayout, PartCount> parts;
  LoadedObject object;
};

Status ObjectLinker::checkSections() const {
  for (const ElfSection &section : file.sections) {
    if (!isLoaded(section))
      continue;
    uint64_t alignment = section.header.sh_addralign;
    if (section.header.sh_flags & SHF_TLS)
      return refuse(fmt::format("section '{}' holds thread-local variables, which are "
                                "not allowed in kernels",
                                section.name));
    if (section.header.sh_type != SHT_PROGBITS && section.header.sh_type != SHT_NOBITS)
      return refuse(fmt::format("section '{}' has type {}; allowed are code and data "
                                "without constructors",
                                section.name, section.header.sh_type));
    if (section.isCode() && section.isWritable())
      return refuse(fmt::format("section '{}' is writable and executable; one of both "
                                "is allowed",
                                section.name));
    if (alignment > kPage || (alignment & (alignment - 1)) != 0)
      return dataLoss("section '{}' is aligned to {}; powers of two up to {} are allowed",
                      section.name, alignment, kPage);
    if (section.header.sh_size > kMaxImageBytes)
      return dataLoss("section '{}' has {} bytes; at most {} are allowed", section.name,
                      section.header.sh_size, kMaxImageBytes);
  }
  return {};
}

Status ObjectLinker::checkSymbols() const {
  for (const ElfSymbol &symbol : file.symbols) {
    uint16_t section = symbol.entry.st_shndx;
    if (symbol.type() == STT_GNU_IFUNC)
      return refuse(fmt::format("symbol '{}' is an indirect function; plain functions "
                                "are allowed",
                                symbol.name));
    if (symbol.type() == STT_TLS)
      return refuse(fmt::format("symbol '{}' is thread-local, which is not allowed in "
                                "kernels",
                                symbol.name));
    if (section == SHN_COMMON)
      return refuse(fmt::format("symbol '{}' is a common symbol; compile with "
                                "-fno-common",
                                symbol.name));
    if (section >= SHN_LORESERVE && section != SHN_ABS)
      return refuse(
          fmt::format("symbol '{}' lies in reserved section {:#x}", symbol.name, section));
    if (section != SHN_UNDEF && section < SHN_LORESERVE &&
        symbol.entry.st_value > file.sections[section].header.sh_size)
      return dataLoss("symbol '{}' lies at {} of section '{}', which has {} bytes", symbol.name,
                      symbol.entry.st_value, file.sections[section].name,
                      file.sections[section].header.sh_size);
  }
  return {};
}

Status ObjectLinker::needsOfOne(const ElfRelocation &relocation) {
  const ElfSection &section = file.sections[relocation.section];
  uint32_t type = relocation.type();
  RelocationNeeds needs = needsOf(type);
  if (!needs.known)
    return refuse(fmt::format("section '{}' has relocation {}, which is not supported; "
                              "{}",
                              section.name, relocationName(type), reasonAgainst(type)));
  uint64_t offset = relocation.entry.r_offset, bytes = patchBytes(type);
  if (offset > section.bytes.size() || bytes > section.bytes.size() - offset)
    return dataLoss("relocation {} at {} of section '{}', which has {} bytes", relocationName(type),
                    offset, section.name, section.bytes.size());
  lowMemory |= needs.lowMemory;
  if (needs.got)
    gotAt[relocation.symbol()] = 0;
  if (needs.thunk && file.symbols[relocation.symbol()].isUndefined())
    thunkAt[relocation.symbol()] = gotAt[relocation.symbol()] = 0;
  return {};
}

Status ObjectLinker::findNeeds() {
  gotAt.resize(file.symbols.size());
  thunkAt.resize(file.symbols.size());
  for (const ElfRelocation &relocation : file.relocations)
    if (isLoaded(file.sections[relocation.section]))
      LLMOPT_RETURN_IF_ERROR(needsOfOne(relocation));
  return {};
}

Status ObjectLinker::layOut() {
  sectionAt.resize(file.sections.size());
  uint64_t offset = kLeadBytes;
  for (int part = 0; part < PartCount; ++part) {
    parts[part].begin = part == Code ? 0 : offset;
    for (size_t i = 0; i < file.sections.size(); ++i) {
      const ElfSection &section = file.sections[i];
      if (!isLoaded(section) || partOf(section) != part)
        continue;
      offset = alignTo(offset, std::max<uint64_t>(section.header.sh_addralign, 1));
      sectionAt[i] = offset;
      offset += section.header.sh_size;
      // Each term is bounded, so the sum cannot wrap before this stops it.
      if (offset > kMaxImageBytes)
        return dataLoss("object needs more than {} bytes of memory, which is the limit",
                        kMaxImageBytes);
    }
    offset = alignTo(offset, kThunkBytes);
    if (part == Code)
      for (std::optional<uint64_t> &thunk : thunkAt)
        if (thunk)
          thunk = std::exchange(offset, offset + kThunkBytes);
    if (part == Constants)
      for (std::optional<uint64_t> &entry : gotAt)
        if (entry)
          entry = std::exchange(offset, offset + kGotBytes);
    offset = alignTo(offset, kPage);
    parts[part].end = offset;
  }
  if (offset > kMaxImageBytes)
    return dataLoss("object needs {} bytes of memory; at most {} are allowed", offset,
                    kMaxImageBytes);
  object.size = std::max(offset, kPage);
  return {};
}

Status ObjectLinker::map() {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | (lowMemory ? MAP_32BIT : 0);
  void *base = ::mmap(nullptr, object.size, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (base == MAP_FAILED)
    return makeStatus(StatusCode::ResourceExhausted, "cannot map {} bytes{}: {}", object.size,
                      lowMemory ? " below 2 GiB" : "", std::strerror(errno));
  object.base = base;
  return {};
}

void ObjectLinker::copySections() {
  for (size_t i = 0; i < file.sections.size(); ++i)
    if (sectionAt[i] && !file.sections[i].bytes.empty())
      std::memcpy(at(*sectionAt[i]), file.sections[i].bytes.data(), file.sections[i].bytes.size());
}

StatusOr<uint64_t> ObjectLinker::addressOf(uint32_t index) const {
  const ElfSymbol &symbol = file.symbols[index];
  if (index == 0)
    return uint64_t{0};
  if (symbol.isUndefined()) {
    void *address = resolve(symbol.name);
    if (!address)
      return makeStatus(StatusCode::NotFound,
                        "object refers to external symbol '{}'; allowed are memory and "
                        "mathematical functions of the C library",
                        symbol.name);
    return reinterpret_cast<uint64_t>(address);
  }
  if (symbol.entry.st_shndx == SHN_ABS)
    return symbol.entry.st_value;
  std::optional<uint64_t> offset = sectionAt[symbol.entry.st_shndx];
  if (!offset)
    return dataLoss("symbol '{}' lies in section '{}', which is not loaded", symbol.name,
                    file.sections[symbol.entry.st_shndx].name);
  return addressAt(*offset) + symbol.entry.st_value;
}

Status ObjectLinker::fillGot() {
  for (uint32_t symbol = 0; symbol < gotAt.size(); ++symbol) {
    if (!gotAt[symbol])
      continue;
    StatusOr<uint64_t> address = addressOf(symbol);
    if (!address)
      return address.status();
    std::memcpy(at(*gotAt[symbol]), &*address, kGotBytes);
  }
  return {};
}

/// jmp *entry(%rip): an external function may lie anywhere.
void ObjectLinker::fillThunks() {
  for (size_t symbol = 0; symbol < thunkAt.size(); ++symbol) {
    if (!thunkAt[symbol])
      continue;
    uint8_t *thunk = at(*thunkAt[symbol]);
    constexpr std::array<uint8_t, 2> jump = {0xff, 0x25};
    std::memcpy(thunk, jump.data(), jump.size());
    auto distance = static_cast<uint32_t>(*gotAt[symbol] - (*thunkAt[symbol] + 6));
    std::memcpy(thunk + jump.size(), &distance, sizeof(distance));
  }
}

Status ObjectLinker::relocateOne(const ElfRelocation &relocation) {
  uint32_t type = relocation.type(), symbol = relocation.symbol();
  if (type == R_X86_64_NONE)
    return {};
  uint64_t target = 0;
  if (needsOf(type).got) {
    target = addressAt(*gotAt[symbol]);
  } else if (needsOf(type).thunk && thunkAt[symbol]) {
    target = addressAt(*thunkAt[symbol]);
  } else {
    StatusOr<uint64_t> address = addressOf(symbol);
    if (!address)
      return address.status();
    target = *address;
  }
  uint64_t place = *sectionAt[relocation.section] + relocation.entry.r_offset;
  Status status = patch(at(place), addressAt(place), type, target, relocation.entry.r_addend);
  return status.withContext(fmt::format("reference to '{}'", file.symbols[symbol].name));
}

Status ObjectLinker::relocate() {
  for (const ElfRelocation &relocation : file.relocations)
    if (isLoaded(file.sections[relocation.section]))
      LLMOPT_RETURN_IF_ERROR(relocateOne(relocation));
  return {};
}

Status ObjectLinker::protect() {
  constexpr std::array protection = {PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};
  for (int part = 0; part < PartCount; ++part) {
    auto [begin, end] = parts[part];
    if (begin < end && ::mprotect(at(begin), end - begin, protection[part]) != 0)
      return makeStatus(StatusCode::Unavailable,
                        "cannot make {} bytes of a kernel executable: {}; the system "
                        "may forbid code that was not loaded from a file",
                        end - begin, std::strerror(errno));
  }
  return {};
}

void ObjectLinker::exportSymbols() {
  for (const ElfSymbol &symbol : file.symbols) {
    bool global = symbol.binding() == STB_GLOBAL || symbol.binding() == STB_WEAK;
    uint16_t section = symbol.entry.st_shndx;
    if (!global || symbol.isUndefined() || section >= SHN_LORESERVE || !sectionAt[section])
      continue;
    uint8_t *address = at(*sectionAt[section]) + symbol.entry.st_value;
    object.exports.insert({std::string(symbol.name), {address, file.sections[section].isCode()}});
  }
}

StatusOr<LoadedObject> LoadedObject::load(std::span<const uint8_t> bytes,
                                          const SymbolResolver &resolve) {
  try {
    StatusOr<ElfFile> file = ElfFile::parse(bytes);
    if (!file)
      return file.status();
    return ObjectLinker(*file, resolve).link();
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "no memory to load an object of {} bytes",
                      bytes.size());
  }
}

LoadedObject::LoadedObject(LoadedObject &&other) noexcept
    : base(std::exchange(other.base, nullptr)), size(std::exchange(other.size, 0)),
      exports(std::move(other.exports)) {}

LoadedObject &LoadedObject::operator=(LoadedObject &&other) noexcept {
  if (this != &other) {
    release();
    base = std::exchange(other.base, nullptr);
    size = std::exchange(other.size, 0);
    exports = std::move(other.exports);
  }
  return *this;
}

LoadedObject::~LoadedObject() { release(); }

void LoadedObject::release() {
  if (base)
    ::munmap(base, size);
  base = nullptr;
}

StatusOr<void *> LoadedObject::find(std::string_view name, bool isCode) const {
  auto found = exports.find(name);
  std::string_view kind = isCode ? "function" : "variable";
  if (found == exports.end())
    return makeStatus(StatusCode::NotFound, "object has no {} '{}'", kind, name);
  if (found->second.isCode != isCode)
    return invalidArgument("symbol '{}' of the object is not a {}", name, kind);
  return found->second.address;
}

StatusOr<void *> LoadedObject::function(std::string_view name) const { return find(name, true); }

StatusOr<void *> LoadedObject::variable(std::string_view name) const { return find(name, false); }

} // namespace llmopt::runtime
