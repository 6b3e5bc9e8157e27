#include "tools/import/Config.h"

#include "tools/import/Text.h"

#include <cmath>

using namespace llmopt::importer;
using nlohmann::json;

std::string llmopt::importer::shown(const json &value) {
  if (value.is_structured())
    return fmt::format("{} of {}", value.is_array() ? "a list" : "an object", value.size());
  std::string text = oneLine(value.dump(-1, ' ', false, json::error_handler_t::replace));
  constexpr size_t kMost = 60;
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

StatusOr<Config> Config::create(std::string_view text, std::string_view filename) {
  LLMOPT_ASSIGN(document, JsonText::parse(std::string(text), filename));
  Config config;
  config.document = std::make_shared<const JsonText>(std::move(document));
  const json &root = config.document->root();
  for (std::string_view key : {"text_config", "language_config", "llm_config"}) {
    auto found = root.find(key);
    if (found == root.end() || found->is_null())
      continue;
    if (!found->is_object())
      return invalidArgument("{}: {} is {}; an object is allowed",
                             config.document->locate(fmt::format("/{}", key)), key, shown(*found));
    config.searched.push_back({fmt::format("/{}", key), &*found});
    break;
  }
  config.searched.push_back({"", &root});
  return config;
}

Config::Entry Config::find(std::string_view key) const {
  for (const Scope &scope : searched) {
    auto found = scope.object->find(key);
    if (found != scope.object->end() && !found->is_null())
      return {key, &*found};
  }
  return {key, nullptr};
}

StatusOr<Config::Entry> Config::findAny(std::initializer_list<std::string_view> keys) const {
  Entry first;
  for (std::string_view key : keys) {
    Entry entry = find(key);
    if (!entry)
      continue;
    if (first && *first.value != *entry.value)
      return wrong(key, fmt::format("{} is {}; the two are names of one thing", first.key,
                                    shown(*first.value)));
    if (!first)
      first = entry;
  }
  return first;
}

StatusOr<std::optional<int64_t>> Config::integer(std::initializer_list<std::string_view> keys,
                                                 int64_t least, int64_t most) const {
  LLMOPT_ASSIGN(entry, findAny(keys));
  if (!entry)
    return std::optional<int64_t>();
  const json &value = *entry.value;
  bool fits = value.is_number_integer() &&
              (!value.is_number_unsigned() ||
               value.get<uint64_t>() <= uint64_t(std::numeric_limits<int64_t>::max()));
  if (!fits || value.get<int64_t>() < least || value.get<int64_t>() > most)
    return wrong(entry.key, fmt::format("an integer from {} to {} is allowed", least, most));
  return std::optional<int64_t>(value.get<int64_t>());
}

StatusOr<std::optional<double>> Config::positiveNumber(std::string_view key) const {
  Entry entry = find(key);
  if (!entry)
    return std::optional<double>();
  double number = entry.value->is_number() ? entry.value->get<double>() : 0;
  if (!(number > 0) || !std::isfinite(float(number)))
    return wrong(key, "a positive number is allowed");
  return std::optional<double>(number);
}

StatusOr<std::optional<bool>> Config::boolean(std::string_view key) const {
  Entry entry = find(key);
  if (!entry)
    return std::optional<bool>();
  if (!entry.value->is_boolean())
    return wrong(key, "true or false is allowed");
  return std::optional<bool>(entry.value->get<bool>());
}

StatusOr<std::optional<std::string>> Config::string(std::string_view key) const {
  Entry entry = find(key);
  if (!entry)
    return std::optional<std::string>();
  if (!entry.value->is_string())
    return wrong(key, "a string is allowed");
  return std::optional<std::string>(entry.value->get<std::string>());
}

std::string Config::where(std::string_view key) const {
  for (const Scope &scope : searched) {
    auto found = scope.object->find(key);
    if (found != scope.object->end() && !found->is_null())
      return document->locate(fmt::format("{}/{}", scope.path, key));
  }
  return filename();
}

Status Config::wrong(std::string_view key, std::string_view allowed) const {
  Entry entry = find(key);
  return invalidArgument("{}: {} is {}; {}", where(key), key,
                         entry ? shown(*entry.value) : "missing", allowed);
}

Status Config::unsupported(std::string_view feature) const {
  return makeStatus(kUnsupported, "{}: {} is not supported yet", filename(), feature);
}
