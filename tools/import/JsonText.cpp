#include "tools/import/JsonText.h"

#include "runtime/base/Json.h"

#include <optional>

using namespace llmopt::importer;

namespace {

/// Walks valid JSON text and reports each key of an object and each entry of a list with its path,
/// line and column.
class Walk {
public:
  explicit Walk(std::string_view text) : text(text) {}

  template <typename Visit> void run(Visit visit) {
    for (; at < text.size(); ++at) {
      switch (text[at]) {
      case '\n':
        ++line;
        lineStart = at + 1;
        break;
      case ' ':
      case '\t':
      case '\r':
      case ':':
        break;
      case '}':
      case ']':
        stack.pop_back();
        break;
      case ',':
        stack.back().expectsKey = stack.back().object;
        break;
      default:
        enter(visit);
      }
    }
  }

private:
  struct Frame {
    bool object, expectsKey;
    std::string path; ///< of the object or list, and '/'
    size_t next = 0;  ///< entry of a list
  };

  /// A key or a value begins at `at`, which moves to its last character; into objects and lists.
  template <typename Visit> void enter(Visit visit) {
    bool isKey = !stack.empty() && stack.back().expectsKey;
    if (!stack.empty() && !stack.back().object) {
      path = stack.back().path + std::to_string(stack.back().next++);
      visit(path, line, at - lineStart + 1);
    }
    size_t begin = at;
    if (text[at] == '{' || text[at] == '[') {
      bool object = text[at] == '{';
      stack.push_back({object, object, path + "/"});
    } else if (text[at] == '"') {
      while (text[++at] != '"')
        at += text[at] == '\\';
    } else {
      at = std::min(text.find_first_of(",]} \t\r\n", at), text.size()) - 1;
    }
    if (!isKey)
      return;
    stack.back().expectsKey = false;
    path = stack.back().path + std::string(text.substr(begin + 1, at - begin - 1));
    visit(path, line, begin - lineStart + 1);
  }

  std::string_view text;
  size_t at = 0, line = 1, lineStart = 0;
  std::string path; ///< of the value that comes next, or is walked
  std::vector<Frame> stack;
};

} // namespace

StatusOr<JsonText> JsonText::parse(std::string text, std::string_view filename) {
  JsonText result;
  result.name = std::string(filename);
  result.text = std::move(text);
  if (auto problem = runtime::parseJson(result.text, result.value))
    return invalidArgument("{}:{}:{}: invalid JSON: {}", filename, problem->line, problem->column,
                           problem->what);
  if (!result.value.is_object())
    return invalidArgument("{}:1:1: the value is of type {}; an object is wanted", filename,
                           result.value.type_name());
  return result;
}

std::string JsonText::locate(std::string_view path) const {
  std::string place = name;
  // The last of several equal keys is the one that counts.
  Walk(text).run([&](std::string_view entry, size_t line, size_t column) {
    if (entry == path)
      place = fmt::format("{}:{}:{}", name, line, column);
  });
  return place;
}
