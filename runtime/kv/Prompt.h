// What a request asks of the prefix cache: its tokens and everything else that
// changes the values in its pages.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace llmopt::runtime::kv {

using Token = uint32_t;

/// Whatever, besides the tokens, decides the content of a page. Two requests
/// share pages only when all fields are equal; they are compared byte for byte,
/// never by a hash.
struct CacheKey {
  std::string model; ///< model and its configuration
  uint64_t weightVersion = 0;
  std::string adapter; ///< id of the adapter, empty for none
  /// RequestParams::adapter, 0 for none: the scheduler sets it.
  uint32_t adapterNumber = 0;
  uint64_t adapterVersion = 0;
  std::string salt;        ///< tenants that must not see each other's timing
  std::string rotary;      ///< rotary configuration
  std::string cacheFormat; ///< element type, layout
  std::string scales;      ///< identity of the scales of a quantised cache

  bool operator==(const CacheKey &) const = default;
};

/// Stand-in tokens [begin, end) that stand for an image, a sound, ...: each
/// page that holds some of them is keyed by `digest` and by its place in it.
struct MediaSpan {
  uint32_t begin = 0, end = 0;
  std::string digest; ///< content hash of the medium; give a strong one
};

/// What a prompt finds in the cache: keys [0, tokens), of which blocks [0, blocks) are those of
/// the prompt's path and the rest lies in the node `tail`.
struct PrefixHit {
  static constexpr uint32_t kNoTail = UINT32_MAX;
  uint32_t tokens = 0, blocks = 0;
  uint32_t tail = kNoTail;
  uint32_t chain = 0; ///< blocks found, before any rule shortened the hit
};

/// A request's prompt. The request keeps it while it waits: a second try looks
/// only at what changed since the first. The tokens are the caller's and stay
/// unchanged while the prompt lives; after a preemption `extend` it by the generated
/// tokens.
class Prompt {
public:
  /// `blockSize` as of the manager. Allocates; later calls do not.
  Prompt(std::span<const Token> tokens, const CacheKey &key, uint32_t blockSize,
         std::span<const MediaSpan> media = {});

  /// The same request with tokens behind the old ones: what it had generated when it was
  /// preempted. What was found for the old ones is still known. Allocates no more than
  /// `reserve` for as many tokens would have.
  void extend(std::span<const Token> longer, uint32_t blockSize);
  void reserve(uint32_t tokens, uint32_t blockSize) { path.reserve(tokens / blockSize); }
  /// Begins to load what was found for it.
  void fetch() const {
    constexpr size_t kLine = 64;
    for (size_t i = 0; i < path.size(); i += kLine / sizeof(Seen))
      __builtin_prefetch(&path[i]);
  }

  std::span<const Token> tokens() const { return ids; }
  uint32_t size() const { return static_cast<uint32_t>(ids.size()); }

  /// A request for prompt log-probabilities has to run all its tokens: it hits
  /// nothing, but what it computes may be hit by others.
  bool bypassHits = false;
  /// Its pages never enter the cache.
  bool neverInsert = false;

private:
  friend class PrefixCache;
  friend class BlockManager;

  /// A node as it was when it was seen; another serial means that it is gone.
  struct Seen {
    uint32_t node, serial;
  };

  std::span<const Token> ids;
  std::string root;               ///< key, serialised
  std::vector<std::string> media; ///< for each block its media, serialised; or none at all
  std::vector<Seen> path;         ///< nodes of the longest chain found
  uint32_t rootNode = 0, rootSerial = 0;
  uint64_t holes = 0; ///< the cache's count of holes at that time

  // The last answer for each way to ask, good while the cache is as it was then.
  static constexpr uint32_t kUses = 4;
  struct Answer {
    PrefixHit hit;
    uint64_t changes = 0; ///< the cache's count of changes at that time; 0: none
  };
  std::array<Answer, kUses> answers = {};

  // Of the last refusal: the hit, how many of its pages nobody held, and how often
  // cached pages had been used again until then.
  uint32_t refusedTokens = UINT32_MAX, cachedPins = 0;
  uint64_t revivedThen = 0;
};

} // namespace llmopt::runtime::kv
