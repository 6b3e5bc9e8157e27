// Runs steps: the device side of the contract. Everything it needs is in the bytes of the
// steps; it derives true lengths, positions and tokens of rows with a predecessor itself.
#pragma once

#include "runtime/scheduler/StepInput.h"
#include "runtime/scheduler/StepResult.h"

#include <span>

namespace llmopt::runtime {

class Executor {
public:
  virtual ~Executor() = default;

  /// Takes the next step. The bytes stay valid until its result was taken. Unavailable when
  /// its block tables have another version than the step builds on: `restore` them first,
  /// then submit again. Any other failure means that the device is lost.
  virtual Status submit(std::span<const uint8_t> stepInput, int64_t nowNs) = 0;
  /// Block tables as a whole (a Snapshot).
  virtual Status restore(std::span<const uint8_t> snapshot) = 0;
  /// The result of the oldest step, when it is there; valid until the next call. A step
  /// that could not be launched or has failed is a result with a status; a failure of this
  /// function means that the device is lost.
  virtual StatusOr<const StepResult *> wait() = 0;
  /// A fresh device after a loss: no tables, no steps.
  virtual Status reopen() = 0;
};

/// The time that engine and scheduler go by.
class Clock {
public:
  virtual ~Clock() = default;
  virtual int64_t now() = 0;
  /// The host has worked for so long (measured); a simulated clock has its own idea of it.
  virtual void hostWorked(int64_t ns) {}
  /// A result with this time was waited for.
  virtual void reached(int64_t ns) {}
};

/// The monotonic clock of the machine.
class MachineClock : public Clock {
public:
  int64_t now() override;
};

/// Hash of a step's bytes and accepted tokens, which all ranks must agree on.
uint64_t statusHashOf(const StepInput &input, std::span<const kv::Token> tokens);

} // namespace llmopt::runtime
