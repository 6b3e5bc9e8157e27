#include "tests/unit/attn/MaskLibrary.h"

using namespace llmopt::attn::test;

static std::string str(int value) { return std::to_string(value); }

static int floorDivide(int a, int b) { return a / b - (a % b < 0 ? 1 : 0); }

MaskSpec llmopt::attn::test::causal() {
  return {"causal", [](const Row &row, int key) {
            return key <= row.index + (row.shape.keys - row.shape.queries);
          }};
}

MaskSpec llmopt::attn::test::causalTopLeft() {
  return {"causal<top_left>", [](const Row &row, int key) { return key <= row.index; }};
}

MaskSpec llmopt::attn::test::window(int size) {
  return {"window<" + str(size) + ">", [=](const Row &row, int key) {
            return key <= row.position() && row.position() < key + size;
          }};
}

MaskSpec llmopt::attn::test::window(int left, int right) {
  return {"window<left = " + str(left) + ", right = " + str(right) + ">",
          [=](const Row &row, int key) {
            bool fromLeft = left < 0 || row.position() - left <= key;
            bool toRight = right < 0 || key <= row.position() + right;
            return fromLeft && toRight;
          }};
}

MaskSpec llmopt::attn::test::sink(int count) {
  return {"sink<" + str(count) + ">", [=](const Row &, int key) { return key < count; }};
}

MaskSpec llmopt::attn::test::dilated(int stride) {
  return {"dilated<" + str(stride) + ">",
          [=](const Row &row, int key) { return std::abs(row.position() - key) % stride == 0; }};
}

MaskSpec llmopt::attn::test::chunked(int size) {
  return {"chunked<" + str(size) + ">", [=](const Row &row, int key) {
            return floorDivide(row.position(), size) == floorDivide(key, size);
          }};
}

MaskSpec llmopt::attn::test::dense() {
  return {"dense<arg0>",
          [](const Row &row, int key) { return denseElement(row.head, row.index, key); },
          {},
          {{"tensor<?x?x?x?xi1>", {}}}};
}

MaskSpec llmopt::attn::test::tree(TreeShape shape) {
  return {"tree<arg0>",
          [=](const Row &row, int key) {
            int own = key - (row.shape.keys - row.shape.queries);
            return own < 0 || (own <= row.index && (treeSet(shape, row.index) >> own) % 2 == 1);
          },
          {},
          {{"tensor<?x?xi64>", {}}},
          shape};
}

MaskSpec llmopt::attn::test::underTree(const MaskSpec &other, TreeShape shape) {
  MaskSpec spec = other;
  spec.args = {{"tensor<?x?xi64>", {}}};
  spec.tree = shape;
  spec.sees = [=, sees = other.sees](const Row &row, int key) {
    // Members of the query's set among the first `count` of the sequence's queries.
    auto membersBelow = [&](int count) {
      int members = 0;
      for (int k = 0; k < count; ++k)
        members += (treeSet(shape, row.index) >> k) % 2 == 1;
      return members;
    };
    Row placed = row;
    placed.index = membersBelow(row.index);
    int base = row.shape.keys - row.shape.queries;
    return sees(placed, key < base ? key : base + membersBelow(key - base));
  };
  return spec;
}

MaskSpec llmopt::attn::test::custom(std::string body, Predicate sees) {
  return {"custom<0>", std::move(sees), {std::move(body) + "attn.yield %v : i1\n"}};
}

