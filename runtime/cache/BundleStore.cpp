#include "runtime/cache/BundleStore.h"

#include "runtime/base/DynamicLibrary.h"
#include "runtime/bundle/BundleIO.h"
#include "runtime/cache/KeyLock.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

namespace llmopt::runtime {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kDefaultLimit = uint64_t{1} << 30;
constexpr std::string_view kBundle = ".bundle", kLock = ".lock";

/// Older files without a holder are left over from a killed process.
constexpr int64_t kTemporarySeconds = 3600;

std::vector<std::string> filesOf(const std::string &folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    files.push_back(at->path().string());
  return files;
}

int64_t nanosecondsOf(const timespec &time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// The key that a file's name begins with.
std::string keyOf(const std::string &path) {
  std::string name = fs::path(path).filename().string();
  return name.substr(0, name.find('.'));
}

/// Letters and digits of a name, for a file's name.
std::string plain(const std::string &text) {
  std::string out;
  for (unsigned char c : text)
    out += std::isalnum(c) || c == '_' ? static_cast<char>(c) : '-';
  return out.substr(0, 100);
}

} // namespace

std::string defaultCacheFolder() {
  if (std::string folder = environment("LLMOPT_CACHE_DIR"); !folder.empty())
    return folder;
  if (std::string folder = environment("XDG_CACHE_HOME"); !folder.empty())
    return folder + "/llm-opt";
  if (std::string home = environment("HOME"); !home.empty())
    return home + "/.cache/llm-opt";
  return "";
}

StatusOr<uint64_t> parseBytes(std::string_view text) {
  uint64_t number = 0;
  const char *stop = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), stop, number);
  constexpr std::string_view kUnits = "KMG";
  unsigned shift = 0;
  if (end != stop) {
    size_t unit = kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(*end))));
    shift = unit == std::string_view::npos ? 64 : 10 * (static_cast<unsigned>(unit) + 1);
    ++end;
  }
  if (error != std::errc() || end != stop || shift == 64 || number > UINT64_MAX >> shift)
    return invalidArgument("'{}' is no number of bytes; write for example 4096, 64K, 10M or 2G",
                           text);
  return number << shift;
}

StatusOr<uint64_t> defaultCacheLimit() {
  std::string text = environment("LLMOPT_CACHE_LIMIT");
  if (text.empty())
    return kDefaultLimit;
  StatusOr<uint64_t> limit = parseBytes(text);
  if (!limit)
    return limit.status().withContext("LLMOPT_CACHE_LIMIT");
  return limit;
}

bool isCacheKey(const std::string &text) {
  return !text.empty() && text.size() <= 128 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c); });
}

BundleStore::BundleStore(const std::string &folder)
    : root(folder), versioned(fmt::format("{}/{}", folder, bundle::kFormatVersion)) {}

StatusOr<bundle::Program> BundleStore::peek(const std::string &key) const {
  std::string path = pathOf(key);
  StatusOr<bundle::Program> program = bundle::loadBundle(path);
  if (!program)
    return program.status();
  if (program->key != key)
    return dataLoss("bundle '{}' holds the program of another key, '{}'", path, program->key);
  return program;
}

StatusOr<bundle::Program> BundleStore::read(const std::string &key) const {
  StatusOr<bundle::Program> program = peek(key);
  if (program) // in vain where the folder is read-only
    ::utimensat(AT_FDCWD, pathOf(key).c_str(), nullptr, 0);
  return program;
}

Status BundleStore::create() const {
  std::error_code error;
  fs::create_directories(versioned, error);
  if (error)
    return makeStatus(StatusCode::Unavailable, "cache folder '{}' cannot be made: {}", versioned,
                      error.message());
  return {};
}

Status BundleStore::publish(const bundle::Program &program) const {
  LLMOPT_RETURN_IF_ERROR(create());
  return bundle::saveBundle(program, pathOf(program.key));
}

/// Adds the entries of one format.
static void addEntries(const std::string &folder, std::vector<BundleStore::Entry> &entries) {
  for (const std::string &path : filesOf(folder)) {
    struct stat info;
    if (path.ends_with(kBundle) && ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode))
      entries.push_back(
          {keyOf(path), path, static_cast<uint64_t>(info.st_size), nanosecondsOf(info.st_mtim)});
  }
}

static std::vector<BundleStore::Entry> byUse(std::vector<BundleStore::Entry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const BundleStore::Entry &a, const BundleStore::Entry &b) {
              return std::tie(a.lastUse, a.path) < std::tie(b.lastUse, b.path);
            });
  return entries;
}

