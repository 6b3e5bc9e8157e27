// The two directions of the bundle encoding. `Writer` and `Reader` offer the
// same calls, so that one function per record (BundleIO.cpp) both writes and
// reads it and the two can never disagree.
#pragma once

#include "runtime/base/Status.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace llmopt::bundle {

static_assert(std::endian::native == std::endian::little,
              "bundles and plan records are little endian");

class Writer {
public:
  static constexpr bool kReads = false;

  template <typename T> void number(std::string_view, const T &value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    append(&value, sizeof(T));
  }
  void flag(std::string_view field, const bool &value) {
    number(field, static_cast<uint8_t>(value));
  }
  void text(std::string_view field, const std::string &value, uint32_t) {
    number(field, static_cast<uint32_t>(value.size()));
    append(value.data(), value.size());
  }
  void bytes(std::string_view field, const std::vector<uint8_t> &value) {
    number(field, static_cast<uint64_t>(value.size()));
    append(value.data(), value.size());
  }
  template <typename List, typename Each>
  void list(std::string_view field, const List &values, uint32_t, size_t, Each each) {
    number(field, static_cast<uint32_t>(values.size()));
    for (const auto &value : values)
      each(value);
  }

  std::vector<uint8_t> take() { return std::move(out); }

private:
  void append(const void *data, size_t size) {
    const auto *first = static_cast<const uint8_t *>(data);
    out.insert(out.end(), first, first + size);
  }

  std::vector<uint8_t> out;
};

/// Fails at most once: after the first failure every call is a no-op, and
/// `status` names the field. May throw bad_alloc, never for more than the bytes
/// given warrant.
class Reader {
public:
  static constexpr bool kReads = true;

  explicit Reader(std::span<const uint8_t> bytes) : left(bytes) {}

  template <typename T> void number(std::string_view field, T &value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    if (!has(field, sizeof(T)))
      return;
    std::memcpy(&value, left.data(), sizeof(T));
    left = left.subspan(sizeof(T));
  }

  void flag(std::string_view field, bool &value) {
    uint8_t raw = 0;
    number(field, raw);
    if (raw > 1)
      fail(runtime::dataLoss("field '{}' is {}; 0 or 1 is allowed", field, raw));
    value = raw == 1;
  }

  void text(std::string_view field, std::string &value, uint32_t maxBytes) {
    uint32_t size = 0;
    number(field, size);
    if (!isWithin(field, size, maxBytes) || !has(field, size))
      return;
    value.assign(reinterpret_cast<const char *>(left.data()), size);
    left = left.subspan(size);
  }

  void bytes(std::string_view field, std::vector<uint8_t> &value) {
    uint64_t size = 0;
    number(field, size);
    if (!has(field, size))
      return;
    value.assign(left.begin(), left.begin() + static_cast<ptrdiff_t>(size));
    left = left.subspan(size);
  }

  /// `entryBytes`: the least that one entry occupies, which bounds the
  /// allocation.
  template <typename T, typename Each>
  void list(std::string_view field, std::vector<T> &values, uint32_t maxEntries, size_t entryBytes,
            Each each) {
    uint32_t count = 0;
    number(field, count);
    if (!isWithin(field, count, maxEntries) || !has(field, uint64_t{count} * entryBytes))
      return;
    values.resize(count);
    for (T &value : values) {
      if (!failure.ok())
        return;
      each(value);
    }
  }

  const runtime::Status &status() const { return failure; }
  size_t remaining() const { return left.size(); }

private:
  bool has(std::string_view field, uint64_t size) {
    if (failure.ok() && size > left.size())
      fail(runtime::dataLoss("field '{}' needs {} bytes; {} are left", field, size, left.size()));
    return failure.ok();
  }
  bool isWithin(std::string_view field, uint32_t count, uint32_t limit) {
    if (failure.ok() && count > limit)
      fail(runtime::dataLoss("field '{}' has length {}; at most {} is allowed", field, count,
                             limit));
    return failure.ok();
  }
  void fail(runtime::Status status) {
    if (failure.ok())
      failure = std::move(status);
  }

  std::span<const uint8_t> left;
  runtime::Status failure;
};

} // namespace llmopt::bundle