std::vector<std::pair<MaskSpec, bool>> llmopt::attn::test::customs() {
  auto simple = [](auto sees) -> Predicate {
    return [=](const Row &row, int key) { return sees(row.position(), key); };
  };
  // i / 4 as 64-bit unsigned numbers, which no key's quotient equals where i < 0.
  auto unsignedQuarter = [](int i) { return uint64_t(int64_t(i)) / 4; };
  return {
      {custom("%n = arith.constant 3 : index\n%d = arith.subi %i, %j : index\n"
              "%v = arith.cmpi slt, %d, %n : index\n",
              simple([](int i, int j) { return i - j < 3; })),
       true},
      {custom("%v = arith.cmpi sle, %j, %i : index\n", simple([](int i, int j) { return j <= i; })),
       true},
      {custom("%n = arith.constant 4 : index\n%x = arith.floordivsi %i, %n : index\n"
              "%y = arith.floordivsi %j, %n : index\n%v = arith.cmpi eq, %x, %y : index\n",
              simple([](int i, int j) { return floorDivide(i, 4) == j / 4; })),
       true},
      {custom("%n = arith.constant 4 : index\n%x = arith.divsi %i, %n : index\n"
              "%y = arith.divsi %j, %n : index\n%v = arith.cmpi eq, %x, %y : index\n",
              simple([](int i, int j) { return i / 4 == j / 4; })),
       true},
      {custom("%n = arith.constant 4 : index\n%x = arith.divui %i, %n : index\n"
              "%y = arith.divui %j, %n : index\n%v = arith.cmpi eq, %x, %y : index\n",
              simple([=](int i, int j) { return unsignedQuarter(i) == unsignedQuarter(j); })),
       true},
      {custom("%n = arith.constant 4 : index\n%x = arith.divui %i, %n : index\n"
              "%y = arith.divui %j, %n : index\n%v = arith.cmpi ule, %y, %x : index\n",
              simple([=](int i, int j) { return unsignedQuarter(j) <= unsignedQuarter(i); })),
       false},
      {custom("%n = arith.constant 3 : index\n%x = arith.divsi %i, %n : index\n"
              "%y = arith.divui %j, %n : index\n%v = arith.cmpi sgt, %x, %y : index\n",
              simple([](int i, int j) { return i / 3 > j / 3; })),
       true},
      {custom("%n = arith.constant 3 : index\n%x = arith.floordivsi %i, %n : index\n"
              "%y = arith.divui %j, %n : index\n%v = arith.cmpi sle, %x, %y : index\n",
              simple([](int i, int j) { return floorDivide(i, 3) <= j / 3; })),
       true},
      {custom("%n = arith.constant 4 : index\n%w = arith.constant 3 : index\n"
              "%d = arith.subi %i, %j : index\n%x = arith.cmpi slt, %j, %n : index\n"
              "%y = arith.cmpi slt, %d, %w : index\n%v = arith.ori %x, %y : i1\n",
              simple([](int i, int j) { return j < 4 || i - j < 3; })),
       true},
      // The idiom of one unsigned comparison for two signed ones.
      {custom("%n = arith.constant 5 : index\n%d = arith.subi %i, %j : index\n"
              "%v = arith.cmpi ult, %d, %n : index\n",
              simple([](int i, int j) { return 0 <= i - j && i - j < 5; })),
       true},
      {custom("%n = arith.constant 2 : index\n%d = arith.subi %j, %i : index\n"
              "%v = arith.cmpi uge, %d, %n : index\n",
              simple([](int i, int j) { return !(0 <= j - i && j - i < 2); })),
       false},
      {custom("%v = arith.cmpi ult, %j, %i : index\n",
              simple([](int i, int j) { return i < 0 || j < i; })),
       false},
      // Diagonals, and rows that count against keys.
      {custom("%n = arith.constant 2 : index\n%d = arith.addi %j, %n : index\n"
              "%v = arith.cmpi eq, %d, %i : index\n",
              simple([](int i, int j) { return j + 2 == i; })),
       true},
      {custom("%v = arith.cmpi ne, %j, %i : index\n", simple([](int i, int j) { return j != i; })),
       true},
      {custom("%n = arith.constant 9 : index\n%d = arith.addi %j, %i : index\n"
              "%v = arith.cmpi sle, %d, %n : index\n",
              simple([](int i, int j) { return i + j <= 9; })),
       true},
      {custom("%n = arith.constant 9 : index\n%d = arith.addi %j, %i : index\n"
              "%v = arith.cmpi eq, %d, %n : index\n",
              simple([](int i, int j) { return i + j == 9; })),
       true},
      {custom("%n = arith.constant 2 : index\n%d = arith.muli %i, %n : index\n"
              "%v = arith.cmpi sge, %d, %j : index\n",
              simple([](int i, int j) { return 2 * i >= j; })),
       true},
      {custom("%n = arith.constant 2 : index\n%d = arith.muli %i, %n : index\n"
              "%v = arith.cmpi eq, %d, %j : index\n",
              simple([](int i, int j) { return 2 * i == j; })),
       false},
      // Rows alone.
      {custom("%n = arith.constant 6 : index\n%v = arith.cmpi sgt, %i, %n : index\n",
              simple([](int i, int) { return i > 6; })),
       true},
      {custom("%n = arith.constant 6 : index\n%v = arith.cmpi eq, %i, %n : index\n",
              simple([](int i, int) { return i == 6; })),
       false},
      // Prefix language model: a condition that chooses.
      {custom("%n = arith.constant 5 : index\n%x = arith.cmpi slt, %i, %n : index\n"
              "%y = arith.cmpi slt, %j, %n : index\n%z = arith.cmpi sle, %j, %i : index\n"
              "%v = arith.select %x, %y, %z : i1\n",
              simple([](int i, int j) { return i < 5 ? j < 5 : j <= i; })),
       false},
      {custom("%n = arith.constant 5 : index\n%t = arith.constant true\n"
              "%x = arith.cmpi slt, %j, %n : index\n%v = arith.xori %x, %t : i1\n",
              simple([](int, int j) { return j >= 5; })),
       true},
      {custom("%n = arith.constant 5 : index\n%x = arith.cmpi slt, %j, %n : index\n"
              "%y = arith.cmpi sle, %j, %i : index\n%v = arith.xori %x, %y : i1\n",
              simple([](int i, int j) { return (j < 5) != (j <= i); })),
       false},
      // 32 bits, a captured value (3), and what is not understood.
      {custom("%x = arith.index_cast %i : index to i32\n%y = arith.index_cast %j : index to i32\n"
              "%d = arith.subi %x, %y : i32\n%v = arith.cmpi sle, %d, %u : i32\n",
              simple([](int i, int j) { return i - j <= 3; })),
       true},
      {custom("%x = arith.index_cast %j : index to i32\n%v = arith.cmpi slt, %x, %u : i32\n",
              simple([](int, int j) { return j < 3; })),
       true},
      {custom("%n = arith.constant 3 : index\n%x = arith.remsi %j, %n : index\n"
              "%z = arith.constant 0 : index\n%v = arith.cmpi eq, %x, %z : index\n",
              simple([](int, int j) { return j % 3 == 0; })),
       false},
      {custom("%v = arith.constant true\n", simple([](int, int) { return true; })), true},
      {custom("%v = arith.constant false\n", simple([](int, int) { return false; })), true},
  };
}

