#include "runtime/target/CpuFeatures.h"

namespace llmopt::runtime {

namespace {

constexpr auto Eax = CpuidRegister::Eax;
constexpr auto Ebx = CpuidRegister::Ebx;
constexpr auto Ecx = CpuidRegister::Ecx;
constexpr auto Edx = CpuidRegister::Edx;
constexpr auto Base = CpuLevel::Baseline;
constexpr auto V3 = CpuLevel::Avx2;
constexpr auto V4 = CpuLevel::Avx512;
constexpr auto All = CpuLevel::Native;
constexpr auto Ymm = CpuState::Avx;
constexpr auto Zmm = CpuState::Avx512;
constexpr auto Tile = CpuState::Amx;

// Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E.
constexpr CpuFeature kFeatures[] = {
    {"x87", 1, 0, Edx, 0, Base},
    {"cx8", 1, 0, Edx, 8, Base},
    {"cmov", 1, 0, Edx, 15, Base},
    {"mmx", 1, 0, Edx, 23, Base},
    {"fxsr", 1, 0, Edx, 24, Base},
    {"sse", 1, 0, Edx, 25, Base},
    {"sse2", 1, 0, Edx, 26, Base},
    {"64bit", 0x80000001, 0, Edx, 29, Base},
    {"sse3", 1, 0, Ecx, 0, V3},
    {"pclmul", 1, 0, Ecx, 1, All},
    {"ssse3", 1, 0, Ecx, 9, V3},
    {"fma", 1, 0, Ecx, 12, V3, Ymm},
    {"cx16", 1, 0, Ecx, 13, V3},
    {"sse4.1", 1, 0, Ecx, 19, V3},
    {"sse4.2", 1, 0, Ecx, 20, V3},
    {"crc32", 1, 0, Ecx, 20, V3},
    {"movbe", 1, 0, Ecx, 22, V3},
    {"popcnt", 1, 0, Ecx, 23, V3},
    {"aes", 1, 0, Ecx, 25, All},
    {"xsave", 1, 0, Ecx, 26, V3},
    {"avx", 1, 0, Ecx, 28, V3, Ymm},
    {"f16c", 1, 0, Ecx, 29, V3, Ymm},
    {"rdrnd", 1, 0, Ecx, 30, All},
    {"fsgsbase", 7, 0, Ebx, 0, All},
    {"sgx", 7, 0, Ebx, 2, All},
    {"bmi", 7, 0, Ebx, 3, V3},
    {"avx2", 7, 0, Ebx, 5, V3, Ymm},
    {"bmi2", 7, 0, Ebx, 8, V3},
    {"invpcid", 7, 0, Ebx, 10, All},
    {"rtm", 7, 0, Ebx, 11, All},
    {"avx512f", 7, 0, Ebx, 16, V4, Zmm},
    {"avx512dq", 7, 0, Ebx, 17, V4, Zmm},
    {"rdseed", 7, 0, Ebx, 18, All},
    {"adx", 7, 0, Ebx, 19, All},
    {"avx512ifma", 7, 0, Ebx, 21, All, Zmm},
    {"clflushopt", 7, 0, Ebx, 23, All},
    {"clwb", 7, 0, Ebx, 24, All},
    {"avx512cd", 7, 0, Ebx, 28, V4, Zmm},
    {"sha", 7, 0, Ebx, 29, All},
    {"avx512bw", 7, 0, Ebx, 30, V4, Zmm},
    {"avx512vl", 7, 0, Ebx, 31, V4, Zmm},
    {"avx512vbmi", 7, 0, Ecx, 1, All, Zmm},
    {"pku", 7, 0, Ecx, 4, All},
    {"waitpkg", 7, 0, Ecx, 5, All},
    {"avx512vbmi2", 7, 0, Ecx, 6, All, Zmm},
    {"shstk", 7, 0, Ecx, 7, All},
    {"gfni", 7, 0, Ecx, 8, All},
    {"vaes", 7, 0, Ecx, 9, All, Ymm},
    {"vpclmulqdq", 7, 0, Ecx, 10, All, Ymm},
    {"avx512vnni", 7, 0, Ecx, 11, All, Zmm},
    {"avx512bitalg", 7, 0, Ecx, 12, All, Zmm},
    {"avx512vpopcntdq", 7, 0, Ecx, 14, All, Zmm},
    {"rdpid", 7, 0, Ecx, 22, All},
    {"kl", 7, 0, Ecx, 23, All},
    {"enqcmd", 7, 0, Ecx, 29, All},
    {"cldemote", 7, 0, Ecx, 25, All},
    {"movdiri", 7, 0, Ecx, 27, All},
    {"movdir64b", 7, 0, Ecx, 28, All},
    {"avx512vp2intersect", 7, 0, Edx, 8, All, Zmm},
    {"uintr", 7, 0, Edx, 5, All},
    {"serialize", 7, 0, Edx, 14, All},
    {"tsxldtrk", 7, 0, Edx, 16, All},
    {"pconfig", 7, 0, Edx, 18, All},
    {"amx-bf16", 7, 0, Edx, 22, All, Tile},
    {"avx512fp16", 7, 0, Edx, 23, All, Zmm},
    {"amx-tile", 7, 0, Edx, 24, All, Tile},
    {"amx-int8", 7, 0, Edx, 25, All, Tile},
    {"avxvnni", 7, 1, Eax, 4, All, Ymm},
    {"avx512bf16", 7, 1, Eax, 5, All, Zmm},
    {"sha512", 7, 1, Eax, 0, All, Ymm},
    {"sm3", 7, 1, Eax, 1, All, Ymm},
    {"sm4", 7, 1, Eax, 2, All, Ymm},
    {"raoint", 7, 1, Eax, 3, All},
    {"cmpccxadd", 7, 1, Eax, 7, All},
    {"amx-fp16", 7, 1, Eax, 21, All, Tile},
    {"hreset", 7, 1, Eax, 22, All},
    {"avxifma", 7, 1, Eax, 23, All, Ymm},
    {"avxvnniint8", 7, 1, Edx, 4, All, Ymm},
    {"avxneconvert", 7, 1, Edx, 5, All, Ymm},
    {"amx-complex", 7, 1, Edx, 8, All, Tile},
    {"avxvnniint16", 7, 1, Edx, 10, All, Ymm},
    {"prefetchi", 7, 1, Edx, 14, All},
    {"usermsr", 7, 1, Edx, 15, All},
    {"ptwrite", 0x14, 0, Ebx, 4, All},
    {"xsaveopt", 0xd, 1, Eax, 0, All},
    {"xsavec", 0xd, 1, Eax, 1, All},
    {"xsaves", 0xd, 1, Eax, 3, All},
    {"sahf", 0x80000001, 0, Ecx, 0, V3},
    {"lzcnt", 0x80000001, 0, Ecx, 5, V3},
    {"sse4a", 0x80000001, 0, Ecx, 6, All},
    {"prfchw", 0x80000001, 0, Ecx, 8, All},
    {"xop", 0x80000001, 0, Ecx, 11, All, Ymm},
    {"lwp", 0x80000001, 0, Ecx, 15, All},
    {"fma4", 0x80000001, 0, Ecx, 16, All, Ymm},
    {"tbm", 0x80000001, 0, Ecx, 21, All},
    {"mwaitx", 0x80000001, 0, Ecx, 29, All},
    {"clzero", 0x80000008, 0, Ebx, 0, All},
    {"rdpru", 0x80000008, 0, Ebx, 4, All},
    {"wbnoinvd", 0x80000008, 0, Ebx, 9, All},
};

} // namespace

std::span<const CpuFeature> cpuFeatures() { return kFeatures; }

} // namespace llmopt::runtime
