// Loops and branches. What they carry lives in variables that outlive them.
#include "codegen/cuda/emit/Printer.h"
#include "codegen/cuda/passes/LoopAttrs.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cuda;

namespace {

bool isCarried(Value value) { return !isa<tile::TokenType>(value.getType()); }

/// A loop over a tile, some rows a turn. Where these lie is made anew in each turn: addresses that
/// move along from turn to turn would take registers, and NVRTC time to find them.
bool isOverRows(scf::ForOp loop) {
  std::optional<int64_t> step = getConstantIntValue(loop.getStep());
  return loop.getInitArgs().empty() && step && *step > 1 &&
         getConstantIntValue(loop.getLowerBound()) == 0 &&
         getConstantIntValue(loop.getUpperBound());
}

} // namespace

void Printer::carry(ValueRange targets, ValueRange sources, Operation *at) {
  for (auto [target, source] : llvm::zip(targets, sources)) {
    if (!isCarried(target))
      continue;
    if (tile::isTile(target.getType())) {
      if (auto constant = bound.find(source); constant != bound.end()) {
        declare(target, constant->second.text);
        continue;
      }
      if (!diesAt(source, at)) {
        copyTile(declare(target), source);
        continue;
      }
      takeOver(target, source, at);
      continue;
    }
    std::string variable = name(target, "state");
    w.line(typeName(target.getType()) + " " + variable + " = " + use(source).text + ";");
    bound[target] = {variable};
  }
}

void Printer::assign(ValueRange targets, ValueRange sources) {
  // A source that names another target is saved first.
  SmallVector<std::pair<std::string, std::string>> scalars;
  auto names_ = [](StringRef text, StringRef word) { return text.contains(word); };
  for (auto [target, source] : llvm::zip(targets, sources)) {
    if (!isCarried(target))
      continue;
    if (tile::isTile(target.getType())) {
      std::string to = variables[target];
      if (!bound.count(source) && variables[source] == to)
        continue;
      bool clash = !bound.count(source) && llvm::any_of(targets, [&](Value other) {
        return other != target && tile::isTile(other.getType()) &&
               variables[other] == variables[source];
      });
      if (clash) {
        std::string saved = names.fresh(variables[source]);
        int64_t count = registersOf(source);
        w.line(elementName(source) + " " + saved +
               (count > 1 ? "[" + std::to_string(count) + "]" : "") + ";");
        copyTile(saved, source);
        variables[source] = saved;
      }
      continue;
    }
    std::string from = use(source).text, to = use(target).text;
    if (from != to)
      scalars.push_back({to, from});
  }
  for (auto [target, source] : llvm::zip(targets, sources))
    if (tile::isTile(target.getType()))
      copyTile(variables[target], source);
  for (auto &[to, from] : scalars) {
    bool clash = llvm::any_of(scalars, [&, &to = to, &from = from](const auto &other) {
      return other.first != to && names_(from, other.first);
    });
    if (!clash)
      continue;
    std::string saved = names.fresh("next");
    w.line("const auto " + saved + " = " + from + ";");
    from = saved;
  }
  for (auto &[to, from] : scalars)
    w.line(to + " = " + from + ";");
}

void Printer::alias(ValueRange targets, ValueRange sources) {
  for (auto [target, source] : llvm::zip(targets, sources)) {
    if (!isCarried(target))
      continue;
    if (tile::isTile(target.getType()) && variables.count(source)) {
      std::string variable = variables[source];
      variables[target] = variable;
    } else {
      bound[target] = use(source);
    }
  }
}

/// What a turn makes for the next one after the last use of what it got takes that one's variable.
void Printer::changeInPlace(scf::ForOp loop) {
  Block *body = loop.getBody();
  for (auto [argument, made] :
       llvm::zip(loop.getRegionIterArgs(), body->getTerminator()->getOperands())) {
    auto map = made.getDefiningOp<tile::MapOp>();
    if (!map || map->getBlock() != body || !variables.count(argument) ||
        argument.getType() != made.getType())
      continue;
    bool last = llvm::all_of(argument.getUsers(), [&](Operation *user) {
      Operation *ancestor = body->findAncestorOpInBlock(*user);
      return ancestor && ancestor->isBeforeInBlock(map);
    });
    if (last)
      places[made] = variables.lookup(argument);
  }
}

LogicalResult Printer::print(scf::ForOp loop) {
  carry(loop.getRegionIterArgs(), loop.getInitArgs(), loop);
  Expression lower = use(loop.getLowerBound()), upper = use(loop.getUpperBound());
  std::string index = name(loop.getInductionVar(), "n");
  bound[loop.getInductionVar()] = {index};
  std::string type = typeName(loop.getInductionVar().getType());
  std::string step = use(loop.getStep()).text;
  bool isDoWhile = loop->hasAttr(kAtLeastOnceAttr);
  if (loop->hasAttr(tile::kOnceAttr)) {
    w.open("if (" + binary(lower, "<", upper, Precedence::Relation).text + ")");
    w.line("const " + type + " " + index + " = " + lower.text + ";");
  } else if (isOverRows(loop)) {
    std::string turn = names.fresh("turn");
    w.line("#pragma unroll 1");
    w.open("for (u32 " + turn + " = 0; " + turn + " < " + upper.in(Precedence::Sum) + "; " + turn +
           " += " + step + ")");
    w.line("const " + type + " " + index + " = " + type + "(hidden(" + turn + "));");
  } else if (isDoWhile) {
    w.line(type + " " + index + " = " + lower.text + ";");
    w.line("#pragma unroll 1");
    w.open("do");
  } else {
    w.line("#pragma unroll 1");
    w.open("for (" + type + " " + index + " = " + lower.text + "; " + index + " < " +
           upper.in(Precedence::Sum) + "; " + (step == "1" ? "++" + index : index + " += " + step) +
           ")");
  }
  changeInPlace(loop);
  if (failed(block(*loop.getBody())))
    return failure();
  assign(loop.getRegionIterArgs(), loop.getBody()->getTerminator()->getOperands());
  std::string next = step == "1" ? "++" + index : "(" + index + " += " + step + ")";
  w.close(isDoWhile ? " while (" + next + " < " + upper.in(Precedence::Sum) + ");" : "");
  alias(loop.getResults(), loop.getRegionIterArgs());
  return success();
}

