// A dense array in memory, and its element types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llmopt::importer {

enum class DataType : uint8_t { F32, F16, BF16, F64, Bool, I32, I64 };

size_t sizeOf(DataType type);
/// "f32", "bool", ...; as in messages and, where MLIR has it under this name, in IR.
std::string_view nameOf(DataType type);
/// f32, f16 or bf16: what attention computes on.
bool isAttentionType(DataType type);

/// Element `index` of an array; every value but large integers is exact.
double loadElement(const void *data, DataType type, int64_t index);

/// Row-major; the bytes are little endian, booleans 0 or 1.
struct Tensor {
  std::string name;
  DataType type = DataType::F32;
  std::vector<int64_t> dims;
  std::vector<uint8_t> bytes;

  int64_t elements() const;
  double at(int64_t index) const { return loadElement(bytes.data(), type, index); }
};

} // namespace llmopt::importer
