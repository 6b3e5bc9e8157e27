#include "tools/llm-opt/SimTensorMap.h"

#include "runtime/base/Json.h"
#include "tools/llm-opt/SimNumber.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace llmopt::cli {

using nlohmann::json;
using runtime::invalidArgument;
using runtime::NpyType;
using runtime::Status;

namespace {

runtime::StatusOr<sim::TensorType> tensorTypeOf(NpyType type) {
  using sim::TensorType;
  switch (type) {
  case NpyType::F16:
    return TensorType::F16;
  case NpyType::BF16:
    return TensorType::BF16;
  case NpyType::F32:
    return TensorType::F32;
  case NpyType::F64:
    return TensorType::F64;
  case NpyType::I8:
  case NpyType::U8:
  case NpyType::Bool:
    return TensorType::U8;
  case NpyType::I32:
    return TensorType::S32;
  case NpyType::U32:
    return TensorType::U32;
  case NpyType::I64:
    return TensorType::S64;
  }
  return invalidArgument("no tensor map has elements of this type");
}

/// Numbers of an entry, one for each dimension (less `fewer`), if it is there.
template <typename T, size_t N>
Status readNumbers(const json &entry, const char *key, size_t count, std::array<T, N> &into) {
  if (!entry.contains(key))
    return {};
  const json &list = entry[key];
  if (!list.is_array() || list.size() != count)
    return invalidArgument("'{}' is {}; {} numbers are wanted, the innermost dimension first", key,
                           runtime::shortJson(list), count);
  for (size_t i = 0; i < count; ++i) {
    runtime::StatusOr<uint64_t> number = readCount(list[i], key, 0, std::numeric_limits<T>::max());
    if (!number)
      return number.status();
    into[i] = static_cast<T>(*number);
  }
  return {};
}

} // namespace

runtime::StatusOr<sim::EncodedTensorMap> readTensorMap(const json &entry,
                                                       const runtime::NpyArray &array) {
  for (const auto &[key, value] : entry.items())
    if (constexpr std::string_view kKnown[] = {"npy", "name", "type", "shape", "fill", "output",
                                               "write", "dims", "strides", "box", "element_strides",
                                               "swizzle", "outside"};
        std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown))
      return invalidArgument("'tensormap' has an entry '{}', which is not known", key);
  sim::TensorMap map;
  runtime::StatusOr<sim::TensorType> type = tensorTypeOf(array.type);
  if (!type)
    return type.status();
  map.type = *type;
  map.base = reinterpret_cast<uint64_t>(array.bytes.data());
  size_t rank = entry.contains("dims") ? entry["dims"].size() : array.shape.size();
  if (rank < 1 || rank > 5)
    return invalidArgument("a tensor map of {} dimensions; 1 to 5 are allowed: give 'dims'", rank);
  map.rank = static_cast<uint32_t>(rank);
  for (size_t i = 0; i < rank && !entry.contains("dims"); ++i)
    map.dims[i] = static_cast<uint64_t>(array.shape[rank - 1 - i]);
  LLMOPT_RETURN_IF_ERROR(readNumbers(entry, "dims", rank, map.dims));
  uint64_t stride = sizeOf(map.type);
  for (size_t i = 1; i < rank; ++i)
    map.strides[i - 1] = stride *= map.dims[i - 1];
  LLMOPT_RETURN_IF_ERROR(readNumbers(entry, "strides", rank - 1, map.strides));
  if (!entry.contains("box"))
    return invalidArgument("'tensormap' has no 'box'");
  LLMOPT_RETURN_IF_ERROR(readNumbers(entry, "box", rank, map.box));
  LLMOPT_RETURN_IF_ERROR(readNumbers(entry, "element_strides", rank, map.elementStrides));
  json swizzle = entry.value("swizzle", json(0)), outside = entry.value("outside", json("zero"));
  bool known = false;
  for (sim::TensorSwizzle s : {sim::TensorSwizzle::None, sim::TensorSwizzle::B32,
                               sim::TensorSwizzle::B64, sim::TensorSwizzle::B128})
    if (swizzle == spanOf(s)) {
      map.swizzle = s;
      known = true;
    }
  if (!known)
    return invalidArgument("'swizzle' is {}; 0, 32, 64 and 128 are allowed",
                           runtime::shortJson(swizzle));
  if (outside != "zero" && outside != "nan")
    return invalidArgument("'outside' is {}; \"zero\" and \"nan\" are allowed",
                           runtime::shortJson(outside));
  map.fill = outside == "nan" ? sim::TensorFill::Nan : sim::TensorFill::Zero;
  return encode(map);
}

} // namespace llmopt::cli
