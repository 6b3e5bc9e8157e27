// What the serving runtime reads from outside, on arbitrary bytes: steps (a rank gets them
// over a network) and traces. No crash, no read out of bounds, and one line of refusal.
// The first byte says which; a step gets its sizes and checksum put right, so that what lies
// behind those checks is reached.
#include "runtime/scheduler/StepWriter.h"
#include "runtime/trace/Trace.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

using namespace llmopt::runtime;

/// Stops the fuzzer at a broken promise.
static void require(bool holds, const char *what) {
  if (holds)
    return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

static void readStep(const uint8_t *data, size_t size) {
  std::vector<uint64_t> words((std::max(size, sizeof(step::Header)) + 7) / 8);
  auto *bytes = reinterpret_cast<uint8_t *>(words.data());
  std::memcpy(bytes, data, size);
  step::Header head;
  std::memcpy(&head, bytes, sizeof(head));
  head.magic = step::kMagic;
  head.version = step::kVersion;
  head.totalBytes = words.size() * 8;
  // Counts below 8, so that the arrays have a chance to fill the bytes.
  for (uint32_t *count :
       {&head.rowCount, &head.tokenCount, &head.referenceCount, &head.logitCount, &head.draftCount,
        &head.deltaCount, &head.pageCount, &head.copyCount, &head.freeCount, &head.waitCount})
    *count %= 8;
  size_t arrays = head.rowCount * sizeof(step::Row) + (head.tokenCount + 1) / 2 * 8 +
                  head.referenceCount * sizeof(step::Reference) + (head.logitCount + 1) / 2 * 8 +
                  (head.draftCount + 1) / 2 * 8 +
                  (head.deltaCount * sizeof(step::Delta) + 7) / 8 * 8 +
                  (head.pageCount + 1) / 2 * 8 + (head.copyCount * sizeof(step::Copy) + 7) / 8 * 8 +
                  head.freeCount * sizeof(step::Free) + head.waitCount * 8;
  words.resize((sizeof(head) + arrays) / 8);
  bytes = reinterpret_cast<uint8_t *>(words.data());
  head.totalBytes = words.size() * 8;
  std::memcpy(bytes, &head, sizeof(head));
  std::span<const uint8_t> all(bytes, words.size() * 8);
  uint64_t sum = stepChecksum(all);
  std::memcpy(bytes + offsetof(step::Header, checksum), &sum, sizeof(sum));
  StatusOr<StepInput> input = StepInput::parse(all);
  if (!input) {
    require(input.status().message().find('\n') == std::string::npos, "more than one line");
    return;
  }
  size_t tokens = 0;
  for (const step::Row &row : input->rows()) {
    tokens += input->tokensOf(row).size();
    require(input->draftsOf(row).size() == row.draftCount, "drafts of a row");
  }
  require(tokens == input->tokens().size(), "tokens of no row");
  TableMirror mirror(input->header().groupCount, input->header().tableSlots % 1024);
  (void)mirror.apply(*input);
}

static void readTraceFile(const uint8_t *data, size_t size) {
  char path[] = "/tmp/serving-fuzz-XXXXXX";
  int file = mkstemp(path);
  require(file >= 0 && write(file, data, size) == ssize_t(size), "no file to write");
  close(file);
  StatusOr<Trace> trace = readTrace(path);
  unlink(path);
  if (!trace) {
    require(!trace.status().message().empty() &&
                trace.status().message().find('\n') == std::string::npos,
            "a refusal is one line");
    return;
  }
  for (const TraceRequest &request : trace->requests) {
    require(request.promptTokens >= 0 && request.outputTokens >= 0, "a negative length");
    require(request.firstBlock + request.blockCount <= trace->blocks.size(), "blocks of nobody");
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size && data[0] % 2)
    readStep(data + 1, size - 1);
  else if (size)
    readTraceFile(data + 1, size - 1);
  return 0;
}
