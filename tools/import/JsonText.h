// A JSON object that knows where its entries stand in the text.
#pragma once

#include "tools/import/Import.h"

#include <nlohmann/json.hpp>

namespace llmopt::importer {

class JsonText {
public:
  /// Refuses what is not one JSON object, with line and column.
  static StatusOr<JsonText> parse(std::string text, std::string_view filename);

  const nlohmann::json &root() const { return value; }
  const std::string &filename() const { return name; }

  /// "config.json:12:5", the place of a key or of an entry of a list, such as
  /// "/text_config/head_dim" and "/params/3"; the file name alone where there is none. Reads the
  /// text each time.
  std::string locate(std::string_view path) const;

private:
  std::string name, text;
  nlohmann::json value;
};

} // namespace llmopt::importer
