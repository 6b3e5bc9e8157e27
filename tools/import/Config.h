// Typed access to the keys of a Hugging Face config: the text model's object (its
// text_config, where it has one) first, then the outer object. A null is an absent key.
#pragma once

#include "tools/import/Assign.h"
#include "tools/import/JsonText.h"

#include <initializer_list>
#include <limits>
#include <memory>

namespace llmopt::importer {

class Config {
public:
  static StatusOr<Config> create(std::string_view text, std::string_view filename);

  struct Entry {
    std::string_view key;
    const nlohmann::json *value = nullptr;
    explicit operator bool() const { return value; }
  };

  Entry find(std::string_view key) const;
  /// The first of some names of one thing. Names that disagree are an error.
  StatusOr<Entry> findAny(std::initializer_list<std::string_view> keys) const;

  /// None where the key is absent; an error where the value is of another type or out
  /// of bounds.
  StatusOr<std::optional<int64_t>>
  integer(std::initializer_list<std::string_view> keys, int64_t least = 1,
          int64_t most = std::numeric_limits<int32_t>::max()) const;
  StatusOr<std::optional<double>> positiveNumber(std::string_view key) const;
  StatusOr<std::optional<bool>> boolean(std::string_view key) const;
  StatusOr<std::optional<std::string>> string(std::string_view key) const;

  /// "config.json:12:5", where a key stands.
  std::string where(std::string_view key) const;
  const std::string &filename() const { return document->filename(); }

  /// The objects that are looked at, with the path of each.
  struct Scope {
    std::string path;
    const nlohmann::json *object;
  };
  const std::vector<Scope> &scopes() const { return searched; }

  /// A failure of the key's value: "<place>: <key> is <value>; <allowed>".
  Status wrong(std::string_view key, std::string_view allowed) const;
  /// "<file>: <feature> is not supported yet".
  Status unsupported(std::string_view feature) const;

private:
  std::shared_ptr<const JsonText> document; ///< `searched` points into it
  std::vector<Scope> searched;
};

/// A value as a message shows it: one line, not longer than a few words.
std::string shown(const nlohmann::json &value);

} // namespace llmopt::importer
