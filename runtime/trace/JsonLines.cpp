// Mooncake (FAST'25) and LLMServingSim's ShareGPT: one JSON object a line, with chained
// block ids. The two differ in the clock's unit and in where the block size stands.
#include "runtime/base/Json.h"
#include "runtime/trace/Formats.h"

#include <nlohmann/json.hpp>

#include <limits>

using namespace llmopt::runtime;
using nlohmann::json;

namespace {

constexpr int32_t kMooncakeBlock = 512;

struct Fields {
  const json &object;
  const LineReader &reader;

  StatusOr<int64_t> integer(const char *key, int64_t least, int64_t most) const {
    auto found = object.find(key);
    if (found == object.end())
      return reader.wrong("{} is missing; each request has it", key);
    bool fits = found->is_number_unsigned()
                    ? found->get<uint64_t>() <= uint64_t(std::numeric_limits<int64_t>::max())
                    : found->is_number_integer();
    if (!fits || found->get<int64_t>() < least || found->get<int64_t>() > most)
      return reader.wrong("{} is {}; an integer from {} to {} is allowed", key, shortJson(*found),
                          least, most);
    return found->get<int64_t>();
  }
};

Status addBlocks(const Fields &fields, Trace &trace, TraceRequest &request) {
  auto ids = fields.object.find("hash_ids");
  if (ids == fields.object.end() || !ids->is_array())
    return fields.reader.wrong("hash_ids is no list; each request has one id a block of {} tokens",
                               trace.blockTokens);
  int64_t size = trace.blockTokens;
  uint64_t expected = uint64_t((request.promptTokens + size - 1) / size);
  if (ids->size() != expected)
    return fields.reader.wrong("hash_ids has {} ids; {} tokens in blocks of {} have {}",
                               ids->size(), request.promptTokens, size, expected);
  request.firstBlock = trace.blocks.size();
  request.blockCount = uint32_t(expected);
  for (const json &id : *ids) {
    if (!id.is_number_unsigned())
      return fields.reader.wrong("hash_ids has {}; ids are integers of 0 or more", shortJson(id));
    trace.blocks.push_back(id.get<uint64_t>());
  }
  return {};
}

Status parseObject(const LineReader &reader, std::string_view line, json &object) {
  if (auto problem = parseJson(line, object))
    return reader.wrong("column {}: invalid JSON: {}; each line is one request", problem->column,
                        problem->what);
  if (!object.is_object())
    return reader.wrong("not a JSON object: '{}'; each line is one request", line.substr(0, 40));
  return {};
}

Status addRequest(const LineReader &reader, std::string_view line, Trace &trace) {
  json object;
  LLMOPT_RETURN_IF_ERROR(parseObject(reader, line, object));
  Fields fields{object, reader};
  bool mooncake = trace.format == TraceFormat::Mooncake;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  constexpr int64_t kYearMs = int64_t(366) * 86400 * 1000;
  int64_t unit = mooncake ? 1'000'000 : 1;
  StatusOr<int64_t> arrival =
      fields.integer(mooncake ? "timestamp" : "arrival_time_ns", 0, kYearMs * (1'000'000 / unit));
  if (!arrival)
    return arrival.status();
  StatusOr<int64_t> prompt = fields.integer("input_length", 0, kMost);
  if (!prompt)
    return prompt.status();
  StatusOr<int64_t> output = fields.integer("output_length", 0, kMost);
  if (!output)
    return output.status();
  int64_t block = kMooncakeBlock;
  if (!mooncake) {
    StatusOr<int64_t> given = fields.integer("block_size", 1, kMost);
    if (!given)
      return given.status();
    block = *given;
  }
  if (trace.blockTokens && trace.blockTokens != block)
    return reader.wrong("block_size is {}; the lines before have {}", block, trace.blockTokens);
  trace.blockTokens = int32_t(block);
  TraceRequest request;
  request.arrivalNs = *arrival * unit;
  request.promptTokens = int32_t(*prompt);
  request.outputTokens = int32_t(*output);
  LLMOPT_RETURN_IF_ERROR(addBlocks(fields, trace, request));
  trace.requests.push_back(request);
  return {};
}

} // namespace

StatusOr<Trace> trace::readJsonLines(LineReader &reader, std::string_view first, uint64_t limit) {
  json object;
  LLMOPT_RETURN_IF_ERROR(parseObject(reader, first, object));
  Trace trace;
  if (object.contains("arrival_time_ns"))
    trace.format = TraceFormat::ShareGpt;
  else if (!object.contains("timestamp"))
    return reader.wrong("no JSON object with 'timestamp' (Mooncake) or 'arrival_time_ns' "
                        "(ShareGPT): '{}'",
                        first.substr(0, 40));
  LLMOPT_RETURN_IF_ERROR(addRequest(reader, first, trace));
  std::string_view line;
  while (!limit || trace.requests.size() < limit) {
    StatusOr<bool> more = reader.next(line);
    if (!more)
      return more.status();
    if (!*more)
      break;
    if (!line.empty())
      LLMOPT_RETURN_IF_ERROR(addRequest(reader, line, trace));
  }
  return trace;
}
