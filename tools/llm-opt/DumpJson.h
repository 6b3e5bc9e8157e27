// JSON as commands print it.
#pragma once

#include <string>

namespace llmopt::cli {

/// The text of a value. Names of files are bytes, JSON is UTF-8: what is none becomes U+FFFD.
template <typename Json> std::string dumpJson(const Json &value, int indent = -1) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

} // namespace llmopt::cli
