#include "dialect/reference/Formats.h"

#include "mlir/IR/BuiltinTypes.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace llmopt::reference {

namespace {

/// Significant bits (the implicit one counted), exponent of the smallest normal number
/// and of the largest one.
struct FloatFormat {
  int precision, minExponent, maxExponent;
};

FloatFormat formatOf(ElementType type) {
  switch (type) {
  case ElementType::F16:
    return {11, -14, 15};
  case ElementType::BF16:
    return {8, -126, 127};
  default:
    return {24, -126, 127};
  }
}

template <typename T> T read(const void *data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char *>(data) + index * int64_t(sizeof(T)), sizeof(T));
  return value;
}

template <typename T> void write(void *data, int64_t index, T value) {
  std::memcpy(static_cast<char *>(data) + index * int64_t(sizeof(T)), &value, sizeof(T));
}

double fromHalf(uint16_t bits) {
  int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double magnitude;
  if (exponent == 31)
    magnitude = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    magnitude = std::ldexp(fraction, -24);
  else
    magnitude = std::ldexp(fraction + 1024, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

/// `value` is a value of the format already.
uint16_t toHalf(double value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value))
    return sign | 0x7e00;
  double magnitude = std::fabs(value);
  if (std::isinf(value))
    return sign | 0x7c00;
  if (magnitude < std::ldexp(1.0, -14))
    return sign | uint16_t(std::ldexp(magnitude, 24));
  int exponent = std::ilogb(magnitude);
  return sign | uint16_t((exponent + 15) << 10) | uint16_t(std::ldexp(magnitude, 10 - exponent) - 1024);
}

float fromBrain(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

uint16_t toBrain(double value) {
  float narrow = float(value);
  uint32_t wide;
  std::memcpy(&wide, &narrow, sizeof(wide));
  return uint16_t(wide >> 16) | (std::isnan(value) ? 0x40 : 0);
}

} // namespace

size_t sizeOf(ElementType type) {
  switch (type) {
  case ElementType::F32:
  case ElementType::I32:
    return 4;
  case ElementType::F16:
  case ElementType::BF16:
    return 2;
  case ElementType::I64:
    return 8;
  case ElementType::I8:
  case ElementType::Bool:
    return 1;
  }
  return 0;
}

const char *nameOf(ElementType type) {
  static const char *const names[] = {"f32", "f16", "bf16", "i8", "i32", "i64", "bool"};
  return names[size_t(type)];
}

std::optional<ElementType> elementTypeOf(mlir::Type type) {
  if (type.isF32())
    return ElementType::F32;
  if (type.isF16())
    return ElementType::F16;
  if (type.isBF16())
    return ElementType::BF16;
  if (type.isInteger(1))
    return ElementType::Bool;
  if (type.isInteger(8))
    return ElementType::I8;
  if (type.isInteger(32))
    return ElementType::I32;
  if (type.isInteger(64) || type.isIndex())
    return ElementType::I64;
  return std::nullopt;
}

bool isFloat(ElementType type) {
  return type == ElementType::F32 || type == ElementType::F16 || type == ElementType::BF16;
}

double load(const void *data, ElementType type, int64_t index) {
  switch (type) {
  case ElementType::F32:
    return read<float>(data, index);
  case ElementType::F16:
    return fromHalf(read<uint16_t>(data, index));
  case ElementType::BF16:
    return fromBrain(read<uint16_t>(data, index));
  case ElementType::I8:
    return read<int8_t>(data, index);
  case ElementType::I32:
    return read<int32_t>(data, index);
  case ElementType::I64:
    return double(read<int64_t>(data, index));
  case ElementType::Bool:
    return read<uint8_t>(data, index) != 0;
  }
  return 0;
}

void store(void *data, ElementType type, int64_t index, double value) {
  switch (type) {
  case ElementType::F32:
    return write(data, index, float(value));
  case ElementType::F16:
    return write(data, index, toHalf(roundTo(type, value)));
  case ElementType::BF16:
    return write(data, index, toBrain(roundTo(type, value)));
  case ElementType::I8:
    return write(data, index, int8_t(value));
  case ElementType::I32:
    return write(data, index, int32_t(value));
  case ElementType::I64:
    return write(data, index, int64_t(value));
  case ElementType::Bool:
    return write(data, index, uint8_t(value != 0));
  }
}

double roundTo(ElementType type, double value) {
  if (type == ElementType::F32)
    return float(value);
  if (!std::isfinite(value) || value == 0)
    return value;
  double unit = ulp(type, value);
  double rounded = std::nearbyint(value / unit) * unit;
  if (std::fabs(rounded) >= std::ldexp(1.0, formatOf(type).maxExponent + 1))
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  return rounded;
}

double ulp(ElementType type, double magnitude) {
  FloatFormat format = formatOf(type);
  int exponent = format.minExponent;
  if (magnitude != 0 && std::isfinite(magnitude))
    exponent = std::max(exponent, std::ilogb(magnitude));
  return std::ldexp(1.0, exponent - format.precision + 1);
}

double unitRoundoff(ElementType type) { return std::ldexp(1.0, -formatOf(type).precision); }

} // namespace llmopt::reference
