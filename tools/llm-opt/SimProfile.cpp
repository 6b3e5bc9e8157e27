// See SimProfile.h.
#include "tools/llm-opt/SimProfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace llmopt::cli {

namespace {

constexpr size_t kMost = 27; ///< characters that fit the first column of a table

/// A name's begin.
std::string shortened(std::string_view text) {
  return text.size() <= kMost ? std::string(text) : fmt::format("{}...", text.substr(0, kMost - 3));
}
/// A place's end, which has the line.
std::string shortenedPlace(std::string_view text) {
  return text.size() <= kMost ? std::string(text)
                              : fmt::format("...{}", text.substr(text.size() - (kMost - 3)));
}

/// The file's name without its folder.
std::string placeOf(const LineProfile &line) {
  std::string_view file = line.file;
  return fmt::format("{}:{}", file.empty() ? "ptx" : file.substr(file.rfind('/') + 1), line.line);
}

} // namespace

std::vector<LineProfile> byLine(const sim::Profile &profile) {
  std::map<std::pair<std::string, uint32_t>, LineProfile> lines;
  for (const sim::InstProfile &inst : profile.instructions) {
    if (!inst.warps)
      continue;
    bool hasSource = !inst.sourceFile.empty();
    LineProfile &line = lines[{inst.sourceFile, hasSource ? inst.sourceLine : inst.line}];
    line.file = inst.sourceFile;
    line.line = hasSource ? inst.sourceLine : inst.line;
    line.warps += inst.warps;
    line.lanes += inst.lanes;
    line.mma += inst.cls == sim::InstClass::Matrix ? inst.warps : 0;
    line.barriers += inst.cls == sim::InstClass::Barrier ? inst.warps : 0;
    line.globalBytes += inst.globalLoadBytes + inst.globalStoreBytes;
    line.sectors += inst.globalSectors;
    line.wavefronts += inst.sharedWavefronts;
    line.wavefrontsIdeal += inst.sharedIdeal;
    line.divergent += inst.divergentBranches;
  }
  std::vector<LineProfile> list;
  for (auto &[place, line] : lines)
    list.push_back(std::move(line));
  return list;
}

nlohmann::ordered_json profileJson(const sim::Profile &profile) {
  nlohmann::ordered_json lines = nlohmann::ordered_json::array(), buffers = lines;
  for (const LineProfile &line : byLine(profile))
    lines.push_back({{"file", line.file},
                     {"line", line.line},
                     {"warp_instructions", line.warps},
                     {"lane_instructions", line.lanes},
                     {"mma", line.mma},
                     {"barriers", line.barriers},
                     {"global_bytes", line.globalBytes},
                     {"global_sectors", line.sectors},
                     {"shared_wavefronts", line.wavefronts},
                     {"shared_wavefronts_ideal", line.wavefrontsIdeal},
                     {"divergent_branches", line.divergent}});
  for (const sim::BufferProfile &buffer : profile.buffers)
    buffers.push_back({{"name", buffer.name},
                       {"load_bytes", buffer.loadBytes},
                       {"store_bytes", buffer.storeBytes},
                       {"sectors", buffer.sectors},
                       {"unique_load_bytes", buffer.uniqueLoadBytes},
                       {"unique_store_bytes", buffer.uniqueStoreBytes}});
  return {{"lines", lines}, {"buffers", buffers}};
}

std::string profileText(const sim::Profile &profile, size_t most) {
  std::vector<LineProfile> lines = byLine(profile);
  std::sort(lines.begin(), lines.end(), [](const LineProfile &a, const LineProfile &b) {
    return std::tie(b.warps, a.file, a.line) < std::tie(a.warps, b.file, b.line);
  });
  size_t hidden = lines.size() > most ? lines.size() - most : 0;
  lines.resize(lines.size() - hidden);
  std::string text =
      fmt::format("{:<28}{:>14}{:>8}{:>12}{:>14}{:>12}{:>14}{:>10}\n", "line", "warp instr.",
                  "lanes", "mma", "global bytes", "sectors", "wavefronts", "ideal");
  for (const LineProfile &line : lines)
    text += fmt::format("{:<28}{:>14}{:>8.1f}{:>12}{:>14}{:>12}{:>14}{:>10}\n",
                        shortenedPlace(placeOf(line)), line.warps,
                        double(line.lanes) / double(line.warps), line.mma, line.globalBytes,
                        line.sectors, line.wavefronts, line.wavefrontsIdeal);
  if (hidden)
    text += fmt::format("and {} lines more\n", hidden);
  text += fmt::format("\n{:<28}{:>14}{:>14}{:>15}{:>14}{:>14}\n", "array", "loaded", "stored",
                      "sectors' bytes", "unique loaded", "unique stored");
  constexpr uint64_t kSectorBytes = 32;
  for (const sim::BufferProfile &buffer : profile.buffers)
    text += fmt::format("{:<28}{:>14}{:>14}{:>15}{:>14}{:>14}\n", shortened(buffer.name),
                        buffer.loadBytes, buffer.storeBytes, buffer.sectors * kSectorBytes,
                        buffer.uniqueLoadBytes, buffer.uniqueStoreBytes);
  return text;
}

} // namespace llmopt::cli
