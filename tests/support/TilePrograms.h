// Tile programs that are not attention, as every target's tests compile them.
#pragma once

#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>

namespace llmopt::test {

/// The text with each name replaced by its value wherever it stands.
inline std::string with(std::string text,
                        std::initializer_list<std::pair<const char *, std::string>> names) {
  for (auto &[name, value] : names)
    for (size_t at; (at = text.find(name)) != std::string::npos;)
      text.replace(at, std::strlen(name), value);
  return text;
}

/// Softmax of each of `n` rows of x, `stride` elements apart; each worker begins a row later.
inline std::string rowSoftmax(int64_t rows, int64_t columns) {
  const char *kText = R"(
func.func @softmax(%x: memref<?xf32>, %y: memref<?xf32>, %stride: index, %n: index,
                   %worker: index {tile.worker}) attributes {tile.kernel} {
  %off = arith.muli %worker, %stride : index
  %rows = tile.strided_rows %off, %stride, %n : tensor<ROWSx1xi64>
  %t = tile.load %x[%rows] : memref<?xf32>, tensor<ROWSx1xi64> -> tensor<ROWSxCOLSxf32>
  %mx = tile.reduce max %t : tensor<ROWSxCOLSxf32> -> tensor<ROWSx1xf32>
  %e = tile.map(%t, %mx : tensor<ROWSxCOLSxf32>, tensor<ROWSx1xf32>) {
  ^bb0(%a: f32, %m: f32, %r: i32, %c: i32):
    %d = arith.subf %a, %m : f32
    %p = math.exp %d : f32
    tile.yield %p : f32
  } -> tensor<ROWSxCOLSxf32>
  %l = tile.reduce sum %e : tensor<ROWSxCOLSxf32> -> tensor<ROWSx1xf32>
  %o = tile.map(%e, %l : tensor<ROWSxCOLSxf32>, tensor<ROWSx1xf32>) {
  ^bb0(%a: f32, %m: f32, %r: i32, %c: i32):
    %d = arith.divf %a, %m : f32
    tile.yield %d : f32
  } -> tensor<ROWSxCOLSxf32>
  tile.store %o, %y[%rows] : tensor<ROWSxCOLSxf32>, memref<?xf32>, tensor<ROWSx1xi64>
  return
})";
  return with(kText, {{"ROWS", std::to_string(rows)}, {"COLS", std::to_string(columns)}});
}

/// How `matmul` reads B: as K x N, as N x K, and as K x N across its transpose (column stride).
enum class MatmulLoad { Plain, Transposed, Strided };
constexpr MatmulLoad kMatmulLoads[] = {MatmulLoad::Plain, MatmulLoad::Transposed,
                                       MatmulLoad::Strided};

/// Y (M x N, f32) = relu(X * W + bias + 0.5) where columns are below `limit`; X and W of `type`.
inline std::string matmul(int64_t m, int64_t n, int64_t k, const char *type, MatmulLoad load) {
  const char *kText = R"(
func.func @matmul(%x: memref<?xTYPE>, %w: memref<?xTYPE>, %bias: memref<?xf32>, %y: memref<?xf32>,
                  %limit: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = arith.constant ROWS : index
  %k = arith.constant DEPTH : index
  %n = arith.constant COLS : index
  %xr = tile.strided_rows %c0, %k, %m : tensor<ROWSx1xi64>
  %yr = tile.strided_rows %c0, %n, %m : tensor<ROWSx1xi64>
  %br = tile.strided_rows %c0, %c0, %c1 : tensor<1x1xi64>
  %a = tile.load %x[%xr] : memref<?xTYPE>, tensor<ROWSx1xi64> -> tensor<ROWSxDEPTHxTYPE>
  LOADB
  %bt = tile.load %bias[%br] limit(%limit) : memref<?xf32>, tensor<1x1xi64> -> tensor<1xCOLSxf32>
  %z = arith.constant dense<0.5> : tensor<ROWSxCOLSxf32>
  %p = tile.mma %a, %b, %z MMA
  %o = tile.map(%p, %bt : tensor<ROWSxCOLSxf32>, tensor<1xCOLSxf32>) {
  ^bb0(%u: f32, %v: f32, %r: i32, %c: i32):
    %s = arith.addf %u, %v : f32
    %zero = arith.constant 0.0 : f32
    %q = arith.maximumf %s, %zero : f32
    tile.yield %q : f32
  } -> tensor<ROWSxCOLSxf32>
  tile.store %o, %y[%yr] limit(%limit) : tensor<ROWSxCOLSxf32>, memref<?xf32>, tensor<ROWSx1xi64>
  return
})";
  const char *kLoads[] = {
      R"(%wr = tile.strided_rows %c0, %n, %k : tensor<DEPTHx1xi64>
  %b = tile.load %w[%wr] : memref<?xTYPE>, tensor<DEPTHx1xi64> -> tensor<DEPTHxCOLSxTYPE>)",
      R"(%wr = tile.strided_rows %c0, %k, %n : tensor<COLSx1xi64>
  %b = tile.load %w[%wr] : memref<?xTYPE>, tensor<COLSx1xi64> -> tensor<COLSxDEPTHxTYPE>)",
      R"(%wr = tile.strided_rows %c0, %c1, %k : tensor<DEPTHx1xi64>
  %b = tile.load %w[%wr] cols(%c0) stride(%k) limit(%n) : memref<?xTYPE>, tensor<DEPTHx1xi64> -> tensor<DEPTHxCOLSxTYPE>)"};
  std::string product = load == MatmulLoad::Transposed
                            ? "transpose_b : tensor<ROWSxDEPTHxTYPE>, tensor<COLSxDEPTHxTYPE>, "
                              "tensor<ROWSxCOLSxf32>"
                            : ": tensor<ROWSxDEPTHxTYPE>, tensor<DEPTHxCOLSxTYPE>, "
                              "tensor<ROWSxCOLSxf32>";
  return with(kText, {{"LOADB", kLoads[static_cast<size_t>(load)]},
                      {"MMA", product},
                      {"TYPE", type},
                      {"ROWS", std::to_string(m)},
                      {"DEPTH", std::to_string(k)},
                      {"COLS", std::to_string(n)}});
}

} // namespace llmopt::test
