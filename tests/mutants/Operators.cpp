// See Operators.h.
#include "tests/mutants/Operators.h"

#include <algorithm>
#include <regex>
#include <sstream>

namespace llmopt::mutants {
namespace {

/// Each match of `pattern` in a line that matches `where` becomes `replacement`.
struct Rule {
  const char *op;
  const char *pattern;
  const char *replacement;
  const char *where = "";
};

/// Lines that compare to bound what is read, computed or written.
constexpr const char *kBoundLine =
    "const bool (more|is_of_item|mask_shows|visible) = |const bool is(_\\d+)? = "
    ".*(n|key)(_\\d+)?\\)? |"
    "^ *(&&|\\|\\|) |row_count|< rows_left|for \\((i64|int) (item|tile|split) = |"
    "for \\(int row = |>= (int\\(|may_begin|key_begin)|row < count|if \\(tile < |next_key(_\\d+)? "
    "< |"
    "while \\(\\+\\+tile < ";

const Rule kRules[] = {
    {"delete-barrier", "__syncthreads\\(\\);", ""},
    {"delete-wait", "copy_wait<\\d>\\(\\);", ""},
    {"wait-count", "copy_wait<0>", "copy_wait<1>"},
    {"delete-commit", "copy_commit\\(\\);", ""},
    // A comparison off by one.
    {"bound", " < ", " <= ", kBoundLine},
    {"bound", " <= ", " < ", kBoundLine},
    {"bound", " >= ", " > ", kBoundLine},
    // Loops over tiles and splits.
    {"loop", "(i64|int) tile = (\\w+ - \\d);", "$1 tile = $2 + 1;"},
    {"loop", "while \\(\\+\\+tile < (\\w+)\\)", "while (++tile < $1 - 1)"},
    {"loop", "(split = .* < )(\\w+);", "$1$2 - 1;"},
    {"loop", "for \\(u32 turn = 0;", "for (u32 turn = 4;"},
    {"loop", "const bool more = (\\w+) < ", "const bool more = $1 + 1 < "},
    {"loop", "(may_begin|key_begin) < (may_end) \\?", "$1 + 1 < $2 ?"},
    {"loop", "\\((may_end) \\+ 63\\) >> 6", "($1 + 62) >> 6", "tile_end ="},
    {"loop", "\\((may_end(?:_\\d+)?) \\+ 63\\) >> 6", "($1 + 64) >> 6"},
    {"loop", "(may_begin|key_begin|next_key(?:_\\d+)?) >> 6", "($1 + 64) >> 6",
     "first_tile = |next_tile"},
    {"loop", "first_tile = may_begin >> 6", "first_tile = (may_begin + 63) >> 6"},
    // Which keys: of a tile, of the rows' MAY and SURELY sets, of a split.
    {"keys", "minimum\\((may_end|key_end) - (\\w+), ", "minimum($1 - $2 + 1, "},
    {"keys", "minimum\\((may_end|key_end) - (\\w+), ", "minimum($1 - $2 - 1, "},
    {"keys", "(sure_to|sure_end)(_\\d+)? < tile_key \\+ 64", "$1$2 < tile_key + 63"},
    {"keys", "tile_key < sure_begin \\|\\| ", ""},
    {"keys", "sure_begin <= (tile_key|sure_to)", "sure_begin - 1 <= $1"},
    {"keys", "after_(lowest|highest) = (\\w+) \\+ 1;", "after_$1 = $2;"},
    {"keys", "after_(lowest|highest) = (\\w+) \\+ 1;", "after_$1 = $2 + 2;"},
    {"keys", "after_row = (.*) \\+ 1;", "after_row = $1;"},
    {"keys", "after_row = (.*) \\+ 1;", "after_row = $1 + 2;"},
    {"keys", "first_seen\\[i\\] = (int\\()?first", "first_seen[i] = $1first + 1"},
    {"keys", "keys_seen\\[i\\] = (int\\()?maximum\\(end", "keys_seen[i] = $1maximum(end - 1"},
    {"keys", "minimum\\(item_key_end, key_len\\)", "minimum(item_key_end + 1, key_len)"},
    {"keys", "since_first = (.*);", "since_first = $1 + 1;"},
    {"stride", "(p\\.\\w+_stride\\d)", "($1 + 8)"},
    {"page-index", "\\) / PAGE\\]", " + 1) / PAGE]"},
    {"page-index", "slot = int\\(u32\\((.*)\\) % (\\d+)\\)", "slot = int(u32($1 + 1) % $2)"},
    {"page-index", "i64\\((next_page)\\) \\* p", "i64($1 + 1) * p"},
    // Pages of another tile than the one whose copies come next.
    {"page-index", "later_tile = tile \\+ 2", "later_tile = tile + 1"},
    {"page-index", "later_tile = tile \\+ 2", "later_tile = tile + 3"},
    {"page-index", "lane / (\\d+) \\* (\\d+) \\+ i", "lane / $1 * $2 + (i ^ 1)"},
    {"page-index", "table\\[base \\+", "table[base + 1 +"},
    {"page-index", "u32\\(key\\) \\+ row", "u32(key) + row + 1"},
    {"page-index", "page_of<(\\d+)>", "page_of<2 * $1>", "="},
    {"page-index", "table_base = (.*);", "table_base = $1 + 1;"},
    // One side of an exchange looks in another chunk; or all in chunks of the same banks.
    {"swizzle", "set\\((.*), (lane / 16|lane / 8 % 2)\\)", "set($1, ($2) ^ 1)"},
    {"swizzle", "to\\.at\\(row, lane,", "to.at(row, lane ^ 1,"},
    {"swizzle", "near\\[chunks % SPAN / 2\\]", "near[chunks % SPAN / 2 ^ 1]"},
    {"swizzle", "at\\(row \\+ rows % 8, ", "at(row, "},
    {"swizzle", "row / \\(8 / SPAN\\) % SPAN", "row / (64 / SPAN) % SPAN"},
    {"swizzle", "column / run", "(column / run ^ 1)"},
    {"fragment", "\\{b0, b1\\}", "{b1, b0}"},
    {"fragment", "\\{b2, b3\\}", "{b0, b1}"},
    {"fragment", "\"r\"\\(a\\[1\\]\\), \"r\"\\(a\\[2\\]\\)", "\"r\"(a[2]), \"r\"(a[1])"},
    {"fragment", "\"\\+f\"\\(c\\[0\\]\\), \"\\+f\"\\(c\\[1\\]\\)", "\"+f\"(c[1]), \"+f\"(c[0])"},
    {"fragment", "\\{b4, b5\\}", "{b5, b4}"},
    {"fragment", "\\{b6, b7\\}", "{b4, b5}"},
    {"fragment", "\\{%12, %13, %14, %15\\}", "{%8, %9, %10, %11}"},
    {"fragment", "\\[%16 \\+ %17\\]", "[%16]"},
    {"fragment", "further = apart \\* (.*);", "further = apart * $1 / 2;"},
    {"fragment", "registers \\+ \\(m \\* K \\+ k\\)", "registers + (m * K + (k ^ 1))"},
    {"fragment", "\"n\"\\(8 \\* PITCH\\), \"n\"\\(8 \\* 4\\)", "\"n\"(8 * 4), \"n\"(8 * PITCH)"},
    {"fragment", "pack<(\\w+)>\\((\\w+)\\[i\\], (\\w+)\\[i \\+ 1\\]\\)",
     "pack<$1>($3[i + 1], $2[i])"},
    {"zero-fill", "present && some \\? \\(full \\|\\| left > 16 \\? 16 : left\\) : 0", "16"},
    {"zero-fill", "present && some \\? minimum\\(left, 16\\) : 0", "16"},
    {"zero-fill", "column < used\\)", "true)"},
    {"zero-fill", "!\\(next_page < 0\\)", "true"},
    {"zero-fill", "row < count \\? (.*) : -1", "$1"},
    // An address for rows that have none.
    {"zero-fill", "\\w+ < row_count \\? (row_offset) : -1", "$1"},
    {"zero-fill", "\\(\\w+ < row_count && is_whole\\) \\? (\\w+) : -1", "is_whole ? $1 : -1"},
    {"zero-fill", "\\(\\w+ < row_count && is_whole\\) \\? (\\w+) : -1", "$1"},
    {"zero-fill", "key(_\\d+)? >= (?:int\\()?may_begin\\)? \\? (int\\(\\w+\\)) : -1", "$2"},
    {"zero-fill", "is(?:_\\d+)? \\? (int\\(\\w+\\)) : -1", "$1"},
    {"zero-fill", "= copy_row \\+ i \\* 16 < (\\w+_keys)$", "= true"},
    {"zero-fill", "(next|later)_count = [^?]* \\? (\\w+) : 0", "$1_count = 64"},
    {"rescale", "acc\\[i\\] = acc\\[i\\] \\* \\w+\\[[^;]*;", "acc[i] = acc[i];"},
    {"rescale", "fmaf\\(l\\[i\\], alpha\\[i\\], (\\w+\\[i\\])\\)", "(l[i] + $1)"},
    {"rescale", "l\\[i\\] = l\\[i\\] \\* [^;]*;", "l[i] = l[i];"},
    {"rescale", "l = fmaf\\(l, alpha, weight\\);", "l = l + weight;"},
    {"rescale", "acc\\[i\\] \\* alpha\\)", "acc[i])"},
    {"rescale", "m\\[i\\] = m_new(\\w*)\\[i\\];", "m[i] = m[i];"},
    {"stage", "(\\+ u32\\([^)]*\\)) % 2", "$1 % 1"},
};

std::vector<std::string> linesOf(const std::string &text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

std::string join(const std::vector<std::string> &lines) {
  std::string text;
  for (const std::string &line : lines)
    text += line + "\n";
  return text;
}

std::string nameOf(const Rule &rule) {
  return std::string(rule.pattern) + " => " + rule.replacement;
}

void apply(const Rule &rule, size_t kernel, const std::vector<std::string> &lines,
           std::vector<Mutant> &found) {
  std::regex pattern(rule.pattern), where(rule.where);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string &line = lines[i];
    if (line.starts_with("//") || !std::regex_search(line, where))
      continue;
    for (std::sregex_iterator match(line.begin(), line.end(), pattern), end; match != end;
         ++match) {
      std::vector<std::string> changed = lines;
      changed[i] = match->prefix().str() + match->format(rule.replacement) + match->suffix().str();
      // The prefix of a later match begins at the match before it.
      if (match->position() > 0)
        changed[i] = line.substr(0, size_t(match->position())) + match->format(rule.replacement) +
                     match->suffix().str();
      found.push_back({rule.op, nameOf(rule), kernel, i + 1, line, changed[i], "", join(changed)});
    }
  }
}

/// Moves a barrier behind the next statement of its block that reads or stores to shared memory.
void moveBarriers(size_t kernel, const std::vector<std::string> &lines,
                  std::vector<Mutant> &found) {
  std::regex touches("product|load_first_operand|store_shared|load_shared");
  auto indentOf = [](const std::string &line) { return line.find_first_not_of(' '); };
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find("__syncthreads();") == std::string::npos)
      continue;
    size_t indent = indentOf(lines[i]), j = i + 1;
    while (j < lines.size() && !std::regex_search(lines[j], touches))
      ++j;
    // To the end of the statement that holds the access.
    while (j < lines.size() && indentOf(lines[j]) != std::string::npos &&
           indentOf(lines[j]) > indent)
      ++j;
    if (j >= lines.size() || indentOf(lines[j]) != indent || lines[j].back() == '{')
      continue;
    std::vector<std::string> changed = lines;
    changed[i] = "";
    changed[j] += " __syncthreads();";
    found.push_back(
        {"move-barrier", "move-barrier", kernel, i + 1, lines[i], changed[i], "", join(changed)});
  }
}

