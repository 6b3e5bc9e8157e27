#include "runtime/device/cpu/ElfLoader.h"

#include "runtime/base/File.h"

#include <cmath>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <unistd.h>

using namespace llmopt::runtime;

namespace {

std::vector<uint8_t> readObject(const char *path) {
  StatusOr<std::vector<uint8_t>> bytes = readFile(path, 1 << 24);
  EXPECT_TRUE(bytes) << bytes.status().toString();
  return bytes ? *bytes : std::vector<uint8_t>();
}

template <typename Function> Function *functionOf(const LoadedObject &object, const char *name) {
  StatusOr<void *> address = object.function(name);
  EXPECT_TRUE(address) << address.status().toString();
  return address ? reinterpret_cast<Function *>(*address) : nullptr;
}

/// An object whose records can be changed in place.
class Editable {
public:
  explicit Editable(const char *path) : bytes(readObject(path)) {}

  Elf64_Ehdr *header() { return reinterpret_cast<Elf64_Ehdr *>(bytes.data()); }
  Elf64_Shdr *section(size_t i) {
    return reinterpret_cast<Elf64_Shdr *>(bytes.data() + header()->e_shoff) + i;
  }
  Elf64_Shdr *sectionOfType(uint32_t type) {
    for (size_t i = 0; i < header()->e_shnum; ++i)
      if (section(i)->sh_type == type)
        return section(i);
    return nullptr;
  }
  Elf64_Sym *symbol(std::string_view name) {
    Elf64_Shdr *table = sectionOfType(SHT_SYMTAB);
    const char *names =
        reinterpret_cast<const char *>(bytes.data()) + section(table->sh_link)->sh_offset;
    auto *symbols = reinterpret_cast<Elf64_Sym *>(bytes.data() + table->sh_offset);
    for (size_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); ++i)
      if (names + symbols[i].st_name == name)
        return symbols + i;
    return nullptr;
  }
  /// First relocation of the code section.
  Elf64_Rela *relocation() {
    for (size_t i = 0; i < header()->e_shnum; ++i)
      if (section(i)->sh_type == SHT_RELA && section(section(i)->sh_info)->sh_flags & SHF_EXECINSTR)
        return reinterpret_cast<Elf64_Rela *>(bytes.data() + section(i)->sh_offset);
    return nullptr;
  }
  Status load() { return LoadedObject::load(bytes).status(); }

  std::vector<uint8_t> bytes;
};

/// Permissions of the mapping that holds an address: "r-xp".
std::string permissionsOf(const void *address) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    uint64_t begin, end;
    char permissions[5];
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, permissions) == 3 &&
        reinterpret_cast<uint64_t>(address) >= begin && reinterpret_cast<uint64_t>(address) < end)
      return permissions;
  }
  return "";
}

class ElfLoader : public testing::TestWithParam<const char *> {};

} // namespace

TEST_P(ElfLoader, RunsTheSample) {
  StatusOr<LoadedObject> loaded = LoadedObject::load(readObject(GetParam()));
  ASSERT_TRUE(loaded) << loaded.status().toString();
  const LoadedObject &object = *loaded;

  float values[8] = {8, 7, 6, 5, 4, 3, 2, 1};
  EXPECT_EQ(functionOf<float(const float *)>(object, "weightedSum")(values), 120);
  EXPECT_DOUBLE_EQ(functionOf<double(double)>(object, "scaled")(1),
                   2.718281828459045 + 0.577215664901532);
  EXPECT_EQ(functionOf<float(float)>(object, "callTanh")(0.5f), std::tanh(0.5f) * 2);
  EXPECT_EQ(functionOf<int()>(object, "bumpCounter")(), 41);
  EXPECT_EQ(functionOf<int()>(object, "bumpCounter")(), 42);
  EXPECT_EQ(functionOf<long(int)>(object, "bumpZeroed")(5), 5);
  EXPECT_EQ(functionOf<long(int)>(object, "bumpZeroed")(5), 10);
  EXPECT_EQ(functionOf<int(int, int)>(object, "callThroughTable")(0, 5), 15);
  EXPECT_EQ(functionOf<int(int, int)>(object, "callThroughTable")(1, 5), -5);
  EXPECT_STREQ(functionOf<const char *(int)>(object, "greeting")(1), "hello");
  int expected[] = {126, 119, -41, 42 ^ 0x55, 336, 6, -1};
  for (int i = 0; i < 7; ++i)
    EXPECT_EQ(functionOf<int(int)>(object, "jumpTable")(i), expected[i]);
  char copy[6] = {};
  functionOf<void(void *, const void *, unsigned long)>(object, "copyBytes")(copy, "abc", 4);
  EXPECT_STREQ(copy, "abc");
  EXPECT_EQ(functionOf<float (*())(float)>(object, "tanhPointer")()(0.25f), std::tanh(0.25f));
}

