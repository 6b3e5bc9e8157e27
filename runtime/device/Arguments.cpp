#include "runtime/device/Arguments.h"

#include "runtime/base/Half.h"
#include "runtime/device/Dimensions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace llmopt::runtime {

using bundle::Buffer;
using bundle::BufferRole;
using bundle::ElementType;
using bundle::Program;
using bundle::Scalar;
using bundle::ScalarType;

namespace {

bool isPlanBuffer(const Buffer &buffer) { return buffer.role >= BufferRole::ItemOffsets; }

bool isBroadcastable(BufferRole role) {
  return role == BufferRole::Bias || role == BufferRole::DenseMask;
}

/// Booleans and bytes are the same thing to a mask.
bool sameType(const Buffer &buffer, ElementType given) {
  auto isByte = [](ElementType t) { return t == ElementType::I8 || t == ElementType::Bool; };
  return buffer.type == given ||
         (buffer.role == BufferRole::DenseMask && isByte(buffer.type) && isByte(given));
}

std::string callersArrays(const Program &program) {
  std::string names;
  for (const Buffer &buffer : program.buffers)
    if (!isPlanBuffer(buffer))
      names += (names.empty() ? "" : ", ") + buffer.name;
  return names;
}

std::string scalarNames(const Program &program) {
  std::string names;
  for (const Scalar &scalar : program.scalars)
    names += (names.empty() ? "" : ", ") + scalar.name;
  return names;
}

std::string join(const std::vector<int64_t> &extents) {
  std::string text = "(";
  for (size_t i = 0; i < extents.size(); ++i)
    text += (i ? ", " : "") + (extents[i] < 0 ? "?" : std::to_string(extents[i]));
  return text + ")";
}

Status checkArray(const Buffer &buffer, const ArrayRef &array) {
  if (!sameType(buffer, array.type))
    return invalidArgument("array '{}' has element type {}; the program wants {}", buffer.name,
                           toString(array.type), toString(buffer.type));
  if (array.shape.size() != buffer.extents.size() || array.strides.size() != buffer.extents.size())
    return invalidArgument("array '{}' has {} extents and {} strides; the program wants "
                           "rank {} with shape {}",
                           buffer.name, array.shape.size(), array.strides.size(),
                           buffer.extents.size(), join(buffer.extents));
  bool empty = false;
  for (size_t dim = 0; dim < array.shape.size(); ++dim) {
    int64_t given = array.shape[dim], wanted = buffer.extents[dim];
    empty |= given == 0;
    bool fits =
        wanted < 0 ? given >= 0 : given == wanted || (given == 1 && isBroadcastable(buffer.role));
    if (!fits)
      return invalidArgument("array '{}' has shape {}; the program wants {}", buffer.name,
                             join(array.shape), join(buffer.extents));
  }
  // Kernels take a negative row offset for "no such row".
  for (size_t dim = 0; dim < array.shape.size(); ++dim)
    if (array.strides[dim] < 0 && array.shape[dim] > 1)
      return invalidArgument(
          "array '{}' has stride {} in dimension {}; 0 and more are allowed; copy "
          "the array",
          buffer.name, array.strides[dim], dim);
  if (!array.data && !empty)
    return invalidArgument("array '{}' with shape {} has a null pointer; memory is "
                           "needed",
                           buffer.name, join(array.shape));
  return {};
}

void broadcast(const Buffer &buffer, ArrayRef &array) {
  if (!isBroadcastable(buffer.role))
    return;
  for (size_t dim = 0; dim < array.shape.size(); ++dim)
    if (array.shape[dim] == 1)
      array.strides[dim] = 0;
}

double readNumber(const ArrayRef &array, int64_t index) {
  const auto *base = static_cast<const uint8_t *>(array.hostData());
  const uint8_t *at = base + index * array.strides[0] * int64_t{bytesOf(array.type)};
  uint16_t half;
  float single;
  switch (array.type) {
  case ElementType::F32:
    std::memcpy(&single, at, sizeof(single));
    return single;
  case ElementType::F16:
    std::memcpy(&half, at, sizeof(half));
    return f16ToF32(half);
  case ElementType::BF16:
    std::memcpy(&half, at, sizeof(half));
    return bf16ToF32(half);
  default:
    return static_cast<double>(readInteger(array, index));
  }
}

/// A number as an integer bound: `round` goes to the safe side. NaN reads as 0.
int64_t toBound(double value, double (*round)(double)) {
  constexpr double kLimit = 0x1p63;
  if (std::isnan(value))
    return 0;
  double rounded = round(value);
  if (rounded >= kLimit)
    return std::numeric_limits<int64_t>::max();
  if (rounded < -kLimit)
    return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(rounded);
}

double roundDown(double value) { return std::floor(value); }
double roundUp(double value) { return std::ceil(value); }

/// An integer of a head as kernels take it, in 32 bits: one beyond them is the nearest.
int64_t headInteger(const ArrayRef &array, int64_t head) {
  using Limits = std::numeric_limits<int32_t>;
  return std::clamp<int64_t>(readInteger(array, head), Limits::min(), Limits::max());
}

/// Smallest and largest value over the heads.
void addPerHead(const ArrayRef &array, int64_t &low, int64_t &high) {
  for (int64_t head = 0; head < array.shape[0]; ++head) {
    bool isInteger = array.type >= ElementType::I8;
    int64_t down =
        isInteger ? headInteger(array, head) : toBound(readNumber(array, head), roundDown);
    int64_t up = isInteger ? down : toBound(readNumber(array, head), roundUp);
    low = head == 0 ? down : std::min(low, down);
    high = head == 0 ? up : std::max(high, up);
  }
}

/// Whether a caller may give this value, whose type is right.
Status checkRange(const Scalar &scalar, double number) {
  double least = scalar.least, most = scalar.most;
  bool isInteger = scalar.type == ScalarType::I64;
  if (isInteger) { // kernels compute positions in 32 bits
    least = std::max(least, double(std::numeric_limits<int32_t>::min()));
    most = std::min(most, double(std::numeric_limits<int32_t>::max()));
  }
  if (!(number < least) && !(number > most))
    return {};
  std::string advice = number < scalar.least && !scalar.advice.empty() ? "; " + scalar.advice : "";
  if (std::isinf(most))
    return invalidArgument("scalar '{}' is {}; {} and more are allowed{}", scalar.name, number,
                           least, advice);
  return invalidArgument("scalar '{}' is {}; {} to {} are allowed{}", scalar.name,
                         isInteger ? fmt::format("{:.0f}", number) : fmt::format("{}", number),
                         least, most, advice);
}

/// The value of a call: what it gives, else the default.
StatusOr<ScalarValue> valueOf(const Scalar &scalar, const CallArguments &arguments) {
  bool wantsInteger = scalar.type == ScalarType::I64;
  auto given = arguments.scalars.find(scalar.name);
  if (given == arguments.scalars.end()) {
    if (scalar.required)
      return invalidArgument("scalar '{}' is missing; the spec has no value for it, so each call "
                             "gives one",
                             scalar.name);
    return wantsInteger ? ScalarValue(scalar.intDefault) : ScalarValue(scalar.floatDefault);
  }
  const int64_t *integer = std::get_if<int64_t>(&given->second);
  if (wantsInteger && !integer)
    return invalidArgument("scalar '{}' is {}; the program wants an integer", scalar.name,
                           std::get<double>(given->second));
  double number = integer ? static_cast<double>(*integer) : std::get<double>(given->second);
  LLMOPT_RETURN_IF_ERROR(checkRange(scalar, number));
  return wantsInteger ? ScalarValue(*integer) : ScalarValue(number);
}

Status resolveOne(const Scalar &scalar, const CallArguments &arguments, const ArrayRef *perHead,
                  ScalarTable &table) {
  StatusOr<ScalarValue> value = valueOf(scalar, arguments);
  if (!value)
    return value.status();
  int64_t low, high;
  if (const int64_t *integer = std::get_if<int64_t>(&*value)) {
    low = high = *integer;
    table.slots.push_back(std::bit_cast<uint64_t>(*integer));
  } else {
    double number = std::get<double>(*value);
    if (scalar.type == ScalarType::F32)
      number = static_cast<float>(number);
    low = toBound(number, roundDown);
    high = toBound(number, roundUp);
    table.slots.push_back(scalar.type == ScalarType::F64
                              ? std::bit_cast<uint64_t>(number)
                              : std::bit_cast<uint32_t>(static_cast<float>(number)));
  }
  table.values.values.push_back(low);
  if (perHead && perHead->shape.size() == 1)
    addPerHead(*perHead, low, high);
  table.values.perHeadMin.push_back(low);
  table.values.perHeadMax.push_back(high);
  return {};
}

} // namespace

