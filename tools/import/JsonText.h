// A JSON object that knows where its keys stand in the text.
#pragma once

#include "tools/import/Import.h"

#include <map>
#include <nlohmann/json.hpp>

namespace llmopt::importer {

class JsonText {
public:
  /// Refuses what is not one JSON object, with line and column.
  static StatusOr<JsonText> parse(std::string_view text, std::string_view filename);

  const nlohmann::json &root() const { return value; }
  const std::string &filename() const { return name; }

  /// "config.json:12:5", the place of a key such as "/text_config/head_dim"; the
  /// file name alone where there is no such key. Known for two levels of objects.
  std::string locate(const std::string &path) const;

private:
  struct Place {
    size_t line, column;
  };
  void indexKeys(std::string_view text);

  std::string name;
  nlohmann::json value;
  std::map<std::string, Place> places;
};

} // namespace llmopt::importer
