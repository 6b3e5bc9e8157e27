// tile-cpu-loops-to-blocks: structured control flow as blocks, constant loops tested at their end.
#include "codegen/cpu/Passes.h"

#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Transforms/DialectConversion.h"

using namespace mlir;

namespace llmopt::cpu {
#define GEN_PASS_DEF_TILECPULOOPSTOBLOCKS
#include "codegen/cpu/Passes.h.inc"
} // namespace llmopt::cpu

namespace {

/// `for i = low to high` of numbers, low < high: the body, then the test. LLVM would make the same
/// of a test at the start, and takes a twentieth of the time of compiling a kernel for it.
struct RunsAtLeastOnce : OpRewritePattern<scf::ForOp> {
  RunsAtLeastOnce(MLIRContext *context) : OpRewritePattern(context, /*benefit=*/2) {}

  LogicalResult matchAndRewrite(scf::ForOp loop, PatternRewriter &rewriter) const override {
    std::optional<int64_t> low = getConstantIntValue(loop.getLowerBound()),
                           high = getConstantIntValue(loop.getUpperBound());
    if (!low || !high || *low >= *high || loop.getUnsignedCmp())
      return failure();
    Location loc = loop.getLoc();
    Block *before = rewriter.getInsertionBlock(),
          *after = rewriter.splitBlock(before, rewriter.getInsertionPoint());
    Block *body = loop.getBody(), *last = &loop.getRegion().back();
    rewriter.inlineRegionBefore(loop.getRegion(), after);

    Operation *yield = last->getTerminator();
    rewriter.setInsertionPoint(yield);
    Value next = arith::AddIOp::create(rewriter, loc, body->getArgument(0), loop.getStep());
    Value more =
        arith::CmpIOp::create(rewriter, loc, arith::CmpIPredicate::slt, next, loop.getUpperBound());
    SmallVector<Value> again{next};
    llvm::append_range(again, yield->getOperands());
    ValueRange results(after->addArguments(loop.getResultTypes(),
                                           SmallVector<Location>(loop.getNumResults(), loc)));
    rewriter.replaceOpWithNewOp<cf::CondBranchOp>(yield, more, body, again, after,
                                                  yield->getOperands());

    rewriter.setInsertionPointToEnd(before);
    SmallVector<Value> first{loop.getLowerBound()};
    llvm::append_range(first, loop.getInitArgs());
    cf::BranchOp::create(rewriter, loc, body, first);
    rewriter.replaceOp(loop, results);
    return success();
  }
};

struct TileCpuLoopsToBlocks : llmopt::cpu::impl::TileCpuLoopsToBlocksBase<TileCpuLoopsToBlocks> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    populateSCFToControlFlowConversionPatterns(patterns);
    patterns.add<RunsAtLeastOnce>(&getContext());
    ConversionTarget target(getContext());
    target.addIllegalDialect<scf::SCFDialect>();
    target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    ConversionConfig config;
    config.allowPatternRollback = false;
    if (failed(applyPartialConversion(getOperation(), target, std::move(patterns), config)))
      signalPassFailure();
  }
};

} // namespace
