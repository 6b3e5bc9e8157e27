// Runs steps on a device: paged attention by the bundles of a model's layer groups, and
// everything else by the caller's ModelLayers.
//
//   auto executor = ModelExecutor::create(device, options, source, model);
//   auto manager = kv::BlockManager::create(options.memory, (*executor)->mover());
//   ... Scheduler, Engine ...
//
// A step, on the device's side: table changes, page copies, rows resolved against the steps
// before (StepRows.h), then for each layer the caller's projections, the append of K and V,
// attention by the kernels that the rows' phases and lengths choose, and the caller's rest;
// at the end tokens and drafts, the accepted branches of trees to their slots, and results.
//
// Steps and copies of pages run in the order in which they were given, on a thread of the
// executor's own: the engine makes the next step meanwhile.
//
// Failures. Where a launch fails, or the model does (by a status or by an exception), the step's
// result carries the failure: its rows yield nothing and rows of later steps that follow them fail
// too. Where the stream cannot be synchronised afterwards, or a copy of pages fails, the device is
// lost: `wait` says so and `reopen` begins with fresh memory.
#pragma once

#include "runtime/engine/Executor.h"
#include "runtime/executor/Captures.h"
#include "runtime/executor/KvMemory.h"
#include "runtime/executor/LayerCall.h"
#include "runtime/executor/LayerKernels.h"
#include "runtime/executor/StepRows.h"
#include "runtime/metrics/Metrics.h"

#include <array>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace llmopt::runtime {

struct ExecutorOptions {
  kv::ManagerOptions memory; ///< the block manager's
  std::vector<LayerGroup> groups;
  std::vector<KernelRule> rules;
  uint32_t maxTokens = 2048;  ///< query tokens of a step: the scheduler's budget
  uint32_t prefillTokens = 0; ///< of a row; 0: maxTokens
  uint32_t stepsInFlight = 1; ///< D
  uint32_t deviceDrafts = 0;  ///< that the scheduler wants after each token
  bool draftTrees = false;    ///< drafts may branch; at most 63 a row then
  /// 0 workers: as many as the device runs at a time. Requests whose tables begin with the same
  /// pages share items where the planner finds that it pays.
  PlanOptions plan = {.workers = 0, .cascadeLevels = 2};
  std::vector<CaptureBucket> captures;
  KvMemoryChecks checks;
  kv::PageMemoryUser *pageUser = nullptr; ///< outlives the executor
};

class ModelExecutor : public Executor {
public:
  /// Loads all kernels and allocates all memory. `model` outlives the executor.
  static StatusOr<std::unique_ptr<ModelExecutor>> create(std::shared_ptr<Device> device,
                                                         ExecutorOptions options,
                                                         const KernelSource &source,
                                                         ModelLayers &model);
  ~ModelExecutor() override;

  Status submit(std::span<const uint8_t> stepInput, int64_t nowNs) override;
  Status restore(std::span<const uint8_t> snapshot) override;
  StatusOr<const StepResult *> wait() override;
  Status reopen() override;

  /// Page copies for the block manager, in order with the steps.
  kv::PageMover *mover();
  /// Pages copied out and in. Only between steps.
  uint64_t pagesSwapped() const { return memory.pagesSwapped(); }
  /// Steps that replayed captured work. Only between steps.
  const CaptureCounters &captureCounters() const { return captures.counters(); }
  /// What the planners of a group decided, kernel after kernel. Only between steps.
  std::vector<PlanCounters> planCounters(uint32_t group) const;
  /// Both, as of the last step that has run, into the metrics. At any time.
  void addMetrics(ServingMetrics &metrics) const;

private:
  class Mover;
  struct Work {
    std::span<const uint8_t> step; ///< empty: a copy
    StepRecord *record = nullptr;
    bool tables = true; ///< the step's table changes are to be applied
    std::vector<kv::PageMove> moves;
    bool out = false;
    kv::EventId event = 0;
  };
  /// The calls of one group.
  struct GroupCalls {
    LayerCall append;
    std::vector<LayerCall> attend;
    DeviceMemory slots; ///< i64 of each token
    std::vector<int64_t> slotStaging;
    std::vector<BatchShape> batches; ///< of each attend kernel
    std::vector<uint32_t> active;    ///< attend kernels that this step runs
  };

  ModelExecutor(std::shared_ptr<Device> device, ExecutorOptions options, ModelLayers &model);

  // Bind.cpp
  Status open();
  Status allocateArrays();
  Status bindGroup(uint32_t group);
  Status checkMasks(uint32_t group) const;
  Status captureBuckets();
  void detachPages();
  LayerArrays layerArrays() const {
    return {query.data(), key.data(), value.data(), output.data()};
  }
  CallArguments argumentsOf(uint32_t group, uint32_t layer, const bundle::Program &program) const;

  // RunStep.cpp
  Status runStep(const StepInput &input, StepRecord &record, bool tables);
  Status compute(const StepInput &input, StepRecord &record);
  Status runLayers(const ModelBatch &batch);
  Status planGroup(const ModelBatch &batch, uint32_t group, uint32_t bucket);
  Status attend(uint32_t bucket, uint32_t group, uint32_t index);
  void loop();
  void count();
  void execute(Work &work);
  kv::EventId enqueueCopy(std::span<const kv::PageMove> moves, bool out);
  void drain(std::unique_lock<std::mutex> &lock);

  std::shared_ptr<Device> device;
  ExecutorOptions options;
  ModelLayers &model;
  LayerKernels kernels;
  std::unique_ptr<Stream> stream;
  KvMemory memory;
  bool attached = false; ///< the user of pages knows of the memory
  std::vector<GroupCalls> calls;
  Captures captures;
  std::vector<Captures::LayerPlace> layers; ///< of the model
  DeviceMemory query, key, value, output, lengths, offsets;
  DeviceMemory trees; ///< a set for each token
  StepRows rows;
  std::unique_ptr<Mover> pageMover;

  // Shared with the thread, under the mutex.
  mutable std::mutex mutex;
  std::condition_variable wake, finished;
  std::deque<Work> queue;
  bool working = false, stopping = false;
  Status loss;       ///< the device is lost
  uint64_t done = 0; ///< steps that have run
  CaptureCounters captured;
  std::array<uint64_t, kCascadeAnswers> cascades = {}; ///< plans of all groups and kernels
  kv::EventId events = 0, copied = 0;

  std::vector<StepRecord> ring; ///< of D + 1
  uint64_t submitted = 0, taken = 0;
  uint64_t tableVersion = 0, snapshotVersion = 0;
  std::thread thread;
};

} // namespace llmopt::runtime
