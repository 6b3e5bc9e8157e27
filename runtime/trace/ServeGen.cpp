// ServeGen (arXiv 2505.09999): requests are sampled, client by client. A client's gaps
// between arrivals follow a Gamma or Weibull distribution a 10-minute window; prompt and
// answer lengths are drawn independently from its distributions of the six hours around.
// Clients without length distributions, and hours for which they are empty, yield nothing.
#include "runtime/base/Json.h"
#include "runtime/trace/Formats.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>

using namespace llmopt::runtime;
using nlohmann::json;

namespace {

constexpr double kWindowSeconds = 600;
/// Of the lengths' text, after gzip. The published ones have a few MB.
constexpr size_t kMaxLengthsBytes = size_t{256} << 20;

/// Lengths with their cumulative probability.
struct Lengths {
  std::vector<int32_t> value;
  std::vector<double> upTo;

  int32_t draw(trace::Random &random) const {
    double target = random.uniform() * upTo.back();
    size_t index = size_t(std::lower_bound(upTo.begin(), upTo.end(), target) - upTo.begin());
    return value[std::min(index, value.size() - 1)];
  }
};

struct HourLengths {
  Lengths prompt, output;
};

/// Client -> start of the window in seconds -> lengths; empty windows are left out.
using ClientLengths = std::map<int64_t, std::map<int64_t, HourLengths>>;

struct Window {
  int64_t client = 0, start = 0;
  bool weibull = false;
  double shape = 0, scale = 0;
};

Status parseLengths(const LineReader &reader, const std::string &where, const json &object,
                    Lengths &lengths) {
  if (!object.is_object())
    return reader.wrong("{} is no object of length: probability", where);
  std::vector<std::pair<int64_t, double>> entries;
  for (const auto &[key, probability] : object.items()) {
    int64_t length = 0;
    if (!trace::parseNumber(key, length) || length < 0 ||
        length > std::numeric_limits<int32_t>::max() || !probability.is_number() ||
        !(probability.get<double>() >= 0))
      return reader.wrong("{} has '{}': {}; lengths are integers of 0 or more, probabilities "
                          "numbers of 0 or more",
                          where, key.substr(0, 40), shortJson(probability));
    entries.emplace_back(length, probability.get<double>());
  }
  std::sort(entries.begin(), entries.end());
  double sum = 0;
  for (auto [length, probability] : entries) {
    lengths.value.push_back(int32_t(length));
    lengths.upTo.push_back(sum += probability);
  }
  return {};
}

StatusOr<ClientLengths> readLengths(const std::string &path) {
  StatusOr<LineReader> reader = LineReader::open(path);
  if (!reader)
    return reader.status();
  std::string text;
  for (std::string_view line;;) {
    StatusOr<bool> more = reader->next(line);
    if (!more)
      return more.status();
    if (!*more)
      break;
    text.append(line).push_back('\n');
    if (text.size() > kMaxLengthsBytes)
      return reader->wrong("the lengths have more than {} bytes; leave clients out",
                           kMaxLengthsBytes);
  }
  json root;
  if (auto problem = parseJson(text, root))
    return dataLoss("{}:{}:{}: invalid JSON: {}", path, problem->line, problem->column,
                    problem->what);
  if (!root.is_object())
    return dataLoss("{}: not a JSON object; client -> window -> lengths is expected", path);
  ClientLengths clients;
  for (const auto &[client, windows] : root.items()) {
    int64_t clientId = 0;
    if (!trace::parseNumber(client, clientId) || !windows.is_object())
      return reader->wrong("client '{}' is no number with an object of windows",
                           client.substr(0, 40));
    for (const auto &[start, lengths] : windows.items()) {
      int64_t second = 0;
      if (!trace::parseNumber(start, second) || !lengths.is_object() ||
          !lengths.contains("input_tokens") || !lengths.contains("output_tokens"))
        return reader->wrong("window '{}' of client {} is no second with input_tokens and "
                             "output_tokens",
                             start.substr(0, 40), clientId);
      HourLengths hours;
      std::string where = fmt::format("window {} of client {}", second, clientId);
      LLMOPT_RETURN_IF_ERROR(parseLengths(*reader, where, lengths["input_tokens"], hours.prompt));
      LLMOPT_RETURN_IF_ERROR(parseLengths(*reader, where, lengths["output_tokens"], hours.output));
      if (!hours.prompt.upTo.empty() && hours.prompt.upTo.back() > 0 &&
          !hours.output.upTo.empty() && hours.output.upTo.back() > 0)
        clients[clientId].emplace(second, std::move(hours));
    }
  }
  return clients;
}

Status parseWindow(const LineReader &reader, std::string_view line, std::vector<Window> &windows) {
  std::string_view fields[7];
  Window window;
  double rate = 0;
  if (!trace::split(line, fields) || !trace::parseNumber(fields[0], window.client) ||
      !trace::parseNumber(fields[1], window.start) || !trace::parseNumber(fields[2], rate) ||
      rate < 0 || !trace::parseNumber(fields[5], window.shape) ||
      !trace::parseNumber(fields[6], window.scale))
    return reader.wrong("'{}' is not client,time_s,rate_per_s,cv,family,arg1,arg2",
                        line.substr(0, 80));
  if (fields[4].empty())
    return {};
  window.weibull = fields[4] == "Weibull";
  if ((!window.weibull && fields[4] != "Gamma") || window.shape <= 0 || window.scale <= 0)
    return reader.wrong("family is '{}' with {} and {}; Gamma or Weibull with a positive shape "
                        "and scale, or nothing, is allowed",
                        fields[4].substr(0, 40), window.shape, window.scale);
  windows.push_back(window);
  return {};
}

StatusOr<std::vector<Window>> readRates(const std::string &path) {
  StatusOr<LineReader> reader = LineReader::open(path);
  if (!reader)
    return reader.status();
  std::vector<Window> windows;
  for (std::string_view line;;) {
    StatusOr<bool> more = reader->next(line);
    if (!more)
      return more.status();
    if (!*more)
      break;
    if (reader->line() == 1) {
      if (!line.starts_with(trace::kServeGenHeader))
        return reader->wrong("the columns are '{}'; '{},...' are expected", line.substr(0, 80),
                             trace::kServeGenHeader);
      continue;
    }
    if (!line.empty())
      LLMOPT_RETURN_IF_ERROR(parseWindow(*reader, line, windows));
  }
  std::sort(windows.begin(), windows.end(), [](const Window &a, const Window &b) {
    return std::pair(a.start, a.client) < std::pair(b.start, b.client);
  });
  return windows;
}

double gap(const Window &window, trace::Random &random) {
  return window.weibull ? window.scale * std::pow(random.exponential(), 1 / window.shape)
                        : window.scale * random.gamma(window.shape);
}

} // namespace

