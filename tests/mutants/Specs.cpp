// See Specs.h.
#include "tests/mutants/Specs.h"

namespace llmopt::mutants {
namespace {

/// Every call hides the pages of keys that no row sees and spoils those keys with NaN, as it does
/// unused slots.
harness::Shape shapeOf(std::vector<int64_t> queries, std::vector<int64_t> keys) {
  harness::Shape shape;
  shape.queryLengths = std::move(queries);
  shape.keyLengths = std::move(keys);
  shape.hideUnseen = shape.spoilUnseen = true;
  return shape;
}

/// Rows that are copied element by element.
harness::Shape odd(harness::Shape shape) {
  shape.strides = harness::StrideStyle::Odd;
  return shape;
}

/// A page table and pools without room to read beyond.
harness::Shape tight(harness::Shape shape) {
  shape.spareColumns = shape.sparePages = 0;
  return shape;
}

/// Scores that differ by far from one key to the next, so that each split has a maximum of its own.
harness::Shape steep(harness::Shape shape) {
  shape.queryMagnitude = shape.keyMagnitude = 3;
  return shape;
}

/// A window in which all keys are.
harness::Shape wide(harness::Shape shape) {
  shape.numbers["window"] = 4000;
  return shape;
}

/// A prompt that all sequences share, which the plan makes items with rows of several of.
harness::Shape shared(harness::Shape shape, int64_t keys) {
  shape.sharedKeys = keys;
  return shape;
}

/// Pages of keys that no row sees have their numbers; the keys are NaN.
harness::Shape unhidden(harness::Shape shape) {
  shape.hideUnseen = false;
  return shape;
}

/// A sink that ends in the first tile, and so few keys that one more is a large share.
harness::Shape fewSinks(harness::Shape shape) {
  shape.numbers["sink_keys"] = 4;
  shape.numbers["window"] = 8;
  return shape;
}

std::vector<int64_t> times(size_t count, int64_t length) {
  return std::vector<int64_t>(count, length);
}

/// 336 keys, a part of a tile more than five, that 16 sequences share.
harness::Shape sharedPrompt() {
  return shared(shapeOf(times(16, 1), {401, 500, 390, 391, 395, 400, 430, 410, 420, 440, 450, 460,
                                       470, 480, 490, 385}),
                336);
}

/// Splits of tiles of many rows, several for a worker, that begin at even and odd tiles.
harness::Shape splitPrompts() { return steep(shapeOf({40, 33, 40}, {900, 700, 430})); }

/// Lengths at which a row sees one key less than a tile, a tile, one key more; then 64 rows of
/// which the first does, `queries` of them, or the last. Rows of which one sees a key, and that one
/// alone.
std::vector<harness::Shape> tileEdges(int64_t queries) {
  std::vector<harness::Shape> shapes = {shapeOf({1}, {1}), shapeOf({queries}, {1})};
  for (int64_t keys : {63, 64, 65}) {
    shapes.push_back(shapeOf({1}, {keys}));
    shapes.push_back(shapeOf({queries}, {keys + queries - 1}));
    shapes.push_back(shapeOf({queries}, {keys}));
  }
  return shapes;
}

std::vector<harness::Shape> operator+(std::vector<harness::Shape> shapes,
                                      std::vector<harness::Shape> more) {
  shapes.insert(shapes.end(), more.begin(), more.end());
  return shapes;
}

/// Lengths where one row too many is a large share, sequences without keys, tables that end
/// with the last key, splits, ragged tiles that are full, partial, empty.
std::vector<harness::Shape> pagedShapes() {
  return std::vector{
             tight(shapeOf({1, 20, 1, 5, 3, 1}, {17, 20, 1, 5, 0, 0})),
             tight(shapeOf({1}, {80})),
             tight(shapeOf({1}, {16})),
             tight(shapeOf({5}, {80})),
             tight(shapeOf({40}, {80})),
             tight(shapeOf({16}, {16})),
             odd(shapeOf({1, 20}, {90, 70})),
             shapeOf({1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {300, 17, 1, 130, 1500, 64, 200, 33, 80, 128}),
             steep(shapeOf({1, 2}, {1900, 700})),
             splitPrompts(),
             sharedPrompt(),
             shapeOf({40, 30, 1, 100, 50}, {200, 130, 64, 100, 90}),
             shapeOf({4}, {66})} + // the first of 16 rows sees a key less than the first tile has
         tileEdges(16);
}

std::vector<harness::Shape> denseShapes() {
  return std::vector{shapeOf(times(3, 20), times(3, 20)),
                     shapeOf(times(2, 1), times(2, 17)),
                     shapeOf({3}, {0}),
                     shapeOf({40}, {0}),
                     odd(shapeOf({70}, {90})),
                     steep(shapeOf({1}, {2100})),
                     steep(shapeOf(times(2, 40), times(2, 700))),
                     steep(shapeOf(times(2, 25), times(2, 700))),
                     steep(shapeOf(times(3, 40), times(3, 900))), // several splits for a worker
                     shapeOf(times(5, 100), times(5, 233)),
                     shapeOf(times(12, 1), times(12, 300)),
                     shapeOf({8}, {70}), // the first row sees a key less than the first tile has
                     shapeOf({32}, {94})} +
         tileEdges(32);
}

/// What is seen begins in the middle of a tile, of odd number as of even; pages before it are -1.
std::vector<harness::Shape> windowShapes() {
  return std::vector{
             tight(shapeOf({1, 1, 20, 2}, {17, 180, 150, 0})),
             odd(shapeOf({1, 9}, {190, 260})),
             tight(shapeOf({1}, {80})),
             tight(shapeOf({1}, {16})),
             tight(shapeOf({5}, {80})),
             tight(shapeOf({16}, {16})),
             tight(shapeOf({40}, {80})),
             steep(shapeOf({1, 1, 1}, {1000, 330, 270})),
             shapeOf(times(7, 70), {300, 420, 70, 130, 260, 190, 100}),
             wide(splitPrompts()),
             shapeOf({20}, {0}),
             wide(sharedPrompt()),
             shapeOf({1, 16, 1}, {165, 179, 164}), // the window begins at a tile's end, or before
             shapeOf({16}, {165})} +               // that of the last row one key after
         tileEdges(16);
}

/// Between the sink and the window lie keys that no row sees, and their pages are -1.
std::vector<harness::Shape> sinkShapes() {
  return std::vector{tight(shapeOf({1, 1, 3, 2}, {17, 350, 2, 0})),
                     tight(shapeOf({1}, {80})),
                     tight(shapeOf({1}, {17})),
                     tight(shapeOf({9}, {80})),
                     tight(shapeOf({20}, {20})),
                     tight(shapeOf({40}, {80})),
                     odd(shapeOf({1, 70}, {290, 275})),
                     steep(shapeOf({1, 40}, {1100, 900})),
                     shapeOf(times(9, 70), {300, 70, 130, 480, 190, 100, 200, 70, 90}),
                     unhidden(shapeOf({1, 40}, {400, 420})),
                     fewSinks(unhidden(shapeOf({1, 40}, {420, 400}))),
                     shapeOf({20}, {0}),
                     wide(sharedPrompt()),
                     steep(shapeOf({25, 30}, {900, 1100})),
                     shapeOf({1, 1}, {221, 220}),     // one key between sink and window, none
                     shapeOf({32, 32}, {221, 220})} + // the same for the last of 64 rows
         tileEdges(32);
}

constexpr Given kGiven[] = {
    {"paged", R"(
func.func @decode(%q: tensor<?x8x64xbf16>, %kv: !attn.kv_cache<2x64xbf16, page = 16>,
                  %seq: !attn.sequences) -> (tensor<?x8x64xbf16>, tensor<?x8xf32>) {
  %o, %lse = attn.attention %q, %kv, %seq mask(causal)
       : tensor<?x8x64xbf16>, !attn.kv_cache<2x64xbf16, page = 16>, !attn.sequences
         -> tensor<?x8x64xbf16>, tensor<?x8xf32>
  return %o, %lse : tensor<?x8x64xbf16>, tensor<?x8xf32>
})",
     pagedShapes},
    {"dense", R"(
func.func @prefill(%q: tensor<?x?x4x64xbf16>, %k: tensor<?x?x2x64xbf16>,
                   %v: tensor<?x?x2x64xbf16>) -> tensor<?x?x4x64xbf16> {
  %o = attn.attention %q, %k, %v mask(causal)
       : tensor<?x?x4x64xbf16>, tensor<?x?x2x64xbf16>, tensor<?x?x2x64xbf16>
         -> tensor<?x?x4x64xbf16>
  return %o : tensor<?x?x4x64xbf16>
})",
     denseShapes},
    {"window", R"(
func.func @window(%q: tensor<?x8x64xf16>, %kv: !attn.kv_cache<2x64xf16, page = 16>,
                  %seq: !attn.sequences) -> tensor<?x8x64xf16> {
  %o = attn.attention %q, %kv, %seq mask(causal and window<100>)
       : tensor<?x8x64xf16>, !attn.kv_cache<2x64xf16, page = 16>, !attn.sequences
         -> tensor<?x8x64xf16>
  return %o : tensor<?x8x64xf16>
})",
     windowShapes},
    {"sink", R"(
func.func @sink(%q: tensor<?x4x64xbf16>, %kv: !attn.kv_cache<2x64xbf16, page = 1>,
                   %seq: !attn.sequences) -> tensor<?x4x64xbf16> {
  %o = attn.attention %q, %kv, %seq mask(causal and (sink<70> or window<150>))
       : tensor<?x4x64xbf16>, !attn.kv_cache<2x64xbf16, page = 1>, !attn.sequences
         -> tensor<?x4x64xbf16>
  return %o : tensor<?x4x64xbf16>
})",
     sinkShapes},
};

} // namespace

std::span<const Given> givenSpecs() { return kGiven; }

} // namespace llmopt::mutants
