#include "tools/import/Text.h"

#include <fmt/format.h>

using namespace llmopt::importer;

std::string llmopt::importer::floatLiteral(double value) {
  std::string digits = fmt::format("{}", value);
  if (digits.find('.') != std::string::npos)
    return digits;
  size_t exponent = digits.find('e');
  if (exponent == std::string::npos)
    return digits + ".0";
  return digits.insert(exponent, ".0");
}

std::string llmopt::importer::oneLine(std::string_view text) {
  std::string result(text);
  for (char &c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = '?';
  return result;
}

std::string llmopt::importer::ranges(const std::vector<int64_t> &numbers) {
  size_t count = numbers.size();
  if (count > 3 && numbers[1] - numbers[0] > 1) {
    int64_t step = numbers[1] - numbers[0];
    bool regular = true;
    for (size_t i = 1; i < count; ++i)
      regular &= numbers[i] - numbers[i - 1] == step;
    if (regular)
      return fmt::format("{}, {}, ..., {}", numbers[0], numbers[1], numbers.back());
  }
  std::string result;
  for (size_t first = 0, last = 0; first < count; first = last + 1) {
    last = first;
    while (last + 1 < count && numbers[last + 1] == numbers[last] + 1)
      ++last;
    if (!result.empty())
      result += ", ";
    result += fmt::format("{}", numbers[first]);
    if (last > first)
      result += fmt::format("-{}", numbers[last]);
  }
  return result;
}

std::string_view llmopt::importer::baseName(std::string_view path) {
  size_t slash = path.find_last_of('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}
