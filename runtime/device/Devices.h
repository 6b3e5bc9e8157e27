// The devices of this machine, by name.
#pragma once

#include "runtime/device/Device.h"

#include <string>
#include <string_view>
#include <vector>

namespace llmopt::runtime {

/// "cpu", "cuda" (the first), "cuda:1", "sim" or "sim:sm_90" (the PTX simulator of a chip), or
/// "auto": cuda where a driver and a device are there, else cpu.
/// Unavailable says what is missing; InvalidArgument lists the names.
StatusOr<std::shared_ptr<Device>> openDevice(std::string_view name);

/// Loads the program of a family that fits the device best: of its kind, with machine code
/// for its chip, else for an earlier chip of the family, else with PTX. Unavailable says what
/// each one lacks.
StatusOr<std::shared_ptr<DeviceProgram>> loadBest(Device &device,
                                                  std::vector<bundle::Program> family);

/// "cpu", "cuda": what a program's target is for.
std::string_view targetKind(const bundle::Program &program);

} // namespace llmopt::runtime
