// Runs a saved bundle on arrays from .npy files: all that a server needs of llm-opt at run
// time. Links the runtime alone, so there is neither a compiler nor NVRTC in it.
//
//   llm-opt compile decode.mlir --emit bundle -o decode.bundle
//   run-bundle decode.bundle auto q=q.npy k_pool=k.npy v_pool=v.npy block_table=t.npy
//              kv_len=l.npy cu_seqlens_q=c.npy -- o=o.npy
#include "runtime/bundle/BundleIO.h"
#include "runtime/device/BoundCall.h"
#include "runtime/device/Devices.h"
#include "runtime/device/NpyCall.h"
#include "runtime/device/StagedArrays.h"

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

using namespace llmopt;
using namespace llmopt::runtime;

namespace {

/// NAME=FILE, taken apart.
std::pair<std::string, std::string> setting(const char *text) {
  const char *equals = std::strchr(text, '=');
  return equals ? std::pair{std::string(text, equals), std::string(equals + 1)}
                : std::pair{std::string(), std::string()};
}

Status run(int argc, char **argv) {
  StatusOr<std::shared_ptr<Device>> device = openDevice(argv[2]);
  if (!device)
    return device.status();
  // A bundle may hold the spec for several targets; the device takes the one that fits.
  StatusOr<std::vector<bundle::Program>> family = bundle::loadFamily(argv[1]);
  if (!family)
    return family.status();
  StatusOr<std::shared_ptr<DeviceProgram>> program = loadBest(**device, *std::move(family));
  if (!program)
    return program.status();

  NpyCall call((*program)->program());
  int at = 3;
  for (; at < argc && std::strcmp(argv[at], "--") != 0; ++at) {
    auto [name, path] = setting(argv[at]);
    LLMOPT_RETURN_IF_ERROR(call.addInput(name, path));
  }
  LLMOPT_RETURN_IF_ERROR(call.makeOutputs());

  StatusOr<std::unique_ptr<Stream>> stream = (*device)->createStream();
  if (!stream)
    return stream.status();
  StatusOr<StagedArrays> arrays =
      StagedArrays::upload(**stream, (*program)->program(), call.arguments());
  if (!arrays)
    return arrays.status();
  Settle copies(**stream);
  StatusOr<BoundCall> bound =
      BoundCall::bind(*program, arrays->arguments(), {.validatePages = true});
  if (!bound)
    return bound.status();
  Settle kernels(**stream);
  LLMOPT_RETURN_IF_ERROR(bound->run(**stream));
  LLMOPT_RETURN_IF_ERROR(arrays->download(**stream));

  for (++at; at < argc; ++at) {
    auto [name, path] = setting(argv[at]);
    LLMOPT_RETURN_IF_ERROR(call.writeOutput(name, path));
  }
  std::printf("ran '%s' for %s on %s\n", (*program)->program().name.c_str(),
              (*program)->program().target.c_str(), (*device)->facts().name.c_str());
  return {};
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: run-bundle BUNDLE DEVICE NAME=IN.npy ... -- NAME=OUT.npy ...\n");
    return 1;
  }
  Status status = run(argc, argv);
  if (!status.ok())
    std::fprintf(stderr, "run-bundle: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
