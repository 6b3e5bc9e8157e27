// See Emit.h.
#include "codegen/cuda/Emit.h"
#include "codegen/cuda/emit/DeviceLibrary.h"
#include "codegen/cuda/emit/Printer.h"

#include "dialect/tile/TileDialect.h"

using namespace mlir;
using namespace llmopt;

Location cuda::KernelText::placeOf(unsigned line) const {
  return line >= 1 && line <= places.size() ? places[line - 1]
                                            : Location(UnknownLoc::get(places[0].getContext()));
}

LogicalResult cuda::lowerToGpu(ModuleOp module, const BlockShape &shape) {
  PassManager manager(module.getContext());
  manager.enableVerifier(false); // by whoever made the module, and in the passes' tests
  buildTileToGpuPipeline(manager, shape);
  return manager.run(module);
}

FailureOr<cuda::KernelText> cuda::emitKernel(func::FuncOp kernel, StringRef head) {
  Printer printer(kernel);
  if (failed(printer.run()))
    return failure();
  auto number = [&](StringRef name, int64_t otherwise) {
    auto attr = kernel->getAttrOfType<IntegerAttr>(name);
    return attr ? attr.getInt() : otherwise;
  };
  KernelText result;
  result.entry = kernel.getName().str();
  result.threads = 32 * number(tile::kWarpsAttr, 1);
  result.sharedBytes = number(tile::kSharedBytesAttr, 0);
  result.blocks = number(kBlocksAttr, 1);
  result.implied = impliedBy(kernel);

  Lines all;
  auto add = [&](StringRef text) {
    SmallVector<StringRef> lines;
    text.rtrim('\n').split(lines, '\n');
    for (StringRef line : lines) {
      all.text.push_back(line.str());
      all.places.push_back(kernel.getLoc());
    }
  };
  if (!head.empty())
    add(head);
  // Params' fields are 64-bit whatever the spec, so the types are always wanted.
  add("\n" + deviceFunctionsFor(printer.lines().str()) + "\n");
  all.append(printer.lines());
  result.text = all.str();
  result.places = std::move(all.places);
  return result;
}
