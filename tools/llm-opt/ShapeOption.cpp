// See ShapeOption.h.
#include "tools/llm-opt/ShapeOption.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cmath>

namespace llmopt::cli {
namespace {

/// More sequences than any device has room for.
constexpr int64_t kMaxSequences = 1 << 20;

int64_t wholeNumber(const std::string &text) {
  size_t parsed = 0;
  int64_t number = std::stoll(text, &parsed);
  if (parsed != text.size())
    throw std::invalid_argument(text);
  if (number < 0)
    throw std::out_of_range(text);
  return number;
}

std::vector<int64_t> lengthsOf(const std::string &text) {
  std::vector<int64_t> list;
  for (const std::string &part : CLI::detail::split(text, ';')) {
    size_t times = part.find('x');
    int64_t count = times == std::string::npos ? 1 : wholeNumber(part.substr(0, times));
    if (count > kMaxSequences)
      throw std::out_of_range(part);
    int64_t length = wholeNumber(times == std::string::npos ? part : part.substr(times + 1));
    list.insert(list.end(), size_t(count), length);
  }
  return list;
}

double numberOf(const std::string &text) {
  size_t parsed = 0;
  double number = std::stod(text, &parsed);
  if (parsed != text.size())
    throw std::invalid_argument(text);
  if (!std::isfinite(float(number)))
    throw std::out_of_range(text);
  return number;
}

std::string textOf(const std::vector<int64_t> &lengths) {
  std::string text;
  for (size_t i = 0, next; i < lengths.size(); i = next) {
    for (next = i; next < lengths.size() && lengths[next] == lengths[i];)
      ++next;
    text += i ? ";" : "";
    text +=
        next - i == 1 ? fmt::format("{}", lengths[i]) : fmt::format("{}x{}", next - i, lengths[i]);
  }
  return text;
}

} // namespace

std::string lengthsText(const harness::Shape &shape) {
  return fmt::format("q={},kv={}", textOf(shape.queryLengths), textOf(shape.keyLengths));
}

llvm::Expected<harness::Shape> parseShape(const std::string &text, uint64_t seed) {
  harness::Shape shape;
  shape.seed = seed;
  for (const std::string &setting : CLI::detail::split(text, ',')) {
    size_t equals = setting.find('=');
    std::string name = setting.substr(0, equals),
                value = equals == std::string::npos ? "" : setting.substr(equals + 1);
    try {
      if (name == "q")
        shape.queryLengths = lengthsOf(value);
      else if (name == "kv")
        shape.keyLengths = lengthsOf(value);
      else
        shape.numbers[name] = numberOf(value);
    } catch (const std::out_of_range &) {
      return llvm::createStringError(
          fmt::format("--shape {}: a length is negative, or a number too large", setting));
    } catch (const std::exception &) {
      return llvm::createStringError(fmt::format(
          "--shape {}: no number after '='; write for example --shape q=1;1,kv=17;300,window=64",
          setting));
    }
  }
  if (shape.queryLengths.empty() || shape.queryLengths.size() != shape.keyLengths.size())
    return llvm::createStringError(
        fmt::format("--shape names {} query and {} key lengths; one of each for every "
                    "sequence is wanted, as in --shape q=1;1,kv=17;300",
                    shape.queryLengths.size(), shape.keyLengths.size()));
  return shape;
}

} // namespace llmopt::cli
