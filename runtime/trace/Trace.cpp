#include "runtime/trace/Trace.h"

#include "runtime/trace/Formats.h"

#include <algorithm>
#include <filesystem>

using namespace llmopt::runtime;

std::string_view llmopt::runtime::toString(TraceFormat format) {
  switch (format) {
  case TraceFormat::Mooncake:
    return "mooncake";
  case TraceFormat::ShareGpt:
    return "sharegpt";
  case TraceFormat::Azure:
    return "azure";
  case TraceFormat::Arxiv:
    return "arxiv";
  case TraceFormat::ServeGen:
    return "servegen";
  }
  return "unknown";
}

namespace {

/// The finaliser of SplitMix64: a bijection, so that equal tokens at different places are
/// as rare as 31 bits allow.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint32_t token(uint64_t stream, int32_t offset) {
  return uint32_t(mix(stream + uint32_t(offset) * 0x9e3779b97f4a7c15ull) >> 33);
}

// Streams of tokens: block ids, whole prompts without ids, answers.
uint64_t blockStream(uint64_t id) { return mix(3 * id); }
uint64_t promptStream(uint64_t index) { return mix(3 * index + 1); }
uint64_t outputStream(uint64_t index) { return mix(3 * index + 2); }

/// The other file of a ServeGen pair: in the same folder, with the same beginning.
StatusOr<std::string> findPartner(const std::string &path, bool haveRates) {
  std::filesystem::path file(path);
  std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::string name = file.filename().string();
  constexpr std::string_view kRates = "client_rates", kLengths = "length_pdfs";
  size_t cut = name.find(haveRates ? kRates : kLengths);
  std::string wanted = cut == std::string::npos
                           ? std::string()
                           : name.substr(0, cut) + std::string(haveRates ? kLengths : kRates);
  std::vector<std::string> found;
  std::error_code failure;
  if (!wanted.empty())
    for (const auto &entry : std::filesystem::directory_iterator(folder, failure))
      if (entry.path().filename().string().starts_with(wanted))
        found.push_back(entry.path().string());
  if (found.size() != 1)
    return invalidArgument(
        "{}: a ServeGen trace is a pair of files, and {} files beside it hold its {}; name "
        "the other file with --partner",
        path, found.size(), haveRates ? "lengths" : "rates");
  return found[0];
}

StatusOr<Trace> readServeGen(const std::string &path, bool haveRates, const TraceOptions &options) {
  std::string partner = options.partner;
  if (partner.empty()) {
    StatusOr<std::string> found = findPartner(path, haveRates);
    if (!found)
      return found.status();
    partner = *found;
  }
  return haveRates ? trace::sampleServeGen(path, partner, options)
                   : trace::sampleServeGen(partner, path, options);
}

StatusOr<Trace> readAny(const std::string &path, const TraceOptions &options) {
  StatusOr<LineReader> reader = LineReader::open(path);
  if (!reader)
    return reader.status();
  std::string_view line;
  StatusOr<bool> more = reader->next(line);
  if (!more)
    return more.status();
  if (!*more)
    return dataLoss("{}: the file is empty; a trace has at least one request", path);
  if (!(options.ratePerSecond >= 0 && options.ratePerSecond <= 1e9))
    return invalidArgument(
        "{}: a rate of {} requests/s; more than 0, up to 1e9, are allowed, and 0 "
        "for all at once",
        path, options.ratePerSecond);
  std::string first(line);
  if (first.starts_with(trace::kServeGenHeader))
    return readServeGen(path, true, options);
  // The lengths of a ServeGen pair are one object of objects: {"client": {"window": ...
  if (size_t colon = first.find(':');
      first.starts_with("{\"") && colon != std::string::npos &&
      first.find_first_not_of(" ", colon + 1) != std::string::npos &&
      first[first.find_first_not_of(" ", colon + 1)] == '{')
    return readServeGen(path, false, options);
  if (!options.partner.empty())
    return invalidArgument("{}: a partner file was named; only a ServeGen trace has one", path);
  if (first.starts_with(trace::kArxivHeader))
    return trace::readArxiv(*reader, first, options);
  if (options.ratePerSecond > 0)
    return invalidArgument(
        "{}: a rate of {} requests/s was given, but this trace has arrival times;"
        " scale them with --speed",
        path, options.ratePerSecond);
  if (first.starts_with("{"))
    return trace::readJsonLines(*reader, first, options.limit);
  if (first.starts_with(trace::kAzureHeader))
    return trace::readAzure(*reader, first, options.limit);
  return reader->wrong("the line begins with '{}'; a trace is JSON lines of Mooncake or ShareGPT, "
                       "or CSV of Azure ({}), arXiv ({}) or ServeGen ({})",
                       first.substr(0, 40), trace::kAzureHeader, trace::kArxivHeader,
                       trace::kServeGenHeader);
}

} // namespace

void trace::sortByArrival(std::vector<TraceRequest> &requests) {
  auto earlier = [](const TraceRequest &a, const TraceRequest &b) {
    return a.arrivalNs < b.arrivalNs;
  };
  if (std::is_sorted(requests.begin(), requests.end(), earlier))
    return;
  std::vector<std::pair<int64_t, size_t>> order(requests.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = {requests[i].arrivalNs, i};
  std::sort(order.begin(), order.end());
  std::vector<TraceRequest> sorted;
  sorted.reserve(requests.size());
  for (auto [arrival, index] : order)
    sorted.push_back(requests[index]);
  requests = std::move(sorted);
}

StatusOr<Trace> llmopt::runtime::readTrace(const std::string &path, const TraceOptions &options) {
  StatusOr<Trace> trace = readAny(path, options);
  if (!trace)
    return trace;
  std::vector<TraceRequest> &requests = trace->requests;
  if (requests.empty())
    return dataLoss("{}: no request; a trace has at least one", path);
  trace::sortByArrival(requests);
  for (int64_t first = requests[0].arrivalNs; TraceRequest &request : requests)
    request.arrivalNs -= first;
  return trace;
}

uint32_t llmopt::runtime::blockToken(uint64_t id, int32_t offset) {
  return token(blockStream(id), offset);
}

uint32_t llmopt::runtime::outputToken(uint64_t index, int32_t position) {
  return token(outputStream(index), position);
}

void llmopt::runtime::writePrompt(const Trace &trace, uint64_t index, std::span<uint32_t> tokens) {
  const TraceRequest &request = trace.requests[index];
  std::span<const uint64_t> blocks = trace.blocksOf(request);
  if (blocks.empty()) {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = token(promptStream(index), int32_t(i));
    return;
  }
  size_t size = size_t(trace.blockTokens);
  for (size_t begin = 0, block = 0; begin < tokens.size(); begin += size, ++block) {
    uint64_t stream = blockStream(blocks[block]);
    size_t count = std::min(size, tokens.size() - begin);
    for (size_t i = 0; i < count; ++i)
      tokens[begin + i] = token(stream, int32_t(i));
  }
}
