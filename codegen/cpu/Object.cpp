// LLVM: translation, the O1 pipeline, and code generation.
#include "codegen/cpu/Object.h"

#include "runtime/bundle/HostFunctions.h"

#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/SubtargetFeature.h"
#include "llvm/TargetParser/X86TargetParser.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/LoopRotation.h"
#include "llvm/Transforms/Scalar/LoopStrengthReduce.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

using namespace llmopt;
using namespace llmopt::cpu;

CpuTargetOptions CpuTargetOptions::host() {
  static const CpuTargetOptions host = [] { // asked once: see runtime/target/CpuInfo.cpp
    CpuTargetOptions options;
    options.triple = llvm::sys::getDefaultTargetTriple();
    options.cpu = llvm::sys::getHostCPUName().str();
    llvm::SubtargetFeatures features;
    for (auto &[name, on] : llvm::sys::getHostCPUFeatures())
      features.AddFeature(name, on);
    options.features = features.getString();
    return options;
  }();
  return host;
}

std::string CpuTargetOptions::allFeatures() const {
  llvm::SmallVector<llvm::StringRef> implied;
  if (!cpu.empty() && llvm::X86::parseArchX86(cpu) != llvm::X86::CK_None)
    llvm::X86::getFeaturesForCPU(cpu, implied);
  std::string all;
  for (llvm::StringRef name : implied)
    all += "+" + name.str() + ",";
  return all + features + (slowBf16Dot ? ",+slow-bf16-dot" : "");
}

namespace {

llvm::Error failure(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::Expected<std::unique_ptr<llvm::TargetMachine>> makeMachine(const CpuTargetOptions &options) {
  static const bool initialised = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)initialised;
  llvm::Triple triple(options.triple.empty() ? llvm::sys::getDefaultTargetTriple()
                                             : options.triple);
  std::string reason;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, reason);
  if (!target)
    return failure("no code generator for '" + triple.str() + "': " + reason);
  // Position independent, so that the loader may put it anywhere; the object has one
  // section of code and one of constants, reached relative to the instruction pointer.
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, options.cpu, options.features, llvm::TargetOptions(), llvm::Reloc::PIC_,
      llvm::CodeModel::Small, llvm::CodeGenOptLevel::Less));
  if (!machine)
    return failure("cannot generate code for CPU '" + options.cpu + "'");
  return machine;
}

void setFunctionAttributes(llvm::Module &module, const CpuTargetOptions &options) {
  for (llvm::Function &function : module) {
    if (function.isDeclaration())
      continue;
    if (!options.cpu.empty())
      function.addFnAttr("target-cpu", options.cpu);
    if (!options.features.empty())
      function.addFnAttr("target-features", options.features);
    // Without it some CPUs' tuning splits our 512-bit vectors.
    function.addFnAttr("prefer-vector-width", "512");
    // A loop that clears memory must not become a slow call of memset.
    function.addFnAttr("no-builtins");
    function.addFnAttr(llvm::Attribute::NoUnwind);
  }
}

/// LLVM's strength reduction for the loops of products: without it they take 2 to 6 % longer. For
/// the many others it is 2 % of a kernel's time, and a fifth of that of code generation.
struct ReduceStrengthOfProducts : llvm::PassInfoMixin<ReduceStrengthOfProducts> {
  static bool multiplies(const llvm::Loop &loop) {
    constexpr int64_t kProducts = 8; // of vectors, in a trip
    auto isProduct = [](const llvm::Instruction &op) {
      return llvm::isa<llvm::CallInst>(op) && op.getType()->isVectorTy();
    };
    int64_t products = 0;
    for (const llvm::BasicBlock *block : loop.blocks())
      products += llvm::count_if(*block, isProduct);
    return loop.isInnermost() && products >= kProducts;
  }
  llvm::PreservedAnalyses run(llvm::Loop &loop, llvm::LoopAnalysisManager &analyses,
                              llvm::LoopStandardAnalysisResults &results,
                              llvm::LPMUpdater &updater) {
    if (!multiplies(loop))
      return llvm::PreservedAnalyses::all();
    return llvm::LoopStrengthReducePass().run(loop, analyses, results, updater);
  }
};

void optimise(llvm::Module &module, llvm::TargetMachine &machine, unsigned level) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopUnrolling = false; // blocks are unrolled where it pays
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::ModulePassManager passes;
  if (level >= 2) {
    passes = builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2);
  } else if (level == 1) {
    // What vector code from MLIR needs and no more: LLVM's own O1 spends two thirds of
    // its time on unrolling and induction variables, for the same speed of the result.
    llvm::FunctionPassManager functionPasses;
    functionPasses.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/false));
    functionPasses.addPass(llvm::SimplifyCFGPass());
    llvm::LoopPassManager loopPasses;
    loopPasses.addPass(llvm::LoopRotatePass());
    loopPasses.addPass(llvm::LICMPass(llvm::LICMOptions()));
    functionPasses.addPass(
        llvm::createFunctionToLoopPassAdaptor(std::move(loopPasses), /*UseMemorySSA=*/true));
    functionPasses.addPass(llvm::InstCombinePass());
    functionPasses.addPass(llvm::SimplifyCFGPass());
    functionPasses.addPass(llvm::createFunctionToLoopPassAdaptor(ReduceStrengthOfProducts()));
    passes.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(functionPasses)));
  }
  passes.run(module, modules);
}