/// `text` with the regions that it names counted from `first`.
static std::string renumbered(const std::string &text, size_t regions, size_t first) {
  std::string result = text;
  for (size_t i = regions; i-- > 0;) {
    std::string from = "custom<" + std::to_string(i) + ">",
                to = "custom<" + std::to_string(i + first) + ">";
    for (size_t at = 0; (at = result.find(from, at)) != std::string::npos; at += to.size())
      result.replace(at, from.size(), to);
  }
  return result;
}

static MaskSpec join(const MaskSpec &a, const MaskSpec &b, const char *word, Predicate sees) {
  MaskSpec joined = {"(" + a.text + ") " + word + " (" +
                         renumbered(b.text, b.regions.size(), a.regions.size()) + ")",
                     std::move(sees), a.regions, a.args.empty() ? b.args : a.args,
                     a.args.empty() ? b.tree : a.tree};
  joined.regions.insert(joined.regions.end(), b.regions.begin(), b.regions.end());
  return joined;
}

MaskSpec llmopt::attn::test::both(const MaskSpec &a, const MaskSpec &b) {
  return join(a, b, "and", [x = a.sees, y = b.sees](const Row &row, int key) {
    return x(row, key) && y(row, key);
  });
}

MaskSpec llmopt::attn::test::either(const MaskSpec &a, const MaskSpec &b) {
  return join(a, b, "or", [x = a.sees, y = b.sees](const Row &row, int key) {
    return x(row, key) || y(row, key);
  });
}

MaskSpec llmopt::attn::test::negated(const MaskSpec &a) {
  return {"not (" + a.text + ")", [x = a.sees](const Row &row, int key) { return !x(row, key); },
          a.regions, a.args, a.tree};
}
