// See Compile.h. A spec goes through attn-to-tile and tile-to-cpu in a module of its own;
// the caller's IR is not touched.
#include "codegen/compile/Compile.h"
#include "codegen/compile/CudaCompile.h"
#include "codegen/compile/KernelKey.h"
#include "codegen/compile/ProgramFacts.h"
#include "codegen/cpu/Passes.h"
#include "passes/Passes.h"
#include "runtime/base/Heap.h"

#include "mlir/IR/Threading.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"

#include <atomic>

using namespace mlir;
using namespace llmopt;

namespace {

std::atomic<uint64_t> compiles{0};

/// Turns the first diagnostic of a scope into an llvm::Error and passes all of them on.
class FirstDiagnostic {
public:
  explicit FirstDiagnostic(MLIRContext *context)
      : handler(context, [this](Diagnostic &diagnostic) {
          if (first.empty() && diagnostic.getSeverity() == DiagnosticSeverity::Error) {
            llvm::raw_string_ostream stream(first);
            stream << diagnostic.getLocation() << ": " << diagnostic.str();
          }
          return failure(); // the next handler prints it
        }) {}

  llvm::Error take(const char *what) {
    return llvm::createStringError(first.empty() ? std::string(what) : first);
  }

private:
  std::string first;
  ScopedDiagnosticHandler handler;
};

/// A module with a copy of `spec` alone, and the copy.
OwningOpRef<ModuleOp> isolate(func::FuncOp spec) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(spec.getLoc());
  module->getBody()->push_back(spec->clone());
  return module;
}

func::FuncOp specIn(ModuleOp module) { return *module.getOps<func::FuncOp>().begin(); }

LogicalResult lowerToTile(ModuleOp module, const Schedule &schedule) {
  PassManager manager(module.getContext());
  AttnToTileOptions options;
  options.rows.assign(schedule.rows.begin(), schedule.rows.end());
  options.keys = schedule.keys;
  options.slices.assign(schedule.slices.begin(), schedule.slices.end());
  options.heads.assign(schedule.heads.begin(), schedule.heads.end());
  options.oneLoop = schedule.oneLoop;
  options.branchScores = schedule.branchScores;
  options.endRows = schedule.endRows;
  options.partRows = schedule.partRows;
  manager.addPass(createAttnToTile(options));
  return manager.run(module);
}

Schedule scheduleFor(const Signature &signature, const CompileOptions &options,
                     bool remark = true) {
  Schedule schedule;
  bool cuda = !options.cudaArch.empty();
  if (signature.attention)
    schedule = cuda ? chooseCudaSchedule(scheduleRequest(signature), options.cudaNumbers)
                    : chooseCpuSchedule(scheduleRequest(signature), options.numbers);
  if (!options.rows.empty())
    schedule.rows = options.rows, schedule.slices.clear(), schedule.heads.clear();
  if (options.keys > 0)
    schedule.keys = options.keys;
  if (remark && signature.attention && options.rows.empty() && options.keys == 0)
    remarkSchedule(signature, schedule);
  return schedule;
}

/// One kernel on its way to machine code, in a module of its own.
struct Part {
  const KernelName *kernel;
  OwningOpRef<ModuleOp> module;
  bool lowered = false;
  std::string error; ///< of the emission
  std::vector<uint8_t> object;
};

/// Takes the kernels out of `module`.
std::vector<Part> partsOf(ModuleOp module, const std::vector<KernelName> &kernels) {
  std::vector<Part> parts;
  for (const KernelName &kernel : kernels) {
    Operation *function = module.lookupSymbol(kernel.name);
    OwningOpRef<ModuleOp> own = ModuleOp::create(function->getLoc());
    function->moveBefore(own->getBody(), own->getBody()->end());
    parts.push_back({&kernel, std::move(own), false, "", {}});
  }
  return parts;
}

void generate(Part &part, const CompileOptions &options) {
  part.lowered = succeeded(cpu::lowerToCpu(*part.module, options.cpu));
  if (!part.lowered)
    return;
  llvm::Expected<std::vector<uint8_t>> object = cpu::emitObject(*part.module, options.cpu);
  if (object)
    part.object = std::move(*object);
  else
    part.error = llvm::toString(object.takeError());
}

