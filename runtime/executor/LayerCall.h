// One kernel's calls for all layers of a group: bound once, at the largest batch, to arrays
// that never move; planned once a step for all layers together.
#pragma once

#include "runtime/device/Arguments.h"
#include "runtime/device/Device.h"
#include "runtime/device/PlanArena.h"
#include "runtime/plan/Planner.h"

#include <array>
#include <span>
#include <vector>

namespace llmopt::runtime {

class LayerCall {
public:
  /// `layers`: the arguments of each layer, alike but for addresses. For a kernel that
  /// attends, room for any batch of `sequences` with `tokens` queries over `keys` keys each.
  struct Room {
    uint64_t sequences = 0, tokens = 0, keys = 0;
  };
  static StatusOr<LayerCall> bind(std::shared_ptr<DeviceProgram> program,
                                  std::span<const CallArguments> layers, const Room &room,
                                  PlanOptions options);

  /// Plans a batch of a kernel that attends. Earlier work must have finished.
  Status plan(const BatchShape &batch);
  /// Shares out `tokens` rows to append. Earlier work must have finished.
  Status share(uint64_t tokens);
  /// Runs a layer, by its place in the group, with the present plan.
  Status run(Stream &stream, uint32_t layer);

  const bundle::Program &program() const { return loaded->program(); }

private:
  std::shared_ptr<DeviceProgram> loaded;
  PlanOptions options;
  ScalarTable scalars;
  PlanArena arena;
  bool merges = false;
  std::vector<AlignedBuffer> blocks; ///< parameters: of each layer, of each kernel
};

} // namespace llmopt::runtime
