// See ProgramFacts.h.
#include "codegen/compile/ProgramFacts.h"

#include "dialect/tile/TileDialect.h"

using namespace mlir;
using namespace llmopt;
using attn::BoundExprKind;
using bundle::BoundOp;

namespace {

BoundOp symbolOp(attn::BoundSymbol symbol) {
  switch (symbol) {
  case attn::BoundSymbol::QueryLo:
    return BoundOp::QueryLo;
  case attn::BoundSymbol::QueryHi:
    return BoundOp::QueryHi;
  case attn::BoundSymbol::QueryLen:
    return BoundOp::QueryLen;
  case attn::BoundSymbol::KeyLen:
    return BoundOp::KeyLen;
  }
  return BoundOp::Const;
}

BoundOp binaryOp(BoundExprKind kind) {
  switch (kind) {
  case BoundExprKind::Add:
    return BoundOp::Add;
  case BoundExprKind::Sub:
    return BoundOp::Sub;
  case BoundExprKind::Mul:
    return BoundOp::Mul;
  case BoundExprKind::Min:
    return BoundOp::Min;
  case BoundExprKind::Max:
    return BoundOp::Max;
  case BoundExprKind::FloorDiv:
    return BoundOp::FloorDiv;
  default:
    return BoundOp::FloorMod;
  }
}

void emitPostfix(const attn::BoundExpr &expr, bundle::BoundProgram &program) {
  switch (expr.kind()) {
  case BoundExprKind::Constant:
    program.push_back({BoundOp::Const, expr.value()});
    return;
  case BoundExprKind::Symbol:
    program.push_back({symbolOp(expr.symbol())});
    return;
  case BoundExprKind::Scalar:
    program.push_back({BoundOp::Scalar, expr.value()});
    return;
  case BoundExprKind::ScalarMin:
    program.push_back({BoundOp::ScalarMin, expr.value()});
    return;
  case BoundExprKind::ScalarMax:
    program.push_back({BoundOp::ScalarMax, expr.value()});
    return;
  default:
    break;
  }
  emitPostfix(expr.lhs(), program);
  emitPostfix(expr.rhs(), program);
  program.push_back({binaryOp(expr.kind())});
}

bundle::BoundProgram postfix(const attn::BoundExpr &expr) {
  bundle::BoundProgram program;
  emitPostfix(expr, program);
  return program;
}

bundle::BoundSet boundSet(const attn::IntervalSet &set) {
  bundle::BoundSet result;
  for (const attn::Interval &interval : set.intervals) {
    bundle::BoundInterval out{postfix(interval.lo), postfix(interval.hi), {}, {}, {}};
    if (interval.thinning) {
      out.stride = postfix(interval.thinning->stride);
      out.phase = postfix(interval.thinning->phase);
      out.width = postfix(interval.thinning->width);
    }
    result.intervals.push_back(std::move(out));
  }
  return result;
}

/// What an array of pages looks like.
void setPages(bundle::AttentionFacts &facts, attn::KvCacheType cache) {
  facts.kvOrder = cache.getHeadMajor() ? bundle::KvOrder::HeadMajor : bundle::KvOrder::TokenMajor;
  facts.interleaved = cache.getInterleaved();
  facts.pageSize = cache.getPageSize();
}

bundle::AttentionFacts attentionFacts(const Signature &signature, const Schedule &schedule) {
  attn::AttentionOp op = signature.attention;
  bundle::AttentionFacts facts;
  facts.queryHeads = op.getQueryHeads(), facts.kvHeads = op.getKvHeads();
  facts.dQk = op.getQkDim(), facts.dV = op.getVDim();
  facts.queryForm = op.isRaggedQuery() ? bundle::QueryForm::Ragged : bundle::QueryForm::Dense;
  facts.kvForm = op.isRaggedKv() ? bundle::KvForm::Ragged : bundle::KvForm::Dense;
  if (attn::KvCacheType cache = op.getCacheType()) {
    facts.kvForm = bundle::KvForm::Paged;
    facts.tableForm = cache.getIndptr() ? bundle::TableForm::Indptr : bundle::TableForm::BlockTable;
    setPages(facts, cache);
  }
  facts.batchInvariant = schedule.batchInvariant;
  if (attn::SplitAttr split = op.getSplitAttr()) {
    facts.splitKeys = split.getLength();
    facts.fixedSplits = split.getCount();
    if (!split.getLength() && !split.getCount())
      facts.fixedSplits = 1; // none
  }
  facts.mixesSequences = mayMixSequences(signature);
  attn::MaskBounds bounds = boundsOf(signature);
  facts.may = boundSet(bounds.may);
  facts.surely = boundSet(bounds.surely);
  return facts;
}

} // namespace

bundle::Program llmopt::programOf(const Signature &signature, const Schedule &schedule) {
  bundle::Program program;
  program.buffers = signature.buffers;
  program.slots = signature.slots;
  program.scalars = signature.scalars;
  if (signature.attention)
    program.facts = attentionFacts(signature, schedule);
  else if (attn::AppendOp append = signature.append) // a copy: its accessors are not const
    setPages(program.facts, append.getCache().getType());
  return program;
}

bundle::Kernel llmopt::kernelFacts(ModuleOp lowered, const bundle::AttentionFacts &facts,
                                   const Schedule &schedule, const KernelName &name) {
  bundle::Kernel kernel;
  kernel.entry = name.name;
  kernel.kind = name.kind;
  kernel.tileRows = name.rows;
  kernel.tileKeys = name.keys;
  if (Operation *function = lowered ? lowered.lookupSymbol(name.name) : nullptr)
    if (auto bytes = function->getAttrOfType<IntegerAttr>(tile::kScratchAttr))
      kernel.scratchBytes = bytes.getInt();
  kernel.itemHeads = uint32_t(name.heads);
  if (name.kind == bundle::KernelKind::Attend)
    kernel.costPerTile = tileCost(schedule, name.rows, facts.dQk, facts.dV);
  return kernel;
}