std::vector<BundleStore::Entry> BundleStore::list() const {
  std::vector<Entry> entries;
  addEntries(versioned, entries);
  return byUse(std::move(entries));
}

/// Folders of the store whose name is a number.
std::vector<std::string> BundleStore::formatFolders() const {
  std::vector<std::string> folders = filesOf(root);
  std::erase_if(folders, [](const std::string &path) {
    std::string name = fs::path(path).filename().string();
    std::error_code error;
    return !std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isdigit(c);
    }) || !fs::is_directory(path, error);
  });
  return folders;
}

std::vector<BundleStore::Entry> BundleStore::listAll() const {
  std::vector<Entry> entries;
  for (const std::string &folder : formatFolders())
    addEntries(folder, entries);
  return byUse(std::move(entries));
}

/// Lock files that no process holds, and halves of entries whose process has died.
static void removeLeftovers(const std::string &folder) {
  for (const std::string &path : filesOf(folder)) {
    if (path.ends_with(kBundle))
      continue;
    std::optional<KeyLock> lock; // its end removes the lock file
    KeyLock::State state =
        KeyLock::tryLock(fmt::format("{}/{}{}", folder, keyOf(path), kLock), lock);
    struct stat info;
    bool old = ::stat(path.c_str(), &info) == 0 &&
               std::time(nullptr) - info.st_mtim.tv_sec > kTemporarySeconds;
    // Without locks, age decides.
    bool isLock = path.ends_with(kLock);
    if (isLock ? state == KeyLock::State::Impossible && old : state == KeyLock::State::Held || old)
      ::unlink(path.c_str());
  }
}

BundleStore::Collected BundleStore::collect(uint64_t maxBytes, const std::string &spared) const {
  for (const std::string &folder : formatFolders())
    removeLeftovers(folder);
  std::vector<Entry> entries = listAll();
  Collected collected;
  for (const Entry &entry : entries)
    collected.keptBytes += entry.bytes;
  for (const Entry &entry : entries) {
    if (collected.keptBytes <= maxBytes)
      break;
    if (entry.path == pathOf(spared) || ::unlink(entry.path.c_str()) != 0)
      continue;
    collected.keptBytes -= entry.bytes;
    collected.bytes += entry.bytes;
    ++collected.entries;
  }
  std::error_code ignored; // what is not empty stays
  for (const std::string &folder : formatFolders())
    if (folder != versioned)
      fs::remove(folder, ignored);
  return collected;
}

StatusOr<std::vector<std::string>>
BundleStore::exportTo(const std::string &target, const std::vector<std::string> &keys) const {
  std::error_code error;
  fs::create_directories(target, error);
  if (error)
    return makeStatus(StatusCode::Unavailable, "folder '{}' cannot be made: {}", target,
                      error.message());
  std::vector<std::string> paths;
  for (const Entry &entry : list()) {
    if (!keys.empty() && std::find(keys.begin(), keys.end(), entry.key) == keys.end())
      continue;
    StatusOr<bundle::Program> program = peek(entry.key);
    if (!program)
      continue; // damaged, or removed meanwhile
    paths.push_back(fmt::format("{}/{}-{}-{}.bundle", target, plain(program->name),
                                plain(program->target), entry.key.substr(0, 16)));
    LLMOPT_RETURN_IF_ERROR(bundle::saveBundle(*program, paths.back()));
  }
  return paths;
}

StatusOr<std::vector<std::string>> BundleStore::importFrom(const std::string &source) const {
  std::error_code error;
  if (!fs::is_directory(source, error))
    return makeStatus(StatusCode::NotFound, "'{}' is no folder; name one with .bundle files",
                      source);
  std::vector<std::string> keys, files = filesOf(source);
  std::sort(files.begin(), files.end());
  for (const std::string &path : files) {
    if (!path.ends_with(kBundle))
      continue;
    StatusOr<std::vector<bundle::Program>> family = bundle::loadFamily(path);
    if (!family)
      return family.status();
    for (const bundle::Program &program : *family) {
      if (!isCacheKey(program.key))
        return invalidArgument("bundle '{}' has the key '{}'; hexadecimal digits are wanted", path,
                               program.key);
      LLMOPT_RETURN_IF_ERROR(publish(program));
      keys.push_back(program.key);
    }
  }
  return keys;
}

} // namespace llmopt::runtime
