// The executor's copies of pages, as the block manager asks for them. Private to the executor.
#pragma once

#include "runtime/executor/ModelExecutor.h"

namespace llmopt::runtime {

/// A step that reads copied pages comes behind the copy in the executor's queue.
class ModelExecutor::Mover : public kv::PageMover {
public:
  explicit Mover(ModelExecutor &executor) : executor(executor) {}

  kv::EventId copyOut(std::span<const kv::PageMove> moves, kv::StepId) override {
    return executor.enqueueCopy(moves, true);
  }
  kv::EventId copyIn(std::span<const kv::PageMove> moves, kv::StepId) override {
    return executor.enqueueCopy(moves, false);
  }
  bool done(kv::EventId event) override {
    std::lock_guard lock(executor.mutex);
    return event <= executor.copied;
  }

private:
  ModelExecutor &executor;
};

} // namespace llmopt::runtime
