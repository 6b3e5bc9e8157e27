// See Replays.h.
#include "tools/llm-opt/Replays.h"
#include "tools/llm-opt/StagedCall.h"

#include <fmt/format.h>

namespace llmopt::cli {
namespace {

using harness::Call;
using harness::HostArray;

/// Sequences that stay; the others are padding.
int64_t liveOf(int64_t sequences) { return (sequences + 1) / 2; }

void setFrom(HostArray &array, int64_t first, double value) {
  for (int64_t i = first; i < array.shape[0]; ++i)
    array.set({i}, value);
}

bool same(Call &) { return true; }

bool halveLengths(Call &call) {
  HostArray *lengths = call.find("kv_len");
  if (!lengths)
    return false;
  for (int64_t i = 0; i < lengths->shape[0]; ++i)
    lengths->set({i}, double(int64_t(lengths->get({i})) / 2));
  return true;
}

bool withoutKeys(Call &call, bool hideTable) {
  HostArray *lengths = call.find("kv_len"), *table = call.find("block_table");
  if (!lengths || (hideTable && !table))
    return false;
  int64_t live = liveOf(lengths->shape[0]);
  setFrom(*lengths, live, 0);
  HostArray *slots = call.find("slots"), *rows = call.find("cu_seqlens_q");
  if (slots && rows)
    setFrom(*slots, int64_t(rows->get({live})), -1);
  for (int64_t b = live; hideTable && b < table->shape[0]; ++b)
    for (int64_t page = 0; page < table->shape[1]; ++page)
      table->set({b, page}, -1);
  return true;
}

bool withoutRows(Call &call) {
  HostArray *rows = call.find("cu_seqlens_q");
  if (!rows)
    return false;
  int64_t live = liveOf(rows->shape[0] - 1);
  double last = rows->get({live});
  setFrom(*rows, live + 1, last);
  call.rows = int64_t(last);
  return true;
}

struct Batch {
  const char *name;
  bool (*change)(Call &); ///< false: there is nothing to change
};

constexpr Batch kBatches[] = {
    {"the batch of the capture", same},
    {"half the keys", halveLengths},
    {"half of the sequences without keys, table -1",
     [](Call &call) { return withoutKeys(call, true); }},
    {"half of the sequences without keys, table of the batch before",
     [](Call &call) { return withoutKeys(call, false); }},
    {"half of the sequences without rows", withoutRows},
    {"the batch of the capture again", same},
};

/// Replays one batch that stands in `call`; the text of what is wrong, or nothing.
llvm::Expected<harness::Report> judge(const harness::Spec &spec, Runner &runner,
                                      StagedCall &captured, Call &call, uint64_t seed) {
  Call direct = call;
  if (llvm::Error error = runner.run(direct))
    return error;
  if (llvm::Error error = captured.run())
    return error;
  llvm::Expected<harness::Report> report = harness::check(spec, call, seed);
  if (!report || !report->passed)
    return report;
  if (std::string text = harness::differentBits(call, direct); !text.empty()) {
    report->passed = false;
    report->failure = text + " from a direct run of the same batch";
  }
  return report;
}

} // namespace

llvm::Expected<harness::Report> runReplays(const harness::Spec &spec, const harness::Case &one,
                                           Runner &runner) {
  harness::Report result;
  harness::Shape shape = one.shape;
  shape.hideUnseen = shape.spoilUnseen = false; // another batch may see what this one does not
  llvm::Expected<Call> pristine = harness::generate(spec, shape);
  if (!pristine)
    return pristine.takeError();
  Call call = *pristine;
  llvm::Expected<std::unique_ptr<StagedCall>> captured =
      StagedCall::make(runner, call, StagedCall::Launch::Captured);
  if (!captured)
    return captured.takeError();
  for (const Batch &batch : kBatches) {
    call.rows = pristine->rows;
    for (size_t i = 0; i < call.arrays.size(); ++i) {
      std::span<uint8_t> from = pristine->arrays[i].storage();
      std::copy(from.begin(), from.end(), call.arrays[i].storage().begin());
    }
    if (!batch.change(call))
      continue;
    for (HostArray &array : call.arrays)
      array.seal();
    llvm::Expected<harness::Report> report = judge(spec, runner, **captured, call, one.shape.seed);
    if (!report)
      return llvm::createStringError(
          fmt::format("{}: {}", batch.name, llvm::toString(report.takeError())));
    result.rowsChecked += report->rowsChecked;
    result.rowsTotal += report->rowsTotal;
    result.worst = std::max(result.worst, report->worst);
    result.worstLse = std::max(result.worstLse, report->worstLse);
    if (!report->passed) {
      result.passed = false;
      result.failure = fmt::format("replay of {}: {}", batch.name, report->failure);
      return result;
    }
  }
  return result;
}

} // namespace llmopt::cli
