// An array of a plan: room that is fixed when it is made, and how much of it is used. The room
// is its own or lies in memory that somebody else keeps (PlanArena).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

namespace llmopt::runtime {

template <typename T> class PlanArray {
  static_assert(std::is_trivially_copyable_v<T>);

public:
  PlanArray() = default;
  /// Room of its own. May throw bad_alloc.
  explicit PlanArray(size_t room) : own(new T[room]), first(own.get()), most(room) {}
  /// Room that outlives the array.
  static PlanArray over(T *memory, size_t room) {
    PlanArray array;
    array.first = memory;
    array.most = room;
    return array;
  }

  /// A copy has its own memory, with room for what is used.
  PlanArray(const PlanArray &other) : PlanArray(other.used) {
    std::copy_n(other.first, other.used, first);
    used = other.used;
  }
  PlanArray(PlanArray &&other) noexcept { swap(other); }
  PlanArray &operator=(PlanArray other) noexcept {
    swap(other);
    return *this;
  }

  size_t size() const { return used; }
  size_t room() const { return most; }
  bool empty() const { return used == 0; }
  T *data() { return first; }
  const T *data() const { return first; }
  T &operator[](size_t i) { return first[i]; }
  const T &operator[](size_t i) const { return first[i]; }
  T *begin() { return first; }
  T *end() { return first + used; }
  const T *begin() const { return first; }
  const T *end() const { return first + used; }
  T &back() { return first[used - 1]; }
  const T &back() const { return first[used - 1]; }

  /// Within the room; what is new is uninitialised.
  void setSize(size_t size) { used = size; }
  void push(const T &value) { first[used++] = value; }
  operator std::span<const T>() const { return {first, used}; }
  operator std::span<T>() { return {first, used}; }
  bool operator==(const PlanArray &other) const
    requires requires(const T &a, const T &b) { a == b; }
  {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

private:
  void swap(PlanArray &other) noexcept {
    std::swap(own, other.own);
    std::swap(first, other.first);
    std::swap(used, other.used);
    std::swap(most, other.most);
  }

  std::unique_ptr<T[]> own;
  T *first = nullptr;
  size_t used = 0, most = 0;
};

} // namespace llmopt::runtime
