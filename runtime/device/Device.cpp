#include "runtime/device/Device.h"

namespace llmopt::runtime {

DeviceMemory::~DeviceMemory() {
  if (device && memory)
    device->release(memory, bytes);
}

std::string_view toString(DeviceKind kind) {
  switch (kind) {
  case DeviceKind::Cpu:
    return "cpu";
  case DeviceKind::Cuda:
    return "cuda";
  case DeviceKind::Sim:
    return "sim";
  }
  return "unknown";
}

} // namespace llmopt::runtime
