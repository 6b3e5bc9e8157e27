#include "runtime/device/NpyCall.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

namespace llmopt::runtime {

using bundle::ElementType;

namespace {

std::optional<ElementType> elementTypeOf(NpyType type) {
  switch (type) {
  case NpyType::F16:
    return ElementType::F16;
  case NpyType::F32:
    return ElementType::F32;
  case NpyType::BF16:
    return ElementType::BF16;
  case NpyType::I8:
    return ElementType::I8;
  case NpyType::I32:
    return ElementType::I32;
  case NpyType::I64:
    return ElementType::I64;
  case NpyType::U32:
    return ElementType::U32;
  case NpyType::Bool:
    return ElementType::Bool;
  default:
    return std::nullopt;
  }
}

NpyType npyTypeOf(ElementType type) {
  switch (type) {
  case ElementType::F16:
    return NpyType::F16;
  case ElementType::BF16:
    return NpyType::BF16;
  default:
    return NpyType::F32;
  }
}

/// The array with its elements as `To`; `From` are what it has.
template <typename From, typename To>
Status convertIntegers(const std::string &name, NpyType type, NpyArray &array) {
  size_t count = array.bytes.size() / sizeof(From);
  std::vector<uint8_t> bytes(count * sizeof(To));
  for (size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, array.bytes.data() + i * sizeof(From), sizeof(From));
    auto converted = static_cast<To>(value);
    if (converted != value)
      return invalidArgument("array '{}' holds {} at element {}; the program takes it as {}", name,
                             value, i, toString(type));
    std::memcpy(bytes.data() + i * sizeof(To), &converted, sizeof(To));
  }
  array.type = type;
  array.bytes = std::move(bytes);
  return {};
}

/// Makes the elements what `buffer` wants where that changes no value.
Status adapt(const bundle::Buffer &buffer, NpyArray &array) {
  if (buffer.type == ElementType::I32 && array.type == NpyType::I64)
    return convertIntegers<int64_t, int32_t>(buffer.name, NpyType::I32, array);
  if (buffer.type == ElementType::I64 && array.type == NpyType::I32)
    return convertIntegers<int32_t, int64_t>(buffer.name, NpyType::I64, array);
  if (buffer.type == ElementType::BF16 && array.type != NpyType::BF16)
    return invalidArgument("array '{}' has element type {}; the program wants bf16; save "
                           "array.astype(ml_dtypes.bfloat16), or the bits as items of type '<V2'",
                           buffer.name, toString(array.type));
  return {};
}

} // namespace

Status NpyCall::addInput(const std::string &name, const std::string &path) {
  StatusOr<NpyArray> array = readNpy(path);
  if (!array)
    return array.status();
  auto buffer = std::find_if(program.buffers.begin(), program.buffers.end(),
                             [&](const bundle::Buffer &b) { return b.name == name; });
  if (buffer != program.buffers.end())
    LLMOPT_RETURN_IF_ERROR(adapt(*buffer, *array));
  std::optional<ElementType> type = elementTypeOf(array->type);
  if (!type)
    return invalidArgument("{}: elements are {}; kernels take f32, f16, bf16, bool and integers",
                           path, toString(array->type));
  inputs.push_back(*std::move(array));
  NpyArray &held = inputs.back();
  given.arrays[name] = ArrayRef::contiguous(held.bytes.data(), *type, held.shape);
  return {};
}

void NpyCall::addNumber(const std::string &name, double value) {
  given.scalars[name] = value;
  for (const bundle::Scalar &scalar : program.scalars)
    if (scalar.name == name && scalar.type == bundle::ScalarType::I64 &&
        value == std::nearbyint(value) && std::abs(value) < 0x1p53)
      given.scalars[name] = static_cast<int64_t>(value);
}

Status NpyCall::makeOutputs() {
  // A misspelt name would leave another array missing: it is the better message.
  LLMOPT_RETURN_IF_ERROR(checkNames(program, given));
  const char *like = program.facts.queryHeads ? "q" : "partials";
  auto query = given.arrays.find(like);
  for (const bundle::Buffer &buffer : program.buffers) {
    if (!buffer.output)
      continue;
    if (given.arrays.contains(buffer.name))
      return invalidArgument("array '{}' is a result; it cannot be given", buffer.name);
    if (query == given.arrays.end())
      return invalidArgument("the array '{}' is missing; the results have its shape", like);
    std::vector<int64_t> shape = query->second.shape;
    if (!program.facts.queryHeads && !shape.empty())
      shape.erase(shape.begin());
    shape.resize(buffer.extents.size(), 1);
    for (size_t d = 0; d < shape.size(); ++d)
      if (buffer.extents[d] >= 0)
        shape[d] = buffer.extents[d];
    StatusOr<int64_t> count = elementCount(shape);
    if (!count)
      return count.status();
    NpyArray &array = outputs[buffer.name];
    array.type = npyTypeOf(buffer.type);
    array.shape = shape;
    array.bytes.resize(static_cast<size_t>(*count) * bytesOf(array.type));
    given.arrays[buffer.name] = ArrayRef::contiguous(array.bytes.data(), buffer.type, shape);
  }
  return {};
}

Status NpyCall::writeOutput(const std::string &name, const std::string &path) const {
  auto output = outputs.find(name);
  if (output == outputs.end())
    return invalidArgument("the spec has no result '{}'; o and lse are results", name);
  return writeNpy(output->second, path);
}

} // namespace llmopt::runtime
