#include "Support.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"

namespace llmopt::reference {

mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text) {
  static mlir::MLIRContext context;
  context.loadDialect<attn::AttnDialect, mlir::arith::ArithDialect, mlir::func::FuncDialect,
                      mlir::math::MathDialect>();
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  EXPECT_TRUE(module) << text;
  return module;
}

Bound::Bound(const std::string &text) : module(parse(text)) {
  if (!module)
    return;
  module->walk([&](attn::AttentionOp op) { attention = op; });
  module->walk([&](attn::MergeOp op) { merge = op; });
  module->walk([&](attn::AppendOp op) { append = op; });
}

Array &Bound::bind(const std::string &name, ElementType type, llvm::ArrayRef<int64_t> shape,
                   std::vector<double> values) {
  int64_t count = 1;
  Array array{type, llvm::SmallVector<int64_t, 5>(shape), {}, nullptr};
  array.strides.resize(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    array.strides[d] = count;
    count *= shape[d];
  }
  std::vector<uint8_t> &bytes = storage.emplace_back(size_t(count) * sizeOf(type) + 1);
  array.data = bytes.data();
  for (int64_t i = 0; i < count; ++i)
    store(array.data, type, i, values[size_t(i) % values.size()]);
  return inputs.arrays[name] = array;
}

RowResult Bound::row(int64_t batch, int64_t query, int64_t head, Mode mode) {
  Row row{batch, query, head};
  llvm::Expected<std::vector<RowResult>> results =
      merge ? evaluate(merge, inputs, row, mode) : evaluate(attention, inputs, row, mode);
  if (results)
    return results->front();
  ADD_FAILURE() << llvm::toString(results.takeError());
  return {};
}

std::string Bound::rowError(int64_t batch, int64_t query, int64_t head) {
  llvm::Expected<std::vector<RowResult>> results =
      evaluate(attention, inputs, Row{batch, query, head});
  return results ? "" : llvm::toString(results.takeError());
}

Bound weightsOf(const std::string &clauses, int64_t queries, const std::vector<double> &scores,
                int64_t heads, const std::string &args, const std::string &parameters) {
  int64_t keys = int64_t(scores.size());
  auto tensor = [](int64_t length, int64_t count, int64_t dim) {
    return "tensor<1x" + std::to_string(length) + "x" + std::to_string(count) + "x" +
           std::to_string(dim) + "xf32>";
  };
  std::string q = tensor(queries, heads, 1), k = tensor(keys, 1, 1), v = tensor(keys, 1, keys);
  std::string o = tensor(queries, heads, keys);
  Bound bound("func.func @f(%q: " + q + ", %k: " + k + ", %v: " + v + parameters + ") -> " + o +
              " {\n  %o = attn.attention %q, %k, %v " + args + " " + clauses + " scale(1.0) : " +
              q + ", " + k + ", " + v + " -> " + o + "\n  return %o : " + o + "\n}");
  bound.bind("q", ElementType::F32, {1, queries, heads, 1}, {1});
  bound.bind("k", ElementType::F32, {1, keys, 1, 1}, scores);
  bound.bindFrom("v", ElementType::F32, {1, keys, 1, keys},
                 [&](int64_t i) { return i / keys == i % keys; });
  return bound;
}

std::string seenBy(Bound &bound, int64_t query, int64_t head) {
  std::string text;
  for (double weight : bound.row(0, query, head).output)
    text += weight != 0 ? '#' : '.';
  return text;
}

} // namespace llmopt::reference
