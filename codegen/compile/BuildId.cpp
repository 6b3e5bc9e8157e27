#include "codegen/compile/BuildId.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"

#include <cstring>
#include <link.h>
#include <sys/stat.h>

namespace {

struct Search {
  uintptr_t code; ///< an address inside of the wanted object
  std::string id, file;
};

bool holds(const dl_phdr_info &object, uintptr_t address) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr) &part = object.dlpi_phdr[i];
    if (part.p_type == PT_LOAD && address - (object.dlpi_addr + part.p_vaddr) < part.p_memsz)
      return true;
  }
  return false;
}

/// The GNU build id of a segment of notes, in hex; empty where there is none.
std::string buildIdOf(llvm::ArrayRef<uint8_t> notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes.data(), sizeof(note));
    size_t name = sizeof(note), description = name + (note.n_namesz + 3) / 4 * 4,
           end = description + (note.n_descsz + 3) / 4 * 4;
    if (end > notes.size())
      break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(notes.data() + name, "GNU", 4) == 0)
      return llvm::toHex(notes.slice(description, note.n_descsz), /*LowerCase=*/true);
    notes = notes.drop_front(end);
  }
  return "";
}

int visit(dl_phdr_info *object, size_t, void *context) {
  auto &search = *static_cast<Search *>(context);
  if (!holds(*object, search.code))
    return 0;
  search.file = object->dlpi_name && *object->dlpi_name ? object->dlpi_name : "/proc/self/exe";
  for (int i = 0; i < object->dlpi_phnum && search.id.empty(); ++i) {
    const ElfW(Phdr) &part = object->dlpi_phdr[i];
    if (part.p_type == PT_NOTE)
      search.id = buildIdOf(
          {reinterpret_cast<const uint8_t *>(object->dlpi_addr + part.p_vaddr), part.p_memsz});
  }
  return 1;
}

std::string find() {
  Search search{reinterpret_cast<uintptr_t>(&find), "", ""};
  dl_iterate_phdr(visit, &search);
  if (!search.id.empty())
    return search.id;
  struct stat info = {};
  ::stat(search.file.c_str(), &info);
  return (llvm::Twine(info.st_size) + "-" + llvm::Twine(info.st_mtim.tv_sec) + "." +
          llvm::Twine(info.st_mtim.tv_nsec))
      .str();
}

} // namespace

const std::string &llmopt::compilerBuildId() {
  static const std::string id = find();
  return id;
}