TEST_P(ElfLoader, EachLoadHasDataOfItsOwn) {
  std::vector<uint8_t> bytes = readObject(GetParam());
  StatusOr<LoadedObject> first = LoadedObject::load(bytes);
  StatusOr<LoadedObject> second = LoadedObject::load(bytes);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(functionOf<int()>(*first, "bumpCounter")(), 41);
  EXPECT_EQ(functionOf<int()>(*second, "bumpCounter")(), 41);
  EXPECT_EQ(*static_cast<int *>(*first->variable("counter")), 41);
}

TEST_P(ElfLoader, NoPageIsWritableAndExecutable) {
  StatusOr<LoadedObject> object = LoadedObject::load(readObject(GetParam()));
  ASSERT_TRUE(object);
  EXPECT_EQ(permissionsOf(*object->function("callTanh")), "r-xp");
  EXPECT_EQ(permissionsOf(*object->variable("kWeights")), "r--p");
  EXPECT_EQ(permissionsOf(*object->variable("counter")), "rw-p");
  EXPECT_EQ(permissionsOf(*object->variable("zeroed")), "rw-p");
}

TEST_P(ElfLoader, MovingKeepsTheMapping) {
  StatusOr<LoadedObject> loaded = LoadedObject::load(readObject(GetParam()));
  ASSERT_TRUE(loaded);
  LoadedObject moved = *std::move(loaded);
  StatusOr<LoadedObject> other = LoadedObject::load(readObject(GetParam()));
  ASSERT_TRUE(other);
  moved = *std::move(other);
  EXPECT_EQ(functionOf<int()>(moved, "bumpCounter")(), 41);
}

TEST_P(ElfLoader, UnalignedBytesAreFine) {
  std::vector<uint8_t> bytes = readObject(GetParam());
  bytes.insert(bytes.begin(), 0);
  StatusOr<LoadedObject> object = LoadedObject::load(std::span(bytes).subspan(1));
  ASSERT_TRUE(object) << object.status().toString();
  EXPECT_EQ(functionOf<int()>(*object, "bumpCounter")(), 41);
}

// Mutated objects are loaded, never run.
TEST_P(ElfLoader, FlippedBytesGiveErrorsNotCrashes) {
  const std::vector<uint8_t> bytes = readObject(GetParam());
  std::vector<uint8_t> changed = bytes;
  int refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (uint8_t mask : {0x01, 0x80, 0xff}) {
      changed[i] = bytes[i] ^ mask;
      refused += !LoadedObject::load(changed).ok();
    }
    changed[i] = bytes[i];
  }
  EXPECT_GT(refused, 1000);
}

TEST_P(ElfLoader, RandomDamageGivesErrorsNotCrashes) {
  const std::vector<uint8_t> bytes = readObject(GetParam());
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint8_t> changed = bytes;
    for (int i = 0; i < 4; ++i) {
      size_t at = random() % (changed.size() - 8);
      uint64_t value = random() % 2 ? ~uint64_t{0} >> random() % 64 : random() % 128;
      std::memcpy(changed.data() + at, &value, 1 + random() % 8);
    }
    (void)LoadedObject::load(changed).ok();
  }
}

TEST_P(ElfLoader, EveryTruncationIsRefused) {
  std::vector<uint8_t> bytes = readObject(GetParam());
  // The section table is the last thing in an object, so nothing may be
  // missing.
  for (size_t size = 0; size < bytes.size(); size += 7)
    EXPECT_FALSE(LoadedObject::load(std::span(bytes).first(size)).ok()) << size;
}

INSTANTIATE_TEST_SUITE_P(Models, ElfLoader, testing::Values(ELF_SAMPLE_PIC, ELF_SAMPLE_STATIC),
                         [](const auto &info) { return info.index ? "Static" : "Pic"; });