/// All parts at once where the context allows it: code generation takes longest by far, and
/// kernels do not depend on each other.
void generate(std::vector<Part> &parts, const CompileOptions &options) {
  if (parts.empty())
    return;
  // Passes load the dialects that they make, which is not safe among threads: the passes
  // of an empty module load them all now.
  OwningOpRef<ModuleOp> nothing = ModuleOp::create(parts.front().module->getLoc());
  (void)cpu::lowerToCpu(*nothing, options.cpu);
  // Many rows take longest: begun first, so that they are not what all wait for at the end.
  std::vector<Part *> order;
  for (Part &part : parts)
    order.push_back(&part);
  llvm::sort(order, [](Part *a, Part *b) { return a->kernel->rows > b->kernel->rows; });
  parallelForEach(nothing->getContext(), order, [&](Part *part) { generate(*part, options); });
}

std::string irOf(Operation *op) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  op->print(stream);
  return text;
}

/// Cuda or Ptx text of all kernels, one after another.
llvm::Expected<std::string> cudaStageText(func::FuncOp spec, Stage stage,
                                          const CompileOptions &options) {
  std::string all;
  if (stage == Stage::Cuda) {
    llvm::Expected<CudaBuild> build = buildCudaText(spec, options);
    if (!build)
      return build.takeError();
    // Each needs nothing else, and two together do not compile: they define the same functions.
    for (auto [i, text] : llvm::enumerate(build->texts))
      all +=
          ("// ==== Translation unit " + llvm::Twine(i + 1) + " of " +
           llvm::Twine(build->texts.size()) + ": " + text.entry + ".cu ====\n" + text.text + "\n")
              .str();
    return all;
  }
  CompileOptions ptxOnly = options;
  ptxOnly.ptxOnly = true;
  llvm::Expected<bundle::Program> program = compileSpec(spec, ptxOnly);
  if (!program)
    return program.takeError();
  for (const bundle::Kernel &kernel : program->kernels)
    all.append(program->images[kernel.image].bytes.begin(),
               program->images[kernel.image].bytes.end());
  return all;
}

/// The tile programs of all kernels after the GPU passes.
llvm::Expected<std::string> gpuStageText(ModuleOp module, const std::vector<KernelName> &kernels,
                                         const Schedule &schedule, const CompileOptions &options,
                                         FirstDiagnostic &diagnostics) {
  std::string all;
  for (Part &part : partsOf(module, kernels)) {
    if (failed(cuda::lowerToGpu(*part.module,
                                blockShapeFor(*part.kernel, schedule, options.cudaNumbers))))
      return diagnostics.take("lowering to CUDA failed");
    all += irOf(*part.module);
  }
  return all;
}

/// A spec on its way, for any target: the program without kernels, and its kernels as tile
/// programs in `module`.
struct Lowered {
  OwningOpRef<ModuleOp> module;
  Schedule schedule;
  bundle::Program program;
  std::vector<KernelName> kernels;
};

llvm::Expected<Lowered> lowerSpec(func::FuncOp spec, const CompileOptions &options,
                                  FirstDiagnostic &diagnostics) {
  Lowered result;
  result.module = isolate(spec);
  func::FuncOp copy = specIn(*result.module);
  FailureOr<Signature> signature = Signature::of(copy);
  if (failed(signature))
    return diagnostics.take("this function is no spec");
  result.schedule = scheduleFor(*signature, options);
  result.program = programOf(*signature, result.schedule);
  result.program.name = spec.getName().str();
  result.program.ir = irOf(copy);
  result.kernels = kernelsOf(*signature, spec.getName(), result.schedule);
  if (failed(lowerToTile(*result.module, result.schedule)))
    return diagnostics.take("lowering to tiles failed");
  return result;
}

} // namespace

