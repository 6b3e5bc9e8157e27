#include "runtime/kv/Prompt.h"

#include <algorithm>

namespace llmopt::runtime::kv {

namespace {

void append(std::string &out, uint64_t number) {
  for (int shift = 0; shift < 64; shift += 8)
    out.push_back(static_cast<char>(number >> shift));
}

/// With its length in front, so that no two lists of fields give the same bytes.
void append(std::string &out, const std::string &text) {
  append(out, text.size());
  out += text;
}

std::string serialise(const CacheKey &key) {
  std::string out;
  append(out, key.model);
  append(out, key.weightVersion);
  append(out, key.adapter);
  append(out, uint64_t{key.adapterNumber});
  append(out, key.adapterVersion);
  append(out, key.salt);
  append(out, key.rotary);
  append(out, key.cacheFormat);
  append(out, key.scales);
  return out;
}

} // namespace

Prompt::Prompt(std::span<const Token> tokens, const CacheKey &key, uint32_t blockSize,
               std::span<const MediaSpan> spans)
    : ids(tokens), root(serialise(key)) {
  uint32_t blocks = static_cast<uint32_t>(tokens.size() / blockSize);
  path.reserve(blocks);
  if (!spans.empty())
    media.resize(blocks + 1); // the last one is never whole, but it is looked at
  for (const MediaSpan &span : spans)
    for (uint32_t b = span.begin / blockSize; b <= blocks && b * blockSize < span.end; ++b) {
      append(media[b], span.digest);
      append(media[b], uint64_t{span.begin} - uint64_t{b} * blockSize);
      append(media[b], uint64_t{span.end} - span.begin);
    }
}

void Prompt::extend(std::span<const Token> longer, uint32_t blockSize) {
  ids = longer;
  reserve(size(), blockSize);
  if (!media.empty())
    media.resize(size() / blockSize + 1);
  refusedTokens = UINT32_MAX;
  answers = {};
}

} // namespace llmopt::runtime::kv
