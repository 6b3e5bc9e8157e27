// How functions of the runtime report failure: a code that a program can branch
// on and a sentence that a person can act on. Nothing in runtime/ throws.
//
// The sentence is lower case without a final full stop, in the form
// "what was found; what is allowed; what to do", with the value and the bound.
//
//   StatusOr<Program> program = loadBundle(path);
//   if (!program)
//     return program.status();
//   use(*program);
#pragma once

#include <cassert>
#include <cstdint>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace llmopt::runtime {

enum class StatusCode : uint8_t {
  Ok,
  /// The caller's argument is wrong on every machine; where it is this machine
  /// that lacks something, the code is Unavailable.
  InvalidArgument,
  /// A named thing (file, symbol, array) does not exist.
  NotFound,
  /// The machine lacks something: a CPU feature, a driver. Another machine may
  /// do.
  Unavailable,
  /// Memory, address range or a 32-bit count ran out. A smaller request may do.
  ResourceExhausted,
  /// Stored bytes are truncated or corrupt. Rebuilding them may do.
  DataLoss,
  /// A valid request that this version cannot serve.
  Unsupported,
  /// A broken promise inside llm-opt or the system: report it.
  Internal,
};

/// The enumerator's name, as in the documentation: "InvalidArgument".
std::string_view toString(StatusCode code);

class [[nodiscard]] Status {
public:
  /// Success.
  Status() = default;
  Status(StatusCode code, std::string message) : statusCode(code), text(std::move(message)) {
    assert(code != StatusCode::Ok && "a failure needs a failure's code");
  }

  bool ok() const { return statusCode == StatusCode::Ok; }
  StatusCode code() const { return statusCode; }
  const std::string &message() const { return text; }

  /// "InvalidArgument: array 'q' has rank 2; ..." or "Ok".
  std::string toString() const;

  /// The same failure seen from further out: "context: message".
  Status withContext(std::string_view context) const &;

  bool operator==(const Status &) const = default;

private:
  StatusCode statusCode = StatusCode::Ok;
  std::string text;
};

/// A value or the reason why there is none.
template <typename T> class [[nodiscard]] StatusOr {
public:
  StatusOr(Status failure) : state(std::move(failure)) {
    assert(!state.ok() && "a StatusOr without a value needs a failure");
  }
  template <typename U = T, typename = std::enable_if_t<std::is_constructible_v<T, U &&> &&
                                                        !std::is_same_v<std::decay_t<U>, Status> &&
                                                        !std::is_same_v<std::decay_t<U>, StatusOr>>>
  StatusOr(U &&value) : held(std::forward<U>(value)) {}

  bool ok() const { return held.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status &status() const { return state; }

  T &operator*() & { return value(); }
  const T &operator*() const & { return value(); }
  T &&operator*() && { return std::move(value()); }
  T *operator->() { return &value(); }
  const T *operator->() const { return &value(); }

private:
  T &value() {
    assert(ok() && "value of a failed StatusOr");
    return *held;
  }
  const T &value() const {
    assert(ok() && "value of a failed StatusOr");
    return *held;
  }

  Status state;
  std::optional<T> held;
};

template <typename... Args>
Status makeStatus(StatusCode code, fmt::format_string<Args...> format, Args &&...args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
Status invalidArgument(fmt::format_string<Args...> format, Args &&...args) {
  return makeStatus(StatusCode::InvalidArgument, format, std::forward<Args>(args)...);
}

template <typename... Args> Status dataLoss(fmt::format_string<Args...> format, Args &&...args) {
  return makeStatus(StatusCode::DataLoss, format, std::forward<Args>(args)...);
}

} // namespace llmopt::runtime

/// Leaves the calling function with the failure of `expr`, if it has one.
#define LLMOPT_RETURN_IF_ERROR(expr)                                                               \
  do {                                                                                             \
    if (::llmopt::runtime::Status llmoptStatus = (expr); !llmoptStatus.ok())                       \
      return llmoptStatus;                                                                         \
  } while (false)
