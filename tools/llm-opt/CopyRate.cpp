// See CopyRate.h.
#include "tools/llm-opt/CopyRate.h"

#include <algorithm>

namespace llmopt::cli {

llvm::Expected<double> copyRate(runtime::Device &device) {
  // Larger than any cache; less where memory is small.
  size_t bytes = size_t{256} << 20;
  if (uint64_t memory = device.facts().memoryBytes)
    bytes = std::min<size_t>(bytes, memory / 64);
  auto from = device.allocate(bytes), to = device.allocate(bytes);
  auto stream = device.createStream();
  for (const runtime::Status &status : {from.status(), to.status(), stream.status()})
    if (!status.ok())
      return llvm::createStringError(status.message());
  constexpr int kCopies = 5;
  runtime::Status status = (*stream)->fill(from->data(), 0, bytes);
  std::vector<std::unique_ptr<runtime::Event>> events;
  for (int i = 0; i <= kCopies && status.ok(); ++i) {
    status = (*stream)->copyWithin(to->data(), from->data(), bytes);
    auto event = (*stream)->record();
    if (!event)
      return llvm::createStringError(event.status().message());
    events.push_back(*std::move(event));
  }
  if (status.ok())
    status = (*stream)->synchronize();
  if (!status.ok())
    return llvm::createStringError(status.message());
  std::vector<double> seconds;
  for (int i = 0; i < kCopies; ++i) {
    runtime::StatusOr<double> spent = events[size_t(i) + 1]->secondsSince(*events[size_t(i)]);
    if (!spent)
      return llvm::createStringError(spent.status().message());
    seconds.push_back(*spent);
  }
  std::ranges::sort(seconds);
  return 2 * double(bytes) / std::max(seconds[seconds.size() / 2], 1e-9);
}

} // namespace llmopt::cli
