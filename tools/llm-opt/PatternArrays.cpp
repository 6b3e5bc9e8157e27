// See PatternArrays.h.
#include "tools/llm-opt/PatternArrays.h"
#include "runtime/device/StagedArrays.h"
#include "tools/harness/Random.h"

namespace llmopt::cli {
namespace {

using bundle::ElementType;
using runtime::Status;

/// Between the starts of two arrays: K and V must differ.
constexpr int64_t kBetween = 997 * 64;

reference::ElementType formatOf(ElementType type) {
  return type == ElementType::F16    ? reference::ElementType::F16
         : type == ElementType::BF16 ? reference::ElementType::BF16
                                     : reference::ElementType::F32;
}

/// `bytes` of the block's repetition from byte `start` on.
Status repeat(runtime::Stream &stream, uint8_t *to, size_t bytes, std::span<const uint8_t> block,
              size_t start) {
  size_t first = std::min(bytes, block.size() - start);
  LLMOPT_RETURN_IF_ERROR(stream.copyIn(to, block.data() + start, first));
  size_t done = std::min(bytes, block.size());
  if (done > first)
    LLMOPT_RETURN_IF_ERROR(stream.copyIn(to + first, block.data(), done - first));
  // Whole blocks each time: what follows continues them.
  for (size_t next; done < bytes; done += next) {
    next = std::min(done, bytes - done);
    LLMOPT_RETURN_IF_ERROR(stream.copyWithin(to + done, to, next));
  }
  return {};
}

} // namespace

std::vector<uint8_t> PatternArrays::block(ElementType type) {
  std::vector<uint8_t> bytes(size_t(kBlock) * runtime::bytesOf(type));
  harness::Random random(1, "block");
  for (int64_t i = 0; i < kBlock; ++i)
    reference::store(bytes.data(), formatOf(type), i, random.normal());
  return bytes;
}

llvm::Expected<PatternArrays> PatternArrays::make(runtime::Stream &stream,
                                                  const harness::Call &call,
                                                  runtime::CallArguments &arguments) {
  PatternArrays made;
  std::map<ElementType, std::vector<uint8_t>> blocks;
  Status status;
  for (const harness::HostArray &array : call.arrays) {
    auto given = arguments.arrays.find(array.name);
    if (array.hasMemory() || given == arguments.arrays.end())
      continue;
    Array &one = made.placed[array.name];
    one.ref = std::move(given->second);
    arguments.arrays.erase(given);
    one.result = array.access == harness::HostArray::Access::Out;
    one.start = int64_t(made.placed.size()) * kBetween % kBlock;
    uint64_t bytes = runtime::spannedBytes(one.ref);
    runtime::StatusOr<runtime::DeviceMemory> memory = stream.device()->allocate(bytes);
    if (!memory) {
      status = memory.status().withContext("array '" + array.name + "'");
      break;
    }
    one.memory = *std::move(memory);
    one.ref.data = one.memory.data();
    std::vector<uint8_t> &block = blocks[one.ref.type];
    if (!one.result && block.empty())
      block = PatternArrays::block(one.ref.type);
    if (bytes)
      status = one.result ? stream.fill(one.ref.data, 0xFF, bytes)
                          : repeat(stream, one.memory.data(), bytes, block,
                                   size_t(one.start) * runtime::bytesOf(one.ref.type));
    if (!status.ok())
      break;
  }
  // The blocks go, and after a failure the memory does.
  Status settled = stream.synchronize();
  for (const Status &one : {status, settled})
    if (!one.ok())
      return llvm::createStringError(one.message());
  return made;
}

void PatternArrays::addTo(runtime::CallArguments &arguments) const {
  for (const auto &[name, array] : placed)
    arguments.arrays[name] = array.ref;
}

} // namespace llmopt::cli
