#include "tools/import/JsonText.h"

#include "runtime/base/JsonNesting.h"
#include "tools/import/Text.h"

using namespace llmopt::importer;

namespace {

/// Walks valid JSON text and reports each key of an object with its path.
class KeyScanner {
public:
  explicit KeyScanner(std::string_view text) : text(text) {}

  template <typename Visit> void scan(Visit visit) {
    for (; at < text.size(); ++at) {
      switch (text[at]) {
      case '{':
      case '[':
        stack.push_back({text[at] == '{', key});
        expectKey = text[at] == '{';
        break;
      case '}':
      case ']':
        stack.pop_back();
        expectKey = false;
        break;
      case ',':
        expectKey = stack.back().object;
        break;
      case '"': {
        size_t start = at;
        std::string_view word = string();
        if (!expectKey)
          break;
        expectKey = false;
        if (stack.size() > kDepth)
          break;
        key = stack.back().path + "/" + std::string(word);
        visit(key, start);
        break;
      }
      default:
        break;
      }
    }
  }

private:
  static constexpr size_t kDepth = 2;
  struct Frame {
    bool object;
    std::string path;
  };

  /// The string that starts at `at`, which moves to its closing quote.
  std::string_view string() {
    size_t start = ++at;
    while (text[at] != '"')
      at += text[at] == '\\' ? 2 : 1;
    return text.substr(start, at - start);
  }

  std::string_view text;
  size_t at = 0;
  bool expectKey = false;
  std::string key;
  std::vector<Frame> stack;
};

std::string withoutPrefix(std::string message) {
  // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error
  // while parsing value - invalid literal; last read: ..."
  for (std::string_view mark : {"column ", ": "})
    if (size_t found = message.find(mark); found != std::string::npos)
      message = message.substr(found + mark.size());
  return message;
}

} // namespace

StatusOr<JsonText> JsonText::parse(std::string_view text, std::string_view filename) {
  JsonText result;
  result.name = std::string(filename);
  // The parser takes a NUL for the end of the text.
  if (size_t nul = text.find('\0'); nul != std::string_view::npos) {
    auto [line, column] = lineAndColumn(text, nul);
    return invalidArgument("{}:{}:{}: invalid JSON: a NUL byte", filename, line, column);
  }
  if (std::optional<size_t> deep = runtime::jsonNestedTooDeep(text)) {
    auto [line, column] = lineAndColumn(text, *deep);
    return invalidArgument("{}:{}:{}: invalid JSON: nested too deeply; {} levels are allowed",
                           filename, line, column, runtime::kMaxJsonNesting);
  }
  try {
    result.value = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error &error) {
    size_t offset = std::min(error.byte ? error.byte - 1 : 0, text.size());
    auto [line, column] = lineAndColumn(text, offset);
    return invalidArgument("{}:{}:{}: invalid JSON: {}", filename, line, column,
                           oneLine(withoutPrefix(error.what())));
  } catch (const nlohmann::json::exception &error) {
    return invalidArgument("{}: invalid JSON: {}", filename, oneLine(error.what()));
  }
  if (!result.value.is_object())
    return invalidArgument("{}:1:1: the value is of type {}; an object is wanted", filename,
                           result.value.type_name());
  result.indexKeys(text);
  return result;
}

void JsonText::indexKeys(std::string_view text) {
  size_t line = 1, lineStart = 0, at = 0;
  KeyScanner(text).scan([&](const std::string &path, size_t offset) {
    for (; at < offset; ++at)
      if (text[at] == '\n') {
        ++line;
        lineStart = at + 1;
      }
    places[path] = {line, offset - lineStart + 1};
  });
}

std::string JsonText::locate(const std::string &path) const {
  auto found = places.find(path);
  if (found == places.end())
    return name;
  return fmt::format("{}:{}:{}", name, found->second.line, found->second.column);
}
