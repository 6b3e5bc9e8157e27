// How the C API turns statuses, structs and exceptions over. Private to it.
#pragma once

#include "runtime/api/Session.h"
#include "runtime/api/llmopt.h"

#include <cstring>
#include <exception>
#include <new>

struct llmopt_status {
  llmopt::runtime::StatusCode code;
  std::string message;
};

struct llmopt_device {
  std::shared_ptr<llmopt::runtime::Device> device;
};

namespace llmopt::runtime::capi {

/// NULL for success. Never throws: without memory it is a status that says so.
llmopt_status *statusOf(const Status &status) noexcept;
Status fromC(llmopt_status *status);
llmopt_status *outOfMemory() noexcept;

/// Runs a function that returns a Status; no exception comes out.
template <typename Body> llmopt_status *guarded(Body body) noexcept {
  try {
    return statusOf(body());
  } catch (const std::bad_alloc &) {
    return outOfMemory();
  } catch (const std::exception &error) {
    return llmopt_status_new(LLMOPT_INTERNAL, error.what());
  } catch (...) {
    return llmopt_status_new(LLMOPT_INTERNAL, "an unknown exception");
  }
}

/// A caller's struct as this version knows it: fields that the caller's lacks are 0.
template <typename T> Status take(const T *given, const char *name, T &out) {
  if (!given)
    return invalidArgument("{} is NULL", name);
  if (given->struct_size < sizeof(size_t) || given->struct_size > sizeof(T))
    return invalidArgument("{} has a struct_size of {}; {} to {} are known; set it to its sizeof",
                           name, given->struct_size, sizeof(size_t), sizeof(T));
  out = T{};
  std::memcpy(static_cast<void *>(&out), given, given->struct_size);
  return {};
}

/// Element `index` of an array of structs, whose stride is the first one's size.
template <typename T> Status takeAt(const T *first, size_t index, const char *name, T &out) {
  if (!first)
    return invalidArgument("{} is NULL", name);
  const auto *bytes = reinterpret_cast<const char *>(first) + index * first->struct_size;
  return take(reinterpret_cast<const T *>(bytes), name, out);
}

inline Status notNull(const void *pointer, const char *name) {
  return pointer ? Status() : invalidArgument("{} is NULL", name);
}

StatusOr<bundle::ElementType> typeOf(llmopt_type type);
Status takeNumbers(const llmopt_number *numbers, size_t count,
                   std::map<std::string, ScalarValue, std::less<>> &values);
StatusOr<std::vector<bundle::Program>> familyOf(const void *bundle, size_t bytes);

} // namespace llmopt::runtime::capi
