#include "Alone.h"

#include "runtime/device/BoundCall.h"

#include <stdexcept>

using namespace llmopt;
using namespace llmopt::test;

namespace {

template <typename T> T valueOf(StatusOr<T> value) {
  if (!value)
    throw std::runtime_error(value.status().toString());
  return *std::move(value);
}

void check(const Status &status) {
  if (!status.ok())
    throw std::runtime_error(status.toString());
}

} // namespace

Alone::Alone(const TinyModel &model, const SpecOptions &options,
             const std::vector<TinyGroup> &groups)
    : model(model), device(valueOf(CpuDevice::create(1))), stream(valueOf(device->createStream())),
      programs(model.config().layers), keyRows(model.config().layers),
      valueRows(model.config().layers) {
  for (const TinyGroup &group : groups) {
    std::shared_ptr<DeviceProgram> program =
        valueOf(device->load(valueOf(compileText(aloneSpec(options, group)))));
    for (uint32_t layer : group.layers)
      programs[layer] = program;
  }
}

void Alone::attend(uint32_t layer, uint32_t queries, uint32_t keys) {
  int64_t heads = model.config().queryHeads, kvHeads = model.config().kvHeads,
          dim = model.config().headDim;
  auto array = [&](std::vector<float> &rows, int64_t tokens, int64_t count) {
    return ArrayRef::contiguous(rows.data(), bundle::ElementType::F32, {1, tokens, count, dim});
  };
  CallArguments arguments;
  for (const bundle::Buffer &buffer : programs[layer]->program().buffers) {
    if (buffer.role == bundle::BufferRole::Query)
      arguments.arrays[buffer.name] = array(queryRows, queries, heads);
    else if (buffer.role == bundle::BufferRole::Key)
      arguments.arrays[buffer.name] = array(keyRows[layer], keys, kvHeads);
    else if (buffer.role == bundle::BufferRole::Value)
      arguments.arrays[buffer.name] = array(valueRows[layer], keys, kvHeads);
    else if (buffer.role == bundle::BufferRole::Output)
      arguments.arrays[buffer.name] = array(outputRows, queries, heads);
  }
  BoundCall call = valueOf(BoundCall::bind(programs[layer], arguments));
  check(call.run(*stream));
}

void Alone::forward(std::span<const kv::Token> ids, uint32_t base, std::vector<float> &logits) {
  uint32_t width = model.config().hidden, count = uint32_t(ids.size());
  hidden.resize(count * width);
  queryRows.resize(count * model.queryWidth());
  outputRows.resize(count * model.queryWidth());
  for (uint32_t t = 0; t < count; ++t)
    model.embed(ids[t], &hidden[t * width]);
  for (uint32_t layer = 0; layer < model.config().layers; ++layer) {
    for (std::vector<float> *rows : {&keyRows[layer], &valueRows[layer]})
      rows->resize((base + count) * model.keyWidth());
    for (uint32_t t = 0; t < count; ++t)
      model.project(layer, base + t, &hidden[t * width], &queryRows[t * model.queryWidth()],
                    &keyRows[layer][(base + t) * model.keyWidth()],
                    &valueRows[layer][(base + t) * model.keyWidth()]);
    attend(layer, count, base + count);
    for (uint32_t t = 0; t < count; ++t)
      model.absorb(layer, &outputRows[t * model.queryWidth()], &hidden[t * width]);
  }
  logits.resize(model.config().vocabulary);
  model.logits(&hidden[(count - 1) * width], logits.data());
}

Answer Alone::run(std::span<const kv::Token> prompt, uint32_t tokens, bool greedy, uint64_t seed,
                  const std::function<void(uint32_t, std::span<const float>)> &seen) {
  Answer answer;
  std::vector<float> logits;
  for (std::vector<float> &rows : keyRows)
    rows.clear();
  for (std::vector<float> &rows : valueRows)
    rows.clear();
  forward(prompt, 0, logits);
  for (uint32_t i = 0; i < tokens; ++i) {
    if (seen)
      seen(i, logits);
    answer.logits.push_back(hashOf(logits));
    answer.tokens.push_back(sampleFrom(logits, greedy, seed, i));
    if (i + 1 < tokens)
      forward(std::span(answer.tokens).last(1), uint32_t(prompt.size()) + i, logits);
  }
  return answer;
}
