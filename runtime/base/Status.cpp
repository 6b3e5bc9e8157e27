#include "runtime/base/Status.h"

namespace llmopt::runtime {

std::string_view toString(StatusCode code) {
  switch (code) {
  case StatusCode::Ok:
    return "Ok";
  case StatusCode::InvalidArgument:
    return "InvalidArgument";
  case StatusCode::NotFound:
    return "NotFound";
  case StatusCode::Unavailable:
    return "Unavailable";
  case StatusCode::ResourceExhausted:
    return "ResourceExhausted";
  case StatusCode::DataLoss:
    return "DataLoss";
  case StatusCode::Unsupported:
    return "Unsupported";
  case StatusCode::Internal:
    return "Internal";
  }
  return "Unknown";
}

std::string Status::toString() const {
  if (ok())
    return "Ok";
  return fmt::format("{}: {}", runtime::toString(statusCode), text);
}

Status Status::withContext(std::string_view context) const & {
  if (ok())
    return *this;
  return Status(statusCode, fmt::format("{}: {}", context, text));
}

} // namespace llmopt::runtime
