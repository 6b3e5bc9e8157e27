#include "codegen/cuda/nvrtc/Nvrtc.h"

#include "runtime/base/DynamicLibrary.h"
#include "runtime/base/Heap.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace llmopt::cuda {

using runtime::CudaArch;
using runtime::invalidArgument;
using runtime::makeStatus;
using runtime::Status;
using runtime::StatusCode;
using runtime::StatusOr;

namespace {

/// A program of NVRTC, opaque.
using Handle = void *;

/// Results that are told apart; the library names all.
constexpr int kSuccess = 0, kOutOfMemory = 1, kInvalidOption = 5, kCompilation = 6,
              kBuiltinFailure = 7;

} // namespace

/// What is used of NVRTC, as its documentation declares it. Text and name are copied by it.
#define LLMOPT_NVRTC_SYMBOLS(X)                                                                    \
  X(nvrtcGetErrorString, const char *(*)(int))                                                     \
  X(nvrtcVersion, int (*)(int *, int *))                                                           \
  X(nvrtcGetNumSupportedArchs, int (*)(int *))                                                     \
  X(nvrtcGetSupportedArchs, int (*)(int *))                                                        \
  X(nvrtcCreateProgram,                                                                            \
    int (*)(Handle *, const char *, const char *, int, const char *const *, const char *const *))  \
  X(nvrtcDestroyProgram, int (*)(Handle *))                                                        \
  X(nvrtcCompileProgram, int (*)(Handle, int, const char *const *))                                \
  X(nvrtcGetProgramLogSize, int (*)(Handle, size_t *))                                             \
  X(nvrtcGetProgramLog, int (*)(Handle, char *))                                                   \
  X(nvrtcGetPTXSize, int (*)(Handle, size_t *))                                                    \
  X(nvrtcGetPTX, int (*)(Handle, char *))                                                          \
  X(nvrtcGetCUBINSize, int (*)(Handle, size_t *))                                                  \
  X(nvrtcGetCUBIN, int (*)(Handle, char *))

struct Nvrtc::Api {
  std::string path;
  int major = 0, minor = 0;
  std::vector<uint32_t> archs;
#define LLMOPT_DECLARE(name, type) std::type_identity_t<type> name = nullptr;
  LLMOPT_NVRTC_SYMBOLS(LLMOPT_DECLARE)
#undef LLMOPT_DECLARE

  Status resolve(const runtime::DynamicLibrary &library) {
    const runtime::Symbol symbols[] = {
#define LLMOPT_SYMBOL(name, type) {#name, reinterpret_cast<void **>(&name)},
        LLMOPT_NVRTC_SYMBOLS(LLMOPT_SYMBOL)
#undef LLMOPT_SYMBOL
    };
    return library.resolve(symbols);
  }
};

namespace {

/// A program that is destroyed at the end of its scope.
class ScopedProgram {
public:
  ScopedProgram(const Nvrtc::Api &api, const KernelSource &source) : api(api) {
    created = api.nvrtcCreateProgram(&handle, source.text.c_str(), source.name.c_str(), 0, nullptr,
                                     nullptr);
  }
  ScopedProgram(const ScopedProgram &) = delete;
  ScopedProgram &operator=(const ScopedProgram &) = delete;
  ~ScopedProgram() {
    if (created == kSuccess)
      api.nvrtcDestroyProgram(&handle);
  }

  int compile(const std::vector<std::string> &options) {
    if (created != kSuccess)
      return created;
    std::vector<const char *> list;
    for (const std::string &option : options)
      list.push_back(option.c_str());
    return api.nvrtcCompileProgram(handle, static_cast<int>(list.size()), list.data());
  }

  std::string log() const {
    return created == kSuccess ? text(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog) : "";
  }
  std::string ptx() const { return text(api.nvrtcGetPTXSize, api.nvrtcGetPTX); }
  std::vector<uint8_t> cubin() const {
    size_t size = 0;
    if (api.nvrtcGetCUBINSize(handle, &size) != kSuccess || size == 0)
      return {};
    std::vector<uint8_t> bytes(size);
    if (api.nvrtcGetCUBIN(handle, reinterpret_cast<char *>(bytes.data())) != kSuccess)
      return {};
    return bytes;
  }

private:
  template <typename Size, typename Get> std::string text(Size sizeOf, Get get) const {
    size_t size = 0; // with the final zero
    if (sizeOf(handle, &size) != kSuccess || size == 0)
      return "";
    std::string text(size, '\0');
    if (get(handle, text.data()) != kSuccess)
      return "";
    text.resize(text.find_last_not_of('\0') + 1);
    return text;
  }