/// An LLVM module, optimised, in a context of its own.
struct Translated {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  std::unique_ptr<llvm::TargetMachine> machine;
};

llvm::Expected<std::unique_ptr<Translated>> translate(mlir::ModuleOp source,
                                                      const CpuTargetOptions &options) {
  auto result = std::make_unique<Translated>();
  auto machine = makeMachine(options);
  if (!machine)
    return machine.takeError();
  result->machine = std::move(*machine);
  result->module = mlir::translateModuleToLLVMIR(source, result->context);
  if (!result->module)
    return failure("the module has ops that do not translate to LLVM IR; run tile-to-cpu first");
  result->module->setTargetTriple(result->machine->getTargetTriple());
  result->module->setDataLayout(result->machine->createDataLayout());
  setFunctionAttributes(*result->module, options);
  optimise(*result->module, *result->machine, options.optLevel);
  return result;
}

/// LLVM's passes of code generation, without strength reduction where optimise() has done it.
struct CodegenPasses : llvm::legacy::PassManager {
  bool reduced;
  explicit CodegenPasses(bool reduced) : reduced(reduced) {}
  void add(llvm::Pass *pass) override {
    if (reduced &&
        llvm::is_contained({"Loop Strength Reduction", "Canonicalize Freeze Instructions in Loops"},
                           pass->getPassName()))
      delete pass; // whoever adds a pass has given it away
    else
      PassManager::add(pass);
  }
};

llvm::Expected<llvm::SmallVector<char, 0>>
generate(mlir::ModuleOp source, const CpuTargetOptions &options, llvm::CodeGenFileType kind) {
  auto translated = translate(source, options);
  if (!translated)
    return translated.takeError();
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  CodegenPasses passes(/*reduced=*/options.optLevel == 1);
  if ((*translated)->machine->addPassesToEmitFile(passes, stream, nullptr, kind))
    return failure("the code generator for '" + options.cpu + "' writes no files of this kind");
  passes.run(*(*translated)->module);
  return bytes;
}

/// The loader offers the functions of runtime/bundle/HostFunctions.h; all else must be
/// inside.
llvm::Error checkCalls(llvm::ArrayRef<char> bytes) {
  llvm::MemoryBufferRef buffer(llvm::StringRef(bytes.data(), bytes.size()), "kernel");
  auto object = llvm::object::ObjectFile::createObjectFile(buffer);
  if (!object)
    return object.takeError();
  for (const llvm::object::SymbolRef &symbol : (*object)->symbols()) {
    auto flags = symbol.getFlags();
    if (!flags)
      return flags.takeError();
    auto name = symbol.getName();
    if (!name)
      return name.takeError();
    if ((*flags & llvm::object::SymbolRef::SF_Undefined) && !name->empty() &&
        !bundle::isHostFunction({name->data(), name->size()}))
      return failure("the kernel would call '" + *name +
                     "', which the loader of kernels does not offer; allowed are C's "
                     "functions of mathematics");
  }
  return llvm::Error::success();
}

} // namespace

llvm::Expected<std::vector<uint8_t>> llmopt::cpu::emitObject(mlir::ModuleOp module,
                                                             const CpuTargetOptions &options) {
  auto bytes = generate(module, options, llvm::CodeGenFileType::ObjectFile);
  if (!bytes)
    return bytes.takeError();
  if (llvm::Error error = checkCalls(*bytes))
    return error;
  return std::vector<uint8_t>(bytes->begin(), bytes->end());
}

llvm::Expected<std::string> llmopt::cpu::emitAssembly(mlir::ModuleOp module,
                                                      const CpuTargetOptions &options) {
  auto bytes = generate(module, options, llvm::CodeGenFileType::AssemblyFile);
  if (!bytes)
    return bytes.takeError();
  return std::string(bytes->begin(), bytes->end());
}

llvm::Expected<std::string> llmopt::cpu::emitLlvmIr(mlir::ModuleOp module,
                                                    const CpuTargetOptions &options) {
  auto translated = translate(module, options);
  if (!translated)
    return translated.takeError();
  std::string text;
  llvm::raw_string_ostream stream(text);
  (*translated)->module->print(stream, nullptr);
  return text;
}
