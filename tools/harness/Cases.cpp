#include "tools/harness/Cases.h"

#include "dialect/reference/Context.h"
#include "tools/harness/Random.h"

namespace llmopt::harness {

namespace {

using Lengths = std::vector<int64_t>;

/// Keys for which a case of some rows is worth its time.
constexpr int64_t kMostReach = 8192;

class HardCases {
public:
  explicit HardCases(const Spec &spec) : spec(spec) {}
  std::vector<Case> all();

private:
  Case &add(std::string name, Lengths queries, Lengths keys);
  /// Adds a case of the same shape changed by `change`, equal to the unchanged in bits.
  template <typename F> void addTwin(std::string name, const Shape &plain, F change) {
    Case c{std::move(name), plain, plain};
    change(c.shape);
    cases.push_back(std::move(c));
  }
  void addLengths();
  void addGarbage();
  void addPages();
  void addValues();
  void addNumbers();
  void addStrides();

  const Spec &spec;
  std::vector<Case> cases;
  /// Whether an integer has a value a head.
  bool hasNumberOfHeads() const {
    attn::AttentionOp op = spec.attention;
    return llvm::any_of(op.getNumbers(), [&](const attn::NumberUse &use) {
      auto arg = llvm::dyn_cast<attn::ArgAttr>(use.value);
      return arg && !use.isFloat &&
             llvm::isa<mlir::RankedTensorType>(op.getArgs()[arg.getIndex()].getType());
    });
  }
  bool ragged() const {
    return spec.attention && attn::AttentionOp(spec.attention).isRaggedQuery();
  }
};

Case &HardCases::add(std::string name, Lengths queries, Lengths keys) {
  Shape shape;
  shape.queryLengths = std::move(queries);
  shape.keyLengths = std::move(keys);
  shape.seed = cases.size() + 1;
  cases.push_back({std::move(name), shape, std::nullopt});
  return cases.back();
}

/// Lengths around the edges of tiles, pages and the batch; empty and tiny sequences.
void HardCases::addLengths() {
  const Lengths edges = {63, 64, 65, 127, 128, 129};
  add("one query, one key", {1, 1, 1}, {1, 1, 1});
  add("empty KV inside a batch", {1, 1, 1, 1}, {0, 5, 0, 33});
  add("every sequence empty", {1, 1}, {0, 0});
  add("decode at tile edges", Lengths(edges.size(), 1), edges);
  add("extend by 5 at tile edges", Lengths(edges.size(), 5), edges);
  for (int64_t queries : {2, 64})
    add("alignment with " + std::to_string(queries) + " queries", Lengths(6, queries),
        {1, 2, 5, 63, 64, 65});
  add("more queries than keys", {76, 76}, {1, 40});
  Lengths tiny(12, 2);
  tiny.front() = 4096;
  add("one huge sequence among tiny ones", Lengths(12, 1), tiny);
  for (const reference::LiteralNumber &literal : reference::literalNumbers(spec.attention)) {
    auto value = llvm::dyn_cast<mlir::IntegerAttr>(literal.use.value);
    // Rows on either side of a tile's edge, each with keys behind and before its window.
    if (value && value.getInt() > 0 && value.getInt() <= kMostReach)
      add("rows beyond " + literal.name, {70}, {value.getInt() + 130});
  }
  if (!ragged()) {
    for (int64_t length : {63, 65, 128, 129})
      add("prefill of " + std::to_string(length), {length}, {length});
    return;
  }
  add("zero-length queries", {3, 0, 2, 1}, {0, 5, 0, 33});
  add("no query at all", {0, 0}, {5, 0});
  add("more queries than keys, varlen", {76, 34, 146}, {1, 1, 1});
  add("prefill at tile edges", edges, edges);
  add("prefill, extend and decode in one batch", {129, 1, 17, 1, 64}, {129, 200, 65, 1, 300});
  Shape &padded = add("padded rows after the last sequence", {3, 1, 5}, {20, 40, 5}).shape;
  padded.paddedTokens = 7;
}

/// What lies outside the valid elements changes no bit (A1, A17).
void HardCases::addGarbage() {
  Shape plain;
  plain.queryLengths = {1, 1, 1, 1};
  plain.keyLengths = {32, 64, 96, 48};
  plain.garbage = Garbage::Zero;
  for (auto [kind, name] :
       {std::pair(Garbage::NaN, "NaN"), std::pair(Garbage::Infinity, "+inf"),
        std::pair(Garbage::NegInfinity, "-inf"), std::pair(Garbage::Mixed, "anything")})
    addTwin(std::string(name) + " in unused slots", plain, [kind](Shape &s) { s.garbage = kind; });
  addTwin("NaN in unused slots of K alone", plain, [](Shape &s) {
    s.garbage = Garbage::NaN;
    s.garbageInValues = false;
  });
  addTwin("NaN in unused slots of V alone", plain, [](Shape &s) {
    s.garbage = Garbage::NaN;
    s.garbageInKeys = false;
  });
  plain.queryLengths = {5, 5};
  plain.keyLengths = {13, 300};
  addTwin("NaN past a short last page", plain, [](Shape &s) { s.garbage = Garbage::NaN; });
  plain.queryLengths = {1, 1};
  plain.keyLengths = {1024, 300};
  addTwin("NaN in keys that no row sees", plain, [](Shape &s) {
    s.garbage = Garbage::NaN;
    s.spoilUnseen = true;
  });
}

void HardCases::addPages() {
  if (!spec.cache())
    return;
  Shape plain;
  plain.queryLengths = {1, 1, 1};
  plain.keyLengths = {1, 130, 77};
  plain.shufflePages = false;
  addTwin("shuffled pages", plain, [](Shape &s) { s.shufflePages = true; });
  addTwin("many spare pages and columns", plain, [](Shape &s) {
    s.shufflePages = true;
    s.sparePages = 40;
    s.spareColumns = 11;
  });
  Lengths grown(16);
  for (size_t i = 0; i < grown.size(); ++i)
    grown[i] = 400 + 3 * int64_t(i);
  add("a prompt that all sequences share", Lengths(16, 1), grown).shape.sharedKeys = 384;
  plain.queryLengths = {1, 1};
  plain.keyLengths = {1024, 150};
  addTwin("-1 for pages that no row sees", plain,
          [](Shape &s) { s.hideUnseen = s.spoilUnseen = true; });
}

/// Data that shows an error of its kind at once, and scores at the edge of float32.
void HardCases::addValues() {
  add("q = 0: mean of V", {3, 3}, {40, 129}).shape.fill = Fill::ZeroQuery;
  add("one-hot V: the weights", {3, 3}, {40, 60}).shape.fill = Fill::OneHotValue;
  add("constant V: heads", {3, 3}, {40, 129}).shape.fill = Fill::ConstantValue;
  Shape &opposed = add("raw logits near -2.45e5", {1, 1, 1}, {1, 64, 200}).shape;
  opposed.fill = Fill::Opposed;
  opposed.queryMagnitude = 10;
  opposed.keyMagnitude = 300;
  Shape &large = add("large scores of either sign", {2, 2}, {65, 200}).shape;
  large.queryMagnitude = large.keyMagnitude = 8;
}

/// The same kernel with other numbers than the spec's.
void HardCases::addNumbers() {
  std::map<std::string, double> ones, large;
  for (const reference::LiteralNumber &literal : reference::literalNumbers(spec.attention)) {
    if (literal.name == "scale") {
      add("another scale", {3, 3}, {3, 129}).shape.numbers = {{"scale", 0.3}};
      continue;
    }
    ones[literal.name] = 1;
    if (!literal.use.isFloat)
      large[literal.name] = 100000;
  }
  if (!ones.empty())
    add("every number 1", {3, 3}, {3, 129}).shape.numbers = ones;
  if (!large.empty())
    add("numbers beyond every length", {3, 3}, {3, 129}).shape.numbers = large;
  if (hasNumberOfHeads())
    for (int64_t queries : {1, 70})
      add("numbers of heads beyond every position", {queries, queries}, {queries, 200})
          .shape.farNumbers = true;
}

void HardCases::addStrides() {
  Shape plain;
  plain.queryLengths = {5, 5};
  plain.keyLengths = {65, 130};
  addTwin("gaps after rows", plain, [](Shape &s) { s.strides = StrideStyle::Padded; });
  for (auto [style, name] : {std::pair(StrideStyle::Odd, "rows at odd addresses"),
                             std::pair(StrideStyle::Inner2, "innermost stride 2")})
    add(name, plain.queryLengths, plain.keyLengths).shape.strides = style;
}

std::vector<Case> HardCases::all() {
  if (spec.merge) { // A2
    for (int64_t partials : {0, 1, 2, 5})
      add(std::to_string(partials) + " partials", {7}, {7}).shape.partials = partials;
    for (Garbage garbage : {Garbage::Zero, Garbage::Infinity})
      add("empty partials hold garbage", {33}, {33}).shape.garbage = garbage;
    return cases;
  }
  if (!spec.attention) {
    add("append of 1", {1}, {40});
    add("append of 23, some skipped", {23}, {90});
    add("append of none", {0}, {40});
    addStrides();
    return cases;
  }
  addLengths();
  addGarbage();
  addPages();
  addValues();
  addNumbers();
  addStrides();
  return cases;
}

} // namespace

std::vector<Case> hardCases(const Spec &spec) { return HardCases(spec).all(); }

std::vector<Case> randomShapes(const Spec &spec, int64_t count, uint64_t seed,
                               int64_t mostProducts) {
  std::vector<Case> cases;
  int64_t perElement = 512; // multiplications for a score of all heads
  if (attn::AttentionOp op = spec.attention)
    perElement = std::max<int64_t>(1, std::abs(op.getQueryHeads())) *
                 (std::abs(op.getQkDim()) + std::abs(op.getVDim()));
  perElement = std::min<int64_t>(perElement, 1 << 16); // dynamic extents are large negative numbers
  for (int64_t i = 0; i < count; ++i) {
    Random random(seed, "shapes", uint64_t(i));
    Shape shape;
    shape.seed = random.next();
    int64_t sequences = random.integer(1, 5),
            budget = std::max<int64_t>(4, mostProducts / perElement / sequences);
    for (int64_t b = 0; b < sequences; ++b) {
      int64_t keys = random.chance(0.1) ? 0 : int64_t(std::exp2(random.uniform() * 9));
      keys = std::min(keys + random.integer(0, 3), budget / 2);
      int64_t queries = random.chance(0.4)   ? 1
                        : random.chance(0.1) ? 0
                                             : random.integer(1, std::max<int64_t>(2, keys));
      shape.keyLengths.push_back(keys);
      shape.queryLengths.push_back(
          std::min(queries, std::max<int64_t>(1, budget / std::max<int64_t>(1, keys))));
    }
    shape.garbage = random.pick(std::array{Garbage::NaN, Garbage::Mixed});
    shape.strides = random.chance(0.3) ? StrideStyle::Padded : StrideStyle::Packed;
    shape.paddedTokens = random.chance(0.3) ? random.integer(1, 9) : 0;
    shape.hideUnseen = shape.spoilUnseen = random.chance(0.3);
    shape.sparePages = random.integer(0, 9);
    shape.spareColumns = random.integer(1, 4);
    shape.partials = random.integer(1, 6);
    if (spec.attention && random.chance(0.3))
      for (const reference::LiteralNumber &literal : reference::literalNumbers(spec.attention))
        shape.numbers[literal.name] =
            literal.use.isFloat ? 0.05 + random.uniform() : double(random.integer(1, 60));
    cases.push_back({"random shape " + std::to_string(i), shape, std::nullopt});
  }
  return cases;
}

llvm::Expected<Report> runCase(const Spec &spec, const Case &c, const Runner &run) {
  llvm::Expected<Call> call = generate(spec, c.shape);
  if (!call)
    return call.takeError();
  if (llvm::Error failure = run(*call))
    return failure;
  llvm::Expected<Report> report = check(spec, *call, c.shape.seed);
  if (!report || !c.twin)
    return report;
  llvm::Expected<Call> twin = generate(spec, *c.twin);
  if (!twin)
    return twin.takeError();
  if (llvm::Error failure = run(*twin))
    return failure;
  std::string text = differentBits(*call, *twin);
  if (!text.empty() && report->passed) {
    report->passed = false;
    report->failure = text + " from the same call without what the case adds";
  }
  return report;
}

} // namespace llmopt::harness
