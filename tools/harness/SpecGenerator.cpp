#include "tools/harness/SpecGenerator.h"

#include "tools/harness/Random.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <array>
#include <vector>

namespace llmopt::harness {

namespace {

using llvm::formatv;

class SpecWriter {
public:
  explicit SpecWriter(uint64_t seed) : random(seed, "spec") {}
  std::string write();

private:
  std::string merge();
  void chooseDimensions();
  void chooseOperands();
  std::string cacheType();
  std::string mask(int depth);
  std::string maskLeaf();
  std::string scores();
  std::string options();
  std::string maskRegion();
  std::string scoreRegion();
  /// A run-time number: the literal, or `argN` for a new operand.
  std::string integer(int64_t lo, int64_t hi);
  std::string real(double lo, double hi);
  std::string newArg(std::string type);
  std::string dims(std::initializer_list<std::string> extents) const {
    return llvm::join(extents, "x");
  }
  std::string tensor(std::initializer_list<std::string> extents) const {
    return "tensor<" + llvm::join(extents, "x") + "x" + type + ">";
  }
  static std::string n(int64_t value) { return std::to_string(value); }

  Random random;
  std::string type;
  int64_t kvHeads = 1, heads = 1, d = 64, dv = 64;
  bool raggedQuery = false, paged = false, appends = false, lse = false, customMask = false;
  std::string tree;                            ///< the mask, once it is there
  std::string head;                            ///< what comes before the op
  std::vector<std::string> parameters;         ///< of the function
  std::vector<std::string> operands, types;    ///< of the op
  std::vector<std::string> argNames, argTypes; ///< its `args`
};

std::string SpecWriter::newArg(std::string argType) {
  std::string name = "%a" + n(int64_t(argNames.size()));
  argNames.push_back(name);
  argTypes.push_back(argType);
  parameters.push_back(name + ": " + argType);
  return "arg" + n(int64_t(argNames.size()) - 1);
}

std::string SpecWriter::integer(int64_t lo, int64_t hi) {
  if (random.chance(0.7))
    return n(random.integer(lo, hi));
  const char *wide = argNames.size() % 2 ? "i64" : "i32";
  return newArg(random.chance(0.5) ? wide : "tensor<" + n(heads) + "x" + wide + ">");
}

std::string SpecWriter::real(double lo, double hi) {
  if (random.chance(0.7))
    return formatv("{0:f4}", lo + (hi - lo) * random.uniform());
  return newArg(random.chance(0.5) ? "f32" : "tensor<" + n(heads) + "xf32>");
}

void SpecWriter::chooseDimensions() {
  type = random.pick(std::array{"f32", "f16", "bf16"});
  kvHeads = random.pick(std::array{1, 1, 2, 2, 3, 4, 5});
  int64_t group = random.pick(std::array{1, 2, 3, 4, 5, 6, 7, 8, 12, 16});
  while (kvHeads * group > 24)
    group = (group + 1) / 2;
  heads = kvHeads * group;
  const std::array sizes = {1,  2,  3,  7,   8,   16,  17,  32,  40,  64,  64,
                            72, 80, 96, 100, 128, 128, 136, 160, 192, 256, 288};
  d = random.pick(sizes);
  dv = random.chance(0.65) ? d : random.pick(sizes);
}

std::string SpecWriter::cacheType() {
  bool interleaved = random.chance(0.3);
  if (interleaved)
    dv = d;
  std::string text = formatv("!attn.kv_cache<{0}x{1}x{2}", kvHeads, d, type);
  if (dv != d)
    text += formatv(", v_dim = {0}", dv);
  text += formatv(", page = {0}", random.pick(std::array{1, 3, 8, 16, 16, 32, 64, 100, 256}));
  if (random.chance(0.4))
    text += ", head_major";
  if (interleaved)
    text += ", interleaved";
  if (random.chance(0.4))
    text += ", indptr";
  return text + ">";
}

void SpecWriter::chooseOperands() {
  int64_t form = random.integer(0, 3); // 0 dense, 1 ragged, 2 and 3 paged
  paged = form >= 2;
  raggedQuery = form == 1 || (paged && random.chance(0.7));
  std::string cache = paged ? cacheType() : "";
  auto rows = [&](bool isRagged, int64_t rowHeads, int64_t dim) {
    return isRagged ? tensor({"?", n(rowHeads), n(dim)}) : tensor({"?", "?", n(rowHeads), n(dim)});
  };
  auto add = [&](std::string name, std::string operandType) {
    parameters.push_back(name + ": " + operandType);
    operands.push_back(name);
    types.push_back(operandType);
  };
  add("%q", rows(raggedQuery, heads, d));
  if (paged) {
    add("%kv", cache);
    add("%seq", "!attn.sequences");
    appends = random.chance(0.2);
    if (appends) {
      std::string k = tensor({"?", n(kvHeads), n(d)}), v = tensor({"?", n(kvHeads), n(dv)});
      parameters.insert(parameters.end(), {"%nk: " + k, "%nv: " + v, "%slots: tensor<?xi64>"});
      head = formatv("  attn.append %nk, %nv, %slots, %kv : {0}, {1}, tensor<?xi64>, {2}\n", k, v,
                     cache);
    }
    return;
  }
  add("%k", rows(form == 1, kvHeads, d));
  add("%v", rows(form == 1, kvHeads, dv));
  if (form == 1 || random.chance(0.5))
    add("%seq", "!attn.sequences");
}

std::string SpecWriter::maskLeaf() {
  switch (random.integer(0, 10)) {
  case 0:
    return "causal<top_left>";
  case 10:
    if (tree.empty())
      tree = "tree<" + newArg(raggedQuery ? "tensor<?xi64>" : "tensor<?x?xi64>") + ">";
    return tree;
  case 1:
    return "window<" + integer(1, 40) + ">";
  case 2: {
    std::string left = random.chance(0.2) ? "-1" : integer(0, 30);
    return "window<left = " + left + ", right = " + (random.chance(0.2) ? "-1" : integer(0, 20)) +
           ">";
  }
  case 3:
    return "sink<" + integer(0, 5) + ">";
  case 4:
    return "dilated<" + integer(1, 5) + ">";
  case 5:
    return "chunked<" + integer(1, 50) + ">";
  case 6: {
    auto extent = [&] { return random.chance(0.5) ? "1" : "?"; };
    std::string shape = dims({extent(), random.chance(0.5) ? "1" : n(heads), extent(), "?"});
    return "dense<" + newArg("tensor<" + shape + (random.chance(0.5) ? "xi1>" : "xi8>")) + ">";
  }
  case 7:
    if (!customMask) {
      customMask = true;
      return "custom";
    }
    return "causal";
  default:
    return "causal";
  }
}

std::string SpecWriter::mask(int depth) {
  if (depth == 0 || random.chance(0.3))
    return maskLeaf();
  if (random.chance(0.15))
    return "not (" + mask(depth - 1) + ")";
  const char *join = random.chance(0.6) ? " and " : " or ";
  std::string text;
  for (int64_t i = 0, count = random.integer(2, 3); i < count; ++i)
    text += (i ? join : "") + ("(" + mask(depth - 1) + ")");
  return text;
}

std::string SpecWriter::maskRegion() {
  std::string body;
  int64_t number = random.integer(1, 9);
  switch (random.integer(0, 4)) {
  case 4: // a captured run-time value (A31)
    parameters.push_back("%limit: index");
    body = "    %t = arith.subi %i, %j : index\n    %r = arith.cmpi sle, %t, %limit : index\n";
    break;
  case 0: // affine: bounds can be found
    body = formatv("    %n = arith.constant {0} : index\n    %t = arith.addi %j, %n : index\n"
                   "    %r = arith.cmpi sle, %t, %i : index\n",
                   number);
    break;
  case 1: // every n-th key
    body = formatv("    %n = arith.constant {0} : index\n    %z = arith.constant 0 : index\n"
                   "    %t = arith.remui %j, %n : index\n    %r = arith.cmpi eq, %t, %z : index\n",
                   number);
    break;
  case 2: // depends on head and batch
    body = formatv("    %n = arith.constant {0} : index\n    %x = arith.addi %h, %b : index\n"
                   "    %y = arith.muli %x, %n : index\n    %r = arith.cmpi sge, %j, %y : index\n",
                   number);
    break;
  default: // same chunk, or the first keys
    body =
        formatv("    %n = arith.constant {0} : index\n    %x = arith.floordivsi %i, %n : index\n"
                "    %y = arith.floordivsi %j, %n : index\n    %s = arith.cmpi eq, %x, %y : index\n"
                "    %f = arith.cmpi slt, %j, %n : index\n    %r = arith.ori %s, %f : i1\n",
                number);
  }
  return " where {\n  ^bb0(%b: index, %h: index, %i: index, %j: index):\n" + body +
         "    attn.yield %r : i1\n  }";
}

std::string SpecWriter::scoreRegion() {
  std::string body;
  std::string c = formatv("    %c = arith.constant {0:f3} : f32\n", 0.1 + random.uniform());
  std::string distance =
      "    %e = arith.subi %i, %j : index\n    %w = arith.index_cast %e : index to i32\n"
      "    %x = arith.sitofp %w : i32 to f32\n";
  switch (random.integer(0, 5)) {
  case 5: // a captured run-time value
    parameters.push_back("%factor: f32");
    body = "    %r = arith.mulf %s, %factor : f32\n";
    break;
  case 0:
    body = c + "    %m = arith.mulf %s, %c : f32\n    %r = arith.addf %m, %c : f32\n";
    break;
  case 1:
    body = c + distance + "    %m = arith.mulf %x, %c : f32\n    %r = arith.subf %s, %m : f32\n";
    break;
  case 2:
    body = c + "    %m = math.tanh %s : f32\n    %y = math.exp %m : f32\n    %r = arith.mulf %y, "
               "%c : f32\n";
    break;
  case 3: // a score of -inf hides the key
    body = "    %c = arith.constant 0xFF800000 : f32\n    %n = arith.constant 3 : index\n"
           "    %z = arith.constant 0 : index\n    %t = arith.remui %j, %n : index\n"
           "    %p = arith.cmpi eq, %t, %z : index\n    %r = arith.select %p, %c, %s : f32\n";
    break;
  default:
    body = c + distance +
           "    %y = math.absf %x : f32\n    %l = math.log1p %y : f32\n"
           "    %m = arith.mulf %l, %c : f32\n    %r = arith.subf %s, %m : f32\n";
  }
  return " score {\n  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):\n" + body +
         "    attn.yield %r : f32\n  }";
}

std::string SpecWriter::scores() {
  std::vector<std::string> clauses;
  if (random.chance(0.3))
    clauses.push_back(" softcap(" + real(2, 40) + ")");
  if (random.chance(0.25)) {
    auto extent = [&] { return random.chance(0.5) ? "1" : "?"; };
    std::string shape = dims({extent(), random.chance(0.5) ? "1" : n(heads), extent(), "?"});
    clauses.push_back(
        " bias(" +
        newArg("tensor<" + shape + "x" + random.pick(std::array{"f32", "f16", "bf16"}) + ">") +
        ")");
  }
  if (random.chance(0.25))
    clauses.push_back(" alibi(" +
                      (random.chance(0.3) ? "0.25" : newArg("tensor<" + n(heads) + "xf32>")) + ")");
  if (random.chance(0.25))
    clauses.push_back(scoreRegion());
  for (size_t i = clauses.size(); i > 1; --i)
    std::swap(clauses[i - 1], clauses[size_t(random.integer(0, int64_t(i) - 1))]);
  return llvm::join(clauses, "");
}

std::string SpecWriter::options() {
  std::string text;
  if (random.chance(0.2))
    text += " sink(" + newArg("tensor<" + n(heads) + "xf32>") + ")";
  bool invariant = random.chance(0.1);
  switch (random.integer(0, 7)) {
  case 0:
    text += " split(none)";
    break;
  case 1:
    if (!invariant)
      text += formatv(" split(count = {0})", random.integer(2, 5)).str();
    break;
  case 2:
    text += formatv(" split(length = {0})", random.pick(std::array{64, 128, 256})).str();
    break;
  default:
    break;
  }
  if (invariant)
    text += " schedule(batch_invariant)";
  else if (random.chance(0.15))
    text += formatv(" schedule(keys = {0})", random.pick(std::array{16, 32, 64, 128})).str();
  return text;
}

std::string SpecWriter::merge() {
  lse = random.chance(0.5);
  std::string shape = dims({"?", n(heads)}), out = tensor({"?", n(heads), n(dv)});
  std::string partials = formatv("tensor<?x{0}x{1}xf32>", shape, dv),
              lses = formatv("tensor<?x{0}xf32>", shape);
  std::string results = lse ? out + ", tensor<" + shape + "xf32>" : out,
              names = lse ? "%o, %l" : "%o";
  return formatv(
      "func.func @fuzz(%p: {0}, %s: {1}) -> ({2}) {{\n  {3} = attn.merge %p, %s : {0}, {1} -> {2}\n"
      "  return {3} : {2}\n}\n",
      partials, lses, results, names);
}

std::string SpecWriter::write() {
  chooseDimensions();
  if (random.chance(0.04))
    return merge();
  chooseOperands();
  std::string clauses;
  if (random.chance(0.85))
    clauses += " mask(" + mask(int(random.integer(0, 3))) + ")";
  if (customMask)
    clauses += maskRegion();
  if (random.chance(0.4))
    clauses += " scale(" + real(0.02, 0.3) + ")";
  clauses += scores() + options();
  lse = random.chance(0.5);
  std::string results =
      raggedQuery ? tensor({"?", n(heads), n(dv)}) : tensor({"?", "?", n(heads), n(dv)});
  if (lse)
    results += std::string(", tensor<?x") + (raggedQuery ? "" : "?x") + n(heads) + "xf32>";
  std::string args;
  if (!argNames.empty())
    args = " args(" + llvm::join(argNames, ", ") + " : " + llvm::join(argTypes, ", ") + ")";
  std::string names = lse ? "%o, %l" : "%o";
  return "func.func @fuzz(" + llvm::join(parameters, ", ") + ") -> (" + results + ") {\n" + head +
         "  " + names + " = attn.attention " + llvm::join(operands, ", ") + args + clauses +
         "\n      : " + llvm::join(types, ", ") + " -> " + results + "\n  return " + names + " : " +
         results + "\n}\n";
}

} // namespace

std::string randomSpec(uint64_t seed) { return SpecWriter(seed).write(); }

} // namespace llmopt::harness
