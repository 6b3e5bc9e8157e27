// A sequence by itself: contiguous keys and values, the whole prompt at once, then token by
// token. No pages, no cache, no chunks, no batch: what the server's answers are compared with.
#pragma once

#include "Specs.h"

#include "runtime/device/cpu/CpuDevice.h"

#include <functional>

namespace llmopt::test {

class Alone {
public:
  Alone(const TinyModel &model, const SpecOptions &options, const std::vector<TinyGroup> &groups);

  /// Calls `seen` with the logits behind each token, if it is given.
  Answer run(std::span<const kv::Token> prompt, uint32_t tokens, bool greedy = true,
             uint64_t seed = 0,
             const std::function<void(uint32_t, std::span<const float>)> &seen = {});

private:
  void forward(std::span<const kv::Token> ids, uint32_t base, std::vector<float> &logits);
  void attend(uint32_t layer, uint32_t queries, uint32_t keys);

  const TinyModel &model;
  std::shared_ptr<CpuDevice> device;
  std::unique_ptr<Stream> stream;
  std::vector<std::shared_ptr<DeviceProgram>> programs; ///< of each layer
  std::vector<std::vector<float>> keyRows, valueRows;   ///< of each layer
  std::vector<float> hidden, queryRows, outputRows;
};

} // namespace llmopt::test
