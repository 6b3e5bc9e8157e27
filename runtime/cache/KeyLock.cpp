// A record lock (fcntl) and not flock: a forked child would hold a flock on, also after its
// parent was killed in the middle of a compile. A record lock belongs to the process: it does
// not exclude its threads, and closing the file anywhere in the process gives it back. So a
// table of what this process holds comes first.
#include "runtime/cache/KeyLock.h"

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace llmopt::runtime {

namespace {

/// Paths that this process holds.
struct Held {
  const pid_t process = ::getpid();
  std::mutex mutex;
  std::set<std::string> paths;

  /// A child of a fork has a table of its own: its parent's locks are not its, and its
  /// parent's mutex may be locked for ever.
  static Held &ofThisProcess() {
    static std::atomic<Held *> table{nullptr};
    Held *seen = table.load(std::memory_order_acquire);
    if (seen && seen->process == ::getpid())
      return *seen;
    auto own = std::make_unique<Held>();
    return table.compare_exchange_strong(seen, own.get()) ? *own.release() : *seen;
  }

  bool add(const std::string &path) {
    std::lock_guard lock(mutex);
    return paths.insert(path).second;
  }
  void remove(const std::string &path) {
    std::lock_guard lock(mutex);
    paths.erase(path);
  }
};

/// Whether the file at `path` is still the open one: a holder removes it before it unlocks.
bool isAt(int file, const std::string &path) {
  struct stat open, there;
  return ::fstat(file, &open) == 0 && ::stat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

/// Opens and locks the file that is at `path`; -1 with errno where that fails.
int openAndLock(const std::string &path) {
  for (;;) {
    int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
      return -1;
    struct flock whole = {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (::fcntl(file, F_SETLK, &whole) != 0) {
      int error = errno == EACCES ? EAGAIN : errno;
      ::close(file);
      errno = error;
      return -1;
    }
    if (isAt(file, path))
      return file;
    ::close(file); // locked a file that its last holder has removed
  }
}

} // namespace

KeyLock::State KeyLock::tryLock(const std::string &path, std::optional<KeyLock> &lock) {
  Held &held = Held::ofThisProcess();
  if (!held.add(path))
    return State::Taken;
  int file = openAndLock(path);
  if (file >= 0) {
    lock.emplace(KeyLock(file, path));
    return State::Held;
  }
  bool taken = errno == EAGAIN;
  held.remove(path);
  return taken ? State::Taken : State::Impossible;
}

KeyLock::KeyLock(KeyLock &&other) noexcept
    : file(std::exchange(other.file, -1)), path(std::move(other.path)) {}

KeyLock::~KeyLock() {
  if (file < 0)
    return;
  ::unlink(path.c_str());
  ::close(file);
  Held::ofThisProcess().remove(path);
}

} // namespace llmopt::runtime
