// See CudaCompile.h.
#include "codegen/compile/CudaCompile.h"

#include "codegen/compile/ProgramFacts.h"
#include "codegen/cuda/emit/DeviceLibrary.h"
#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "dialect/tile/TileDialect.h"
#include "runtime/target/CudaArch.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace llmopt;

namespace {

const char *nameOf(bundle::ElementType type) {
  switch (type) {
  case bundle::ElementType::F32:
    return "f32";
  case bundle::ElementType::F16:
    return "f16";
  case bundle::ElementType::BF16:
    return "bf16";
  default:
    return "integers";
  }
}

/// "Heads: ..." of an attention: what its arrays hold.
std::string headsOf(const bundle::Program &program) {
  const bundle::AttentionFacts &facts = program.facts;
  if (!facts.kvHeads)
    return "";
  std::string types;
  for (const bundle::Buffer &buffer : program.buffers) {
    if (buffer.role == bundle::BufferRole::Query)
      types += std::string(", Q of ") + nameOf(buffer.type);
    if (buffer.role == bundle::BufferRole::Key || buffer.role == bundle::BufferRole::KeyPool)
      types += std::string(", K and V of ") + nameOf(buffer.type);
  }
  return "// Heads: " + std::to_string(facts.queryHeads) + " of queries, " +
         std::to_string(facts.kvHeads) + " of keys and values; " + std::to_string(facts.dQk) +
         " elements a query and key, " + std::to_string(facts.dV) + " a value" + types + ".\n";
}

/// "Grid: ..." of a kernel: its blocks, and what else is launched for the same plan.
std::string launchOf(const KernelName &kernel, ArrayRef<KernelName> all) {
  std::string others, merge;
  for (const KernelName &one : all) {
    if (one.kind == bundle::KernelKind::Merge)
      merge = one.name;
    else if (one.kind == bundle::KernelKind::Attend && one.name != kernel.name)
      others += (others.empty() ? "" : ", ") + one.name;
  }
  std::string text =
      "// Grid: one block a worker, as many as the GPU holds at a time. The plan, made "
      "by the host from the\n// lengths, gives worker w the ";
  if (kernel.kind == bundle::KernelKind::Merge)
    return text + "merges [merge_offsets[w], merge_offsets[w + 1]): rows\n// that attend kernels, "
                  "launched before with the same grid, left in parts.\n";
  if (kernel.kind != bundle::KernelKind::Attend)
    return text + "items [item_offsets[w], item_offsets[w + 1]).\n";
  text += "items [item_offsets[w], item_offsets[w + 1]) of this kernel.\n";
  if (!others.empty())
    text += "// Rows that fit another tile better are items of " + others +
            ", launched with the same grid.\n";
  if (!merge.empty())
    text += "// Items with a partial_slot are finished by " + merge + " afterwards.\n";
  return text;
}

/// The head of a kernel's text.
std::string headOf(func::FuncOp function, const KernelName &kernel, const CudaBuild &build,
                   const cuda::BlockShape &shape, const CompileOptions &options) {
  auto number = [&](StringRef name) {
    auto attr = function->getAttrOfType<IntegerAttr>(name);
    return std::to_string(attr ? attr.getInt() : 0);
  };
  int64_t blocks = function->getAttrOfType<IntegerAttr>(cuda::kBlocksAttr).getInt();
  std::string head =
      "// " + function.getName().str() + ", for " + options.cudaArch + ".\n//\n// Made from\n";
  SmallVector<StringRef> lines;
  StringRef(build.program.ir).rtrim().split(lines, '\n');
  for (StringRef line : lines)
    head += ("//   " + line + "\n").str();
  head += "//\n" + headsOf(build.program);
  if (kernel.kind == bundle::KernelKind::Attend) {
    head += "// Tile: " + std::to_string(kernel.rows) +
            " packed rows (query, head of the group) x " + std::to_string(kernel.keys) + " keys";
    if (kernel.slices > 1)
      head +=
          ",\n// in " + std::to_string(kernel.slices) +
          " slices of keys with a softmax state each, folded at the end of an item. A slice is a "
          "warp's:\n// all warps hold the same rows, and their states lie one below the other as "
          "rows of one tile";
    head += ".\n";
  }
  head += "// Block: " + std::to_string(shape.warps) + (shape.warps == 1 ? " warp, " : " warps, ") +
          number(tile::kSharedBytesAttr) + " bytes of shared memory";
  if (kernel.kind == bundle::KernelKind::Attend)
    head += shape.stages > 1 ? ", room for " + std::to_string(shape.stages) +
                                   " tiles of keys: one is computed while others are copied"
                             : ", room for one tile of keys";
  head += ".\n// Register budget: " +
          std::to_string(runtime::registerBudget(options.cudaNumbers, 32 * uint32_t(shape.warps),
                                                 uint32_t(blocks))) +
          " a thread, so that a multiprocessor holds " + std::to_string(blocks) +
          (blocks == 1 ? " block" : " blocks") +
          " at a time;\n// `llm-opt explain` prints how many the machine code takes";
  head += ".\n" + launchOf(kernel, build.names);
  return head;
}

/// A line of NVRTC's log about a line of the text: "name.cu(12): error: ...".
void report(const cuda::KernelText &text, StringRef log) {
  SmallVector<StringRef> lines;
  log.split(lines, '\n');
  for (StringRef line : lines) {
    auto [place, message] = line.split("): ");
    unsigned number = 0;
    message.consume_front("catastrophic ");
    if (!message.starts_with("error") || place.rsplit('(').second.getAsInteger(10, number))
      continue;
    emitError(text.placeOf(number)) << "the CUDA text made here does not compile: " << message;
  }
}

/// Says at the spec what was taken for want of something that fits better: once for each program.
void warnOfStandIns(const CudaBuild &build, const CompileOptions &options, StringRef note) {
  runtime::StatusOr<runtime::CudaArch> chip = runtime::CudaArch::parse(options.cudaArch);
  if (!build.place)
    return;
  if (chip && chip->major != options.cudaNumbers.arch / 10)
    emitWarning(*build.place) << "there are no numbers for " << options.cudaArch
                              << "; the schedule follows from those of sm_"
                              << options.cudaNumbers.arch;
  if (!note.empty())
    emitWarning(*build.place) << note;
}

/// Comments for the end of a PTX text that say which line of the spec each line of the CUDA
/// text comes from (runtime/device/sim/Simulator.h).
std::string specComments(const cuda::KernelText &text) {
  std::string comments;
  FileLineColLoc current;
  size_t first = 0;
  auto close = [&](size_t end) {
    if (current && current.getLine())
      comments += (Twine("//llmopt.spec ") + Twine(first) + " " + Twine(end) + " " +
                   current.getFilename().getValue() + ":" + Twine(current.getLine()) + "\n")
                      .str();
  };
  for (size_t i = 0; i < text.places.size(); ++i) {
    FileLineColLoc place;
    text.places[i]->walk([&](Location location) {
      place = dyn_cast<FileLineColLoc>(location);
      return place ? WalkResult::interrupt() : WalkResult::advance();
    });
    bool same = current && place && current.getFilename() == place.getFilename() &&
                current.getLine() == place.getLine();
    if (same)
      continue;
    close(i);
    current = place;
    first = i + 1; // lines count from 1
  }
  close(text.places.size());
  return comments;
}

} // namespace

