#include "runtime/bundle/BundleIO.h"

#include "runtime/base/File.h"
#include "runtime/bundle/Archive.h"
#include "runtime/bundle/BoundsEval.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace llmopt::bundle {

using runtime::dataLoss;
using runtime::makeStatus;
using runtime::Status;
using runtime::StatusCode;
using runtime::StatusOr;

namespace {

constexpr char kMagic[8] = {'L', 'L', 'M', 'O', 'P', 'T', 'B', '\0'};

struct Header {
  char magic[8];
  uint32_t formatVersion;
  uint32_t abiVersion;
  uint64_t payloadBytes;
  uint64_t checksum;
};
static_assert(sizeof(Header) == 32);

/// T when the archive reads into it, const T when it writes it.
template <typename Archive, typename T>
using Record = std::conditional_t<Archive::kReads, T, const T>;

template <typename Archive>
void transfer(Archive &archive, std::string_view field, Record<Archive, BoundProgram> &program) {
  archive.list(field, program, kMaxBoundInsns, 9, [&](auto &insn) {
    archive.number("bound operation", insn.op);
    archive.number("bound value", insn.value);
  });
}

template <typename Archive>
void transfer(Archive &archive, Record<Archive, AttentionFacts> &facts) {
  archive.number("query heads", facts.queryHeads);
  archive.number("kv heads", facts.kvHeads);
  archive.number("d_qk", facts.dQk);
  archive.number("d_v", facts.dV);
  archive.number("query form", facts.queryForm);
  archive.number("kv form", facts.kvForm);
  archive.number("table form", facts.tableForm);
  archive.number("kv order", facts.kvOrder);
  archive.flag("interleaved", facts.interleaved);
  archive.number("page size", facts.pageSize);
  archive.flag("top left", facts.topLeft);
  archive.flag("batch invariant", facts.batchInvariant);
  archive.number("split keys", facts.splitKeys);
  archive.number("fixed splits", facts.fixedSplits);
  archive.flag("mixes sequences", facts.mixesSequences);
  auto bounds = [&](const char *name, auto &intervals) {
    archive.list(name, intervals, kMaxListEntries, 20, [&](auto &interval) {
      transfer(archive, "interval low", interval.lo);
      transfer(archive, "interval high", interval.hi);
      transfer(archive, "interval stride", interval.stride);
      transfer(archive, "interval phase", interval.phase);
      transfer(archive, "interval width", interval.width);
    });
  };
  bounds("may intervals", facts.may.intervals);
  bounds("surely intervals", facts.surely.intervals);
}

template <typename Archive> void transfer(Archive &archive, Record<Archive, Buffer> &buffer) {
  archive.text("buffer name", buffer.name, kMaxNameBytes);
  archive.number("buffer role", buffer.role);
  archive.number("buffer type", buffer.type);
  archive.flag("buffer output", buffer.output);
  archive.flag("buffer nullable", buffer.nullable);
  archive.list("buffer extents", buffer.extents, kMaxRank, 8,
               [&](auto &extent) { archive.number("buffer extent", extent); });
}

template <typename Archive> void transfer(Archive &archive, Record<Archive, Scalar> &scalar) {
  archive.text("scalar name", scalar.name, kMaxNameBytes);
  archive.number("scalar type", scalar.type);
  archive.number("scalar integer default", scalar.intDefault);
  archive.number("scalar float default", scalar.floatDefault);
  archive.number("scalar per-head buffer", scalar.perHeadBuffer);
  archive.number("scalar least value", scalar.least);
  archive.text("scalar advice", scalar.advice, kMaxNameBytes);
  archive.number("scalar largest value", scalar.most);
  archive.flag("scalar without default", scalar.required);
}

template <typename Archive> void transfer(Archive &archive, Record<Archive, Kernel> &kernel) {
  archive.text("kernel entry", kernel.entry, kMaxNameBytes);
  archive.number("kernel kind", kernel.kind);
  archive.number("kernel image", kernel.image);
  archive.number("kernel tile rows", kernel.tileRows);
  archive.number("kernel tile keys", kernel.tileKeys);
  archive.number("kernel scratch", kernel.scratchBytes);
  archive.number("kernel cost", kernel.costPerTile);
  archive.number("kernel item heads", kernel.itemHeads);
  archive.list("kernel images", kernel.otherImages, kMaxListEntries, 4,
               [&](auto &image) { archive.number("kernel other image", image); });
  archive.number("kernel block threads", kernel.blockThreads);
  archive.number("kernel shared memory", kernel.sharedBytes);
  archive.number("kernel cluster", kernel.clusterBlocks);
}

template <typename Archive>
void transfer(Archive &archive, Record<Archive, ImageFigures> &figures) {
  archive.number("image registers", figures.registers);
  archive.number("image stack", figures.stackBytes);
  archive.number("image spill stores", figures.spillStoreBytes);
  archive.number("image spill loads", figures.spillLoadBytes);
  archive.number("image shared memory", figures.sharedBytes);
  archive.list("image warnings", figures.warnings, kMaxListEntries, 4,
               [&](auto &text) { archive.text("image warning", text, kMaxNameBytes); });
}

template <typename Archive> void transfer(Archive &archive, Record<Archive, Image> &image) {
  archive.number("image format", image.format);
  archive.number("image driver", image.leastDriver);
  archive.text("image triple", image.triple, kMaxNameBytes);
  archive.text("image cpu", image.cpu, kMaxNameBytes);
  archive.text("image features", image.features, kMaxTextBytes);
  transfer(archive, image.figures);
  archive.bytes("image bytes", image.bytes);
}

/// Everything but the ABI version, which the header carries.
template <typename Archive> void transfer(Archive &archive, Record<Archive, Program> &program) {
  archive.text("key", program.key, kMaxNameBytes);
  archive.text("name", program.name, kMaxNameBytes);
  archive.text("target", program.target, kMaxNameBytes);
  archive.text("ir", program.ir, kMaxTextBytes);
  transfer(archive, program.facts);
  archive.list("buffers", program.buffers, kMaxListEntries, 12,
               [&](auto &buffer) { transfer(archive, buffer); });
  archive.list("slots", program.slots, kMaxListEntries, 9, [&](auto &slot) {
    archive.number("slot kind", slot.kind);
    archive.number("slot buffer", slot.buffer);
    archive.number("slot dimension", slot.dim);
  });
  archive.list("scalars", program.scalars, kMaxListEntries, 46,
               [&](auto &scalar) { transfer(archive, scalar); });
  archive.list("kernels", program.kernels, kMaxListEntries, 53,
               [&](auto &kernel) { transfer(archive, kernel); });
  archive.list("images", program.images, kMaxListEntries, 49,
               [&](auto &image) { transfer(archive, image); });
}

/// The versions come before the checksum: a bundle of another version may have
/// another layout, and its owner should read what to do, not "corrupt".
Status checkHeader(const Header &header, std::span<const uint8_t> payload) {
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return dataLoss("field 'magic' differs; the file is not a bundle of llm-opt");
  if (header.formatVersion != kFormatVersion)
    return makeStatus(StatusCode::Unavailable,
                      "bundle has format version {}; this runtime reads version {}; "
                      "compile the spec again",
                      header.formatVersion, kFormatVersion);
  if (header.abiVersion != kAbiVersion)
    return makeStatus(StatusCode::Unavailable,
                      "bundle has ABI version {}; this runtime runs version {}; compile "
                      "the spec again",
                      header.abiVersion, kAbiVersion);
  if (header.payloadBytes != payload.size())
    return dataLoss("field 'payload size' is {}; {} bytes follow the header; the bundle "
                    "is truncated or has trailing bytes",
                    header.payloadBytes, payload.size());
  uint64_t checksum = XXH3_64bits(payload.data(), payload.size());
  if (header.checksum != checksum)
    return dataLoss("field 'checksum' is {:016x}; the payload has {:016x}; the bundle is "
                    "corrupt",
                    header.checksum, checksum);
  return {};
}

template <typename Archive, typename Family> void transferFamily(Archive &archive, Family &family) {
  archive.list("programs", family, kMaxFamily, 16,
               [&](auto &program) { transfer(archive, program); });
}

StatusOr<std::vector<Program>> readPayload(std::span<const uint8_t> payload, uint32_t abiVersion) {
  std::vector<Program> family;
  Reader reader(payload);
  transferFamily(reader, family);
  LLMOPT_RETURN_IF_ERROR(reader.status());
  if (reader.remaining() != 0)
    return dataLoss("{} bytes follow the last field; none are allowed", reader.remaining());
  if (family.empty())
    return dataLoss("the bundle holds no program");
  for (Program &program : family) {
    program.abiVersion = abiVersion;
    if (Status status = validate(program); !status.ok())
      return dataLoss("{}", status.message());
  }
  return family;
}

/// The only program of a family.
StatusOr<Program> onlyOf(StatusOr<std::vector<Program>> family) {
  if (!family)
    return family.status();
  if (family->size() == 1)
    return std::move(family->front());
  std::string targets;
  for (const Program &program : *family)
    targets += (targets.empty() ? "" : ", ") + program.target;
  return runtime::invalidArgument("the bundle holds {} programs, for {}; one is wanted here",
                                  family->size(), targets);
}

} // namespace

