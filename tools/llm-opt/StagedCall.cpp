// See StagedCall.h.
#include "tools/llm-opt/StagedCall.h"

#include <chrono>

namespace llmopt::cli {
namespace {

using runtime::Status;

llvm::Error errorOf(const Status &status) {
  return status.ok() ? llvm::Error::success() : llvm::createStringError(status.message());
}

runtime::CallArguments allOf(const runtime::StagedArrays &staged, const PatternArrays &pattern) {
  runtime::CallArguments all = staged.arguments();
  pattern.addTo(all);
  return all;
}

} // namespace

llvm::Expected<std::unique_ptr<StagedCall>> StagedCall::make(Runner &runner, harness::Call &call,
                                                             Launch launch) {
  runtime::CallArguments given = runner.argumentsOf(call);
  llvm::Expected<PatternArrays> pattern = PatternArrays::make(runner.deviceStream(), call, given);
  if (!pattern)
    return pattern.takeError();
  runtime::StatusOr<runtime::StagedArrays> staged = runtime::StagedArrays::upload(
      runner.deviceStream(), runner.program(), given, runner.storageOf(call));
  if (!staged)
    return errorOf(staged.status());
  runtime::BindOptions options = runner.bindOptions();
  options.replayable = launch == Launch::Captured;
  auto start = std::chrono::steady_clock::now();
  runtime::StatusOr<runtime::BoundCall> bound =
      runtime::BoundCall::bind(runner.deviceProgram(), allOf(*staged, *pattern), options);
  if (!bound) {
    static_cast<void>(runner.deviceStream().synchronize());
    return errorOf(bound.status());
  }
  std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  std::unique_ptr<StagedCall> made(
      new StagedCall(runner, call, std::move(*pattern), *std::move(staged), *std::move(bound)));
  made->bindTime = spent.count();
  if (launch == Launch::Captured)
    if (llvm::Error error = errorOf(made->capture()))
      return error;
  return made;
}

Status StagedCall::capture() {
  runtime::Stream &stream = runner.deviceStream();
  LLMOPT_RETURN_IF_ERROR(bound.prepare(stream));
  LLMOPT_RETURN_IF_ERROR(stream.beginCapture());
  Status status = bound.run(stream);
  runtime::StatusOr<std::unique_ptr<runtime::Graph>> captured = stream.endCapture();
  LLMOPT_RETURN_IF_ERROR(status);
  if (!captured)
    return captured.status();
  graph = *std::move(captured);
  return {};
}

Status StagedCall::launch() {
  runtime::Stream &stream = runner.deviceStream();
  return graph ? stream.replay(*graph) : bound.run(stream);
}

Status StagedCall::runOnce() {
  runtime::Stream &stream = runner.deviceStream();
  LLMOPT_RETURN_IF_ERROR(staged.refresh(stream));
  LLMOPT_RETURN_IF_ERROR(stream.synchronize());
  if (graph) {
    LLMOPT_RETURN_IF_ERROR(bound.replan(allOf(staged, pattern)));
    LLMOPT_RETURN_IF_ERROR(bound.prepare(stream));
  }
  LLMOPT_RETURN_IF_ERROR(launch());
  return staged.download(stream, runtime::StagedArrays::Which::All);
}

llvm::Error StagedCall::run() {
  if (llvm::Error error = errorOf(runOnce()))
    return error;
  call.boundaries = boundariesOf(runner.program(), bound.plan());
  return llvm::Error::success();
}

llvm::Expected<std::vector<uint8_t>> StagedCall::download(const PatternArrays::Array &array) {
  runtime::Stream &stream = runner.deviceStream();
  std::vector<uint8_t> bytes(array.memory.size());
  Status status =
      bytes.empty() ? Status() : stream.copyOut(bytes.data(), array.memory.data(), bytes.size());
  Status settled = stream.synchronize();
  for (const Status &one : {status, settled})
    if (!one.ok())
      return errorOf(one);
  return bytes;
}

llvm::Expected<std::vector<double>> StagedCall::time(unsigned repeats) {
  runtime::Stream &stream = runner.deviceStream();
  constexpr unsigned kWarmup = 2;
  std::vector<std::unique_ptr<runtime::Event>> events;
  for (unsigned i = 0; i < kWarmup + repeats; ++i) {
    if (i >= kWarmup) {
      auto event = stream.record();
      if (!event)
        return errorOf(event.status());
      events.push_back(*std::move(event));
    }
    if (llvm::Error error = errorOf(launch()))
      return error;
  }
  auto last = stream.record();
  if (!last)
    return errorOf(last.status());
  events.push_back(*std::move(last));
  if (llvm::Error error = errorOf(stream.synchronize()))
    return error;
  std::vector<double> seconds;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    runtime::StatusOr<double> spent = events[i + 1]->secondsSince(*events[i]);
    if (!spent)
      return errorOf(spent.status());
    seconds.push_back(*spent);
  }
  return seconds;
}

} // namespace llmopt::cli