/// The kernel's place among the schedule's attend kernels; none if it is no such, or its rows were
/// wished for.
static std::optional<size_t> indexOf(const KernelName &kernel, const Schedule &schedule) {
  auto found = llvm::find(schedule.rows, kernel.rows);
  if (kernel.kind != bundle::KernelKind::Attend || found == schedule.rows.end() ||
      schedule.blocks.size() != schedule.rows.size())
    return std::nullopt;
  return found - schedule.rows.begin();
}

cuda::BlockShape llmopt::blockShapeFor(const KernelName &kernel, const Schedule &schedule,
                                       const runtime::CudaTarget &target) {
  cuda::BlockShape shape;
  shape.sharedBudget = target.sharedBytesPerBlock;
  shape.warps = schedule.warps > 0 ? schedule.warps : 4;
  shape.stages = schedule.stages > 0 ? schedule.stages : 2;
  // One row at a time: more warps would only hold copies of it.
  if (kernel.kind == bundle::KernelKind::Merge || kernel.kind == bundle::KernelKind::Combine)
    shape.warps = 1;
  // A warp takes 16 rows on tensor cores: further warps would hold copies.
  int64_t steps = kernel.rows * kernel.slices / 16;
  if (kernel.kind == bundle::KernelKind::Attend && kernel.slices > 1 && steps < shape.warps)
    shape.warps = steps;
  if (std::optional<size_t> index = indexOf(kernel, schedule))
    shape.readsAhead = schedule.readsAhead[*index];
  return shape;
}