TEST(ElfLoaderRefusals, MissingNamesAndWrongKinds) {
  StatusOr<LoadedObject> object = LoadedObject::load(readObject(ELF_SAMPLE_PIC));
  ASSERT_TRUE(object);
  EXPECT_EQ(object->function("absent").status().toString(),
            "NotFound: object has no function 'absent'");
  EXPECT_EQ(object->function("counter").status().code(), StatusCode::InvalidArgument);
  EXPECT_EQ(object->variable("bumpCounter").status().code(), StatusCode::InvalidArgument);
}

TEST(ElfLoaderRefusals, UnknownExternalSymbol) {
  SymbolResolver none = [](std::string_view) -> void * { return nullptr; };
  StatusOr<LoadedObject> object = LoadedObject::load(readObject(ELF_SAMPLE_PIC), none);
  ASSERT_FALSE(object);
  EXPECT_EQ(object.status().code(), StatusCode::NotFound);
  EXPECT_EQ(resolveHostSymbol("system"), nullptr);
  EXPECT_EQ(resolveHostSymbol(""), nullptr);
}

TEST(ElfLoaderRefusals, ThreadLocalVariables) {
  Status status = Editable(ELF_THREAD_LOCAL).load();
  EXPECT_EQ(status.code(), StatusCode::Unsupported);
  EXPECT_NE(status.message().find("thread-local"), std::string::npos);
}

TEST(ElfLoaderRefusals, IndirectFunctionsAndCommonSymbols) {
  Editable indirect(ELF_SAMPLE_PIC);
  indirect.symbol("scaled")->st_info = ELF64_ST_INFO(STB_GLOBAL, STT_GNU_IFUNC);
  EXPECT_EQ(indirect.load().message(),
            "symbol 'scaled' is an indirect function; plain functions are allowed");
  Editable common(ELF_SAMPLE_PIC);
  common.symbol("zeroed")->st_shndx = SHN_COMMON;
  EXPECT_EQ(common.load().message(),
            "symbol 'zeroed' is a common symbol; compile with -fno-common");
}

TEST(ElfLoaderRefusals, OtherFiles) {
  Editable machine(ELF_SAMPLE_PIC);
  machine.header()->e_machine = EM_AARCH64;
  EXPECT_EQ(machine.load().code(), StatusCode::Unsupported);
  Editable shared(ELF_SAMPLE_PIC);
  shared.header()->e_type = ET_DYN;
  EXPECT_EQ(shared.load().code(), StatusCode::Unsupported);
  EXPECT_EQ(LoadedObject::load({}).status().code(), StatusCode::DataLoss);
}

TEST(ElfLoaderRefusals, Relocations) {
  Editable unknown(ELF_SAMPLE_PIC);
  unknown.relocation()->r_info = ELF64_R_INFO(1, R_X86_64_GOTOFF64);
  EXPECT_EQ(unknown.load().message(), "section '.text' has relocation R_X86_64_GOTOFF64, "
                                      "which is not supported; compile for the small code "
                                      "model");
  Editable threadLocal(ELF_SAMPLE_PIC);
  threadLocal.relocation()->r_info = ELF64_R_INFO(1, R_X86_64_TPOFF32);
  EXPECT_NE(threadLocal.load().message().find("thread-local"), std::string::npos);
  Editable far(ELF_SAMPLE_PIC);
  far.relocation()->r_offset = ~uint64_t{0} - 1;
  EXPECT_EQ(far.load().code(), StatusCode::DataLoss);
  Editable large(ELF_SAMPLE_PIC);
  large.relocation()->r_addend = int64_t{1} << 40;
  EXPECT_NE(large.load().message().find("does not fit 32 bits"), std::string::npos);
}

TEST(ElfLoaderRefusals, HugeSectionsAndAlignments) {
  Editable bss(ELF_SAMPLE_PIC);
  bss.sectionOfType(SHT_NOBITS)->sh_size = uint64_t{1} << 60;
  EXPECT_EQ(bss.load().code(), StatusCode::DataLoss);
  Editable alignment(ELF_SAMPLE_PIC);
  alignment.sectionOfType(SHT_NOBITS)->sh_addralign = uint64_t{1} << 63;
  EXPECT_EQ(alignment.load().code(), StatusCode::DataLoss);
  Editable odd(ELF_SAMPLE_PIC);
  odd.sectionOfType(SHT_NOBITS)->sh_addralign = 3;
  EXPECT_EQ(odd.load().code(), StatusCode::DataLoss);
}
