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

constexpr const char *kMaskLine =
    "const bool is_\\d+ = n_|\\? [kv]_rows(_\\d+)?\\[i\\] : -1|item < n;";

const Rule kRules[] = {
    {"delete-barrier", "__syncthreads\\(\\);", ""},
    {"delete-wait", "copy_wait<\\d>\\(\\);", ""},
    {"wait-count", "copy_wait<0>", "copy_wait<1>"},
    {"wait-count", "copy_wait<1>", "copy_wait<2>"},
    {"delete-commit", "copy_commit\\(\\);", ""},
    // A comparison off by one.
    {"bound", " < ", " <= ", kMaskLine},
    {"bound", " <= ", " < ", kMaskLine},
    {"bound", " >= ", " > ", kMaskLine},
    {"bound", "minimum\\(key_end - (\\w+), ", "minimum(key_end - $1 + 1, "},
    {"bound", "(step_?\\d* < )(full_end|n_\\d+)", "$1$2 - 1", "for \\("},
    {"stride", "(p\\.\\w+_stride\\d)", "($1 + 8)"},
    {"page-index", "position / PAGE", "(position + 1) / PAGE"},
    {"page-index", "position % PAGE", "(position + 1) % PAGE"},
    {"page-index", "page \\* page_stride", "(page + 1) * page_stride"},
    {"page-index", "table\\[base \\+", "table[base + 1 +"},
    {"page-index", "u32\\(key\\) \\+ row", "u32(key) + row + 1"},
    {"page-index", "paged_row<(\\d+)>", "paged_row<2 * $1>", "="},
    {"page-index", "table_base = (.*);", "table_base = $1 + 1;"},
    // One side of an exchange looks in another chunk; or all in chunks of the same banks.
    {"swizzle",
     "\\.at\\((.*), (chunk|k \\* 2 \\+ lane / 16|k \\* 2 \\+ lane / 8 % 2|n \\+ lane / 16)\\)",
     ".at($1, ($2) ^ 1)"},
    {"swizzle", "row / \\(8 / SPAN\\) % SPAN", "row / (64 / SPAN) % SPAN"},
    {"swizzle", "column / run", "(column / run ^ 1)"},
    {"fragment", "second\\[0\\], second\\[1\\]", "second[1], second[0]"},
    {"fragment", "second\\[2\\], second\\[3\\]", "second[0], second[1]"},
    {"fragment", "\"r\"\\(a\\[1\\]\\), \"r\"\\(a\\[2\\]\\)", "\"r\"(a[2]), \"r\"(a[1])"},
    {"fragment", "\"\\+f\"\\(c\\[0\\]\\), \"\\+f\"\\(c\\[1\\]\\)", "\"+f\"(c[1]), \"+f\"(c[0])"},
    {"fragment", "\\* 4 \\+ i\\];", "* 4 + (i ^ 1)];"},
    {"fragment", "pack<(\\w+)>\\((\\w+)\\[i\\], (\\w+)\\[i \\+ 1\\]\\)",
     "pack<$1>($3[i + 1], $2[i])"},
    {"zero-fill", "used && left > 0 \\? \\(left < 16 \\? left : 16\\) : 0", "16"},
    {"zero-fill", "page < 0 \\? -1 : ", ""},
    {"zero-fill", "if \\(row >= count\\)", "if (false)"},
    {"zero-fill", "n_\\d+ < row_count \\? (n_\\d+) : -1", "$1"},
    {"zero-fill", "\\(n_\\d+ >= n_\\d+ && n_\\d+ < n_\\d+\\) \\? ([kv]_rows(?:_\\d+)?\\[i\\]) : -1",
     "$1"},
    {"zero-fill", "(n_\\d+|n_\\d+ \\+ .*) < (n_\\d+) \\? (.*) : -1;", "true ? $3 : -1;",
     "[kv]_rows"},
    {"rescale", "acc\\[i\\] = acc\\[i\\] \\* \\w+\\[[^;]*;", "acc[i] = acc[i];"},
    {"rescale", "fmaf\\(l\\[i\\], m\\[i\\], (\\w+\\[i\\])\\)", "(l[i] + $1)"},
    {"rescale", "l\\[i\\] = l\\[i\\] \\* [^;]*;", "l[i] = l[i];"},
    {"rescale", "t_2 = fmaf\\(t_2, t_1, t_6\\);", "t_2 = t_2 + t_6;"},
    {"rescale", "t\\[i\\] \\* t_1\\)", "t[i])"},
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
      found.push_back({rule.op, kernel, i + 1, line, changed[i], "", join(changed)});
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
    found.push_back({"move-barrier", kernel, i + 1, lines[i], changed[i], "", join(changed)});
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
    if (lines[j - 1].find("#pragma") != std::string::npos)
      --j;
    std::vector<std::string> changed = lines;
    changed[i] = "";
    // The pragma belongs to the loop behind it.
    changed[j - 1] += " __syncthreads();";
    found.push_back({"early-barrier", kernel, i + 1, lines[i], changed[i], "", join(changed)});
  }
}

/// All tiles of one buffer lie in the same place.
void dropStages(size_t kernel, const std::vector<std::string> &lines, std::vector<Mutant> &found) {
  for (const char *buffer : {"k_1_at", "v_1_at"}) {
    std::regex pattern(std::string("(") + buffer + " \\+ u32\\([^)]*\\)) % 2");
    std::vector<std::string> changed = lines;
    size_t first = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      changed[i] = std::regex_replace(lines[i], pattern, "$1 % 1");
      if (changed[i] != lines[i] && !first)
        first = i + 1;
    }
    if (first)
      found.push_back(
          {"stage", kernel, first, lines[first - 1], changed[first - 1], "", join(changed)});
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