FailureOr<cuda::KernelText> llmopt::cudaText(ModuleOp module, const KernelName &kernel,
                                             const CudaBuild &build,
                                             const CompileOptions &options) {
  const Schedule &schedule = build.schedule;
  cuda::BlockShape shape = blockShapeFor(kernel, schedule, options.cudaNumbers);
  if (failed(cuda::lowerToGpu(module, shape)))
    return failure();
  auto function = cast<func::FuncOp>(module.lookupSymbol(kernel.name));
  // Two blocks hide each other's waits. Said of every kernel, since without it the assembler
  // aims at more blocks, and spills registers for them.
  auto shared = function->getAttrOfType<IntegerAttr>(tile::kSharedBytesAttr);
  std::optional<size_t> index = indexOf(kernel, schedule);
  uint64_t blocks = index ? schedule.blocks[*index] : 2;
  while (blocks > 1 && shared &&
         blocks * (shared.getInt() + runtime::kReservedSharedBytes) >
             options.cudaNumbers.sharedBytesPerSm)
    --blocks; // the schedule has estimated it
  function->setAttr(cuda::kBlocksAttr, OpBuilder(function).getI64IntegerAttr(blocks));
  constexpr size_t kKeyDigits = 8;
  function.setName(kernel.name + "_" + build.program.key.substr(0, kKeyDigits));
  return cuda::emitKernel(function, headOf(function, kernel, build, shape, options));
}

llvm::Error llmopt::addCudaKernels(llvm::MutableArrayRef<CudaBuild> builds,
                                   const CompileOptions &options) {
  auto nvrtc = cuda::Nvrtc::load();
  if (!nvrtc)
    return llvm::createStringError(nvrtc.status().message());
  struct Place {
    CudaBuild *build;
    size_t kernel;
  };
  std::vector<Place> places;
  for (CudaBuild &build : builds)
    for (size_t i = 0; i < build.texts.size(); ++i)
      places.push_back({&build, i});
  // What takes longest first, so that no thread begins it when the others are done.
  llvm::sort(places, [](const Place &a, const Place &b) {
    auto rank = [](const Place &place) {
      return std::tuple(-place.build->texts[place.kernel].implied.products, place.build,
                        place.kernel);
    };
    return rank(a) < rank(b);
  });
  std::string arch = options.cudaArch;
  if (options.ptxOnly) {
    runtime::StatusOr<runtime::CudaArch> chip = runtime::CudaArch::parse(arch);
    if (!chip)
      return llvm::createStringError(chip.status().message());
    chip->isVirtual = true;
    arch = chip->name();
  }
  std::vector<cuda::KernelSource> sources;
  for (const Place &place : places) {
    const cuda::KernelText &text = place.build->texts[place.kernel];
    sources.push_back(
        {.text = text.text, .name = text.entry + ".cu", .arch = arch, .lineInfo = true});
  }
  auto compiled = (*nvrtc)->compileAll(sources);
  for (CudaBuild &build : builds)
    build.program.kernels.resize(build.texts.size());
  llvm::SmallPtrSet<CudaBuild *, 4> warned;
  for (size_t i = 0; i < places.size(); ++i) {
    CudaBuild &build = *places[i].build;
    const cuda::KernelText &text = build.texts[places[i].kernel];
    if (!compiled[i]) {
      report(text, compiled[i].status().message());
      return llvm::createStringError(compiled[i].status().message());
    }
    if (warned.insert(&build).second)
      warnOfStandIns(build, options, compiled[i]->note);
    bundle::Kernel kernel =
        kernelFacts(ModuleOp(), build.program.facts, build.schedule, build.names[places[i].kernel]);
    kernel.entry = text.entry;
    kernel.blockThreads = text.threads;
    kernel.sharedBytes = text.sharedBytes;
    std::vector<bundle::Image> images = compiled[i]->images();
    for (bundle::Image &image : images) {
      if (image.format == bundle::ImageFormat::Ptx) {
        std::string comments = specComments(text);
        while (!image.bytes.empty() && image.bytes.back() == 0)
          image.bytes.pop_back();
        image.bytes.insert(image.bytes.end(), comments.begin(), comments.end());
      }
      build.program.images.push_back(std::move(image));
      kernel.otherImages.push_back(build.program.images.size() - 1);
    }
    kernel.image = kernel.otherImages.front();
    kernel.otherImages.erase(kernel.otherImages.begin());
    build.program.kernels[places[i].kernel] = std::move(kernel);
  }
  return llvm::Error::success();
}

std::string llmopt::cudaKeyText(const CompileOptions &options) {
  auto nvrtc = cuda::Nvrtc::load();
  return "cuda:" + options.cudaArch + (options.ptxOnly ? " as PTX\n" : "\n") +
         (nvrtc ? (*nvrtc)->version() : std::string("none")) + "\n" +
         cuda::deviceLibraryText().str();
}
