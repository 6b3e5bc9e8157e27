#include "tools/import/Tensor.h"

#include "runtime/base/Half.h"

#include <cstring>

using namespace llmopt::importer;

size_t llmopt::importer::sizeOf(DataType type) {
  switch (type) {
  case DataType::F64:
  case DataType::I64:
    return 8;
  case DataType::F32:
  case DataType::I32:
    return 4;
  case DataType::F16:
  case DataType::BF16:
    return 2;
  case DataType::Bool:
    return 1;
  }
  return 0;
}

std::string_view llmopt::importer::nameOf(DataType type) {
  switch (type) {
  case DataType::F32:
    return "f32";
  case DataType::F16:
    return "f16";
  case DataType::BF16:
    return "bf16";
  case DataType::F64:
    return "f64";
  case DataType::Bool:
    return "bool";
  case DataType::I32:
    return "i32";
  case DataType::I64:
    return "i64";
  }
  return "?";
}

bool llmopt::importer::isAttentionType(DataType type) {
  return type == DataType::F32 || type == DataType::F16 || type == DataType::BF16;
}

template <typename T> static T read(const void *data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char *>(data) + index * int64_t(sizeof(T)), sizeof(T));
  return value;
}

double llmopt::importer::loadElement(const void *data, DataType type, int64_t index) {
  switch (type) {
  case DataType::F32:
    return read<float>(data, index);
  case DataType::F16:
    return runtime::f16ToF32(read<uint16_t>(data, index));
  case DataType::BF16:
    return runtime::bf16ToF32(read<uint16_t>(data, index));
  case DataType::F64:
    return read<double>(data, index);
  case DataType::Bool:
    return read<uint8_t>(data, index) != 0;
  case DataType::I32:
    return read<int32_t>(data, index);
  case DataType::I64:
    return double(read<int64_t>(data, index));
  }
  return 0;
}

int64_t Tensor::elements() const {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= dim;
  return count;
}
