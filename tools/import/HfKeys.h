// Which keys of a config this importer knows, and what it does with them.
//
// Every key that may change attention is in one of three groups: read by the importer;
// known to act outside attention (the reason is in the table); or a feature that is
// refused by name. A key in none of them whose name sounds like attention is refused;
// all others (token ids, feed-forward sizes, ...) are ignored. A row may hold for some model
// types only: to all others its key is unknown.
#pragma once

#include "tools/import/Config.h"

namespace llmopt::importer {

enum class KeyUse : uint8_t {
  Read,     ///< this importer acts on it
  Outside,  ///< acts outside attention
  Feature,  ///< refused where it is set: not null, false, 0 or empty
  MustHold, ///< refused where it is false
};

struct KnownKey {
  std::string_view key;
  KeyUse use;
  std::string_view text;       ///< the reason, or the name of the feature
  std::string_view types = {}; ///< model types, blanks between, for which it holds; empty: all
};

/// Refuses a config with features that are not there. The one that describes the model
/// best is named: the first of the table.
Status checkFeatures(const Config &config, std::string_view type);

/// Refuses a key that no row for models of this type has and that sounds like attention, also
/// inside objects. Only what describes rotary embedding, quantization or another tower
/// (vision, audio) is not looked into.
Status checkUnknownKeys(const Config &config, std::string_view type);

/// Does the name of a key that is in no table sound like attention?
bool soundsLikeAttention(std::string_view key);

} // namespace llmopt::importer