  const Nvrtc::Api &api;
  Handle handle = nullptr;
  int created;
};

/// Loads the library that NVRTC asks for by name from the folder that NVRTC came from: a
/// Python package's folder is in no search path.
void openBuiltinsBeside(const std::string &path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos)
    return;
  (void)runtime::DynamicLibrary::open(
      runtime::matchingPaths(path.substr(0, slash) + "/libnvrtc-builtins.so.*"), "no builtins");
}

std::string firstLines(const std::string &log, int lines) {
  size_t end = 0;
  for (int i = 0; i < lines && end != std::string::npos; ++i)
    end = log.find('\n', end + (i > 0));
  return log.substr(0, end);
}

/// The log without what stands before its first error: warnings would hide it.
std::string fromFirstError(const std::string &log) {
  size_t error = std::min(log.find(" error: "), log.find("): error"));
  return error == std::string::npos ? log : log.substr(log.rfind('\n', error) + 1);
}

/// The header of 'could not open source file "x.h"', or nothing.
std::string missingHeader(const std::string &log) {
  constexpr std::string_view kText = "open source file \"";
  size_t at = log.find(kText);
  if (at == std::string::npos)
    return "";
  at += kText.size();
  return log.substr(at, log.find('"', at) - at);
}

Status compileFailure(const Nvrtc::Api &api, int result, const KernelSource &source,
                      const std::string &log) {
  std::string brief = firstLines(fromFirstError(log), 6);
  std::string header = missingHeader(log);
  if (result == kCompilation && !header.empty())
    return invalidArgument("{} includes '{}', which NVRTC does not find; kernels include nothing; "
                           "remove the #include, or name a folder with the option --include-path",
                           source.name, header);
  if (result == kCompilation)
    return invalidArgument("{} does not compile for {}: {}", source.name, source.arch, brief);
  if (result == kInvalidOption)
    return invalidArgument("NVRTC {}.{} refuses an option for {}: {}", api.major, api.minor,
                           source.name, brief);
  if (result == kBuiltinFailure)
    return makeStatus(StatusCode::Unavailable,
                      "NVRTC at '{}' does not find its library libnvrtc-builtins.so.{}.{}; put it "
                      "into the same folder, or point LLMOPT_NVRTC at a whole installation",
                      api.path, api.major, api.minor);
  StatusCode code =
      result == kOutOfMemory ? StatusCode::ResourceExhausted : StatusCode::Unavailable;
  return makeStatus(code, "NVRTC {}.{} failed on {}: {}{}{}", api.major, api.minor, source.name,
                    api.nvrtcGetErrorString(result), brief.empty() ? "" : ": ", brief);
}

/// The first version that surely knows --minimal; it saves a few milliseconds.
constexpr int kMinimalMajor = 13;

constexpr const char *kGenericArch = "compute_80";
constexpr uint32_t kGenericNumber = 80;

} // namespace

Nvrtc::Nvrtc(std::unique_ptr<const Api> owned)
    : api(owned.release(), [](const Api *pointer) { delete pointer; }) {}

StatusOr<std::shared_ptr<const Nvrtc>> Nvrtc::load() { return load(nvrtcPlaces()); }

StatusOr<std::shared_ptr<const Nvrtc>> Nvrtc::load(const NvrtcPlaces &places) {
  StatusOr<runtime::DynamicLibrary> library = runtime::DynamicLibrary::open(
      places.candidates, "no NVRTC: the CUDA compiler library was not found; install CUDA 12 or 13 "
                         "or the Python package nvidia-cuda-nvrtc, or set LLMOPT_NVRTC");
  if (!library && !places.folders.empty())
    return makeStatus(library.status().code(), "{}; looked into {}", library.status().message(),
                      fmt::join(places.folders, ", "));
  if (!library)
    return library.status();
  auto api = std::make_unique<Api>();
  LLMOPT_RETURN_IF_ERROR(api->resolve(*library));
  api->path = library->path();
  openBuiltinsBeside(api->path);
  int count = 0;
  if (api->nvrtcVersion(&api->major, &api->minor) != kSuccess ||
      api->nvrtcGetNumSupportedArchs(&count) != kSuccess || count <= 0)
    return makeStatus(StatusCode::Unavailable, "library '{}' does not tell its version", api->path);
  std::vector<int> archs(static_cast<size_t>(count));
  api->nvrtcGetSupportedArchs(archs.data());
  api->archs.assign(archs.begin(), archs.end());
  std::sort(api->archs.begin(), api->archs.end());
  return std::shared_ptr<const Nvrtc>(new Nvrtc(std::move(api)));
}