/// Moves a barrier before the thread's own wait or stores that it is there for: it arrives too
/// early.
void arriveEarly(size_t kernel, const std::vector<std::string> &lines, std::vector<Mutant> &found) {
  std::regex waited("copy_wait<|store_shared");
  auto indentOf = [](const std::string &line) { return line.find_first_not_of(' '); };
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find("__syncthreads();") == std::string::npos)
      continue;
    size_t indent = indentOf(lines[i]), j = i;
    bool touches = false;
    // Up to the head of the nearest statement of this block that waits or stores.
    while (j > 0 && lines[j - 1].find("__syncthreads") == std::string::npos) {
      size_t at = indentOf(lines[--j]);
      touches |= std::regex_search(lines[j], waited);
      if (at != std::string::npos &&
          (at < indent || (touches && at == indent && lines[j][at] != '}')))
        break;
    }
    if (!touches || j == 0 || indentOf(lines[j]) != indent)
      continue;
    // Pragmas and comments belong to what stands behind them.
    while (j > 1 && (lines[j - 1].find("#pragma") != std::string::npos ||
                     lines[j - 1].find("//") != std::string::npos))
      --j;
    std::vector<std::string> changed = lines;
    changed[i] = "";
    changed[j - 1] += " __syncthreads();";
    found.push_back(
        {"early-barrier", "early-barrier", kernel, i + 1, lines[i], changed[i], "", join(changed)});
  }
}

