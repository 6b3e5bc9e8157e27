// The folder by itself: defaults, listing, export and import.
#include "Support.h"

#include "runtime/cache/KeyLock.h"

#include <cstdlib>
#include <fstream>

using namespace cachetest;

namespace {

struct BundleStoreTest : CacheTest {};

} // namespace

TEST_F(BundleStoreTest, DefaultFolderFollowsTheEnvironment) {
  ::setenv("LLMOPT_CACHE_DIR", "/a", 1);
  ::setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(defaultCacheFolder(), "/a");
  ::unsetenv("LLMOPT_CACHE_DIR");
  EXPECT_EQ(defaultCacheFolder(), "/x/llm-opt");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/h", 1);
  EXPECT_EQ(defaultCacheFolder(), "/h/.cache/llm-opt");
  ::unsetenv("HOME");
  EXPECT_EQ(defaultCacheFolder(), "");
}

TEST_F(BundleStoreTest, DefaultLimitIsANumberOfBytes) {
  ::unsetenv("LLMOPT_CACHE_LIMIT");
  EXPECT_EQ(*defaultCacheLimit(), uint64_t{1} << 30);
  ::setenv("LLMOPT_CACHE_LIMIT", "12345", 1);
  EXPECT_EQ(*defaultCacheLimit(), 12345u);
  ::setenv("LLMOPT_CACHE_LIMIT", "10G", 1);
  EXPECT_EQ(*defaultCacheLimit(), uint64_t{10} << 30);
  ::setenv("LLMOPT_CACHE_LIMIT", "much", 1);
  EXPECT_EQ(defaultCacheLimit().status().message(),
            "LLMOPT_CACHE_LIMIT: 'much' is no number of bytes; write for example 4096, 64K, 10M "
            "or 2G");
  ::unsetenv("LLMOPT_CACHE_LIMIT");
}

TEST_F(BundleStoreTest, BytesAreWrittenWithAndWithoutUnit) {
  for (auto [text, bytes] : {std::pair<const char *, uint64_t>{"0", 0},
                             {"1K", 1024},
                             {"3m", uint64_t{3} << 20},
                             {"2G", uint64_t{2} << 30},
                             {"18446744073709551615", UINT64_MAX}})
    EXPECT_EQ(*parseBytes(text), bytes) << text;
  for (const char *text :
       {"", "-5", "abc", "K", "1KB", "1T", "1.5G", " 1", "18446744073709551616", "99999999999999G"})
    EXPECT_FALSE(parseBytes(text)) << text;
}

TEST_F(BundleStoreTest, EntriesOfOtherFormatsCountAndGo) {
  BundleStore store(folder);
  ASSERT_TRUE(store.publish(programOf(keyOf(1))).ok());
  fs::path older = folder / "1", newer = folder / "999", own = folder / "notes";
  for (const fs::path &other : {older, newer, own}) {
    fs::create_directories(other);
    std::ofstream(other / (keyOf(2) + ".bundle")) << std::string(5000, 'x');
  }
  std::ofstream(older / (keyOf(3) + ".lock"));
  EXPECT_EQ(store.list().size(), 1u);
  EXPECT_EQ(store.listAll().size(), 3u);
  uint64_t bytes = store.list().front().bytes;
  EXPECT_EQ(store.collect(1 << 20).keptBytes, bytes + 10000);
  EXPECT_TRUE(leftovers(older).empty()) << "a lock that nobody holds";
  BundleStore::Collected collected = store.collect(0);
  EXPECT_EQ(collected.entries, 3u);
  EXPECT_EQ(collected.keptBytes, 0u);
  EXPECT_FALSE(fs::exists(older) || fs::exists(newer));
  EXPECT_TRUE(fs::exists(own / (keyOf(2) + ".bundle"))) << "no format's folder";
}

TEST_F(BundleStoreTest, LockFilesThatNobodyHoldsGoAndOthersStay) {
  BundleStore store(folder);
  ASSERT_TRUE(store.create().ok());
  std::ofstream(store.lockPath(keyOf(1)));
  std::optional<KeyLock> held;
  ASSERT_EQ(KeyLock::tryLock(store.lockPath(keyOf(2)), held), KeyLock::State::Held);
  store.collect(0);
  EXPECT_EQ(leftovers(folder), std::vector<std::string>{store.lockPath(keyOf(2))});
  held.reset();
  EXPECT_TRUE(leftovers(folder).empty());
}

TEST_F(BundleStoreTest, ExportAndImport) {
  BundleStore store(folder / "a"), other(folder / "b");
  for (int i : {1, 2, 3})
    ASSERT_TRUE(store.publish(programOf(keyOf(i))).ok());
  fs::path exported = folder / "exported";
  StatusOr<std::vector<std::string>> paths = store.exportTo(exported, {keyOf(1), keyOf(3)});
  ASSERT_TRUE(paths) << paths.status().toString();
  ASSERT_EQ(paths->size(), 2u);
  EXPECT_TRUE(bundle::loadBundle(paths->at(0)));
  std::ofstream(exported / "readme.txt") << "not a bundle";
  StatusOr<std::vector<std::string>> keys = other.importFrom(exported);
  ASSERT_TRUE(keys) << keys.status().toString();
  EXPECT_EQ(keys->size(), 2u);
  EXPECT_EQ(*other.read(keyOf(3)), programOf(keyOf(3)));
  EXPECT_EQ(other.read(keyOf(2)).status().code(), StatusCode::NotFound);
}

TEST_F(BundleStoreTest, FilesOfOneNameDoNotMeetInAnExport) {
  BundleStore store(folder / "a");
  for (int i : {1, 2}) {
    bundle::Program program = programOf(fmt::format("{:016x}{:048x}", i, 0));
    program.name = "decode/../x";
    ASSERT_TRUE(store.publish(program).ok());
  }
  StatusOr<std::vector<std::string>> paths = store.exportTo(folder / "out");
  ASSERT_TRUE(paths);
  EXPECT_EQ(fs::path(paths->at(0)).filename(), "decode----x-cpu-0000000000000001.bundle");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "out"), fs::directory_iterator()), 2);
}

TEST_F(BundleStoreTest, ImportNamesWhatIsWrong) {
  BundleStore store(folder / "a");
  EXPECT_EQ(
      store.importFrom(folder / "none").status().message(),
      fmt::format("'{}' is no folder; name one with .bundle files", (folder / "none").string()));
  fs::create_directories(folder / "in");
  std::ofstream(folder / "in/bad.bundle") << "not a bundle";
  EXPECT_NE(store.importFrom(folder / "in").status().message().find("bad.bundle"),
            std::string::npos);
  bundle::Program program = programOf(keyOf(1));
  program.key = "../../elsewhere";
  ASSERT_TRUE(bundle::saveBundle(program, folder / "in/bad.bundle").ok());
  EXPECT_NE(store.importFrom(folder / "in").status().message().find("hexadecimal"),
            std::string::npos);
}
