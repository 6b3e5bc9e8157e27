#include "tools/llm-opt/SimNumber.h"

#include "runtime/base/Half.h"
#include "runtime/base/Json.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace llmopt::cli {

using nlohmann::json;
using runtime::invalidArgument;
using runtime::NpyType;
using runtime::Status;

namespace {

template <typename T> void append(std::vector<uint8_t> &bytes, T value) {
  size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(&bytes[at], &value, sizeof(T));
}

/// The value if it is a whole number of 64 bits with sign.
std::optional<int64_t> integerOf(const json &value) {
  if (value.is_number_unsigned()) {
    uint64_t number = value.get<uint64_t>();
    return number <= uint64_t(std::numeric_limits<int64_t>::max()) ? std::optional(int64_t(number))
                                                                   : std::nullopt;
  }
  if (value.is_number_integer())
    return value.get<int64_t>();
  if (!value.is_number())
    return std::nullopt;
  double number = value.get<double>();
  if (number != std::trunc(number) || std::fabs(number) >= 0x1p63)
    return std::nullopt;
  return static_cast<int64_t>(number);
}

template <typename T>
Status appendInteger(std::vector<uint8_t> &bytes, NpyType type, const json &value,
                     T most = std::numeric_limits<T>::max()) {
  constexpr int64_t kLeast = std::numeric_limits<T>::min();
  std::optional<int64_t> number = integerOf(value);
  if (!number || *number < kLeast || *number > int64_t{most})
    return invalidArgument("{} is no {}; integers from {} to {} are allowed",
                           runtime::shortJson(value), toString(type), kLeast, int64_t{most});
  append(bytes, static_cast<T>(*number));
  return {};
}

Status appendFloat(std::vector<uint8_t> &bytes, NpyType type, const json &value) {
  constexpr double kMostF16 = 65504, kMostBf16 = 0x1.fep127;
  double most = type == NpyType::F16    ? kMostF16
                : type == NpyType::BF16 ? kMostBf16
                : type == NpyType::F32  ? double{std::numeric_limits<float>::max()}
                                        : std::numeric_limits<double>::max();
  double number = value.get<double>();
  if (std::fabs(number) > most)
    return invalidArgument("{} is no {}; numbers from {} to {} are allowed",
                           runtime::shortJson(value), toString(type), -most, most);
  bytes.resize(bytes.size() + runtime::bytesOf(type));
  storeConverted(&bytes[bytes.size() - runtime::bytesOf(type)], type, number);
  return {};
}

} // namespace

std::optional<NpyType> typeOf(const std::string &name) {
  for (NpyType type : {NpyType::F16, NpyType::F32, NpyType::F64, NpyType::BF16, NpyType::I8,
                       NpyType::I32, NpyType::I64, NpyType::U8, NpyType::U32, NpyType::Bool})
    if (toString(type) == name)
      return type;
  return std::nullopt;
}

runtime::StatusOr<uint64_t> readCount(const json &value, const char *key, uint64_t least,
                                      uint64_t most) {
  std::optional<int64_t> number = integerOf(value);
  if (!number || *number < 0 || uint64_t(*number) < least || uint64_t(*number) > most)
    return invalidArgument("'{}' is {}; an integer from {} to {} is wanted", key,
                           runtime::shortJson(value), least, most);
  return uint64_t(*number);
}

Status appendNumber(std::vector<uint8_t> &bytes, NpyType type, const json &value) {
  if (!value.is_number())
    return invalidArgument("{} is no number", runtime::shortJson(value));
  switch (type) {
  case NpyType::F16:
  case NpyType::BF16:
  case NpyType::F32:
  case NpyType::F64:
    return appendFloat(bytes, type, value);
  case NpyType::I8:
    return appendInteger<int8_t>(bytes, type, value);
  case NpyType::U8:
    return appendInteger<uint8_t>(bytes, type, value);
  case NpyType::Bool:
    return appendInteger<uint8_t>(bytes, type, value, 1);
  case NpyType::I32:
    return appendInteger<int32_t>(bytes, type, value);
  case NpyType::U32:
    return appendInteger<uint32_t>(bytes, type, value);
  case NpyType::I64:
    return appendInteger<int64_t>(bytes, type, value);
  }
  return {};
}

void storeConverted(uint8_t *to, NpyType type, double value) {
  auto store = [&](auto element) { std::memcpy(to, &element, sizeof(element)); };
  switch (type) {
  case NpyType::F16:
    return store(runtime::f32ToF16(static_cast<float>(value)));
  case NpyType::BF16:
    return store(runtime::f32ToBf16(static_cast<float>(value)));
  case NpyType::F32:
    return store(static_cast<float>(value));
  case NpyType::F64:
    return store(value);
  case NpyType::I8:
    return store(static_cast<int8_t>(static_cast<int64_t>(value)));
  case NpyType::U8:
  case NpyType::Bool:
    return store(static_cast<uint8_t>(static_cast<int64_t>(value)));
  case NpyType::I32:
    return store(static_cast<int32_t>(static_cast<int64_t>(value)));
  case NpyType::U32:
    return store(static_cast<uint32_t>(static_cast<int64_t>(value)));
  case NpyType::I64:
    return store(static_cast<int64_t>(value));
  }
}

} // namespace llmopt::cli
