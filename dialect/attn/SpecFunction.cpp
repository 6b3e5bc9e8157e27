// See SpecFunction.h.
#include "dialect/attn/SpecFunction.h"

#include "mlir/IR/OpDefinition.h"

using namespace mlir;
using namespace llmopt::attn;

namespace {

LogicalResult collect(func::FuncOp function, SpecOps &ops) {
  auto take = [](auto &place, auto op) -> LogicalResult {
    if (place)
      return op.emitOpError("appears twice; a spec function holds one of each attn op");
    place = op;
    return success();
  };
  for (Operation &op : function.getBody().front()) {
    LogicalResult taken = success();
    if (auto attention = dyn_cast<AttentionOp>(op))
      taken = take(ops.attention, attention);
    else if (auto merge = dyn_cast<MergeOp>(op))
      taken = take(ops.merge, merge);
    else if (auto append = dyn_cast<AppendOp>(op))
      taken = take(ops.append, append);
    else if (!op.hasTrait<OpTrait::ConstantLike>() && !isa<func::ReturnOp>(op))
      taken = op.emitOpError("has no place in a spec; attn ops, constants and return are allowed");
    if (failed(taken))
      return failure();
  }
  if (!ops.attention && !ops.merge && !ops.append)
    return function.emitOpError("holds no attn op, so it is no spec");
  return success();
}

/// Which ops may stand together, and in which order.
LogicalResult checkTogether(SpecOps &ops) {
  if (ops.merge && (ops.attention || ops.append))
    return ops.merge.emitOpError()
           << "stands beside " << (ops.attention ? ops.attention->getName() : ops.append->getName())
           << "; a merge is a spec of its own";
  if (!ops.attention || !ops.append)
    return success();
  if (ops.attention->isBeforeInBlock(ops.append))
    return ops.append.emitOpError("comes after attn.attention; a spec appends before it attends, "
                                  "so move it up, or write it as a spec of its own");
  if (ops.attention.getKey() != ops.append.getCache())
    return ops.append.emitOpError("writes a cache that attn.attention does not read; give both the "
                                  "same cache, or write the append as a spec of its own");
  return success();
}

/// Names each value that the ops take.
class Operands {
public:
  /// `what` an operand of `op` is: an argument of the function that is nothing else.
  LogicalResult add(Operation *op, Value value, const Twine &what) {
    if (!isa<BlockArgument>(value))
      return op->emitOpError()
             << what << " is "
             << (value.getDefiningOp()->hasTrait<OpTrait::ConstantLike>() ? "a constant"
                                                                          : "the result of an op")
             << "; operands of a spec are arguments of the function"
             << (isa<ShapedType>(value.getType())
                     ? ""
                     : ", and numbers are written in the clause, as in window<3>");
    std::string &name = names[value];
    if (!name.empty())
      return op->emitOpError() << what << " is the same argument as " << name
                               << "; give each an argument of its own, or name one twice in the "
                                  "clauses";
    name = what.str();
    return success();
  }

private:
  llvm::SmallDenseMap<Value, std::string> names;
};

LogicalResult checkOperands(SpecOps &ops) {
  Operands operands;
  auto add = [&](auto op, Value value, const Twine &what) {
    return value ? operands.add(op, value, what) : success();
  };
  if (AppendOp op = ops.append; op && (failed(add(op, op.getKeys(), "operand 'keys'")) ||
                                       failed(add(op, op.getValues(), "operand 'values'")) ||
                                       failed(add(op, op.getSlots(), "operand 'slots'")) ||
                                       failed(add(op, op.getCache(), "operand 'cache'"))))
    return failure();
  if (MergeOp op = ops.merge; op && (failed(add(op, op.getPartials(), "operand 'partials'")) ||
                                     failed(add(op, op.getLses(), "operand 'lses'"))))
    return failure();
  AttentionOp op = ops.attention;
  if (!op)
    return success();
  if (failed(add(op, op.getQuery(), "operand 'query'")) ||
      (!ops.append && failed(add(op, op.getKey(), "operand 'key'"))) ||
      failed(add(op, op.getValue(), "operand 'value'")) ||
      failed(add(op, op.getSequences(), "operand 'sequences'")))
    return failure();
  for (auto [i, value] : llvm::enumerate(op.getArgs()))
    if (failed(add(op, value, "operand " + Twine(i) + " of args")))
      return failure();
  return success();
}

LogicalResult checkReturn(func::FuncOp function, SpecOps &ops) {
  Operation *end = function.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(end->getOperands())) {
    Operation *from = value.getDefiningOp();
    if (!from || (from != ops.attention.getOperation() && from != ops.merge.getOperation()))
      return end->emitOpError() << "gives back a value, number " << i
                                << ", that is no result of the spec's attn op; only its output "
                                   "and log-sum-exp are computed";
  }
  return success();
}

} // namespace

FailureOr<SpecOps> llmopt::attn::specOps(func::FuncOp function) {
  if (!function.getBody().hasOneBlock())
    return FailureOr<SpecOps>(function.emitOpError()
                              << "has " << function.getBody().getBlocks().size()
                              << " blocks; a spec function has one");
  SpecOps ops;
  if (failed(collect(function, ops)) || failed(checkTogether(ops)) || failed(checkOperands(ops)) ||
      failed(checkReturn(function, ops)))
    return failure();
  return ops;
}
