// The attn-to-tile pass; see Passes.td.
#include "passes/Passes.h"
#include "passes/attn/AttendKernel.h"
#include "passes/attn/Schedule.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Remarks.h"

namespace llmopt {
#define GEN_PASS_DEF_ATTNTOTILE
#include "passes/Passes.h.inc"
} // namespace llmopt

using namespace mlir;
using namespace llmopt;

namespace {

bool isSpec(func::FuncOp function) {
  if (function.isExternal())
    return false;
  for (Operation &op : function.getBody().front())
    if (isa<attn::AttentionOp, attn::MergeOp, attn::AppendOp>(op))
      return true;
  return false;
}

class AttnToTilePass : public llmopt::impl::AttnToTileBase<AttnToTilePass> {
public:
  using AttnToTileBase::AttnToTileBase;

  void runOnOperation() override {
    SmallVector<func::FuncOp> specs;
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      if (isSpec(function))
        specs.push_back(function);
    for (func::FuncOp spec : specs)
      if (failed(lower(spec)))
        return signalPassFailure();
  }

private:
  LogicalResult lower(func::FuncOp spec) {
    FailureOr<Signature> signature = Signature::of(spec);
    if (failed(signature))
      return failure();
    ModuleOp module = getOperation();
    for (const KernelName &kernel : kernelsOf(*signature, spec.getName(), chooseTiles(*signature)))
      emit(module, *signature, kernel);
    spec.erase();
    return success();
  }

  /// The options, or the schedule for the host, with a remark that tells why.
  Schedule chooseTiles(const Signature &signature) {
    Schedule schedule;
    if (!signature.attention)
      return schedule;
    runtime::StatusOr<runtime::CpuInfo> host = runtime::hostCpu();
    runtime::CpuTarget target = host ? runtime::targetOf(*host) : runtime::CpuTarget();
    schedule = chooseCpuSchedule(scheduleRequest(signature), target);
    if (!rows.empty())
      schedule.rows.assign(rows.begin(), rows.end());
    if (keys > 0)
      schedule.keys = keys;
    schedule.slices.assign(slices.begin(), slices.end());
    if (!rows.empty() || !heads.empty())
      schedule.heads.assign(heads.begin(), heads.end());
    schedule.oneLoop = oneLoop;
    schedule.branchScores = branchScores;
    schedule.endRows = endRows;
    schedule.partRows = partRows;
    if (rows.empty() && keys == 0)
      remarkSchedule(signature, schedule);
    return schedule;
  }

  static void emit(ModuleOp module, const Signature &signature, const KernelName &kernel) {
    switch (kernel.kind) {
    case bundle::KernelKind::Attend:
      return emitAttendKernel(module, signature, kernel);
    case bundle::KernelKind::Merge:
      return emitMergeKernel(module, signature, kernel.name);
    case bundle::KernelKind::Append:
      return emitAppendKernel(module, signature, kernel.name);
    case bundle::KernelKind::Combine:
      return emitCombineKernel(module, signature, kernel.name);
    }
  }
};

} // namespace

namespace {

/// KV heads that one walk over their keys may serve: a token's rows lie side by side, all heads see
/// the same keys, and which keys a row sees follows from the tile's place alone. Products read
/// rows of whole registers.
int64_t headsSideBySide(const Signature &signature) {
  attn::AttentionOp op = signature.attention;
  attn::KvCacheType cache = op.getCacheType();
  bool perHead = llvm::any_of(signature.scalars, [](const bundle::Scalar &scalar) {
    return scalar.perHeadBuffer >= 0 && scalar.type == bundle::ScalarType::I64;
  });
  constexpr int64_t kRegister = 32;
  bool together = cache && !cache.getHeadMajor() && !perHead && boundsOf(signature).exact &&
                  signature.findBuffer(bundle::BufferRole::Bias) < 0 &&
                  op.getQkDim() % kRegister == 0 && op.getVDim() % kRegister == 0;
  return together ? op.getKvHeads() : 1;
}

} // namespace

ScheduleRequest llmopt::scheduleRequest(const Signature &signature) {
  attn::AttentionOp op = signature.attention;
  ScheduleRequest request;
  request.group = op.getGroup();
  request.dQk = op.getQkDim();
  request.dV = op.getVDim();
  request.elementBytes = op.getElementType().getIntOrFloatBitWidth() / 8;
  request.heads = headsSideBySide(signature);
  if (request.heads > 1)
    request.runBytes =
        op.getCacheType().getPageSize() * op.getKvHeads() * op.getQkDim() * request.elementBytes;
  if (attn::ScheduleAttr wishes = op.getScheduleAttr()) {
    request.rows = wishes.getRows();
    request.keys = wishes.getKeys();
    request.batchInvariant = wishes.getBatchInvariant();
  }
  return request;
}

void llmopt::remarkSchedule(const Signature &signature, const Schedule &schedule) {
  remark::analysis(signature.attention->getLoc(),
                   remark::RemarkOpts::name("schedule").category("attn-to-tile"))
      << schedule.reason;
}

std::vector<KernelName> llmopt::kernelsOf(const Signature &signature, StringRef spec,
                                          const Schedule &schedule) {
  std::vector<KernelName> kernels;
  auto add = [&](bundle::KernelKind kind, const Twine &suffix, int64_t rows = 0, int64_t keys = 0,
                 int64_t slices = 1, int64_t heads = 1) {
    kernels.push_back({kind, (spec + suffix).str(), rows, keys, slices, schedule.oneLoop,
                       schedule.branchScores, heads, schedule.endRows, schedule.partRows});
  };
  if (signature.append)
    add(bundle::KernelKind::Append, "_append");
  if (signature.attention) {
    for (auto [i, rows] : llvm::enumerate(schedule.rows))
      add(bundle::KernelKind::Attend, "_attend_" + Twine(rows), rows, schedule.keys,
          i < schedule.slices.size() ? schedule.slices[i] : 1,
          i < schedule.heads.size() ? schedule.heads[i] : 1);
    add(bundle::KernelKind::Merge, "_merge");
  }
  if (signature.merge)
    add(bundle::KernelKind::Combine, "_combine");
  return kernels;
}
