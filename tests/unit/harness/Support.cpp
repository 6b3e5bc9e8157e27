#include "Support.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"

#include <deque>

namespace llmopt::harness {

namespace {

mlir::MLIRContext &context() {
  static mlir::MLIRContext context;
  context.loadDialect<attn::AttnDialect, mlir::arith::ArithDialect, mlir::func::FuncDialect,
                      mlir::math::MathDialect>();
  return context;
}

} // namespace

Spec parse(const std::string &text) {
  context(); // made first, so that it goes after the modules
  static std::deque<mlir::OwningOpRef<mlir::ModuleOp>> modules;
  modules.push_back(mlir::parseSourceString<mlir::ModuleOp>(text, &context()));
  if (modules.back()) {
    llvm::Expected<Spec> spec = findSpec(*modules.back());
    if (spec)
      return *spec;
    ADD_FAILURE() << llvm::toString(spec.takeError());
  }
  ADD_FAILURE() << text;
  return {};
}

std::string parseError(const std::string &text) {
  std::string message;
  mlir::ScopedDiagnosticHandler handler(
      &context(), [&](mlir::Diagnostic &diagnostic) { message += diagnostic.str(); });
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(text, &context());
  return module ? "" : message + "\n" + text;
}

static void writeRow(Call &call, llvm::ArrayRef<int64_t> index, const reference::RowResult &row) {
  llvm::SmallVector<int64_t, 5> at(index);
  at.push_back(0);
  for (size_t c = 0; c < row.output.size(); ++c) {
    at.back() = int64_t(c);
    call.find("o")->set(at, row.output[c]);
  }
  if (HostArray *lse = call.find("lse"))
    lse->set(index, row.lse);
}

llvm::Error runOracle(const Spec &spec, Call &call) {
  reference::Inputs inputs = call.inputs();
  for (HostArray &array : call.arrays) // the live arrays, which an append writes
    if (array.access != HostArray::Access::Out)
      inputs.arrays[array.name] = array.view();
  if (spec.append)
    if (llvm::Error failure = reference::execute(spec.append, inputs))
      return failure;
  if (spec.merge) {
    const HostArray &output = *call.find("o");
    for (int64_t t = 0; t < output.shape[0]; ++t)
      for (int64_t h = 0; h < output.shape[1]; ++h) {
        auto rows = reference::evaluate(spec.merge, inputs, reference::Row{t, 0, h});
        if (!rows)
          return rows.takeError();
        writeRow(call, {t, h}, rows->front());
      }
  }
  if (!spec.attention)
    return llvm::Error::success();
  auto lengths = reference::lengthsOf(spec.attention, inputs);
  if (!lengths)
    return lengths.takeError();
  std::vector<reference::Row> rows = reference::chooseRows(*lengths, {}, 1, int64_t(1) << 40).rows;
  auto results = reference::evaluate(spec.attention, inputs, rows);
  auto places = reference::rowIndices(spec.attention, inputs, rows);
  if (!results || !places)
    return llvm::joinErrors(results.takeError(), places.takeError());
  for (size_t i = 0; i < rows.size(); ++i)
    writeRow(call, (*places)[i], (*results)[i]);
  return llvm::Error::success();
}

} // namespace llmopt::harness
