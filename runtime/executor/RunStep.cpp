// One step on the device.
#include "runtime/executor/ModelExecutor.h"
#include "runtime/executor/Mover.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>

using namespace llmopt::runtime;

/// Plans of a group's kernels, and the slots that the step's tokens go to. In a bucket each of
/// its kernels has a plan, if only of no rows.
Status ModelExecutor::planGroup(const ModelBatch &batch, uint32_t g, uint32_t bucket) {
  GroupCalls &of = calls[g];
  const SharedPrefixes &prefixes = memory.prefixes(g);
  for (BatchShape &shape : of.batches) {
    shape.sequences.clear();
    shape.prefixes = prefixes.prefixes();
  }
  for (const ModelRow &row : batch.rows) {
    const step::Row &from = *row.row;
    for (uint32_t i = 0; i < row.tokenCount; ++i) {
      int64_t slot = memory.slotOf(g, from.tableSlot, row.base + i);
      if (slot < 0)
        return makeStatus(StatusCode::Internal,
                          "token {} of table slot {} has no page in layer group {}", row.base + i,
                          from.tableSlot, g);
      of.slotStaging[row.firstToken + i] = slot;
    }
    SequenceShape shape;
    shape.queryLen = row.tokenCount;
    shape.keyLen = int64_t(row.base) + row.tokenCount;
    shape.queryBase = row.firstToken;
    shape.tableBase = int64_t(from.tableSlot) * memory.columns(g);
    shape.batch = from.tableSlot;
    shape.prefix = prefixes.nodeOf(from.tableSlot);
    of.batches[kernels.choose(g, from.phase, row.tokenCount)].sequences.push_back(shape);
  }
  LLMOPT_RETURN_IF_ERROR(
      stream->copyIn(of.slots.data(), of.slotStaging.data(), batch.ids.size() * sizeof(int64_t)));
  LLMOPT_RETURN_IF_ERROR(of.append.share(batch.ids.size()));
  LLMOPT_RETURN_IF_ERROR(of.append.upload(*stream));
  of.active.clear();
  if (bucket != Captures::kNone && captures.has(bucket, g))
    std::ranges::copy(captures.kernelsOf(bucket, g), std::back_inserter(of.active));
  else
    for (uint32_t k = 0; k < of.attend.size(); ++k)
      if (!of.batches[k].sequences.empty())
        of.active.push_back(k);
  for (uint32_t k : of.active) {
    LLMOPT_RETURN_IF_ERROR(of.attend[k].plan(of.batches[k]));
    LLMOPT_RETURN_IF_ERROR(of.attend[k].upload(*stream));
  }
  return {};
}

/// Appends and attends, for one layer of a group.
Status ModelExecutor::attend(uint32_t bucket, uint32_t group, uint32_t index) {
  if (bucket != Captures::kNone && captures.has(bucket, group))
    return captures.replay(*stream, bucket, group, index);
  LLMOPT_RETURN_IF_ERROR(calls[group].append.run(*stream, index));
  for (uint32_t kernel : calls[group].active)
    LLMOPT_RETURN_IF_ERROR(calls[group].attend[kernel].run(*stream, index));
  return {};
}

Status ModelExecutor::runLayers(const ModelBatch &batch) {
  LayerArrays arrays = layerArrays();
  std::span<const uint64_t> sets = rows.treeSets();
  LLMOPT_RETURN_IF_ERROR(stream->copyIn(trees.data(), sets.data(), sets.size_bytes()));
  StepShape shape{.rows = uint32_t(batch.rows.size())};
  for (const ModelRow &row : batch.rows) {
    shape.longestRow = std::max(shape.longestRow, row.tokenCount);
    shape.phases |= uint8_t(1 << uint8_t(row.row->phase));
  }
  uint32_t bucket = captures.choose(shape);
  for (uint32_t g = 0; g < calls.size(); ++g)
    LLMOPT_RETURN_IF_ERROR(planGroup(batch, g, bucket));
  LLMOPT_RETURN_IF_ERROR(model.begin(batch));
  if (bucket != Captures::kNone && captures.isWhole(bucket)) {
    LLMOPT_RETURN_IF_ERROR(captures.replayWhole(*stream, bucket));
    return model.finish(batch);
  }
  for (uint32_t layer = 0; layer < layers.size(); ++layer) {
    auto [group, index] = layers[layer];
    LLMOPT_RETURN_IF_ERROR(model.project(batch, layer, arrays));
    LLMOPT_RETURN_IF_ERROR(attend(bucket, group, index));
    LLMOPT_RETURN_IF_ERROR(model.absorb(batch, layer, arrays));
  }
  return model.finish(batch);
}

/// Rows, layers and tokens. What the model throws goes no further than this.
Status ModelExecutor::compute(const StepInput &input, StepRecord &record) {
  auto find = [&](uint64_t step) -> const StepRecord * {
    for (const StepRecord &each : ring)
      if (each.step == step)
        return &each;
    return nullptr;
  };
  try {
    LLMOPT_RETURN_IF_ERROR(rows.resolve(input, options.draftTrees, find));
    ModelBatch batch = rows.batch();
    batch.stream = stream.get();
    if (!batch.rows.empty())
      LLMOPT_RETURN_IF_ERROR(runLayers(batch));
    LLMOPT_RETURN_IF_ERROR(sampleRows(input, rows, model, options.deviceDrafts, record));
    return memory.moveTokens(record.moves, *stream);
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "no memory for step {}",
                      input.header().stepId);
  } catch (const std::exception &error) {
    return makeStatus(StatusCode::Internal, "the model threw in step {}: {}", input.header().stepId,
                      error.what());
  } catch (...) {
    return makeStatus(StatusCode::Internal, "the model threw in step {}", input.header().stepId);
  }
}

/// A failure here means that the device is lost; one of the step alone goes into its result.
Status ModelExecutor::runStep(const StepInput &input, StepRecord &record, bool tables) {
  record.result.step = input.header().stepId;
  LLMOPT_RETURN_IF_ERROR(memory.apply(input, tables, *stream));
  Status status = compute(input, record);
  Status alive = stream->synchronize();
  if (!alive.ok())
    return alive;
  record.result.status = status;
  if (!status.ok()) {
    record.rows.assign(input.rows().size(), {.failed = true});
    record.drafts.assign(input.rows().size() * options.deviceDrafts, 0);
    record.result.rows.clear();
    record.result.tokens.clear();
  }
  record.result.statusHash = statusHashOf(input, record.result.tokens);
  record.step = record.result.step;
  return {};
}