ArrayRef ArrayRef::contiguous(void *data, ElementType type, std::vector<int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    strides[dim] = stride;
    stride *= std::max<int64_t>(shape[dim], 1);
  }
  return {data, type, std::move(shape), std::move(strides), nullptr};
}

Status checkNames(const Program &program, const CallArguments &arguments) {
  for (const auto &[name, array] : arguments.arrays) {
    bool known = std::any_of(program.buffers.begin(), program.buffers.end(),
                             [&](const Buffer &b) { return b.name == name && !isPlanBuffer(b); });
    if (!known)
      return invalidArgument("there is no array '{}'; the program takes {}", name,
                             callersArrays(program));
  }
  return {};
}

StatusOr<BoundArrays> matchArrays(const Program &program, const CallArguments &arguments) {
  LLMOPT_RETURN_IF_ERROR(checkNames(program, arguments));
  BoundArrays bound(program.buffers.size());
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer &buffer = program.buffers[i];
    if (isPlanBuffer(buffer))
      continue;
    auto given = arguments.arrays.find(buffer.name);
    if (given == arguments.arrays.end()) {
      if (buffer.nullable)
        continue;
      return invalidArgument("array '{}' ({}) is missing; the program takes {}", buffer.name,
                             toString(buffer.role), callersArrays(program));
    }
    LLMOPT_RETURN_IF_ERROR(checkArray(buffer, given->second));
    bound[i] = given->second;
    broadcast(buffer, *bound[i]);
  }
  LLMOPT_RETURN_IF_ERROR(checkDimensions(program, bound));
  return bound;
}

