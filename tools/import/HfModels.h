// What model types imply without saying it in their config: Hugging Face's class
// defaults and what their code does. Only facts that change attention.
#pragma once

#include "tools/import/Config.h"

namespace llmopt::importer {

struct ModelType {
  std::string_view name;
  /// Why models of this type are refused; empty where they are not.
  std::string_view refusal = {};
  /// Without a layer pattern in the config every n-th layer is full, the others
  /// slide (or are chunked); 0: all layers alike.
  int64_t fullEvery = 0;
  /// The last layer is full whatever the pattern says.
  bool lastFull = false;
  /// A window counts only with use_sliding_window true.
  bool windowOptIn = false;
  /// Which layers slide is not said without layer_types.
  bool windowNeedsList = false;
  /// attention_chunk_size means chunks. Elsewhere it is refused, unless
  /// `chunkIsWindow`: there the model's code never reads it.
  bool chunked = false;
  bool chunkIsWindow = false;
  /// A learned sink logit a head in every layer.
  bool sinks = false;
  /// One KV head where multi_query is absent.
  bool multiQuery = false;
  /// A key, or one of two with a blank between, that has to be there: what its absence means
  /// differs between versions.
  std::string_view needs = {};
  /// "linear_attention" in a list of layers is a state-space layer.
  bool linearIsStateSpace = false;
  /// Class defaults, 0 for none.
  int64_t headDim = 0;
  int64_t window = 0;
  double queryPreAttnScalar = 0;
  double softcap = 0;
  /// The scale where the model's code fixes it, 0 for 1/sqrt(head_dim).
  double scale = 0;
  /// Said to the user as it is.
  std::string_view note = {};
};

/// The row of the text model's type. A type that is not in the table counts as a plain
/// causal decoder where the architecture's name says that it is one, which `note`
/// then tells; else it is refused.
StatusOr<ModelType> modelType(const Config &config, std::string &name);

} // namespace llmopt::importer
