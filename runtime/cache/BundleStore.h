// Bundles in a folder, by key: what the kernel cache keeps on disk. Entries are published
// whole by rename, so that any number of processes may share a folder; what is damaged, of
// another version, or under a wrong name counts as absent.
//
//   FOLDER/2/KEY.bundle      2: the bundle format's version
//   FOLDER/2/KEY.lock        while a process compiles it
//
// Entries of other formats, of versions of the compiler before and after, count for the limit and
// go as the others do.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/Program.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llmopt::runtime {

/// LLMOPT_CACHE_DIR, else llm-opt in XDG_CACHE_HOME, else in ~/.cache; empty where there is
/// none of them.
std::string defaultCacheFolder();

/// Bytes as people write them: 4096, 64K, 10M, 2G (of 1024). InvalidArgument shows the form.
StatusOr<uint64_t> parseBytes(std::string_view text);

/// 1 GiB, or LLMOPT_CACHE_LIMIT. InvalidArgument where that is no number of bytes.
StatusOr<uint64_t> defaultCacheLimit();

class BundleStore {
public:
  /// Nothing is created before something is published.
  explicit BundleStore(const std::string &folder);

  /// NotFound, or why the entry that is there cannot be used. A hit becomes the entry
  /// that was used last.
  StatusOr<bundle::Program> read(const std::string &key) const;
  /// The same without counting as a use.
  StatusOr<bundle::Program> peek(const std::string &key) const;
  /// Replaces what is there.
  Status publish(const bundle::Program &program) const;

  struct Entry {
    std::string key, path;
    uint64_t bytes = 0;
    int64_t lastUse = 0; ///< nanoseconds since 1970
  };
  /// Those of this format, the one used longest ago first.
  std::vector<Entry> list() const;
  /// Those of other formats too, which this version does not read.
  std::vector<Entry> listAll() const;

  struct Collected {
    uint64_t entries = 0, bytes = 0; ///< removed
    uint64_t keptBytes = 0;
  };
  /// Removes entries, the one used longest ago first, until the rest has at most
  /// `maxBytes`; `spared` stays. Removes what killed processes left behind.
  Collected collect(uint64_t maxBytes, const std::string &spared = "") const;

  std::string lockPath(const std::string &key) const { return versioned + "/" + key + ".lock"; }
  /// Makes the folder.
  Status create() const;
  const std::string &folder() const { return versioned; }

  /// Writes all entries, or those with a key of `keys`, to another folder, each as
  /// NAME-TARGET-KEY.bundle with the first digits of the key. Returns the paths.
  StatusOr<std::vector<std::string>> exportTo(const std::string &target,
                                              const std::vector<std::string> &keys = {}) const;
  /// Publishes every .bundle file of a folder; families are taken apart. Returns the
  /// programs' keys.
  StatusOr<std::vector<std::string>> importFrom(const std::string &source) const;

private:
  std::string pathOf(const std::string &key) const { return versioned + "/" + key + ".bundle"; }
  std::vector<std::string> formatFolders() const;

  std::string root, versioned;
};

/// Whether text may be a key: 1 to 128 hexadecimal digits, so that it is a file's name too.
bool isCacheKey(const std::string &text);

} // namespace llmopt::runtime
