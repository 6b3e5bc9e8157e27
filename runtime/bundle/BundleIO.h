// A Program as bytes: what is saved, cached and shipped.
//
// Layout, little endian: an eight-byte magic "LLMOPTB\0", format version (u32),
// ABI version (u32), payload size (u64), XXH3 64-bit checksum of the payload
// (u64), the payload. A bundle holds one program, or a *family*: the same spec compiled for
// several targets. Strings and lists carry their length first. Reading
// trusts nothing: each length is compared with a fixed limit and with the bytes
// that are left before anything is allocated, and the Program that comes out
// has passed `validate`.
//
// The checksum finds accidents, not attacks: a bundle holds machine code, so
// load only bundles that you would run.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/Program.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmopt::bundle {

/// Version of the encoding; the records' own version is kAbiVersion.
inline constexpr uint32_t kFormatVersion = 6;

/// Limits of what is read. Far above what any spec needs.
inline constexpr uint64_t kMaxBundleBytes = uint64_t{1} << 31;
inline constexpr uint32_t kMaxNameBytes = 4096;
inline constexpr uint32_t kMaxTextBytes = 64u << 20;
inline constexpr uint32_t kMaxListEntries = 65536;
inline constexpr uint32_t kMaxRank = 8;

/// Whether every index, enumerator and bound program of a Program makes sense.
/// What fails is named: "slot 3 names buffer 9; the program has 4 buffers".
runtime::Status validate(const Program &program);

/// What a device asks of a program before it loads it: this runtime's ABI version, else
/// Unavailable, and `validate`. Messages begin with the program's name.
runtime::Status checkLoadable(const Program &program);

inline constexpr uint32_t kMaxFamily = 64;

std::vector<uint8_t> serialize(const Program &program);
/// All programs must have the same ABI version.
std::vector<uint8_t> serialize(std::span<const Program> family);

/// Whether bytes, or a file that can be read, begin as a bundle does.
bool looksLikeBundle(std::string_view bytes);
bool isBundleFile(const std::string &path);

/// DataLoss for bytes that are not a whole, intact bundle; Unavailable for a
/// bundle of another format or ABI version, which must be compiled again;
/// InvalidArgument for a family where one program is wanted.
runtime::StatusOr<Program> deserialize(std::span<const uint8_t> bytes);
runtime::StatusOr<std::vector<Program>> deserializeFamily(std::span<const uint8_t> bytes);

/// Save by atomic rename; errors name the file.
runtime::Status saveBundle(const Program &program, const std::string &path);
runtime::Status saveFamily(std::span<const Program> family, const std::string &path);
runtime::StatusOr<Program> loadBundle(const std::string &path);
runtime::StatusOr<std::vector<Program>> loadFamily(const std::string &path);

} // namespace llmopt::bundle
