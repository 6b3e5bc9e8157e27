// See Writer.h.
#include "codegen/cuda/emit/Writer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <utility>

using namespace llmopt::cuda;

void Lines::append(const Lines &other) {
  text.insert(text.end(), other.text.begin(), other.text.end());
  places.insert(places.end(), other.places.begin(), other.places.end());
}

std::string Lines::str() const {
  std::string all;
  for (const std::string &line : text)
    all += line + "\n";
  return all;
}

namespace {

constexpr size_t kWidth = 100;

/// The last of the outermost places up to `room` where a statement can be broken, or npos.
size_t breakBefore(llvm::StringRef text, size_t room) {
  size_t best = llvm::StringRef::npos;
  int depth = 0, least = 1 << 20;
  for (size_t i = 1; i < std::min(room, text.size()); ++i) {
    char passed = text[i - 1];
    depth += passed == '(' || passed == '{' ? 1 : passed == ')' || passed == '}' ? -1 : 0;
    llvm::StringRef rest = text.substr(i);
    bool comma = passed == ' ' && i > 1 && text[i - 2] == ',';
    bool sign = passed == ' ' && (rest.starts_with("? ") || rest.starts_with(": ") ||
                                  rest.starts_with("&& ") || rest.starts_with("|| "));
    if ((comma || sign) && depth <= least)
      best = i, least = depth;
  }
  return best;
}

} // namespace

void Writer::line(const llvm::Twine &text) {
  std::string body = text.str();
  bool flush = body.empty() || body[0] == '#';
  bool whole = flush || llvm::StringRef(body).starts_with("//") ||
               llvm::StringRef(body).starts_with("extern");
  llvm::StringRef rest = body;
  std::string indent(flush ? 0 : 2 * depth, ' ');
  // Long statements go on in the next line, behind a comma or before an operator.
  while (!whole && indent.size() + rest.size() > kWidth) {
    size_t end = breakBefore(rest, kWidth - indent.size());
    if (end == llvm::StringRef::npos)
      break;
    lines.text.push_back(indent + rest.take_front(end).rtrim().str());
    lines.places.push_back(place);
    rest = rest.drop_front(end);
    indent = std::string(2 * depth + 4, ' ');
  }
  lines.text.push_back(indent + rest.str());
  lines.places.push_back(place);
}

void Writer::note(llvm::StringRef text) {
  if (!lines.text.empty() && !llvm::StringRef(lines.text.back()).ends_with("{"))
    line("");
  paragraph(text);
}

void Writer::paragraph(llvm::StringRef text) {
  size_t room = kWidth - 2 * depth - 3;
  while (text.size() > room) {
    size_t end = text.rfind(' ', room);
    if (end == llvm::StringRef::npos)
      break;
    comment(text.take_front(end));
    text = text.drop_front(end + 1);
  }
  comment(text);
}

void Writer::unrolled(llvm::StringRef index, int64_t count, int64_t step) {
  line("#pragma unroll");
  open("for (int " + index + " = 0; " + index + " < " + llvm::Twine(count) + "; " +
       (step == 1 ? "++" + index : index + " += " + llvm::Twine(step)) + ")");
}

Names::Names() {
  // Words of the language, of CUDA, and of the emitted text's own frame.
  for (const char *word :
       {"auto",    "bool",    "break",  "case",   "char",     "class",  "const",   "continue",
        "do",      "double",  "else",   "enum",   "float",    "for",    "if",      "int",
        "long",    "new",     "return", "short",  "signed",   "sizeof", "static",  "struct",
        "switch",  "this",    "void",   "while",  "lane",     "warp",   "p",       "Params",
        "shared",  "i",       "row",    "column", "u8",       "u16",    "u32",     "u64",
        "i8",      "i64",     "bf16",   "f16",    "min",      "max",    "exp",     "log",
        "minimum", "maximum", "pack",   "mma",    "infinity", "divide", "product", "unpack",
        "log2_e",  "ln_2"})
    used[word] = 1;
}

std::string Names::fresh(llvm::StringRef wish) {
  std::string name;
  for (char c : wish)
    name += llvm::isAlnum(c) ? c : '_';
  if (name.empty() || llvm::isDigit(name[0]))
    name = "v" + name;
  unsigned count = used.lookup(name);
  std::string result = count ? name + "_" + std::to_string(count) : name;
  set(name, count + 1);
  if (result == name)
    return result;
  if (used.lookup(result))
    return fresh(name);
  set(result, 1);
  return result;
}

std::string Names::freshOutside(llvm::StringRef wish) {
  auto open = std::exchange(scopes, {});
  std::string name = fresh(wish);
  scopes = std::move(open);
  return name;
}

void Names::set(llvm::StringRef name, unsigned count) {
  unsigned &entry = used[name];
  if (!scopes.empty())
    scopes.back().push_back({name.str(), entry});
  entry = count;
}

void Names::leave() {
  if (scopes.empty())
    return;
  for (auto &[name, count] : llvm::reverse(scopes.back()))
    used[name] = count;
  scopes.pop_back();
}
