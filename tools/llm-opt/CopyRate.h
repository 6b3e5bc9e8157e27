// How fast a device copies its own memory: what kernels that read a lot are held to.
#pragma once

#include "runtime/device/Device.h"
#include "llvm/Support/Error.h"

namespace llmopt::cli {

/// Bytes read and written each second by copies within the device's memory.
llvm::Expected<double> copyRate(runtime::Device &device);

} // namespace llmopt::cli