llvm::Expected<CompileOptions> llmopt::optionsFor(llvm::StringRef target) {
  llvm::Expected<CompileOptions> options = hostOptions();
  if (!options || target == "cpu")
    return options;
  if (!target.consume_front("cuda:"))
    return llvm::createStringError("unknown target '%s'; cpu and cuda:sm_80 are of the form wanted",
                                   target.str().c_str());
  runtime::StatusOr<runtime::CudaTarget> numbers = runtime::cudaTargetOf(target.str());
  if (!numbers)
    return llvm::createStringError(numbers.status().message());
  options->cudaArch = target.str();
  options->cudaNumbers = *numbers;
  return options;
}

uint64_t llmopt::compileCount() { return compiles; }

llvm::Expected<CompileOptions> llmopt::hostOptions() {
  runtime::StatusOr<runtime::CpuInfo> info = runtime::hostCpu();
  if (!info)
    return llvm::createStringError(info.status().message());
  CompileOptions options;
  options.numbers = runtime::targetOf(*info);
  options.cpu = cpu::CpuTargetOptions::host();
  options.cpu.slowBf16Dot = options.numbers.slowBf16Dot;
  // A lowered view of the host must not be undone by what its name implies.
  if (runtime::featureString(*info) != runtime::featureString(runtime::detectCpu()))
    options.cpu.cpu = "x86-64";
  options.cpu.features = runtime::featureString(*info);
  return options;
}

void llmopt::registerDialects(DialectRegistry &registry) {
  registry.insert<attn::AttnDialect>();
  cpu::registerCpuDialects(registry);
}

std::vector<func::FuncOp> llmopt::specsOf(ModuleOp module) {
  std::vector<func::FuncOp> specs;
  for (func::FuncOp function : module.getOps<func::FuncOp>()) {
    if (function.isExternal())
      continue;
    bool holdsAttn = llvm::any_of(function.getBody().front(), [](Operation &op) {
      return isa<attn::AttentionOp, attn::MergeOp, attn::AppendOp>(op);
    });
    if (holdsAttn)
      specs.push_back(function);
  }
  return specs;
}

llvm::Expected<std::string> llmopt::specKey(func::FuncOp spec, const CompileOptions &options) {
  FirstDiagnostic diagnostics(spec.getContext());
  FailureOr<Signature> signature = Signature::of(spec);
  if (failed(signature))
    return diagnostics.take("this function is no spec");
  return kernelKey(irOf(spec), scheduleFor(*signature, options, /*remark=*/false), options);
}

llvm::Expected<CudaBuild> llmopt::buildCudaText(func::FuncOp spec, const CompileOptions &options) {
  FirstDiagnostic diagnostics(spec.getContext());
  llvm::Expected<Lowered> lowered = lowerSpec(spec, options, diagnostics);
  if (!lowered)
    return lowered.takeError();
  CudaBuild build{std::move(lowered->program),
                  std::move(lowered->schedule),
                  std::move(lowered->kernels),
                  {},
                  spec.getLoc()};
  build.program.target = "cuda:" + options.cudaArch;
  // Entries are named by the key of the program with machine code: PTX is the same text with and
  // without it.
  CompileOptions whole = options;
  whole.ptxOnly = false;
  build.program.key = kernelKey(build.program.ir, build.schedule, whole);
  for (Part &part : partsOf(*lowered->module, build.names)) {
    FailureOr<cuda::KernelText> text = cudaText(*part.module, *part.kernel, build, options);
    if (failed(text))
      return diagnostics.take("lowering to CUDA failed");
    build.texts.push_back(std::move(*text));
  }
  if (options.ptxOnly)
    build.program.key = kernelKey(build.program.ir, build.schedule, options);
  return build;
}

llvm::Expected<std::vector<CudaBuild>> llmopt::buildCuda(llvm::ArrayRef<func::FuncOp> specs,
                                                         const CompileOptions &options) {
  std::vector<CudaBuild> builds;
  for (func::FuncOp spec : specs) {
    llvm::Expected<CudaBuild> build = buildCudaText(spec, options);
    if (!build)
      return build.takeError();
    builds.push_back(std::move(*build));
  }
  if (llvm::Error error = addCudaKernels(builds, options))
    return error;
  compiles += builds.size();
  return builds;
}

