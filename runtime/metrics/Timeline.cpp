#include "runtime/metrics/Timeline.h"

#include "runtime/base/File.h"

#include <fmt/format.h>

#include <iterator>

using namespace llmopt::runtime;

std::string Timeline::chromeTrace() const {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  auto out = std::back_inserter(text);
  constexpr const char *tracks[] = {"host", "device"};
  for (int i = 0; i < 2; ++i)
    fmt::format_to(out,
                   "{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":{},"
                   "\"args\":{{\"name\":\"{}\"}}}},\n",
                   i, tracks[i]);
  for (const Span &span : spans) {
    fmt::format_to(out,
                   "{{\"name\":\"step {}\",\"ph\":\"X\",\"pid\":0,\"tid\":{},\"ts\":{:.3f},"
                   "\"dur\":{:.3f},\"args\":{{\"rows\":{},\"tokens\":{}}}}},\n",
                   span.step, int(span.track), double(span.beginNs) / 1e3,
                   double(span.endNs - span.beginNs) / 1e3, span.rows, span.queryTokens);
    if (span.track == Track::Host)
      fmt::format_to(out,
                     "{{\"name\":\"requests\",\"ph\":\"C\",\"pid\":0,\"ts\":{:.3f},"
                     "\"args\":{{\"running\":{},\"waiting\":{}}}}},\n",
                     double(span.beginNs) / 1e3, span.running, span.waiting);
  }
  fmt::format_to(out,
                 "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{{\"name\":"
                 "\"llm-opt\"}}}}],\"otherData\":{{\"dropped_spans\":{}}}}}\n",
                 dropped);
  return text;
}

Status Timeline::write(const std::string &path) const {
  std::string text = chromeTrace();
  return writeFileAtomic(path, {reinterpret_cast<const uint8_t *>(text.data()), text.size()});
}
