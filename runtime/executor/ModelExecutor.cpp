// The executor's queue: steps and copies in, results out.
#include "runtime/executor/ModelExecutor.h"

#include "runtime/executor/Mover.h"

using namespace llmopt::runtime;

ModelExecutor::~ModelExecutor() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  if (thread.joinable())
    thread.join();
  detachPages();
}

kv::PageMover *ModelExecutor::mover() { return pageMover.get(); }

kv::EventId ModelExecutor::enqueueCopy(std::span<const kv::PageMove> moves, bool out) {
  std::lock_guard lock(mutex);
  Work &work = queue.emplace_back();
  work.moves.assign(moves.begin(), moves.end());
  work.out = out;
  work.event = ++events;
  wake.notify_one();
  return work.event;
}

Status ModelExecutor::submit(std::span<const uint8_t> bytes, int64_t) {
  if (submitted - taken == options.stepsInFlight)
    return makeStatus(StatusCode::Internal, "{} steps are in flight, which is the limit",
                      options.stepsInFlight);
  StatusOr<StepInput> input = StepInput::parse(bytes);
  if (!input)
    return input.status();
  const step::Header &head = input->header();
  if (head.kind != step::Kind::Step || head.groupCount != options.groups.size() ||
      head.tableSlots != options.memory.maxSequences || head.tokenCount > options.maxTokens ||
      head.rowCount > head.tableSlots || head.maxDraft > options.memory.maxDraft)
    return invalidArgument("step {} has {} layer groups, {} table slots, {} tokens and {} drafts; "
                           "the executor was made for {}, {}, {} and {}",
                           head.stepId, head.groupCount, head.tableSlots, head.tokenCount,
                           head.maxDraft, options.groups.size(), options.memory.maxSequences,
                           options.maxTokens, options.memory.maxDraft);
  for (const step::Row &row : input->rows())
    if (row.phase == step::Phase::Prefill && row.tokenCount > options.prefillTokens)
      return invalidArgument("step {} has a prefill row of {} tokens; kernels were loaded for {}",
                             head.stepId, row.tokenCount, options.prefillTokens);
  bool tables = head.tableVersion > snapshotVersion;
  if (tables && head.tableBase != tableVersion)
    return makeStatus(StatusCode::Unavailable,
                      "step {} changes block tables of version {}, here they have {}; ask for a "
                      "snapshot",
                      head.stepId, head.tableBase, tableVersion);
  if (tables)
    tableVersion = head.tableVersion;
  StepRecord &record = ring[submitted % ring.size()];
  std::lock_guard lock(mutex);
  Work &work = queue.emplace_back();
  work.step = bytes;
  work.record = &record;
  work.tables = tables;
  ++submitted;
  wake.notify_one();
  return {};
}

/// Until the thread has nothing to do.
void ModelExecutor::drain(std::unique_lock<std::mutex> &lock) {
  finished.wait(lock, [&] { return queue.empty() && !working; });
}

Status ModelExecutor::restore(std::span<const uint8_t> snapshot) {
  StatusOr<StepInput> input = StepInput::parse(snapshot);
  if (!input)
    return input.status();
  if (input->header().kind != step::Kind::Snapshot ||
      input->header().groupCount != options.groups.size() ||
      input->header().tableSlots != options.memory.maxSequences)
    return invalidArgument("what is to restore the block tables is no snapshot of {} groups of {} "
                           "table slots",
                           options.groups.size(), options.memory.maxSequences);
  std::unique_lock lock(mutex);
  drain(lock);
  if (!loss.ok())
    return loss;
  LLMOPT_RETURN_IF_ERROR(memory.apply(*input, true, *stream));
  LLMOPT_RETURN_IF_ERROR(stream->synchronize());
  tableVersion = snapshotVersion = input->header().tableVersion;
  return {};
}

StatusOr<const StepResult *> ModelExecutor::wait() {
  if (taken == submitted)
    return makeStatus(StatusCode::Internal, "no step is in flight");
  std::unique_lock lock(mutex);
  finished.wait(lock, [&] { return done > taken || !loss.ok(); });
  if (done <= taken)
    return loss;
  return &ring[taken++ % ring.size()].result;
}

Status ModelExecutor::reopen() {
  std::unique_lock lock(mutex);
  queue.clear();
  drain(lock);
  submitted = taken = done = 0;
  tableVersion = snapshotVersion = 0;
  copied = events;
  for (StepRecord &record : ring)
    record.step = step::kNoStep;
  loss = {};
  return open();
}

void ModelExecutor::loop() {
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [&] { return stopping || !queue.empty(); });
    if (stopping)
      return;
    Work work = std::move(queue.front());
    queue.pop_front();
    if (!loss.ok()) { // nothing runs on a lost device
      finished.notify_all();
      continue;
    }
    working = true;
    lock.unlock();
    execute(work);
    lock.lock();
    working = false;
    finished.notify_all();
  }
}

/// Under the mutex, by the thread that runs the steps.
void ModelExecutor::count() {
  captured = captures.counters();
  cascades = {};
  for (const GroupCalls &group : calls)
    for (const LayerCall &call : group.attend)
      for (size_t i = 0; i < kCascadeAnswers; ++i)
        cascades[i] += call.counters()->cascades[i];
}

void ModelExecutor::addMetrics(ServingMetrics &metrics) const {
  std::lock_guard lock(mutex);
  metrics.eagerSteps = captured.eager;
  metrics.replayedSteps = captured.replayed;
  metrics.cascades.clear();
  for (size_t i = 0; i < kCascadeAnswers; ++i)
    metrics.cascades.push_back({std::string(toString(CascadeAnswer(i))), cascades[i]});
}

void ModelExecutor::execute(Work &work) {
  Status status;
  if (work.step.empty()) {
    status = work.out ? memory.copyOut(work.moves, *stream) : memory.copyIn(work.moves, *stream);
  } else {
    MachineClock clock;
    StepRecord &record = *work.record;
    record.step = step::kNoStep; // rows of this ring place are void from here on
    record.result.startedNs = clock.now();
    StatusOr<StepInput> input = StepInput::parse(work.step);
    status = input ? runStep(*input, record, work.tables) : input.status();
    record.result.finishedNs = clock.now();
  }
  std::lock_guard lock(mutex);
  if (!status.ok() && loss.ok())
    loss = status;
  if (!loss.ok())
    return;
  if (work.step.empty()) {
    copied = work.event;
  } else {
    ++done;
    count();
  }
}
