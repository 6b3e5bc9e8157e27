// Reads what ptxas -v prints:
//
//   ptxas info    : Function properties for decode
//   ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
//   ptxas info    : Used 173 registers, used 1 barriers, 512 bytes smem, 364 bytes cmem[0]
//   ptxas info    : (C7511) Potential Performance Loss: ...
#include "codegen/cuda/nvrtc/Nvrtc.h"

#include <algorithm>
#include <charconv>

namespace llmopt::cuda {

namespace {

/// The number that stands before `unit` in a line; 0 where the line has no such unit.
uint32_t numberBefore(std::string_view line, std::string_view unit) {
  size_t at = line.find(unit);
  if (at == std::string_view::npos)
    return 0;
  size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9')
    --begin;
  uint32_t value = 0;
  std::from_chars(line.data() + begin, line.data() + at, value);
  return value;
}

/// "(C7511) text" or "warning : text" of a line of the assembler; else empty.
std::string warningOf(std::string_view line) {
  if (!line.starts_with("ptxas"))
    return "";
  size_t code = line.find("(C7");
  if (code != std::string_view::npos && code + 7 < line.size() && line[code + 6] == ')')
    return fmt::format("{}: {}", line.substr(code + 1, 5), line.substr(code + 8));
  size_t colon = line.find(": ");
  if (line.find("warning") < colon && colon != std::string_view::npos)
    return std::string(line.substr(colon + 2));
  return "";
}

} // namespace

/// A kernel and the functions that it calls: the most of each.
bundle::ImageFigures parseAssemblerLog(std::string_view log) {
  bundle::ImageFigures figures;
  auto atLeast = [](uint32_t &figure, uint32_t value) { figure = std::max(figure, value); };
  while (!log.empty()) {
    size_t end = std::min(log.find('\n'), log.size());
    std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    if (line.find(" bytes stack frame") != std::string_view::npos) {
      atLeast(figures.stackBytes, numberBefore(line, " bytes stack frame"));
      atLeast(figures.spillStoreBytes, numberBefore(line, " bytes spill stores"));
      atLeast(figures.spillLoadBytes, numberBefore(line, " bytes spill loads"));
    } else if (line.find("Used ") != std::string_view::npos &&
               line.find(" registers") != std::string_view::npos) {
      atLeast(figures.registers, numberBefore(line, " registers"));
      atLeast(figures.sharedBytes, numberBefore(line, " bytes smem"));
    }
    if (std::string warning = warningOf(line); !warning.empty())
      figures.warnings.push_back(std::move(warning));
  }
  return figures;
}

} // namespace llmopt::cuda