constexpr const char *kStagedBuffers[] = {"k_at", "v_at"};

/// All tiles of one buffer lie in the same place.
void dropStages(size_t kernel, const std::vector<std::string> &lines, std::vector<Mutant> &found) {
  for (const char *buffer : kStagedBuffers) {
    std::regex pattern(std::string("(") + buffer + " \\+ u32\\([^)]*\\)) % 2");
    std::vector<std::string> changed = lines;
    size_t first = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      changed[i] = std::regex_replace(lines[i], pattern, "$1 % 1");
      if (changed[i] != lines[i] && !first)
        first = i + 1;
    }
    if (first)
      found.push_back({"stage", buffer, kernel, first, lines[first - 1], changed[first - 1], "",
                       join(changed)});
  }
}

/// The first line from `line` (from 0) on that is more than a brace.
std::string nextLine(const std::vector<std::string> &lines, size_t line) {
  while (line < lines.size() && lines[line].find_first_not_of(" {}") == std::string::npos)
    ++line;
  return line < lines.size() ? lines[line] : "";
}

} // namespace

std::vector<std::string> operators() {
  std::vector<std::string> names = {"move-barrier", "early-barrier"};
  for (const Rule &rule : kRules)
    if (std::find(names.begin(), names.end(), rule.op) == names.end())
      names.push_back(rule.op);
  return names;
}

std::vector<std::string> rulesOf(const std::string &op) {
  std::vector<std::string> names;
  for (const Rule &rule : kRules)
    if (op == rule.op)
      names.push_back(nameOf(rule));
  if (op == "move-barrier" || op == "early-barrier")
    names.push_back(op);
  if (op == "stage")
    names.insert(names.end(), std::begin(kStagedBuffers), std::end(kStagedBuffers));
  return names;
}

std::vector<Mutant> mutantsOf(const std::string &op, const std::vector<std::string> &kernels) {
  std::vector<Mutant> found;
  for (size_t kernel = 0; kernel < kernels.size(); ++kernel) {
    std::vector<std::string> lines = linesOf(kernels[kernel]);
    for (const Rule &rule : kRules)
      if (op == rule.op)
        apply(rule, kernel, lines, found);
    if (op == "move-barrier")
      moveBarriers(kernel, lines, found);
    if (op == "early-barrier")
      arriveEarly(kernel, lines, found);
    if (op == "stage")
      dropStages(kernel, lines, found);
    for (Mutant &mutant : found)
      if (mutant.kernel == kernel)
        mutant.after = nextLine(lines, mutant.line);
  }
  return found;
}

} // namespace llmopt::mutants
