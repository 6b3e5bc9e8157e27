#include "codegen/compile/Nesting.h"

#include <algorithm>
#include <string>

namespace {

/// The index behind a string or a comment that begins at `at`; `at` itself at other text.
size_t skipped(std::string_view text, size_t at) {
  if (text[at] == '"') {
    size_t end = at + 1;
    while (end < text.size() && text[end] != '"' && text[end] != '\n')
      end += text[end] == '\\' ? 2 : 1;
    return std::min(end + 1, text.size());
  }
  return text.substr(at).starts_with("//") ? std::min(text.find('\n', at), text.size()) : at;
}

} // namespace

std::optional<std::pair<size_t, size_t>> llmopt::irNestedTooDeep(std::string_view text) {
  constexpr std::string_view kOpen = "({[<", kClose = ")}]>";
  if (text.starts_with("ML\xefR")) // bytecode
    return std::nullopt;
  std::string opened; // the brackets that would close what is open
  for (size_t i = 0; i < text.size(); ++i) {
    if (size_t end = skipped(text, i); end > i) {
      i = end - 1;
      continue;
    }
    if (text[i] == '-' && text.substr(i).starts_with("->")) {
      ++i;
    } else if (size_t open = kOpen.find(text[i]); open != std::string_view::npos) {
      opened.push_back(kClose[open]);
    } else if (kClose.find(text[i]) != std::string_view::npos) {
      // A '<' that is no bracket ends with what is around it.
      if (size_t begin = opened.rfind(text[i]); begin != std::string::npos)
        opened.resize(begin);
    }
    if (opened.size() > kMaxIrNesting) {
      std::string_view before = text.substr(0, i);
      return std::pair{1 + size_t(std::count(before.begin(), before.end(), '\n')),
                       i - (before.find_last_of('\n') + 1) + 1};
    }
  }
  return std::nullopt;
}
