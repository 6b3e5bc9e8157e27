// One kernel's calls for all layers of a group: bound once, at the largest batch, to arrays
// that never move; planned once a step for all layers together.
#pragma once

#include "runtime/device/Arguments.h"
#include "runtime/device/Device.h"
#include "runtime/device/PlanArena.h"
#include "runtime/plan/Planner.h"

#include <array>
#include <optional>
#include <span>
#include <vector>

namespace llmopt::runtime {

class LayerCall {
public:
  /// `layers`: the arguments of each layer, alike but for addresses. For a kernel that
  /// attends, room for any batch of `sequences` with `tokens` queries over `keys` keys each.
  /// `places` for plans on their way to the device.
  struct Room {
    uint64_t sequences = 0, tokens = 0, keys = 0;
    uint32_t places = 1;
  };
  static StatusOr<LayerCall> bind(Device &device, std::shared_ptr<DeviceProgram> program,
                                  std::span<const CallArguments> layers, const Room &room,
                                  PlanOptions options);

  /// Plans a batch of a kernel that attends.
  Status plan(const BatchShape &batch);
  /// Shares out `tokens` rows to append.
  Status share(uint64_t tokens);
  /// Brings the plan to the device; `run` does so where it was not done. Needed before work
  /// that was captured is replayed.
  Status upload(Stream &stream) { return arena.upload(stream); }

  enum class Merging : uint8_t {
    AsPlanned, ///< only if the present plan has something to merge
    Always,    ///< for a capture: the merge finds its count on the device
  };
  /// Runs a layer, by its place in the group, with the present plan.
  Status run(Stream &stream, uint32_t layer, Merging merging = Merging::AsPlanned);

  const bundle::Program &program() const { return loaded->program(); }
  /// Of all layers: the least and the largest value where heads or layers differ.
  const ScalarValues &numbers() const { return scalars.values; }
  /// What the planner decided; none for a kernel that appends.
  const PlanCounters *counters() const { return planner ? &planner->counters() : nullptr; }

private:
  std::shared_ptr<DeviceProgram> loaded;
  uint32_t workers = 1;
  ScalarTable scalars;
  std::optional<Planner> planner;
  PlanArena arena;
  bool merges = false;
  std::vector<uint32_t> shares;
  std::vector<KernelCall> calls;
  std::vector<AlignedBuffer> blocks; ///< parameters: of each layer, of each kernel
};

} // namespace llmopt::runtime