const std::string &Nvrtc::path() const { return api->path; }
std::string Nvrtc::version() const { return fmt::format("{}.{}", api->major, api->minor); }
const std::vector<uint32_t> &Nvrtc::archs() const { return api->archs; }

StatusOr<CompiledKernel> Nvrtc::compile(const KernelSource &source) const {
  StatusOr<CudaArch> wanted = CudaArch::parse(source.arch);
  if (!wanted)
    return wanted.status();
  runtime::keepFreedHeap();
  CompiledKernel kernel;
  kernel.arch = source.arch;
  if (!std::binary_search(api->archs.begin(), api->archs.end(), wanted->number())) {
    if (wanted->number() <= kGenericNumber)
      return invalidArgument("NVRTC {} knows no {}; it knows {}", version(), source.arch,
                             fmt::join(api->archs, ", "));
    // The numbers have gaps, and a chip may come into one of them: sm_88, sm_110.
    bool beyond = wanted->number() > api->archs.back();
    kernel.arch = kGenericArch;
    kernel.note = fmt::format("{}; PTX for {} was made, which the driver compiles",
                              beyond ? fmt::format("{} is newer than NVRTC {} knows (up to sm_{})",
                                                   source.arch, version(), api->archs.back())
                                     : fmt::format("NVRTC {} knows no {} (it knows {})", version(),
                                                   source.arch, fmt::join(api->archs, ", ")),
                              kGenericArch);
  }
  std::vector<std::string> options = {"-arch=" + kernel.arch, "-std=c++17", "-default-device",
                                      "--ptxas-options=-v"};
  // Without what kernels of ours have no use for: textures, the device runtime.
  if (api->major >= kMinimalMajor)
    options.push_back("--minimal");
  if (source.lineInfo)
    options.push_back("-lineinfo");
  options.insert(options.end(), source.options.begin(), source.options.end());

  ScopedProgram program(*api, source);
  int result = program.compile(options);
  kernel.log = program.log();
  if (result != kSuccess)
    return compileFailure(*api, result, source, kernel.log);
  kernel.ptx = program.ptx();
  if (!kernel.arch.starts_with("compute_"))
    kernel.cubin = program.cubin();
  if (kernel.ptx.empty() || (kernel.cubin.empty() && !kernel.arch.starts_with("compute_")))
    return makeStatus(StatusCode::Internal, "NVRTC {} gave no {} for {} and {}", version(),
                      kernel.ptx.empty() ? "PTX" : "machine code", source.name, kernel.arch);
  kernel.figures = parseAssemblerLog(kernel.log);
  // Machine code runs on every driver of its major version; PTX may be newer than an older
  // driver's compiler reads.
  kernel.cubinDriver = static_cast<uint32_t>(api->major) * 1000;
  kernel.ptxDriver = kernel.cubinDriver + static_cast<uint32_t>(api->minor) * 10;
  return kernel;
}

std::vector<StatusOr<CompiledKernel>> Nvrtc::compileAll(std::span<const KernelSource> sources,
                                                        unsigned threads) const {
  std::vector<StatusOr<CompiledKernel>> results(
      sources.size(), makeStatus(StatusCode::Internal, "a kernel was not compiled"));
  if (threads == 0)
    threads = std::max(1u, std::thread::hardware_concurrency());
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i = next++; i < sources.size(); i = next++)
      results[i] = compile(sources[i]);
  };
  std::vector<std::thread> helpers;
  for (size_t t = 1; t < std::min<size_t>(threads, sources.size()); ++t)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
  return results;
}

std::vector<bundle::Image> CompiledKernel::images() const {
  std::vector<bundle::Image> images;
  const char *triple = "nvptx64-nvidia-cuda";
  if (!cubin.empty())
    images.push_back({.triple = triple,
                      .cpu = arch,
                      .features = "",
                      .bytes = cubin,
                      .format = bundle::ImageFormat::Cubin,
                      .leastDriver = cubinDriver,
                      .figures = figures});
  std::string virtualArch = arch;
  if (virtualArch.starts_with("sm_"))
    virtualArch = "compute_" + virtualArch.substr(3);
  images.push_back({.triple = triple,
                    .cpu = virtualArch,
                    .features = "",
                    .bytes = {ptx.begin(), ptx.end()},
                    .format = bundle::ImageFormat::Ptx,
                    .leastDriver = ptxDriver,
                    .figures = {}});
  return images;
}

} // namespace llmopt::cuda
