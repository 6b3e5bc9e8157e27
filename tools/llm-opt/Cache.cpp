// llm-opt cache: what the kernel cache on disk holds, and its keeping.
#include "runtime/cache/BundleStore.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/DumpJson.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/SpecFile.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace llmopt::cli {
namespace {

using runtime::BundleStore;

struct Options {
  std::string folder = runtime::defaultCacheFolder(), path;
  std::vector<std::string> keys;
  uint64_t limit = 0;
  bool json = false;
};

/// One entry as a table row or a JSON object.
void print(const Options &options, const BundleStore &store, const BundleStore::Entry &entry) {
  runtime::StatusOr<bundle::Program> program = store.peek(entry.key);
  std::string name = program ? program->name : "(unusable)",
              target = program ? program->target : program.status().message();
  if (options.json) {
    nlohmann::ordered_json line = {{"key", entry.key},
                                   {"name", name},
                                   {"target", target},
                                   {"bytes", entry.bytes},
                                   {"last_use_ns", entry.lastUse},
                                   {"usable", program.ok()}};
    fmt::print("{}\n", dumpJson(line));
    return;
  }
  fmt::print("{}  {:>9.1f} KiB  {:%Y-%m-%d %H:%M:%S}  {:<14} {}\n", entry.key.substr(0, 16),
             entry.bytes / 1024.0, fmt::localtime(entry.lastUse / 1'000'000'000), target, name);
}

int list(const Options &options) {
  BundleStore store(options.folder);
  std::vector<BundleStore::Entry> entries = store.list();
  uint64_t bytes = 0;
  for (const BundleStore::Entry &entry : entries) {
    print(options, store, entry);
    bytes += entry.bytes;
  }
  if (options.json)
    return 0;
  fmt::print("{} entries, {:.1f} MiB of {:.1f} MiB, in {}\n", entries.size(), bytes / 1048576.0,
             options.limit / 1048576.0, store.folder());
  uint64_t others = 0, otherBytes = 0;
  for (const BundleStore::Entry &entry : store.listAll())
    if (!entry.path.starts_with(store.folder() + "/"))
      ++others, otherBytes += entry.bytes;
  if (others)
    fmt::print("{} entries of other versions beside it, {:.1f} MiB, count for the limit\n", others,
               otherBytes / 1048576.0);
  return 0;
}

int collect(const Options &options) {
  BundleStore::Collected done = BundleStore(options.folder).collect(options.limit);
  if (options.json)
    fmt::print("{}\n", dumpJson(nlohmann::ordered_json{{"removed", done.entries},
                                                       {"removed_bytes", done.bytes},
                                                       {"kept_bytes", done.keptBytes}}));
  else
    fmt::print("removed {} entries of {:.1f} MiB; {:.1f} MiB are left\n", done.entries,
               done.bytes / 1048576.0, done.keptBytes / 1048576.0);
  return 0;
}

int moved(const Options &options, const runtime::StatusOr<std::vector<std::string>> &names) {
  if (!names)
    return fail("cache", names.status().message());
  for (const std::string &name : *names)
    fmt::print("{}\n", name);
  return 0;
}

} // namespace

int cacheCommand(int argc, char **argv) {
  CLI::App app{"The kernel cache on disk: compiled specs by key", "llm-opt cache"};
  Options options;
  app.require_subcommand(1);
  app.add_option("--dir", options.folder,
                 "the cache's folder; LLMOPT_CACHE_DIR, XDG_CACHE_HOME/llm-opt or "
                 "~/.cache/llm-opt otherwise");
  app.add_flag("--json", options.json, "print JSON");
  CLI::App *ls = app.add_subcommand("ls", "list the entries, the one used longest ago first");
  CLI::App *gc = app.add_subcommand("gc", "remove entries until the rest fits the limit, and what "
                                          "killed processes left");
  std::string limit;
  gc->add_option("--limit", limit,
                 "bytes to keep, 64K, 10M, 2G for short (LLMOPT_CACHE_LIMIT, or 1 GiB)");
  CLI::App *out = app.add_subcommand("export", "write entries as .bundle files into a folder");
  out->add_option("DIR", options.path, "folder to write to")->required();
  out->add_option("--key", options.keys, "only these keys");
  CLI::App *in = app.add_subcommand("import", "take the .bundle files of a folder in");
  in->add_option("DIR", options.path, "folder to read from")->required();
  for (CLI::App *sub : {ls, gc, out, in})
    sub->fallthrough();
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  runtime::StatusOr<uint64_t> bytes =
      gc->count("--limit") ? runtime::parseBytes(limit) : runtime::defaultCacheLimit();
  if (!bytes)
    return fail("cache", gc->count("--limit") ? "--limit " + bytes.status().message()
                                              : bytes.status().message());
  options.limit = *bytes;
  if (options.folder.empty())
    return fail("cache", "there is no cache folder; set LLMOPT_CACHE_DIR or HOME, or give --dir");
  BundleStore store(options.folder);
  if (*ls)
    return list(options);
  if (*gc)
    return collect(options);
  return moved(options,
               *out ? store.exportTo(options.path, options.keys) : store.importFrom(options.path));
}

} // namespace llmopt::cli