StatusOr<ScalarTable> resolveScalars(const Program &program, const CallArguments &arguments,
                                     const BoundArrays &arrays) {
  for (const auto &[name, value] : arguments.scalars) {
    bool known = std::any_of(program.scalars.begin(), program.scalars.end(),
                             [&](const Scalar &s) { return s.name == name; });
    if (!known)
      return invalidArgument("there is no scalar '{}'; the program takes {}", name,
                             scalarNames(program));
  }
  ScalarTable table;
  for (const Scalar &scalar : program.scalars) {
    const ArrayRef *perHead = nullptr;
    if (scalar.perHeadBuffer >= 0 && arrays[scalar.perHeadBuffer])
      perHead = &*arrays[scalar.perHeadBuffer];
    LLMOPT_RETURN_IF_ERROR(resolveOne(scalar, arguments, perHead, table));
  }
  return table;
}

const ArrayRef *arrayOf(const Program &program, const BoundArrays &arrays, BufferRole role) {
  for (size_t i = 0; i < program.buffers.size(); ++i)
    if (program.buffers[i].role == role && arrays[i])
      return &*arrays[i];
  return nullptr;
}

std::string_view toString(ElementType type) {
  switch (type) {
  case ElementType::F32:
    return "f32";
  case ElementType::F16:
    return "f16";
  case ElementType::BF16:
    return "bf16";
  case ElementType::I8:
    return "i8";
  case ElementType::I32:
    return "i32";
  case ElementType::I64:
    return "i64";
  case ElementType::U32:
    return "u32";
  case ElementType::Bool:
    return "bool";
  }
  return "unknown";
}

uint32_t bytesOf(ElementType type) {
  switch (type) {
  case ElementType::I8:
  case ElementType::Bool:
    return 1;
  case ElementType::F16:
  case ElementType::BF16:
    return 2;
  case ElementType::I64:
    return 8;
  default:
    return 4;
  }
}

std::string_view toString(BufferRole role) {
  constexpr std::string_view names[] = {"query",
                                        "key",
                                        "value",
                                        "key pool",
                                        "value pool",
                                        "block table",
                                        "table offsets",
                                        "query offsets",
                                        "key offsets",
                                        "key lengths",
                                        "slot mapping",
                                        "new key",
                                        "new value",
                                        "bias",
                                        "mask",
                                        "per-head values",
                                        "sink logits",
                                        "user tensor",
                                        "partial outputs",
                                        "partial LSE",
                                        "output",
                                        "LSE",
                                        "tree"};
  auto index = static_cast<size_t>(role);
  return index < std::size(names) ? names[index] : "plan";
}

int64_t readInteger(const ArrayRef &array, int64_t index) {
  const auto *base = static_cast<const uint8_t *>(array.hostData());
  const uint8_t *at = base + index * array.strides[0] * int64_t{bytesOf(array.type)};
  auto read = [&](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return static_cast<int64_t>(value);
  };
  switch (array.type) {
  case ElementType::I64:
    return read(int64_t{});
  case ElementType::I32:
    return read(int32_t{});
  case ElementType::U32:
    return read(uint32_t{});
  default:
    return read(int8_t{});
  }
}

} // namespace llmopt::runtime
