#include "tools/harness/Call.h"

#include "llvm/Support/xxhash.h"

#include <cstring>

namespace llmopt::harness {

namespace {

/// Strides in elements.
llvm::SmallVector<int64_t, 5> stridesOf(llvm::ArrayRef<int64_t> shape, StrideStyle style) {
  llvm::SmallVector<int64_t, 5> strides(shape.size());
  int64_t next = style == StrideStyle::Inner2 ? 2 : 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = next;
    next *= std::max<int64_t>(1, shape[d]);
    next += style == StrideStyle::Padded ? 8 : style == StrideStyle::Odd ? 3 : 0;
  }
  return strides;
}

uint64_t hashOf(const Bytes &bytes) {
  return llvm::xxh3_64bits(llvm::ArrayRef<uint8_t>(bytes.data(), bytes.size()));
}

} // namespace

HostArray::HostArray(std::string name, ElementType type, llvm::ArrayRef<int64_t> shape,
                     Access access, StrideStyle style, Memory memory)
    : name(std::move(name)), type(type), shape(shape), strides(stridesOf(shape, style)),
      access(access) {
  if (memory == Memory::None)
    return;
  int64_t extent = 1;
  for (size_t d = 0; d < shape.size(); ++d)
    extent += std::max<int64_t>(0, shape[d] - 1) * strides[d];
  size_t size = elements() == 0 ? 0 : size_t(extent) * reference::sizeOf(type);
  bytes.assign(size + 2 * kGuard, access == Access::In ? kNever : kCanary);
  if (access == Access::Out)
    forEach([&](int64_t offset) {
      std::memset(static_cast<uint8_t *>(data()) + size_t(offset) * reference::sizeOf(this->type),
                  kNever, reference::sizeOf(this->type));
    });
}

int64_t HostArray::elements() const {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

reference::Array HostArray::view() const {
  return {type, shape, strides, const_cast<void *>(data())};
}

void HostArray::seal() {
  hash = hashOf(bytes);
  if (access == Access::InOut)
    before = bytes;
}

reference::Array HostArray::original() const {
  reference::Array array = view();
  if (access == Access::InOut)
    array.data = const_cast<uint8_t *>(before.data()) + kGuard;
  return array;
}

std::string HostArray::damage(int64_t firstUnwritten) const {
  if (access == Access::In)
    return hashOf(bytes) == hash ? "" : "input '" + name + "' was written";
  size_t size = reference::sizeOf(type);
  std::vector<bool> isElement(bytes.size());
  forEach([&](int64_t offset) {
    for (size_t b = 0; b < size; ++b)
      isElement[kGuard + size_t(offset) * size + b] = true;
  });
  for (size_t b = 0; b < bytes.size(); ++b)
    if (!isElement[b] && bytes[b] != kCanary)
      return "'" + name + "' was written outside its elements, at byte " +
             std::to_string(int64_t(b) - int64_t(kGuard));
  if (access == Access::InOut || shape.empty() || shape[0] <= firstUnwritten)
    return "";
  // Padded rows at the end of a ragged output still hold what they held.
  HostArray rest = *this;
  rest.shape[0] -= firstUnwritten;
  std::string text;
  rest.forEach([&](int64_t offset) {
    for (size_t b = 0; b < size; ++b)
      if (bytes[kGuard + size_t(offset + firstUnwritten * strides[0]) * size + b] != kNever &&
          text.empty())
        text = "'" + name + "' was written in a padded row, from row " +
               std::to_string(firstUnwritten) + " on";
  });
  return text;
}

std::vector<uint8_t> HostArray::elementBytes() const {
  size_t size = reference::sizeOf(type);
  std::vector<uint8_t> result;
  forEach([&](int64_t offset) {
    const uint8_t *element = static_cast<const uint8_t *>(data()) + size_t(offset) * size;
    result.insert(result.end(), element, element + size);
  });
  return result;
}

HostArray *Call::find(llvm::StringRef name) {
  for (HostArray &array : arrays)
    if (array.name == name)
      return &array;
  return nullptr;
}

reference::Inputs Call::inputs() const {
  reference::Inputs inputs;
  inputs.numbers = numbers;
  for (const HostArray &array : arrays)
    if (array.access != HostArray::Access::Out)
      inputs.arrays[array.name] = array.original();
  return inputs;
}

} // namespace llmopt::harness
