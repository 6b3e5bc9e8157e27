// The frame of a kernel: parameters, thread constants, shared memory.
#include "codegen/cuda/Emit.h"
#include "codegen/cuda/emit/Printer.h"
#include "codegen/cuda/passes/RowTurns.h"

#include "mlir/Dialect/UB/IR/UBOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cuda;

Printer::Printer(func::FuncOp kernel) : kernel(kernel), warps(4), w(kernel.getLoc(), names) {
  if (auto attr = kernel->getAttrOfType<IntegerAttr>(tile::kWarpsAttr))
    warps = attr.getInt();
}

std::vector<std::string> Printer::parameterNames() {
  Names fields;
  for (const char *header : {"abi_version", "slots", "reserved"})
    fields.fresh(header);
  std::vector<std::string> result;
  for (auto [i, argument] : llvm::enumerate(kernel.getArguments())) {
    auto named = dyn_cast<NameLoc>(argument.getLoc());
    result.push_back(
        fields.fresh(named ? named.getName().getValue() : StringRef("a" + std::to_string(i))));
  }
  return result;
}

void Printer::head(ArrayRef<std::string> fields) {
  w.depth = 0;
  w.comment("The parameter block: a header of 64 bytes, then slots of 8. NAME_strideI is how many");
  w.comment("elements of the array NAME lie between neighbours along its axis I, counted from 0.");
  w.open("struct Params");
  w.line("u32 abi_version, slots;");
  w.line("u64 reserved[7];");
  for (auto [argument, field] : llvm::zip(kernel.getArguments(), fields)) {
    if (kernel.getArgAttr(argument.getArgNumber(), tile::kWorkerAttr))
      continue;
    if (auto memory = dyn_cast<MemRefType>(argument.getType())) {
      bool written = llvm::any_of(argument.getUsers(), [&](Operation *user) {
        if (auto store = dyn_cast<tile::StoreOp>(user))
          return store.getBase() == argument;
        return isa<memref::StoreOp>(user);
      });
      w.line((written ? "" : "const ") + typeName(memory.getElementType()) + " *" + field + ";");
    } else if (argument.getType().isF32() || argument.getType().isInteger(32)) {
      w.line(typeName(argument.getType()) + " " + field + ", " + field + "_unused;");
    } else {
      w.line(typeName(argument.getType()) + " " + field + ";");
    }
  }
  w.close(";");
  w.line("");
  auto blocks = kernel->getAttrOfType<IntegerAttr>(kBlocksAttr);
  w.line("extern \"C\" __global__ void __launch_bounds__(" + Twine(32 * warps) + ", " +
         Twine(blocks ? blocks.getInt() : 1) + ") " + kernel.getName() +
         "(const __grid_constant__ Params p) {");
  w.depth = 1;
}

LogicalResult Printer::run() {
  std::vector<std::string> fields = parameterNames();
  for (auto [argument, field] : llvm::zip(kernel.getArguments(), fields)) {
    bool isWorker = bool(kernel.getArgAttr(argument.getArgNumber(), tile::kWorkerAttr));
    bound[argument] = {isWorker ? "i64(blockIdx.x)" : "p." + field};
  }
  if (auto named = kernel->getAttrOfType<DictionaryAttr>(tile::kConstantsAttr))
    for (NamedAttribute constant : named)
      constants[cast<IntegerAttr>(constant.getValue()).getInt()] =
          names.fresh(constant.getName().getValue());
  if (failed(block(kernel.front())) || !complete)
    return failure();
  Lines body = std::move(w.lines);
  w.lines = Lines();
  w.place = kernel.getLoc();
  head(fields);
  w.line("const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;");
  for (auto &[value, constant] : constants)
    w.line("constexpr i64 " + constant + " = " + Twine(value) + ";");
  for (const ThreadConstant &constant : threadConstants) {
    w.paragraph(constant.name + ": " + constant.comment);
    w.line("const int " + constant.name + " = int(hidden(" + constant.expression + "));");
  }
  auto bytes = kernel->getAttrOfType<IntegerAttr>(tile::kSharedBytesAttr);
  if (bytes && bytes.getInt() > 0) {
    w.line("extern __shared__ __align__(128) u8 shared_memory[];");
    w.line("const u32 shared = shared_address(shared_memory);");
  }
  w.lines.append(body);
  w.depth = 1;
  w.close();
  result = std::move(w.lines);
  return success();
}

LogicalResult Printer::block(Block &block) {
  for (Operation &op : block)
    if (failed(operation(&op)))
      return failure();
  return success();
}

LogicalResult Printer::operation(Operation *op) {
  w.place = op->getLoc();
  if (op->getNumResults() == 1 && isMadeByTurn(op->getResult(0)))
    return success(); // printed where a copy wants it
  if (auto note = op->getAttrOfType<StringAttr>(tile::kNoteAttr);
      note && !isa<memref::AllocaOp, tile::BarrierOp>(op))
    w.note(note.getValue());
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<func::ReturnOp, scf::YieldOp, scf::ConditionOp, tile::YieldOp, ub::PoisonOp>(
          [](auto) { return success(); })
      .Case<scf::ForOp, scf::WhileOp, scf::IfOp, memref::LoadOp, memref::StoreOp, tile::MapOp,
            tile::ReduceOp, tile::LoadOp, tile::StoreOp, tile::StridedRowsOp, tile::PagedRowsOp,
            tile::CopyAsyncOp, tile::PutOp, tile::GetOp, tile::ConvertOp, tile::MmaOp, tile::FoldOp,
            tile::ReduceColumnsOp>([&](auto known) { return print(known); })
      .Case([&](memref::AllocaOp alloca) -> LogicalResult {
        auto offset = alloca->getAttrOfType<IntegerAttr>(tile::kOffsetAttr);
        if (!offset)
          return success(); // nothing uses it
        std::string variable = name(alloca, "buffer") + "_at";
        std::string place = offset.getInt() ? " + " + std::to_string(offset.getInt()) : "";
        if (auto note = alloca->getAttrOfType<StringAttr>(tile::kNoteAttr))
          w.paragraph(note.getValue());
        w.line("const u32 " + variable + " = shared" + place + ";");
        bound[alloca] = {variable};
        return success();
      })
      .Case([&](tile::BarrierOp barrier) {
        if (auto reason = barrier->getAttrOfType<StringAttr>(tile::kNoteAttr))
          w.paragraph(reason.getValue());
        w.line("__syncthreads();");
        return success();
      })
      .Case([&](tile::ElectOp elect) {
        define(elect, {"threadIdx.x == 0", Precedence::Equality});
        return success();
      })
      .Default([&](Operation *other) { return scalar(other); });
}
