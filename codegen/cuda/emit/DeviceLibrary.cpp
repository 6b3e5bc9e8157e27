// See DeviceLibrary.h. A file is a sequence of definitions with a blank line between them;
// a comment above one belongs to it. The name of a definition is the identifier before its
// parameters, or after `struct`, `typedef ... NAME;`, `constexpr ... NAME =`. Of several
// definitions of one name (overloads, specialisations), those are used whose element types and
// kinds of operand (structs named by_...) are. A definition that begins with lines
//   // For each WORD, OTHER: a, b; c, d
// stands for one with a and b in the place of these words, and one with c and d.
#include "codegen/cuda/emit/DeviceLibrary.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <vector>

using namespace llmopt::cuda;
using llvm::StringRef;

namespace llmopt::cuda {
extern const char *const kDeviceFiles[]; ///< texts, null at the end; made by CMake
} // namespace llmopt::cuda

namespace {

struct Definition {
  std::string name;
  std::string text;
  llvm::SmallVector<StringRef> words; ///< of the text
  /// A type that chooses between overloads: of elements (a struct without parameters or constants),
  /// or a kind of operand.
  bool isType = false;
};

llvm::SmallVector<StringRef> wordsOf(StringRef text) {
  llvm::SmallVector<StringRef> words;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') { // assembly: skip
      size_t end = text.find('"', i + 1);
      i = end == StringRef::npos ? text.size() : end + 1;
      continue;
    }
    if (text.substr(i).starts_with("//")) {
      size_t end = text.find('\n', i);
      i = end == StringRef::npos ? text.size() : end;
      continue;
    }
    if (!llvm::isAlpha(text[i]) && text[i] != '_') {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && (llvm::isAlnum(text[end]) || text[end] == '_'))
      ++end;
    words.push_back(text.substr(i, end - i));
    i = end;
  }
  return words;
}

std::string nameOf(StringRef text) {
  StringRef code = text;
  while (code.starts_with("//"))
    code = code.substr(code.find('\n') + 1);
  llvm::SmallVector<StringRef> words = wordsOf(code);
  for (size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == "struct")
      return words[i + 1].str();
  if (code.starts_with("typedef"))
    return words.back().str();
  if (code.starts_with("constexpr"))
    return words[2].str();
  // A function: the word before the first parenthesis, template arguments left out.
  size_t start = code.find("__forceinline__");
  StringRef declaration = code.substr(start == StringRef::npos ? 0 : start);
  StringRef before = declaration.take_until([](char c) { return c == '('; });
  if (before.ends_with(">"))
    before = before.take_front(before.rfind('<'));
  return wordsOf(before).back().str();
}

/// What a text with `For each` stands for.
std::vector<std::string> expand(StringRef text) {
  StringRef rest = text;
  if (!rest.consume_front("// For each "))
    return {text.str()};
  auto [head, body] = rest.split('\n');
  auto [words, choices] = head.split(": ");
  std::vector<std::string> all;
  llvm::SmallVector<StringRef> names(llvm::split(words, ", "));
  for (StringRef choice : llvm::split(choices, "; ")) {
    std::string one = body.str();
    llvm::SmallVector<StringRef> values(llvm::split(choice, ", "));
    for (auto [word, value] : llvm::zip_equal(names, values))
      for (size_t at = 0; (at = one.find(word, at)) != std::string::npos; at += value.size())
        one.replace(at, word.size(), value);
    llvm::append_range(all, expand(one));
  }
  return all;
}

std::vector<Definition> parse() {
  std::vector<Definition> definitions;
  for (const char *const *file = kDeviceFiles; *file; ++file) {
    llvm::SmallVector<StringRef> parts;
    StringRef(*file).split(parts, "\n\n", -1, /*KeepEmpty=*/false);
    for (StringRef part : parts) {
      part = part.trim('\n');
      StringRef code = part;
      while (code.starts_with("//") && code.contains('\n'))
        code = code.substr(code.find('\n') + 1);
      if (code.empty() || code.starts_with("//"))
        continue; // the head of the file
      bool isElement = code.starts_with("struct") && code.contains(" bits;");
      for (std::string &one : expand(part)) {
        std::string name = nameOf(one);
        bool isKind = StringRef(name).starts_with("by_");
        definitions.push_back({name, std::move(one), {}, isElement || isKind});
      }
    }
  }
  for (Definition &one : definitions)
    one.words = wordsOf(one.text);
  return definitions;
}

const std::vector<Definition> &definitions() {
  static const std::vector<Definition> all = parse();
  return all;
}

} // namespace

std::string llmopt::cuda::deviceFunctionsFor(StringRef text) {
  const std::vector<Definition> &all = definitions();
  llvm::StringMap<llvm::SmallVector<size_t>> byName;
  for (size_t i = 0; i < all.size(); ++i)
    byName[all[i].name].push_back(i);
  std::vector<bool> used(all.size());
  llvm::StringSet<> reached;
  auto reach = [&](const llvm::SmallVector<StringRef> &words) {
    for (StringRef word : words)
      reached.insert(word);
  };
  /// One of several of its name, for elements of a type that nothing has.
  auto isForOthers = [&](const Definition &one) {
    return byName[one.name].size() > 1 && llvm::any_of(one.words, [&](StringRef word) {
             auto named = byName.find(word);
             return named != byName.end() && all[named->second.front()].isType &&
                    !reached.contains(word);
           });
  };
  reach(wordsOf(text));
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < all.size(); ++i) {
      if (used[i] || !reached.contains(all[i].name) || isForOthers(all[i]))
        continue;
      used[i] = changed = true;
      reach(all[i].words);
    }
  }
  std::string result;
  for (size_t i = 0; i < definitions().size(); ++i)
    if (used[i])
      result += (definitions()[i].text +
                 (StringRef(definitions()[i].text).starts_with("typedef") ? "\n" : "\n\n"));
  return result;
}

StringRef llmopt::cuda::deviceLibraryText() {
  static const std::string all = [] {
    std::string text;
    for (const char *const *file = kDeviceFiles; *file; ++file)
      text += *file;
    return text;
  }();
  return all;
}
