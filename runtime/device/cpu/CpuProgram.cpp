#include "runtime/device/cpu/CpuProgram.h"

#include "runtime/bundle/BundleIO.h"

#include <new>

namespace llmopt::runtime {

using bundle::Image;
using bundle::Kernel;
using bundle::Program;

namespace {

Status checkImage(const Image &image, size_t index, const CpuInfo &cpu) {
  if (image.format != bundle::ImageFormat::Object || !image.triple.starts_with("x86_64"))
    return makeStatus(StatusCode::Unavailable,
                      "image {} is for '{}'; this runtime runs x86_64 images on a CPU; "
                      "compile the spec for this machine",
                      index, image.triple);
  std::vector<std::string> missing = missingFeatures(cpu, image.features);
  if (missing.empty())
    return {};
  std::string names;
  for (const std::string &name : missing)
    names += (names.empty() ? "" : ", ") + name;
  return makeStatus(StatusCode::Unavailable,
                    "image {} needs CPU features that this processor ('{}') lacks: {}; "
                    "compile the spec for this machine",
                    index, cpu.brand, names);
}

} // namespace

StatusOr<CpuProgram> CpuProgram::load(Program program) {
  StatusOr<CpuInfo> cpu = hostCpu();
  if (!cpu)
    return cpu.status();
  return load(std::move(program), *cpu);
}

StatusOr<CpuProgram> CpuProgram::load(Program program, const CpuInfo &cpu) {
  LLMOPT_RETURN_IF_ERROR(bundle::checkLoadable(program));
  std::string context = fmt::format("program '{}'", program.name);
  try {
    auto state = std::make_shared<State>();
    state->program = std::move(program);
    for (size_t i = 0; i < state->program.images.size(); ++i) {
      const Image &image = state->program.images[i];
      if (Status status = checkImage(image, i, cpu); !status.ok())
        return status.withContext(context);
      StatusOr<LoadedObject> object = LoadedObject::load(image.bytes);
      if (!object)
        return object.status().withContext(fmt::format("{}: image {}", context, i));
      state->images.push_back(*std::move(object));
    }
    for (const Kernel &kernel : state->program.kernels) {
      StatusOr<void *> entry = state->images[kernel.image].function(kernel.entry);
      if (!entry)
        return entry.status().withContext(context);
      state->entries.push_back(reinterpret_cast<bundle::CpuEntry>(*entry));
    }
    return CpuProgram(std::move(state));
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "{}: no memory to load it", context);
  }
}

} // namespace llmopt::runtime
