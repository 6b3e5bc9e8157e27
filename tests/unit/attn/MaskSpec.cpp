#include "tests/unit/attn/MaskSpec.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace llmopt::attn;
using namespace llmopt::attn::test;

static std::string moduleText(const MaskSpec &spec) {
  std::string parameters, names, types, regions;
  for (size_t i = 0; i < spec.args.size(); ++i) {
    std::string name = "%a" + std::to_string(i);
    parameters += ", " + name + ": " + spec.args[i].type;
    names += (i ? ", " : "") + name;
    types += (i ? ", " : "") + spec.args[i].type;
  }
  for (const std::string &body : spec.regions)
    regions += " where {\n^bb0(%b: index, %h: index, %i: index, %j: index):\n" + body + "}\n";
  std::string args = spec.args.empty() ? "" : " args(" + names + " : " + types + ")";
  return "func.func @f(%q: tensor<?x?x4x8xf32>, %u: i32" + parameters +
         ") -> tensor<?x?x4x8xf32> {\n"
         "%o = attn.attention %q, %q, %q" +
         args + " mask(" + spec.text + ")" + regions +
         " : tensor<?x?x4x8xf32>, tensor<?x?x4x8xf32>, tensor<?x?x4x8xf32>"
         " -> tensor<?x?x4x8xf32>\n"
         "return %o : tensor<?x?x4x8xf32>\n}\n";
}

ParsedMask::ParsedMask(MLIRContext &context, MaskSpec given) : spec(std::move(given)) {
  module = parseSourceString<ModuleOp>(moduleText(spec), &context);
  if (!module) {
    ADD_FAILURE() << "does not parse:\n" << moduleText(spec);
    std::abort();
  }
  module->walk([&](AttentionOp found) { op = found; });
  mask = op.getMaskInterface();
}

int64_t ParsedMask::numberOf(const NumberUse &use, int head) const {
  if (auto arg = dyn_cast<ArgAttr>(use.value)) {
    const std::vector<int64_t> &values = spec.args[arg.getIndex()].values;
    return values[values.size() == 1 ? 0 : head];
  }
  return use.isFloat ? 0 : cast<IntegerAttr>(use.value).getInt();
}

unsigned ParsedMask::slotOf(Attribute owner, unsigned index) const {
  for (auto [slot, use] : llvm::enumerate(AttentionOp(op).getNumbers()))
    if (use.owner == owner && use.index == index)
      return slot;
  ADD_FAILURE() << "a number that collectNumbers does not tell";
  return 0;
}

MLIRContext &llmopt::attn::test::testContext() {
  static MLIRContext context;
  static bool loaded = [] {
    context.loadDialect<AttnDialect, arith::ArithDialect, func::FuncDialect>();
    return true;
  }();
  (void)loaded;
  return context;
}