std::vector<uint8_t> serialize(const Program &program) { return serialize({&program, 1}); }

std::vector<uint8_t> serialize(std::span<const Program> family) {
  Writer writer;
  transferFamily(writer, family);
  std::vector<uint8_t> payload = writer.take();
  Header header{.magic = {},
                .formatVersion = kFormatVersion,
                .abiVersion = family.empty() ? kAbiVersion : family.front().abiVersion,
                .payloadBytes = payload.size(),
                .checksum = XXH3_64bits(payload.data(), payload.size())};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  std::vector<uint8_t> bytes(sizeof(header) + payload.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), payload.data(), payload.size());
  return bytes;
}

StatusOr<std::vector<Program>> deserializeFamily(std::span<const uint8_t> bytes) {
  if (bytes.size() > kMaxBundleBytes)
    return dataLoss("bundle has {} bytes; at most {} are allowed", bytes.size(), kMaxBundleBytes);
  Header header;
  if (bytes.size() < sizeof(header))
    return dataLoss("bundle has {} bytes; its header needs {}", bytes.size(), sizeof(header));
  std::memcpy(&header, bytes.data(), sizeof(header));
  std::span<const uint8_t> payload = bytes.subspan(sizeof(header));
  LLMOPT_RETURN_IF_ERROR(checkHeader(header, payload));
  try {
    return readPayload(payload, header.abiVersion);
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "no memory for a bundle of {} bytes",
                      bytes.size());
  }
}

