// The part of a device that the block manager needs: copies of whole pages
// between device and host memory, in order of events.
#pragma once

#include "runtime/kv/StepTables.h"

#include <cstdint>
#include <span>

namespace llmopt::runtime::kv {

struct PageMove {
  uint16_t group = 0;
  PageId device = kNoPage; ///< page of the device pool
  PageId host = kNoPage;   ///< page of the host pool
};

/// All functions return at once. An event that is done stays done.
class PageMover {
public:
  virtual ~PageMover() = default;

  /// Device to host, after all steps up to `after` have run.
  virtual EventId copyOut(std::span<const PageMove> moves, StepId after) = 0;
  /// Host to device, after all steps up to `after` have run. A step that reads the
  /// pages names the event in `StepTables::waits`.
  virtual EventId copyIn(std::span<const PageMove> moves, StepId after) = 0;
  virtual bool done(EventId event) = 0;
};

} // namespace llmopt::runtime::kv
