// Azure's LLM inference traces (Splitwise, ISCA 2024; wall clock with 100 ns digits) and
// Vidur's arXiv lengths (no arrival times).
#include "runtime/trace/Formats.h"

#include <chrono>
#include <limits>

using namespace llmopt::runtime;

namespace {

Status parseLength(const LineReader &reader, std::string_view column, std::string_view text,
                   int32_t &length) {
  int64_t value = 0;
  if (!trace::parseNumber(text, value) || value < 0 || value > std::numeric_limits<int32_t>::max())
    return reader.wrong("{} is '{}'; an integer from 0 to {} is allowed", column,
                        text.substr(0, 40), std::numeric_limits<int32_t>::max());
  length = int32_t(value);
  return {};
}

/// "2023-11-16 18:17:03.9799600" in ns since 1970.
bool parseTime(std::string_view text, int64_t &ns) {
  constexpr std::string_view kShape = "dddd-dd-dd dd:dd:dd";
  if (text.size() < kShape.size() || text.size() > kShape.size() + 10)
    return false;
  for (size_t i = 0; i < kShape.size(); ++i)
    if (kShape[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != kShape[i])
      return false;
  auto number = [&](size_t begin, size_t count) {
    int64_t value = 0;
    trace::parseNumber(text.substr(begin, count), value);
    return value;
  };
  std::chrono::year_month_day day{std::chrono::year(int(number(0, 4))),
                                  std::chrono::month(unsigned(number(5, 2))),
                                  std::chrono::day(unsigned(number(8, 2)))};
  int64_t hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  // Years whose nanoseconds fit 64 bits.
  if (!day.ok() || int(day.year()) < 1970 || int(day.year()) > 2200 || hour > 23 || minute > 59 ||
      second > 59)
    return false;
  int64_t fraction = 0;
  std::string_view digits = text.substr(kShape.size());
  if (!digits.empty() && (digits[0] != '.' || digits.size() == 1))
    return false;
  int64_t unit = 1'000'000'000;
  for (char digit : digits.substr(digits.empty() ? 0 : 1)) {
    if (digit < '0' || digit > '9')
      return false;
    fraction += (digit - '0') * (unit /= 10);
  }
  int64_t days = std::chrono::sys_days(day).time_since_epoch().count();
  ns = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1'000'000'000 + fraction;
  return true;
}

/// Calls `add(line)` for each line after the header but blank ones.
template <typename Add> Status eachLine(LineReader &reader, uint64_t limit, Add add) {
  std::string_view line;
  for (uint64_t count = 0; !limit || count < limit;) {
    StatusOr<bool> more = reader.next(line);
    if (!more)
      return more.status();
    if (!*more)
      break;
    if (line.empty())
      continue;
    LLMOPT_RETURN_IF_ERROR(add(line));
    ++count;
  }
  return {};
}

} // namespace

StatusOr<Trace> trace::readAzure(LineReader &reader, std::string_view header, uint64_t limit) {
  if (header != kAzureHeader)
    return reader.wrong("the columns are '{}'; '{}' are expected", header.substr(0, 80),
                        kAzureHeader);
  Trace trace;
  trace.format = TraceFormat::Azure;
  Status read = eachLine(reader, limit, [&](std::string_view line) -> Status {
    std::string_view fields[3];
    if (!split(line, fields))
      return reader.wrong("'{}' has not the three fields {}", line.substr(0, 80), kAzureHeader);
    TraceRequest request;
    if (!parseTime(fields[0], request.arrivalNs))
      return reader.wrong("TIMESTAMP is '{}'; 'YYYY-MM-DD HH:MM:SS.fraction' is expected",
                          fields[0].substr(0, 40));
    LLMOPT_RETURN_IF_ERROR(parseLength(reader, "ContextTokens", fields[1], request.promptTokens));
    LLMOPT_RETURN_IF_ERROR(parseLength(reader, "GeneratedTokens", fields[2], request.outputTokens));
    trace.requests.push_back(request);
    return {};
  });
  if (!read.ok())
    return read;
  return trace;
}

StatusOr<Trace> trace::readArxiv(LineReader &reader, std::string_view header,
                                 const TraceOptions &options) {
  Trace trace;
  trace.format = TraceFormat::Arxiv;
  Random random(options.seed);
  double seconds = 0;
  Status read = eachLine(reader, options.limit, [&](std::string_view line) -> Status {
    std::string_view fields[4];
    if (!split(line, fields))
      return reader.wrong("'{}' has not the four fields {},num_total_tokens,pd_ratio",
                          line.substr(0, 80), kArxivHeader);
    TraceRequest request;
    LLMOPT_RETURN_IF_ERROR(
        parseLength(reader, "num_prefill_tokens", fields[0], request.promptTokens));
    LLMOPT_RETURN_IF_ERROR(
        parseLength(reader, "num_decode_tokens", fields[1], request.outputTokens));
    if (options.ratePerSecond > 0)
      seconds += random.exponential() / options.ratePerSecond;
    if (seconds > 9e9)
      return reader.wrong("the arrival is {} s after the start; a higher --rate is wanted",
                          seconds);
    request.arrivalNs = int64_t(seconds * 1e9);
    trace.requests.push_back(request);
    return {};
  });
  if (!read.ok())
    return read;
  return trace;
}