bool looksLikeBundle(std::string_view bytes) {
  return bytes.starts_with(std::string_view(kMagic, sizeof(kMagic)));
}

bool isBundleFile(const std::string &path) {
  std::error_code ignored;
  // A pipe can be read only once.
  if (!std::filesystem::is_regular_file(path, ignored))
    return false;
  char start[sizeof(kMagic)] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof(start));
  return looksLikeBundle({start, sizeof(start)});
}

StatusOr<Program> deserialize(std::span<const uint8_t> bytes) {
  return onlyOf(deserializeFamily(bytes));
}

Status saveBundle(const Program &program, const std::string &path) {
  return saveFamily({&program, 1}, path);
}

Status saveFamily(std::span<const Program> family, const std::string &path) {
  // A bundle that could not be loaded again must not be published.
  std::string context = fmt::format("bundle '{}' is not saved", path);
  if (family.empty() || family.size() > kMaxFamily)
    return runtime::invalidArgument("{}: it would hold {} programs; 1 to {} are allowed", context,
                                    family.size(), kMaxFamily);
  for (const Program &program : family) {
    if (Status status = validate(program); !status.ok())
      return status.withContext(context);
    if (program.abiVersion != family.front().abiVersion)
      return runtime::invalidArgument("{}: its programs have ABI versions {} and {}; one is "
                                      "allowed",
                                      context, family.front().abiVersion, program.abiVersion);
  }
  try {
    return runtime::writeFileAtomic(path, serialize(family));
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "no memory to save bundle '{}'", path);
  }
}

StatusOr<std::vector<Program>> loadFamily(const std::string &path) {
  StatusOr<std::vector<uint8_t>> bytes = runtime::readFile(path, kMaxBundleBytes);
  if (!bytes)
    return bytes.status();
  StatusOr<std::vector<Program>> family = deserializeFamily(*bytes);
  if (!family)
    return family.status().withContext(fmt::format("bundle '{}'", path));
  return family;
}

StatusOr<Program> loadBundle(const std::string &path) {
  StatusOr<Program> program = onlyOf(loadFamily(path));
  if (!program && program.status().code() == StatusCode::InvalidArgument)
    return program.status().withContext(fmt::format("bundle '{}'", path));
  return program;
}

} // namespace llmopt::bundle
