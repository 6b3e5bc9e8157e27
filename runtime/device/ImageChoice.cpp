#include "runtime/device/ImageChoice.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace llmopt::runtime {

using bundle::Image;
using bundle::ImageFormat;

namespace {

/// Why an image does not run; empty when it does.
std::string problemOf(const Image &image, const CudaArch &chip, uint32_t driver) {
  if (image.format == ImageFormat::Object)
    return fmt::format("{} is for a CPU", describe(image));
  StatusOr<CudaArch> arch = CudaArch::parse(image.cpu);
  if (!arch)
    return arch.status().message();
  bool runs = image.format == ImageFormat::Cubin ? arch->cubinRunsOn(chip) : arch->ptxRunsOn(chip);
  if (!runs)
    return fmt::format("{} does not run on {}", describe(image), chip.name());
  if (image.leastDriver > driver)
    return fmt::format("{} needs a driver for CUDA {}.{}; this one supports {}.{}; update it, or "
                       "compile with NVRTC {}",
                       describe(image), image.leastDriver / 1000, image.leastDriver % 1000 / 10,
                       driver / 1000, driver % 1000 / 10, driver / 1000);
  return "";
}

} // namespace

std::string describe(const Image &image) {
  switch (image.format) {
  case ImageFormat::Object:
    return fmt::format("object code for {}", image.triple);
  case ImageFormat::Cubin:
    return fmt::format("machine code for {}", image.cpu);
  case ImageFormat::Ptx:
    return fmt::format("PTX for {}", image.cpu);
  }
  return "an unknown image";
}

ImageChoice chooseImages(const bundle::Program &program, const bundle::Kernel &kernel,
                         const CudaArch &chip, uint32_t driver) {
  std::vector<uint32_t> images = {kernel.image};
  images.insert(images.end(), kernel.otherImages.begin(), kernel.otherImages.end());
  ImageChoice choice;
  for (uint32_t index : images) {
    std::string problem = problemOf(program.images[index], chip, driver);
    if (problem.empty())
      choice.usable.push_back(index);
    else
      choice.rejected.push_back(std::move(problem));
  }
  // Among equals the kernel's own order holds.
  auto rank = [&](uint32_t index) {
    const Image &image = program.images[index];
    CudaArch arch = *CudaArch::parse(image.cpu);
    auto place = std::find(images.begin(), images.end(), index) - images.begin();
    return std::tuple(image.format == ImageFormat::Cubin, arch.number(), arch.variant != 0, -place);
  };
  std::sort(choice.usable.begin(), choice.usable.end(),
            [&](uint32_t a, uint32_t b) { return rank(a) > rank(b); });
  return choice;
}

} // namespace llmopt::runtime