LogicalResult Printer::print(scf::WhileOp loop) {
  carry(loop.getBeforeArguments(), loop.getInits(), loop);
  scf::ConditionOp condition = loop.getConditionOp();
  Lines before = std::move(w.lines);
  w.lines = Lines();
  ++w.depth;
  if (failed(block(*loop.getBeforeBody())))
    return failure();
  --w.depth;
  Lines test = std::move(w.lines);
  w.lines = std::move(before);
  w.place = loop.getLoc();
  std::string more = use(condition.getCondition()).text;
  w.line("#pragma unroll 1");
  if (test.text.empty()) {
    w.open("while (" + more + ")");
  } else {
    w.open("for (;;)");
    w.lines.append(test);
    w.line("if (!(" + more + "))");
    w.line("  break;");
  }
  alias(loop.getAfterArguments(), condition.getArgs());
  if (failed(block(*loop.getAfterBody())))
    return failure();
  assign(loop.getBeforeArguments(), loop.getYieldOp().getOperands());
  w.close();
  alias(loop.getResults(), condition.getArgs());
  return success();
}

/// A tile that the else side leaves as it is stays where it lies, and the then side changes it
/// there: `if (partial) s[i] = ...`. False where others use the tile later.
bool Printer::changesInPlace(scf::IfOp branch, unsigned result) {
  Value kept = branch.elseYield().getOperand(result);
  Value changed = branch.thenYield().getOperand(result);
  auto map = changed.getDefiningOp<tile::MapOp>();
  if (!map || map->getBlock() != branch.thenBlock() || !variables.count(kept) ||
      kept.getType() != changed.getType() || kept.getParentBlock() != branch->getBlock())
    return false;
  bool last = llvm::all_of(kept.getUsers(), [&](Operation *user) {
    Operation *ancestor = branch->getBlock()->findAncestorOpInBlock(*user);
    return user == map || user == branch.elseYield() ||
           (ancestor && ancestor != branch && ancestor->isBeforeInBlock(branch));
  });
  if (!last || llvm::count(map.getInputs(), kept) != 1)
    return false;
  std::string variable = variables.lookup(kept);
  variables[branch.getResult(result)] = variable;
  places[changed] = variable;
  return true;
}

/// `if (early) { what the loop carries stays } else { the rest of the turn }` at a loop's end is
/// `if (early) continue;`.
bool Printer::skipsTurn(scf::IfOp branch) {
  auto loop = dyn_cast<scf::ForOp>(branch->getParentOp());
  Operation *yield = branch->getNextNode();
  if (!loop || !branch.elseBlock() || !isa<scf::YieldOp>(yield) ||
      !isa<scf::YieldOp>(branch.thenBlock()->front()))
    return false;
  for (auto [i, result] : llvm::enumerate(branch.getResults()))
    if (branch.thenYield().getOperand(i) != loop.getRegionIterArgs()[i] ||
        yield->getOperand(i) != result)
      return false;
  // Nothing else may be carried, unless it has no text or is where it belongs already.
  size_t results = branch.getNumResults();
  auto rest = llvm::zip(yield->getOperands(), loop.getRegionIterArgs());
  return llvm::all_of(llvm::drop_begin(rest, results), [&](auto pair) {
    auto [source, target] = pair;
    return !isCarried(source) ||
           (variables.count(source) && variables.lookup(source) == variables.lookup(target));
  });
}

LogicalResult Printer::print(scf::IfOp branch) {
  if (skipsTurn(branch)) {
    w.line("if (" + use(branch.getCondition()).text + ")");
    w.line("  continue;");
    if (failed(block(*branch.elseBlock())))
      return failure();
    alias(branch.getResults(), branch.elseYield().getOperands());
    return success();
  }
  for (auto [i, result] : llvm::enumerate(branch.getResults())) {
    if (tile::isTile(result.getType())) {
      if (!changesInPlace(branch, i))
        declare(result);
      continue;
    }
    std::string variable = name(result, "chosen");
    w.line(typeName(result.getType()) + " " + variable + ";");
    bound[result] = {variable};
  }
  w.open("if (" + use(branch.getCondition()).text + ")");
  if (failed(block(*branch.thenBlock())))
    return failure();
  assign(branch.getResults(), branch.thenYield().getOperands());
  if (branch.elseBlock() &&
      (branch.getNumResults() || branch.elseBlock()->getOperations().size() > 1)) {
    w.otherwise();
    size_t lines = w.lines.text.size();
    if (failed(block(*branch.elseBlock())))
      return failure();
    assign(branch.getResults(), branch.elseYield().getOperands());
    if (w.lines.text.size() == lines)
      w.lines.text.pop_back(), w.lines.places.pop_back();
  }
  w.close();
  return success();
}
