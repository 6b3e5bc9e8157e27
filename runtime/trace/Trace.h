// Request traces of real services: when requests arrive, how long their prompts and
// answers are, and which prompts begin alike.
//
// Five formats are told apart by their content, plain or gzip:
//
//   Mooncake   JSON lines: timestamp (ms), input_length, output_length, hash_ids (one a
//              block of 512 tokens)
//   ShareGPT   JSON lines of LLMServingSim: arrival_time_ns, block_size, hash_ids
//   Azure      CSV: TIMESTAMP, ContextTokens, GeneratedTokens
//   arXiv      CSV of Vidur: num_prefill_tokens, num_decode_tokens; no arrival times
//   ServeGen   CSV of arrival rates a client and JSON of length distributions; requests
//              are sampled from both
//
// A trace holds no text. A block id stands for the same tokens wherever it occurs, so
// that prompts share prefixes exactly as the ids say; answers are unique to their request.
#pragma once

#include "runtime/base/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmopt::runtime {

enum class TraceFormat : uint8_t { Mooncake, ShareGpt, Azure, Arxiv, ServeGen };

/// "mooncake", "sharegpt", ...
std::string_view toString(TraceFormat format);

struct TraceRequest {
  int64_t arrivalNs = 0; ///< since the first request's
  int32_t promptTokens = 0;
  int32_t outputTokens = 0;
  uint64_t firstBlock = 0; ///< in Trace::blocks
  uint32_t blockCount = 0; ///< 0: the prompt shares nothing with any other
};

/// Requests in order of arrival.
struct Trace {
  TraceFormat format = TraceFormat::Mooncake;
  int32_t blockTokens = 0; ///< tokens a block id stands for; 0 without ids
  std::vector<TraceRequest> requests;
  std::vector<uint64_t> blocks;

  std::span<const uint64_t> blocksOf(const TraceRequest &request) const {
    return {blocks.data() + request.firstBlock, request.blockCount};
  }
};

struct TraceOptions {
  uint64_t limit = 0;       ///< requests at most; 0: all, ServeGen kServeGenRequests
  double ratePerSecond = 0; ///< arXiv: Poisson arrivals of this rate; 0: all at time 0
  uint64_t seed = 0;        ///< of everything that is sampled
  /// ServeGen: the other file of the pair; empty: the neighbour whose name differs in
  /// "client_rates.csv" against "length_pdfs...json".
  std::string partner;
};

/// What is sampled from a ServeGen pair without a limit.
inline constexpr uint64_t kServeGenRequests = 5000;

/// Reads a trace. NotFound without the file; DataLoss, with file, line and what is
/// expected, where it is malformed; InvalidArgument where options do not fit the format.
StatusOr<Trace> readTrace(const std::string &path, const TraceOptions &options = {});

/// Token `offset` of block `id`: 31 bits.
uint32_t blockToken(uint64_t id, int32_t offset);
/// Token `position` of the answer to request `index` of a trace.
uint32_t outputToken(uint64_t index, int32_t position);
/// The prompt of request `index`; `tokens` has its promptTokens elements.
void writePrompt(const Trace &trace, uint64_t index, std::span<uint32_t> tokens);

} // namespace llmopt::runtime