StatusOr<Trace> trace::sampleServeGen(const std::string &ratesPath, const std::string &lengthsPath,
                                      const TraceOptions &options) {
  if (options.ratePerSecond > 0)
    return invalidArgument(
        "{}: a rate of {} requests/s was given, but this trace has arrival rates;"
        " scale them with --speed",
        ratesPath, options.ratePerSecond);
  StatusOr<ClientLengths> lengths = readLengths(lengthsPath);
  if (!lengths)
    return lengths.status();
  StatusOr<std::vector<Window>> windows = readRates(ratesPath);
  if (!windows)
    return windows.status();
  Trace trace;
  trace.format = TraceFormat::ServeGen;
  uint64_t limit = options.limit ? options.limit : kServeGenRequests;
  int64_t start = std::numeric_limits<int64_t>::min();
  for (const Window &window : *windows) {
    // Whole windows, so that the earliest `limit` requests can be cut off afterwards.
    if (window.start != start && trace.requests.size() >= limit)
      break;
    start = window.start;
    auto client = lengths->find(window.client);
    if (client == lengths->end())
      continue;
    auto hours = client->second.upper_bound(window.start);
    if (hours == client->second.begin())
      continue;
    --hours;
    if (window.start - hours->first >= 6 * 3600)
      continue;
    Random random(options.seed ^ (uint64_t(window.client) << 32) ^ uint64_t(window.start));
    uint64_t inWindow = 0;
    for (double at = gap(window, random); at < kWindowSeconds && inWindow <= limit;
         at += gap(window, random), ++inWindow) {
      TraceRequest request;
      request.arrivalNs = int64_t((double(window.start) + at) * 1e9);
      request.promptTokens = hours->second.prompt.draw(random);
      request.outputTokens = hours->second.output.draw(random);
      trace.requests.push_back(request);
    }
  }
  if (trace.requests.empty())
    return dataLoss("{} and {} have no client in common that has traffic", ratesPath, lengthsPath);
  sortByArrival(trace.requests);
  if (trace.requests.size() > limit)
    trace.requests.resize(limit);
  return trace;
}
