// The parameter block: a ParamHeader and one 8-byte slot for each of
// Program::slots.
#pragma once

#include "runtime/base/AlignedBuffer.h"
#include "runtime/device/Arguments.h"

#include <array>

namespace llmopt::runtime {

/// Where the plan's buffers lie, by role. An absent one is null with extent 0.
class PlanBuffers {
public:
  struct Entry {
    const void *data = nullptr;
    int64_t rows = 0;  ///< extent of dimension 0
    int64_t width = 1; ///< elements of a row
  };

  Entry &operator[](bundle::BufferRole role) { return entries[indexOf(role)]; }
  const Entry &operator[](bundle::BufferRole role) const { return entries[indexOf(role)]; }

private:
  static constexpr auto kFirst = bundle::BufferRole::ItemOffsets;
  static constexpr size_t kCount =
      static_cast<size_t>(bundle::BufferRole::Counters) - static_cast<size_t>(kFirst) + 1;
  static size_t indexOf(bundle::BufferRole role) {
    return static_cast<size_t>(role) - static_cast<size_t>(kFirst);
  }

  std::array<Entry, kCount> entries;
};

/// May throw bad_alloc.
AlignedBuffer makeParamBlock(const bundle::Program &program, const BoundArrays &arrays,
                             const PlanBuffers &plan);

} // namespace llmopt::runtime
