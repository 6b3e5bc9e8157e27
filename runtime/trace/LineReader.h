// Lines of a text file, plain or gzip, and places in it for messages.
#pragma once

#include "runtime/base/Status.h"

#include <memory>
#include <string>
#include <string_view>

namespace llmopt::runtime {

class LineReader {
public:
  static StatusOr<LineReader> open(const std::string &path);

  /// The next line without its end (LF or CR LF); false at the end of the file. A line
  /// over kMaxLine bytes, a broken or a truncated gzip stream are DataLoss.
  StatusOr<bool> next(std::string_view &line);

  const std::string &path() const { return name; }
  uint64_t line() const { return number; } ///< of the last one, from 1

  /// DataLoss at the last line: "FILE:LINE: message".
  template <typename... Args>
  Status wrong(fmt::format_string<Args...> format, Args &&...args) const {
    return dataLoss("{}:{}: {}", name, number, fmt::format(format, std::forward<Args>(args)...));
  }

  static constexpr size_t kMaxLine = size_t(64) << 20;

private:
  struct Close {
    void operator()(void *file) const;
  };
  Status fill();

  std::string name;
  std::unique_ptr<void, Close> file; ///< a gzFile
  std::string buffer;
  size_t begin = 0; ///< of what is not yet given out
  uint64_t number = 0;
  bool atEnd = false;
};

} // namespace llmopt::runtime