llvm::Expected<std::vector<bundle::Program>>
llmopt::compileSpecs(llvm::ArrayRef<func::FuncOp> specs, const CompileOptions &options) {
  std::vector<bundle::Program> programs;
  if (!options.cudaArch.empty()) {
    llvm::Expected<std::vector<CudaBuild>> builds = buildCuda(specs, options);
    if (!builds)
      return builds.takeError();
    for (CudaBuild &build : *builds)
      programs.push_back(std::move(build.program));
    return programs;
  }
  for (func::FuncOp spec : specs) {
    llvm::Expected<bundle::Program> program = compileSpec(spec, options);
    if (!program)
      return program.takeError();
    programs.push_back(std::move(*program));
  }
  return programs;
}

llvm::Expected<bundle::Program> llmopt::compileSpec(func::FuncOp spec,
                                                    const CompileOptions &options) {
  if (!options.cudaArch.empty()) {
    llvm::Expected<std::vector<bundle::Program>> programs = compileSpecs(spec, options);
    if (!programs)
      return programs.takeError();
    return std::move(programs->front());
  }
  runtime::keepFreedHeap();
  FirstDiagnostic diagnostics(spec.getContext());
  llvm::Expected<Lowered> lowered = lowerSpec(spec, options, diagnostics);
  if (!lowered)
    return lowered.takeError();
  auto &[module, schedule, program, kernels] = *lowered;
  std::vector<Part> parts = partsOf(*module, kernels);
  generate(parts, options);
  for (Part &part : parts) {
    if (!part.lowered)
      return diagnostics.take("lowering failed");
    if (!part.error.empty())
      return llvm::createStringError(part.error);
    bundle::Kernel kernel = kernelFacts(*part.module, program.facts, schedule, *part.kernel);
    kernel.image = program.images.size();
    program.kernels.push_back(std::move(kernel));
    // What the image needs is what was detected: a CPU's name implies features that a
    // virtual machine may hide and that code generation does not use by itself.
    program.images.push_back(
        {options.cpu.triple, options.cpu.cpu, options.cpu.features, std::move(part.object)});
  }
  program.key = kernelKey(program.ir, schedule, options);
  ++compiles;
  return std::move(program);
}

llvm::Expected<std::string> llmopt::stageText(func::FuncOp spec, Stage stage,
                                              const CompileOptions &options) {
  if (stage == Stage::Attn)
    return irOf(spec);
  if (stage == Stage::Cuda || stage == Stage::Ptx) {
    if (options.cudaArch.empty())
      return llvm::createStringError("this stage belongs to CUDA targets");
    return cudaStageText(spec, stage, options);
  }
  FirstDiagnostic diagnostics(spec.getContext());
  OwningOpRef<ModuleOp> module = isolate(spec);
  FailureOr<Signature> signature = Signature::of(specIn(*module));
  if (failed(signature))
    return diagnostics.take("this function is no spec");
  Schedule schedule = scheduleFor(*signature, options);
  std::vector<KernelName> kernels = kernelsOf(*signature, spec.getName(), schedule);
  if (failed(lowerToTile(*module, schedule)))
    return diagnostics.take("lowering to tiles failed");
  if (stage == Stage::Tile)
    return irOf(*module);
  if ((stage == Stage::Gpu) != !options.cudaArch.empty())
    return llvm::createStringError("this stage belongs to another target");
  if (stage == Stage::Gpu)
    return gpuStageText(*module, kernels, schedule, options, diagnostics);
  if (stage == Stage::Vector) {
    PassManager manager(module->getContext());
    cpu::buildTileToVectorPipeline(manager, options.cpu.allFeatures());
    if (failed(manager.run(*module)))
      return diagnostics.take("lowering to vectors failed");
    return irOf(*module);
  }
  if (failed(cpu::lowerToCpu(*module, options.cpu)))
    return diagnostics.take("lowering to the CPU failed");
  return stage == Stage::Asm ? cpu::emitAssembly(*module, options.cpu)
                             : cpu::emitLlvmIr(*module, options.cpu);
}
