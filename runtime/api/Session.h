// A device with a stream: bundles in, calls on host arrays out. What an application needs that
// only wants to run kernels; Server.h serves requests.
//
//   StatusOr<Session> session = Session::open("auto");
//   StatusOr<std::shared_ptr<DeviceProgram>> decode = session->load(family);
//   Status status = session->run(*decode, arguments);
#pragma once

#include "runtime/device/Arguments.h"
#include "runtime/device/Device.h"

#include <memory>
#include <string_view>

namespace llmopt::runtime {

class Session {
public:
  /// A device by its name, as openDevice (runtime/device/Devices.h) takes it.
  static StatusOr<Session> open(std::string_view device = "auto");
  static StatusOr<Session> on(std::shared_ptr<Device> device);

  /// The program of a family that fits the device best.
  StatusOr<std::shared_ptr<DeviceProgram>> load(std::vector<bundle::Program> family);
  /// Runs once on arrays in host memory and waits: inputs are copied to the device and
  /// results back where its memory is its own. Checks everything that a kernel would trust.
  Status run(const std::shared_ptr<DeviceProgram> &program, const CallArguments &arguments);

  const std::shared_ptr<Device> &device() const { return owner; }
  Stream &stream() { return *queue; }

private:
  std::shared_ptr<Device> owner;
  std::unique_ptr<Stream> queue;
};

} // namespace llmopt::runtime
