#include "runtime/api/Session.h"

#include "runtime/device/BoundCall.h"
#include "runtime/device/Devices.h"
#include "runtime/device/StagedArrays.h"

using namespace llmopt::runtime;

StatusOr<Session> Session::open(std::string_view name) {
  StatusOr<std::shared_ptr<Device>> device = openDevice(name);
  if (!device)
    return device.status();
  return on(*std::move(device));
}

StatusOr<Session> Session::on(std::shared_ptr<Device> device) {
  Session session;
  session.owner = std::move(device);
  StatusOr<std::unique_ptr<Stream>> stream = session.owner->createStream();
  if (!stream)
    return stream.status();
  session.queue = *std::move(stream);
  return session;
}

StatusOr<std::shared_ptr<DeviceProgram>> Session::load(std::vector<bundle::Program> family) {
  return loadBest(*owner, std::move(family));
}

Status Session::run(const std::shared_ptr<DeviceProgram> &program, const CallArguments &arguments) {
  StatusOr<StagedArrays> arrays = StagedArrays::upload(*queue, program->program(), arguments);
  if (!arrays)
    return arrays.status();
  Settle copies(*queue);
  StatusOr<BoundCall> call = BoundCall::bind(program, arrays->arguments(), {.validatePages = true});
  if (!call)
    return call.status();
  Settle kernels(*queue);
  LLMOPT_RETURN_IF_ERROR(call->run(*queue));
  return arrays->download(*queue);
}
