// From CUDA C++ text to machine code, with NVIDIA's run-time compiler, which is looked for at
// run time: neither its library nor its headers are needed to build or to start.
//
//   StatusOr<std::shared_ptr<const Nvrtc>> nvrtc = Nvrtc::load();
//   StatusOr<CompiledKernel> kernel = (*nvrtc)->compile({.text = text, .name = "decode.cu",
//                                                        .arch = "sm_80"});
//
// One program holds one kernel. One call yields PTX and cubin, made from that very PTX. The
// text includes nothing: no header is looked up. Compiles may run in any number of threads.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/Program.h"
#include "runtime/target/CudaArch.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace llmopt::cuda {

struct KernelSource {
  std::string text;
  std::string name;                      ///< stands for the file in messages
  std::string arch;                      ///< "sm_80", "sm_90a"; "compute_80" makes PTX only
  std::vector<std::string> options = {}; ///< further ones, as NVRTC takes them
  bool lineInfo = false;                 ///< for profilers; does not change the code
};

struct CompiledKernel {
  std::string ptx;
  std::vector<uint8_t> cubin; ///< empty where only PTX was made
  std::string arch;           ///< what it was made for: "sm_80", "compute_80"
  std::string log;            ///< of compiler and assembler
  /// Why another architecture than the wanted one was taken, in words; else empty.
  std::string note;
  /// As the assembler reports them; all 0 where only PTX was made.
  bundle::ImageFigures figures;
  /// CUDA versions that a driver must support (1000 * major + 10 * minor).
  uint32_t cubinDriver = 0, ptxDriver = 0;

  /// Cubin and PTX as images of a bundle, the cubin first.
  std::vector<bundle::Image> images() const;
};

/// Where NVRTC may be.
struct NvrtcPlaces {
  std::vector<std::string> candidates; ///< names and files to open, in order
  std::vector<std::string> folders;    ///< that were searched for them, as patterns
};

/// LLMOPT_NVRTC (a file or a folder) alone where it is set; else the system's names, CUDA_HOME and
/// CUDA_PATH, /usr/local/cuda, and the packages nvidia-cuda-nvrtc* of Python environments: the
/// active one, venv and .venv of the current folder, the user's and the system's.
NvrtcPlaces nvrtcPlaces();

class Nvrtc {
public:
  /// Finds and opens the library. Unavailable lists what was tried and searched.
  static runtime::StatusOr<std::shared_ptr<const Nvrtc>> load();
  static runtime::StatusOr<std::shared_ptr<const Nvrtc>> load(const NvrtcPlaces &places);

  /// One above sm_80 that this NVRTC does not know gives PTX for compute_80, and a note.
  /// Errors: InvalidArgument for text that does not compile (with the compiler's messages)
  /// and for a bad architecture or option; Unavailable where NVRTC itself fails.
  runtime::StatusOr<CompiledKernel> compile(const KernelSource &source) const;

  /// All of them, in `threads` threads (0: as many as processors, at most one for each).
  std::vector<runtime::StatusOr<CompiledKernel>> compileAll(std::span<const KernelSource> sources,
                                                            unsigned threads = 0) const;

  /// The file that was opened.
  const std::string &path() const;
  /// "13.0"
  std::string version() const;
  /// Numbers of the architectures it knows, ascending: 75, 80, ..., 120.
  const std::vector<uint32_t> &archs() const;

  struct Api;

private:
  explicit Nvrtc(std::unique_ptr<const Api> api);

  std::unique_ptr<const Api, void (*)(const Api *)> api;
};

/// What an assembler's log (ptxas -v) says of the only kernel in it.
bundle::ImageFigures parseAssemblerLog(std::string_view log);

} // namespace llmopt::cuda
